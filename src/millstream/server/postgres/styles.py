"""TimeZone, DateStyle and IntervalStyle: how times are written as text (pure)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, timedelta, timezone, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from millstream.model.clock import MICROSECOND
from millstream.server.postgres.errors import PostgresError

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)
_NO_TIME: Final = timedelta(0)


@dataclass(frozen=True, slots=True)
class Style:
    """How a connection wants dates, timestamps and intervals.

    >>> style = Style(dates="SQL", order="DMY", intervals="iso_8601")
    >>> style.date(date(2026, 1, 31)), style.interval(timedelta(days=1, seconds=90))
    (b'31/01/2026', b'P1DT1M30S')

    Attributes:
        zone: of TimeZone; timestamps are written in it, and read in it if they name none.
        dates: of DateStyle, ISO, SQL, Postgres or German.
        order: of DateStyle, MDY, DMY or YMD.
        intervals: IntervalStyle.
    """

    zone: tzinfo = UTC
    dates: str = "ISO"
    order: str = "MDY"
    intervals: str = "postgres"

    def date(self, value: Any) -> bytes:  # noqa: ANN401
        """A DATE."""
        return _date(value, self).encode()

    def timestamp(self, value: Any) -> bytes:  # noqa: ANN401
        """A TIMESTAMP: with a zone in the session's, without one as it is."""
        try:
            moment = value if value.tzinfo is None else value.astimezone(self.zone)
        except OverflowError:  # in that zone it is beyond the year 1 or 9999
            moment = value.astimezone(UTC)
        clock = f"{moment:%H:%M:%S}" + _fraction(moment.microsecond)
        offset = moment.utcoffset()
        if self.dates == "ISO":
            zone = "" if offset is None else _offset(offset)
            return f"{_date(moment, self)} {clock}{zone}".encode()
        name = moment.tzname() or ""
        zone = "" if offset is None else " " + (name if name.isalpha() else _offset(offset))
        if self.dates != "Postgres":
            return f"{_date(moment, self)} {clock}{zone}".encode()
        day = [f"{moment.day:02}", _MONTHS[moment.month - 1]]
        words = day if self.order == "DMY" else day[::-1]
        weekday = _DAYS[moment.weekday()]
        return f"{weekday} {' '.join(words)} {clock} {moment.year:04}{zone}".encode()

    def interval(self, value: timedelta) -> bytes:
        """An INTERVAL."""
        return _INTERVALS[self.intervals](value < _NO_TIME, abs(value)).encode()


ISO: Final = Style()
"""The style of a new connection."""


def _date(value: date, style: Style) -> str:
    year, month, day = f"{value.year:04}", f"{value.month:02}", f"{value.day:02}"
    if style.dates == "ISO":
        return f"{year}-{month}-{day}"
    if style.dates == "German":
        return f"{day}.{month}.{year}"
    mark = "/" if style.dates == "SQL" else "-"
    first = (day, month) if style.order == "DMY" else (month, day)
    return mark.join((*first, year))


def _fraction(micros: int) -> str:
    return f".{micros:06}".rstrip("0") if micros else ""


def _offset(offset: timedelta) -> str:
    sign, seconds = ("-" if offset < _NO_TIME else "+"), int(abs(offset).total_seconds())
    parts = [seconds // 3600, seconds // 60 % 60, seconds % 60]
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return sign + ":".join(f"{each:02}" for each in parts)


def _parts(length: timedelta) -> tuple[int, int, int, str]:
    """Hours, minutes, seconds and their fraction of what is less than a day."""
    seconds = length.seconds
    micros = length % timedelta(seconds=1) // MICROSECOND
    return seconds // 3600, seconds // 60 % 60, seconds % 60, _fraction(micros)


def _postgres(is_negative: bool, length: timedelta) -> str:
    sign = "-" if is_negative else ""
    hours, minutes, seconds, part = _parts(length)
    clock = f"{sign}{hours:02}:{minutes:02}:{seconds:02}{part}"
    days = f"{sign}{length.days} day{'' if length.days == 1 and not sign else 's'}"
    if not length.days:
        return clock
    return f"{days} {clock}" if length.seconds or part else days


def _sql_standard(is_negative: bool, length: timedelta) -> str:
    sign = "-" if is_negative else ""
    hours, minutes, seconds, part = _parts(length)
    clock = f"{hours}:{minutes:02}:{seconds:02}{part}"
    if not length:
        return "0"
    return f"{sign}{length.days} {clock}" if length.days else sign + clock


def _iso_8601(is_negative: bool, length: timedelta) -> str:
    sign = "-" if is_negative else ""
    hours, minutes, seconds, part = _parts(length)
    clock = [f"{sign}{n}{unit}" for n, unit in ((hours, "H"), (minutes, "M")) if n]
    if seconds or part:
        clock.append(f"{sign}{seconds}{part}S")
    days = f"{sign}{length.days}D" if length.days else ""
    if not length:
        return "PT0S"
    return f"P{days}" + ("T" + "".join(clock) if clock else "")


def _verbose(is_negative: bool, length: timedelta) -> str:
    hours, minutes, seconds, part = _parts(length)
    shown = [
        f"{n} {unit}{'' if n == 1 else 's'}"
        for n, unit in ((length.days, "day"), (hours, "hour"), (minutes, "min"))
        if n
    ]
    if seconds or part:
        shown.append(f"{seconds}{part} sec{'' if seconds == 1 and not part else 's'}")
    return " ".join(["@", *(shown or ["0"]), *(["ago"] if is_negative else [])])


_INTERVALS: Final = {
    "postgres": _postgres,
    "postgres_verbose": _verbose,
    "sql_standard": _sql_standard,
    "iso_8601": _iso_8601,
}
INTERVAL_STYLES: Final = tuple(_INTERVALS)


def time_zone(value: str) -> tuple[str, tzinfo]:
    """The name of a time zone as SHOW has it, and the zone.

    >>> time_zone("utc")[0], time_zone("-7")[0], time_zone("interval +05:30")[0]
    ('UTC', '<-07>+07', '<+05:30>-05:30')
    >>> str(time_zone("+02:00")[1])
    'UTC-02:00'

    Raises:
        PostgresError: there is no such zone.
    """
    given = value.strip().strip("'")
    if given.lower() in {"utc", "etc/utc", "z", "zulu", "gmt", "local", "default"}:
        return "GMT" if given.lower() == "gmt" else "UTC", UTC
    try:
        for pattern in (_HOURS, _CLOCK, _POSIX):
            found = pattern.fullmatch(given)
            if found is not None:
                minutes = int(found.groupdict().get("minutes") or 0)
                offset = timedelta(hours=float(found["hours"]), minutes=minutes)
                is_west = (found["sign"] == "-") != (pattern is _POSIX)
                zone = timezone(-offset if is_west else offset)
                return (given if pattern is _POSIX else _fixed_name(zone)), zone
        return _named(given)
    except (ValueError, OSError) as error:
        raise PostgresError(
            f'invalid value for parameter "TimeZone": {value!r}',
            sqlstate="22023",
            hint="a name such as Europe/Berlin, or hours east of UTC",
        ) from error


_HOURS: Final = re.compile(r"(?P<sign>[+-]?)(?P<hours>\d{1,2}(?:\.\d+)?)")
_CLOCK: Final = re.compile(r"interval (?P<sign>[+-]?)(?P<hours>\d{1,2}):(?P<minutes>\d\d)")
_POSIX: Final = re.compile(r"(?P<sign>[+-])(?P<hours>\d{1,2}):(?P<minutes>\d\d)")
"""With a colon the sign is that of POSIX, as in PostgreSQL: +02:00 is two hours west of UTC."""


def _fixed_name(zone: timezone) -> str:
    offset = zone.utcoffset(None)
    return f"<{_offset(offset)}>{_offset(-offset)}"


def _named(name: str) -> tuple[str, tzinfo]:
    try:
        zone = ZoneInfo(name)
    except ZoneInfoNotFoundError:
        known = {each.lower(): each for each in available_timezones()}
        if name.lower() not in known:
            raise ValueError(name) from None
        zone = ZoneInfo(known[name.lower()])
    return zone.key, zone


_STYLES: Final = {"iso": "ISO", "sql": "SQL", "postgres": "Postgres", "german": "German"}
_ORDERS: Final = {
    **dict.fromkeys(("mdy", "us", "noneuro", "noneuropean"), "MDY"),
    **dict.fromkeys(("dmy", "euro", "european"), "DMY"),
    "ymd": "YMD",
}


def date_style(value: str, now: Style) -> tuple[str, str]:
    """The style and the order of a DateStyle; what it leaves out stays.

    >>> date_style("sql, dmy", ISO), date_style("German", ISO)
    (('SQL', 'DMY'), ('German', 'DMY'))

    Raises:
        PostgresError: it is no DateStyle.
    """
    dates, order = now.dates, now.order
    words = [each.strip().strip("'\"").lower() for each in value.split(",")]
    for word in words:
        if word in _STYLES:
            dates = _STYLES[word]
            order = "DMY" if word == "german" and not _ORDERS.keys() & set(words) else order
        elif word in _ORDERS:
            order = _ORDERS[word]
        else:
            raise PostgresError(
                f'invalid value for parameter "DateStyle": {value!r}',
                sqlstate="22023",
                hint="ISO, SQL, Postgres or German, and MDY, DMY or YMD",
            )
    return dates, order
