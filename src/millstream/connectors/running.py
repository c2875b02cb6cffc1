"""The work of a connector's thread: from its reader to the log, from a subscription to its writer.

What the database has to do is behind two protocols, which the engine fulfils: this package knows
neither statements nor sessions.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from millstream.connectors.batches import SinkBatch
from millstream.connectors.contract import Counters, Delivery, Rejected
from millstream.connectors.pace import RateLimit
from millstream.errors import ConnectorFailedError, ReceiveTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.connectors.contract import (
        SinkConnector,
        SinkWriter,
        SourceConnector,
        SourceReader,
    )
    from millstream.connectors.supervisor import Supervisor
    from millstream.model.batch import ChangeBatch

READ_SECONDS: Final = 0.25
"""How long a reader waits for a delivery before it looks whether it is to stop."""


class DeliveryLog(Protocol):
    """Where a source connector's deliveries go."""

    @property
    def position(self) -> Any:  # noqa: ANN401 - a JSON value
        """Where the connector is to go on."""

    @property
    def lsn(self) -> int:
        """Where that position is in the log."""

    def commit(self, delivery: Delivery, check: Callable[[], None]) -> tuple[int, int, int]:
        """Commit one; returns its LSN, how many rows it had, and how many were rejected.

        ``check`` raises if the connector may not commit any more; it is called by the commit.
        """

    def is_durable(self, lsn: int) -> bool:
        """Whether everything up to an LSN is on the disk."""


class SinkFeed(Protocol):
    """Where a sink connector's batches come from."""

    def recv(self, timeout: float) -> ChangeBatch:
        """The next batch; ReceiveTimeoutError when none came."""

    def ack(self, batch: ChangeBatch) -> None:
        """Everything up to a batch is stored."""

    def reject(self, rejected: Sequence[Rejected]) -> None:
        """Put rows into the dead letters, on the disk when this returns."""

    def lag_rows(self) -> int:
        """How many rows wait."""

    def cancel(self) -> None:
        """End it."""


class SourceWork:
    """Reads deliveries and commits them.

    Args:
        make: makes the connector, with its settings as they are now.
        log: where deliveries go.
        rate: at most so many rows in a second.
        reject_limit: after so many rejected records without one that was taken, it fails.

    Attributes:
        counters: what was delivered.
    """

    def __init__(
        self,
        make: Callable[[], SourceConnector],
        log: DeliveryLog,
        *,
        rate: float | None = None,
        reject_limit: int | None = None,
    ) -> None:
        self.counters = Counters()
        self._make = make
        self._log = log
        self._rate = RateLimit(rate)
        self._reject_limit = reject_limit
        self._rejected_in_a_row = 0
        self._reader: SourceReader | None = None
        self._pending: list[tuple[int, Any]] = []

    def __call__(self, supervisor: Supervisor) -> None:
        """Open the connector at the position of the log, and read until told to end."""
        position = self._log.position
        reader = self._make().open(position)
        self._reader = reader
        self._pending = [] if position is None else [(self._log.lsn, position)]
        try:
            supervisor.opened()
            while not supervisor.is_ending:
                delivery = reader.read(READ_SECONDS)
                if delivery is not None:
                    self._commit(delivery, supervisor)
                elif supervisor.error is not None and not self._pending:
                    supervisor.worked()  # it waits without an error, and all is on the disk
                self._report(reader)
            self._settle(reader)
        except Exception:
            with contextlib.suppress(Exception):
                self._settle(reader)
            raise
        finally:
            self._reader = None
            reader.close()

    def _commit(self, delivery: Delivery, supervisor: Supervisor) -> None:
        supervisor.check()
        lsn, rows, rejected = self._log.commit(delivery, supervisor.check)
        counters = self.counters
        counters.rows += rows
        counters.batches += 1
        counters.rejected += rejected
        if delivery.position is not None:
            self._pending.append((lsn, delivery.position))
        supervisor.worked()
        self._rejected_in_a_row = 0 if rows else self._rejected_in_a_row + rejected
        if self._reject_limit is not None and self._rejected_in_a_row > self._reject_limit:
            self._rejected_in_a_row = 0
            raise ConnectorFailedError(
                f"more than {self._reject_limit:,} records in a row were rejected",
                hint="see its dead letters; RESUME goes on",
            )
        pause = self._rate.pause_after(rows, time.monotonic())
        if pause > 0:
            supervisor.wait(pause)

    def _report(self, reader: SourceReader) -> None:
        """Tell the reader the last position that is on the disk."""
        pending, place = self._pending, 0
        while place < len(pending) and self._log.is_durable(pending[place][0]):
            place += 1
        if place:
            reader.committed(pending[place - 1][1])
            del pending[:place]

    def _settle(self, reader: SourceReader) -> None:
        """At the end, wait for what was committed to be on the disk, and report it."""
        deadline = time.monotonic() + 1.0
        while self._pending and time.monotonic() < deadline:
            self._report(reader)
            if self._pending:
                time.sleep(0.005)

    def lag(self) -> int | None:
        """How far it is behind; None: unknown."""
        reader = self._reader
        try:
            return None if reader is None else reader.lag()
        except Exception:  # noqa: BLE001 - it is just being closed, or a fault of the connector
            return None

    def metrics(self) -> dict[str, int | float]:
        """The connector's own numbers."""
        reader = self._reader
        try:
            return {} if reader is None else reader.metrics()
        except Exception:  # noqa: BLE001 - as for the lag
            return {}


class SinkWork:
    """Receives batches and has them written.

    Args:
        make: makes the connector, with its settings as they are now.
        subscribe: opens the feed; with True after a token, None to begin anew; with False after
            what was acknowledged.
        rate: at most so many rows in a second.

    Attributes:
        counters: what was stored.
    """

    def __init__(
        self,
        make: Callable[[], SinkConnector],
        subscribe: Callable[[bool, str | None], SinkFeed],
        *,
        rate: float | None = None,
    ) -> None:
        self.counters = Counters()
        self._make = make
        self._subscribe = subscribe
        self._rate = RateLimit(rate)
        self._writer: SinkWriter | None = None
        self._feed: SinkFeed | None = None
        self._held: ChangeBatch | None = None
        self._held_rows = 0
        self._in_snapshot = False
        self._check: Callable[[], None] = lambda: None

    def __call__(self, supervisor: Supervisor) -> None:
        """Open the connector, resume after what is stored, and write until told to end."""
        self._check = supervisor.check
        connector = self._make()
        writer = connector.open()
        self._writer, self._held, self._in_snapshot, self._held_rows = writer, None, False, 0
        try:
            token = writer.position() if connector.transactional else None
            feed = self._feed = self._subscribe(connector.transactional, token)
            try:
                supervisor.opened()
                self._write_all(feed, writer, supervisor)
            finally:
                self._feed = None
                feed.cancel()
        finally:
            self._writer = None
            writer.close()

    def _write_all(self, feed: SinkFeed, writer: SinkWriter, supervisor: Supervisor) -> None:
        while not supervisor.is_ending:
            try:
                changes = feed.recv(READ_SECONDS)
            except ReceiveTimeoutError:
                self._stored(feed, writer, writer.flush(finish=False))
                if supervisor.error is not None:
                    supervisor.worked()  # it waits without an error
                continue
            self._write(changes, feed, writer)
            supervisor.worked()
            pause = self._rate.pause_after(len(changes), time.monotonic())
            if pause > 0:
                supervisor.wait(pause)
        if not self._in_snapshot:
            self._check()
            self._stored(feed, writer, writer.flush(finish=True))

    def _write(self, changes: ChangeBatch, feed: SinkFeed, writer: SinkWriter) -> None:
        is_snapshot = changes.kind == "snapshot"
        is_complete = not is_snapshot or changes.lsn > 0 or not len(changes)
        batch = SinkBatch(
            changes,
            replaces=is_snapshot and not self._in_snapshot,
            is_complete=is_complete,
            token=changes.token if is_complete else "",
        )
        self._in_snapshot = is_snapshot and not is_complete
        self._held_rows += len(changes)
        if is_complete:
            self._held = changes
        self.counters.batches += 1
        self._check()
        self._stored(feed, writer, writer.write(batch))

    def _stored(self, feed: SinkFeed, writer: SinkWriter, is_stored: bool) -> None:
        """Acknowledge what is stored; what was rejected goes to the dead letters first."""
        self._check()
        if writer.rejected:
            feed.reject(writer.rejected)
            self.counters.rejected += len(writer.rejected)
            writer.rejected = []
        if is_stored and self._held is not None and not self._in_snapshot:
            feed.ack(self._held)
            self.counters.rows += self._held_rows
            self._held, self._held_rows = None, 0

    def lag(self) -> int | None:
        """How many rows wait; None: unknown."""
        feed = self._feed
        try:
            return None if feed is None else feed.lag_rows() + self._held_rows
        except Exception:  # noqa: BLE001 - it is just being closed
            return None

    def metrics(self) -> dict[str, int | float]:
        """The connector's own numbers."""
        writer = self._writer
        try:
            return {} if writer is None else writer.metrics()
        except Exception:  # noqa: BLE001 - it is just being closed, or a fault of the connector
            return {}


def rows_in(rows: pa.Table | pa.RecordBatch | Sequence[Any]) -> int:
    """How many rows a delivery has."""
    return int(rows.num_rows) if isinstance(rows, pa.Table | pa.RecordBatch) else len(rows)
