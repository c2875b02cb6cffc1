"""The source ``postgres-cdc``: a table of PostgreSQL, followed by logical replication (pgoutput).

First the rows that are there, as of the replication slot's beginning, then each transaction as one
delivery. The position is the LSN at the end of a transaction; the server is told of a position
only once it is on the disk here, so the slot never runs ahead of the log.
"""

from __future__ import annotations

import contextlib
import time
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors._postgres import (
    CONNECTION_OPTIONS,
    EXTRA,
    PgTable,
    connect,
    describe,
    failure,
    types_of,
)
from millstream.connectors._postgres_types import sql_type
from millstream.connectors.contract import (
    Delivery,
    Option,
    SourceConnector,
    SourceReader,
    TargetKind,
)
from millstream.connectors.registry import needs
from millstream.connectors.sources._pgoutput import (
    Commit,
    Delete,
    Insert,
    Relation,
    Truncate,
    Update,
    lsn_number,
    lsn_text,
    parse,
)
from millstream.connectors.sources._postgres_rows import RowMaker, check_types
from millstream.connectors.sources._postgres_slot import (
    ReplicationStream,
    SlotState,
    drop_slot,
    published_columns,
    slot_state,
    wait_until_free,
)
from millstream.connectors.sources._postgres_snapshot import Snapshot
from millstream.errors import ConnectorFailedError
from millstream.model.row_change import TRUNCATE, RowChange, delete, upsert
from millstream.model.schema import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

WATCH_SECONDS: Final = 5.0
"""How often the slot and the table are looked at."""
IDLE_SECONDS: Final = 30.0
IDLE_BYTES: Final = 16 << 20
"""When nothing of the table comes, the position moves on after so long, or so much of others."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where the connector is; kept as JSON with every delivery.

    Attributes:
        lsn: all transactions that end up to here are in; 0 while there is a snapshot.
        oid: the table's number.
        width: how many columns PostgreSQL sends.
        shape: a checksum of them, to notice changes that happened meanwhile.
        skipped: the names of columns that CREATE left out.
    """

    lsn: int
    oid: int
    width: int
    shape: int
    skipped: tuple[str, ...] = ()

    def to_json(self) -> list[Any]:
        """What is kept."""
        return [lsn_text(self.lsn), self.oid, self.width, self.shape, *self.skipped]

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> Position:
        """What ``to_json`` has made."""
        lsn, oid, width, shape, *skipped = value
        return cls(lsn_number(lsn), oid, width, shape, tuple(skipped))


def checksum(columns: Sequence[tuple[str, int, int]]) -> int:
    """A checksum of names, types and parameters of columns."""
    return zlib.crc32(repr(list(columns)).encode())


class SnapshotNeeded(Exception):  # noqa: N818 - a turn that reading takes
    """The table was changed in a way that the stream does not show: its rows are read again."""


class PostgresCdc(SourceConnector):
    """A table of PostgreSQL."""

    name = "postgres-cdc"
    extra = EXTRA
    kinds: tuple[TargetKind, ...] = ("table",)  # type: ignore[misc]
    rejects = False
    options = (
        *CONNECTION_OPTIONS,
        Option("table", required=True, help="such as public.orders"),
        Option("publication", help="one that is there; otherwise it makes its own"),
        Option("slot", help="the name of its replication slot; millstream_ID"),
        Option("max_slot_lag", "size", help="the slot is given up when it holds more of the WAL"),
        Option(
            "on_lost_slot",
            "choice",
            default="fail",
            choices=("fail", "snapshot"),
            help="whether a lost slot stops it, or all rows are read again",
        ),
        Option(
            "invalid_values",
            "choice",
            default="fail",
            choices=("fail", "null"),
            help="values that the column here cannot hold, such as infinity",
        ),
        Option("snapshot_rows", "int", default=50_000, help="rows in a commit of the snapshot"),
    )

    @property
    def slot(self) -> str:
        """The name of its slot, and of its publication if that is not given."""
        return str(self.settings["slot"] or f"millstream_{self.target.id}".lower()[:63])

    @property
    def publication(self) -> str:
        """The name of the publication."""
        return str(self.settings["publication"] or self.slot)

    def check(self) -> None:
        """Look whether the server, the table and its columns are as they must be."""
        with connect(self.settings) as connection:
            check_server(connection)
            table = self.table(connection)
            self.check_fits(table, self.sent(connection, table))

    def discover(self) -> Schema:
        """The columns of the table, and its key."""
        with connect(self.settings) as connection:
            table = self.table(connection)
            sent = self.sent(connection, table)
        key = next((each for each in table.keys if set(each) <= set(table.identity_key)), ())
        if not key:
            raise no_key(table)
        columns = [
            Column(each.name, sql_type(each.type, each.typmod), nullable=each.name not in key)
            for each in table.columns
            if each.name in sent
        ]
        return Schema(tuple(columns), key)

    def table(self, connection: psycopg.Connection[tuple[Any, ...]]) -> PgTable:
        """The table as it is now.

        Raises:
            ConnectorFailedError: there is none, or it is of a kind that is not replicated.
        """
        name = self.settings["table"]
        table = describe(connection, name)
        if table is None:
            raise ConnectorFailedError(
                f"there is no table {name} in PostgreSQL",
                hint="give its schema too, such as public.orders; names with capitals need quotes",
            )
        if table.kind not in {"r", "p"}:
            raise ConnectorFailedError(
                f"{name} is no table", hint="views and foreign tables are not replicated"
            )
        return table

    def sent(
        self, connection: psycopg.Connection[tuple[Any, ...]], table: PgTable
    ) -> tuple[str, ...]:
        """The names of the columns that are replicated."""
        published = None
        if self.settings["publication"]:
            published = published_columns(connection, self.publication, table.oid)
        return tuple(
            each.name
            for each in table.columns
            if not each.is_generated and (published is None or each.name in published)
        )

    def check_fits(self, table: PgTable, sent: Sequence[str]) -> None:
        """Check columns and key against those of the target.

        Raises:
            ConnectorFailedError: they do not fit.
        """
        check_types(
            self.target.schema,
            {each.name.lower(): each.type for each in table.columns if each.name in sent},
        )
        identity = {name.lower() for name in table.identity_key}
        if not identity:
            raise no_key(table)
        key = {name.lower() for name in self.target.schema.key}
        nullable = {each.name.lower() for each in table.columns if each.is_nullable}
        unique = [
            {name.lower() for name in each}
            for each in table.keys
            if each in table.nulls_equal or not nullable & {name.lower() for name in each}
        ]
        if key not in unique or not key <= identity:
            fitting = next((each for each in table.keys if set(each) <= set(table.identity_key)), ())
            raise ConnectorFailedError(
                f"the key ({', '.join(sorted(key))}) is not one that {table.sql} is replicated with",
                hint=f"write PRIMARY KEY ({', '.join(fitting)})"
                if fitting
                else f"ALTER TABLE {table.sql} REPLICA IDENTITY USING INDEX a_unique_index",
            )

    def open(self, position: Any) -> PostgresReader:  # noqa: ANN401 - a JSON value
        """Connect, and go on after a position."""
        at = None if position is None else Position.from_json(position)
        reader = PostgresReader(self, at)
        try:
            reader.start()
        except BaseException:
            reader.close()
            raise
        return reader

    def drop(self, position: Any) -> None:  # noqa: ANN401, ARG002 - a JSON value
        """Remove the slot, and the publication if it was made here."""
        with connect(self.settings) as connection:
            drop_slot(connection, self.slot)
            if not self.settings["publication"]:
                connection.execute(f'DROP PUBLICATION IF EXISTS "{self.publication}"')


class PostgresReader(SourceReader):
    """Reads a snapshot, then the stream.

    Args:
        connector: its settings and its target.
        position: where to go on; None: at the beginning.
    """

    def __init__(self, connector: PostgresCdc, position: Position | None) -> None:
        self._connector = connector
        self._settings = connector.settings
        self._schema = connector.target.schema
        self._position = position
        self._driver: Any = needs("psycopg", EXTRA)
        self._side = connect(connector.settings)
        self._snapshot: Snapshot | None = None
        self._stream: ReplicationStream | None = None
        self._maker: RowMaker | None = None
        self._state: SlotState | None = None
        self._watched = self._moved = time.monotonic()
        self._changes: list[RowChange] = []
        self._new_columns: list[Column] = []
        self._in_transaction = False
        self._transactions = 0

    def start(self) -> None:
        """Begin, or go on."""
        position = self._position
        if position is None or not position.lsn:
            self._start_snapshot(is_first=position is None)
            return
        try:
            self._start_stream(position)
        except SnapshotNeeded:
            self._start_snapshot(is_first=False)

    # ---- the contract

    def read(self, timeout: float) -> Delivery | None:
        """The next chunk of the snapshot, or the next transaction."""
        try:
            if self._snapshot is not None:
                return self._read_snapshot(self._snapshot, timeout)
            return self._read_stream(timeout)
        except SnapshotNeeded:
            self._start_snapshot(is_first=False)
            return None
        except self._driver.Error as error:
            raise failure(error, "the connection to PostgreSQL is lost") from error

    def committed(self, position: Any) -> None:  # noqa: ANN401 - a JSON value
        """Confirm a position to the server."""
        at = Position.from_json(position)
        if at.lsn and self._stream is not None:
            self._stream.confirm(at.lsn)

    def lag(self) -> int | None:
        """Bytes of the server's log that it is behind, as of some seconds ago."""
        state, position = self._state, self._position
        if state is None or position is None:
            return None
        return max(0, state.current - max(position.lsn, state.confirmed))

    def metrics(self) -> dict[str, int | float]:
        """What the slot holds, and how many transactions came."""
        state = self._state
        retained = 0 if state is None else state.retained
        return {"transactions": self._transactions, "slot_retained_bytes": retained}

    def close(self) -> None:
        """Close all connections."""
        for each in (self._snapshot, self._stream, self._side):
            if each is not None:
                with contextlib.suppress(Exception):
                    each.close()

    # ---- the snapshot

    def _start_snapshot(self, *, is_first: bool) -> None:
        """Begin to read all rows; what is there is replaced unless it is the first time."""
        if self._stream is not None:
            self._stream.close()
        self._stream, self._maker = None, None
        self._changes, self._in_transaction = [], False
        connector, position = self._connector, self._position
        try:
            table = connector.table(self._side)
            connector.check_fits(table, connector.sent(self._side, table))
            snapshot = Snapshot(connector.settings, connector.slot, connector.publication, table.sql)
        except self._driver.Error as error:
            raise failure(error, "the snapshot cannot be started") from error
        self._snapshot = snapshot
        with snapshot.closed_on_error():
            table = connector.table(snapshot.connection)  # as it stays while it is locked
            sent = connector.sent(self._side, table)
            connector.check_fits(table, sent)
            columns = [each for each in table.columns if each.name in sent]
            known = {name.lower() for name in self._schema.names}
            others = [each for each in columns if each.name.lower() not in known]
            skipped = [each.name for each in others]
            if not is_first and position is not None:
                skipped = [name for name in skipped if name in position.skipped]
                self._add([each for each in others if each.name not in skipped])
            shape = checksum([(each.name, each.type.oid, each.typmod) for each in columns])
            self._position = Position(0, table.oid, len(columns), shape, tuple(skipped))
            pairs = {each.name.lower(): each for each in columns}
            wanted = [pairs[name.lower()] for name in self._schema.names]
            nullify = self._settings["invalid_values"] == "null"
            snapshot.start(
                RowMaker(self._schema, [(each.name, each.type) for each in wanted], nullify=nullify),
                [each.name for each in wanted],
                is_partitioned=table.kind == "p",
                replaces=not is_first,
            )

    def _add(self, columns: Sequence[Any]) -> None:
        """Columns that the target is to get with the next delivery."""
        for each in columns:
            column = Column(each.name, sql_type(each.type, each.typmod))
            self._schema = self._schema.with_column(column)
            self._new_columns.append(column)

    def _read_snapshot(self, snapshot: Snapshot, timeout: float) -> Delivery | None:
        chunk = snapshot.read(timeout, self._settings["snapshot_rows"])
        if chunk is None:
            return None
        assert self._position is not None
        if chunk.is_last:
            self._snapshot = None
            snapshot.close()
            self._position = replace(self._position, lsn=snapshot.lsn)
            self._start_stream(self._position)
        new_columns, self._new_columns = self._new_columns, []
        position = self._position.to_json()
        if not chunk.replaces:
            return Delivery(rows=chunk.rows, position=position, new_columns=new_columns)
        schema = self._schema
        rows = [row for part in chunk.rows.to_batches() for row in schema.arrow_to_rows(part)]
        changes = [TRUNCATE, *map(upsert, rows)]
        return Delivery(changes=changes, position=position, new_columns=new_columns)

    # ---- the stream

    def _start_stream(self, position: Position) -> None:
        connector = self._connector
        table = connector.table(self._side)
        if table.oid != position.oid:
            raise ConnectorFailedError(
                f"{table.sql} was dropped and created again in PostgreSQL",
                hint="DROP the table here, and CREATE it anew",
            )
        self._watch_slot(position)
        wait_until_free(self._side, connector.slot)
        connection = connect(self._settings, replication=True)
        try:
            self._stream = ReplicationStream(
                connection, connector.slot, connector.publication, position.lsn
            )
        except BaseException:
            connection.close()
            raise

    def _read_stream(self, timeout: float) -> Delivery | None:
        stream, end = self._stream, time.monotonic() + timeout
        assert stream is not None
        while True:
            now = time.monotonic()
            if now - self._watched > WATCH_SECONDS and not self._in_transaction:
                self._watch()
            data = stream.message(max(0.0, end - now))
            if data is not None:
                delivery = self._take(parse(data))
                if delivery is not None:
                    return delivery
            if now >= end:
                return self._moved_on(stream, now)

    def _take(self, message: Any) -> Delivery | None:  # noqa: ANN401 - a message of pgoutput
        kind = type(message)
        if kind is Insert:
            if self._is_ours(message.oid):
                self._changes.append(upsert(self._made.row(message.new)))
        elif kind is Update:
            if self._is_ours(message.oid):
                self._update(message)
        elif kind is Delete:
            if self._is_ours(message.oid):
                self._changes.append(delete(self._made.key(message.old)))
        elif kind is Truncate:
            if any(map(self._is_ours, message.oids)):
                self._changes.append(TRUNCATE)
        elif kind is Relation:
            if self._is_ours(message.oid):
                self._relation(message)
        elif kind is Commit:
            return self._commit(message)
        self._in_transaction = True  # origins, types and messages change nothing here
        return None

    def _is_ours(self, oid: int) -> bool:
        assert self._position is not None
        return oid == self._position.oid

    @property
    def _made(self) -> RowMaker:
        if self._maker is None:
            raise ConnectorFailedError("rows came before their columns", hint="report this as a bug")
        return self._maker

    def _update(self, message: Update) -> None:
        maker, old = self._made, message.old
        values = maker.filled(message.new, old)
        key = None
        if old is not None:
            was = maker.key(old)
            key = None if was == maker.key(values) else was
        self._changes.append(upsert(maker.row(values), key))

    def _commit(self, message: Commit) -> Delivery | None:
        assert self._position is not None
        self._position = replace(self._position, lsn=message.end_lsn)
        self._in_transaction = False
        changes, self._changes = self._changes, []
        new_columns, self._new_columns = self._new_columns, []
        if not changes and not new_columns:
            return None
        self._transactions += 1
        self._moved = time.monotonic()
        position = self._position.to_json()
        return Delivery(changes=changes, position=position, new_columns=new_columns)

    def _moved_on(self, stream: ReplicationStream, now: float) -> Delivery | None:
        """Let the position follow the server when nothing of the table comes: it can free WAL."""
        position = self._position
        assert position is not None
        if self._in_transaction:
            return None
        ahead = max(stream.sent, position.lsn) - position.lsn
        if not ahead or (ahead < IDLE_BYTES and now - self._moved < IDLE_SECONDS):
            return None
        self._moved = now
        self._position = replace(position, lsn=stream.sent)
        return Delivery(position=self._position.to_json())

    # ---- what may change outside

    def _relation(self, relation: Relation) -> None:
        """Columns as they are from now on: known, longer by some that can be added, or changed."""
        position = self._position
        assert position is not None
        columns = relation.columns
        shapes = [(each.name, each.type, each.typmod) for each in columns]
        if checksum(shapes[: position.width]) != position.shape or len(shapes) < position.width:
            raise SnapshotNeeded
        added = {each.name: each for each in columns[position.width :]}
        if added:
            now = [each for each in self._connector.table(self._side).columns if each.name in added]
            same = all(each.type.oid == added[each.name].type for each in now)
            if len(now) < len(added) or not same or any(each.has_default for each in now):
                raise SnapshotNeeded
            self._add(now)
            self._changes = [_longer(each, len(now)) for each in self._changes]
            self._position = replace(position, width=len(shapes), shape=checksum(shapes))
        identity = {each.name.lower() for each in columns if each.in_identity}
        if relation.identity != "f" and not {n.lower() for n in self._schema.key} <= identity:
            raise ConnectorFailedError(
                f"the replica identity of {relation.schema}.{relation.name} was changed",
                hint="set it back, or DROP the table here and CREATE it with the new key",
            )
        types = types_of(self._side, [each.type for each in columns])
        unknown = [each.name for each in columns if each.type not in types]
        if unknown:
            raise SnapshotNeeded
        nullify = self._settings["invalid_values"] == "null"
        pairs = [(each.name, types[each.type]) for each in columns]
        self._maker = RowMaker(self._schema, pairs, nullify=nullify)

    def _watch(self) -> None:
        """Look at the slot and the table: neither says anything when it is gone."""
        assert self._position is not None
        self._watched = time.monotonic()
        table = self._connector.table(self._side)
        if table.oid != self._position.oid:
            raise ConnectorFailedError(
                f"{table.sql} was dropped and created again in PostgreSQL",
                hint="DROP the table here, and CREATE it anew",
            )
        self._watch_slot(None)

    def _watch_slot(self, position: Position | None) -> None:
        """Look at the slot; of one that is opened, also whether it has not run ahead."""
        slot, limit = self._connector.slot, self._settings["max_slot_lag"]
        state = self._state = slot_state(self._side, slot)
        self._watched = time.monotonic()
        if state is None:
            self._lost(f"the replication slot {slot} is gone")
        elif state.is_lost:
            self._lost(f"PostgreSQL has removed WAL that the replication slot {slot} needs")
        elif position is not None and state.confirmed > position.lsn:
            self._lost(
                f"the replication slot {slot} is at {lsn_text(state.confirmed)}, after "
                f"{lsn_text(position.lsn)}, up to which changes are here"
            )
        elif limit is not None and state.retained > limit:
            if self._stream is not None:
                self._stream.close()
                self._stream = None
            drop_slot(self._side, slot)
            self._lost(
                f"the replication slot {slot} held {state.retained:,} bytes of WAL, more than "
                "max_slot_lag, and was dropped"
            )

    def _lost(self, why: str) -> None:
        if self._settings["on_lost_slot"] == "snapshot":
            raise SnapshotNeeded
        raise ConnectorFailedError(
            why,
            hint="changes are lost: DROP the table and CREATE it anew; with on_lost_slot = "
            "'snapshot' that happens by itself",
        )


def _longer(change: RowChange, more: int) -> RowChange:
    row = change.row
    return change if row is None else change._replace(row=row + (None,) * more)


def no_key(table: PgTable) -> ConnectorFailedError:
    """A table whose updates and deletes say not which row they mean."""
    return ConnectorFailedError(
        f"{table.sql} has no primary key or replica identity, so updates and deletes cannot be "
        "followed",
        hint=f"ALTER TABLE {table.sql} ADD PRIMARY KEY (...), or REPLICA IDENTITY USING INDEX with "
        "a unique index of NOT NULL columns",
    )


def check_server(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Check what logical replication needs of the server and of the user.

    Raises:
        ConnectorFailedError: it cannot replicate.
    """
    found = connection.execute(
        "SELECT current_setting('wal_level'), current_setting('server_version_num')::int, "
        "r.rolreplication OR r.rolsuper, (SELECT count(*) FROM pg_replication_slots) >= "
        "current_setting('max_replication_slots')::int, pg_is_in_recovery() "
        "FROM pg_roles r WHERE r.rolname = current_user"
    ).fetchone()
    assert found is not None
    level, version, may_replicate, is_full, is_standby = found
    if version < 130000:
        raise ConnectorFailedError("PostgreSQL is older than 13", hint="use PostgreSQL 13 or newer")
    if is_standby:
        raise ConnectorFailedError("the server is a standby", hint="connect to the primary")
    if level != "logical":
        raise ConnectorFailedError(
            f"the server's wal_level is {level}, and replication needs logical",
            hint="ALTER SYSTEM SET wal_level = 'logical', and restart PostgreSQL",
        )
    if not may_replicate:
        raise ConnectorFailedError(
            "the user may not replicate", hint="ALTER ROLE name REPLICATION"
        )
    if is_full:
        raise ConnectorFailedError(
            "all replication slots of the server are in use",
            hint="raise max_replication_slots, or drop slots that nobody uses",
        )


CONNECTOR = PostgresCdc
