"""SESSION in a dataflow: a session is known by its first time.

A row begins a session if it is further than the gap from the one before it. The session of a row is
the last beginning up to it, and that is a key like any other. So a SELECT with a SESSION becomes
one over a query that gives each row its session, by two functions over the rows in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.views.plan.functions import is_aggregate
from millstream.views.plan.log_order import counts_rows
from millstream.views.plan.trees import (
    alias,
    both,
    call,
    closed,
    column,
    is_null,
    nested,
    not_null,
    number,
    select,
    text,
)
from millstream.views.plan.window_specs import BOUNDS, as_window, is_bound, is_window, window_over

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.views.plan.errors import ErrorReporter

BEGINS, SESSION = "_begins", "_session"
"""The columns by which ``views.lower.sessions`` knows what gives rows their session."""

_TIME = "_time"
_HINT = "Select it in a subquery after FROM, or around this query."
_READ = ("from_", "joins", "laterals", "where")


def rewrite_sessions(
    query: exp.Select, columns_of: Callable[[exp.Table], set[str]], errors: ErrorReporter
) -> None:
    """Write the SESSION that a SELECT groups by as a key that its rows have.

    Args:
        query: the SELECT, which is changed.
        columns_of: gives the columns of a table after FROM.
        errors: raises errors.

    Raises:
        SqlUnsupportedError: there is another window beside it, or it stands where it cannot.
    """
    group = query.args.get("group")
    keys = list(group.expressions) if group else []
    windows = [each for each in map(_as_session, keys) if each is not None]
    if not windows:
        return
    _check(query, windows, errors)
    session = windows[0]
    time, gap = session.expressions[0], window_over(session, errors).size
    others = [_meant(key, query, columns_of) for key in keys if _as_session(key) is None]
    names = _Names()
    inner = [*(alias(key, f"_k{place}") for place, key in enumerate(others)), alias(time, _TIME)]
    shown = [names.renamed(_bounded(_named(item), gap)) for item in query.expressions]
    having = query.args.get("having")
    tested = None
    if having:
        tested = names.renamed(_bounded(_with_items(having, query.expressions, others), gap))
    grouped = [*map(names.renamed, others), column(SESSION)]
    rows = select([*inner, *names.items], exp.Null())
    for part in _READ:
        rows.set(part, query.args.get(part))
    where = rows.args.get("where")
    rows.set("where", exp.Where(this=both([where.this if where else None, not_null(time)])))
    by = [column(f"_k{place}") for place in range(len(others))]
    made = select(shown, nested(_with_session(rows, by, gap)), None, grouped)
    for part in (*_READ, "group", "having"):
        query.set(part, made.args.get(part))
    query.set("expressions", made.expressions)
    query.set("having", tested)


def _as_session(key: exp.Expr) -> exp.Expr | None:
    """The SESSION that a key is, or that a bound says all of."""
    window = as_window(key) if is_bound(key) else key
    return window if is_window(window) and str(window.this).upper() == "SESSION" else None


def _check(query: exp.Select, windows: list[exp.Expr], errors: ErrorReporter) -> None:
    group = query.args["group"]
    parts = [*query.expressions, group, query.args.get("having")]
    nodes = [node for part in parts if part is not None for node in part.walk()]
    for each in nodes:
        if isinstance(each, exp.Query):
            errors.refuse(each, "a subquery beside SESSION is not supported", _HINT)
        if isinstance(each, exp.Star) and not counts_rows(each):
            errors.refuse(each, "* beside SESSION is not supported", "Name the columns.")
        if is_window(each) and _as_session(each) is None:
            errors.refuse(each, "another window beside SESSION is not supported", _HINT)
    if len(set(windows)) > 1 or any(group.args.get(part) for part in ("rollup", "cube")):
        errors.refuse(windows[0], "SESSION is one key, beside expressions", _HINT)
    if group.args.get("grouping_sets") or query.args.get("order") or query.args.get("distinct"):
        errors.refuse(windows[0], "SESSION with DISTINCT, an order or sets is not supported", _HINT)


def _meant(
    key: exp.Expr, query: exp.Select, columns_of: Callable[[exp.Table], set[str]]
) -> exp.Expr:
    """A key that is written as the place or the name of an item of the SELECT, as that item."""
    items = query.expressions
    if isinstance(key, exp.Literal) and not key.is_string and int(key.name) <= len(items):
        return _item(items[int(key.name) - 1])
    if not isinstance(key, exp.Column) or key.table:
        return key.copy()
    relations = [query.args["from_"].this, *(each.this for each in query.args.get("joins") or [])]
    known = [columns_of(each) if isinstance(each, exp.Table) else None for each in relations]
    if any(names is None or key.name.lower() in names for names in known):
        return key.copy()
    named = [each for each in items if each.alias.lower() == key.name.lower()]
    return _item(named[0]) if named else key.copy()


def _with_items(having: exp.Expr, items: Sequence[exp.Expr], keys: Sequence[exp.Expr]) -> exp.Expr:
    """HAVING with the items of the SELECT in place of their names; a key goes before an item."""
    named = {each.alias.lower(): each.unalias() for each in items if isinstance(each, exp.Alias)}
    made = having.copy()
    for each in list(made.walk(prune=is_aggregate)):
        is_name = isinstance(each, exp.Column) and not each.table and each not in keys
        if is_name and each.name.lower() in named:
            each.replace(closed(named[each.name.lower()]))
    return made


def _item(tree: exp.Expr) -> exp.Expr:
    """An item of the SELECT without its name."""
    found: exp.Expr = tree.unalias()
    return found.copy()


class _Names:
    """The columns that a SELECT reads, each under a name of its own."""

    def __init__(self) -> None:
        self._known: dict[exp.Expr, str] = {}

    @property
    def items(self) -> list[exp.Expr]:
        """The columns, as the query below gives them."""
        return [alias(tree, name) for tree, name in self._known.items()]

    def renamed(self, tree: exp.Expr) -> exp.Expr:
        """A tree that reads the names instead."""
        made = exp.Paren(this=tree.copy())  # so that all of it can be replaced
        for each in list(made.find_all(exp.Column)):
            if each.name not in {_TIME, SESSION}:
                name = self._known.setdefault(each.copy(), f"_c{len(self._known)}")
                each.replace(column(name))
        renamed: exp.Expr = made.this
        return renamed.pop()


def _named(item: exp.Expr) -> exp.Expr:
    """An item of the SELECT that is called what it was called, whatever it reads."""
    return alias(item, item.name) if isinstance(item, exp.Column) else item


def _is_bound(tree: exp.Expr) -> bool:
    is_name = isinstance(tree, exp.Column) and not tree.table and tree.name.upper() in BOUNDS
    return is_bound(tree) or is_name


def _bounded(tree: exp.Expr, gap: int) -> exp.Expr:
    """A tree with the session, and its bounds, by its key and by the last time in it."""
    start = column(SESSION)
    last = exp.Max(this=column(_TIME))
    end = call("timestamp_micros", exp.Add(this=call("unix_micros", last), expression=number(gap)))

    def bounded(each: exp.Expr) -> exp.Expr:
        if _as_session(each) is not None and not is_bound(each):
            return call("named_struct", text("start"), start, text("end"), end)
        if not _is_bound(each):
            return each
        name = each.name if isinstance(each, exp.Column) else str(each.this)
        return start.copy() if BOUNDS[name.upper()] == "START" else end.copy()

    return tree.copy().transform(bounded)


def _with_session(rows: exp.Select, by: Sequence[exp.Expr], gap: int) -> exp.Select:
    """Rows that have their session."""
    before = _over(call("LAG", column(_TIME)), by)
    apart = exp.Sub(this=call("unix_micros", column(_TIME)), expression=call("unix_micros", before))
    begins = exp.or_(is_null(before), exp.GT(this=apart, expression=number(gap)))
    marked = exp.Case(ifs=[exp.If(this=begins, true=column(_TIME))])
    began = select([exp.Star(), alias(marked, BEGINS)], nested(rows))
    session = _over(exp.Max(this=column(BEGINS)), by)
    return select([exp.Star(), alias(session, SESSION)], nested(began))


def _over(function: exp.Expr, by: Sequence[exp.Expr]) -> exp.Expr:
    order = exp.Order(expressions=[exp.Ordered(this=column(_TIME))])
    return exp.Window(this=function, partition_by=[each.copy() for each in by], order=order)
