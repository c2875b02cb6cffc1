"""Refusals that need Spark's analysis, with their place in the user's text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import SqlError, SqlTypeError
from millstream.model.types import parse_type
from millstream.spark.failure import refused_function, unknown_function, unresolved_column
from millstream.sql import as_query, column_place, function_place
from millstream.sql.adhoc import plan_adhoc
from millstream.sql.adhoc.binder import TIME_FUNCTIONS
from millstream.sql.statements.cursor import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.spark.query import SparkQuery
    from millstream.sql import CreateView, Input

_ALL: Final = "Views may call all functions of Spark SQL, and those that you register."
_OF_WINDOW: Final = "Add it to the query: GROUP BY TUMBLE(ts, INTERVAL '1 minute')."


def located(error: SqlError, statement: CreateView, query: SparkQuery) -> SqlError:
    """Return Spark's error of a query with its place in the statement that was given.

    Args:
        error: made of what Spark says, which is its cause.
        statement: the statement.
        query: knows the names of Spark's functions.
    """
    said, hint = str(error.__cause__), error.hint
    place = statement.line, statement.column
    column, function = unresolved_column(said), unknown_function(said)
    if column is not None:
        place = column_place(statement, column[0])
    elif function is not None:
        place = function_place(statement, function)
        hint = _hint_for(function, query)
    else:
        place = function_place(statement, refused_function(said))
    line, at = place
    return type(error)(error.message, sql=statement.sql, line=line, column=at, hint=hint)


def _hint_for(function: str, query: SparkQuery) -> str:
    """What to write instead of a function that does not exist."""
    if function.upper() in TIME_FUNCTIONS:
        return _OF_WINDOW
    return did_you_mean(function.upper(), query.functions(), _ALL)


def check_casts(query: SparkQuery, statement: CreateView, inputs: Callable[[str], Input]) -> None:
    """Refuse text where another type is expected: the first row that cannot be cast would fail.

    Raises:
        SqlTypeError: the same as of an ad-hoc query, where that has an error of types, too.
    """
    for kind, name in query.implicit_casts():
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
