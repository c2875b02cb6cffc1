"""Runs queries of the catalog: DuckDB over relations that are made of what exists."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.engine.functions import SERVER_VERSION
from millstream.errors import SchemaError
from millstream.formats.json_output import to_json
from millstream.model.arrow_values import readable_values
from millstream.model.types import INTERVAL, VARCHAR, type_from_arrow
from millstream.queries.duckdb import SealedDuckDB
from millstream.server.postgres.answers import Answer, column
from millstream.server.postgres.catalog.functions import MACROS
from millstream.server.postgres.catalog.relations import Relations
from millstream.server.postgres.catalog.translate import (
    calls_catalog,
    calls_spark,
    cast_types,
    reads_catalog,
    reads_nothing,
    translate,
)
from millstream.server.postgres.errors import PostgresError
from millstream.server.postgres.types import OIDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.engine.session import Session
    from millstream.model.types import SqlType
    from millstream.server.postgres.settings import Settings
    from millstream.server.postgres.text import Text

__all__ = [
    "CatalogQueries",
    "calls_catalog",
    "calls_spark",
    "cast_types",
    "reads_catalog",
    "reads_nothing",
]

_STATEMENTS: Final = (
    *(f"CREATE MACRO {macro}" for macro in MACROS),
    "SET GLOBAL TimeZone = 'UTC'",
)


class CatalogQueries(SealedDuckDB):
    """Answers queries of the catalog, of all connections."""

    def __init__(self) -> None:
        super().__init__(_STATEMENTS, threads=1, memory_limit="256MB")

    def answer(
        self,
        text: Text,
        values: Sequence[Any],
        session: Session,
        settings: Settings,
        user: str,
        *,
        describes: bool = False,
    ) -> Answer:
        """The rows of a query; if it is only described, none.

        Raises:
            PostgresError: it cannot be answered.
        """
        context = session.context
        definitions = [context.engine.catalog[name] for name in context.names()]
        relations = Relations(definitions, list(settings), user, session.tenant)
        oids = {each.definition.name.lower(): each.oid for each in relations.all}
        named = _named(user, settings)
        made = translate(text, values, lambda name: oids.get(name.lower()), named)
        cursor = self._cursor()
        thread = threading.get_ident()
        try:
            self._running[thread] = cursor
            for local, name in made.relations.items():
                cursor.register(local, relations.table(name))
            rows = cursor.sql(made.sql)
            found = (rows.limit(0) if describes else rows).to_arrow_table()
        except self._errors as error:
            raise PostgresError(
                f"the query of the catalog failed: {str(error).splitlines()[0]}",
                sqlstate="0A000",
                hint="docs/postgres.md says what there is of pg_catalog",
            ) from error
        finally:
            self._end(thread, cursor)
        return _answer(found, has_oids=bool(made.relations))


def _named(user: str, settings: Settings) -> dict[str, str]:
    names = dict.fromkeys(
        ("current_user", "session_user", "user", "currentuser", "sessionuser"), user
    )
    names |= dict.fromkeys(
        ("current_database", "current_catalog", "currentcatalog", "currentdatabase"), "millstream"
    )
    names |= dict.fromkeys(("current_schema", "currentschema"), "public")
    version = f"PostgreSQL {SERVER_VERSION}"
    names |= {"version": version, "currentversion": version, "current_version": version}
    return names | {f"setting {name.lower()}": value for name, value in settings}


def _answer(found: pa.Table, *, has_oids: bool) -> Answer:
    """The rows that DuckDB has found; lists of numbers in the catalog are of OIDS."""
    columns, arrays = [], []
    for name, held in zip(found.column_names, found.columns, strict=True):
        of, values = _values(held.combine_chunks())
        columns.append(column(name, OIDS if has_oids and of == OIDS else of))
        arrays.append(values)
    rows = list(zip(*arrays, strict=True)) if arrays else []
    return Answer("SELECT", tuple(columns), iter(rows), small=len(rows))


def _values(array: pa.Array) -> tuple[SqlType, list[Any]]:
    """The type and the values of a column; what has no type of ours is text."""
    if pa.types.is_interval(array.type):
        return INTERVAL, [None if each is None else _length(each) for each in array.to_pylist()]
    try:
        of = type_from_arrow(array.type)
        return of, readable_values(of, array.cast(of.arrow))
    except (SchemaError, pa.ArrowException):
        return VARCHAR, [_text(each) for each in array.to_pylist()]


def _length(value: Any) -> timedelta:  # noqa: ANN401 - Arrow's MonthDayNano
    if value.months:
        raise PostgresError(
            "an interval with months or years has no length",
            sqlstate="0A000",
            hint="write it in days, hours, minutes and seconds",
        )
    return timedelta(days=value.days, microseconds=value.nanoseconds // 1000)


def _text(value: Any) -> str | None:  # noqa: ANN401 - of any type
    if value is None:
        return None
    return to_json(value) if isinstance(value, dict | list) else str(value)
