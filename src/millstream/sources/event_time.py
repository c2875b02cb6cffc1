"""Event time of one source: the watermark that its rows and its producers' promises make.

The watermark is a function of the log: what stands after a batch depends on the batches up to it
and on nothing else. Producers see their own promises at once.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from millstream.model.clock import from_datetime
from millstream.model.watermark import MonotonicWatermark

if TYPE_CHECKING:
    from millstream.model.batch import ChangeBatch


class EventTime:
    """Follows one source.

    Args:
        column: the place of the event-time column, or None when the source declares none.
        delay: how far behind the newest row the watermark stays, in microseconds.
        value: the watermark at the end of the log, when it is opened.
    """

    __slots__ = ("_column", "_delay", "_lock", "_logged", "_promised")

    def __init__(self, column: int | None = None, delay: int = 0, value: int | None = None) -> None:
        self._column = column
        self._delay = delay
        self._lock = threading.Lock()
        self._logged = MonotonicWatermark(value)
        self._promised = MonotonicWatermark(value)

    @property
    def has_column(self) -> bool:
        """Whether rows carry event time, and each batch has to be looked at."""
        return self._column is not None

    @property
    def value(self) -> int | None:
        """The watermark, promises under way included, in microseconds since 1970 UTC."""
        logged, promised = self._logged.value, self._promised.value
        if logged is None or promised is None:
            return promised if logged is None else logged
        return max(logged, promised)

    @property
    def logged(self) -> int | None:
        """The watermark at the end of the log."""
        return self._logged.value

    def promise(self, micros: int) -> bool:
        """A producer's own watermark; False when it says nothing new."""
        with self._lock:
            current = self.value
            return (current is None or micros > current) and self._promised.advance(micros)

    def observe(self, batch: ChangeBatch) -> None:
        """Let a batch that is about to be committed carry the watermark that holds after it."""
        newest = self._newest(batch)
        moved = newest is not None and self._logged.advance(newest - self._delay)
        if batch.watermark is not None:
            moved = self._logged.advance(batch.watermark) or moved
        # One that did not move is not written again; a lone one is the batch's only content.
        if moved or not len(batch):
            batch.watermark = self._logged.value
        else:
            batch.watermark = None

    def _newest(self, batch: ChangeBatch) -> int | None:
        column = self._column
        if column is None or not len(batch):
            return None
        if batch.is_arrow:
            newest = pc.max(batch.arrow.column(column))
            return newest.value if newest.is_valid else None
        times = [row[column] for row in batch.held_rows if row[column] is not None]
        return from_datetime(max(times)) if times else None
