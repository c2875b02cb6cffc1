"""The results of a view in several partitions: put together, and handed on as whole commits."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from millstream.views.partitions.merge import PartitionMerge
from millstream.views.run.results import Results, receive_all

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.model.result_rows import Results as Rows
    from millstream.spark.bridge.connection import Connection
    from millstream.views.run.feed import ViewFeed
    from millstream.views.run.results import ResultConsumer


class MergedResults:
    """Puts the results of all partitions together, and hands them on in LSN order.

    Args:
        consumer: takes the results.

    Attributes:
        feed: what was sent; set by the feed itself.
        run: which start of the queries it is; what an earlier one still sends does not count.
    """

    def __init__(self, consumer: ResultConsumer) -> None:
        self.feed: ViewFeed
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

    def flushed(self, partition: int, run: int, rows: list[Rows], lsn: int) -> None:
        """Take what a partition has sent up to an LSN."""
        with self._taking:
            with self._moved:
                if run != self.run:
                    return
                ready = list(self._merge.reported(partition, lsn, rows))
            live = self.feed.live
            for at, found in ready:
                watermark, cause = live.sent_at(at)
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
        shared: puts them together with those of the others.
        partition: the partition.
    """

    def __init__(self, shared: MergedResults, partition: int) -> None:
        super().__init__(shared.feed, shared.consumer)
        self._shared = shared
        self._partition = partition

    def sink(self, wire: Connection) -> None:
        """Receive what one task sends."""
        receive_all(_OneRun(self._shared, self._partition), wire)

    def commit(self, wire: Connection) -> None:
        """A batch is over: wait for the other partitions, and until all is on the disk."""
        run = self._shared.run
        wire.receive_text()
        self._shared.end_batch(run)
        wire.send_text("=")


class _OneRun:
    """What the sink of one task needs; what it sends after the end of its query is ignored."""

    def __init__(self, shared: MergedResults, partition: int) -> None:
        self._shared = shared
        self._partition = partition
        self._run = shared.run

    @property
    def snapshot_lsn(self) -> int:
        return self._shared.feed.live.snapshot_lsn

    @property
    def replayed_lsn(self) -> int:
        """The LSN up to which results that are held back were shown before."""
        return self._shared.feed.live.replayed_lsn

    def flushed(self, rows: list[Rows], lsn: int) -> None:
        self._shared.flushed(self._partition, self._run, rows, lsn)
