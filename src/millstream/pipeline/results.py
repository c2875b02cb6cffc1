"""What Spark's sink sends: result rows, and how far they count.

In the live gear each flush counts by itself. In the catch-up gear what the tasks of a batch have
sent counts when Spark commits the batch. Either way Spark is told that a batch is over only when
its results are on the disk, so its checkpoint is never ahead of the view.
"""

from __future__ import annotations

import struct
import threading
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.pipeline.feed import Feed
    from millstream.pipeline.wire import Connection

_ROWS, _FLUSH, _COMMIT = b"\x01", b"\x02", b"\x03"
_LSN = struct.Struct(">q")
_ANSWER: Final = b"\x01"


class Taker(Protocol):
    """Who takes the results of a view."""

    def take(
        self, rows: Sequence[pa.RecordBatch], lsn: int, watermark: int | None, *, durably: bool
    ) -> None:
        """Newest rows, and the LSN up to which they count. Returns when they are taken in."""

    def settle(self) -> None:
        """Return when all that was taken is on the disk."""


class Results:
    """Receives the results of one view.

    Args:
        feed: which knows what was sent.
        taker: who takes them.
    """

    def __init__(self, feed: Feed, taker: Taker) -> None:
        self._feed = feed
        self._taker = taker
        self._staged: dict[tuple[int, int], list[pa.RecordBatch]] = {}
        self._taking = threading.Lock()

    def show(self, rows: list[pa.RecordBatch]) -> None:
        """Take what there is before any row has come."""
        with self._taking:
            self._taker.take(rows, 0, None, durably=False)

    def sink(self, epoch: int, task: int, wire: Connection) -> None:
        """Receive what one task sends."""
        schema = pa.ipc.read_schema(pa.py_buffer(wire.receive_message()))
        rows: list[pa.RecordBatch] = []
        while True:
            kind = wire.read(1)
            if kind == _ROWS:
                message = pa.py_buffer(wire.receive_message())
                rows.append(pa.ipc.read_record_batch(message, schema))
                continue
            if kind == _FLUSH:
                (lsn,) = _LSN.unpack(wire.read(8))
                watermark = self._feed.live.watermark_at(lsn)
                with self._taking:
                    self._taker.take(rows, lsn, watermark, durably=False)
                rows = []
            elif kind == _COMMIT:
                self._staged[epoch, task] = rows
                rows = []
            wire.send(_ANSWER)

    def commit(self, epoch: int, tasks: str, wire: Connection) -> None:
        """A batch is over: take what its tasks have sent, and see that all is on the disk."""
        wire.receive_text()
        rows: list[pa.RecordBatch] = []
        for task in tasks.split(","):
            if task:
                rows += self._staged.get((epoch, int(task)), ())
        self._staged.clear()
        end = self._feed.batch_end
        with self._taking:
            if end is None:  # live: all was flushed
                self._taker.settle()
            else:
                self._feed.batch_read()
                self._taker.take(rows, end.lsn, self._feed.watermark_of(end), durably=True)
        wire.send_text("=")
