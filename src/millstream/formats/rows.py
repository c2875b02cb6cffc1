"""What can be appended, in whatever form it comes, as batches."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa

from millstream.errors import SchemaMismatchError
from millstream.model.batch import ChangeBatch

if TYPE_CHECKING:
    from millstream.model.schema import Schema


class ArrowStream(Protocol):
    """Anything that Arrow can read: tables and frames of pyarrow, pandas, polars, DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The data as a stream of the Arrow C data interface."""


Rows: TypeAlias = ChangeBatch | Iterable[tuple[Any, ...]] | ArrowStream | pa.RecordBatch


def as_batches(schema: Schema, rows: Rows) -> list[ChangeBatch]:
    """The rows as one batch, or as several when that is how they came.

    Raises:
        RowError: a value that does not fit its column.
        SchemaMismatchError: columns that do not fit, or nothing that holds rows.
    """
    if type(rows) is list:  # the usual case, and the one where microseconds count
        _warm_up()
        return [ChangeBatch.from_rows(schema, rows)]
    if isinstance(rows, ChangeBatch):
        return [rows.told()]  # one of our own: the log will say where in it the rows are
    if isinstance(rows, pa.RecordBatch):
        return [ChangeBatch.from_arrow(schema, rows)]
    if hasattr(rows, "__arrow_c_stream__"):
        stream = pa.RecordBatchReader.from_stream(rows)
        return [ChangeBatch.from_arrow(schema, batch) for batch in stream]
    if isinstance(rows, (str, bytes, dict)) or not isinstance(rows, Iterable):
        raise SchemaMismatchError(
            f"expected rows, got {type(rows).__name__}",
            hint="give a list of tuples, an Arrow table, a pandas or polars frame",
        )
    _warm_up()
    tuples: list[Any] = list(rows)
    return [ChangeBatch.from_rows(schema, tuples)]


@cache
def _warm_up() -> None:
    """Let pyarrow import pandas here and now, if it is installed.

    It does so at its first conversion of Python values, which is otherwise the writer's: up to
    seconds, in the background, while rows that were just appended wait for it.
    """
    pa.array([0])
