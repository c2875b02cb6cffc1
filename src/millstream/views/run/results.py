"""What Spark's sink sends: result rows, and how far they count.

Each flush counts by itself. Spark learns that a batch is over only when its results are on disk, so
its checkpoint is never ahead of the view.
"""

from __future__ import annotations

import struct
import threading
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.result_rows import ResultRows, as_arrow, places_in
from millstream.spark.bridge.few_rows import few_arrow, few_reader
from millstream.views.run.columns import LSN as _LSN_COLUMN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.model.result_rows import Results as Rows
    from millstream.spark.bridge.connection import Connection
    from millstream.views.run.feed import ViewFeed

_ROWS, _FLUSH, _FEW, _LAST = 1, 2, 3, 4
"""What a task sends: rows, up to where they count, and, with ``_LAST``, that it waits for more."""

_SIZE = struct.Struct(">I")
_LSN = struct.Struct(">q")
_HEAD_SIZE: Final = 1 + _SIZE.size
_FLUSH_SIZE: Final = 1 + _LSN.size
_ANSWER: Final = b"\x01"

_SMALL: Final = 1 << 14
"""Bytes of results up to which taking them in does not keep other views waiting."""


class ResultConsumer(Protocol):
    """Takes the results of a view."""

    def take(
        self,
        rows: Sequence[Rows],
        lsn: int,
        watermark: int | None,
        *,
        cause: int | None = None,
    ) -> None:
        """Newest rows, and the LSN up to which they count. Returns when they are taken in.

        The cause is the LSN of the newest commit that counts in them; None: the same LSN.
        """

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
        self._taking = threading.Lock()

    def sink(self, wire: Connection) -> None:
        """Receive what one task sends."""
        receive_all(wire, self._flushed, self.feed.live.held_back)

    def _flushed(self, rows: list[Rows], lsn: int) -> None:
        """Take what a task has sent up to an LSN."""
        watermark, cause = self.feed.live.sent_at(lsn)
        with self._taking:
            self._consumer.take(rows, lsn, watermark, cause=cause)

    def commit(self, wire: Connection) -> None:
        """A batch is over, and all of it was flushed: see that it is on disk."""
        wire.receive_text()
        with self._taking:
            self._consumer.make_durable()
        wire.send_text("=")


def receive_all(
    wire: Connection,
    flushed: Callable[[list[Rows], int], None],
    held_back: Callable[[], tuple[int, int]] = lambda: (-1, -1),
) -> None:
    """Receive what one task sends, until its connection ends.

    Args:
        wire: the connection.
        flushed: takes what it has sent up to an LSN.
        held_back: gives the first LSN whose results are shown, and the LSN up to which results that
            are held back were shown before.
    """
    sink = _Sink(wire, flushed, held_back)
    while True:
        if sink.is_small and not (sink.has_rows or wire.arrived):
            wire.lend(sink.ready)
        sink.receive()


class _Sink:
    """What one task sends.

    Attributes:
        is_small: whether the last flush was: then the next one probably is, too.
    """

    def __init__(
        self,
        wire: Connection,
        flushed: Callable[[list[Rows], int], None],
        held_back: Callable[[], tuple[int, int]],
    ) -> None:
        self.is_small = False
        self._wire = wire
        self._flushed = flushed
        self._held_back = held_back
        self._schema = pa.ipc.read_schema(pa.py_buffer(wire.receive_message()))
        self._places = places_in(self._schema)
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
        kind = wire.read(1)[0]
        if kind in (_ROWS, _FEW):
            self._add(kind, wire.receive_message())
        else:
            (lsn,) = _LSN.unpack(wire.read(_LSN.size))
            self._flush(kind, lsn)

    def ready(self) -> bool:
        """Take what has arrived, if it is small; False: leave it to this connection's thread."""
        data = self._wire.read_now()
        if data is None:
            return False
        at, end = 0, len(data)
        while at < end:
            kind = data[at]
            if kind in (_FLUSH, _LAST) and at + _FLUSH_SIZE <= end:
                (lsn,) = _LSN.unpack_from(data, at + 1)
                at += _FLUSH_SIZE
                self._flush(kind, lsn)
                continue
            if kind not in (_ROWS, _FEW) or at + _HEAD_SIZE > end:
                break
            begin = at + _HEAD_SIZE
            until = begin + _SIZE.unpack_from(data, at + 1)[0]
            if until > end or self._bytes + until - at > _SMALL:
                break
            self._add(kind, data[begin:until])
            at = until
        if at < end:
            self._wire.unread(data[at:])
        return at == end

    def _add(self, kind: int, data: bytes) -> None:
        """Rows of the flush at hand."""
        if kind == _FEW:
            rows = self._few(data)
        else:
            rows = pa.ipc.read_record_batch(pa.py_buffer(data), self._schema)
        self._rows.append(rows)
        self._bytes += len(data)

    def _flush(self, kind: int, lsn: int) -> None:
        """All that was sent counts up to an LSN."""
        rows, self._rows = self._rows, []
        if self._held is None or self._show(self._held, rows, lsn):
            self._flushed(rows, lsn)
        self.is_small = self._bytes <= _SMALL
        self._bytes = 0
        if kind != _LAST:
            self._wire.send(_ANSWER)

    def _few(self, data: bytes) -> Rows:
        reader = self._reader
        if reader is None:
            raise AssertionError("a task has sent what it cannot write")
        try:
            return ResultRows(self._schema, reader(data), self._places)
        except (OverflowError, ValueError):  # such as the year 10000, or text that is not UTF-8
            return few_arrow(self._schema, data)

    def _show(self, held: list[Rows], rows: list[Rows], lsn: int) -> bool:
        """Hold rows back while what the view begins with is not complete; then add them to these.

        Returns:
            Whether it is complete.
        """
        begun, replayed = self._held_back()
        held += rows
        if lsn < begun:
            return False
        rows[:] = [_not_before(as_arrow(each), begun, replayed) for each in held]
        self._held = None
        return True


def _not_before(batch: pa.RecordBatch, lsn: int, replayed: int) -> pa.RecordBatch:
    """Rows, none of which is of an LSN before one, but those that were shown before."""
    place = batch.schema.get_field_index(_LSN_COLUMN)
    if place < 0:
        return batch
    lsns = batch.column(place)
    raised = pc.max_element_wise(lsns, pa.scalar(lsn, pa.int64()))
    if replayed >= 0:
        raised = pc.if_else(pc.less_equal(lsns, replayed), lsns, raised)
    return batch.set_column(place, batch.schema.field(place), raised)
