"""What the Python form calls of numbers where an operator does not do."""

from __future__ import annotations

import math
import struct
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING, Any

from millstream.sql.expressions.failures import division_by_zero, overflow

if TYPE_CHECKING:
    from collections.abc import Callable

Value = Any

_FLOAT32 = struct.Struct("<f")
_HIGH64 = float(1 << 63)
_WIDE = Context(prec=200, rounding=ROUND_HALF_UP)
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


def remainder(left: int, right: int) -> int:
    """Return what is left after a division; it has the sign of the dividend."""
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def quotient(left: int, right: int) -> int:
    """Return the whole part of a division."""
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


__all__ = [
    "ceiling",
    "decimal_add",
    "decimal_divide",
    "decimal_fit",
    "decimal_multiply",
    "decimal_remainder",
    "decimal_subtract",
    "decimal_to_integer",
    "float_remainder",
    "float_to_decimal",
    "float_to_integer",
    "floor",
    "greatest",
    "is_nan",
    "least",
    "quotient",
    "remainder",
    "round_float",
    "round_integer",
    "same",
    "sign",
    "single",
    "square_root",
]
