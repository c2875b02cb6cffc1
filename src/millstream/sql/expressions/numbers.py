"""Numbers: arithmetic, signs, rounding and roots, each operation with its binding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millstream.model.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    INTERVAL,
    MAX_PRECISION,
    SqlType,
    decimal_type,
)
from millstream.sql.expressions import kernels, literals
from millstream.sql.expressions.casts import cast, target_of
from millstream.sql.expressions.fold import call
from millstream.sql.expressions.nodes import Literal, Node, Op, Tree
from millstream.sql.expressions.runtime import remainder
from millstream.sql.expressions.times import NEGATIVE_INTERVAL, time_arithmetic
from millstream.sql.expressions.type_rules import (
    as_decimal,
    common_type,
    integer_range,
    is_decimal,
    is_float,
    is_integer,
    is_number,
    unit_and_limit,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.sql.expressions.bind import Binder

    Kernel = Callable[..., Any]


# --- Operations -----------------------------------------------------------------------------------

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


def positive_remainder(left: int, right: int, bits: int) -> int:
    """Return what is left after a division, made positive by the divisor, as Java adds it.

    >>> positive_remainder(-7, 3, 32), positive_remainder(-7, -3, 32)
    (2, -1)
    """
    rest = remainder(left, right)
    if rest >= 0:
        return rest
    half = 1 << (bits - 1)
    return remainder((rest + right + half) % (2 * half) - half, right)


def pmod(of: SqlType) -> Op:
    """Return PMOD of two integers of one type."""
    bits = max(of.arrow.bit_width, 32)  # Java has no arithmetic of fewer
    return Op(
        f"PMOD {of.sql}",
        "PMOD({0}, {1})",
        "{p0}({0}, {1}, {p1})",
        params=(positive_remainder, bits),
        raises=True,
        backwards=True,
    )


DIVIDE = Op("/ DOUBLE", "{0} / {1}", "{0} / {1}", pc.divide_checked, raises=True, backwards=True)


def integer_division() -> Op:
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
    """Return the DECIMAL that Spark uses for so many digits; beyond 38 it drops decimal places."""
    if precision <= MAX_PRECISION:
        return decimal_type(precision, scale)
    kept = max(MAX_PRECISION - (precision - scale), min(scale, _LEAST_SCALE))
    return decimal_type(MAX_PRECISION, kept)


SQUARE_ROOT = Op("SQRT", "SQRT({0})", "square_root({0})", pc.sqrt)
SIGN = Op("SIGN", "SIGN({0})", "sign({0})")
IS_NAN = Op(
    "ISNAN",
    "ISNAN({0})",
    "is_nan({0})",
    lambda value: pc.fill_null(pc.is_nan(value), False),
    strict=False,
)


def ceil_or_floor(*, up: bool) -> Op:
    """Return CEIL or FLOOR of a DOUBLE."""
    name = "CEIL" if up else "FLOOR"
    python = "ceiling({0})" if up else "floor({0})"
    return Op(
        name,
        f"{name}({{0}})",
        python,
        lambda value: kernels.rounded_to_integer(value, up=up),
        raises=True,
    )


def decimal_ceil_or_floor(of: SqlType, *, up: bool) -> tuple[Op, SqlType]:
    """Return CEIL or FLOOR of a DECIMAL, and the type of its result."""
    name, way = ("CEIL", "ceil") if up else ("FLOOR", "floor")
    if of.arrow.scale == 0:
        return Op(f"{name} {of.sql}", f"{name}({{0}})", "{0}", lambda value: value), of
    whole = bounded(of.arrow.precision - of.arrow.scale + 1, 0)
    op = Op(
        f"{name} {of.sql}",
        f"{name}({{0}})",
        f"decimal_fit({{0}}, {{p0}}, {{p1}}, {way!r})",
        params=unit_and_limit(whole),
        raises=True,
    )
    return op, whole


def rounding(of: SqlType, places: int) -> tuple[Op, SqlType] | None:
    """Return ROUND to places after the point, and its type; None when it would not be exact."""
    name, text = f"ROUND {of.sql} {places}", f"ROUND({{0}}, {places})"
    if of.kind == "DOUBLE":
        return Op(name, text, f"round_float({{0}}, {places})"), of
    if is_integer(of):
        if places >= 0:
            return Op(name, text, "{0}", lambda value: value), of
        _, high = integer_range(of)
        python = f"{{t}} if {-high - 1} <= ({{t}} := round_integer({{0}}, {10**-places})) <= {high}"
        return Op(name, text, f"{python} else too_large()", raises=True), of
    if not is_decimal(of) or places < 0:
        return None
    scale = min(places, of.arrow.scale)
    digits = of.arrow.precision - of.arrow.scale + scale + 1
    rounded = decimal_type(min(digits, MAX_PRECISION), scale)
    python = "decimal_fit({0}, {p0}, {p1})"
    return Op(name, text, python, params=unit_and_limit(rounded), raises=True), rounded


# --- Binding operators ----------------------------------------------------------------------------

_SAFE_DIGITS = 34  # of Scala's BigDecimal, by which Spark negates

_SYMBOLS = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.IntDiv: "DIV"}


def _arithmetic(binder: Binder, tree: Tree) -> Node:
    symbol = _SYMBOLS[type(tree)]
    left, right = binder.bind(tree.this), binder.bind(tree.expression)
    if left.type.kind == "NULL" and right.type.kind == "NULL":
        binder.refuse(tree, "NULL has no type here", "Write CAST(NULL AS INT).")
    if symbol == "/" and left.type.kind == "NULL" and is_decimal(right.type):
        left = Literal(None, DOUBLE)  # Spark looks at the dividend first
    left, right = _typed(left, right), _typed(right, left)
    if is_number(left.type) and is_number(right.type):
        return _numbers(binder, tree, symbol, left, right)
    return time_arithmetic(binder, tree, symbol, left, right)


def _typed(node: Node, other: Node) -> Node:
    """Return a NULL with the type of the other operand."""
    return Literal(None, other.type) if node.type.kind == "NULL" else node


def _numbers(binder: Binder, tree: Tree, symbol: str, left: Node, right: Node) -> Node:
    if symbol == "DIV":
        if not (is_integer(left.type) and is_integer(right.type)):
            binder.refuse(tree, "DIV is for integers", "CAST both sides to BIGINT, or use /.")
        return _same_type(binder, tree, integer_division(), (left, right), BIGINT)
    if is_float(left.type) or is_float(right.type):
        of = common_type([left.type, right.type]) or DOUBLE
    elif is_decimal(left.type) or is_decimal(right.type):
        return _decimals(binder, tree, symbol, left, right)
    else:
        of = common_type([left.type, right.type]) or BIGINT
    if symbol == "/":
        return _same_type(binder, tree, DIVIDE, (left, right), DOUBLE)
    return _same_type(binder, tree, operation(symbol, of), (left, right), of)


def _same_type(binder: Binder, tree: Tree, op: Op, args: tuple[Node, Node], of: SqlType) -> Node:
    return call(op, *(binder.coerce(tree, each, of) for each in args), of=of)


def _decimals(binder: Binder, tree: Tree, symbol: str, left: Node, right: Node) -> Node:
    left, right = (binder.coerce(tree, each, _decimal_of(each)) for each in (left, right))
    op, of = decimal_operation(symbol, left.type, right.type)
    return call(op, left, right, of=of)


def _decimal_of(node: Node) -> SqlType:
    """Return the DECIMAL of an operand: of an integer that was written out, as narrow as it is."""
    narrow = is_integer(node.type) and node.type.kind != "TINYINT"
    if isinstance(node, Literal) and node.number and narrow:
        return decimal_type(len(str(abs(node.value))), 0)
    return as_decimal(node.type)


def _negative(binder: Binder, tree: exp.Neg) -> Node:
    if isinstance(tree.this, exp.Literal) and not tree.this.is_string:
        made = literals.number("-" + tree.this.this)  # -2147483648 is an INTEGER, as in Spark
        return made or literals.bind_literal(binder, tree.this)
    if literals.is_suffixed(tree.this):
        return _negative_suffixed(binder, tree.this)
    node = binder.bind(tree.this)
    if node.type == INTERVAL:
        return call(NEGATIVE_INTERVAL, node, of=INTERVAL)
    return call(negative(_signed(binder, tree.this, node).type), node, of=node.type)


def _negative_suffixed(binder: Binder, tree: exp.Cast) -> Node:
    """Return ``-100L``: the minus is a part of the number, so that the least BIGINT is one."""
    target = target_of(binder, tree)
    number = literals.number("-" + tree.this.name)
    made = number and cast(number, target)
    if not isinstance(made, Literal):
        binder.refuse(
            tree, f"the number is out of the range of {target.sql}", "Write a smaller number."
        )
    # A DECIMAL, which numbers are read as, knows no -0.
    value = made.value or -0.0 if is_float(target) else made.value
    return Literal(value, target, number=True)


def _absolute(binder: Binder, tree: exp.Abs) -> Node:
    node = _signed(binder, tree.this, binder.bind(tree.this))
    return call(absolute(node.type), node, of=node.type)


def _signed(binder: Binder, tree: exp.Expr, node: Node) -> Node:
    if is_decimal(node.type) and node.type.arrow.precision > _SAFE_DIGITS:
        binder.refuse(
            tree,
            f"the sign of a {node.type.sql} cannot be changed exactly",
            f"Spark rounds it to {_SAFE_DIGITS} digits; write 0 - x, or CAST it to fewer digits.",
        )
    if not is_number(node.type):
        binder.mismatch(tree, f"expected a number, got {node.type.sql}", "CAST it to a number.")
    return node


# --- Binding functions ----------------------------------------------------------------------------


def _ceil_or_floor(binder: Binder, tree: Tree) -> Node:
    if tree.args.get("decimals") is not None or tree.args.get("to") is not None:
        binder.refuse(tree, "a second argument is not supported", "Scale the number, then round.")
    node, up = number_of(binder, tree.this), isinstance(tree, exp.Ceil)
    if is_integer(node.type):
        return binder.coerce(tree, node, BIGINT)
    if is_decimal(node.type):
        op, of = decimal_ceil_or_floor(node.type, up=up)
        return call(op, node, of=of)
    return call(ceil_or_floor(up=up), binder.coerce(tree, node, DOUBLE), of=BIGINT)


def _round(binder: Binder, tree: exp.Round) -> Node:
    node, places = number_of(binder, tree.this), tree.args.get("decimals")
    known = Literal(0, INTEGER) if places is None else binder.bind(places)
    if not isinstance(known, Literal) or not is_integer(known.type) or known.value is None:
        binder.refuse(tree, "ROUND needs a constant number of places", "Write ROUND(x, 2).")
    if not -30 <= known.value <= 38:
        binder.refuse(tree, "ROUND takes -30 to 38 places", "Write ROUND(x, 2).")
    found = rounding(node.type, known.value)
    if found is None:
        binder.refuse(
            tree, f"ROUND of {node.type.sql} is not exact", "CAST it AS DOUBLE or DECIMAL first."
        )
    op, of = found
    return call(op, node, of=of)


def _of_double(op: Op) -> Callable[[Binder, Tree], Node]:
    def bind(binder: Binder, tree: Tree) -> Node:
        node = number_of(binder, tree.this)
        return call(op, binder.coerce(tree, node, DOUBLE), of=DOUBLE)

    return bind


def _is_nan(binder: Binder, tree: exp.IsNan) -> Node:
    node = binder.coerce(tree, number_of(binder, tree.this), DOUBLE)
    return call(IS_NAN, node, of=BOOLEAN)


def _pmod(binder: Binder, tree: exp.Anonymous) -> Node:
    left, right = (binder.bind(each) for each in tree.expressions)
    left, right = _typed(left, right), _typed(right, left)
    if not (is_integer(left.type) and is_integer(right.type)):
        binder.refuse(tree, "PMOD is for integers", "CAST both sides to BIGINT.")
    of = common_type([left.type, right.type]) or BIGINT
    return _same_type(binder, tree, pmod(of), (left, right), of)


def number_of(binder: Binder, tree: exp.Expr) -> Node:
    """Return the node of a tree that must be a number."""
    node = binder.bind(tree)
    if not is_number(node.type):
        binder.mismatch(tree, f"expected a number, got {node.type.sql}", "CAST it to a number.")
    return node


BINDERS: dict[type, Callable[[Binder, Tree], Node]] = {
    **dict.fromkeys(_SYMBOLS, _arithmetic),
    exp.Neg: _negative,
    exp.Abs: _absolute,
    exp.Ceil: _ceil_or_floor,
    exp.Floor: _ceil_or_floor,
    exp.Round: _round,
    exp.Sqrt: _of_double(SQUARE_ROOT),
    exp.Sign: _of_double(SIGN),
    exp.IsNan: _is_nan,
}
NAMED: dict[str, Callable[[Binder, exp.Anonymous], Node]] = {"PMOD": _pmod}
