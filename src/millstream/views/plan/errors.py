"""Errors of the planner, at their places in the user's text, and what no view can have."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp

from millstream.errors import SqlColumnError, SqlError, SqlTypeError, SqlUnsupportedError
from millstream.sql.positions import place_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.sql.inputs import Input
    from millstream.sql.statements.statement import CreateView


@dataclass(frozen=True, slots=True)
class ErrorReporter:
    """Raises errors about parts of one text.

    Attributes:
        sql: the text that all trees were read from.
        line: where the statement begins; the place of what has none of its own.
        column: its column.
    """

    sql: str
    line: int = 0
    column: int = 0

    def refuse(self, tree: exp.Expr | None, message: str, hint: str) -> NoReturn:
        """Raise the error of what cannot be answered exactly."""
        raise self._error(SqlUnsupportedError, tree, message, hint)

    def no_column(self, tree: exp.Expr | None, message: str, hint: str) -> NoReturn:
        """Raise the error of a column or a function that is not there."""
        raise self._error(SqlColumnError, tree, message, hint)

    def mismatch(self, tree: exp.Expr | None, message: str, hint: str) -> NoReturn:
        """Raise the error of types that do not fit."""
        raise self._error(SqlTypeError, tree, message, hint)

    def _error(
        self, kind: type[SqlError], tree: exp.Expr | None, message: str, hint: str
    ) -> SqlError:
        line, column = place_of(tree, self.sql) if tree is not None else (0, 0)
        if not line:
            line, column = self.line, self.column
        return kind(message, sql=self.sql, line=line, column=column, hint=hint)


GROUPS = "Leave it out, and subscribe with max_delay to have changes together."
WINDOW = "Write GROUP BY TUMBLE(ts, INTERVAL '1 minute'), with WATERMARK FOR ts in the source."

_KEPT = re.compile(
    r"_[agkux]?\d+(_.*)?|_(log|lsn|row_lsn|weight|wm|w|c|e|n|r|s|t|end|start)", re.IGNORECASE
)
"""Names of columns that the feed or the planner uses itself."""


def check_recursion(tree: exp.Query, errors: ErrorReporter) -> None:
    """Refuse WITH RECURSIVE."""
    for each in tree.find_all(exp.With):
        if each.args.get("recursive"):
            hint = "Join the levels one by one, each in a view of its own."
            errors.refuse(each, "WITH RECURSIVE is not supported in a view", hint)


def check_names(inputs: Iterable[Input], errors: ErrorReporter) -> None:
    """Refuse inputs with a column whose name the feed or the planner uses itself."""
    for each in inputs:
        for name in each.schema.names:
            if _KEPT.fullmatch(name):
                what = f"{each.name} has a column {name}, a name that is reserved in views"
                errors.refuse(None, what, "Give the column another name.")


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
