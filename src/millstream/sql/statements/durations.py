"""Durations: texts such as ``7 days``, in intervals and in options."""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

from millstream.errors import InvalidOptionError

_MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_ALIASES = {
    "us": "microsecond",
    "ms": "millisecond",
    "s": "second",
    "sec": "second",
    "secs": "second",
    "min": "minute",
    "mins": "minute",
    "h": "hour",
    "hr": "hour",
    "hrs": "hour",
    "d": "day",
    "w": "week",
}
_CALENDAR = frozenset({"month", "quarter", "year"})
_PART = re.compile(
    r"\s*(?P<number>[+-]?\s*\d{1,20}(?:\.\d{1,18})?)\s*(?P<unit>[A-Za-z]+)\s*,?", re.ASCII
)
_EXAMPLE = (
    "Write a number and a unit: '500 milliseconds', '90 seconds', '1 hour 30 minutes', '7 days'."
)


def parse_duration(text: str) -> timedelta:
    """Return the duration that a text names, exact to the microsecond.

    >>> parse_duration("1 hour 30 minutes")
    datetime.timedelta(seconds=5400)

    Raises:
        InvalidOptionError: it names none, or one that months or years make uncertain.
    """
    total, place = Fraction(0), 0
    while place < len(text.rstrip()) or not text.strip():
        matched = _PART.match(text, place)
        if matched is None:
            raise InvalidOptionError(f"{text!r} is not a duration", hint=_EXAMPLE)
        total += Fraction(matched["number"].replace(" ", "")) * _unit(matched["unit"])
        place = matched.end()
    if total.denominator != 1:
        raise InvalidOptionError(f"{text!r} has a part of a microsecond", hint=_EXAMPLE)
    try:
        return timedelta(microseconds=int(total))
    except OverflowError as error:
        raise InvalidOptionError(f"{text!r} is too long", hint=_EXAMPLE) from error


def duration_text(duration: timedelta) -> str:
    """Return a duration in the largest unit that needs no fraction.

    >>> duration_text(timedelta(minutes=90))
    '90 minutes'
    """
    count = duration // timedelta(microseconds=1)
    units = [unit for unit, size in _MICROSECONDS.items() if unit != "week" and count % size == 0]
    unit = units[-1] if count else "second"
    count //= _MICROSECONDS[unit]
    return f"{count} {unit}{'' if abs(count) == 1 else 's'}"


def _unit(word: str) -> int:
    unit = word.lower()
    unit = _ALIASES.get(unit, unit.removesuffix("s"))
    if unit in _CALENDAR:
        raise InvalidOptionError(
            f"a {unit} is not always of the same length", hint="Write days: '30 days'."
        )
    if unit not in _MICROSECONDS:
        raise InvalidOptionError(f"{word!r} is not a unit of time", hint=_EXAMPLE)
    return _MICROSECONDS[unit]
