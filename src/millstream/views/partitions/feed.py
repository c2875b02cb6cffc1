"""A view in several partitions: n queries over disjoint keys, fed together, merged into one result.

The partitions go in step: one thread reads the logs and sends each frame to the partitions that it
has rows for, and a batch is over when all have sent their results. So what the partitions have done
is always the same stretch of the log, their checkpoints are at most one batch apart, and a change
of the view is that of whole commits. When one partition fails, all are started again.
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
from millstream.views.run.snapshot_sender import SnapshotSender

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.delivery.tail import LogTail
    from millstream.model.batch import ChangeBatch
    from millstream.spark.bridge.connection import Connection, ReaderWire
    from millstream.views.partitions.keys import Partitioner
    from millstream.views.partitions.results import MergedResults
    from millstream.views.run.columns import FeedColumns
    from millstream.views.run.inputs import WatermarkTracker

_MANY: Final = 32
"""So many frames that are not out yet are enough: what comes is sent together."""


# ---- what goes out


class PartitionWires:
    """The connections of all partitions' live readers; each frame goes to those that it is for."""

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


class PartitionedLiveFeed(LiveFeed):
    """Serves the readers of a view in partitions; see ``LiveFeed``.

    Attributes:
        partitioner: which partition a row belongs to.
        results: where the partitions' results are put together.
    """

    partitioner: Partitioner
    results: MergedResults

    def set_partitions(self, partitioner: Partitioner, results: MergedResults) -> None:
        """Say which partitions there are; once, before anything else."""
        self.partitioner = partitioner
        self.results = results
        self._lock = threading.Lock()
        self._meeting = _Meeting()
        self._served = _Meeting()  # the last one that was complete
        self._served.over.set()
        self._parked_partitions: set[int] = set()

    def park(self, partition: int = 0) -> None:
        """Note that the last batch of a partition is over for Spark, too."""
        with self._lock:
            self._parked_partitions.add(partition)
            if len(self._parked_partitions) == self.partitioner.count:
                super().park()

    def serve_partition(
        self, partition: int, wire: Connection, serve: Callable[[PartitionWires], None]
    ) -> None:
        """Serve the reader of a partition: when all are there, one thread serves them together."""
        while True:
            with self._lock:
                is_parked, meeting = self.is_ending, self._meeting
                if not is_parked:
                    self._check_new(partition)
                    meeting.wires[partition] = wire
                    is_last = len(meeting.wires) == self.partitioner.count
                    if is_last:
                        self._served, self._meeting = meeting, _Meeting()
            if is_parked:
                self.park(partition)
                wire.read(1)  # nothing comes on it: it ends when the task is stopped
                return
            if is_last:
                try:
                    serve(PartitionWires([meeting.wires[each] for each in sorted(meeting.wires)]))
                    meeting.ended_well = True
                finally:
                    meeting.over.set()
                return
            meeting.over.wait()
            if meeting.ended_well:
                return
            if not (meeting.is_off and self.is_ending):
                raise EOFError

    def _check_new(self, partition: int) -> None:
        """Raise when a task of a partition comes during a batch: Spark has lost the first one.

        It has the state of the batch's start, and the others go on: all have to begin again.
        """
        if not self._served.over.is_set():
            raise PipelineError(f"Spark has lost a task of partition {partition}")

    def end_batch(self) -> None:
        """End the batch, and begin no other."""
        super().end_batch()
        self._call_off()

    def open_again(self) -> None:
        """Get ready for other queries that read."""
        self.results.abandon()
        self._call_off()
        self._parked_partitions.clear()
        super().open_again()

    def _call_off(self) -> None:
        """Some partitions may wait for others: do not begin the batch."""
        with self._lock:
            meeting, self._meeting = self._meeting, _Meeting()
            meeting.is_off = True
        meeting.over.set()

    def _snapshot_sender(
        self, wire: ReaderWire, start: Offset, tracker: WatermarkTracker, columns: FeedColumns
    ) -> SnapshotSender:
        sender = PartitionedSnapshotSender(start, tracker, columns, wire, self.on_late)
        sender.feed = self
        return sender

    def _batch(
        self,
        tail: LogTail,
        tracker: WatermarkTracker,
        columns: FeedColumns,
        wire: ReaderWire,
    ) -> LiveBatch:
        return PartitionedBatch(self, tail, tracker=tracker, columns=columns, wire=wire)

    def frames(self, data: pa.RecordBatch) -> dict[int, pa.RecordBatch]:
        """The rows of each partition that has some; the initial row is for all."""
        found = split(data, self.partitioner.of_feed(data)) if data.num_rows else {}
        every = found.pop(EVERY, None)
        if every is not None:
            for partition in range(self.partitioner.count):
                rows = found.get(partition)
                found[partition] = every if rows is None else pa.concat_batches([rows, every])
        return found


class _Meeting:
    """The readers of one live batch, until all are there; and how it went."""

    def __init__(self) -> None:
        self.wires: dict[int, Connection] = {}
        self.over = threading.Event()
        self.ended_well = False
        self.is_off = False


class PartitionedSnapshotSender(SnapshotSender):
    """Sends the snapshot rows of a view to its partitions, to each its own."""

    feed: PartitionedLiveFeed
    wire: PartitionWires

    def end(self, lsn: int) -> None:
        """Send that these were all; each partition shows what it has by then."""
        self.feed.results.sent(lsn, range(self.feed.partitioner.count))
        super().end(lsn)

    def _send(self, lsn: int, place: Offset, data: pa.RecordBatch) -> None:
        offset = place.json.encode()
        for partition, rows in self.feed.frames(data).items():
            head = HEADER.pack(MARK, lsn, len(offset))
            self.wire.each[partition].send(head, offset, rows.serialize())


class PartitionedBatch(LiveBatch):
    """One live batch of all partitions."""

    _feed: PartitionedLiveFeed
    _wire: PartitionWires
    _rest: tuple[int, bytes] | None = None

    def _send(self, lsn: int, data: pa.RecordBatch, kind: int = MARK) -> None:
        """Send a frame; each partition sends back what it leads to by itself."""
        del kind
        head, frames = self._header(lsn, MARK), self._feed.frames(data)
        if self._waits:
            none = data.slice(0, 0)
            frames = dict.fromkeys(range(self._feed.partitioner.count), none) | frames
        if not frames:
            # What was sent before must not be reported together with what comes later.
            frames = dict.fromkeys({0, *self._feed.results.open_partitions}, data)
        self._feed.results.sent(lsn, frames)
        for partition, rows in frames.items():
            self._wire.each[partition].send(*head, rows.serialize())

    @property
    def _waits(self) -> bool:
        """Whether each partition must know what has passed, though it has no rows."""
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
        """Send a few rows at once, if they are all of one partition."""
        feed, log, partition = self._feed, self._topics[batch.topic], -1
        if 0 < len(batch) <= FEW_ROWS and not (batch.is_arrow or feed.cuts or self._waits):
            partition = self._only_partition(log, batch)
        if partition < 0:
            self._spare = batch
            self._woken.set()
            return
        self._taken_lsn = batch.lsn
        is_first = not self._rows
        self._rows += len(batch)
        kept, missed, before = self._tracker.split(log, batch)
        feed.sent(batch.lsn, self._tracker)
        frame = self._few(log, batch, kept, before)
        feed.results.sent(batch.lsn, (partition,))
        if missed is not None:
            self._missed.append(missed)
        left = frame if missed is not None else self._wire.each[partition].send_now(frame)
        self._rest = (partition, left) if left else None
        busy = bool(is_first or left or self._missed) or self._rows >= LIVE_ROWS
        if busy or not self._tail.hand_to(self._handed):
            self._woken.set()

    def _only_partition(self, log: int, batch: ChangeBatch) -> int:
        """The partition of all rows of a batch; -1: there is no such, or much is under way."""
        if len(self._feed.results) >= _MANY:
            return -1
        try:
            found = set(self._feed.partitioner.of_rows(log, batch))
        except (AttributeError, TypeError):  # a value that is Unreadable
            return -1
        return found.pop() if len(found) == 1 else -1


# ---- the feed


class PartitionedFeed(ViewFeed):
    """Serves the sources of all partitions.

    Args:
        live: sends what the view reads.
        on_committed: called with an LSN up to which all partitions have a checkpoint.
        on_idle: called with an LSN up to which there is nothing to read.
    """

    live: PartitionedLiveFeed

    def __init__(
        self,
        live: PartitionedLiveFeed,
        *,
        on_committed: Callable[[int], None],
        on_idle: Callable[[int], None],
    ) -> None:
        super().__init__(live, on_committed=on_committed, on_idle=on_idle)
        self.slots = live.partitioner.count
        self._committed: dict[int, int] = {}
        self._noting = threading.Lock()
        live.results.feed = self

    def answer(self, partition: int, verb: str, words: tuple[str, ...]) -> str:
        """What the driver of a partition is answered; a checkpoint counts when all have it."""
        if verb != "committed":
            return self._answer(verb, words)
        with self._noting:
            self._committed[partition] = Offset.of(words[0]).lsn
            if len(self._committed) == self.slots:
                self._on_committed(min(self._committed.values()))
        return ""


class PartitionFeed:
    """Serves the source of one partition.

    Args:
        feed: that of all partitions.
        partition: the partition.
    """

    def __init__(self, feed: PartitionedFeed, partition: int) -> None:
        self._feed = feed
        self._partition = partition

    def control(self, wire: Connection) -> None:
        """Answer the driver's questions until its connection ends."""
        feed, partition = self._feed, self._partition
        feed.control(wire, lambda verb, words: feed.answer(partition, verb, words))

    def send_live(self, names: str, start: str, wire: Connection) -> None:
        """Send the partition's rows of every commit after an offset, until the batch ends."""
        self._feed.live.serve_partition(
            self._partition, wire, lambda wires: self._feed.send_live(names, start, wires)
        )
