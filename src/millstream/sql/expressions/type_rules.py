"""Families of types, their ranges, and the type that several values have in common."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from millstream.model.types import (
    BIGINT,
    DOUBLE,
    INTEGER,
    MAX_PRECISION,
    SMALLINT,
    TIMESTAMP,
    TINYINT,
    SqlType,
    decimal_type,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Kernel = Callable[[Any], Any]


INTEGERS = (TINYINT, SMALLINT, INTEGER, BIGINT)
_DIGITS = {"TINYINT": 3, "SMALLINT": 5, "INTEGER": 10, "BIGINT": 20}


def is_integer(of: SqlType) -> bool:
    """Whether it is TINYINT, SMALLINT, INTEGER or BIGINT.

    >>> is_integer(BIGINT), is_integer(DOUBLE)
    (True, False)
    """
    return of.kind in _DIGITS


def is_float(of: SqlType) -> bool:
    """Whether it is REAL or DOUBLE."""
    return of.kind in {"REAL", "DOUBLE"}


def is_decimal(of: SqlType) -> bool:
    """Whether it is a DECIMAL of any precision."""
    return of.kind == "DECIMAL"


def is_number(of: SqlType) -> bool:
    """Whether it is an integer type, REAL, DOUBLE or a DECIMAL."""
    return is_integer(of) or is_float(of) or is_decimal(of)


def integer_range(of: SqlType) -> tuple[int, int]:
    """Return the least and the greatest value of an integer type.

    >>> integer_range(TINYINT)
    (-128, 127)
    """
    high = (1 << (of.arrow.bit_width - 1)) - 1
    return -high - 1, high


def integer_of(value: int) -> SqlType | None:
    """Return the type that Spark gives to a literal: INTEGER, else BIGINT; None when too large."""
    for of in (INTEGER, BIGINT):
        low, high = integer_range(of)
        if low <= value <= high:
            return of
    return None


def as_decimal(of: SqlType) -> SqlType:
    """Return the DECIMAL that holds all values of an integer type or a DECIMAL."""
    return of if is_decimal(of) else decimal_type(_DIGITS[of.kind], 0)


def common_type(types: Iterable[SqlType]) -> SqlType | None:
    """Return the type that Spark brings values of these types to; None when there is none.

    >>> common_type([TINYINT, BIGINT]), common_type([INTEGER, TIMESTAMP])
    (SqlType(sql='BIGINT'), None)
    """
    found: SqlType | None = None
    for each in types:
        if each.kind == "NULL":
            continue
        found = each if found is None else _common(found, each)
        if found is None:
            return None
    return found


def _common(left: SqlType, right: SqlType) -> SqlType | None:
    if left == right:
        return left
    if is_number(left) and is_number(right):
        return _common_number(left, right)
    if {left.kind, right.kind} == {"DATE", "TIMESTAMP"}:
        return TIMESTAMP
    return None


def _common_number(left: SqlType, right: SqlType) -> SqlType | None:
    if is_float(left) or is_float(right):
        # Not REAL even beside a TINYINT: in ANSI mode Spark widens both.
        return DOUBLE
    if is_integer(left) and is_integer(right):
        return max(left, right, key=INTEGERS.index)
    one, two = as_decimal(left).arrow, as_decimal(right).arrow
    scale = max(one.scale, two.scale)
    digits = max(one.precision - one.scale, two.precision - two.scale) + scale
    return decimal_type(digits, scale) if digits <= MAX_PRECISION else None


def unit_and_limit(of: SqlType) -> tuple[Decimal, Decimal]:
    """Return one unit of a DECIMAL's last place, and the power of ten that it cannot hold."""
    precision, scale = of.arrow.precision, of.arrow.scale
    return Decimal(1).scaleb(-scale), Decimal(1).scaleb(precision - scale)
