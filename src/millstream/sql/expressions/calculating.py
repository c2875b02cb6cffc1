"""Binding arithmetic: + - * / % DIV, on numbers and on times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.model.types import BIGINT, DATE, DOUBLE, INTERVAL, TIMESTAMP, SqlType, decimal_type
from millstream.sql.expressions import converting, literals, times
from millstream.sql.expressions.arithmetic import (
    DIVIDE,
    absolute,
    decimal_operation,
    negative,
    operation,
    whole_division,
)
from millstream.sql.expressions.fold import call, cast
from millstream.sql.expressions.kinds import (
    as_decimal,
    common_type,
    is_decimal,
    is_float,
    is_integer,
    is_number,
)
from millstream.sql.expressions.nodes import Literal, Node, Op, Tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.sql.expressions.bind import Binder

_SAFE_DIGITS = 34  # of Scala's BigDecimal, by which Spark negates

_SYMBOLS = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.IntDiv: "DIV"}


def _arithmetic(binder: Binder, tree: Tree) -> Node:
    symbol = _SYMBOLS[type(tree)]
    left, right = binder.bind(tree.this), binder.bind(tree.expression)
    if left.type.kind == "NULL" and right.type.kind == "NULL":
        binder.refuse(tree, "NULL has no type here", "Write CAST(NULL AS INT).")
    left, right = _typed(left, right), _typed(right, left)
    if is_number(left.type) and is_number(right.type):
        return _numbers(binder, tree, symbol, left, right)
    return _times(binder, tree, symbol, left, right)


def _typed(node: Node, other: Node) -> Node:
    """Return a NULL with the type of the other operand."""
    return Literal(None, other.type) if node.type.kind == "NULL" else node


def _numbers(binder: Binder, tree: Tree, symbol: str, left: Node, right: Node) -> Node:
    if symbol == "DIV":
        if not (is_integer(left.type) and is_integer(right.type)):
            binder.refuse(tree, "DIV is for integers", "CAST both sides to BIGINT, or use /.")
        return _same_type(binder, tree, whole_division(), (left, right), BIGINT)
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


def _times(binder: Binder, tree: Tree, symbol: str, left: Node, right: Node) -> Node:
    kinds = (left.type.kind, symbol, right.type.kind)
    if kinds in {("INTERVAL", "+", "TIMESTAMP"), ("INTERVAL", "+", "DATE")}:
        left, right, kinds = right, left, (kinds[2], "+", kinds[0])
    if kinds[0] == "DATE" and kinds[2] == "INTERVAL" and symbol in {"+", "-"}:
        return _date_and_interval(binder, tree, symbol, left)
    if kinds[0] == "DATE" and kinds[2] in {"TINYINT", "SMALLINT", "INTEGER"} and symbol in "+-":
        return call(times.add_days(symbol), left, right, of=DATE)
    if kinds in {("DATE", "-", "TIMESTAMP"), ("TIMESTAMP", "-", "DATE")}:
        left, right = (binder.coerce(tree, each, TIMESTAMP) for each in (left, right))
        kinds = ("TIMESTAMP", "-", "TIMESTAMP")
    found = times.OPERATIONS.get(kinds)
    if found is None:
        binder.mismatch(
            tree,
            f"{left.type.sql} {symbol} {right.type.sql} does not exist",
            "CAST one operand, or see whether parentheses are missing.",
        )
    op, of = found
    return call(op, left, right, of=of)


def _date_and_interval(binder: Binder, tree: Tree, symbol: str, left: Node) -> Node:
    side = tree.expression if left.type == DATE and not _is_interval(tree.this) else tree.this
    days = literals.whole_days(side) if isinstance(side, exp.Interval) else None
    if days is None:
        binder.refuse(
            tree,
            "to a DATE only days can be added",
            "Write INTERVAL '1' DAY, or CAST the DATE AS TIMESTAMP first.",
        )
    return call(times.add_days(symbol), left, literals.small_integer(days), of=DATE)


def _is_interval(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Interval)


def _negative(binder: Binder, tree: exp.Neg) -> Node:
    if isinstance(tree.this, exp.Literal) and not tree.this.is_string:
        made = literals.number("-" + tree.this.this)  # -2147483648 is an INTEGER, as in Spark
        return made or binder.literal(tree.this)
    if literals.is_suffixed(tree.this):
        return _negative_suffixed(binder, tree.this)
    node = binder.bind(tree.this)
    if node.type == INTERVAL:
        return call(times.NEGATIVE, node, of=INTERVAL)
    return call(negative(_number(binder, tree.this, node).type), node, of=node.type)


def _negative_suffixed(binder: Binder, tree: exp.Cast) -> Node:
    """Return ``-100L``: the minus is a part of the number, so that the least BIGINT is one."""
    target = converting.target_of(binder, tree)
    number = literals.number("-" + tree.this.name)
    made = number and cast(number, target)
    if not isinstance(made, Literal):
        binder.refuse(tree, f"this is no {target.sql}", "Write a smaller number.")
    # A DECIMAL, which numbers are read as, knows no -0.
    value = made.value or -0.0 if is_float(target) else made.value
    return Literal(value, target, number=True)


def _absolute(binder: Binder, tree: exp.Abs) -> Node:
    node = _number(binder, tree.this, binder.bind(tree.this))
    return call(absolute(node.type), node, of=node.type)


def _number(binder: Binder, tree: exp.Expr, node: Node) -> Node:
    if is_decimal(node.type) and node.type.arrow.precision > _SAFE_DIGITS:
        binder.refuse(
            tree,
            f"the sign of a {node.type.sql} cannot be changed exactly",
            f"Spark rounds it to {_SAFE_DIGITS} digits; write 0 - x, or CAST it to fewer digits.",
        )
    if not is_number(node.type):
        binder.mismatch(tree, f"expected a number, got {node.type.sql}", "CAST it to a number.")
    return node


BINDERS: dict[type, Callable[[Binder, Tree], Node]] = {
    **dict.fromkeys(_SYMBOLS, _arithmetic),
    exp.Neg: _negative,
    exp.Abs: _absolute,
}
