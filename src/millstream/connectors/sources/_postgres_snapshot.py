"""All rows of a table of PostgreSQL as of the beginning of a new replication slot."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors._postgres import PgColumn, PgTable, connect, literal, names
from millstream.connectors._postgres_types import sql_type
from millstream.connectors.contract import Delivery
from millstream.connectors.sources._postgres_position import Position, checksum
from millstream.connectors.sources._postgres_rows import RowMaker
from millstream.connectors.sources._postgres_slot import (
    CopyOut,
    create_slot,
    drop_slot,
    ensure_publication,
)
from millstream.model.row_change import TRUNCATE, upsert
from millstream.model.schema import Column, Schema

if TYPE_CHECKING:
    import psycopg

    from millstream.connectors.sources._postgres_table import FollowedTable

    Connection = psycopg.Connection[tuple[Any, ...]]

CHUNK_BYTES: Final = 16 << 20
LOCK_TIMEOUT: Final = "SET lock_timeout = '10s'"


class SnapshotPhase:
    """Makes the slot, anew if it was there, and reads the rows from before it.

    The table is locked from before the slot until the last row, in the weakest mode: its columns
    stay, and neither TRUNCATE nor ALTER TABLE removes rows that the snapshot has. One that was
    interrupted begins anew.

    Args:
        side: a connection for other questions.
        followed: the table, there and here.
        schema: the columns here as they are now.
        position: of an earlier time, whose rows are replaced; None: there were none.

    Attributes:
        schema: the columns here, with those that the table has got.
        position: where the stream goes on, when it is done.
        is_done: whether all rows were read.
    """

    def __init__(
        self,
        side: Connection,
        followed: FollowedTable,
        schema: Schema,
        position: Position | None,
    ) -> None:
        self.schema = schema
        self.is_done = False
        self._settings = followed.settings
        self._replaces = position is not None
        self._new_columns: list[Column] = []
        self._pieces: list[bytes] = []
        self._size = 0
        table = followed.now(side)
        followed.check_fits(table, followed.sent(side, table))  # before the slot is lost
        connection = connect(followed.settings)
        try:
            self._lsn = _as_of_new_slot(connection, followed, table.sql)
            table = followed.now(connection)  # as it stays while it is locked
            sent = followed.sent(side, table)
            followed.check_fits(table, sent)
            columns = [each for each in table.columns if each.name in sent]
            self.position = self._known(table, columns, position)
            wanted = self._wanted(columns)
            self._maker = RowMaker(
                self.schema,
                [(each.name, each.type) for each in wanted],
                nullify=followed.nullifies,
            )
            only = "" if table.kind == "p" else "ONLY "
            rows = f"SELECT {names([each.name for each in wanted])} FROM {only}{table.sql}"  # noqa: S608
            self._copy = CopyOut(
                connection,
                f"COPY ({rows}) TO STDOUT (FORMAT csv)",
                "the rows of the table cannot be read",
            )
        except BaseException:
            connection.close()
            raise

    def _known(self, table: PgTable, columns: list[PgColumn], before: Position | None) -> Position:
        """The position of a snapshot that is not done; columns that are new are added here."""
        known = {name.lower() for name in self.schema.names}
        others = [each for each in columns if each.name.lower() not in known]
        skipped = [each.name for each in others]
        if before is not None:
            skipped = [name for name in skipped if name in before.skipped]
            for each in others:
                if each.name not in skipped:
                    column = Column(each.name, sql_type(each.type, each.typmod))
                    self.schema = self.schema.with_column(column)
                    self._new_columns.append(column)
        shape = checksum([(each.name, each.type.oid, each.typmod) for each in columns])
        return Position(0, table.oid, len(columns), shape, tuple(skipped))

    def _wanted(self, columns: list[PgColumn]) -> list[PgColumn]:
        by_name = {each.name.lower(): each for each in columns}
        return [by_name[name.lower()] for name in self.schema.names]

    def read(self, timeout: float) -> Delivery | None:
        """The next rows; None when they have not come in ``timeout`` seconds."""
        pieces, end = self._pieces, time.monotonic() + timeout
        most = self._settings["snapshot_rows"]
        try:
            while len(pieces) < most and self._size < CHUNK_BYTES:
                piece = self._copy.piece(max(0.0, end - time.monotonic()))
                if piece is not None:
                    pieces.append(bytes(piece))
                    self._size += len(piece)
                elif time.monotonic() >= end:
                    return None
        except EOFError:
            self.is_done = True
            self.position = replace(self.position, lsn=self._lsn)
        return self._delivery()

    def _delivery(self) -> Delivery:
        data, self._pieces, self._size = b"".join(self._pieces), [], 0
        rows = self._maker.batch(data)
        new_columns, self._new_columns = self._new_columns, []
        position = self.position.to_json()
        if not self._replaces:
            return Delivery(rows=rows, position=position, new_columns=new_columns)
        self._replaces = False
        made = [row for part in rows.to_batches() for row in self.schema.arrow_to_rows(part)]
        changes = [TRUNCATE, *map(upsert, made)]
        return Delivery(changes=changes, position=position, new_columns=new_columns)

    def close(self) -> None:
        """Close its connection."""
        self._copy.close()


def _as_of_new_slot(connection: Connection, followed: FollowedTable, table: str) -> int:
    """Make the slot, and let a connection see the table as it was then; returns its LSN."""
    settings = followed.settings
    with connect(settings) as locked, connect(settings, replication=True) as maker:
        if not settings["publication"]:
            ensure_publication(locked, followed.publication, table)
        drop_slot(locked, followed.slot)
        locked.execute(LOCK_TIMEOUT)
        locked.execute("BEGIN")
        locked.execute(f"LOCK TABLE {table} IN ACCESS SHARE MODE")
        lsn, snapshot = create_slot(maker, followed.slot)
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        connection.execute(f"SET TRANSACTION SNAPSHOT {literal(snapshot)}")
        connection.execute(f"LOCK TABLE {table} IN ACCESS SHARE MODE")
        locked.execute("ROLLBACK")
    return lsn
