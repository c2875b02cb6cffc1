"""Bits of integers: ``& | ^ ~``, shifts and BIT_COUNT, each operation with its binding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
from sqlglot import exp

from millstream.model.types import BIGINT, INTEGER
from millstream.sql.expressions.fold import call
from millstream.sql.expressions.nodes import Literal, Node, Op, Tree
from millstream.sql.expressions.type_rules import common_type, is_integer

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.model.types import SqlType
    from millstream.sql.expressions.bind import Binder


# --- Operations -----------------------------------------------------------------------------------

_SYMBOLS: dict[type, tuple[str, Callable[..., Any]]] = {
    exp.BitwiseAnd: ("&", pc.bit_wise_and),
    exp.BitwiseOr: ("|", pc.bit_wise_or),
    exp.BitwiseXor: ("^", pc.bit_wise_xor),
}


def shift_left(value: int, by: int, bits: int) -> int:
    """Return an integer shifted to the left; what leaves its bits is lost, as in Java.

    >>> shift_left(1, 31, 32), shift_left(1, 33, 32)
    (-2147483648, 2)
    """
    return _signed(value << (by & (bits - 1)), bits)


def shift_right_unsigned(value: int, by: int, bits: int) -> int:
    """Return an integer shifted to the right, with zeros from the left.

    >>> shift_right_unsigned(-1, 28, 32)
    15
    """
    return _signed((value & ((1 << bits) - 1)) >> (by & (bits - 1)), bits)


def _signed(value: int, bits: int) -> int:
    half = 1 << (bits - 1)
    return ((value + half) & ((1 << bits) - 1)) - half


def count_bits(value: int) -> int:
    """Return how many bits of 64 are set, whatever the type was, as in Spark.

    >>> count_bits(5), count_bits(-1)
    (2, 64)
    """
    return (value & ((1 << 64) - 1)).bit_count()


_SHIFTS = {
    "SHIFTLEFT": "{p0}({0}, {1}, {p1})",
    "SHIFTRIGHT": "{0} >> ({1} & {p1})",
    "SHIFTRIGHTUNSIGNED": "{p0}({0}, {1}, {p1})",
}
_SHIFTERS = {"SHIFTLEFT": shift_left, "SHIFTRIGHTUNSIGNED": shift_right_unsigned}


def shift(name: str, of: SqlType) -> Op:
    """Return a shift of an INTEGER or BIGINT."""
    bits = of.arrow.bit_width
    shifter = _SHIFTERS.get(name)
    params = (None, bits - 1) if shifter is None else (shifter, bits)
    return Op(f"{name} {of.sql}", f"{name}({{0}}, {{1}})", _SHIFTS[name], params=params)


COUNT = Op("BIT_COUNT", "BIT_COUNT({0})", "{p0}({0})", params=(count_bits,))


# --- Binding --------------------------------------------------------------------------------------


def _bitwise(binder: Binder, tree: Tree) -> Node:
    symbol, kernel = _SYMBOLS[type(tree)]
    nodes = [_integer(binder, each) for each in (tree.this, tree.expression)]
    # A NULL has the type of the other one.
    typed = [each.type for each in nodes if not (isinstance(each, Literal) and each.nullable)]
    of = common_type(typed) or INTEGER
    op = Op(f"{symbol} {of.sql}", f"{{0}} {symbol} {{1}}", f"{{0}} {symbol} {{1}}", kernel)
    return call(op, *(binder.coerce(tree, each, of) for each in nodes), of=of)


def _not(binder: Binder, tree: exp.BitwiseNot) -> Node:
    node = _integer(binder, tree.this)
    return call(Op(f"~ {node.type.sql}", "~{0}", "~{0}", pc.bit_wise_not), node, of=node.type)


def _integer(binder: Binder, tree: exp.Expr) -> Node:
    node = binder.bind(tree)
    if node.type.kind == "NULL":
        return Literal(None, INTEGER)
    if not is_integer(node.type):
        binder.mismatch(tree, f"expected an integer, got {node.type.sql}", "CAST it AS BIGINT.")
    return node


def _shift(binder: Binder, name: str, left: exp.Expr, right: exp.Expr) -> Node:
    value, by = _integer(binder, left), _integer(binder, right)
    of = BIGINT if value.type == BIGINT else INTEGER
    if by.type == BIGINT:
        binder.mismatch(right, "expected INTEGER, got BIGINT", "CAST it AS INTEGER.")
    args = (binder.coerce(left, value, of), binder.coerce(right, by, INTEGER))
    return call(shift(name, of), *args, of=of)


def _shift_operator(name: str) -> Callable[[Binder, Tree], Node]:
    return lambda binder, tree: _shift(binder, name, tree.this, tree.expression)


def _shift_function(name: str) -> Callable[[Binder, exp.Anonymous], Node]:
    return lambda binder, tree: _shift(binder, name, *tree.expressions)


def _count(binder: Binder, tree: exp.Anonymous) -> Node:
    [arg] = tree.expressions
    node = binder.bind(arg)
    if node.type.kind != "BOOLEAN":
        node = _integer(binder, arg)
    return call(COUNT, node, of=INTEGER)


BINDERS: dict[type, Callable[[Binder, Tree], Node]] = {
    **dict.fromkeys(_SYMBOLS, _bitwise),
    exp.BitwiseNot: _not,
    exp.BitwiseLeftShift: _shift_operator("SHIFTLEFT"),
    exp.BitwiseRightShift: _shift_operator("SHIFTRIGHT"),
}
NAMED: dict[str, Callable[[Binder, exp.Anonymous], Node]] = {
    **{name: _shift_function(name) for name in _SHIFTS},
    "BIT_COUNT": _count,
}
