"""Windows in a dataflow: TUMBLE, HOP and CUMULATE, written as Spark's own functions.

A window is known by a number: TUMBLE by its start, computed from the time; HOP and CUMULATE, of
which a row is in several, by their ends, each from a LATERAL VIEW of its own. It is what the groups
are by, and its bounds are computed from it. So windows may stand anywhere, and several in one
SELECT; those that have a LATERAL VIEW not in the condition of a join.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.views.plan.functions import is_aggregate
from millstream.views.plan.log_order import leave_out
from millstream.views.plan.trees import alias, both, call, column, iff, is_null, not_null, text
from millstream.views.plan.window_specs import (
    BOUNDS,
    as_window,
    cumulated_ends,
    cumulated_start,
    hopping_ends,
    hopping_start,
    is_bound,
    is_window,
    tumbled_end,
    tumbled_start,
    window_over,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.views.plan.errors import ErrorReporter
    from millstream.views.plan.plan import Window

_EQUAL = "equal"
_AROUND_KEYS = (exp.Rollup, exp.Cube, exp.GroupingSets, exp.Tuple, exp.Paren)


def is_bound_name(tree: exp.Expr) -> bool:
    """Whether a tree is a column by the name of a bound, such as WINDOW_START."""
    return isinstance(tree, exp.Column) and not tree.table and tree.name.upper() in BOUNDS


def rewrite_windows(query: exp.Select, errors: ErrorReporter) -> None:
    """Write the windows of a SELECT, and their bounds, as Spark's functions.

    Raises:
        SqlUnsupportedError: it is a SESSION that nothing is grouped by, or its lengths do not fit.
    """
    _name_bounds(query)
    own = _own(query)
    _mark_equal(own)
    group = query.args.get("group")
    keys = [window for each in (_own(group) if group else []) if (window := window_in(each))]
    keys = keys or [
        window
        for item in query.expressions
        for each in item.walk()
        if (window := window_in(each)) is not None
    ]
    windows = _Windows(query, errors)
    for each in own:
        window = window_in(each)
        if window is None and (is_bound(each) or is_bound_name(each)):
            window = _meant(each, keys, errors)
        elif window is not None and group:
            _check_key(window, each, keys, group, errors)
        if window is not None:
            each.replace(windows.value(window, each))


def spell_out_keys(query: exp.Select, columns_of: Callable[[exp.Table], set[str]]) -> None:
    """Write windows in GROUP BY that stand there as the place or the name of an item of the SELECT.

    Args:
        query: the SELECT, which is changed.
        columns_of: gives the columns of a table after FROM, of which a name stands for a column.
    """
    group, items = query.args.get("group"), query.expressions
    source = query.args.get("from_")
    if group is None or source is None:
        return
    relations = [source.this, *(each.this for each in query.args.get("joins") or [])]
    known = {name for each in relations for name in _names_of(each, columns_of)}
    for key in list(group.expressions):
        found: exp.Expr | None = None
        if isinstance(key, exp.Literal) and key.is_int and 0 < int(key.name) <= len(items):
            found = items[int(key.name) - 1]
        elif isinstance(key, exp.Column) and not key.table and key.name.lower() not in known:
            found = next((each for each in items if each.alias.lower() == key.name.lower()), None)
        if found is not None and window_in(found.unalias()) is not None:
            key.replace(found.unalias().copy())


def _names_of(relation: exp.Expr, columns_of: Callable[[exp.Table], set[str]]) -> set[str]:
    if isinstance(relation, exp.Table):
        return columns_of(relation)
    inner = relation.unnest()
    if not isinstance(inner, exp.Query):
        return set()
    return {each.alias_or_name.lower() for each in inner.selects}


def _own(query: exp.Expr) -> list[exp.Expr]:
    """The nodes of a query without those of its subqueries."""
    return list(query.walk(prune=lambda each: isinstance(each, exp.Query) and each is not query))


def _name_bounds(query: exp.Select) -> None:
    """Have the columns that are bounds keep their names."""
    for item in query.expressions:
        if is_bound_name(item):
            item.replace(alias(item, item.name))


def _mark_equal(nodes: list[exp.Expr]) -> None:
    """Mark windows that are compared with one of the same lengths: their starts are enough."""
    for each in nodes:
        if not isinstance(each, exp.EQ):
            continue
        sides = [each.this.unnest(), each.expression.unnest()]
        tumbles = all(is_window(side) and str(side.this).upper() == "TUMBLE" for side in sides)
        if tumbles and sides[0].expressions[1:] == sides[1].expressions[1:]:
            for side in sides:
                side.meta[_EQUAL] = True


def window_in(tree: exp.Expr) -> exp.Expr | None:
    """Return the window that a tree is, or that a bound says all of."""
    window = as_window(tree) if is_bound(tree) else tree
    return window if is_window(window) else None


def _check_key(
    window: exp.Expr,
    place: exp.Expr,
    keys: list[exp.Expr],
    group: exp.Expr,
    errors: ErrorReporter,
) -> None:
    """Refuse a window beside groups that is none of them; its time may be one, or aggregated.

    Raises:
        SqlUnsupportedError: it is not the same for all rows of a group.
    """
    inner: exp.Expr | None = place
    while inner is not None and not isinstance(inner, exp.Select):
        if is_aggregate(inner) or isinstance(inner, exp.Where | exp.Join | exp.Group):
            return
        inner = inner.parent
    if window in keys or window.expressions[0] in group.expressions:
        return
    name = str(place.this).upper()
    if any(is_window(each) for each in keys):
        hint = "Write the same as in GROUP BY, or WINDOW_START."
        errors.refuse(place, f"{name} is of another window than GROUP BY", hint)
    hint = f"Add {window.sql()} to GROUP BY."
    errors.refuse(place, f"{name} needs a window in GROUP BY", hint)


def _meant(bound: exp.Expr, windows: list[exp.Expr], errors: ErrorReporter) -> exp.Expr | None:
    """The window of a bound that does not say all of it.

    Raises:
        SqlUnsupportedError: it is a bound of another kind of window.
    """
    name = (bound.name if isinstance(bound, exp.Column) else str(bound.this)).upper()
    kind = name.removesuffix("_START").removesuffix("_END")
    times = bound.expressions[:1] if is_bound(bound) else []

    def fits(window: exp.Expr) -> bool:
        same = kind in {"WINDOW", str(window.this).upper()}
        return same and (not times or times == window.expressions[:1])

    kinds = [str(each.this).upper() for each in windows]
    if windows and kind not in {"WINDOW", *kinds}:
        hint = f"Write {kinds[0]}_START, or WINDOW_START."
        errors.refuse(bound, f"the window in GROUP BY is a {kinds[0]}", hint)
    return next(filter(fits, windows), next(iter(windows), None))


class _Windows:
    """Gives the values of a SELECT's windows; adds to the SELECT what they need."""

    def __init__(self, query: exp.Select, errors: ErrorReporter) -> None:
        self._query = query
        self._errors = errors
        self._ends: dict[exp.Expr, str] = {}
        self._timed: list[exp.Expr] = []

    def value(self, tree: exp.Expr, place: exp.Expr) -> exp.Expr:
        """What to write in a place for a window: its key, one of its bounds, or both."""
        window, time = window_over(tree, self._errors), tree.expressions[0]
        if window.kind == "session":
            hint = "GROUP BY SESSION(ts, INTERVAL '5 minutes') gives rows their session."
            self._errors.refuse(place, "SESSION is not supported outside of GROUP BY", hint)
        if window.kind == "tumble":
            self._leave_out_nulls(time, place)
            key, start, end = _tumble(time, window)
        else:
            name = self._ends.get(tree) or self._exploded(tree, time, window, place)
            starts = cumulated_start if window.kind == "cumulate" else hopping_start
            key, start = column(name), starts(name, window)
            end = call("timestamp_micros", column(name))
        if _is_key(place) or place.meta.get(_EQUAL):
            return key
        if is_window(place) and _is_partition(place):
            return key
        if is_window(place):
            made = call("named_struct", text("start"), start, text("end"), end)
            if self._is_grouped(place):  # by windows: a row without a time is in none
                return made
            return iff(is_null(time), exp.Null(), made)  # else those without a time are equal
        name = place.name if isinstance(place, exp.Column) else str(place.this)
        return start if BOUNDS[name.upper()] == "START" else end

    def _is_grouped(self, place: exp.Expr) -> bool:
        """Whether a place is above the groups of the SELECT."""
        where = place.find_ancestor(exp.Where, exp.Join)
        return bool(self._query.args.get("group")) and where is None

    def _leave_out_nulls(self, time: exp.Expr, place: exp.Expr) -> None:
        """A row without a time is in no group."""
        if self._is_grouped(place) and time not in self._timed:
            self._timed.append(time.copy())
            where = self._query.args.get("where")
            condition = both([where.this if where else None, not_null(time)])
            self._query.set("where", exp.Where(this=condition))

    def _exploded(self, tree: exp.Expr, time: exp.Expr, window: Window, place: exp.Expr) -> str:
        """The column that has the ends of the windows that a row is in, one in each copy of it."""
        joined = place.find_ancestor(exp.Join, exp.Select)
        if isinstance(joined, exp.Join):
            hint = "Select its bounds in a subquery after FROM, and join by these."
            what = f"{window.kind.upper()} in the condition of a join is not supported"
            self._errors.refuse(place, what, hint)
        name = f"_e{len(self._ends)}"
        self._ends[tree.copy()] = name
        ends = cumulated_ends if window.kind == "cumulate" else hopping_ends
        given = exp.TableAlias(this=_identifier(f"_w{name[2:]}"), columns=[_identifier(name)])
        made = exp.Lateral(this=ends(time, window), view=True, outer=False, alias=given)
        self._query.append("laterals", made)
        leave_out(self._query, given.name, [name])
        return name


def _identifier(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)


def _tumble(time: exp.Expr, window: Window) -> tuple[exp.Expr, ...]:
    """The start in microseconds, the start, and the end."""
    start = tumbled_start(time, window)
    return (
        start,
        call("timestamp_micros", start),
        call("timestamp_micros", tumbled_end(start, window)),
    )


def _is_key(place: exp.Expr) -> bool:
    """Whether a tree is one of the keys of GROUP BY."""
    parent = place.parent
    while isinstance(parent, _AROUND_KEYS):
        parent = parent.parent
    return isinstance(parent, exp.Group)


def _is_partition(place: exp.Expr) -> bool:
    """Whether a tree is a window in PARTITION BY, for which its start is enough."""
    return isinstance(place.parent, exp.Window) and place.arg_key == "partition_by"
