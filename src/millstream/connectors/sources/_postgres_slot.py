"""Publication, replication slot and replication stream of a table of PostgreSQL."""

from __future__ import annotations

import contextlib
import selectors
import time
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from millstream.connectors._postgres import (
    EXTRA,
    command_failure,
    failure,
    literal,
    quoted,
)
from millstream.connectors.registry import needs
from millstream.connectors.sources._pgoutput import lsn_number, lsn_text
from millstream.errors import ConnectorError, ConnectorFailedError

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

SLOT_SECONDS: Final = 60.0
"""How long making a slot waits for transactions that were there before."""
FREE_SECONDS: Final = 10.0
"""How long a slot is waited for that the connection before still holds."""
STATUS_SECONDS: Final = 10.0
"""How often the server hears from us at least; its own limit, wal_sender_timeout, is a minute."""

_STATUS: Final = Struct(">cQQQqB")
_KEEPALIVE: Final = Struct(">Qq?").unpack_from
_Y2K: Final = 946_684_800


# ---- publications


def ensure_publication(connection: Connection, name: str, table: str) -> None:
    """Make the publication of a table, unless it is there."""
    driver: Any = needs("psycopg", EXTRA)
    if connection.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", [name]).fetchone():
        return
    try:
        connection.execute(
            f"CREATE PUBLICATION {quoted(name)} FOR TABLE {table} "
            "WITH (publish_via_partition_root = true)"
        )
    except driver.Error as error:
        made = failure(error, f"the publication {name} cannot be created")
        made.hint = (
            f"let the owner of the table run CREATE PUBLICATION p FOR TABLE {table} WITH "
            "(publish_via_partition_root = true), and give publication = 'p'"
        )
        raise made from error


def published_columns(connection: Connection, name: str, oid: int) -> frozenset[str] | None:
    """The columns that a publication has of a table; None: all.

    Raises:
        ConnectorFailedError: it does not have the table, or not all of its changes.
    """
    every = connection.execute(
        "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate FROM pg_publication "
        "WHERE pubname = %s",
        [name],
    ).fetchone()
    if every is None:
        raise ConnectorFailedError(
            f"there is no publication {name}", hint="create it, or leave publication out"
        )
    if not every[0]:
        raise ConnectorFailedError(
            f"the publication {name} does not publish all changes",
            hint=f"ALTER PUBLICATION {quoted(name)} SET (publish = "
            "'insert, update, delete, truncate')",
        )
    found = connection.execute(
        "SELECT to_jsonb(p) FROM pg_publication_tables p WHERE pubname = %s AND "
        "format('%%I.%%I', schemaname, tablename)::regclass::oid = %s",
        [name, oid],
    ).fetchone()
    if found is None:
        raise ConnectorFailedError(
            f"the publication {name} does not have the table",
            hint=f"ALTER PUBLICATION {quoted(name)} ADD TABLE ...; of a partitioned table it needs "
            "publish_via_partition_root = true",
        )
    if found[0].get("rowfilter"):
        raise ConnectorFailedError(
            f"the publication {name} has only a part of the table's rows",
            hint="use a publication without WHERE",
        )
    columns = found[0].get("attnames")
    return None if columns is None else frozenset(columns)


# ---- slots


class SlotState(NamedTuple):
    """What the server says of a slot, in bytes of its log.

    Attributes:
        confirmed: up to here, what came was confirmed.
        current: where the server's log ends.
        retained: how much of its log the server keeps for the slot.
        is_lost: whether what comes next was removed.
        is_active: whether a connection uses it.
    """

    confirmed: int
    current: int
    retained: int
    is_lost: bool
    is_active: bool


def slot_state(connection: Connection, name: str) -> SlotState | None:
    """The state of a slot; None when there is none."""
    found = connection.execute(
        "SELECT to_jsonb(s), pg_current_wal_lsn()::text, "
        "coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint "
        "FROM pg_replication_slots s WHERE slot_name = %s",
        [name],
    ).fetchone()
    if found is None:
        return None
    slot, current, retained = found
    confirmed = lsn_number(slot["confirmed_flush_lsn"] or "0/0")
    is_lost = slot.get("wal_status") == "lost"
    return SlotState(confirmed, lsn_number(current), retained, is_lost, bool(slot["active"]))


def drop_slot(connection: Connection, name: str) -> None:
    """Remove a slot, if there is one; what still uses it is waited for.

    Raises:
        ConnectorError: somebody uses it.
    """
    driver: Any = needs("psycopg", EXTRA)
    wait_until_free(connection, name)
    try:
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            "WHERE slot_name = %s",
            [name],
        )
    except driver.Error as error:
        raise failure(error, f"the slot {name} cannot be removed") from error


def wait_until_free(connection: Connection, name: str) -> None:
    """Wait until no connection uses a slot: the server takes a moment to see that one was closed.

    Raises:
        ConnectorError: it is still used.
    """
    end = time.monotonic() + FREE_SECONDS
    while (state := slot_state(connection, name)) is not None and state.is_active:
        if time.monotonic() > end:
            raise ConnectorError(
                f"another connection uses the replication slot {name}",
                hint="is this database, or a copy of it, open elsewhere?",
            )
        time.sleep(0.02)


def create_slot(connection: Connection, name: str) -> tuple[int, str]:
    """Make a slot; returns where its stream begins, and the snapshot of what was there before.

    The snapshot exists until the next command of this connection.

    Raises:
        ConnectorError: it cannot be made, or transactions from before do not end.
    """
    pgconn = connection.pgconn
    text = f"CREATE_REPLICATION_SLOT {quoted(name)} LOGICAL pgoutput EXPORT_SNAPSHOT"
    pgconn.send_query(text.encode())
    end = time.monotonic() + SLOT_SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(pgconn.socket, selectors.EVENT_READ)
        while pgconn.is_busy():
            if time.monotonic() > end:
                pgconn.get_cancel().cancel()
                raise ConnectorError(
                    f"the replication slot was not ready within {SLOT_SECONDS:g} seconds",
                    hint="it waits for transactions that write and were there before; see "
                    "pg_stat_activity",
                )
            selector.select(1.0)
            pgconn.consume_input()
    result = pgconn.get_result()
    while pgconn.get_result() is not None:
        pass
    if result is None or not result.ntuples:
        raise command_failure(result, f"the replication slot {name} cannot be created")
    lsn, snapshot = result.get_value(0, 1) or b"", result.get_value(0, 2) or b""
    return lsn_number(lsn.decode()), snapshot.decode()


# ---- the stream


class CopyOut:
    """What the server sends in a COPY, piece by piece, without blocking. Owns its connection.

    Args:
        connection: any.
        text: the command.
        doing: what it is for, in errors.
    """

    def __init__(self, connection: Connection, text: str, doing: str) -> None:
        pq: Any = needs("psycopg.pq", EXTRA)
        self._connection = connection
        self._pgconn = connection.pgconn
        self._doing = doing
        self._selector = selectors.DefaultSelector()
        result = self._pgconn.exec_(text.encode())
        if result.status not in {pq.ExecStatus.COPY_BOTH, pq.ExecStatus.COPY_OUT}:
            raise command_failure(result, doing)
        self._pgconn.nonblocking = 1
        self._selector.register(self._pgconn.socket, selectors.EVENT_READ)

    def piece(self, timeout: float) -> memoryview | None:
        """The next piece, valid until the next call; None when none came in ``timeout`` seconds.

        Raises:
            EOFError: there are no more.
            ConnectorError: the server has ended it with an error.
            psycopg.Error: the connection is lost.
        """
        pgconn, has_waited = self._pgconn, False
        while True:
            size, data = pgconn.get_copy_data(1)
            if size > 0:
                return data
            if size < 0:
                result = pgconn.get_result()
                if result is not None and result.error_message:
                    raise command_failure(result, self._doing)
                raise EOFError(self._doing)
            if has_waited or not self._selector.select(timeout):
                return None
            has_waited = True
            pgconn.consume_input()

    def close(self) -> None:
        """Close the connection."""
        self._selector.close()
        self._connection.close()


class ReplicationStream(CopyOut):
    """What a slot sends, message by message. Owns its connection.

    Args:
        connection: made for replication.
        slot: the slot.
        publication: what it sends of.
        lsn: after which transactions are sent.

    Attributes:
        sent: up to here the server has sent everything.
        is_asked: the server has asked how far we are, and was answered with what is stored. One
            that shuts down asks again and again, until that is everything that it has sent.
    """

    def __init__(self, connection: Connection, slot: str, publication: str, lsn: int) -> None:
        super().__init__(
            connection,
            f"START_REPLICATION SLOT {quoted(slot)} LOGICAL {lsn_text(lsn)} (proto_version '1', "
            f"publication_names {literal(quoted(publication))})",
            "the replication has ended",
        )
        self.sent = lsn
        self.is_asked = False
        self._flushed = lsn
        self._reported = time.monotonic()

    def message(self, timeout: float) -> bytes | None:
        """The next message of the plugin; None when none has come within ``timeout`` seconds.

        None also when the server asks how far we are: who reads may have more to store.

        Raises:
            EOFError: the server has ended the stream.
            ConnectorError: it has, with an error.
            psycopg.Error: the connection is lost.
        """
        while (data := self.piece(timeout)) is not None:
            if data[0] == 119:  # b"w": a message of the plugin, after its place in the log
                return bytes(data[25:])
            sent, _, wants_reply = _KEEPALIVE(data, 1)
            self.sent = max(self.sent, sent)
            if wants_reply:
                self.report()
                self.is_asked = True
                return None
        if time.monotonic() - self._reported > STATUS_SECONDS:
            self.report()
        return None

    def confirm(self, lsn: int) -> None:
        """Everything up to an LSN is stored here; the server hears it soon."""
        self._flushed = max(self._flushed, lsn)
        if time.monotonic() - self._reported > 0.1:
            self.report()

    def report(self) -> None:
        """Tell the server what is stored here."""
        self._reported = time.monotonic()
        now = int((time.time() - _Y2K) * 1_000_000)
        flushed = self._flushed
        self._pgconn.put_copy_data(_STATUS.pack(b"r", flushed, flushed, flushed, now, 0))
        self._pgconn.flush()

    def close(self) -> None:
        """Tell the server once more, and end."""
        with contextlib.suppress(Exception):
            self.report()
        super().close()
