"""The connections of a view's partitions: each frame goes to those partitions that have rows in it.

The partitions go in step: one thread reads the logs, and a batch is over when all partitions have
sent their results. So what the partitions have done is always the same stretch of the log, their
checkpoints are at most one batch apart, and a change of the view is that of whole commits. When one
partition fails, all are started again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.views.partitions.keys import EVERY, split
from millstream.views.run.reader_wire import ReaderWire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.model.batch import ChangeBatch
    from millstream.spark.bridge.connection import Connection
    from millstream.views.partitions.keys import Partitioner
    from millstream.views.partitions.results import MergedResults

_MANY: Final = 32
"""So many frames that are not out yet are enough: what comes is sent together."""


class PartitionWires(ReaderWire):
    """The connections of the readers of all partitions.

    Args:
        wires: the connections.
        partitioner: which partition a row belongs to.
        results: where the partitions' results are put together.
        waits: whether results wait for a moment, so that each partition must see it pass.
    """

    marks_rows = True

    def __init__(
        self,
        wires: Sequence[Connection],
        partitioner: Partitioner,
        results: MergedResults,
        *,
        waits: bool,
    ) -> None:
        super().__init__(wires[0])
        self.marks_progress = waits
        self._wires = wires
        self._partitioner = partitioner
        self._results = results
        self._partition = 0  # that of the last few rows

    def send(self, *data: bytes | pa.Buffer) -> None:
        """Send bytes, as they are, to each reader."""
        for wire in self._wires:
            wire.send(*data)

    def send_mark(self, lsn: int, *data: bytes | pa.Buffer) -> None:
        """Send a frame that ends at an LSN, as it is, to each reader."""
        self._results.sent(lsn, range(len(self._wires)))
        self.send(*data)

    def send_rows(self, lsn: int, head: tuple[bytes, bytes], rows: pa.RecordBatch) -> None:
        """Send each partition its rows of a frame that ends at an LSN."""
        frames = self._split(rows)
        if self.marks_progress:
            frames = dict.fromkeys(range(len(self._wires)), rows.slice(0, 0)) | frames
        if not frames:
            # What was sent before must not be reported together with what comes later.
            frames = dict.fromkeys({0, *self._results.open_partitions}, rows)
        self._results.sent(lsn, frames)
        for partition, own in frames.items():
            self._wires[partition].send(*head, own.serialize())

    def send_nothing(self, lsn: int, *data: bytes | pa.Buffer) -> None:
        """Send a frame without rows that ends at an LSN, to one reader."""
        self._results.sent(lsn, (0,))
        self._wires[0].send(*data)

    def _split(self, rows: pa.RecordBatch) -> dict[int, pa.RecordBatch]:
        """The rows of each partition that has some; the initial row is for all."""
        found = split(rows, self._partitioner.of_feed(rows)) if rows.num_rows else {}
        every = found.pop(EVERY, None)
        if every is not None:
            for partition in range(len(self._wires)):
                own = found.get(partition)
                found[partition] = every if own is None else pa.concat_batches([own, every])
        return found

    # ---- a few rows at once, by the dispatcher's thread

    def take(self, log: int, batch: ChangeBatch) -> bool:
        """Get ready for a frame of a few rows, if all of them are of one partition."""
        is_plain = len(batch) and not (batch.is_arrow or self.marks_progress)
        if not is_plain or len(self._results) >= _MANY:
            return False
        try:
            found = set(self._partitioner.of_rows(log, batch))
        except (AttributeError, TypeError):  # a value that is Unreadable
            return False
        if len(found) > 1:
            return False
        self._partition = found.pop()
        self._results.sent(batch.lsn, (self._partition,))
        return True

    def send_now(self, frame: bytes) -> bytes:
        """Send as much of that frame as fits without waiting. Return the rest."""
        return self._wires[self._partition].send_now(frame)

    def send_rest(self, rest: bytes) -> None:
        """Send the rest of that frame."""
        self._wires[self._partition].send(rest)
