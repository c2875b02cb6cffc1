"""Assignment: what INSERT and UPDATE may put into a column, which is less than what CAST may."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.errors import SchemaMismatchError
from millstream.model.types import VARCHAR
from millstream.sql.expressions.failures import missing
from millstream.sql.expressions.fold import call, cast
from millstream.sql.expressions.kinds import as_decimal, is_decimal, is_float, is_integer, is_number
from millstream.sql.expressions.nodes import Datum, Literal, Node, Op

if TYPE_CHECKING:
    from sqlglot import exp

    from millstream.model.types import SqlType
    from millstream.sql.expressions.bind import Binder


def assign(binder: Binder, tree: exp.Expr, node: Node, target: SqlType, where: str) -> Node:
    """Return a node as a value of a column.

    Known numbers are taken if the column can hold them; others only if it can hold all of them.

    Args:
        binder: for errors.
        tree: what the node was made of.
        node: the value.
        target: the type of the column.
        where: the column, and perhaps the row, for errors.
    """
    if node.type == target:
        return node
    if isinstance(node, Literal):
        return _known(binder, tree, node, target, where)
    if _holds_all(target, node.type):
        made = cast(node, target)
        if made is not None:
            return made
    return binder.mismatch(
        tree,
        f"{where}: expected {target.sql}, got {node.type.sql}",
        f"Write CAST(... AS {target.sql}) if it may be converted.",
    )


def _known(binder: Binder, tree: exp.Expr, node: Literal, target: SqlType, where: str) -> Literal:
    value = node.value
    if value is not None and node.type == VARCHAR and target.kind in {"DATE", "TIMESTAMP"}:
        coerced = binder.coerce(tree, node, target)
        value = coerced.value if isinstance(coerced, Literal) else None
    elif value is not None and is_decimal(node.type) and is_float(target):
        value = float(value)  # 1.5 is a DECIMAL in SQL, and nobody would write 1.5D
    elif value is not None and not (is_number(node.type) and is_number(target)):
        binder.mismatch(
            tree, f"{where}: expected {target.sql}, got {node.type.sql} {node.sql}", _hint(target)
        )
    try:
        return Literal(target.check(value), target)
    except SchemaMismatchError:
        binder.mismatch(
            tree, f"{where}: {target.sql} cannot hold {node.sql} exactly", _hint(target)
        )


def _hint(target: SqlType) -> str:
    if target.kind in {"DATE", "TIMESTAMP"}:
        return "Write '2026-01-31' or '2026-01-31 12:30:00'."
    if target == VARCHAR:
        return "A text is written in single quotes: '...'."
    return f"Write a value of {target.sql}, or CAST(... AS {target.sql})."


def _holds_all(target: SqlType, source: SqlType) -> bool:
    """Whether every value of one type is, unchanged, a value of another."""
    if is_integer(source) and is_integer(target):
        return bool(source.arrow.bit_width <= target.arrow.bit_width)
    if is_decimal(target) and (is_integer(source) or is_decimal(source)):
        inner, outer = as_decimal(source).arrow, target.arrow
        before = outer.precision - outer.scale >= inner.precision - inner.scale
        return bool(before and outer.scale >= inner.scale)
    if target.kind == "DOUBLE":
        return source.kind in {"REAL", "TINYINT", "SMALLINT", "INTEGER"}
    return target.kind == "TIMESTAMP" and source.kind == "DATE"


def present(binder: Binder, tree: exp.Expr, node: Node, name: str) -> Node:
    """Return a node that raises where it would be NULL, for a column that is NOT NULL."""
    if not node.nullable:
        return node
    if isinstance(node, Literal):
        binder.mismatch(tree, f"column {name} is NOT NULL", "Give it a value.")

    def arrow(value: Datum) -> Datum:
        if value.as_py() is None if isinstance(value, pa.Scalar) else value.null_count:
            raise missing(name)
        return value

    op = Op(
        f"PRESENT {name}",
        "{0}",
        "present({0}, {p0})",
        arrow,
        params=(name,),
        raises=True,
        strict=False,
    )
    return call(op, node, of=node.type)
