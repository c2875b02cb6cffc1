"""What the Python form calls of texts and times where a method does not do."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING, Any

from millstream.errors import ExpressionError
from millstream.sql.expressions.failures import malformed, missing, overflow
from millstream.sql.expressions.python_numbers import decimal_fit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Value = Any

_LONGEST = timedelta(days=106751991)


def present(value: Value, name: str) -> Value:
    """Return a value for a column that is NOT NULL."""
    if value is None:
        raise missing(name)
    return value


def attempt(function: Callable[[Any], Any], value: Value) -> Value:
    """Return what a function makes of a value; None, which is NULL, when it raises."""
    try:
        return function(value)
    except ExpressionError:
        return None


# --- Text -----------------------------------------------------------------------------------------

_BLANK = "".join(map(chr, range(0x21))) + "\x7f"
_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?")
_HEX = re.compile(r"[+-]?0[xX]([0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[dDfF]?")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?")
_SPECIAL = {
    "inf": math.inf,
    "+inf": math.inf,
    "infinity": math.inf,
    "+infinity": math.inf,
    "-inf": -math.inf,
    "-infinity": -math.inf,
    "nan": math.nan,
}
_TRUE = frozenset({"t", "true", "y", "yes", "1"})
_FALSE = frozenset({"f", "false", "n", "no", "0"})


def text_to_integer(text: str, high: int, kind: str) -> int:
    """Return the integer that a text says."""
    plain = text.strip(_BLANK)
    if not _INTEGER.fullmatch(plain) or len(plain) > 4000:
        raise malformed(text, kind)
    value = int(plain)
    if not -high - 1 <= value <= high:
        raise malformed(text, kind)
    return value


def text_to_double(text: str) -> float:
    """Return the float that a text says, in the grammar of Java."""
    plain = text.strip(_BLANK)
    if _FLOAT.fullmatch(plain):
        return float(plain.rstrip("dDfF"))
    if plain.lower() in _SPECIAL:
        return _SPECIAL[plain.lower()]
    if _HEX.fullmatch(plain):
        head, exponent = plain.lower().split("p")
        try:
            return float.fromhex(f"{head}p{exponent.rstrip('df')}")
        except OverflowError:
            return -math.inf if plain.startswith("-") else math.inf
    raise malformed(text, "DOUBLE")


def text_to_decimal(text: str, quantum: Decimal, limit: Decimal) -> Decimal:
    """Return the DECIMAL that a text says, rounded."""
    plain = text.strip(_BLANK)
    if not _DECIMAL.fullmatch(plain):
        raise malformed(text, "DECIMAL")
    value = Decimal(plain)
    if value.adjusted() > 60:
        raise overflow()
    if value.adjusted() < -60:
        return decimal_fit(Decimal(0), quantum, limit)
    with_room = Context(prec=len(plain) + 200, rounding=ROUND_HALF_UP)
    return decimal_fit(with_room.quantize(value, quantum), quantum, limit)


def text_to_boolean(text: str) -> bool:
    """Return what a text says of truth."""
    plain = text.strip(_BLANK).lower()
    if plain in _TRUE:
        return True
    if plain in _FALSE:
        return False
    raise malformed(text, "BOOLEAN")


def timestamp_to_text(value: datetime) -> str:
    """Return a time as text, with as many digits of its second as it needs."""
    text = value.replace(tzinfo=None).isoformat(sep=" ")
    return text.rstrip("0") if value.microsecond else text


def substring(text: str, start: int, length: int = 2**31 - 1) -> str:
    """Return a part of a text; it begins at 1, or at -1 counted from the end."""
    first = len(text) + start if start < 0 else max(start - 1, 0)
    end = first + length
    return text[max(first, 0) : end] if end > 0 else ""


def replace(text: str, old: str, new: str) -> str:
    """Return a text with one part replaced by another wherever it occurs."""
    return text.replace(old, new) if old else text


# --- Time -----------------------------------------------------------------------------------------


def midnight(value: date) -> datetime:
    """Return the time at which a day begins."""
    return datetime.combine(value, time.min, UTC)


def add_days(value: date, days: int) -> date:
    """Return the date so many days later."""
    return value + timedelta(days=days)


def short_enough(value: timedelta) -> timedelta:
    """Return an interval if it is no longer than an INTERVAL may be."""
    if not -_LONGEST <= value <= _LONGEST:
        raise overflow()
    return value


def truncate(value: datetime, unit: str) -> datetime:
    """Return the beginning of the year, month, ... second that a time is in."""
    if unit in _CLOCK:
        return value.replace(**_CLOCK[unit])
    if unit == "MILLISECOND":
        return value.replace(microsecond=value.microsecond // 1000 * 1000)
    day = value.replace(hour=0, minute=0, second=0, microsecond=0)
    if unit == "WEEK":
        return day - timedelta(days=day.weekday())
    if unit == "QUARTER":
        return day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
    return day.replace(month=1, day=1) if unit == "YEAR" else day.replace(day=1)


_CLOCK: Mapping[str, Any] = {
    "MICROSECOND": {},
    "SECOND": {"microsecond": 0},
    "MINUTE": {"microsecond": 0, "second": 0},
    "HOUR": {"microsecond": 0, "second": 0, "minute": 0},
    "DAY": {"microsecond": 0, "second": 0, "minute": 0, "hour": 0},
}


# --- Nested ---------------------------------------------------------------------------------------


def element(values: Sequence[Any], place: int) -> Value:
    """Return one element of an ARRAY, from 0."""
    if not 0 <= place < len(values):
        raise ExpressionError(
            f"an ARRAY of {len(values)} elements has none at {place}",
            hint="Elements are counted from 0; test the length first.",
        )
    return values[place]


def concat(*texts: str | None) -> str | None:
    """Return texts one after the other; None if one is None."""
    return None if None in texts else "".join(texts)  # type: ignore[arg-type]


__all__ = [
    "add_days",
    "attempt",
    "concat",
    "element",
    "midnight",
    "present",
    "replace",
    "short_enough",
    "substring",
    "text_to_boolean",
    "text_to_decimal",
    "text_to_double",
    "text_to_integer",
    "timestamp_to_text",
    "truncate",
]
