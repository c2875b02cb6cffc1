"""Which rows are late: decided by their place in the log, once, before Spark sees them.

A row is late when every window that it belongs to has closed before its batch: the watermark that
held before the batch, less the allowed lateness, has reached the end of its last window. Rows of
one batch are never late against each other. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.clock import from_datetime
from millstream.model.watermark import combine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.model.batch import ChangeBatch
    from millstream.sql.views.plan import Window


class Clock:
    """The watermarks of a feed's logs at one place, as it moves on.

    Args:
        window: the view's window; None when no row can be late.
        columns: the place of the event-time column in each log, or None.
        lateness: for how long after its end a window still takes rows, in microseconds.
        watermarks: of each log, at the beginning.
        late: how many rows came too late before.

    Attributes:
        watermarks: of each log, where it is.
        late: how many rows came too late up to there.
    """

    def __init__(
        self,
        window: Window | None,
        columns: Sequence[int | None],
        lateness: int,
        watermarks: Sequence[int | None],
        late: int = 0,
    ) -> None:
        self._window = window
        self._columns = columns
        self._lateness = lateness
        self.watermarks = list(watermarks)
        self.late = late

    @property
    def watermark(self) -> int | None:
        """The watermark of all logs together."""
        timed = zip(self.watermarks, self._columns, strict=True)
        return combine(mark for mark, column in timed if column is not None)

    def advance(self, log: int, batch: ChangeBatch) -> None:
        """Take in the watermark that a batch brings."""
        if batch.watermark is not None:
            known = self.watermarks[log]
            self.watermarks[log] = batch.watermark if known is None else max(known, batch.watermark)

    def sift(
        self, log: int, batch: ChangeBatch
    ) -> tuple[ChangeBatch | None, ChangeBatch | None, int | None]:
        """What of a batch is in time, what is late, and the watermark that held before it."""
        before = self.watermark
        self.advance(log, batch)
        column = self._columns[log]
        if self._window is None or column is None or before is None or not len(batch):
            return batch, None, before
        border = before - self._lateness
        if len(batch) == 1:
            moment = _only(batch, column)
            late = moment is not None and self._end(moment) <= border
            self.late += late
            return (None, batch, before) if late else (batch, None, before)
        mask = self._late(batch.arrow.column(column), border)
        count = mask.true_count
        self.late += count
        if not count:
            return batch, None, before
        if count == len(batch):
            return None, batch, before
        return batch.keep_mask(pc.invert(mask)), batch.keep_mask(mask), before

    def _end(self, moment: int) -> int:
        """The end of the last window that a moment is in."""
        window = self._window
        if window is None:
            raise AssertionError("asked only with a window")
        if window.kind == "session":
            return moment + window.size
        step = window.size if window.kind == "cumulate" else window.slide
        return moment - (moment - window.offset) % step + window.size

    def _late(self, times: pa.Array, border: int) -> pa.BooleanArray:
        """The same for many: a moment is late when its last window ends at the border or before.

        The end grows with the moment, so the question is only from which moment on it is later.
        """
        first = self._first_in_time(border)
        late = pc.less(times.cast(pa.int64()), first)
        return pc.fill_null(late, fill_value=False)

    def _first_in_time(self, border: int) -> int:
        """The first moment whose last window ends after the border."""
        window = self._window
        if window is None:
            raise AssertionError("asked only with a window")
        if window.kind == "session":
            return border - window.size + 1
        step = window.size if window.kind == "cumulate" else window.slide
        # The last window starts at a multiple of the step; the first start beyond border - size.
        after = border - window.size - window.offset
        return (after // step + 1) * step + window.offset


def _only(batch: ChangeBatch, column: int) -> int | None:
    """The moment of the only row of a batch, in microseconds."""
    if batch.is_arrow:
        moment: int | None = batch.arrow.column(column)[0].value
        return moment
    held = batch.held_rows[0][column]
    return None if held is None else from_datetime(held)
