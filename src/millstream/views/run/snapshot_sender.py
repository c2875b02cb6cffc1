"""What a live reader is sent first by a view that does not read its logs from their start.

All frames but the last are of the LSN before: their results are held back until those of the last
one have come, so that nobody sees a part of it. So does a query that goes on after a failure: it is
sent what the changes come to instead of the changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from millstream.spark.bridge.frames import HEADER, MARK, MORE, passed
from millstream.views.run.checkpoint import Offset
from millstream.views.run.columns import LSN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from millstream.model.batch import ChangeBatch
    from millstream.views.run.columns import FeedColumns
    from millstream.views.run.inputs import WatermarkTracker
    from millstream.views.run.reader_wire import ReaderWire

_LARGE: Final = 1 << 10
_MOST: Final = 1 << 8


class SnapshotSource(Protocol):
    """What a view reads first that does not read its inputs from the start of their logs."""

    def lsn(self) -> int:
        """The LSN up to which the inputs count in it."""

    def rows(
        self, lsn: int, check: Callable[[], None], wanted: Callable[[int], Sequence[str]]
    ) -> Iterator[tuple[int, ChangeBatch]]:
        """Its rows at an LSN, each batch with the number of its log; ``check`` may end it.

        Of a log they have the columns whose names ``wanted`` gives, at least.
        """

    def changes(
        self, after: int, until: int, check: Callable[[], None]
    ) -> Iterator[tuple[int, ChangeBatch]]:
        """What the logs' changes from one LSN to another come to, of those that retract."""


@dataclass(slots=True)
class SnapshotSender:
    """Sends to one reader.

    Attributes:
        start: the place before it all.
        tracker: the watermarks there.
        columns: the columns that the reader wants.
        wire: its connection.
        on_late: called with rows that came too late.
    """

    start: Offset
    tracker: WatermarkTracker
    columns: FeedColumns
    wire: ReaderWire
    on_late: Callable[[ChangeBatch], None]

    def send_rows(self, snapshot: SnapshotSource, lsn: int, check: Callable[[], None]) -> int:
        """Send the rows that a view begins with at an LSN; returns how many these are."""
        # At last: what an aggregate over no rows gives may have no value.
        last = self.columns.initial_row(lsn - 1)
        batches = snapshot.rows(lsn, check, self.columns.wanted)
        return self._send_all(batches, lsn, check, last, is_folded=True)

    def send_changes(
        self, snapshot: SnapshotSource, after: int, until: int, check: Callable[[], None]
    ) -> int:
        """Send what the changes from one LSN to another come to; returns how many rows."""
        return self._send_all(snapshot.changes(after, until, check), until, check)

    def _send_all(
        self,
        batches: Iterable[tuple[int, ChangeBatch]],
        lsn: int,
        check: Callable[[], None],
        last: pa.RecordBatch | None = None,
        *,
        is_folded: bool = False,
    ) -> int:
        """Send batches in frames of the LSN before; of folded rows that is their LSN, too."""
        before = Offset(self.start.lsn, tuple(self.tracker.watermarks), self.tracker.late)
        rows, frame = 0, list[pa.RecordBatch]()

        def send() -> None:
            data = frame[0] if len(frame) == 1 else pa.concat_batches(frame)
            self._send(lsn - 1, before, _at(lsn - 1, data) if is_folded else data)
            frame.clear()

        for log, batch in batches:
            check()
            kept, missed, mark = self.tracker.split(log, batch)
            if missed is not None:
                self.on_late(missed)
            if kept is None or not len(kept):
                continue
            # A frame has many small batches, or one that is large.
            if frame and (len(kept) >= _LARGE or len(frame) >= _MOST):
                send()
            rows += len(kept)
            frame.append(self.columns.batch(log, kept, mark))
        if last is not None:
            frame.append(last)
        if frame:
            send()
        return rows

    def mark(self, lsn: int) -> None:
        """Send that these were all up to an LSN; later ones are not worked on together with them.

        What they lead to is held back until the last of them.
        """
        place = Offset(lsn, tuple(self.tracker.watermarks), self.tracker.late)
        offset = place.json.encode()
        head = passed(self.tracker.passed) + HEADER.pack(MARK, lsn, len(offset))
        self.wire.send_mark(lsn, head, offset, self.columns.none().serialize())

    def _send(self, lsn: int, place: Offset, data: pa.RecordBatch) -> None:
        offset = place.json.encode()
        head = HEADER.pack(MARK if self.wire.marks_rows else MORE, lsn, len(offset))
        self.wire.send_rows(lsn, (head, offset), data)


def _at(lsn: int, data: pa.RecordBatch) -> pa.RecordBatch:
    """Rows, all of them at an LSN."""
    place = data.schema.get_field_index(LSN)
    if place < 0:
        return data
    lsns = pa.repeat(pa.scalar(lsn, pa.int64()), data.num_rows)
    return data.set_column(place, data.schema.field(place), lsns)
