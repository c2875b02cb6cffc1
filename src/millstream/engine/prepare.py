"""What is known of a statement before it runs: its parameters' types, and its columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.engine.dml import plan_on_spark
from millstream.errors import Error, SqlUnsupportedError
from millstream.sql import Query, Select, as_query, parameter_types, parse
from millstream.sql.adhoc import plan_adhoc

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.engine.context import Context
    from millstream.model.schema import Schema
    from millstream.model.types import SqlType
    from millstream.sql import Statement


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement that was read and not run.

    Attributes:
        statement: it.
        types: of the ``?`` whose place says what they are, by their offsets in the text.
    """

    statement: Statement
    types: Mapping[int, SqlType]


def prepare(context: Context, sql: str, samples: Sequence[object]) -> Prepared:
    """Read a text of one statement, and find the types of its parameters.

    Args:
        context: what it would run in.
        sql: the text.
        samples: a value for each ``?``; None where its type is not known.

    Raises:
        SqlError: it cannot be read, whatever the values are.
    """
    statement = parse(sql, samples)[0]

    def schema_of(name: str) -> Schema | None:
        try:
            return context.find(name).schema
        except Error:
            return None

    return Prepared(statement, parameter_types(statement, schema_of))


def columns(context: Context, statement: Statement) -> Schema | None:
    """The columns that a SELECT gives; None for any other statement.

    Raises:
        SqlError: it is refused.
        ObjectNotFoundError: it reads what is not there.
    """
    if not isinstance(statement, Select | Query):
        return None
    try:
        if isinstance(statement, Select):
            return context.plan(context.find(statement.target), statement).schema
        return plan_adhoc(statement, context.inputs()).schema
    except SqlUnsupportedError as refused:
        return plan_on_spark(context, as_query(statement), refused).definition.schema
