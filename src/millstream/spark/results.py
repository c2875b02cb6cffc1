"""What Spark's sink sends: result rows, and how far they count.

In the live gear each flush counts by itself. In the catch-up gear what the tasks of a batch have
sent counts when Spark commits the batch. Either way Spark learns that a batch is over only when
its results are on disk, so its checkpoint is never ahead of the view.
"""

from __future__ import annotations

import struct
import threading
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.result_rows import ResultRows, as_arrow
from millstream.spark.columns import LSN as _LSN_COLUMN
from millstream.spark.few_rows import few_arrow, few_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.model.result_rows import Results as Rows
    from millstream.spark.bridge.connection import Connection
    from millstream.spark.feed import ViewFeed

_ROWS, _FLUSH, _COMMIT, _FEW, _LAST = b"\x01", b"\x02", b"\x03", b"\x04", b"\x05"
"""What a task sends: rows, up to where they count, and, with ``_LAST``, that it waits for more."""

_ROWS_HEAD = struct.Struct(">cI")
_LSN = struct.Struct(">q")
_ANSWER: Final = b"\x01"

_SMALL: Final = 1 << 14
"""Bytes of results up to which taking them in does not keep other views waiting."""


class ResultConsumer(Protocol):
    """Takes the results of a view."""

    def take(self, rows: Sequence[Rows], lsn: int, watermark: int | None, *, durably: bool) -> None:
        """Newest rows, and the LSN up to which they count. Returns when they are taken in."""

    def make_durable(self) -> None:
        """Return when all that was taken is on disk."""


class Results:
    """Receives the results of one view.

    Args:
        feed: what was sent.
        consumer: takes them.
    """

    def __init__(self, feed: ViewFeed, consumer: ResultConsumer) -> None:
        self.feed = feed
        self._consumer = consumer
        self._staged: dict[tuple[int, int], list[Rows]] = {}
        self._taking = threading.Lock()

    def show(self, rows: list[pa.RecordBatch]) -> None:
        """Take the result of no rows, before any has come."""
        with self._taking:
            self._consumer.take(rows, 0, None, durably=False)

    def sink(self, epoch: int, task: int, wire: Connection) -> None:
        """Receive what one task sends."""
        receive_all(self, epoch, task, wire)

    @property
    def begun_lsn(self) -> int:
        """The first LSN whose results are shown."""
        return self.feed.live.begun_lsn

    def flushed(self, rows: list[Rows], lsn: int) -> None:
        """Take what a live task has sent up to an LSN."""
        watermark = self.feed.live.watermark_at(lsn)
        with self._taking:
            self._consumer.take(rows, lsn, watermark, durably=False)

    def staged(self, epoch: int, task: int, rows: list[Rows]) -> None:
        """Keep what a task has sent until its batch is over."""
        self._staged[epoch, task] = rows

    def commit(self, epoch: int, tasks: str, wire: Connection) -> None:
        """A batch is over: take what its tasks have sent, and see that all is on disk."""
        wire.receive_text()
        rows = self.take_staged(epoch, tasks)
        end = self.feed.batch_end
        with self._taking:
            if end is None:  # live: all was flushed
                self._consumer.make_durable()
            else:
                self.feed.batch_read()
                self._consumer.take(rows, end.lsn, self.feed.watermark_of(end), durably=True)
        wire.send_text("=")

    def take_staged(self, epoch: int, tasks: str) -> list[Rows]:
        """What the tasks of a batch have sent, which are listed."""
        rows: list[Rows] = []
        for task in tasks.split(","):
            if task:
                rows += self._staged.get((epoch, int(task)), ())
        self._staged.clear()
        return rows


class SinkConsumer(Protocol):
    """Takes what the sink of one task receives.

    Attributes:
        begun_lsn: the first LSN whose results are shown.
    """

    @property
    def begun_lsn(self) -> int:
        """The first LSN whose results are shown."""

    def flushed(self, rows: list[Rows], lsn: int) -> None:
        """Take what a live task has sent up to an LSN."""

    @property
    def staged(self) -> Callable[[int, int, list[Rows]], None]:
        """Keeps what a task has sent until its batch is over."""


def receive_all(results: SinkConsumer, epoch: int, task: int, wire: Connection) -> None:
    """Receive what one task sends, until its connection ends."""
    sink = _Sink(results, epoch, task, wire)
    while True:
        if sink.is_small and not (sink.has_rows or wire.arrived):
            wire.lend(sink.ready)
        sink.receive()


class _Sink:
    """What one task sends.

    Attributes:
        is_small: whether the last flush was: then the next one probably is, too.
    """

    def __init__(self, results: SinkConsumer, epoch: int, task: int, wire: Connection) -> None:
        self.is_small = False
        self._results = results
        self._epoch = epoch
        self._task = task
        self._wire = wire
        self._schema = pa.ipc.read_schema(pa.py_buffer(wire.receive_message()))
        self._reader = few_reader(self._schema)
        self._rows: list[Rows] = []
        self._bytes = 0
        self._held: list[Rows] | None = []  # None once results are shown

    @property
    def has_rows(self) -> bool:
        """Whether a flush has begun."""
        return bool(self._rows)

    def receive(self) -> None:
        """The next message."""
        wire = self._wire
        kind = wire.read(1)
        if kind == _ROWS:
            message = pa.py_buffer(wire.receive_message())
            self._rows.append(pa.ipc.read_record_batch(message, self._schema))
            self._bytes += len(message)
            return
        if kind == _FEW:
            data = wire.receive_message()
            self._rows.append(self._few(data))
            self._bytes += len(data)
            return
        rows, self._rows = self._rows, []
        if kind != _COMMIT:
            (lsn,) = _LSN.unpack(wire.read(_LSN.size))
            if self._held is None or self._show(self._held, rows, lsn):
                self._results.flushed(rows, lsn)
        else:
            self._results.staged(self._epoch, self._task, rows)
        self.is_small = kind != _COMMIT and self._bytes <= _SMALL
        self._bytes = 0
        if kind != _LAST:
            wire.send(_ANSWER)

    def _few(self, data: bytes) -> Rows:
        reader = self._reader
        if reader is None:
            raise AssertionError("a task has sent what it cannot write")
        try:
            return ResultRows(self._schema, reader(data))
        except (OverflowError, ValueError):  # such as the year 10000, or text that is not UTF-8
            return few_arrow(self._schema, data)

    def _show(self, held: list[Rows], rows: list[Rows], lsn: int) -> bool:
        """Hold rows back while what the view begins with is not complete; then add them to these.

        Returns:
            Whether it is complete.
        """
        begun = self._results.begun_lsn
        held += rows
        if lsn < begun:
            return False
        rows[:] = [_not_before(as_arrow(each), begun) for each in held]
        self._held = None
        return True

    def ready(self) -> bool:
        """Take what has arrived, if it is small; False: leave it to this connection's thread."""
        wire = self._wire
        if not wire.receive_now():
            return False
        while wire.arrived:
            if not self._is_small_and_complete():
                return False
            self.receive()
        return True

    def _is_small_and_complete(self) -> bool:
        head = self._wire.peek(_ROWS_HEAD.size)
        if head[:1] in {_FLUSH, _LAST}:
            size = 1 + _LSN.size
        elif head[:1] in {_ROWS, _FEW} and len(head) == _ROWS_HEAD.size:
            size = len(head) + _ROWS_HEAD.unpack(head)[1]
        else:
            return False
        return self._bytes + size <= _SMALL and self._wire.arrived >= size


def _not_before(batch: pa.RecordBatch, lsn: int) -> pa.RecordBatch:
    """Rows, none of which is of an LSN before one."""
    place = batch.schema.get_field_index(_LSN_COLUMN)
    if place < 0:
        return batch
    lsns = pc.max_element_wise(batch.column(place), pa.scalar(lsn, pa.int64()))
    return batch.set_column(place, batch.schema.field(place), lsns)
