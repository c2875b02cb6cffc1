"""The sink ``postgres``: rows of a view, table or source in a table of PostgreSQL, exactly once.

Each batch is one transaction, with the token of the batch in the table ``millstream_sinks``: after
whatever was killed, it goes on after the token that is there.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors._postgres import (
    CONNECTION_OPTIONS,
    EXTRA,
    PgTable,
    connect,
    describe,
    failure,
    names,
    quoted,
)
from millstream.connectors.contract import Option, SinkConnector, SinkWriter
from millstream.connectors.registry import needs
from millstream.connectors.sinks._postgres_csv import made_type, takes, to_csv
from millstream.errors import ConnectorError, ConnectorFailedError, InvalidOptionError

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

    from millstream.connectors.batches import SinkBatch

    Connection = psycopg.Connection[tuple[Any, ...]]

TOKENS: Final = "millstream_sinks"
_ROWS: Final = "millstream_rows"
_KEYS: Final = "millstream_keys"
_SLICE_ROWS: Final = 8192


class PostgresSink(SinkConnector):
    """A table of PostgreSQL that is written to."""

    name = "postgres"
    extra = EXTRA
    transactional = True
    options = (
        *CONNECTION_OPTIONS,
        Option("table", required=True, help="such as public.totals"),
        Option(
            "mode",
            "choice",
            choices=("append", "upsert"),
            help="rows are only added, or put and deleted by key; upsert if there is a key",
        ),
        Option("create_table", "bool", default=True, help="make the table if it is not there"),
        Option("overwrite", "bool", default=False, help="upsert: replace rows that are there"),
    )

    @property
    def mode(self) -> str:
        """How it writes."""
        return str(self.settings["mode"] or ("upsert" if self.input.schema.key else "append"))

    def check(self) -> None:
        """Look whether the input can be written so, and whether the table fits."""
        if self.mode == "append" and self.input.retracts:
            raise InvalidOptionError(
                f"rows of {self.input.relation} change or disappear, and mode 'append' only adds",
                hint="use mode = 'upsert'",
            )
        if self.mode == "upsert" and not self.input.schema.key:
            raise InvalidOptionError(
                f"{self.input.relation} has no key, and mode 'upsert' needs one",
                hint="use mode = 'append', or a view whose rows have a key",
            )
        with connect(self.settings) as connection:
            table = describe(connection, self.settings["table"])
            if table is not None:
                self.check_fits(table)
                self.check_rows(connection, table)
            elif not self.settings["create_table"]:
                raise self.missing()
            else:
                self._check_creation(connection)

    def _check_creation(self, connection: Connection) -> None:
        """See that the table can be made: in a transaction that is undone."""
        driver: Any = needs("psycopg", EXTRA)
        try:
            with connection.transaction(force_rollback=True):
                connection.execute(self.definition())
        except driver.Error as error:
            raise failure(error, f"the table {self.settings['table']} cannot be created") from None

    def missing(self) -> ConnectorFailedError:
        """The table is not there."""
        return ConnectorFailedError(
            f"there is no table {self.settings['table']} in PostgreSQL",
            hint=f"leave create_table = false out, or create it: {self.definition()}",
        )

    def definition(self) -> str:
        """The statement that makes the table."""
        schema, key = self.input.schema, self.input.schema.key
        parts = [f"{quoted(column.name)} {made_type(column.type)}" for column in schema.columns]
        if self.mode == "upsert":
            nullable = [each for each in schema.columns if each.name in key and each.nullable]
            kind = "UNIQUE NULLS NOT DISTINCT" if nullable else "PRIMARY KEY"
            parts.append(f"{kind} ({names(key)})")
        return f"CREATE TABLE {self.settings['table']} ({', '.join(parts)})"

    def check_fits(self, table: PgTable) -> None:
        """Check the columns and the key of the table.

        Raises:
            ConnectorFailedError: they do not fit.
        """
        schema = self.input.schema
        columns = {each.name: each for each in table.columns}
        for column in schema.columns:
            found = columns.pop(column.name, None)
            if found is None or found.is_generated:
                raise ConnectorFailedError(
                    f"{table.sql} has no column {column.name} that can be written",
                    hint=f"ALTER TABLE {table.sql} ADD {quoted(column.name)} "
                    f"{made_type(column.type)}",
                )
            if not takes(found.type, found.typmod, column.type):
                raise ConnectorFailedError(
                    f"the column {column.name} of {table.sql} is {found.type.name}, which cannot "
                    f"hold {column.type.sql}",
                    hint=f"{made_type(column.type)} can",
                )
        for left in columns.values():
            if not left.is_nullable and not left.fills_itself:
                raise ConnectorFailedError(
                    f"the column {left.name} of {table.sql} must have a value, and "
                    f"{self.input.relation} has none",
                    hint="give it a default, or allow NULL",
                )
        if self.mode == "upsert":
            self._check_key(table)

    def _check_key(self, table: PgTable) -> None:
        schema = self.input.schema
        wanted = set(schema.key)
        found = [each for each in table.keys if set(each) == wanted]
        nullable = [each.name for each in schema.columns if each.name in wanted and each.nullable]
        refuses = {each.name for each in table.columns if not each.is_nullable}
        if not any(each in table.nulls_equal or refuses >= set(nullable) for each in found):
            equal = " NULLS NOT DISTINCT" if nullable else ""
            raise ConnectorFailedError(
                f"{table.sql} has no unique key ({', '.join(schema.key)})"
                + (" in which NULLs are equal" if found else ""),
                hint=f"CREATE UNIQUE INDEX ON {table.sql} ({names(schema.key)}){equal}",
            )

    def check_rows(self, connection: Connection, table: PgTable) -> None:
        """Refuse to replace rows that are not ours.

        Raises:
            ConnectorFailedError: there are some.
        """
        if self.mode == "append" or self.settings["overwrite"]:
            return
        if connection.execute(f"SELECT 1 FROM {table.sql} LIMIT 1").fetchone():  # noqa: S608
            raise ConnectorFailedError(
                f"{table.sql} has rows, which the sink would replace",
                hint="empty it, or give overwrite = true",
            )

    def open(self) -> PostgresWriter:
        """Connect; make the tables that are missing."""
        return PostgresWriter(self)

    def drop(self) -> None:
        """Forget the token; the rows stay."""
        with connect(self.settings) as connection:
            if describe(connection, TOKENS) is not None:
                connection.execute(
                    f"DELETE FROM {TOKENS} WHERE sink = %s",  # noqa: S608
                    [self.input.id],
                )


class PostgresWriter(SinkWriter):
    """Writes batches, each in a transaction with its token."""

    def __init__(self, connector: PostgresSink) -> None:
        super().__init__()
        self._driver: Any = needs("psycopg", EXTRA)
        self._connector = connector
        self._schema = connector.input.schema
        self._upserts = connector.mode == "upsert"
        self._in_snapshot = self._replaces = False
        self._connection = connect(connector.settings)
        try:
            self._table = self._prepared()
            self._token, self._is_ours = self._stored()
        except self._driver.Error as error:
            self._connection.close()
            raise failure(error, "the sink's table cannot be prepared") from error
        except BaseException:
            self._connection.close()
            raise

    # ---- opening

    def _prepared(self) -> PgTable:
        """The table, made if it is missing, and what rows are gathered in before they go there."""
        connector, run = self._connector, self._connection.execute
        name = connector.settings["table"]
        with contextlib.suppress(self._driver.errors.UniqueViolation):  # another makes it just now
            run(
                f"CREATE TABLE IF NOT EXISTS {TOKENS} (sink text PRIMARY KEY, token text, "
                "owns_table boolean NOT NULL, changed timestamptz NOT NULL DEFAULT now())"
            )
        table = describe(self._connection, name)
        if table is None:
            if not connector.settings["create_table"]:
                raise connector.missing()
            if self._has_token():
                raise ConnectorFailedError(
                    f"{name} is gone from PostgreSQL, with the rows that were written to it",
                    hint="DROP the sink and CREATE it again: it begins with all rows",
                )
            run(connector.definition())
            table = describe(self._connection, name)
        if table is None:
            raise connector.missing()
        connector.check_fits(table)
        if self._upserts:
            kinds = ((_ROWS, self._schema.names), (_KEYS, self._schema.key))
            for made, columns in kinds:
                run(
                    f"CREATE TEMP TABLE {made} ON COMMIT DELETE ROWS AS "  # noqa: S608
                    f"SELECT {names(columns)} FROM {table.sql} WITH NO DATA"
                )
        return table

    def _has_token(self) -> bool:
        query = f"SELECT 1 FROM {TOKENS} WHERE sink = %s AND token IS NOT NULL"  # noqa: S608
        found = self._connection.execute(query, [self._connector.input.id]).fetchone()
        return found is not None

    def _stored(self) -> tuple[str | None, bool]:
        """The token, and whether all rows of the table are ours; the first time it is noted."""
        run, sink = self._connection.execute, self._connector.input.id
        found = run(
            f"SELECT token, owns_table FROM {TOKENS} WHERE sink = %s",  # noqa: S608
            [sink],
        ).fetchone()
        if found is not None:
            return found[0], found[1]
        self._connector.check_rows(self._connection, self._table)
        is_empty = run(f"SELECT 1 FROM {self._table.sql} LIMIT 1").fetchone() is None  # noqa: S608
        owns = is_empty or self._upserts
        run(
            f"INSERT INTO {TOKENS} (sink, owns_table) VALUES (%s, %s)",  # noqa: S608
            [sink, owns],
        )
        return None, owns

    # ---- the contract

    def position(self) -> str | None:
        """The token that was stored last."""
        return self._token

    def write(self, batch: SinkBatch) -> bool:
        """Store a batch; the parts of a snapshot are one transaction."""
        try:
            if not self._in_snapshot:
                self._connection.execute("BEGIN")
            if batch.replaces:
                self._replaces = True
                if not self._upserts:
                    self._empty()
            self._in_snapshot = not batch.is_complete
            if self._upserts:
                self._upsert(batch)
            elif len(batch):
                self._copy(self._table.sql, batch.inserted())
            if batch.is_complete:
                self._store(batch.token)
        except self._driver.Error as error:
            raise failure(error, f"{self._table.sql} cannot be written") from error
        return batch.is_complete

    def flush(self, *, finish: bool) -> bool:  # noqa: ARG002
        """Nothing is held back, but the parts of a snapshot."""
        return not self._in_snapshot

    def close(self) -> None:
        """Close the connection; a transaction that is open is undone."""
        with contextlib.suppress(Exception):
            self._connection.close()

    # ---- writing

    def _copy(self, to: str, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        columns = names(rows.schema.names)
        with (
            self._connection.cursor() as cursor,
            cursor.copy(f"COPY {to} ({columns}) FROM STDIN (FORMAT csv)") as copy,
        ):
            for first in range(0, rows.num_rows, _SLICE_ROWS):  # the server works meanwhile
                copy.write(to_csv(rows.slice(first, _SLICE_ROWS), self._schema))

    def _empty(self) -> None:
        """Remove what an append has written: all of it begins anew."""
        if self._is_ours:
            self._connection.execute(f"DELETE FROM {self._table.sql}")  # noqa: S608
        elif self._token is not None:
            raise ConnectorFailedError(
                f"rows were lost before they came to the sink, and {self._table.sql} has rows of "
                "others, so it cannot begin anew",
                hint="DROP the sink, correct the table, and CREATE it again",
            )

    def _upsert(self, batch: SinkBatch) -> None:
        upserts, deletes = batch.net_tables()
        self._copy(_ROWS, upserts)
        if self._replaces:
            if batch.is_complete:
                self._replace()
            return
        run, table = self._connection.execute, self._table.sql
        if deletes.num_rows:
            self._copy(_KEYS, deletes)
            run(f"DELETE FROM {table} t USING {_KEYS} k WHERE {self._same_key('k')}")  # noqa: S608
        if upserts.num_rows:
            run(self._insert())

    def _replace(self) -> None:
        """The rows that were gathered are all that there are; those that stay are not touched."""
        self._replaces = False
        run, table = self._connection.execute, self._table.sql
        run(f"ANALYZE {_ROWS}")
        run(
            f"DELETE FROM {table} t WHERE NOT EXISTS "  # noqa: S608
            f"(SELECT 1 FROM {_ROWS} k WHERE {self._same_key('k')})"
        )
        run(self._insert())

    def _insert(self) -> str:
        """The statement that puts the rows that were gathered."""
        schema, table = self._schema, self._table.sql
        others = [name for name in schema.names if name not in schema.key]
        then = "NOTHING"
        if others:
            values = ", ".join(f"{quoted(name)} = EXCLUDED.{quoted(name)}" for name in others)
            then = f"UPDATE SET {values}"
        return (
            f"INSERT INTO {table} AS t ({names(schema.names)}) "  # noqa: S608
            f"SELECT {names(schema.names)} FROM {_ROWS} ON CONFLICT ({names(schema.key)}) DO {then}"
        )

    def _same_key(self, other: str) -> str:
        nullable = {each.name for each in self._table.columns if each.is_nullable}
        parts = []
        for name in self._schema.key:
            here, there = f"t.{quoted(name)}", f"{other}.{quoted(name)}"
            both = f" OR ({here} IS NULL AND {there} IS NULL)" if name in nullable else ""
            parts.append(f"({here} = {there}{both})")
        return " AND ".join(parts)

    def _store(self, token: str) -> None:
        """Store the token, if nobody else has stored one meanwhile, and commit."""
        stored = self._connection.execute(
            f"UPDATE {TOKENS} SET token = %s, changed = now() "  # noqa: S608
            "WHERE sink = %s AND token IS NOT DISTINCT FROM %s",
            [token, self._connector.input.id, self._token],
        )
        if stored.rowcount != 1:
            raise ConnectorError(
                "another process has written to the sink's table in the name of this sink",
                hint="is this database, or a copy of it, open elsewhere?",
            )
        self._connection.execute("COMMIT")
        self._token = token


CONNECTOR = PostgresSink
