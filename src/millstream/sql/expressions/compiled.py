"""Filters and projections, compiled: each in a form for rows and in one for Arrow batches.

Both forms keep the same rows and give the same values, and raise ExpressionError for the same rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.model.names import quote_name
from millstream.sql.expressions.nodes import And, Call, ColumnRef, Literal, Node
from millstream.sql.expressions.to_arrow import compile_array, compile_condition
from millstream.sql.expressions.to_python import Function, PythonForm, compile_function

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.model.schema import Row, Schema

EQUAL: Final = "{0} == {1}"
"""The form of an equality that is that of the values in Python, and so that of a dict's keys."""


class Predicate:
    """Which rows a WHERE keeps: those for which it is TRUE, neither FALSE nor NULL.

    Each form is compiled when it is first asked for: many plans need one of them, some none.

    Attributes:
        node: the condition.
        sql: its canonical text.
        test: whether one row is kept.
        places: the indexes of the rows that are kept, all in one comprehension.
        mask: of an Arrow batch: true for the rows that are kept, never NULL.
    """

    __slots__ = ("mask", "node", "places", "sql", "test")

    test: Callable[[Row], bool]
    places: Callable[[Sequence[Row]], list[int]]
    mask: Callable[[pa.RecordBatch], pa.BooleanArray]

    def __init__(self, node: Node) -> None:
        self.node = node
        self.sql = node.sql

    def __getattr__(self, name: str) -> Function:
        made = self._made(name)
        setattr(self, name, made)
        return made

    def _made(self, name: str) -> Function:
        if name == "mask":
            return compile_condition(self.node)
        form = PythonForm()
        text, raises = form.condition(self.node), self.node.raises
        if name == "test":
            return compile_function("row", text, form.names, raises=raises)
        if name == "places":
            text = f"[place for place, row in enumerate(rows) if {text}]"
            return compile_function("rows", text, form.names, raises=raises)
        raise AttributeError(name)

    def pinned(self, columns: Sequence[int]) -> tuple[Any, ...] | None:
        """The only values that these columns can have in a row that is kept; None: there are more.

        Of ``id = 7 AND price > 1.0``, the 7. A row with these values need not be one that is kept.
        """
        found: dict[int, Any] = {}
        nodes = [self.node]
        while nodes:
            match nodes.pop():
                case And(left=left, right=right):
                    nodes += [left, right]
                case Call(op=op, args=(ColumnRef(index=index), Literal(value=value))):
                    if op.python == EQUAL and value is not None:
                        found[index] = value
        return tuple([found[each] for each in columns]) if found.keys() >= set(columns) else None

    def __repr__(self) -> str:
        return f"<Predicate {self.sql}>"


class Projection:
    """What a SELECT makes of each row.

    Each form is compiled when it is first asked for.

    Attributes:
        nodes: one expression for each column of the result.
        schema: the columns of the result.
        is_identity: whether rows stay as they are.
        row: the new row of one row.
        rows: the new rows of many, all in one comprehension.
    """

    __slots__ = ("_arrays", "is_identity", "nodes", "row", "rows", "schema")

    row: Callable[[Row], Row]
    rows: Callable[[Sequence[Row]], list[Row]]
    _arrays: list[Callable[[pa.RecordBatch], pa.Array]]

    def __init__(self, nodes: Sequence[Node], schema: Schema, *, is_identity: bool = False) -> None:
        self.nodes = tuple(nodes)
        self.schema = schema
        self.is_identity = is_identity

    def __getattr__(self, name: str) -> Function:
        made = self._made(name)
        setattr(self, name, made)
        return made

    def _made(self, name: str) -> Function:
        if name == "_arrays":
            return [compile_array(each) for each in self.nodes]
        form = PythonForm()
        raises = any(each.raises for each in self.nodes)
        text = "(" + "".join(f"{form.value(each)}, " for each in self.nodes) + ")"
        if name == "row":
            return compile_function("row", text, form.names, raises=raises)
        if name == "rows":
            return compile_function("rows", f"[{text} for row in rows]", form.names, raises=raises)
        raise AttributeError(name)

    def arrow(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch of the results; columns that stay as they are, are not copied."""
        arrays = [make(batch) for make in self._arrays]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema.arrow)

    @property
    def sql(self) -> str:
        """The canonical text."""
        return ", ".join(map(_named, self.nodes, self.schema.names))

    def __repr__(self) -> str:
        return f"<Projection {self.sql}>"


def _named(node: Node, name: str) -> str:
    plain = isinstance(node, ColumnRef) and node.name == name
    return node.sql if plain else f"{node.sql} AS {quote_name(name)}"
