"""The results of a view in several partitions: put together, and handed on as whole commits."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from millstream.views.run.results import Results, receive_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from millstream.model.result_rows import Results as Rows
    from millstream.spark.bridge.connection import Connection
    from millstream.views.run.feed import ViewFeed
    from millstream.views.run.results import ResultConsumer

    SentAt: TypeAlias = Callable[[int], tuple[int | None, int]]


@dataclass(slots=True)
class _Frame:
    """What was sent up to an LSN.

    Attributes:
        lsn: that LSN.
        open: the partitions that have not reported it.
        rows: what the others have sent for it.
        is_inner: whether some partition has reported it together with the next one.
    """

    lsn: int
    open: set[int]
    rows: list[Rows] = field(default_factory=list)
    is_inner: bool = False


class PartitionMerge:
    """The frames that were sent and are not out yet. Pure.

    A frame that ends with an LSN goes to the partitions that it has rows for. When all of these
    have reported that LSN, and those before it are out, what they have sent for it is one change of
    the view. A partition may report several frames at once, in which case these belong together,
    and so does what other partitions have sent for them.

    >>> merge = PartitionMerge()
    >>> merge.sent(7, {0, 1})
    >>> list(merge.reported(1, 7, ["b"])), list(merge.reported(0, 7, ["a"]))
    ([], [(7, ['b', 'a'])])
    """

    def __init__(self) -> None:
        self._frames: deque[_Frame] = deque()

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def open_partitions(self) -> set[int]:
        """The partitions that have something to report."""
        return {partition for frame in tuple(self._frames) for partition in frame.open}

    def sent(self, lsn: int, partitions: Iterable[int]) -> None:
        """A frame was sent to some partitions; LSNs never go back."""
        last = self._frames[-1] if self._frames else None
        if last is not None and last.lsn == lsn:
            last.open.update(partitions)
        else:
            self._frames.append(_Frame(lsn, set(partitions)))

    def reported(
        self, partition: int, lsn: int, rows: list[Rows]
    ) -> Iterator[tuple[int, list[Rows]]]:
        """A partition has sent all that frames up to an LSN led to; gives what is out by that.

        Each with its LSN.
        """
        mine = [each for each in self._frames if each.lsn <= lsn and partition in each.open]
        if mine:
            last = mine[-1]
            for each in self._frames:
                if mine[0].lsn <= each.lsn < last.lsn:
                    each.is_inner = True
            for each in mine:
                each.open.discard(partition)
            last.rows += rows
        elif rows:
            raise AssertionError(f"partition {partition} was sent nothing up to LSN {lsn}")
        while (count := self._ready()) > 0:
            done = [self._frames.popleft() for _ in range(count)]
            yield done[-1].lsn, [row for each in done for row in each.rows]

    def _ready(self) -> int:
        """How many frames at the head are out together; 0 when some partition has to report yet."""
        for count, frame in enumerate(self._frames, 1):
            if frame.open:
                return 0
            if not frame.is_inner:
                return count
        return 0

    def clear(self) -> None:
        """Forget all: what was sent will be sent again."""
        self._frames.clear()


class MergedResults:
    """Puts the results of all partitions together, and hands them on in LSN order.

    Args:
        consumer: takes the results.

    Attributes:
        run: which start of the queries it is; what an earlier one still sends does not count.
    """

    def __init__(self, consumer: ResultConsumer) -> None:
        self.run = 0
        self.consumer = consumer
        self._merge = PartitionMerge()
        self._taking = threading.Lock()  # held while results are taken, which may wait
        self._moved = threading.Condition()  # guards all else, and is held for a moment only

    def __len__(self) -> int:
        return len(self._merge)

    @property
    def open_partitions(self) -> set[int]:
        """The partitions that have something to report."""
        with self._moved:
            return self._merge.open_partitions

    def abandon(self) -> None:
        """Forget what is not out: the queries are being stopped, and will read it again."""
        with self._moved:
            self.run += 1
            self._merge.clear()
            self._moved.notify_all()

    def sent(self, lsn: int, partitions: Iterable[int]) -> None:
        """A frame goes to some partitions."""
        with self._moved:
            self._merge.sent(lsn, partitions)

    def flushed(
        self, partition: int, run: int, rows: list[Rows], lsn: int, sent_at: SentAt
    ) -> None:
        """Take what a partition has sent up to an LSN.

        Args:
            partition: the partition.
            run: the start of the queries that it is of.
            rows: what it has sent.
            lsn: the LSN.
            sent_at: gives when everything up to an LSN was sent, see ``LiveFeed``.
        """
        with self._taking:
            with self._moved:
                if run != self.run:
                    return
                ready = list(self._merge.reported(partition, lsn, rows))
            for at, found in ready:
                watermark, cause = sent_at(at)
                self.consumer.take(found, at, watermark, cause=cause)
        if ready:
            with self._moved:
                self._moved.notify_all()

    def end_batch(self, run: int) -> None:
        """Wait until all that the partitions were sent is out, and on the disk."""
        with self._moved:
            self._moved.wait_for(lambda: run != self.run or not len(self._merge))
            if run != self.run:
                raise EOFError  # as of a connection that has ended, which it has
        with self._taking:
            self.consumer.make_durable()


class PartitionResults(Results):
    """Receives the results of one partition.

    Args:
        feed: what was sent.
        shared: puts them together with those of the others.
        partition: the partition.
    """

    def __init__(self, feed: ViewFeed, shared: MergedResults, partition: int) -> None:
        super().__init__(feed, shared.consumer)
        self._shared = shared
        self._partition = partition

    def sink(self, wire: Connection) -> None:
        """Receive what one task sends; after the end of its query it is ignored."""
        shared, live, run = self._shared, self.feed.live, self._shared.run

        def flushed(rows: list[Rows], lsn: int) -> None:
            shared.flushed(self._partition, run, rows, lsn, live.sent_at)

        receive_all(wire, flushed, live.held_back)

    def commit(self, wire: Connection) -> None:
        """A batch is over: wait for the other partitions, and until all is on the disk."""
        run = self._shared.run
        wire.receive_text()
        self._shared.end_batch(run)
        wire.send_text("=")
