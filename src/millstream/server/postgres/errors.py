"""Errors as PostgreSQL reports them: a SQLSTATE for each code of ours, position and hint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import (
    DuplicateKeyError,
    Error,
    ExpressionError,
    RowError,
    SchemaMismatchError,
    SqlColumnError,
    SqlError,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class PostgresError(Error):
    """What the protocol itself refuses.

    Attributes:
        sqlstate: PostgreSQL's code for it.
        is_fatal: whether the connection ends with it.
        position: the place in the query, from 1; 0: none.
    """

    code = "POSTGRES"

    def __init__(
        self,
        message: str,
        *,
        sqlstate: str,
        hint: str = "",
        is_fatal: bool = False,
        position: int = 0,
    ) -> None:
        super().__init__(message, hint=hint)
        self.sqlstate = sqlstate
        self.is_fatal = is_fatal
        self.position = position


class ProtocolError(PostgresError):
    """Bytes that are no messages of the protocol, or not in that order; the connection ends."""

    code = "POSTGRES_PROTOCOL"

    def __init__(self, message: str, *, sqlstate: str = "08P01", hint: str = "") -> None:
        super().__init__(message, sqlstate=sqlstate, hint=hint, is_fatal=True)


_STATES: Final = {
    "SQL_SYNTAX": "42601",
    "SQL_UNSUPPORTED": "0A000",
    "SQL_COLUMN": "42703",
    "SQL_TYPE": "42804",
    "SQL_PARAMETER": "42P02",
    "SQL_OPTION": "22023",
    "SQL": "42000",
    "EXPRESSION": "22000",
    "OBJECT_NOT_FOUND": "42P01",
    "TOPIC_NOT_FOUND": "42P01",
    "OBJECT_EXISTS": "42P07",
    "TOPIC_EXISTS": "42P07",
    "WRONG_OBJECT": "42809",
    "IN_USE": "2BP01",
    "OBJECT_CHANGED": "55000",
    "DDL_TIMEOUT": "55P03",
    "DUPLICATE_KEY": "23505",
    "BAD_ROW": "22P02",
    "SCHEMA_MISMATCH": "42804",
    "COLUMN_NOT_FOUND": "42703",
    "INVALID_SCHEMA": "42611",
    "INVALID_NAME": "42602",
    "INVALID_OPTION": "22023",
    "TIME_RANGE": "22008",
    "TENANT": "42501",
    "ROLE": "42501",
    "FILE": "58030",
    "FILE_REFUSED": "42501",
    "UNAUTHENTICATED": "28000",
    "KEY_FILE": "58030",
    "LIMIT": "54000",
    "QUERY_TIMEOUT": "57014",
    "SOURCE_FULL": "53000",
    "LOG_FULL": "53100",
    "LOG_FAILED": "58030",
    "LOG": "58030",
    "ROWS_LOST": "58030",
    "LSN_NOT_KEPT": "55000",
    "ROW_TOO_LARGE": "54000",
    "CLOSED": "57P01",
    "TOKEN": "22023",
    "TOKEN_INVALID": "22023",
    "TOKEN_FOREIGN": "22023",
    "RECEIVE_TIMEOUT": "57014",
    "VIEW_FAILED": "55000",
    "VIEW_NOT_READY": "55000",
    "BROKEN_DEFINITION": "55000",
    "SLOW_CONSUMER": "53000",
    "SUBSCRIPTION_NOT_FOUND": "42704",
    "SUBSCRIPTION_EXISTS": "42710",
    "SUBSCRIPTION_ENDED": "55000",
    "JAVA_NOT_FOUND": "58000",
    "SPARK_START": "58000",
    "JAVA_DIED": "58000",
    "PIPELINE": "58000",
    "MISSING_EXTRA": "0A000",
}


_OF_VALUES: Final = {
    "division by zero": "22012",
    "a value is out of the range of its type": "22003",
    "is longer than VARCHAR": "22001",
    "NOT NULL": "23502",
    "cannot be read as": "22P02",
}
"""Codes of errors in expressions and rows, by what their messages say."""


def sqlstate(error: BaseException) -> str:
    """PostgreSQL's code for an error.

    >>> from millstream.errors import DuplicateKeyError
    >>> sqlstate(DuplicateKeyError("there", key=(1,)))
    '23505'
    """
    if isinstance(error, PostgresError):
        return error.sqlstate
    if isinstance(error, Error):
        if isinstance(error, SqlColumnError) and error.message.startswith("there is no function"):
            return "42883"
        if isinstance(error, ExpressionError | SchemaMismatchError):
            for words, state in _OF_VALUES.items():
                if words in error.message:
                    return state
        for kind in type(error).__mro__:
            found = _STATES.get(getattr(kind, "code", ""))
            if found:
                return found
    return "XX000"


def fields_of(
    error: BaseException, place: Callable[[SqlError], int] | None = None
) -> dict[str, str]:
    """The fields of an ErrorResponse.

    Args:
        error: what was raised. Of what is no error of ours nothing is shown but its class.
        place: finds the position in the query, from 1, of an error in the text; 0: none.
    """
    severity = "FATAL" if getattr(error, "is_fatal", False) else "ERROR"
    shown = error if isinstance(error, Error) else None
    position = getattr(error, "position", 0)
    if isinstance(error, SqlError) and place is not None:
        position = place(error)
    return {
        "S": severity,
        "V": severity,
        "C": sqlstate(error),
        "M": f"internal error ({type(error).__name__})" if shown is None else shown.message,
        "H": "" if shown is None else shown.hint,
        "P": str(position) if position else "",
        "R": "" if shown is None else shown.code,
        **_named_in(error),
    }


def _named_in(error: BaseException) -> dict[str, str]:
    """Detail, schema, table, column and constraint, of an error that knows them."""
    if isinstance(error, PostgresError):
        return {} if error.__cause__ is None else _named_in(error.__cause__)
    if isinstance(error, DuplicateKeyError) and error.table:
        names, values = ", ".join(error.columns), ", ".join(map(str, error.key))
        return {
            "D": f"Key ({names})=({values}) already exists.",
            "s": "public",
            "t": error.table,
            "n": f"{error.table}_pkey",
        }
    if isinstance(error, RowError) and error.column:
        return {"c": error.column}
    return {}


def notice(text: str, *, hint: str = "", severity: str = "WARNING") -> dict[str, str]:
    """The fields of a NoticeResponse."""
    return {"S": severity, "V": severity, "C": "01000", "M": text, "H": hint}


def cancelled(why: str = "canceling statement due to user request") -> PostgresError:
    """The error of a statement that was cancelled."""
    return PostgresError(why, sqlstate="57014")
