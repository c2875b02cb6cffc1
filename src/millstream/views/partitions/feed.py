"""A view in several parts: n queries over disjoint keys, fed together, merged into one result.

The parts go in step: one thread reads the logs and sends each frame to the parts that it has rows
for, and a batch is over when all have sent their results. So what the parts have done is always the
same stretch of the log, their checkpoints are at most one batch apart, and a change of the view is
that of whole commits. When one part fails, all are started again.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.errors import PipelineError
from millstream.spark.bridge.frames import HEADER, MARK
from millstream.views.partitions.keys import EVERY, split
from millstream.views.run.checkpoint import Offset
from millstream.views.run.columns import NO_ROWS
from millstream.views.run.feed import ViewFeed
from millstream.views.run.live import FEW_ROWS, LIVE_ROWS, LiveBatch, LiveFeed
from millstream.views.run.snapshot_sender import BeginningSender

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.delivery.tail import LogTail
    from millstream.model.batch import ChangeBatch
    from millstream.spark.bridge.connection import Connection, ReaderWire
    from millstream.views.partitions.keys import KeyParts
    from millstream.views.partitions.results import PartResults
    from millstream.views.run.columns import FeedColumns
    from millstream.views.run.inputs import WatermarkTracker

_MANY: Final = 32
"""So many frames that are not out yet are enough: what comes is sent together."""


# ---- what goes out


class PartWires:
    """The connections of all parts' live readers; each frame goes to those that it is for."""

    def __init__(self, wires: list[Connection]) -> None:
        self.each = wires

    def send(self, *data: bytes | pa.Buffer) -> None:
        """Send to all of them."""
        for wire in self.each:
            wire.send(*data)

    def send_now(self, data: bytes) -> bytes:
        """Send nothing; returns all of it."""
        return data

    def read(self, size: int) -> bytes:
        """Wait until the first of them is closed."""
        return self.each[0].read(size)


class PartedLiveFeed(LiveFeed):
    """Serves the readers of a view in parts; see ``LiveFeed``.

    Attributes:
        key_parts: which part a row belongs to.
        results: where the parts' results are put together.
    """

    key_parts: KeyParts
    results: PartResults

    def set_parts(self, key_parts: KeyParts, results: PartResults) -> None:
        """Say which parts there are; once, before anything else."""
        self.key_parts = key_parts
        self.results = results
        self._lock = threading.Lock()
        self._meeting = _Meeting()
        self._served = _Meeting()  # the last one that was complete
        self._served.over.set()
        self._parked_parts: set[int] = set()

    def park(self, part: int = 0) -> None:
        """Note that the last batch of a part is over for Spark, too."""
        with self._lock:
            self._parked_parts.add(part)
            if len(self._parked_parts) == self.key_parts.count:
                super().park()

    def serve_part(self, part: int, wire: Connection, serve: Callable[[PartWires], None]) -> None:
        """Serve the reader of a part: when all are there, one thread serves them together."""
        while True:
            with self._lock:
                is_parked, meeting = self.is_ending, self._meeting
                if not is_parked:
                    self._check_new(part)
                    meeting.wires[part] = wire
                    is_last = len(meeting.wires) == self.key_parts.count
                    if is_last:
                        self._served, self._meeting = meeting, _Meeting()
            if is_parked:
                self.park(part)
                wire.read(1)  # nothing comes on it: it ends when the task is stopped
                return
            if is_last:
                try:
                    serve(PartWires([meeting.wires[each] for each in sorted(meeting.wires)]))
                    meeting.ended_well = True
                finally:
                    meeting.over.set()
                return
            meeting.over.wait()
            if meeting.ended_well:
                return
            if not (meeting.is_off and self.is_ending):
                raise EOFError

    def _check_new(self, part: int) -> None:
        """Raise when a task of a part comes in the middle of a batch: Spark has lost the first one.

        It has the state of the batch's beginning, and the others go on: all have to begin again.
        """
        if not self._served.over.is_set():
            raise PipelineError(f"Spark has lost a task of partition {part}")

    def end_batch(self) -> None:
        """End the batch, and begin no other."""
        super().end_batch()
        self._call_off()

    def open_again(self) -> None:
        """Get ready for other queries that read."""
        self.results.abandon()
        self._call_off()
        self._parked_parts.clear()
        super().open_again()

    def _call_off(self) -> None:
        """Some parts may wait for others: do not begin the batch."""
        with self._lock:
            meeting, self._meeting = self._meeting, _Meeting()
            meeting.is_off = True
        meeting.over.set()

    def _beginning_to(
        self, wire: ReaderWire, start: Offset, tracker: WatermarkTracker, columns: FeedColumns
    ) -> BeginningSender:
        sender = PartBeginning(start, tracker, columns, wire, self.on_late)
        sender.feed = self
        return sender

    def _batch(
        self,
        tail: LogTail,
        tracker: WatermarkTracker,
        columns: FeedColumns,
        wire: ReaderWire,
    ) -> LiveBatch:
        return PartBatch(self, tail, tracker=tracker, columns=columns, wire=wire)

    def frames(self, data: pa.RecordBatch) -> dict[int, pa.RecordBatch]:
        """The rows of each part that has some; the row with which a line begins is for all."""
        found = split(data, self.key_parts.of_feed(data)) if data.num_rows else {}
        every = found.pop(EVERY, None)
        if every is not None:
            for part in range(self.key_parts.count):
                rows = found.get(part)
                found[part] = every if rows is None else pa.concat_batches([rows, every])
        return found


class _Meeting:
    """The readers of one live batch, until all are there; and how it went."""

    def __init__(self) -> None:
        self.wires: dict[int, Connection] = {}
        self.over = threading.Event()
        self.ended_well = False
        self.is_off = False


class PartBeginning(BeginningSender):
    """Sends what a view begins with to its parts, to each its rows."""

    feed: PartedLiveFeed
    wire: PartWires

    def end(self, lsn: int) -> None:
        """Send that these were all; each part shows what it has by then."""
        self.feed.results.sent(lsn, range(self.feed.key_parts.count))
        super().end(lsn)

    def _send(self, lsn: int, place: Offset, data: pa.RecordBatch) -> None:
        offset = place.json.encode()
        for part, rows in self.feed.frames(data).items():
            head = HEADER.pack(MARK, lsn, len(offset))
            self.wire.each[part].send(head, offset, rows.serialize())


class PartBatch(LiveBatch):
    """One live batch of all parts."""

    _feed: PartedLiveFeed
    _wire: PartWires
    _rest: tuple[int, bytes] | None = None

    def _send(self, lsn: int, data: pa.RecordBatch, kind: int = MARK) -> None:
        """Send a frame; each part sends back what it leads to by itself."""
        del kind
        head, frames = self._header(lsn, MARK), self._feed.frames(data)
        if self._waits:
            none = data.slice(0, 0)
            frames = dict.fromkeys(range(self._feed.key_parts.count), none) | frames
        if not frames:
            # What was sent before must not be reported together with what comes later.
            frames = dict.fromkeys({0, *self._feed.results.open_parts}, data)
        self._feed.results.sent(lsn, frames)
        for part, rows in frames.items():
            self._wire.each[part].send(*head, rows.serialize())

    @property
    def _waits(self) -> bool:
        """Whether each part must know what has passed, though it has no rows."""
        return self._feed.inputs.waits is not None

    def _send_nothing(self, lsn: int) -> None:
        if self._waits:
            self._send(lsn, self._columns.none())
            return
        self._feed.results.sent(lsn, (0,))
        self._wire.each[0].send(*self._header(lsn, NO_ROWS[0]), NO_ROWS[1])

    def _settle(self) -> None:
        super()._settle()
        rest, self._rest = self._rest, None
        if rest is not None:
            self._wire.each[rest[0]].send(rest[1])

    def _send_now(self, batch: ChangeBatch) -> None:
        """Send a few rows at once, if they are all of one part."""
        feed, part = self._feed, -1
        if 0 < len(batch) <= FEW_ROWS and not (batch.is_arrow or feed.cuts or self._waits):
            part = self._only_part(self._topics[batch.topic], batch)
        if part < 0:
            self._spare = batch
            self._woken.set()
            return
        self._taken_lsn = batch.lsn
        is_first = not self._rows
        self._rows += len(batch)
        frame = self._few(batch)[0].frame
        feed.sent(batch.lsn, self._tracker)
        feed.results.sent(batch.lsn, (part,))
        left = frame if self._missed else self._wire.each[part].send_now(frame)
        self._rest = (part, left) if left else None
        busy = bool(is_first or left or self._missed) or self._rows >= LIVE_ROWS
        if busy or not self._tail.hand_to(self._handed):
            self._woken.set()

    def _only_part(self, log: int, batch: ChangeBatch) -> int:
        """The part that all rows of a batch are of; -1: there is none, or much is under way."""
        if len(self._feed.results) >= _MANY:
            return -1
        try:
            found = set(self._feed.key_parts.of_rows(log, batch))
        except (AttributeError, TypeError):  # a value that is Unreadable
            return -1
        return found.pop() if len(found) == 1 else -1


# ---- the feed


class PartedFeed(ViewFeed):
    """Serves the sources of all parts.

    Args:
        live: sends what the view reads.
        on_committed: called with an LSN up to which all parts have a checkpoint.
        on_idle: called with an LSN up to which there is nothing to read.
    """

    live: PartedLiveFeed

    def __init__(
        self,
        live: PartedLiveFeed,
        *,
        on_committed: Callable[[int], None],
        on_idle: Callable[[int], None],
    ) -> None:
        super().__init__(live, on_committed=on_committed, on_idle=on_idle)
        self.slots = live.key_parts.count
        self._committed: dict[int, int] = {}
        self._noting = threading.Lock()
        live.results.feed = self

    def answer(self, part: int, verb: str, words: tuple[str, ...]) -> str:
        """What the driver of a part is answered; a checkpoint counts when all parts have it."""
        if verb != "committed":
            return self._answer(verb, words)
        with self._noting:
            self._committed[part] = Offset.of(words[0]).lsn
            if len(self._committed) == self.slots:
                self._on_committed(min(self._committed.values()))
        return ""


class OnePartFeed:
    """Serves the source of one part.

    Args:
        feed: that of all parts.
        part: the part.
    """

    def __init__(self, feed: PartedFeed, part: int) -> None:
        self._feed = feed
        self._part = part

    def control(self, wire: Connection) -> None:
        """Answer the driver's questions until its connection ends."""
        self._feed.control(wire, lambda verb, words: self._feed.answer(self._part, verb, words))

    def send_live(self, names: str, start: str, wire: Connection) -> None:
        """Send the part's rows of every commit after an offset, until the batch ends."""
        self._feed.live.serve_part(
            self._part, wire, lambda wires: self._feed.send_live(names, start, wires)
        )
