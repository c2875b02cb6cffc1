"""Errors of the planner, at their places in the user's text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from millstream.errors import SqlColumnError, SqlError, SqlTypeError, SqlUnsupportedError
from millstream.sql.positions import place_of

if TYPE_CHECKING:
    from sqlglot import exp


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

    def column_error(self, tree: exp.Expr | None, message: str, hint: str) -> SqlError:
        """Return the error of a column that is not there."""
        return self._error(SqlColumnError, tree, message, hint)

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
