"""Arithmetic on numbers: the operations, by the type that both operands were brought to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.types import DOUBLE, MAX_PRECISION, SqlType, decimal_type
from millstream.sql.expressions import kernels
from millstream.sql.expressions.casts import unit_and_limit
from millstream.sql.expressions.kinds import integer_range, is_decimal, is_integer
from millstream.sql.expressions.nodes import Op

if TYPE_CHECKING:
    from collections.abc import Callable

    Kernel = Callable[..., Any]

_CHECKED: dict[str, Kernel] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}
_FREE: dict[str, Kernel] = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
_DECIMAL = {
    "+": "decimal_add",
    "-": "decimal_subtract",
    "*": "decimal_multiply",
    "/": "decimal_divide",
    "%": "decimal_remainder",
}
_LEAST_SCALE = 6  # what Spark keeps after the point when a result has too many digits


def operation(symbol: str, of: SqlType) -> Op:
    """Return ``+ - *`` or ``%`` of two integers or two floats of one type."""
    if symbol == "%":
        return _remainder(of)
    plain = f"{{0}} {symbol} {{1}}"
    if is_integer(of):
        low, high = integer_range(of)
        python = f"{{t}} if {low} <= ({{t}} := {plain}) <= {high} else too_large()"
        return Op(f"{symbol} {of.sql}", plain, python, _CHECKED[symbol], raises=True)
    # The sum or product of two floats of 32 bits, rounded from 64, is the nearest one.
    python = plain if of == DOUBLE else f"single({plain})"
    return Op(f"{symbol} {of.sql}", plain, python, _FREE[symbol])


def _remainder(of: SqlType) -> Op:
    name, text = f"% {of.sql}", "{0} % {1}"
    if is_integer(of):
        return Op(name, text, "remainder({0}, {1})", kernels.remainder, raises=True, backwards=True)
    return Op(name, text, "float_remainder({0}, {1})", raises=True, backwards=True)


DIVIDE = Op("/ DOUBLE", "{0} / {1}", "{0} / {1}", pc.divide_checked, raises=True, backwards=True)


def whole_division() -> Op:
    """Return DIV of two BIGINTs."""
    high = (1 << 63) - 1
    python = f"{{t}} if ({{t}} := quotient({{0}}, {{1}})) <= {high} else too_large()"
    return Op("DIV BIGINT", "{0} DIV {1}", python, pc.divide_checked, raises=True, backwards=True)


def negative(of: SqlType) -> Op:
    """Return the unary minus."""
    if is_integer(of):
        low, _ = integer_range(of)
        python = f"-{{0}} if {{0}} != {low} else too_large()"
        return Op(f"NEG {of.sql}", "-{0}", python, pc.negate_checked, raises=True)
    # -Decimal rounds to the context of the thread; copy_negate does not, but knows a -0.
    python = "({0}.copy_negate() if {0} else {0})" if is_decimal(of) else "-{0}"
    return Op(f"NEG {of.sql}", "-{0}", python, pc.negate)


def absolute(of: SqlType) -> Op:
    """Return ABS."""
    name, text = f"ABS {of.sql}", "ABS({0})"
    if is_integer(of):
        low, _ = integer_range(of)
        python = f"abs({{0}}) if {{0}} != {low} else too_large()"
        return Op(name, text, python, pc.abs_checked, raises=True)
    return Op(name, text, "{0}.copy_abs()" if is_decimal(of) else "abs({0})", pc.abs)


def decimal_operation(symbol: str, left: SqlType, right: SqlType) -> tuple[Op, SqlType]:
    """Return an operation on two DECIMALs and the type of its result, by Spark's rules.

    >>> cents = decimal_type(10, 2)
    >>> decimal_operation("*", cents, cents)[1]
    SqlType(sql='DECIMAL(21, 4)')
    """
    precision, scale = _decimal_result(symbol, left.arrow, right.arrow)
    of = bounded(precision, scale)
    fits = precision <= MAX_PRECISION
    exact = fits and symbol in "+-*"
    op = Op(
        f"{symbol} {left.sql} {right.sql}",
        f"{{0}} {symbol} {{1}}",
        f"{_DECIMAL[symbol]}({{0}}, {{1}}, {{p0}}, {{p1}})",
        _FREE[symbol] if exact else None,
        params=unit_and_limit(of),
        raises=not exact,
        backwards=symbol in "/%",
    )
    return op, of


def _decimal_result(symbol: str, one: pa.DataType, two: pa.DataType) -> tuple[int, int]:
    scale = max(one.scale, two.scale)
    before = (one.precision - one.scale, two.precision - two.scale)
    if symbol == "*":
        return one.precision + two.precision + 1, one.scale + two.scale
    if symbol == "/":
        scale = max(_LEAST_SCALE, one.scale + two.precision + 1)
        return before[0] + two.scale + scale, scale
    if symbol == "%":
        return min(before) + scale, scale
    return max(before) + scale + 1, scale


def bounded(precision: int, scale: int) -> SqlType:
    """Return the DECIMAL that Spark uses for so many digits: beyond 38, places are given up."""
    if precision <= MAX_PRECISION:
        return decimal_type(precision, scale)
    kept = max(MAX_PRECISION - (precision - scale), min(scale, _LEAST_SCALE))
    return decimal_type(MAX_PRECISION, kept)
