"""The clock of views: what NOW() is in them comes as commits of a log, so a replay gives the same.

While some view reads it, the time is committed four times a second, or as often as an EMIT EVERY
asks for. Only the newest tick counts; older ones are kept as long as a view may have to be rebuilt
where it stands.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from millstream.errors import ClosedError, Error, LogFailedError
from millstream.log import Retention
from millstream.model.batch import ChangeBatch
from millstream.model.clock import from_datetime, to_datetime
from millstream.sql.inputs import CLOCK, CLOCK_INPUT
from millstream.threads import thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.log import Hold
    from millstream.views.definitions import Storage

TICK_SECONDS: Final = 0.25
_SHORTEST_SECONDS: Final = 0.01
_KEPT_SECONDS: Final = 600.0
_KEPT_TICKS: Final = 400_000
_MOST_TICKS: Final = 4_000_000
"""How many ticks are kept for a view that has not changed since: those of a day at the usual pace,
or of twice the longest interval of EMIT EVERY, if these are not too many."""

_HELD: Final = 64


class ViewClock:
    """Commits the time, while there are views that read it.

    Args:
        storage: where its log is.
        shown: gives, for each view that reads it, the LSN up to which its rows count; 0 when it
            has shown nothing yet.
        intervals: gives, for each view with EMIT EVERY, the seconds from one tick to the next.
        crashed: called with what ended its thread.
    """

    def __init__(
        self,
        storage: Storage,
        shown: Callable[[], list[int]],
        intervals: Callable[[], list[float]],
        crashed: Callable[[Exception], None],
    ) -> None:
        self._storage = storage
        self._crashed = crashed
        self._shown = shown
        self._intervals = intervals
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._runs = False
        self._hold: Hold | None = None
        self._ticks: list[int] = []
        self._last = -1

    def open(self) -> None:
        """Keep the ticks that views may need; make the log, if there is none."""
        log = self._storage.log
        with self._lock:
            if self._hold is not None:
                return
            if CLOCK not in log.topics:
                log.create_topic(
                    CLOCK, CLOCK_INPUT.schema, retention=Retention(max_age=_KEPT_SECONDS)
                )
            self._hold = log.hold(CLOCK, lsn=log.topic(CLOCK).low_lsn)
            for batch in log.read(CLOCK):
                self._ticks += batch.lsns
                self._last = from_datetime(batch.rows[-1][0])

    def start(self) -> None:
        """Commit the time from now on, while a view reads it."""
        with self._lock:
            if not self._runs and not self._over.is_set():
                self._runs = True
                thread("clock", self._run, self._crashed).start()

    def stop(self) -> None:
        """Tick no more."""
        self._over.set()

    def tick(self) -> None:
        """Commit the time, unless it has not moved on since the last tick."""
        with self._lock:
            now = self._storage.log.clock()
            if now <= self._last:
                return
            schema = CLOCK_INPUT.schema
            row = ChangeBatch(schema, schema.check_rows([(to_datetime(now),)]), None, None)
            self._ticks.append(self._storage.dispatcher.commit([(CLOCK, row)]))
            self._last = now
            if len(self._ticks) % _HELD == 0:
                self._forget()

    def _run(self) -> None:
        while self._is_read():
            try:
                self.tick()
            except (ClosedError, LogFailedError):  # which every reader gets, too
                return
            except Error:  # the disk is full: the time stands still until there is room
                pass
            # At its multiples, since those of EMIT EVERY are.
            seconds = max(min([TICK_SECONDS, *self._intervals()]), _SHORTEST_SECONDS)
            if self._over.wait(seconds - time.time() % seconds):
                return

    def _is_read(self) -> bool:
        """Whether there are views that read it; when there is none, the thread ends."""
        with self._lock:
            self._runs = bool(self._shown())
            return self._runs

    def _forget(self) -> None:
        """Keep no ticks before the last one that each view has shown the result of."""
        shown = [each for each in self._shown() if each]
        first = bisect_right(self._ticks, min(shown)) - 1 if shown else len(self._ticks) - 1
        seconds = [TICK_SECONDS, *self._intervals()]
        waited_for = 2 * max(seconds) / max(min(seconds), _SHORTEST_SECONDS)
        most = min(max(_KEPT_TICKS, int(waited_for)), _MOST_TICKS)
        first = max(first, len(self._ticks) - most, 0)
        del self._ticks[:first]
        if self._hold is not None:
            self._hold.advance(self._ticks[0])
