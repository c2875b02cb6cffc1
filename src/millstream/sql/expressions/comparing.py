"""Binding comparisons: =, <, BETWEEN, IN and their kin."""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.model.types import BOOLEAN, SqlType
from millstream.sql.expressions.comparisons import SWAPPED, comparison, null_safe_equal
from millstream.sql.expressions.fold import call
from millstream.sql.expressions.kinds import (
    integer_of,
    integer_range,
    is_decimal,
    is_float,
    is_integer,
)
from millstream.sql.expressions.nodes import (
    Among,
    Both,
    Either,
    Inverse,
    Literal,
    Node,
    Tree,
    Value,
    joined,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.sql.expressions.bind import Binder

_SYMBOLS = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}


def compare(binder: Binder, tree: exp.Expr, symbol: str, left: Node, right: Node) -> Node:
    """Return the comparison of two nodes, brought to one type."""
    # A NULL stays on the left, where it keeps the right side from being evaluated.
    if isinstance(left, Literal) and left.value is not None and not isinstance(right, Literal):
        left, right, symbol = right, left, SWAPPED[symbol]
    symbol, right = _integer_bound(binder, tree, symbol, left, right)
    right = _fitted(left, right)
    of = comparable(binder, tree, [left, right])
    if of.kind == "NULL":
        return Literal(None, BOOLEAN)
    left, right = binder.coerce(tree, left, of), binder.coerce(tree, right, of)
    known = isinstance(right, Literal) and not _is_nan(right.value)
    return call(comparison(symbol, of, number_on_the_right=known), left, right, of=BOOLEAN)


def comparable(binder: Binder, tree: exp.Expr, nodes: list[Node]) -> SqlType:
    """Return the common type of nodes that are to be compared."""
    of = binder.common(tree, nodes, compared=True)
    if of.children:
        binder.refuse(tree, f"{of.sql} cannot be compared", "Compare its elements or fields.")
    return of


def _integer_bound(
    binder: Binder, tree: exp.Expr, symbol: str, left: Node, right: Node
) -> tuple[str, Node]:
    """Return the comparison of an integer with 1.5 as one with 1: the same, and far cheaper."""
    if not (is_integer(left.type) and isinstance(right, Literal) and is_decimal(right.type)):
        return symbol, right
    if right.value is None:
        return symbol, right
    floor = int(right.value.to_integral_value(ROUND_FLOOR))
    if integer_of(floor) is None and symbol not in {"=", "<>"}:
        # Spark says TRUE or FALSE here even of NULL.
        binder.refuse(tree, f"no integer is as large as {floor}", "Leave the comparison out.")
    low, high = integer_range(left.type)
    if not low <= floor <= high:
        return symbol, right
    if Decimal(floor) != right.value:
        if symbol in {"=", "<>"}:
            return symbol, right
        symbol = ">" if symbol in {">", ">="} else "<="
    return symbol, Literal(floor, left.type)


def _fitted(left: Node, right: Node) -> Node:
    """Return a literal in the narrower type of the column that it is compared with, if it fits."""
    if isinstance(right, Literal) and is_integer(left.type) and is_integer(right.type):
        low, high = integer_range(left.type)
        if right.value is not None and low <= right.value <= high:
            return Literal(right.value, left.type)
    return right


def _is_nan(value: Value) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _compare(binder: Binder, tree: Tree) -> Node:
    left, right = binder.bind(tree.this), binder.bind(tree.expression)
    return compare(binder, tree, _SYMBOLS[type(tree)], left, right)


def _null_safe(binder: Binder, tree: Tree) -> Node:
    left, right = binder.bind(tree.this), binder.bind(tree.expression)
    of = comparable(binder, tree, [left, right])
    if of.kind == "NULL":
        return Literal(True, BOOLEAN)
    left, right = binder.coerce(tree, left, of), binder.coerce(tree, right, of)
    return call(null_safe_equal(of), left, right, of=BOOLEAN)


def _between(binder: Binder, tree: Tree) -> Node:
    value = binder.bind(tree.this)
    low, high = binder.bind(tree.args["low"]), binder.bind(tree.args["high"])
    return Both(compare(binder, tree, ">=", value, low), compare(binder, tree, "<=", value, high))


def _among(binder: Binder, tree: exp.In) -> Node:
    if not tree.expressions:
        binder.refuse(tree, "IN takes a list of values", "Write IN (1, 2, 3).")
    value = binder.bind(tree.this)
    items = [binder.bind(each) for each in tree.expressions]
    of = comparable(binder, tree, [value, *(_fitted(value, each) for each in items)])
    if of.kind == "NULL":
        return Literal(None, BOOLEAN)
    value = binder.coerce(tree, value, of)
    items = [
        binder.coerce(at, _fitted(value, each), of)
        for at, each in zip(tree.expressions, items, strict=True)
    ]
    if is_float(of) or not all(isinstance(each, Literal) for each in items):
        return _any_of(binder, tree, value, items)
    values = dict.fromkeys(each.value for each in items if isinstance(each, Literal))
    with_null = None in values
    values.pop(None, None)
    if isinstance(value, Literal):
        return _any_of(binder, tree, value, items)
    if len(values) == 1 and not with_null:
        return compare(binder, tree, "=", value, Literal(next(iter(values)), of))
    return Among(value, tuple(values), with_null)


def _any_of(binder: Binder, tree: exp.Expr, value: Node, items: list[Node]) -> Node:
    """Return IN as a chain of OR: for floats, whose NaN no set finds, and for lists of columns."""
    if value.raises or any(each.raises for each in items):
        binder.refuse(
            tree, "IN with parts that can fail is not supported", "Write a = b OR a = c instead."
        )
    return joined(Either, [compare(binder, tree, "=", value, each) for each in items])


def _not_equal_null_safe(binder: Binder, tree: Tree) -> Node:
    return Inverse(_null_safe(binder, tree))


BINDERS: dict[type, Callable[[Binder, Tree], Node]] = {
    **dict.fromkeys(_SYMBOLS, _compare),
    exp.NullSafeEQ: _null_safe,
    exp.NullSafeNEQ: _not_equal_null_safe,
    exp.Between: _between,
    exp.In: _among,
}
