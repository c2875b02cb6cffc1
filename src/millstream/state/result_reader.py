"""Results of a query, read in the columns that a view stores: as an Arrow batch or Python rows."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.errors import SchemaMismatchError
from millstream.model.arrow_values import column_values
from millstream.model.result_rows import ResultRows, as_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.model.result_rows import Results
    from millstream.model.schema import Row, Schema
    from millstream.model.types import SqlType

WEIGHT = "_weight"
"""The column with the weight of a row: how often it is inserted or, below 0, retracted."""


def row_getter(places: Sequence[int]) -> Callable[[Row], Row]:
    """A function that gives some columns of a row, as a tuple."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda row: tuple([row[place] for place in places])


class ResultReader:
    """Reads batches of one schema; further columns are left out.

    Args:
        schema: the columns to read.
    """

    __slots__ = ("_chosen", "_columns", "_exact", "_known", "_places", "schema")

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._known: pa.Schema | None = None
        self._places: list[int] = []
        self._chosen: Callable[[Row], Row] = tuple  # the columns of a row
        self._columns: list[tuple[str, SqlType, int]] = []
        self._exact = False

    def arrow(self, batch: Results) -> pa.RecordBatch:
        """The columns, of exactly the schema's types."""
        batch = as_arrow(batch)
        self._learn(batch.schema)
        if self._exact:
            arrays = [batch.column(place) for place in self._places]
            return pa.RecordBatch.from_arrays(arrays, schema=self.schema.arrow)
        return self.schema.conform(batch.select(self._places))

    def rows(self, batch: Results) -> list[Row]:
        """The columns as Python rows.

        Raises:
            SchemaMismatchError: a value that Python cannot hold, such as the year 10000.
        """
        self._learn(batch.schema)
        if isinstance(batch, ResultRows) and self._exact:
            return list(map(self._chosen, batch.rows))
        batch = as_arrow(batch)
        if not self._exact:
            return self.schema.arrow_to_rows(self.arrow(batch))
        column = batch.column
        values = [column_values(name, of, column(place)) for name, of, place in self._columns]
        return list(zip(*values, strict=True))

    def _learn(self, schema: pa.Schema) -> None:
        if schema is self._known:
            return
        if self._known is not None and schema.equals(self._known):
            self._known = schema
            return
        missing = [name for name in self.schema.names if name not in schema.names]
        if missing:
            raise SchemaMismatchError(
                f"the result lacks {', '.join(missing)}; it has {', '.join(schema.names)}",
                hint="The columns that a view keeps and those of its Spark SQL must agree.",
            )
        self._places = [schema.get_field_index(name) for name in self.schema.names]
        self._chosen = row_getter(self._places)
        pairs = zip(self._places, self.schema.arrow, strict=True)
        self._exact = all(schema.field(place).type == field.type for place, field in pairs)
        named = zip(self.schema.columns, self._places, strict=True)
        self._columns = [(column.name, column.type, place) for column, place in named]
        self._known = schema
