"""Times of any zone in UTC: what was once found out about a zone's offset is used again.

To ask a zone for its offset takes Python 300 to 400 ns for each time. But the difference of two
times of the *same* zone is taken without asking it, in a tenth of that. So an anchor is kept of a
zone, one moment in it and in UTC: of another time, the distance to the first is added to the
second.

For a ``timezone``, whose offset never changes, that is all. For a ``ZoneInfo`` it holds within a
stretch of local time at every second of which it was asked for its offset, and gave the same: it
depends on the whole second. A time with ``fold=1``, the second of two with the same name, is in no
stretch. Zones of other classes are asked each time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Final, TypeVar
from zoneinfo import ZoneInfo

from millstream.model.clock import EPOCH

Stretch = tuple[datetime, datetime, datetime]
"""Local time of one offset: its first moment, the end of it, and the first moment in UTC.

A plain tuple, since that is what Python takes apart quickest.
"""
K = TypeVar("K")
V = TypeVar("V")

_SECOND: Final = timedelta(seconds=1)
_NEAR: Final = timedelta(seconds=10)
"""How far beyond the end of a stretch a time may be that prolongs it."""
_MOST_ZONES: Final = 64


class UtcTimes:
    """Makes times in UTC of times in other zones.

    A time that is in no stretch is worked out by its zone. When a second one comes that is near it,
    as the times of live data are, a stretch is begun, or the one there is made longer.

    >>> when = datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    >>> UtcTimes().of(when).isoformat()
    '2026-07-01T10:00:00+00:00'

    Attributes:
        fixed: of zones with a fixed offset, a moment in the zone and the same in UTC.
        stretches: of other zones, the first moment of a stretch, the end of it, the first in UTC.
    """

    __slots__ = ("_missed", "fixed", "stretches")

    def __init__(self) -> None:
        self.fixed: dict[timezone, tuple[datetime, datetime]] = {}
        self.stretches: dict[ZoneInfo, Stretch] = {}
        self._missed: dict[ZoneInfo, datetime] = {}  # the last time that was in no stretch

    def of(self, when: datetime) -> datetime:
        """The same moment in UTC; ``when`` is a plain ``datetime`` and has a zone.

        Raises:
            OverflowError: in UTC it is outside the years 1 to 9999.
            TypeError: its zone does not say what the offset is.
        """
        zone = when.tzinfo
        if type(zone) is timezone:
            start, start_utc = self.fixed.get(zone) or self._anchor(zone)
            return start_utc + (when - start)
        if type(zone) is not ZoneInfo or when.fold:
            return EPOCH + (when - EPOCH)
        known = self.stretches.get(zone)
        if known is not None and known[0] <= when < known[1]:
            return known[2] + (when - known[0])
        missed = self._missed.get(zone)
        _keep(self._missed, zone, when)
        if missed is not None:
            stretch = _stretch(when, missed, known)
            if stretch is not None:
                _keep(self.stretches, zone, stretch)
        return when.astimezone(UTC)

    def _anchor(self, zone: timezone) -> tuple[datetime, datetime]:
        start = EPOCH.astimezone(zone)
        _keep(self.fixed, zone, (start, EPOCH))
        return start, EPOCH


def _keep(kept: dict[K, V], key: K, value: V) -> None:
    """Keep something of a zone; programs that make a zone for each time must not fill memory."""
    if key not in kept and len(kept) >= _MOST_ZONES:
        kept.clear()
    kept[key] = value


def _stretch(when: datetime, missed: datetime, known: Stretch | None) -> Stretch | None:
    """The stretch that is known, prolonged to a time; a new one if times come close together."""
    second = when.replace(microsecond=0)
    if second.year in {1, 9999}:
        return None
    if known is not None and known[1] <= when < known[1] + _NEAR:
        start, end, start_utc = known
        offset = start.utcoffset()
        while end <= second and end.utcoffset() == offset:
            end += _SECOND
        if end > second:
            return start, end, start_utc
    if abs(when - missed) < _NEAR:
        return second, second + _SECOND, second.astimezone(UTC)
    return None


UTC_TIMES: Final = UtcTimes()
"""Of all sources: they have their zones in common."""
