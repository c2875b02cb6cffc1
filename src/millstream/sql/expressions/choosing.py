"""Binding what chooses among values: CASE, IF, COALESCE, NULLIF, GREATEST and LEAST."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.model.types import VARCHAR
from millstream.sql.expressions import numbers
from millstream.sql.expressions.comparing import comparable, compare
from millstream.sql.expressions.fold import call, is_null
from millstream.sql.expressions.nodes import Choice, FirstOf, Inverse, Literal, Node, Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.sql.expressions.bind import Binder


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
    return choice(binder, tree, conditions, values)


def choice(binder: Binder, tree: exp.Expr, conditions: Sequence[Node], values: list[Node]) -> Node:
    """Return CASE; there is one value more than there are conditions."""
    of = binder.common(tree, values)
    values = [binder.coerce(tree, each, of) for each in values]
    return Choice(tuple(zip(conditions, values[:-1], strict=True)), values[-1], of)


def _if(binder: Binder, tree: exp.If) -> Node:
    values = [binder.bind(tree.args.get(each)) for each in ("true", "false")]
    return choice(binder, tree, [binder.bind_boolean(tree.this)], values)


def _first_of(binder: Binder, tree: exp.Coalesce) -> Node:
    nodes = [binder.bind(each) for each in (tree.this, *tree.expressions)]
    of = binder.common(tree, nodes)
    nodes = [binder.coerce(tree, each, of) for each in nodes]
    return nodes[0] if len(nodes) == 1 else FirstOf(tuple(nodes), of)


def _null_if(binder: Binder, tree: exp.Nullif) -> Node:
    left, right = binder.bind(tree.this), binder.bind(tree.expression)
    same = compare(binder, tree, "=", left, right)
    return Choice(((same, Literal(None, left.type)),), left, left.type)


def _nvl2(binder: Binder, tree: exp.Nvl2) -> Node:
    values = [binder.bind(tree.args.get(each)) for each in ("true", "false")]
    return choice(binder, tree, [Inverse(is_null(binder.bind(tree.this)))], values)


def _extreme(binder: Binder, tree: Tree) -> Node:
    nodes = [binder.bind(each) for each in (tree.this, *tree.expressions)]
    if len(nodes) < 2:
        binder.mismatch(tree, "two values at least are needed", "Name several columns.")
    of = comparable(binder, tree, nodes)
    if of != VARCHAR and any(each.type == VARCHAR for each in nodes):
        what = f"{of.sql} and VARCHAR cannot be compared here"
        binder.mismatch(tree, what, f"Write {of.sql} '...', or CAST it.")
    nodes = [binder.coerce(tree, each, of) for each in nodes]
    greatest = isinstance(tree, exp.Greatest)
    return call(numbers.extreme(of, len(nodes), greatest=greatest), *nodes, of=of)


BINDERS: dict[type, Callable[[Binder, Tree], Node]] = {
    exp.Case: _case,
    exp.If: _if,
    exp.Coalesce: _first_of,
    exp.Nullif: _null_if,
    exp.Nvl2: _nvl2,
    exp.Greatest: _extreme,
    exp.Least: _extreme,
}
