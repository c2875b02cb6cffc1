"""``ResultRows``: a few rows that a query gave, in Python, with the columns that they have."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.model.schema import Row


class ResultRows:
    """A few rows: what an Arrow batch would have, without Arrow.

    Args:
        schema: the columns.
        rows: their canonical values; none is nested.
        places: the place of each column; None: they are looked up.

    Attributes:
        schema: the columns.
        rows: the rows.
        places: the place of each column.
    """

    __slots__ = ("places", "rows", "schema")

    def __init__(
        self, schema: pa.Schema, rows: Sequence[Row], places: Mapping[str, int] | None = None
    ) -> None:
        self.schema = schema
        self.rows = rows
        self.places = places_in(schema) if places is None else places

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return len(self.rows)

    def place(self, name: str) -> int:
        """The place of a column."""
        return self.places[name]

    def arrow(self) -> pa.RecordBatch:
        """The rows as an Arrow batch."""
        values = list(zip(*self.rows, strict=True)) or [()] * len(self.schema)
        pairs = zip(values, self.schema, strict=True)
        arrays = [pa.array(each, field.type) for each, field in pairs]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def places_in(schema: pa.Schema) -> dict[str, int]:
    """The place of each column."""
    return {name: place for place, name in enumerate(schema.names)}


Results: TypeAlias = "pa.RecordBatch | ResultRows"
"""Rows that a query gave: many in Arrow, a few in Python."""


def as_arrow(rows: Results) -> pa.RecordBatch:
    """Rows as an Arrow batch, whatever they are."""
    return rows.arrow() if isinstance(rows, ResultRows) else rows
