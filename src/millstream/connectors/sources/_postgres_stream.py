"""The transactions of a table of PostgreSQL, after a position: each is a delivery.

The server is told of a position only once it is on the disk here, so that the slot never runs
ahead of the log.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors._postgres import connect, types_of
from millstream.connectors._postgres_types import sql_type
from millstream.connectors.contract import Delivery
from millstream.connectors.sources._pgoutput import (
    Commit,
    Delete,
    Insert,
    Message,
    Origin,
    Relation,
    RelationColumn,
    Truncate,
    Type,
    Update,
    lsn_text,
    parse,
)
from millstream.connectors.sources._postgres_position import Position, SnapshotNeeded, checksum
from millstream.connectors.sources._postgres_rows import RowMaker
from millstream.connectors.sources._postgres_slot import (
    ReplicationStream,
    SlotState,
    drop_slot,
    slot_state,
    wait_until_free,
)
from millstream.errors import ConnectorFailedError
from millstream.model.row_change import TRUNCATE, RowChange, delete, upsert
from millstream.model.schema import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import psycopg

    from millstream.connectors.sources._postgres_table import FollowedTable

    Connection = psycopg.Connection[tuple[Any, ...]]

WATCH_SECONDS: Final = 5.0
"""How often the slot and the table are looked at."""
IDLE_SECONDS: Final = 30.0
IDLE_BYTES: Final = 16 << 20
"""When nothing of the table comes, the position moves on after so long, or so much of others."""


class StreamPhase:
    """Follows the slot.

    Args:
        side: a connection for other questions.
        followed: the table, there and here.
        schema: the columns here as they are now.
        position: after which to go on.

    Attributes:
        schema: the columns here, with those that the table has got.
        position: after the last transaction that was read.
    """

    def __init__(
        self, side: Connection, followed: FollowedTable, schema: Schema, position: Position
    ) -> None:
        self.schema = schema
        self.position = position
        self._side = side
        self._followed = followed
        self._state: SlotState | None = None
        self._maker: RowMaker | None = None
        self._changes: list[RowChange] = []
        self._new_columns: list[Column] = []
        self._is_between = True
        self._transactions = 0
        self._watched = self._moved = time.monotonic()
        self._takers: dict[type, Callable[[Any], Delivery | None]] = {
            Insert: self._insert,
            Update: self._update,
            Delete: self._delete,
            Truncate: self._truncate,
            Relation: self._relation,
            Commit: self._commit,
        }
        self._watch_table()
        self._watch_slot(is_opened=True)
        wait_until_free(side, followed.slot)
        connection = connect(followed.settings, replication=True)
        try:
            self._stream = ReplicationStream(
                connection, followed.slot, followed.publication, position.lsn
            )
        except BaseException:
            connection.close()
            raise

    def read(self, timeout: float) -> Delivery | None:
        """The next transaction; None when none has come within ``timeout`` seconds.

        Raises:
            SnapshotNeeded: the rows must be read again.
            ConnectorFailedError: it cannot go on.
            EOFError: the server has ended the stream.
        """
        end = time.monotonic() + timeout
        while True:
            now = time.monotonic()
            if now - self._watched > WATCH_SECONDS and self._is_between:
                self._watch_table()
                self._watch_slot()
            data = self._stream.message(max(0.0, end - now))
            if data is not None:
                delivery = self._take(data)
                if delivery is not None:
                    return delivery
            if now >= end or self._stream.is_asked:
                return self._moved_on(now)

    def confirm(self, lsn: int) -> None:
        """Everything up to an LSN is on the disk here."""
        self._stream.confirm(lsn)

    def lag(self) -> int | None:
        """Bytes of the server's log that it is behind, as of some seconds ago."""
        state = self._state
        return None if state is None else max(0, state.current - self.position.lsn)

    def metrics(self) -> dict[str, int | float]:
        """What the slot holds, and how many transactions came."""
        retained = 0 if self._state is None else self._state.retained
        return {"transactions": self._transactions, "slot_retained_bytes": retained}

    def close(self) -> None:
        """Close its connection."""
        self._stream.close()

    # ---- messages

    def _take(self, data: bytes) -> Delivery | None:
        message = parse(data)
        taker = self._takers.get(type(message))
        self._is_between = False
        if taker is not None:
            return taker(message)
        if isinstance(message, Message | Origin | Type):
            self._is_between = isinstance(message, Message) and not message.is_transactional
        return None

    def _made(self, oid: int) -> RowMaker | None:
        """What makes the rows of a table; None if it is another one."""
        if oid != self.position.oid:
            return None
        if self._maker is None:
            raise ConnectorFailedError("a row came before its columns", hint="report this as a bug")
        return self._maker

    def _insert(self, message: Insert) -> None:
        maker = self._made(message.oid)
        if maker is not None:
            self._changes.append(upsert(maker.row(message.new)))

    def _update(self, message: Update) -> None:
        maker, old = self._made(message.oid), message.old
        if maker is None:
            return
        values, key = maker.filled(message.new, old), None
        if old is not None:
            was = maker.key(old)
            key = None if was == maker.key(values) else was
        self._changes.append(upsert(maker.row(values), key))

    def _delete(self, message: Delete) -> None:
        maker = self._made(message.oid)
        if maker is not None:
            self._changes.append(delete(maker.key(message.old)))

    def _truncate(self, message: Truncate) -> None:
        if self.position.oid in message.oids:
            self._changes.append(TRUNCATE)

    def _commit(self, message: Commit) -> Delivery | None:
        self.position = replace(self.position, lsn=message.end_lsn)
        self._is_between = True
        changes, self._changes = self._changes, []
        new_columns, self._new_columns = self._new_columns, []
        if not changes and not new_columns:
            return None
        self._transactions += 1
        self._moved = time.monotonic()
        position = self.position.to_json()
        return Delivery(changes=changes, position=position, new_columns=new_columns)

    def _moved_on(self, now: float) -> Delivery | None:
        """Let the position follow the server when nothing of the table comes: it can free WAL.

        At once when the server asks: until it hears of all that it has sent, it does not shut down.
        """
        is_asked, self._stream.is_asked = self._stream.is_asked, False
        ahead = self._stream.sent - self.position.lsn
        if not self._is_between or ahead <= 0:
            return None
        if not is_asked and ahead < IDLE_BYTES and now - self._moved < IDLE_SECONDS:
            return None
        self._moved = now
        self.position = replace(self.position, lsn=self._stream.sent)
        return Delivery(position=self.position.to_json())

    # ---- what may change outside

    def _relation(self, relation: Relation) -> None:
        """Columns as they are from now on: known, with new ones at the end, or changed."""
        if relation.oid != self.position.oid:
            return
        position, columns = self.position, relation.columns
        shapes = [(each.name, each.type, each.typmod) for each in columns]
        if len(shapes) < position.width or checksum(shapes[: position.width]) != position.shape:
            raise SnapshotNeeded
        self._add(columns[position.width :])
        self.position = replace(position, width=len(shapes), shape=checksum(shapes))
        identity = {each.name.lower() for each in columns if each.in_identity}
        key = {name.lower() for name in self.schema.key}
        if relation.identity != "f" and not key <= identity:
            raise ConnectorFailedError(
                f"the replica identity of {relation.schema}.{relation.name} was changed",
                hint="set it back, or DROP the table here and CREATE it with the new key",
            )
        types = types_of(self._side, [each.type for each in columns])
        if any(each.type not in types for each in columns):
            raise SnapshotNeeded
        pairs = [(each.name, types[each.type]) for each in columns]
        self._maker = RowMaker(self.schema, pairs, nullify=self._followed.nullifies)

    def _add(self, added: Sequence[RelationColumn]) -> None:
        """Add new columns here, if the rows that were there before have NULL in them."""
        if not added:
            return
        types = {each.name: each.type for each in added}
        now = [each for each in self._followed.now(self._side).columns if each.name in types]
        same = [each for each in now if each.type.oid == types[each.name] and not each.has_default]
        if len(same) < len(added):
            raise SnapshotNeeded
        for each in same:
            column = Column(each.name, sql_type(each.type, each.typmod))
            self.schema = self.schema.with_column(column)
            self._new_columns.append(column)
        more = (None,) * len(same)
        self._changes = [
            each if each.row is None else each._replace(row=each.row + more)
            for each in self._changes
        ]

    def _watch_table(self) -> None:
        """Look at the table: the stream does not say when it is gone."""
        table = self._followed.now(self._side)
        if table.oid != self.position.oid:
            raise ConnectorFailedError(
                f"{table.sql} was dropped and created again in PostgreSQL",
                hint="DROP the table here, and CREATE it anew",
            )

    def _watch_slot(self, *, is_opened: bool = False) -> None:
        """Look at the slot; when it is opened, also whether it has not run ahead."""
        slot, limit = self._followed.slot, self._followed.settings["max_slot_lag"]
        state = self._state = slot_state(self._side, slot)
        self._watched = time.monotonic()
        if state is None:
            self._lost(f"the replication slot {slot} is gone")
        elif state.is_lost:
            self._lost(f"PostgreSQL has removed WAL that the replication slot {slot} needs")
        elif is_opened and state.confirmed > self.position.lsn:
            self._lost(
                f"the replication slot {slot} is at {lsn_text(state.confirmed)}, and changes are "
                f"here only up to {lsn_text(self.position.lsn)}"
            )
        elif limit is not None and state.retained > limit:
            if not is_opened:
                self._stream.close()
            drop_slot(self._side, slot)
            self._lost(
                f"the replication slot {slot} held {state.retained:,} bytes of WAL, more than "
                "max_slot_lag, and was dropped"
            )

    def _lost(self, why: str) -> None:
        if self._followed.settings["on_lost_slot"] == "snapshot":
            raise SnapshotNeeded
        raise ConnectorFailedError(
            why,
            hint="changes are lost: DROP the table and CREATE it anew; with on_lost_slot = "
            "'snapshot' that happens by itself",
        )
