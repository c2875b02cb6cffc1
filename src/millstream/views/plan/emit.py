"""EMIT in a dataflow: the column with the ends of windows, for which rows wait."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.views.plan.errors import (
    GROUPS,
    WINDOW,
    ErrorReporter,
    at_emit,
    closing_clause,
    refuse_timeless,
)
from millstream.views.plan.functions import function_name, has_aggregate
from millstream.views.plan.plan import Window
from millstream.views.plan.trees import alias, both, call, column, is_null, not_null, number
from millstream.views.plan.window_specs import is_bound, tumbled_end, tumbled_start, window_over
from millstream.views.plan.windows import is_bound_name, window_in

if TYPE_CHECKING:
    from millstream.sql.statements.statement import CreateView
    from millstream.views.plan.log_order import LogOrder

END = "_end"
"""The end of the window of a row; it is the last column, and nobody sees it."""

_SEVERAL = ("hop", "cumulate")
"""Windows of which a row may be in several."""

_MOMENT = Window("tumble", "", size=1, slide=1)
"""A window of one microsecond: it closes when the watermark has passed its event time."""

_AHEAD = frozenset({"lead", "ntile", "percent_rank", "cume_dist"})
"""Functions over rows in order whose value later rows change."""

_ABOVE_GROUPS = ("distinct", "limit", "offset")
"""Parts of a query whose rows are made of several groups."""

_APART = "Make the joined rows a view of its own, with WATERMARK FOR ts, and group that one."


def is_immediate(view: CreateView) -> bool:
    """Return whether results are emitted at each change, and no row comes too late."""
    return view.emit.mode == "changes" and not closing_clause(view)


def check_waits(view: CreateView, tree: exp.Query) -> None:
    """Refuse an EMIT that waits of a query that has no groups, or no window where it needs one."""
    query, needs = tree.unnest(), closing_clause(view)
    errors = at_emit(view, ErrorReporter(view.query.sql, view.query.line, view.query.column))
    if needs:
        if len(windows_of(query)) != 1 and not _emits_rows(view, query):
            errors.refuse(None, f"{needs} needs a window", WINDOW)
        return
    grouped = query.args.get("group") or query.args.get("distinct")
    if not grouped and not any(map(has_aggregate, query.expressions)):
        errors.refuse(None, "EMIT EVERY needs groups, whose changes it can put together", GROUPS)


def add_end(
    view: CreateView, tree: exp.Query, orders: LogOrder, errors: ErrorReporter
) -> Window | None:
    """Have a query give the ends of its windows, if the view waits for these.

    Returns:
        The window; None when the view waits for ticks only.

    Raises:
        SqlUnsupportedError: there is more than one grouping, or the window is none that closes.
        SqlColumnError: a column has the name of the one with the ends.
    """
    query, needs, errors = tree.unnest(), closing_clause(view), at_emit(view, errors)
    if not needs:
        return None
    if not windows_of(query):
        return _rows_end(query, orders, needs, errors)
    group = query.args.get("group")
    if group is not None and group.find(exp.Rollup, exp.Cube, exp.GroupingSets) is not None:
        hint = "Write one view for each grouping."
        errors.refuse(None, "EMIT with several groupings at once is not supported", hint)
    window = _closing(windows_of(query)[0], view, query, orders, errors)
    _check_rows(query, window, needs, errors)
    end: exp.Expr = column("WINDOW_END")
    if window.kind == "session":
        end = _after_session(window, is_final=view.emit.mode == "final")
    _append_end(query, end, errors)
    return window


def _emits_rows(view: CreateView, query: exp.Expr) -> bool:
    """Whether a view waits until a row can no longer change, of a query without groups."""
    if view.emit.mode not in {"close", "final"} or not isinstance(query, exp.Select):
        return False
    if any(map(query.args.get, (*_ABOVE_GROUPS, "group", "having"))):
        return False
    items = [each.copy() for each in query.expressions]
    over = [each for item in items for each in item.find_all(exp.Window)]
    for each in over:
        each.this.replace(exp.Null())  # of rows, not of groups
    return not any(map(has_aggregate, items))


def _rows_end(query: exp.Expr, orders: LogOrder, needs: str, errors: ErrorReporter) -> Window:
    """Have a query without groups give, for each row, when it can no longer change.

    That is when the watermark has passed its event time: no earlier row comes any more. Of rows
    whose partition (OVER) has a window, it is the window's end.
    """
    time = orders.of(query).time
    if time is None:
        refuse_timeless(needs, errors)
    windows = {
        replace(window_over(found, errors), column="")
        for over in query.find_all(exp.Window)
        for found in [_window_of(over, orders, errors)]
        if found is not None
    }
    if len(windows) > 1:
        hint = "Write the same window in each PARTITION BY, or a view for each."
        errors.refuse(None, f"{needs} of OVER with several windows is not supported", hint)
    window = replace(next(iter(windows), _MOMENT), column=time.sql())
    end = call("timestamp_micros", tumbled_end(tumbled_start(time, window), window))
    _leave_out_nulls(query, time)
    _append_end(query, end, errors)
    return window


def _window_of(over: exp.Window, orders: LogOrder, errors: ErrorReporter) -> exp.Expr | None:
    """The window in PARTITION BY; None if the rows are in the order of event time.

    Raises:
        SqlUnsupportedError: there is neither, so that a later row may change any row.
    """
    for each in over.args.get("partition_by") or ():
        found = window_in(each)
        if found is not None and str(found.this).upper() == "TUMBLE":
            return found
    query, time = over.parent_select, _ordered_by(over)
    if query is None or time is None or not orders.is_event_time(time, query):
        hint = (
            "Write PARTITION BY TUMBLE(ts, INTERVAL '1 minute'), or ORDER BY ts with a frame that "
            "ends with the current row, where ts has a WATERMARK."
        )
        errors.refuse(over, "EMIT of OVER needs a window, or the order of event time", hint)
    _leave_out_nulls(query, time)  # which would be first in the order, and may come at any time
    return None


def _ordered_by(over: exp.Window) -> exp.Expr | None:
    """By what the rows of OVER are ordered, if no row after one in this order changes its value."""
    order, spec = over.args.get("order"), over.args.get("spec")
    if order is None or order.expressions[0].args.get("desc"):
        return None
    ends = spec is None or (spec.args.get("end") or "CURRENT ROW") == "CURRENT ROW"
    if not ends or function_name(over.this.unnest()) in _AHEAD:
        return None
    found: exp.Expr = order.expressions[0].this
    return found


def _leave_out_nulls(query: exp.Expr, time: exp.Expr) -> None:
    where, known = query.args.get("where"), not_null(time)
    if where is None or known not in where.find_all(exp.Not):
        condition = both([where.this if where else None, known])
        query.set("where", exp.Where(this=condition))


def _check_rows(query: exp.Expr, window: Window, needs: str, errors: ErrorReporter) -> None:
    """Refuse rows that are not of one window each."""
    items = [each.unalias() for each in query.expressions]
    if query.args.get("distinct") and not any(
        is_bound(each) or is_bound_name(each) for each in items
    ):
        hint = "Leave DISTINCT out, or select the window's start and end."
        errors.refuse(None, f"{needs} of DISTINCT rows without their window is not supported", hint)
    if window.kind == "session" and any(each.find(exp.Window) for each in items):
        hint = "Make the sessions a view of its own, and write OVER in a view over it."
        errors.refuse(None, f"{needs} of OVER beside SESSION is not supported", hint)


def _append_end(query: exp.Expr, end: exp.Expr, errors: ErrorReporter) -> None:
    for item in query.expressions:
        if item.alias_or_name.lower() == END:
            hint = f"Give it another name: AS {END.strip('_')}."
            what = f"the name {item.alias_or_name} is kept for Millstream's own column"
            errors.no_column(item, what, hint)
    query.append("expressions", alias(end, END))


def _closing(
    found: exp.Expr,
    view: CreateView,
    query: exp.Expr,
    orders: LogOrder,
    errors: ErrorReporter,
) -> Window:
    """The window of a view that waits for its end.

    Raises:
        SqlUnsupportedError: it does not close.
    """
    needs = closing_clause(view)
    window = replace(window_over(found, errors), column=found.expressions[0].sql())
    # Over a join a row is late for the last of its windows, and may come when others have closed:
    # these are corrected, so that they are not final.
    closes = window.kind in _SEVERAL and view.emit.mode != "final"
    if window.kind != "tumble" and not closes and not orders.reads_growing(query):
        kind = window.kind.upper()
        errors.refuse(None, f"{needs} of a {kind} is not supported in such a query", _APART)
    if window.kind == "session" and not orders.is_event_time(found.expressions[0], query):
        refuse_timeless(needs, errors)
    return window


def event_window(tree: exp.Query, orders: LogOrder, errors: ErrorReporter) -> Window | None:
    """Return the window of a view that does not wait for it, if its rows can be late.

    That is the one window in the outermost GROUP BY, over the event time of logs that only grow,
    if its groups are the rows of the view. A window that closes frees its groups. The query gives
    its ends, too.
    """
    query = tree.unnest()
    if not isinstance(query, exp.Select) or not orders.reads_growing(query):
        return None
    if any(map(tree.args.get, _ABOVE_GROUPS)) or any(map(query.args.get, _ABOVE_GROUPS)):
        return None
    if any(each.find(exp.Window) for each in query.expressions):
        return None
    found = windows_of(query)
    if len(found) != 1 or not orders.is_event_time(found[0].expressions[0], query):
        return None
    window = replace(window_over(found[0], errors), column=found[0].expressions[0].sql())
    _append_end(query, column("WINDOW_END"), errors)
    return window


def leave_out_closed(tree: exp.Query, window: Window, lateness: int, orders: LogOrder) -> None:
    """Have a row count only in those of its windows that have not closed before it comes."""
    query = tree.unnest()
    if window.kind not in _SEVERAL or not orders.reads_growing(query):
        return
    watermark = orders.of(query).watermark
    if watermark is None:
        return
    limit: exp.Expr = call("unix_micros", watermark)
    if lateness:
        limit = exp.Sub(this=limit, expression=number(lateness))
    is_open = exp.GT(this=call("unix_micros", column("WINDOW_END")), expression=limit)
    where = query.args.get("where")
    in_time = exp.or_(is_null(watermark), is_open)
    query.set("where", exp.Where(this=both([where.this if where else None, in_time])))


def _after_session(window: Window, *, is_final: bool) -> exp.Expr:
    """When a session has closed.

    A row just at its end still belongs to it. A row that is in time may come up to a gap after its
    last one: only then it is final.
    """
    after = 1 + (window.size if is_final else 0)
    micros = exp.Add(this=call("unix_micros", column("WINDOW_END")), expression=number(after))
    return call("timestamp_micros", micros)


def windows_of(query: exp.Expr) -> list[exp.Expr]:
    """The windows in the GROUP BY of a query."""
    group = query.args.get("group")
    found = [window_in(each) for each in (group.expressions if group else ())]
    return list(dict.fromkeys(each for each in found if each is not None))
