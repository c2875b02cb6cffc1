"""Refusals that need Spark's analysis, with their place in the user's text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import SqlColumnError, SqlError, SqlTypeError
from millstream.model.types import parse_type
from millstream.spark.errors import FunctionRefused, misused_function, refusal_of, unresolved_column
from millstream.sql import as_query
from millstream.sql.adhoc import plan_adhoc
from millstream.sql.adhoc.binder import TIME_FUNCTIONS
from millstream.sql.statements.cursor import did_you_mean
from millstream.views.plan.query_text import column_place, function_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.sql import CreateView, Input
    from millstream.views.run.query import SparkQuery

_OF_WINDOW: Final = "Add it to the query: GROUP BY TUMBLE(ts, INTERVAL '1 minute')."


def located(error: SqlError, statement: CreateView, query: SparkQuery) -> SqlError:
    """Return the error of a query on Spark with its place in the statement that was given.

    Args:
        error: its cause is what Spark says, or the function that is not allowed.
        statement: the statement.
        query: knows the names of Spark's functions.
    """
    cause, hint = error.__cause__, error.hint
    if isinstance(cause, FunctionRefused):
        line, at = function_place(statement, cause.name)
        if isinstance(error, SqlColumnError):
            hint = _hint_for(cause.name, query, hint)
    elif (refusal := refusal_of(str(cause))) is not None:
        if refusal.function:
            line, at = function_place(statement, refusal.function)
        else:
            line, at = column_place(statement, refusal.column)
    elif (column := unresolved_column(str(cause))) is not None:
        line, at = column_place(statement, column[0])
    else:
        line, at = function_place(statement, misused_function(str(cause)))
    return type(error)(error.message, sql=statement.sql, line=line, column=at, hint=hint)


def _hint_for(function: str, query: SparkQuery, otherwise: str) -> str:
    """What to write instead of a function that does not exist."""
    if function in TIME_FUNCTIONS:
        return _OF_WINDOW
    return did_you_mean(function, query.functions(), otherwise)


def check_casts(
    casts: Iterable[tuple[str, str]], statement: CreateView, inputs: Callable[[str], Input]
) -> None:
    """Refuse text where another type is expected: the first row that cannot be cast would fail.

    Args:
        casts: those that Spark has added, see ``SparkQuery.implicit_casts``.
        statement: the statement.
        inputs: gives what a log is by its name.

    Raises:
        SqlTypeError: the same as of an ad-hoc query, where that has an error of types, too.
    """
    for kind, name in casts:
        _check_ad_hoc(statement, inputs)
        expected, (line, column) = parse_type(kind).sql, column_place(statement, name)
        raise SqlTypeError(
            f"expected {expected}, got VARCHAR",
            sql=statement.sql,
            line=line,
            column=column,
            hint=f"Write CAST({name or '...'} AS {expected}), or TRY_CAST, which gives NULL for "
            "text that is no such value.",
        )


def _check_ad_hoc(statement: CreateView, inputs: Callable[[str], Input]) -> None:
    """Raise the error of types that the query has when it is asked ad hoc, if it has one."""
    try:
        plan_adhoc(as_query(statement.query), inputs)
    except SqlTypeError as error:
        if not error.message.startswith("expected VARCHAR"):  # which Spark casts to, and can
            raise
    except SqlError:
        return  # it is not answered in process
