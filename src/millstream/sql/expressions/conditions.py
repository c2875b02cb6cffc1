"""Conditions and choices: comparisons, IN, AND and OR, CASE, COALESCE, GREATEST and their kin.

The order is Spark's, in which NaN equals itself and is greater than all other numbers.
"""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, Any, TypeGuard

import pyarrow.compute as pc
from sqlglot import exp

from millstream.model.types import BIGINT, BOOLEAN, DOUBLE, VARCHAR, SqlType
from millstream.sql.expressions import kernels
from millstream.sql.expressions.fold import call, is_null
from millstream.sql.expressions.literals import compared_text
from millstream.sql.expressions.nodes import (
    And,
    Case,
    Coalesce,
    Datum,
    InList,
    IsTrue,
    Literal,
    Node,
    Not,
    Op,
    Or,
    Tree,
    Value,
    joined,
)
from millstream.sql.expressions.type_rules import (
    common_type,
    integer_of,
    integer_range,
    is_decimal,
    is_float,
    is_integer,
    is_number,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.sql.expressions.bind import Binder

    Kernel = Callable[[Any, Any], Any]


# --- Operations -----------------------------------------------------------------------------------

SWAPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""What a comparison becomes when its sides change places."""

_PLAIN: dict[str, tuple[str, Kernel]] = {
    "=": ("{0} == {1}", pc.equal),
    "<>": ("{0} != {1}", pc.not_equal),
    "<": ("{0} < {1}", pc.less),
    "<=": ("{0} <= {1}", pc.less_equal),
    ">": ("{0} > {1}", pc.greater),
    ">=": ("{0} >= {1}", pc.greater_equal),
}

# IEEE says no to every order with a NaN; so x > 1 is what x <= 1 is not.
_NUMBER_ON_THE_RIGHT: dict[str, tuple[str, Kernel]] = {
    **_PLAIN,
    ">": ("not {0} <= {1}", lambda left, right: pc.invert(pc.less_equal(left, right))),
    ">=": ("not {0} < {1}", lambda left, right: pc.invert(pc.less(left, right))),
}


def _same(left: Datum, right: Datum) -> Datum:
    both_nan = pc.and_(pc.is_nan(left), pc.is_nan(right))
    return pc.or_(pc.equal(left, right), both_nan)


def _less(left: Datum, right: Datum) -> Datum:
    return pc.and_(pc.invert(pc.is_nan(left)), pc.invert(pc.greater_equal(left, right)))


def _less_equal(left: Datum, right: Datum) -> Datum:
    return pc.or_(pc.is_nan(right), pc.greater_equal(right, left))


_FLOATS: dict[str, tuple[str, Kernel]] = {
    "=": ("({0} == {1} or ({0} != {0} and {1} != {1}))", _same),
    "<>": (
        "not ({0} == {1} or ({0} != {0} and {1} != {1}))",
        lambda left, right: pc.invert(_same(left, right)),
    ),
    "<": ("({0} == {0} and not {0} >= {1})", _less),
    "<=": ("({1} != {1} or {1} >= {0})", _less_equal),
    ">": ("({1} == {1} and not {1} >= {0})", lambda left, right: _less(right, left)),
    ">=": ("({0} != {0} or {0} >= {1})", lambda left, right: _less_equal(right, left)),
}


def comparison(symbol: str, of: SqlType, *, number_on_the_right: bool) -> Op:
    """Return the comparison of two values of one type.

    Args:
        symbol: one of ``SWAPPED``.
        of: the type of both sides.
        number_on_the_right: whether the right side is known, and no NaN.
    """
    forms = _PLAIN
    if is_float(of):
        forms = _NUMBER_ON_THE_RIGHT if number_on_the_right else _FLOATS
    python, arrow = forms[symbol]
    return Op(
        f"{symbol} {of.sql}",
        f"{{0}} {symbol} {{1}}",
        python,
        arrow,
        null_is_false=python == "{0} == {1}",
    )


def null_safe_equal(of: SqlType) -> Op:
    """Return ``<=>``, for which NULL is a value like any other."""
    kernel = _same if is_float(of) else pc.equal

    def same(left: Datum, right: Datum) -> Datum:
        both = pc.and_(pc.is_null(left), pc.is_null(right))
        return pc.fill_null(pc.or_kleene(both, pc.fill_null(kernel(left, right), False)), False)

    python = "same({0}, {1})" if is_float(of) else "({0} == {1})"
    return Op(f"<=> {of.sql}", "{0} <=> {1}", python, same, strict=False)


def extreme(of: SqlType, count: int, *, greatest: bool) -> Op:
    """Return GREATEST or LEAST, which pass over NULLs."""
    name = "GREATEST" if greatest else "LEAST"
    inner = ", ".join(f"{{{place}}}" for place in range(count))
    better = comparison(">" if greatest else "<", of, number_on_the_right=False).arrow
    assert better is not None  # noqa: S101 - comparisons are never left to Python

    def arrow(*values: Datum) -> Datum:
        best = values[0]
        for value in values[1:]:
            best = kernels.pick(best, value, better(value, best))
        return best

    return Op(
        f"{name} {of.sql} {count}",
        f"{name}({inner})",
        f"{name.lower()}({inner})",
        arrow,
        strict=False,
        partial=True,
    )


# --- Binding comparisons --------------------------------------------------------------------------

_SYMBOLS = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}


def compare(binder: Binder, tree: exp.Expr, symbol: str, left: Node, right: Node) -> Node:
    """Return the comparison of two nodes, brought to one type."""
    left, right = promoted(binder, tree, [left, right])
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


def promoted(binder: Binder, tree: exp.Expr, nodes: list[Node]) -> list[Node]:
    """Return nodes with text literals beside numbers and BOOLEANs converted as Spark does it."""
    others = [each.type for each in nodes if not _is_text(each)]
    of = common_type(others) if len(others) < len(nodes) else None
    if of is None:
        return nodes
    target = BIGINT if is_integer(of) else DOUBLE if is_number(of) else of
    if target not in {BIGINT, DOUBLE, BOOLEAN}:
        return nodes
    return [compared_text(binder, tree, each, target) if _is_text(each) else each for each in nodes]


def _is_text(node: Node) -> TypeGuard[Literal]:
    return isinstance(node, Literal) and node.type == VARCHAR


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
    return And(compare(binder, tree, ">=", value, low), compare(binder, tree, "<=", value, high))


def _in_list(binder: Binder, tree: exp.In) -> Node:
    if not tree.expressions:
        binder.refuse(tree, "IN takes a list of values", "Write IN (1, 2, 3).")
    value, *items = promoted(
        binder, tree, [binder.bind(each) for each in (tree.this, *tree.expressions)]
    )
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
    return InList(value, tuple(values), with_null)


def _any_of(binder: Binder, tree: exp.Expr, value: Node, items: list[Node]) -> Node:
    """Return IN as a chain of OR: for floats, whose NaN no set finds, and for lists of columns."""
    if value.raises or any(each.raises for each in items):
        binder.refuse(
            tree, "IN with parts that can fail is not supported", "Write a = b OR a = c instead."
        )
    return joined(Or, [compare(binder, tree, "=", value, each) for each in items])


def _not_equal_null_safe(binder: Binder, tree: Tree) -> Node:
    return Not(_null_safe(binder, tree))


# --- Binding logic --------------------------------------------------------------------------------


def _and(binder: Binder, tree: exp.And) -> Node:
    return joined(And, [binder.bind_boolean(each) for each in tree.flatten(unnest=False)])


def _or(binder: Binder, tree: exp.Or) -> Node:
    return joined(Or, [binder.bind_boolean(each) for each in tree.flatten(unnest=False)])


def _not(binder: Binder, tree: exp.Not) -> Node:
    return Not(binder.bind_boolean(tree.this))


def _is_something(binder: Binder, tree: exp.Is) -> Node:
    if isinstance(tree.expression, exp.Null):
        node: Node = is_null(binder.bind(tree.this))
    elif isinstance(tree.expression, exp.Boolean):
        node = IsTrue(binder.bind_boolean(tree.this), tree.expression.this)
    else:
        binder.refuse(tree, "IS takes NULL, TRUE or FALSE", "Write a = b, or a <=> b.")
    return Not(node) if tree.args.get("negate") else node


# --- Binding choices ------------------------------------------------------------------------------


def _case(binder: Binder, tree: exp.Case) -> Node:
    subject = None if tree.this is None else binder.bind(tree.this)
    conditions, values = [], []
    for each in tree.args["ifs"]:
        if subject is None:
            conditions.append(binder.bind_boolean(each.this))
        else:
            conditions.append(compare(binder, each, "=", subject, binder.bind(each.this)))
        values.append(binder.bind(each.args["true"]))
    default = tree.args.get("default")
    values.append(Literal(None, values[0].type) if default is None else binder.bind(default))
    return case_of(binder, tree, conditions, values)


def case_of(binder: Binder, tree: exp.Expr, conditions: Sequence[Node], values: list[Node]) -> Node:
    """Return CASE; there is one value more than there are conditions."""
    of = binder.common(tree, values)
    values = [binder.coerce(tree, each, of) for each in values]
    return Case(tuple(zip(conditions, values[:-1], strict=True)), values[-1], of)


def _if(binder: Binder, tree: exp.If) -> Node:
    values = [binder.bind(tree.args.get(each)) for each in ("true", "false")]
    return case_of(binder, tree, [binder.bind_boolean(tree.this)], values)


def _coalesce(binder: Binder, tree: exp.Coalesce) -> Node:
    nodes = [binder.bind(each) for each in (tree.this, *tree.expressions)]
    of = binder.common(tree, nodes)
    nodes = [binder.coerce(tree, each, of) for each in nodes]
    return nodes[0] if len(nodes) == 1 else Coalesce(tuple(nodes), of)


def _null_if(binder: Binder, tree: exp.Nullif) -> Node:
    left, right = binder.bind(tree.this), binder.bind(tree.expression)
    same = compare(binder, tree, "=", left, right)
    return Case(((same, Literal(None, left.type)),), left, left.type)


def _nvl2(binder: Binder, tree: exp.Nvl2) -> Node:
    values = [binder.bind(tree.args.get(each)) for each in ("true", "false")]
    return case_of(binder, tree, [Not(is_null(binder.bind(tree.this)))], values)


def _extreme(binder: Binder, tree: Tree) -> Node:
    nodes = [binder.bind(each) for each in (tree.this, *tree.expressions)]
    if len(nodes) < 2:
        binder.mismatch(tree, "two or more values are needed", "Add another argument.")
    of = comparable(binder, tree, nodes)
    if of != VARCHAR and any(each.type == VARCHAR for each in nodes):
        what = f"{of.sql} and VARCHAR cannot be compared here"
        binder.mismatch(tree, what, f"Write {of.sql} '...', or CAST it.")
    nodes = [binder.coerce(tree, each, of) for each in nodes]
    greatest = isinstance(tree, exp.Greatest)
    return call(extreme(of, len(nodes), greatest=greatest), *nodes, of=of)


BINDERS: dict[type, Callable[[Binder, Tree], Node]] = {
    **dict.fromkeys(_SYMBOLS, _compare),
    exp.NullSafeEQ: _null_safe,
    exp.NullSafeNEQ: _not_equal_null_safe,
    exp.Between: _between,
    exp.In: _in_list,
    exp.And: _and,
    exp.Or: _or,
    exp.Not: _not,
    exp.Is: _is_something,
    exp.Case: _case,
    exp.If: _if,
    exp.Coalesce: _coalesce,
    exp.Nullif: _null_if,
    exp.Nvl2: _nvl2,
    exp.Greatest: _extreme,
    exp.Least: _extreme,
}
