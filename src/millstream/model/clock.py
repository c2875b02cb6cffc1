"""Time in whole microseconds since 1970 in UTC: the clocks of commits, the watermarks of events.

A watermark says "no row older than this is still to come". ``None`` is the watermark of a source
that has none yet: every row may still come.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from millstream.errors import TimeRangeError

if TYPE_CHECKING:
    from collections.abc import Iterable


Clock = Callable[[], int]
"""Anything that, when called, returns the microseconds since 1970 in UTC."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def system_clock() -> int:
    """Return the time of the machine, in microseconds since 1970.

    >>> system_clock() > from_datetime(datetime(2024, 1, 1, tzinfo=UTC))
    True
    """
    return time.time_ns() // 1000


class ManualClock:
    """A clock for tests: it stands still until ``advance`` moves it.

    >>> clock = ManualClock(1_000)
    >>> clock.advance(500)
    1500
    >>> clock()
    1500
    """

    __slots__ = ("_now",)

    def __init__(self, start: int = 0) -> None:
        self._now = start

    def __call__(self) -> int:
        """Return the time that the clock was set or moved to."""
        return self._now

    def __repr__(self) -> str:
        return f"ManualClock({self._now})"

    def advance(self, micros: int) -> int:
        """Move the clock on, or back when ``micros`` is negative, and return its new time.

        Machines' clocks are set back at times, so tests must be able to do it too.
        """
        self._now += micros
        return self._now


def to_datetime(micros: int) -> datetime:
    """Return the time as a ``datetime`` in UTC, exact to the microsecond.

    >>> to_datetime(-1).isoformat()
    '1969-12-31T23:59:59.999999+00:00'

    Raises:
        TimeRangeError: the time is outside the years 1 to 9999.
    """
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError as error:
        raise TimeRangeError(
            f"{micros} microseconds since 1970 is outside the years 1 to 9999",
            hint="Check the unit: seconds, milliseconds and nanoseconds must be converted first.",
        ) from error


def from_datetime(when: datetime) -> int:
    """Return the microseconds since 1970; a ``datetime`` without a zone is taken as UTC.

    >>> from_datetime(datetime(1970, 1, 1, 0, 0, 1, 5))
    1000005

    Raises:
        TimeRangeError: ``when`` is not a ``datetime``.
    """
    if not isinstance(when, datetime):
        raise TimeRangeError(
            f"expected a datetime, got {type(when).__name__} {when!r}",
            hint="Convert dates with datetime.combine(day, time.min).",
        )
    if when.tzinfo is not UTC and when.utcoffset() is None:
        when = when.replace(tzinfo=UTC)
    return (when - EPOCH) // MICROSECOND


# ---- watermarks


class MonotonicWatermark:
    """A watermark that only moves forward.

    >>> watermark = MonotonicWatermark()
    >>> watermark.advance(100), watermark.advance(50), watermark.value
    (True, False, 100)

    Attributes:
        value: the newest watermark, or None when there was none yet.
    """

    __slots__ = ("value",)

    def __init__(self, value: int | None = None) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"MonotonicWatermark({self.value})"

    def advance(self, value: int) -> bool:
        """Take ``value`` if it is newer, and return whether the watermark moved.

        An older one is no error: rows come out of order, and promises once made are kept.
        """
        if self.value is not None and value <= self.value:
            return False
        self.value = value
        return True


def combine(values: Iterable[int | None]) -> int | None:
    """Return the watermark of several inputs read together: the least, or None if one has none.

    Without any input nothing is known, so the answer is None too.

    >>> combine([30, 10, 20])
    10
    >>> combine([30, None]) is None
    True
    """
    least: int | None = None
    for value in values:
        if value is None:
            return None
        if least is None or value < least:
            least = value
    return least
