"""Checks: what a view cannot have, each with what to write instead."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp

from millstream.sql.views.functions import has_aggregate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.sql.statements.statement import CreateView
    from millstream.sql.views.errors import ErrorReporter
    from millstream.sql.views.flow import Flow

_SORT = "Leave it out: a view has no order. Write it in the query that reads the view."
_TOP = "Leave it out, and write it in the query that reads the view."
_OVER = "Write GROUP BY with an aggregate, such as MAX_BY(x, ts) for the newest x."
_CLAUSES: Mapping[str, tuple[str, str]] = {
    "order": ("ORDER BY", _SORT),
    "sort": ("SORT BY", _SORT),
    "cluster": ("CLUSTER BY", _SORT),
    "distribute": ("DISTRIBUTE BY", _SORT),
    "limit": ("LIMIT", _TOP),
    "offset": ("OFFSET", _TOP),
    "qualify": ("QUALIFY", _OVER),
    "windows": ("WINDOW", _OVER),
    "pivots": ("PIVOT", "Write SUM(x) FILTER (WHERE ...) for each column."),
    "match": ("MATCH_RECOGNIZE", "Look for patterns in your own code."),
    "prewhere": ("PREWHERE", "Write WHERE."),
    "connect": ("CONNECT BY", "Join the levels one by one."),
    "sample": ("TABLESAMPLE", "Write a condition on a column, such as id % 10 = 0."),
    "hint": ("a hint", "Leave it out."),
    "operation_modifiers": ("a modifier of SELECT", "Leave it out."),
}
"""The clauses that no view has: what they are called, and what to do instead."""

GROUPS = "Leave it out, and subscribe with max_delay to have changes together."
WINDOW = "Write GROUP BY TUMBLE(ts, INTERVAL '1 minute'), with WATERMARK FOR ts in the source."


def check_query(tree: exp.Expr, errors: ErrorReporter) -> None:
    """Refuse the clauses that no view has, and aggregates where there are no groups."""
    for key, (what, hint) in _CLAUSES.items():
        found = tree.args.get(key)
        if found:
            first = found[0] if isinstance(found, list) else found
            place = first if isinstance(first, exp.Expr) else tree
            errors.refuse(place, f"{what} is not supported in a view", hint)
    distinct = tree.args.get("distinct")
    if isinstance(distinct, exp.Distinct) and distinct.args.get("on"):
        hint = "Write GROUP BY with FIRST(...) or MAX_BY(...)."
        errors.refuse(distinct, "DISTINCT ON is not supported in a view", hint)
    where = tree.args.get("where")
    if where is not None and has_aggregate(where.this):
        errors.refuse(where.this, "an aggregate in WHERE is not supported", "Write it in HAVING.")
    _check_group(tree.args.get("group"), errors)


def _check_group(group: exp.Expr | None, errors: ErrorReporter) -> None:
    if group is None:
        return
    found = next(group.find_all(exp.Rollup, exp.Cube, exp.GroupingSets), None)
    if found is not None or group.args.get("totals"):
        hint = "Write one view for each grouping."
        errors.refuse(found or group, "several groupings at once are not supported", hint)


def check_union(tree: exp.SetOperation, errors: ErrorReporter) -> None:
    """Refuse unions other than UNION ALL."""
    what = tree.key.upper()
    if not isinstance(tree, exp.Union):
        hint = "Join the log with a table, and filter in WHERE."
        errors.refuse(tree.expression, f"{what} is not supported in a view", hint)
    if tree.args.get("distinct"):
        hint = "Write UNION ALL; for distinct rows SELECT DISTINCT * FROM (... UNION ALL ...)."
        errors.refuse(tree.expression, "UNION without ALL is not supported in a view", hint)
    if tree.args.get("by_name"):
        hint = "Write the columns in the same order."
        errors.refuse(tree.expression, "UNION BY NAME is not supported in a view", hint)


def closing_clause(view: CreateView) -> str:
    """Return the clause by which a view needs windows that close; empty when it has none."""
    needs = {"close": "EMIT ON WINDOW CLOSE", "final": "EMIT FINAL"}.get(view.emit.mode, "")
    if view.lateness != timedelta(0):
        needs = needs or "ALLOW LATENESS"
    if view.late_to is not None:
        needs = needs or "LATE DATA TO"
    return needs


def at_emit(view: CreateView, errors: ErrorReporter) -> ErrorReporter:
    """Return what raises errors at a view's EMIT, if it was written."""
    emit = view.emit
    if not emit.line or emit.mode == "changes":
        return errors
    return replace(errors, line=emit.line, column=emit.column)


def refuse_timeless(needs: str, errors: ErrorReporter) -> NoReturn:
    """Refuse a clause that needs a window over event time."""
    errors.refuse(None, f"{needs} needs a window over a column with a watermark", WINDOW)


def check_emit(view: CreateView, flow: Flow, errors: ErrorReporter) -> None:
    """Refuse an EMIT or a lateness that the query has no window for."""
    groups, emit = flow.groups, view.emit
    needs, errors = closing_clause(view), at_emit(view, errors)
    if needs and (groups is None or groups.window is None):
        errors.refuse(None, f"{needs} needs a window", WINDOW)
    if needs and groups is not None and not groups.timed:
        refuse_timeless(needs, errors)
    if emit.mode == "every" and groups is None:
        errors.refuse(None, "EMIT EVERY needs groups, whose changes it can put together", GROUPS)
