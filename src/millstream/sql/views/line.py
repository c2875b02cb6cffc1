"""Any other SELECT: the query as Spark SQL over its inputs, for a line of operators.

What ``view.plan_view`` refuses is taken here as it stands: Spark analyses and optimizes it, and
``spark.lowering`` makes its plan incremental, node by node.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from sqlglot import UnsupportedError, exp

from millstream.errors import SqlUnsupportedError
from millstream.sql.refusals import common_of
from millstream.sql.views.errors import ErrorReporter
from millstream.sql.views.faithful_reader import read_tree
from millstream.sql.views.functions import check_repeatable, function_name
from millstream.sql.views.plan import ViewPlan, log_relation
from millstream.sql.views.relations import check_names
from millstream.sql.views.trees import alias, column, nested, rendered, select
from millstream.sql.views.view import as_view, plan_view
from millstream.sql.views.windows import BOUNDS, as_window, is_bound, is_window, spark_call

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.sql.inputs import Input
    from millstream.sql.statements.statement import CreateView, Query, Select

_IN_LOG_ORDER = frozenset(
    {"any_value", "array_agg", "collect_list", "collect_set", "first", "first_value", "last"}
    | {"last_value", "listagg", "max_by", "min_by", "mode", "percentile_approx", "string_agg"}
)
"""Aggregates that go by the order of the log, which the rows on a line do not keep."""

_WHY = "a line of operators, one feed, one partition"


def plan_query(statement: CreateView | Query | Select, inputs: Callable[[str], Input]) -> ViewPlan:
    """Return the plan of a view, or of a query that is to be kept up to date.

    One aggregate over one feed is Spark's own; anything else is a line of operators, and so is
    what joins, or reads a view beside another log.

    Args:
        statement: what was read.
        inputs: gives what a log is by its name, and raises when there is none.

    Raises:
        SqlError: it cannot be answered; the hint says what to write instead.
    """
    try:
        plan = plan_view(statement, inputs)
    except SqlUnsupportedError:
        if not _is_immediate(as_view(statement)):
            raise
        return plan_line(statement, inputs)
    if len(plan.inputs) == 1 or not _is_immediate(as_view(statement)):
        return plan
    tree = read_tree(as_view(statement).query)
    if any(function_name(each) in _IN_LOG_ORDER for each in tree.walk()):
        return plan
    if plan.lookups or any(inputs(each).view is not None for each in plan.inputs):
        return plan_line(statement, inputs)
    return plan


def plan_line(statement: CreateView | Query | Select, inputs: Callable[[str], Input]) -> ViewPlan:
    """Return the plan of a view as a line of operators.

    Args:
        statement: what was read.
        inputs: gives what a log is by its name, and raises when there is none.

    Raises:
        SqlUnsupportedError: it says when results are emitted, or how late rows may be.
    """
    view = as_view(statement)
    query = view.query
    errors = ErrorReporter(query.sql, query.line, query.column)
    _check_emit(view, errors)
    tree = read_tree(query)
    check_repeatable(tree, errors)
    through: set[str] = set()
    if len({each.name.lower() for each in _tables(tree)}) > 1:
        through = _expand_views(tree, inputs)
    _name_columns(tree)
    found: dict[str, Input] = {}
    for table in _tables(tree):
        name = table.name.lower()
        if name not in found:
            found[name] = inputs(table.name)
        _rename(table, log_relation(list(found).index(name)))
    for each in list(tree.find_all(exp.Select)):
        _rewrite_windows(each, errors)
    try:
        sql = rendered(tree)
    except UnsupportedError as error:
        errors.refuse(None, f"Spark SQL cannot express it: {error}", "Write it in another way.")
    if not found:
        hint = "Name a source, a table or a view: SELECT ... FROM trades."
        errors.refuse(tree, "a view that reads nothing would never change", hint)
    check_names(found.values(), errors)
    names = tuple(each.name for each in found.values())
    meaning = "\n".join([*map(str.lower, names), sql])
    return ViewPlan(
        inputs=names,
        shape="rows",
        spark_sql=sql,
        columns=(),
        why=_WHY,
        fingerprint=hashlib.sha256(meaning.encode()).hexdigest(),
        line=True,
        through=tuple(sorted(through)),
        widths=tuple(len(each.schema.columns) for each in found.values()),
    )


def _tables(tree: exp.Expr) -> list[exp.Table]:
    """The relations that a query reads, in the order of its text."""
    tables = [each for each in tree.find_all(exp.Table) if common_of(each) is None]
    return sorted(tables, key=lambda each: each.this.meta.get("start", 0))


def _expand_views(tree: exp.Query, inputs: Callable[[str], Input]) -> set[str]:
    """Have a query read, instead of views, what these read; returns the names of the views.

    So all that it reads are logs of which each has the newest rows, at every LSN.
    """
    names: set[str] = set()
    for table in _tables(tree):
        found = inputs(table.name)
        if found.view is None:
            continue
        inner = read_tree(found.view.query)
        names |= {found.name, *_expand_views(inner, inputs)}
        _name_columns(inner)
        shown = select([column(each) for each in found.schema.names], nested(inner))
        made = exp.Subquery(this=shown, alias=_known_as(table))
        made.set("joins", table.args.get("joins"))
        table.replace(made)
    return names


def _name_columns(tree: exp.Query) -> None:
    """Name the columns of a query that have no name of their own, as in all views."""
    while isinstance(tree, exp.SetOperation | exp.Subquery):
        tree = tree.this
    for place, item in enumerate(tree.expressions if isinstance(tree, exp.Select) else []):
        if is_bound(item) or (isinstance(item, exp.Column) and item.name.upper() in BOUNDS):
            item.replace(alias(item, item.name if isinstance(item, exp.Column) else f"_c{place}"))
        elif not isinstance(item, exp.Alias | exp.Aliases | exp.Column | exp.Dot | exp.Star):
            item.replace(alias(item, f"_c{place}"))


def _rename(table: exp.Table, name: str) -> None:
    """Have a table read another relation, under the name by which the query knows it."""
    table.set("alias", _known_as(table))
    table.set("this", exp.to_identifier(name, quoted=True))


def _known_as(table: exp.Table) -> exp.Expr:
    """The name by which a query knows a table."""
    given: exp.Expr | None = table.args.get("alias")
    return given or exp.TableAlias(this=exp.to_identifier(table.name, quoted=True))


def _rewrite_windows(query: exp.Select, errors: ErrorReporter) -> None:
    """Write TUMBLE and HOP, and the functions that give their bounds, as Spark does."""
    own = list(query.walk(prune=lambda each: isinstance(each, exp.Query) and each is not query))
    group = query.args.get("group")
    keys = [] if group is None else [_window_in(each) for each in group.walk()]
    found = [spark_call(each, errors) for each in keys if each is not None]
    for each in own:
        if is_window(each):
            each.replace(spark_call(each, errors))
        elif is_bound(each):
            side = BOUNDS[str(each.this).upper()].lower()
            window = _window_in(each)
            if window is not None:
                each.replace(_field(spark_call(window, errors), side))
            elif found:
                each.replace(_field(found[0], side))
        elif isinstance(each, exp.Column) and each.name.upper() in BOUNDS and found:
            each.replace(_field(found[0], BOUNDS[each.name.upper()].lower()))


def _window_in(tree: exp.Expr) -> exp.Expr | None:
    """The window that a tree is, or that a bound says all of."""
    window = as_window(tree) if is_bound(tree) else tree
    return window if is_window(window) else None


def _field(window: exp.Expr, side: str) -> exp.Expr:
    return exp.Dot(this=window.copy(), expression=exp.to_identifier(side, quoted=True))


def _is_immediate(view: CreateView) -> bool:
    """Whether results are emitted at each change, and no row comes too late."""
    return view.emit.mode == "changes" and not view.lateness and view.late_to is None


def _check_emit(view: CreateView, errors: ErrorReporter) -> None:
    if not _is_immediate(view):
        hint = "Leave it out; or make it a view of its own over one that has EMIT CHANGES."
        errors.refuse(None, "such a query is emitted at each change, and waits for no row", hint)
