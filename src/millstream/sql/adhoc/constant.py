"""A SELECT without FROM: one row, whose values are those of its expressions; nothing is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.errors import Error
from millstream.model.names import unique_names
from millstream.model.schema import Column, Schema
from millstream.model.types import VARCHAR
from millstream.sql.expressions.bind import Binder
from millstream.sql.expressions.fold import evaluate
from millstream.sql.expressions.nodes import Literal

if TYPE_CHECKING:
    from millstream.model.schema import Row
    from millstream.sql.expressions.nodes import Node
    from millstream.sql.statements.statement import Query


class ConstantRow:
    """The one row of a SELECT without FROM.

    Args:
        names: what the query calls its columns.
        nodes: their expressions.

    Attributes:
        schema: the columns.
        names: what the query calls them; several may have one name.
    """

    def __init__(self, names: tuple[str, ...], nodes: tuple[Node, ...]) -> None:
        self.names = names
        self._nodes = nodes
        pairs = zip(unique_names(names), nodes, strict=True)
        self.schema = Schema(tuple(Column(n, e.type, nullable=e.nullable) for n, e in pairs))

    def row(self) -> Row:
        """Return the row.

        Raises:
            ExpressionError: an expression has no value.
        """
        return tuple([evaluate(each) for each in self._nodes])


def constant_row(query: Query) -> ConstantRow | None:
    """Return the row of a query; None if it is more than a list of expressions of constants."""
    tree = query.tree
    parts = {name for name, part in tree.args.items() if part}
    if not isinstance(tree, exp.Select) or parts != {"expressions"} or query.emit is not None:
        return None
    binder, names, nodes = Binder(None, query.sql, None), [], []
    try:
        for place, item in enumerate(tree.expressions):
            node = binder.bind(item.this if isinstance(item, exp.Alias) else item)
            if node.type.kind == "NULL":
                node = Literal(None, VARCHAR)
            names.append(item.alias if isinstance(item, exp.Alias) else f"_c{place}")
            nodes.append(node)
        return ConstantRow(tuple(names), tuple(nodes))
    except Error:
        return None  # a planner that knows more queries answers it, or says why not
