"""What compiled expressions call while they run, and the errors that they raise.

The functions are those of Python's form, where an operator or a method does not do: values that are
not NULL in, a value out, unless a function says otherwise. ``FUNCTIONS`` has all of them by name.
"""

from __future__ import annotations

import math
import struct
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING, Any, NoReturn

from millstream.errors import ExpressionError
from millstream.model.values import too_long

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.sql.expressions.nodes import Value


failures = (ZeroDivisionError, OverflowError)
"""What Python raises in the middle of arithmetic; ``failed`` turns it into an ExpressionError."""


def failed(error: Exception) -> ExpressionError:
    """Return the ExpressionError for one of ``failures``."""
    return division_by_zero() if isinstance(error, ZeroDivisionError) else overflow()


def division_by_zero() -> ExpressionError:
    """Return the error of a divisor that is zero."""
    return ExpressionError(
        "division by zero", hint="Divide by NULLIF(divisor, 0), which gives NULL instead."
    )


def overflow() -> ExpressionError:
    """Return the error of a value that its type cannot hold."""
    return ExpressionError(
        "a value is out of the range of its type", hint="CAST an operand to a wider type first."
    )


def too_large() -> NoReturn:
    """Raise the error of a value that its type cannot hold."""
    raise overflow()


def short_text(text: str, most: int) -> str:
    """Return a text that has not more characters than its column allows."""
    if len(text) > most:
        error = too_long(len(text), most)
        raise ExpressionError(error.message, hint=error.hint)
    return text


def missing(name: str) -> ExpressionError:
    """Return the error of a NULL for a column that is NOT NULL."""
    return ExpressionError(
        f"column {name} is NOT NULL, and would become NULL", hint="Give a value with COALESCE."
    )


# --- Numbers --------------------------------------------------------------------------------------

_FLOAT32 = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")
_HIGH64 = float(1 << 63)
_WIDE = Context(prec=200, rounding=ROUND_HALF_UP)
_MOST_DIGITS = 60
_JAVA = Context(prec=39, rounding=ROUND_DOWN)  # what Spark calculates with


def same(left: float | None, right: float | None) -> bool:
    """Whether two floats are equal for SQL, where NaN equals itself; NULL equals NULL, too."""
    if left is None or right is None:
        return left is right
    return left == right or (left != left and right != right)  # noqa: PLR0124 - NaN is not itself


def is_nan(value: float | None) -> bool:
    """Whether a float is NaN; NULL is not."""
    return value is not None and value != value  # noqa: PLR0124 - only NaN is not itself


def single(value: float) -> float:
    """Return the nearest float of 32 bits, or infinity."""
    try:
        rounded: float = _FLOAT32.unpack(_FLOAT32.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def nearest_single(value: int | Decimal) -> float:
    """Return the float of 32 bits that is nearest to an integer or a DECIMAL.

    By the nearest of 64 bits it would be rounded twice: one that is not exact is made odd first.
    """
    wide = float(value)
    if wide != value:
        wide = math.nextafter(wide, 0.0) if (wide > value) == (wide > 0) else wide
        if not _DOUBLE.pack(wide)[0] & 1:
            wide = math.nextafter(wide, math.copysign(math.inf, wide))
    return single(wide)


def remainder(left: int, right: int) -> int:
    """Return what is left after a division; it has the sign of the dividend."""
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def quotient(left: int, right: int) -> int:
    """Return the integer part of a quotient."""
    whole = abs(left) // abs(right)
    return whole if (left < 0) == (right < 0) else -whole


def float_remainder(left: float, right: float) -> float:
    """Return what is left of floats after a division."""
    if right == 0.0:
        raise division_by_zero()
    return math.nan if math.isinf(left) else math.fmod(left, right)


def float_to_integer(value: float, high: int) -> int:
    """Return a float without what follows the point; ``high`` is the greatest integer."""
    if value == _HIGH64 and high == (1 << 63) - 1:
        return high  # as in Java
    if not -_HIGH64 <= value < _HIGH64:
        raise overflow()
    whole = int(value)
    if not -high - 1 <= whole <= high:
        raise overflow()
    return whole


def ceiling(value: float) -> int:
    """Return the least integer that is not less; of NaN, 0."""
    return _rounded(value, math.ceil)


def floor(value: float) -> int:
    """Return the greatest integer that is not greater; of NaN, 0."""
    return _rounded(value, math.floor)


def _rounded(value: float, way: Callable[[float], int]) -> int:
    if value != value:  # noqa: PLR0124 - only NaN is not itself
        return 0
    whole = value if math.isinf(value) else float(way(value))
    if whole == _HIGH64:  # which CAST lets pass
        raise overflow()
    return float_to_integer(whole, (1 << 63) - 1)


def square_root(value: float) -> float:
    """Return the square root; of negative numbers, NaN."""
    return math.nan if value < 0 else math.sqrt(value)


def sign(value: float) -> float:
    """Return 1.0 or -1.0; zeros and NaN stay what they are."""
    return math.copysign(1.0, value) if value < 0 or value > 0 else value


def greatest(*values: Value) -> Value:
    """Return the greatest value that is not None, the first of equals; NaN is above all."""
    best = None
    for value in values:
        if value is not None and (best is None or _less(best, value)):
            best = value
    return best


def least(*values: Value) -> Value:
    """Return the least value that is not None, the first of equals; NaN is above all."""
    best = None
    for value in values:
        if value is not None and (best is None or _less(value, best)):
            best = value
    return best


def _less(left: Value, right: Value) -> bool:
    return bool(left == left and not left >= right)  # noqa: PLR0124 - NaN is not itself


# --- DECIMAL --------------------------------------------------------------------------------------


def decimal_add(left: Decimal, right: Decimal, quantum: Decimal, limit: Decimal) -> Decimal:
    """Return a sum, rounded to the quantum."""
    return decimal_fit(_WIDE.add(left, right), quantum, limit)


def decimal_subtract(left: Decimal, right: Decimal, quantum: Decimal, limit: Decimal) -> Decimal:
    """Return a difference, rounded to the quantum."""
    return decimal_fit(_WIDE.subtract(left, right), quantum, limit)


def decimal_multiply(left: Decimal, right: Decimal, quantum: Decimal, limit: Decimal) -> Decimal:
    """Return a product, rounded to the quantum."""
    return decimal_fit(_WIDE.multiply(left, right), quantum, limit)


def decimal_divide(left: Decimal, right: Decimal, quantum: Decimal, limit: Decimal) -> Decimal:
    """Return a quotient, rounded to the quantum."""
    if not right:
        raise division_by_zero()
    # No quotient of two DECIMALs is so near a half that 200 digits round to it.
    return decimal_fit(_WIDE.divide(left, right), quantum, limit)


def decimal_remainder(left: Decimal, right: Decimal, quantum: Decimal, limit: Decimal) -> Decimal:
    """Return what is left after a division; it has the sign of the dividend."""
    if not right:
        raise division_by_zero()
    whole = _WIDE.divide_int(left, right)
    if _JAVA.plus(whole) != whole:  # where Java says that the division is impossible
        raise overflow()
    return decimal_fit(_WIDE.remainder(left, right), quantum, limit)


_WAYS = {"ceil": ROUND_CEILING, "floor": ROUND_FLOOR, "half up": ROUND_HALF_UP}


def decimal_fit(value: Decimal, quantum: Decimal, limit: Decimal, way: str = "half up") -> Decimal:
    """Return a DECIMAL rounded to the quantum of a type, and below its limit.

    Args:
        value: any number.
        quantum: one unit of the type's last place.
        limit: the least power of ten that the type cannot hold.
        way: which way to round.
    """
    rounded = _WIDE.quantize(value, quantum) if way == "half up" else _toward(value, quantum, way)
    if rounded.copy_abs() >= limit:  # abs() rounds to the context of the thread
        raise overflow()
    return rounded or rounded.copy_abs()


def _toward(value: Decimal, quantum: Decimal, way: str) -> Decimal:
    return value.quantize(quantum, rounding=_WAYS[way], context=_WIDE)


def decimal_exact(value: Decimal | float, quantum: Decimal, limit: Decimal) -> Decimal | None:
    """Return a number as a DECIMAL of the same value, of a float the digits that it prints with.

    Raises:
        ExpressionError: the type has no room for all of its digits.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return None  # as of ``float_to_decimal``
    exact = Decimal(repr(value)) if isinstance(value, float) else value
    made = decimal_fit(exact, quantum, limit) if abs(exact.adjusted()) < _MOST_DIGITS else None
    if made is None or made != exact:
        raise ExpressionError(
            f"a NUMERIC without a precision has no room for all digits of {exact}",
            hint="It has 20 digits before the point and 18 after it; CAST(... AS NUMERIC) rounds.",
        )
    return made


def decimal_to_integer(value: Decimal, high: int) -> int:
    """Return a DECIMAL without what follows the point."""
    whole = int(value.to_integral_value(ROUND_DOWN))
    if not -high - 1 <= whole <= high:
        raise overflow()
    return whole


def float_to_decimal(value: float, quantum: Decimal, limit: Decimal) -> Decimal | None:
    """Return a float as a DECIMAL: the digits that it prints with, rounded; of NaN, NULL."""
    if not math.isfinite(value):
        return None
    if abs(value) > 1e60:
        raise overflow()
    return decimal_fit(Decimal(repr(value)), quantum, limit)


def round_float(value: float, places: int) -> float:
    """Return a float rounded to places after the point, by the digits that it prints with."""
    if not math.isfinite(value) or abs(value) >= 1e22:
        return value
    rounded = float(_WIDE.quantize(Decimal(repr(value)), Decimal(1).scaleb(-places)))
    return rounded or 0.0  # Java's decimals know no -0


def round_integer(value: int, unit: int) -> int:
    """Return an integer rounded to a multiple of a unit, a half away from zero."""
    whole = (abs(value) + unit // 2) // unit * unit
    return whole if value >= 0 else -whole


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


FUNCTIONS: dict[str, Any] = {
    **{
        each.__name__: each
        for each in (
            add_days,
            attempt,
            ceiling,
            concat,
            decimal_add,
            decimal_divide,
            decimal_exact,
            decimal_fit,
            decimal_multiply,
            decimal_remainder,
            decimal_subtract,
            decimal_to_integer,
            element,
            failed,
            float_remainder,
            float_to_decimal,
            float_to_integer,
            floor,
            greatest,
            is_nan,
            least,
            midnight,
            nearest_single,
            present,
            quotient,
            remainder,
            replace,
            round_float,
            round_integer,
            same,
            short_enough,
            short_text,
            sign,
            single,
            square_root,
            substring,
            timestamp_to_text,
            too_large,
            truncate,
        )
    },
    "Decimal": Decimal,
    "failures": failures,
}
"""All that the text of a Python form may call or name."""
