"""EMIT in a line of operators: hidden columns for the groups, and for the ends of windows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.sql.views.checks import GROUPS, WINDOW, at_emit, closing_clause
from millstream.sql.views.errors import ErrorReporter
from millstream.sql.views.functions import has_aggregate
from millstream.sql.views.line_windows import window_in
from millstream.sql.views.trees import alias, column
from millstream.sql.views.windows import window_over

if TYPE_CHECKING:
    from millstream.sql.statements.statement import CreateView
    from millstream.sql.views.plan import Window

END = "_end"
"""The end of the window of a group."""

_SEVERAL = ("hop", "cumulate")
"""Windows of which a row may be in several."""

_APART = "Make the joined rows a view of its own, with WATERMARK FOR ts, and group that one."


def is_immediate(view: CreateView) -> bool:
    """Return whether results are emitted at each change, and no row comes too late."""
    return view.emit.mode == "changes" and not closing_clause(view)


def check_waits(view: CreateView, tree: exp.Query) -> None:
    """Refuse an EMIT that waits of a query that has no groups, or no window where it needs one."""
    query, needs = tree.unnest(), closing_clause(view)
    errors = at_emit(view, ErrorReporter(view.query.sql, view.query.line, view.query.column))
    if needs:
        if len(_windows(query)) != 1:
            errors.refuse(None, f"{needs} needs a window", WINDOW)
        return
    grouped = query.args.get("group") or query.args.get("distinct")
    if not grouped and not any(map(has_aggregate, query.expressions)):
        errors.refuse(None, "EMIT EVERY needs groups, whose changes it can put together", GROUPS)


def add_hidden(
    view: CreateView, tree: exp.Query, errors: ErrorReporter
) -> tuple[Window | None, tuple[str, ...]]:
    """Have a query give the columns that identify its groups, and the ends of their windows.

    Returns:
        The window, if the view needs one that closes, and the names of the columns.

    Raises:
        SqlUnsupportedError: there is more than one grouping, or the window is none that closes.
        SqlColumnError: a column has the name of one of them.
    """
    query, needs, errors = tree.unnest(), closing_clause(view), at_emit(view, errors)
    group = query.args.get("group")
    keys = [] if group is None else group.expressions
    if group is not None and group.find(exp.Rollup, exp.Cube, exp.GroupingSets) is not None:
        hint = "Write one view for each grouping."
        errors.refuse(None, "EMIT with several groupings at once is not supported", hint)
    others = [_resolved(each, query) for each in keys if window_in(each) is None or not needs]
    hidden = {f"_k{place}": each for place, each in enumerate(others)}
    window = None
    if needs:
        [found] = _windows(query)
        window = replace(window_over(found, errors), column=found.expressions[0].sql())
        # A row is late for the last of its windows, and may come when others have closed: these are
        # corrected, so that they are not final.
        closes = window.kind in _SEVERAL and view.emit.mode != "final"
        if window.kind != "tumble" and not closes:
            kind = window.kind.upper()
            errors.refuse(None, f"{needs} of a {kind} is not supported in such a query", _APART)
        hidden[END] = column("WINDOW_END")
    for item in query.expressions:
        if item.alias_or_name.lower() in hidden:
            hint = f"Give it another name: AS {item.alias_or_name.strip('_')}."
            what = f"the name {item.alias_or_name} is kept for Millstream's own column"
            errors.no_column(item, what, hint)
    for name, each in hidden.items():
        query.append("expressions", alias(each.copy(), name))
    return window, tuple(hidden)


def _windows(query: exp.Expr) -> list[exp.Expr]:
    group = query.args.get("group")
    found = [window_in(each) for each in (group.expressions if group else ())]
    return [each for each in found if each is not None]


def _resolved(key: exp.Expr, query: exp.Expr) -> exp.Expr:
    """What a key is, if it is written as the place of a column."""
    if isinstance(key, exp.Literal) and key.is_int and 0 < int(key.this) <= len(query.expressions):
        item: exp.Expr = query.expressions[int(key.this) - 1]
        return item.unalias()
    return key
