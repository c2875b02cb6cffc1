"""A view's feed: the logs it reads, merged in LSN order, served to Spark's source.

One reader, or one for each partition of the view, gets every commit as it comes; the feed, not
Spark's clock, says when a batch ends. Whatever Spark's checkpoint may count on is on disk before.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from millstream.errors import Error, PipelineError
from millstream.views.run.checkpoint import Offset
from millstream.views.run.inputs import FeedLogs
from millstream.views.run.reader_wire import ReaderWire

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.spark.bridge.connection import Connection
    from millstream.views.run.live import LiveFeed


class _Meeting:
    """The readers of one live batch, until all are there; and how it went."""

    def __init__(self) -> None:
        self.wires: dict[int, Connection] = {}
        self.over = threading.Event()
        self.ended_well = False
        self.is_off = False


def _only(wires: Sequence[Connection]) -> ReaderWire:
    """The connection of the reader of a view that has no partitions."""
    return ReaderWire(wires[0])


class ViewFeed:
    """Serves the sources of a view's query: one, or one for each partition.

    Args:
        live: sends what the view reads.
        on_committed: called with an LSN up to which all partitions have a checkpoint.
        on_idle: called with an LSN up to which there is nothing more to read.
        slots: how many tasks of Spark it feeds for good: one for each partition.
        joined: makes one connection of those of all readers.

    Attributes:
        live: sends what the view reads.
        slots: how many tasks of Spark it feeds for good.
    """

    def __init__(
        self,
        live: LiveFeed,
        *,
        on_committed: Callable[[int], None],
        on_idle: Callable[[int], None],
        slots: int = 1,
        joined: Callable[[Sequence[Connection]], ReaderWire] = _only,
    ) -> None:
        self.live = live
        self.slots = slots
        self._logs = FeedLogs(live.inputs, live.log)
        self._on_committed = on_committed
        self._on_idle = on_idle
        self._joined = joined
        self._lock = threading.Lock()
        self._committed: dict[int, int] = {}  # by partition
        self._parked: set[int] = set()
        self._meeting = _Meeting()
        self._served = _Meeting()  # the last one that was complete
        self._served.over.set()

    # ---- Spark's driver

    def control(self, wire: Connection, partition: int = 0) -> None:
        """Answer the questions of a partition's driver until its connection ends."""
        while True:
            verb, *words = wire.receive_text().split("\t")
            try:
                answer = "=" + self._answer(partition, verb, words)
            except Error as error:
                answer = f"!{error}"
            wire.send_text(answer)

    def _answer(self, partition: int, verb: str, words: Sequence[str]) -> str:
        if verb == "initial":
            return self._logs.initial_offset.json
        if verb == "committed":
            with self._lock:
                self._committed[partition] = Offset.of(words[0]).lsn
                if len(self._committed) == self.slots:  # it counts when all have it
                    self._on_committed(min(self._committed.values()))
        return ""

    # ---- the readers

    def send_live(self, names: str, start: str, wire: Connection, partition: int = 0) -> None:
        """Send some columns of every commit after an offset as it comes, until the batch ends.

        When the readers of all partitions are there, the thread of the last one serves them.
        """
        while True:
            with self._lock:
                is_over, meeting = self.live.is_ending, self._meeting
                if not is_over:
                    self._check_new(partition)
                    meeting.wires[partition] = wire
                    is_last = len(meeting.wires) == self.slots
                    if is_last:
                        self._served, self._meeting = meeting, _Meeting()
            if is_over:
                self._park(partition)
                wire.read(1)  # nothing comes on it: it ends when the task is stopped
                return
            if is_last:
                try:
                    self._serve(names, start, [meeting.wires[n] for n in range(self.slots)])
                    meeting.ended_well = True
                finally:
                    meeting.over.set()
                return
            meeting.over.wait()
            if meeting.ended_well:
                return
            if not (meeting.is_off and self.live.is_ending):
                raise EOFError

    def _check_new(self, partition: int) -> None:
        """Raise when a task of a partition comes during a batch: Spark has lost the first one.

        It has the state of the batch's start, and the others go on: all have to begin again.
        """
        if self.slots > 1 and not self._served.over.is_set():
            raise PipelineError(f"Spark has lost a task of partition {partition}")

    def _serve(self, names: str, start: str, wires: Sequence[Connection]) -> None:
        begin = Offset.of(start)
        self._on_idle(begin.lsn)  # all before was read, or is not for this view
        tracker = self._logs.tracker_at(begin)
        self.live.serve(names.split("\x1f"), begin, tracker, self._joined(wires))

    def _park(self, partition: int) -> None:
        """Note that the last batch of a partition is over for Spark, too."""
        with self._lock:
            self._parked.add(partition)
            if len(self._parked) == self.slots:
                self.live.park()

    # ---- the query

    def end_batch(self) -> None:
        """End the batch, and begin no other."""
        self.live.end_batch()
        self._call_off()

    def open_again(self) -> None:
        """Get ready for another query that reads."""
        self._call_off()
        self._parked.clear()
        self.live.open_again()

    def _call_off(self) -> None:
        """Some readers may wait for others: do not begin the batch."""
        with self._lock:
            meeting, self._meeting = self._meeting, _Meeting()
            meeting.is_off = True
        meeting.over.set()
