"""Checks: what a view cannot have, each with what to write instead."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from millstream.sql.statements.statement import CreateView
    from millstream.sql.views.errors import ErrorReporter

GROUPS = "Leave it out, and subscribe with max_delay to have changes together."
WINDOW = "Write GROUP BY TUMBLE(ts, INTERVAL '1 minute'), with WATERMARK FOR ts in the source."


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
