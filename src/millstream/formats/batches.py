"""Many rows, or columns, in whatever shape they come, as checked batches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa

from millstream.errors import RowError, SchemaMismatchError
from millstream.formats.arrow_message import FEW_ROWS
from millstream.formats.rows import RowShape, no_rows
from millstream.model.arrow_cast import check_column_names
from millstream.model.batch import ChangeBatch
from millstream.model.schema import Schema

if TYPE_CHECKING:
    from millstream.model.schema import Column


class ArrowStream(Protocol):
    """Anything that Arrow can read: tables and frames of pyarrow, pandas, polars, DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The data as a stream of the Arrow C data interface."""


Rows: TypeAlias = ChangeBatch | Iterable[tuple[Any, ...]] | ArrowStream | pa.RecordBatch
"""What ``batches_of_tuples`` takes."""

# pandas calls an index without a name so when it exports it.
_NAMELESS_INDEX = re.compile(r"__index_level_\d+__")

# Whose buffers never change. Others, pandas and numpy first of all, lend theirs and write on.
_IMMUTABLE = frozenset({"pyarrow", "polars", "duckdb", "millstream"})


def as_batches(data: object, schema: Schema) -> list[ChangeBatch]:
    """Whatever holds rows, or columns, as batches of a schema; none when it is empty.

    Rows come in a list or any iterable, columns in a dict of lists and arrays, a frame of pandas or
    polars, or anything else that speaks Arrow. A dict of which every value is a list is columns,
    unless one row could be just that: then it is a row.

    >>> from millstream import Schema
    >>> schema = Schema.of(symbol="VARCHAR", price="DOUBLE")
    >>> [batch.rows for batch in as_batches({"symbol": ["A", "B"], "price": [1, 2]}, schema)]
    [[('A', 1.0), ('B', 2.0)]]

    Raises:
        RowError: a value that does not fit; it names row and column.
        SchemaMismatchError: columns that do not fit, or nothing that holds rows.
    """
    if isinstance(data, ChangeBatch):
        return _checked_batch(data, schema)
    if isinstance(data, Mapping) and data and _is_columns(data, schema):
        return _from_columns(data, schema)
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return _from_arrow(data, schema)
    rows = RowShape(schema).rows(_listed(data))
    return [ChangeBatch(schema, rows, None, None)] if rows else []


def _listed(data: object) -> Iterable[object]:
    if isinstance(data, Mapping):
        return [data] if data else []
    if is_dataclass(data) or (isinstance(data, tuple) and hasattr(data, "_fields")):
        return [data]
    if isinstance(data, Iterable):
        return data
    raise no_rows(data)


def _checked_batch(batch: ChangeBatch, schema: Schema) -> list[ChangeBatch]:
    if batch.schema != schema:
        raise SchemaMismatchError(
            f"a batch with ({batch.schema.ddl}) for ({schema.ddl})",
            hint="Make the batch with the schema it is for, or give batch.arrow.",
        )
    if not len(batch) and batch.watermark is None:  # without rows, a watermark may still come
        return []
    # Another one: it will get LSNs, and the user's own may be pushed again, or be a subscriber's.
    rows, arrow = (None, schema.admit(batch.arrow)) if batch.is_arrow else (batch.held_rows, None)
    weights = None if batch.is_insert_only else batch.weights_arrow()
    return [ChangeBatch(schema, rows, arrow, weights, watermark=batch.watermark)]


def _from_arrow(data: Any, schema: Schema) -> list[ChangeBatch]:  # noqa: ANN401
    try:
        if hasattr(data, "__arrow_c_stream__"):
            found = list(pa.RecordBatchReader.from_stream(data))
        else:
            found = [pa.record_batch(data)]
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise SchemaMismatchError(
            f"cannot read the columns of this {type(data).__name__}: {error}",
            hint="Give a table or a frame, each column of one type.",
        ) from error
    batches, before = [], 0
    for batch in found:
        if batch.num_rows:
            is_lent = _is_lent(data) or b"pandas" in (batch.schema.metadata or {})
            batches.append(_conformed(batch, schema, before, is_lent=is_lent))
        before += batch.num_rows
    return batches


def _conformed(batch: pa.RecordBatch, schema: Schema, before: int, *, is_lent: bool) -> ChangeBatch:
    names = batch.schema.names
    nameless = [each for each in names if _NAMELESS_INDEX.fullmatch(each)]
    batch = batch.drop_columns([each for each in nameless if each not in schema.names])
    try:
        batch = schema.admit(batch)
    except RowError as error:
        raise error.at(before + error.row) from None
    if is_lent:
        batch = batch.copy_to(pa.default_cpu_memory_manager())
    return ChangeBatch(schema, None, batch, None)


def _is_columns(data: Mapping[Any, Any], schema: Schema) -> bool:
    """Whether a dict holds columns: lists only, and not such as one row could have."""
    kinds = {column.name: column.type.kind for column in schema.columns}
    return all(map(_is_list_like, data.values())) and not all(
        (kinds.get(name) == "ARRAY" and isinstance(value, (list, tuple)))
        or (kinds.get(name) == "STRUCT" and isinstance(value, tuple))
        for name, value in data.items()
    )


def _is_list_like(value: object) -> bool:
    if isinstance(value, (list, tuple, range)):
        return True
    protocols = ("__arrow_c_array__", "__arrow_c_stream__", "__array__")
    is_array = any(hasattr(value, name) for name in protocols)
    return is_array and getattr(value, "ndim", 1) > 0  # numpy's single numbers have none


def _from_columns(data: Mapping[Any, Any], schema: Schema) -> list[ChangeBatch]:
    check_column_names(list(map(str, data)), schema.names)
    given = [column for column in schema.columns if column.name in data]
    arrays = [_column_array(column, data[column.name]) for column in given]
    names = [column.name for column in given]
    lengths = list(map(len, arrays))
    if len(set(lengths)) > 1:
        sizes = ", ".join(f"{name} {size}" for name, size in zip(names, lengths, strict=True))
        raise SchemaMismatchError(
            f"the columns have different lengths: {sizes}",
            hint="Give every column as many values as the others, None where there is none.",
        )
    if not lengths[0]:
        return []
    is_lent = any(map(_is_lent, data.values()))
    return [_conformed(pa.record_batch(arrays, names), schema, 0, is_lent=is_lent)]


def _column_array(column: Column, values: Any) -> pa.Array:  # noqa: ANN401
    # numpy's arrays of objects, and of arrays, hold what only the check of Python values knows.
    if _maker(values) == "numpy" and (values.ndim != 1 or values.dtype == object):
        values = values.tolist()
    if isinstance(values, (list, tuple, range)):
        alone = Schema((column,))
        return alone.rows_to_arrow(RowShape(alone).rows(list(zip(values, strict=True)))).column(0)
    try:
        if hasattr(values, "__arrow_c_stream__"):
            return pa.chunked_array(values).combine_chunks()
        return pa.array(values)
    except (pa.ArrowException, TypeError) as error:
        raise SchemaMismatchError(
            f"column {column.name!r}: a {type(values).__name__} cannot be read: {error}",
            hint="Give a list, or an array of one dimension and one type.",
        ) from error


def _is_lent(data: object) -> bool:
    """Whether its owner may write to the memory that Arrow would see, after the push."""
    if isinstance(data, (list, tuple, range)):
        return False
    return _maker(data) not in _IMMUTABLE


def _maker(data: object) -> str:
    """The package that the class of an object comes from, without importing it."""
    return type(data).__module__.partition(".")[0]


# ---- for the log


def batches_of_tuples(rows: Rows, schema: Schema) -> list[ChangeBatch]:
    """Tuples, Arrow data or a batch as batches of a schema: the few shapes that the log takes.

    One batch, or as many as a stream of Arrow has. Unlike ``as_batches`` it looks for no names, and
    a batch of ours may have the columns from before an ALTER.

    Raises:
        RowError: a value that does not fit its column.
        SchemaMismatchError: columns that do not fit, or nothing that holds rows.
    """
    if type(rows) is list:  # the usual case, and the one where microseconds count
        return _from_tuples(rows, schema)
    if isinstance(rows, ChangeBatch):
        return [rows.copy()]  # one of our own: the log will say where in it the rows are
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
    return _from_tuples(list(rows), schema)


def _from_tuples(rows: list[Any], schema: Schema) -> list[ChangeBatch]:
    if len(rows) > FEW_ROWS:
        _warm_up()
    return [ChangeBatch.from_rows(schema, rows)]


@cache
def _warm_up() -> None:
    """Let pyarrow import pandas here and now, if it is installed.

    It does so at its first conversion of Python values, which is otherwise the writer's: up to
    seconds, in the background, while rows that were just appended wait for it. A few rows are
    written without such a conversion, see ``arrow_message``.
    """
    pa.array([0])
