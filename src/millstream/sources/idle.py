"""Idle sources: when no row comes for a while, event time goes on by the clock.

Else the last windows of a source that fell silent would never close. The watermark that says so is
pushed like any other, so it is in the log, and a replay finds it at the same place.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from millstream.errors import ClosedError, Error
from millstream.sources.inlet import Parcel
from millstream.threads import thread

if TYPE_CHECKING:
    from millstream.sources.event_time import EventTime
    from millstream.sources.inlet import Inlet


class IdleWatch:
    """Watches one source, in a thread of its own.

    Args:
        inlet: where its rows go in.
        event_time: its watermark.
        seconds: for how long it may be silent.
    """

    def __init__(self, inlet: Inlet, event_time: EventTime, seconds: float) -> None:
        self._inlet = inlet
        self._event_time = event_time
        self._seconds = seconds
        self._over = threading.Event()
        thread(f"idle-{inlet.name}", self._run, self._crashed).start()

    def stop(self) -> None:
        """Watch no more."""
        self._over.set()

    def _run(self) -> None:
        inlet, event_time = self._inlet, self._event_time
        seen, since, mark = inlet.pushed, time.monotonic(), event_time.value
        while not self._over.wait(self._seconds / 2):
            now = time.monotonic()
            if inlet.pushed != seen or mark is None:
                seen, since, mark = inlet.pushed, now, event_time.value
            elif now - since >= self._seconds:
                try:
                    self._go_on(mark + int((now - since) * 1e6))
                except Error:  # it was dropped, or the database closed
                    return

    def _crashed(self, error: Exception) -> None:
        """Without it windows would never close: whoever pushes is told."""
        self._inlet.close(
            ClosedError(
                f"the source {self._inlet.name} is closed, since the watch over its idle time "
                f"ended: {type(error).__name__}: {error}",
                hint="open the database again; this is a bug in Millstream, please report it",
            )
        )

    def _go_on(self, micros: int) -> None:
        if self._event_time.promise(micros):
            self._inlet.put(Parcel([], micros))
