"""Event time of one log: the watermark that its rows and its producers' promises make.

The watermark is a function of the log: what stands after a batch depends on the batches up to it
and on nothing else. Producers see their own promises at once.

When no row comes for a while, an ``IdleWatch`` lets event time go on by the clock; else the last
windows of a source that fell silent would never close. The watermark that says so is pushed like
any other, so it is in the log, and a replay finds it at the same place.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from millstream.errors import ClosedError, Error
from millstream.model.clock import MICROSECOND, MonotonicWatermark, from_datetime
from millstream.threads import thread

if TYPE_CHECKING:
    from millstream.catalog import Definition
    from millstream.model.batch import ChangeBatch
    from millstream.sources.inlet import Inlet


class EventTime:
    """Follows one source, or one view.

    Args:
        column: the place of the event-time column, or None when none is declared.
        delay: how far behind the newest row the watermark stays, in microseconds.
        value: the watermark at the end of the log, when it is opened.

    Attributes:
        has_column: whether rows carry event time, so that ``observe`` needs to see each batch.
    """

    __slots__ = ("_column", "_delay", "_lock", "_logged", "_promised", "has_column")

    def __init__(self, column: int | None = None, delay: int = 0, value: int | None = None) -> None:
        self.has_column = column is not None
        self._column = column
        self._delay = delay
        self._lock = threading.Lock()
        self._logged = MonotonicWatermark(value)
        self._promised = MonotonicWatermark(value)

    @classmethod
    def of(cls, definition: Definition, value: int | None) -> EventTime:
        """The event time that a definition declares, from a watermark on."""
        mark = definition.watermark
        if mark is None:
            return cls(value=value)
        column = definition.schema.names.index(mark.column)
        return cls(column, mark.delay // MICROSECOND, value)

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
        newest = None if self._column is None else self._newest(batch, self._column)
        moved = newest is not None and self._logged.advance(newest - self._delay)
        if batch.watermark is not None:
            moved = self._logged.advance(batch.watermark) or moved
        # One that did not move is not written again; a lone one is the batch's only content.
        if moved or not len(batch):
            batch.watermark = self._logged.value
        else:
            batch.watermark = None

    def _newest(self, batch: ChangeBatch, column: int) -> int | None:
        if batch.is_arrow:
            newest = pc.max(batch.arrow.column(column))
            return newest.value if newest.is_valid else None
        rows = batch.held_rows
        if len(rows) == 1:
            only = rows[0][column]
            return None if only is None else from_datetime(only)
        times = [row[column] for row in rows if row[column] is not None]
        return from_datetime(max(times)) if times else None


class IdleWatch:
    """Watches one source, in a thread of its own.

    Args:
        inlet: where its rows go in.
        seconds: for how long it may be silent.
    """

    def __init__(self, inlet: Inlet, seconds: float) -> None:
        self._inlet = inlet
        self._seconds = seconds
        self._over = threading.Event()
        thread(f"idle-{inlet.name}", self._run, self._crashed).start()

    def stop(self) -> None:
        """Watch no more."""
        self._over.set()

    def _run(self) -> None:
        inlet, event_time = self._inlet, self._inlet.event_time
        seen, since, mark = inlet.pushed, time.monotonic(), event_time.value
        while not self._over.wait(self._seconds / 2):
            now = time.monotonic()
            if inlet.pushed != seen or mark is None:
                seen, since, mark = inlet.pushed, now, event_time.value
            elif now - since >= self._seconds:
                try:
                    self._advance(mark + int((now - since) * 1e6))
                except Error:  # it was dropped, or the database closed
                    return

    def _advance(self, micros: int) -> None:
        self._inlet.watermark(micros)

    def _crashed(self, error: Exception) -> None:
        """Close the source: without the watch, its windows would never close."""
        self._inlet.close(
            ClosedError(
                f"the source {self._inlet.name} is closed, since the watch over its idle time "
                f"ended: {type(error).__name__}: {error}",
                hint="open the database again; this is a bug in Millstream, please report it",
            )
        )
