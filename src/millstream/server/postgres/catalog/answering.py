"""Runs queries of the catalog: DuckDB over relations that are made of what exists."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from millstream.engine.functions import SERVER_VERSION
from millstream.errors import SchemaError
from millstream.model.types import VARCHAR, type_from_arrow
from millstream.queries.duckdb import SealedDuckDB
from millstream.server.postgres.answers import Answer, column
from millstream.server.postgres.catalog.functions import MACROS
from millstream.server.postgres.catalog.relations import Relations
from millstream.server.postgres.catalog.translate import (
    calls_spark,
    reads_catalog,
    reads_nothing,
    translate,
)
from millstream.server.postgres.errors import PostgresError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from millstream.engine.session import Session
    from millstream.server.postgres.settings import Settings
    from millstream.server.postgres.text import Text

__all__ = ["CatalogQueries", "calls_spark", "reads_catalog", "reads_nothing"]

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
        return _answer(found)


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


def _answer(found: pa.Table) -> Answer:
    columns, arrays = [], []
    for name, held in zip(found.column_names, found.columns, strict=True):
        try:
            of = type_from_arrow(held.type)
            values = held.to_pylist()
        except SchemaError:
            of, values = VARCHAR, [None if v is None else str(v) for v in held.to_pylist()]
        columns.append(column(name, of))
        arrays.append(values)
    rows = list(zip(*arrays, strict=True)) if arrays else []
    return Answer("SELECT", tuple(columns), iter(rows), small=len(rows))
