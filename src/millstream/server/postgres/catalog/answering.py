"""Runs queries of the catalog: DuckDB over relations that are made of what exists."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import SchemaError
from millstream.model.types import VARCHAR, type_from_arrow
from millstream.server.postgres.answers import Answer, column
from millstream.server.postgres.catalog.functions import MACROS
from millstream.server.postgres.catalog.relations import Relations
from millstream.server.postgres.catalog.translate import reads_catalog, translate
from millstream.server.postgres.errors import PostgresError
from millstream.server.postgres.settings import SERVER_VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from millstream.engine.session import Session
    from millstream.server.postgres.settings import Settings
    from millstream.server.postgres.text import Text

__all__ = ["CatalogQueries", "reads_catalog"]

_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "threads": 1,
    "memory_limit": "256MB",
    "enable_external_access": False,
    "allow_community_extensions": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "python_enable_replacements": False,
}


class CatalogQueries:
    """A DuckDB for the catalog, shared by all connections; each query has a cursor of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._database: Any = None
        self._running: dict[int, Any] = {}  # by the thread that runs it

    def interrupt(self, thread: int) -> None:
        """End the query that a thread runs, if it runs one, with an error."""
        cursor = self._running.get(thread)
        if cursor is not None:
            with contextlib.suppress(self._errors):  # it has just ended
                cursor.interrupt()

    def answer(
        self, text: Text, values: Sequence[Any], session: Session, settings: Settings, user: str
    ) -> Answer:
        """The rows of a query.

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
        self._running[threading.get_ident()] = cursor
        try:
            for local, name in made.relations.items():
                cursor.register(local, relations.table(name))
            found = cursor.sql(made.sql).to_arrow_table()
        except self._errors as error:
            raise PostgresError(
                f"the query of the catalog failed: {str(error).splitlines()[0]}",
                sqlstate="0A000",
                hint="docs/postgres.md says what there is of pg_catalog",
            ) from error
        finally:
            del self._running[threading.get_ident()]
            cursor.close()
        return _answer(found)

    def close(self) -> None:
        """Close DuckDB."""
        with self._lock:
            if self._database is not None:
                self._database.close()
                self._database = None

    def _cursor(self) -> Any:  # noqa: ANN401 - of a module that is loaded late
        with self._lock:
            if self._database is None:
                self._database, self._errors = _connect()
            return self._database.cursor()


def _connect() -> tuple[Any, type[Exception]]:
    # Importing DuckDB takes long, and many clients never ask for the catalog.
    import duckdb  # noqa: PLC0415

    database = duckdb.connect(":memory:", config=_CONFIG)
    for macro in MACROS:
        database.execute(f"CREATE MACRO {macro}")
    database.execute("SET GLOBAL TimeZone = 'UTC'")
    database.execute("SET GLOBAL integer_division = true")
    database.execute("SET lock_configuration = true")
    return database, duckdb.Error


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
