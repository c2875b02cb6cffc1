"""Constant folding: ``call`` makes nodes, and evaluates at once what depends on no column."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import ExpressionError
from millstream.model.types import BOOLEAN
from millstream.sql.expressions.nodes import Call, IsNull, Literal, Node, Op, Value
from millstream.sql.expressions.to_python import PythonForm, compile_function

if TYPE_CHECKING:
    from millstream.model.types import SqlType


def evaluate(node: Node) -> Value:
    """Return the value of a node that has no columns in it.

    Raises:
        ExpressionError: it has none.
    """
    if isinstance(node, Literal):
        return node.value
    form = PythonForm()
    text = form.value(node)
    return compile_function("", text, form.names, raises=node.raises)()


def call(op: Op, *args: Node, of: SqlType) -> Node:
    """Return an operation on arguments; its value when they are all known and it has one."""
    node = Call(op, args, of)
    missing = [each for each in args if isinstance(each, Literal) and each.value is None]
    if op.strict and missing and not any(each.raises for each in args):
        return Literal(None, of)
    if not all(isinstance(each, Literal) for each in args):
        return node
    try:
        return Literal(evaluate(node), of)
    except ExpressionError:
        return node  # it raises when, and only when, a row reaches it


def is_null(node: Node) -> Node:
    """Return whether a node is NULL."""
    return Literal(node.value is None, BOOLEAN) if isinstance(node, Literal) else IsNull(node)
