"""Binding the functions of text, and LIKE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.model.types import BOOLEAN, INTEGER, VARCHAR
from millstream.sql.expressions import texts
from millstream.sql.expressions.fold import call
from millstream.sql.expressions.nodes import Inverse, Literal, Node, Op, Tree, Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.model.types import SqlType
    from millstream.sql.expressions.bind import Binder


def text_of(binder: Binder, tree: exp.Expr) -> Node:
    """Return the node of a tree that must be text."""
    node = binder.bind(tree)
    if node.type.kind == "NULL":
        return Literal(None, VARCHAR)
    if node.type != VARCHAR:
        binder.mismatch(tree, f"expected VARCHAR, got {node.type.sql}", "CAST it AS VARCHAR.")
    return node


def _known(node: Node) -> Value:
    return node.value if isinstance(node, Literal) else None


def _of_text(op: Op, of: SqlType = VARCHAR) -> Callable[[Binder, Tree], Node]:
    return lambda binder, tree: call(op, text_of(binder, tree.this), of=of)


def _length(binder: Binder, tree: exp.Length) -> Node:
    node = binder.bind(tree.this)
    if node.type.kind == "BINARY":
        return call(texts.OCTETS, node, of=INTEGER)
    return call(texts.LENGTH, text_of(binder, tree.this), of=INTEGER)


def trim(binder: Binder, tree: exp.Trim) -> Node:
    """Return TRIM, from one side or both."""
    characters = tree.expression
    known = Literal(" ", VARCHAR) if characters is None else text_of(binder, characters)
    if not isinstance(known, Literal) or known.value is None:
        binder.refuse(tree, "TRIM needs known characters", "Write TRIM(BOTH 'x' FROM text).")
    side = str(tree.args.get("position") or "BOTH").upper()
    return call(texts.trim(side, known.value), text_of(binder, tree.this), of=VARCHAR)


def _substring(binder: Binder, tree: exp.Substring) -> Node:
    text, length = text_of(binder, tree.this), tree.args.get("length")
    args = [_integer(binder, tree.args.get("start"))]
    if length is not None:
        args.append(_integer(binder, length))
    return _part(text, *args)


def _part(text: Node, *args: Node) -> Node:
    size = _known(args[1]) if len(args) > 1 else None
    op = texts.substring(_known(args[0]), size, has_length=len(args) > 1)
    return call(op, text, *args, of=VARCHAR)


def _left(binder: Binder, tree: exp.Left) -> Node:
    return _part(text_of(binder, tree.this), Literal(1, INTEGER), _integer(binder, tree.expression))


def _integer(binder: Binder, tree: exp.Expr | None) -> Node:
    node = binder.bind(tree)
    place = tree or exp.Null()
    if node.type.kind not in {"NULL", "TINYINT", "SMALLINT", "INTEGER"}:
        binder.mismatch(place, f"expected INTEGER, got {node.type.sql}", "CAST it AS INTEGER.")
    return binder.coerce(place, node, INTEGER)


def _concat(binder: Binder, tree: Tree) -> Node:
    trees = tree.expressions if isinstance(tree, exp.Concat) else [tree.this, tree.expression]
    nodes = [binder.coerce(each, binder.bind(each), VARCHAR) for each in trees]
    return nodes[0] if len(nodes) == 1 else call(texts.concat(len(nodes)), *nodes, of=VARCHAR)


def _search(name: str) -> Callable[[Binder, Tree], Node]:
    def bind(binder: Binder, tree: Tree) -> Node:
        text, part = text_of(binder, tree.this), text_of(binder, tree.expression)
        return call(texts.search(name, _known(part)), text, part, of=BOOLEAN)

    return bind


def _replace(binder: Binder, tree: exp.Replace) -> Node:
    text, old = text_of(binder, tree.this), text_of(binder, tree.expression)
    other = tree.args.get("replacement")
    new = Literal("", VARCHAR) if other is None else text_of(binder, other)
    return call(texts.replacement(_known(old), _known(new)), text, old, new, of=VARCHAR)


def _like(binder: Binder, tree: Tree, escape: str = "\\") -> Node:
    if isinstance(tree.expression, (exp.Any, exp.All)):
        binder.refuse(tree, "LIKE ANY and ALL are not supported", "Write several LIKE with OR.")
    text, pattern = text_of(binder, tree.this), text_of(binder, tree.expression)
    if not isinstance(pattern, Literal):
        binder.refuse(
            tree,
            "LIKE needs a known pattern",
            "Use STARTSWITH, ENDSWITH or CONTAINS of two columns.",
        )
    if pattern.value is None:
        return Literal(None, BOOLEAN)
    known = pattern.value
    if isinstance(tree, exp.ILike):
        known, text = known.lower(), call(texts.LOWER, text, of=VARCHAR)
    try:
        node = call(texts.like(known, escape), text, of=BOOLEAN)
    except texts.PatternError:
        binder.refuse(
            tree,
            f"in the pattern, {escape} does not stand before %, _ or {escape}",
            f"Write {escape}{escape} for the character itself.",
        )
    return Inverse(node) if tree.args.get("negate") else node


def _escape(binder: Binder, tree: exp.Escape) -> Node:
    mark = tree.expression.name if isinstance(tree.expression, exp.Literal) else ""
    if not isinstance(tree.this, (exp.Like, exp.ILike)) or len(mark) != 1 or mark in "%_":
        binder.refuse(tree, "ESCAPE takes one character", "Write LIKE '5!%' ESCAPE '!'.")
    return _like(binder, tree.this, mark)


BINDERS: dict[type, Callable[[Binder, Tree], Node]] = {
    exp.Upper: _of_text(texts.UPPER),
    exp.Lower: _of_text(texts.LOWER),
    exp.Reverse: _of_text(texts.REVERSE),
    exp.Length: _length,
    exp.Trim: trim,
    exp.Substring: _substring,
    exp.Left: _left,
    exp.Concat: _concat,
    exp.DPipe: _concat,
    exp.StartsWith: _search("STARTSWITH"),
    exp.EndsWith: _search("ENDSWITH"),
    exp.Contains: _search("CONTAINS"),
    exp.Replace: _replace,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _escape,
}
