"""The planner of views: from a query that is read to Spark SQL over what it reads.

Takes: a statement, and what the catalog knows of the logs that it names.
Gives: a ``ViewPlan``. Spark analyses and optimizes its SQL, and ``views.lower`` makes Spark's plan
incremental, node by node.
Never knows: Spark, rows, or what exists besides.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlglot import UnsupportedError, exp

from millstream.sql.inputs import CLOCK, CLOCK_INPUT, TICKS
from millstream.sql.refusals import common_of
from millstream.views.plan.aggregates import rewrite_ordered
from millstream.views.plan.asof import rewrite_asof
from millstream.views.plan.emit import (
    END,
    add_end,
    check_waits,
    event_window,
    is_immediate,
    leave_out_closed,
    windows_of,
)
from millstream.views.plan.errors import (
    ErrorReporter,
    at_emit,
    check_names,
    check_recursion,
    closing_clause,
    refuse_timeless,
)
from millstream.views.plan.functions import (
    NOW_HINT,
    check_repeatable,
    has_aggregate,
    order_within,
)
from millstream.views.plan.laterals import nest_laterals
from millstream.views.plan.log_order import LogOrder, reads_others
from millstream.views.plan.now import is_clock, lift_having, rewrite_now
from millstream.views.plan.order import hidden_of, order_of
from millstream.views.plan.plan import ViewPlan, Waiting, log_relation
from millstream.views.plan.qualify import rewrite_qualify
from millstream.views.plan.query_text import as_view, read_tree
from millstream.views.plan.sessions import rewrite_sessions
from millstream.views.plan.subqueries import (
    aggregate_lookups,
    rewrite_quantified,
    rewrite_tests,
)
from millstream.views.plan.temporal import rewrite_temporal
from millstream.views.plan.trees import alias, column, nested, rendered, select
from millstream.views.plan.windows import rewrite_windows, spell_out_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.sql.inputs import Input
    from millstream.sql.statements.statement import CreateView, Query, Select


def plan_query(statement: CreateView | Query | Select, inputs: Callable[[str], Input]) -> ViewPlan:
    """Return the plan of a view, or of a query that is to be kept up to date.

    Args:
        statement: what was read.
        inputs: gives what a log is by its name, and raises when there is none.

    Raises:
        SqlError: it cannot be answered; the hint says what to write instead.
    """
    view = as_view(statement)
    query = view.query
    errors = ErrorReporter(query.sql, query.line, query.column)
    tree = lift_having(read_tree(query))
    if not is_immediate(view):
        check_waits(view, tree)
    rewrite_now(tree, errors)
    order_within(tree, errors)
    check_repeatable(tree, errors)
    tree = rewrite_qualify(tree)
    tree, order = order_of(tree, errors, hide=view.kind == "view")
    # A view alone is read by its log, which is never ahead of itself.
    several = len({each.name.lower() for each in _tables(tree)}) > 1
    relations = _Relations(inputs, errors, expand=several)
    relations.rename(tree)
    _name_columns(tree)
    found = relations.found
    columns_of = relations.columns_of
    for each in tree.find_all(exp.Select):
        spell_out_keys(each, columns_of)
    orders = LogOrder(list(found.values()))
    lateness = view.lateness // timedelta(microseconds=1)
    retracts = _retracts(view, tree, orders)
    window = None
    if not is_immediate(view):
        _check_timed(view, found, errors)
        window = add_end(view, tree, orders, errors)
    if view.emit.mode == "every" or not found:  # what reads nothing is there from the first tick
        found[CLOCK] = TICKS
    if window is None:  # it waits for none
        window = event_window(tree, orders, errors)
    if window is not None:
        leave_out_closed(tree, window, lateness, orders)
    rewrite_ordered(tree, orders, errors)
    for each in list(tree.find_all(exp.Select)):
        rewrite_sessions(each, columns_of, errors)
        rewrite_windows(each, errors)
        rewrite_tests(each)
    try:
        sql = rendered(tree)
    except UnsupportedError as error:
        errors.refuse(None, f"Spark SQL cannot express it: {error}", "Write it in another way.")
    check_names(found.values(), errors)
    _check_temporal(relations, errors)
    names = tuple(each.name for each in found.values())
    temporal = tuple(n for n, name in enumerate(found) if name in relations.temporal)
    retracting = [n for n, each in enumerate(found.values()) if each.retracts]
    meaning = "\n".join([*map(str.lower, names), sql, *([str(lateness)] if window else [])])
    return ViewPlan(
        inputs=names,
        spark_sql=sql,
        emit=_waits_for(view),
        added=(*hidden_of(order), *([END] if window else [])),
        window=window,
        lateness=lateness,
        retracts=retracts,
        fingerprint=hashlib.sha256(meaning.encode()).hexdigest(),
        through=tuple(sorted(relations.through)),
        unique=tuple(map(_key_of, found.values())),
        widths=tuple(len(each.schema.columns) for each in found.values()),
        dated=tuple(sorted(orders.dated)),
        grows=tuple(not each.retracts for each in found.values()),
        retracting=tuple(n for n in retracting if n not in temporal),
        temporal=temporal,
        order=order,
    )


def _key_of(given: Input) -> tuple[int, ...]:
    """The places of the columns of a log's key; none without one."""
    return tuple(map(given.schema.names.index, given.schema.key))


def _retracts(view: CreateView, tree: exp.Query, orders: LogOrder) -> bool:
    """Whether a row that the view has shown may change or disappear."""
    query, first_rows = tree, ("limit", "offset")
    if view.emit.mode == "final" or orders.grows(tree):
        return False
    while isinstance(query, exp.Subquery) and not any(map(query.args.get, first_rows)):
        query = query.this
    if not isinstance(query, exp.Select) or not orders.reads_growing(query):
        return True
    group = query.args.get("group")
    computed = [*query.expressions, *filter(None, [query.args.get("having"), group])]
    if any(map(reads_others, computed)) or any(map(query.args.get, first_rows)):
        return True
    if view.emit.mode == "close" and not view.lateness:
        return any(str(each.this).upper() == "SESSION" for each in windows_of(query))
    return not (group or query.args.get("distinct")) or any(map(has_aggregate, computed))


def _waits_for(view: CreateView) -> Waiting | None:
    """What rows wait for before they leave; None: for nothing."""
    microsecond = timedelta(microseconds=1)
    if view.emit.every is not None:
        return Waiting(every=view.emit.every // microsecond)
    if view.emit.mode == "changes":
        return None
    return Waiting(lateness=view.lateness // microsecond if view.emit.mode == "final" else 0)


def _check_timed(view: CreateView, found: Mapping[str, Input], errors: ErrorReporter) -> None:
    """Refuse windows that are to close where no log has event time, or where NOW() decides."""
    errors, needs = at_emit(view, errors), closing_clause(view)
    if CLOCK in found:
        errors.refuse(None, "NOW() is supported with EMIT CHANGES only", NOW_HINT)
    if needs and all(each.event_time is None for each in found.values()):
        refuse_timeless(needs, errors)


def _check_temporal(relations: _Relations, errors: ErrorReporter) -> None:
    """Refuse what would join a row with a table as it was at another LSN.

    A view begins with the current rows of other tables, and with those all rows have one LSN: then
    only what comes from the log itself is in its order.
    """
    temporal = relations.temporal
    others = [
        n for n, given in relations.found.items() if given.retracts and n not in {*temporal, CLOCK}
    ]
    if len(temporal) > 1 and others:
        hint = "Join some of them in a view of its own."
        what = f"FOR SYSTEM_TIME AS OF of two tables beside {others[0]} is not supported"
        errors.refuse(None, what, hint)


def _tables(tree: exp.Expr) -> list[exp.Table]:
    """The relations that a query reads, in the order of its text."""
    tables = [each for each in tree.find_all(exp.Table) if common_of(each) is None]
    return sorted(tables, key=lambda each: each.this.meta.get("start", 0))


class _Relations:
    """Has queries read relations of Spark instead of the logs that they name.

    Args:
        inputs: gives what a log is by its name.
        errors: raises errors.
        expand: whether they read, instead of views, what these read. So all that they read are
            logs of which each has the newest rows, at every LSN.

    Attributes:
        found: the logs, by their names in small letters; the first is ``__log0``, and so on.
        through: the views of which the inputs are read.
        temporal: the tables that are joined FOR SYSTEM_TIME AS OF, one for each such join.
    """

    def __init__(
        self, inputs: Callable[[str], Input], errors: ErrorReporter, *, expand: bool
    ) -> None:
        self._inputs = inputs
        self._errors = errors
        self._expand = expand
        self.found: dict[str, Input] = {}
        self.through: set[str] = set()
        self.temporal: list[str] = []

    def rename(self, tree: exp.Query) -> None:
        """Have a query read the relations."""
        _check_forms(tree, self._errors)
        rewrite_quantified(tree, self._errors)
        aggregate_lookups(tree, self._inputs)
        nest_laterals(tree, self._errors)
        rewrite_asof(tree, self._errors)
        self.temporal += rewrite_temporal(tree, self._inputs, self._errors)
        for table in _tables(tree):
            given = CLOCK_INPUT if is_clock(table) else self._inputs(table.name)
            if self._expand and given.view is not None:
                self.through.add(given.name)
                table.replace(self._expanded(table, given, given.view))
                continue
            self.found.setdefault(table.name.lower(), given)
            place = list(self.found).index(table.name.lower())
            table.set("alias", _known_as(table))
            table.set("this", exp.to_identifier(log_relation(place), quoted=True))

    def columns_of(self, table: exp.Table) -> set[str]:
        """The names of a relation's columns, in small letters."""
        logs = {log_relation(place): given for place, given in enumerate(self.found.values())}
        given = logs.get(table.name)
        return {each.lower() for each in given.schema.names} if given else set()

    def _expanded(self, table: exp.Table, given: Input, view: CreateView) -> exp.Subquery:
        """The query of a view, in place of its name."""
        inner = rewrite_qualify(lift_having(read_tree(view.query)))
        rewrite_now(inner, self._errors)
        self.rename(inner)  # before it is where the names of another query hold
        _name_columns(inner)
        shown = select([column(each) for each in given.schema.names], nested(inner))
        made = exp.Subquery(this=shown, alias=_known_as(table))
        for part in ("joins", "laterals", "pivots", "sample"):
            made.set(part, table.args.get(part))
        return made


def _name_columns(tree: exp.Query) -> None:
    """Name the columns of a query that have no name of their own, as in all views."""
    while isinstance(tree, exp.SetOperation | exp.Subquery):
        tree = tree.this
    for place, item in enumerate(tree.expressions if isinstance(tree, exp.Select) else []):
        if not isinstance(item.unnest(), exp.Alias | exp.Aliases | exp.Column | exp.Dot | exp.Star):
            item.replace(alias(item, f"_c{place}"))


def _known_as(table: exp.Table) -> exp.Expr:
    """The name by which a query knows a table."""
    given: exp.Expr | None = table.args.get("alias")
    return given or exp.TableAlias(this=exp.to_identifier(table.name, quoted=True))


def _check_forms(tree: exp.Query, errors: ErrorReporter) -> None:
    """Refuse what Spark SQL has no words for, or what no operator does."""
    check_recursion(tree, errors)
    for star in tree.find_all(exp.Star):
        odd = [each for each in ("replace", "rename") if star.args.get(each)]
        if odd:
            errors.refuse(star, f"* {odd[0].upper()} is not supported", "Name the columns.")
    for union in tree.find_all(exp.SetOperation):
        if union.args.get("by_name"):
            hint = "Write the columns in the same order."
            errors.refuse(union.expression, "UNION BY NAME is not supported in a view", hint)
