"""Binding CAST, and the ways into STRUCT, ARRAY and MAP."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from sqlglot import exp

from millstream.errors import SchemaError
from millstream.model.type_text import parse_type
from millstream.model.types import REAL
from millstream.sql.expressions import literals
from millstream.sql.expressions.casts import cast_op, try_cast_op
from millstream.sql.expressions.fold import call, cast
from millstream.sql.expressions.nodes import Literal, Node, Op, Tree
from millstream.sql.expressions.text import quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.model.types import SqlType
    from millstream.sql.expressions.bind import Binder


def _cast(binder: Binder, tree: Tree) -> Node:
    target = target_of(binder, tree)
    if any(tree.args.get(name) for name in ("format", "action", "default")):
        binder.refuse(tree, "CAST takes a type alone", "Write CAST(x AS TYPE).")
    node = binder.bind(tree.this)
    if node.type == target:
        return node
    if isinstance(node, Literal):
        known = _known(binder, tree, node, target)
        if known is not None:
            return known
    op = (try_cast_op if isinstance(tree, exp.TryCast) else cast_op)(node.type, target)
    if op is None:
        binder.refuse(
            tree,
            f"CAST of {node.type.sql} to {target.sql} is not exact, so it is not supported",
            "Cast in two steps, or convert before the row comes in.",
        )
    return call(op, node, of=target)


def _known(binder: Binder, tree: Tree, node: Literal, target: SqlType) -> Node | None:
    """Return the CAST of a literal, where more is known than of a column; None: no more is."""
    if node.value is None:
        return Literal(None, target)
    if node.type.kind == "VARCHAR" and target.kind in {"DATE", "TIMESTAMP"}:
        # TRY_CAST of a text that is none is refused, too: Spark reads more forms than we do.
        return binder.coerce(tree, node, target)
    if literals.is_suffixed(tree):
        return _suffixed(binder, tree, node, target)
    if target == REAL and isinstance(node.value, int) and abs(node.value) <= 1 << 24:
        return Literal(float(node.value), REAL)
    return None


def _suffixed(binder: Binder, tree: Tree, node: Literal, target: SqlType) -> Node:
    """Return a number with its type behind it, such as ``100Y``."""
    made = cast(node, target)
    if not isinstance(made, Literal) or made.value in {math.inf, -math.inf}:
        hint = f"It is out of the range of {target.sql}: leave the letters behind it out."
        binder.refuse(tree, f"the number {tree.this.name} is no {target.sql}", hint)
    return Literal(made.value, target, number=True)


def target_of(binder: Binder, tree: Tree) -> SqlType:
    """Return the type that a CAST is to."""
    text = tree.args["to"].sql(dialect="spark")
    try:
        return parse_type(text)
    except SchemaError as error:
        binder.mismatch(tree, error.message, error.hint)


# --- Nested ---------------------------------------------------------------------------------------


def struct_field(binder: Binder, tree: exp.Expr, node: Node, name: str) -> Node:
    """Return a field of a STRUCT."""
    if node.type.kind != "STRUCT":
        binder.mismatch(tree, f"{node.sql} is {node.type.sql}, and has no fields", "Leave it out.")
    names = [each.lower() for each in node.type.names]
    if name.lower() not in names:
        binder.no_field(tree, node, name)
    place = names.index(name.lower())
    exact, of = node.type.names[place], node.type.children[place]
    op = Op(
        f"FIELD {exact!r}",
        "{0}." + quoted(exact).replace("{", "{{").replace("}", "}}"),
        "{0}[{p0}]",
        lambda value: pc.struct_field(value, [place]),
        params=(exact,),
        partial=True,
    )
    return call(op, node, of=of)


def _dot(binder: Binder, tree: exp.Dot) -> Node:
    if not isinstance(tree.expression, exp.Identifier):
        binder.refuse(tree, "only fields can follow a point", "Write column.field.")
    return struct_field(binder, tree, binder.bind(tree.this), tree.expression.name)


def _bracket(binder: Binder, tree: exp.Bracket) -> Node:
    if len(tree.expressions) != 1 or tree.args.get("offset") or tree.args.get("safe"):
        binder.refuse(tree, "this way into an ARRAY is not supported", "Write a[0], or m['key'].")
    node, key = binder.bind(tree.this), binder.bind(tree.expressions[0])
    if node.type.kind == "ARRAY" and key.type.kind in {"TINYINT", "SMALLINT", "INTEGER"}:
        op = Op("ELEMENT", "{0}[{1}]", "element({0}, {1})", raises=True, partial=True)
        return call(op, node, key, of=node.type.children[0])
    if node.type.kind == "MAP" and node.type.children[0].kind not in {"REAL", "DOUBLE"}:
        key = binder.coerce(tree.expressions[0], key, node.type.children[0])
        op = Op("ENTRY", "{0}[{1}]", "{0}.get({1})", partial=True)
        return call(op, node, key, of=node.type.children[1])
    return binder.mismatch(
        tree, f"{node.type.sql}[{key.type.sql}] does not exist", "Brackets are for ARRAY and MAP."
    )


BINDERS: dict[type, Callable[[Binder, Tree], Node]] = {
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Dot: _dot,
    exp.Bracket: _bracket,
}
