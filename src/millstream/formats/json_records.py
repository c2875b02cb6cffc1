"""Records of JSON, one object each, as they come from a broker: many at once, and one by one.

Names that are no column are ignored: producers add fields when they like.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from millstream.errors import SchemaMismatchError
from millstream.formats.text import DECODER, json_value
from millstream.model.clock import EPOCH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.model.schema import Column, Row, Schema
    from millstream.model.types import SqlType

TimeUnit = Literal["s", "ms", "us", "ns"]
"""What a number counts in a column of times, since 1970."""

_BLOCK: Final = 1 << 22
_DIRECT: Final = frozenset(
    ("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "DOUBLE", "VARCHAR", "DECIMAL")
)


# ---- many at once


@cache
def json_schema(schema: Schema, unit: TimeUnit | None) -> pa.Schema | None:
    """The types that pyarrow is to read; None when it cannot read them as we do.

    >>> from millstream import Schema
    >>> json_schema(Schema.of(ts="TIMESTAMP"), "ms").field("ts").type
    DataType(int64)
    """
    types = [_json_type(column.type, unit, nested=False) for column in schema.columns]
    if any(each is None for each in types):
        return None
    return pa.schema(list(zip(schema.names, types, strict=True)))


def _json_type(of: SqlType, unit: TimeUnit | None, *, nested: bool) -> pa.DataType | None:
    if not nested and of.kind in {"TIMESTAMP", "DATE", "REAL"}:
        timestamp = of.arrow if unit is None else pa.int64()
        return {"TIMESTAMP": timestamp, "DATE": pa.string(), "REAL": pa.float64()}[of.kind]
    if of.kind in {"ARRAY", "STRUCT"}:
        parts = [_json_type(child, unit, nested=True) for child in of.children]
        return None if any(each is None for each in parts) else of.arrow
    return of.arrow if of.kind in _DIRECT else None


def json_batch(
    values: Sequence[bytes], schema: Schema, arrow: pa.Schema, unit: TimeUnit | None
) -> pa.RecordBatch:
    """The rows of records, all at once.

    >>> from millstream import Schema
    >>> schema = Schema.of(n="INT")
    >>> json_batch([b'{"n": 1}', b'{}'], schema, json_schema(schema, None), None).to_pylist()
    [{'n': 1}, {'n': None}]

    Raises:
        SchemaMismatchError, pa.ArrowException: one of them does not fit, or must be looked at
            alone.
    """
    text = b"\n".join(values)
    # Each line begins with an object, so it gives a row or more: as many rows as lines means that
    # each line gives one.
    breaks = len(values) - 1
    if text[:1] != b"{" or text.count(b"\n{") != breaks or text.count(b"\n") != breaks:
        raise SchemaMismatchError("a record is not an object in one line")
    if not text.isascii():
        _check_utf8(text)  # pyarrow does not look
    table = pj.read_json(
        pa.BufferReader(text),
        pj.ReadOptions(block_size=min(len(text) + 1, _BLOCK)),
        pj.ParseOptions(explicit_schema=arrow, unexpected_field_behavior="ignore"),
    )
    if table.num_rows != len(values):
        raise SchemaMismatchError("a record is not one object")
    (batch,) = table.combine_chunks().to_batches()
    pairs = zip(schema.columns, batch.columns, strict=True)
    arrays = [_converted(column.type, array, unit) for column, array in pairs]
    return schema.admit(pa.RecordBatch.from_arrays(arrays, list(schema.names)))


def _converted(of: SqlType, array: pa.Array, unit: TimeUnit | None) -> pa.Array:
    """A column as it is in rows that are read one by one."""
    if of.kind == "TIMESTAMP" and unit is not None:
        return array.cast(pa.timestamp(unit, "UTC"))
    if of.kind == "DATE":
        if pc.any(pc.not_equal(pc.binary_length(array), 10)).as_py():
            raise SchemaMismatchError("a date is not written as 2024-05-31")
        return array.cast(pa.date32())
    if of.kind == "REAL":  # by way of DOUBLE, as Python has only that
        array = array.cast(pa.float32(), safe=False)
        if pc.any(pc.is_inf(array)).as_py():
            raise SchemaMismatchError("a number is too large for REAL")
    return array


def _check_utf8(text: bytes) -> None:
    try:
        text.decode()
    except UnicodeDecodeError:
        raise SchemaMismatchError("the text is not UTF-8") from None


# ---- one by one


def json_object(value: bytes) -> dict[str, Any]:
    """The object that a record is.

    >>> json_object(b'{"n": 1}')
    {'n': 1}

    Raises:
        SchemaMismatchError: it is something else.
    """
    try:
        found = DECODER.decode(value.decode())
    except UnicodeDecodeError:
        raise SchemaMismatchError("the text is not UTF-8") from None
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise SchemaMismatchError(f"invalid JSON: {error or 'a number is too large'}") from None
    if not isinstance(found, dict):
        raise SchemaMismatchError(f"expected a JSON object, got {type(found).__name__}")
    return found


def json_row(
    found: dict[str, Any], schema: Schema, *, timestamp_unit: TimeUnit | None = None
) -> Row:
    """The row of an object; what it lacks is NULL, what is no column is ignored.

    >>> from millstream import Schema
    >>> json_row({"n": 1, "x": 2}, Schema.of(n="INT", s="VARCHAR"))
    (1, None)

    Raises:
        SchemaMismatchError: a value does not fit.
    """
    row = [_value(column, found.get(column.name), timestamp_unit) for column in schema.columns]
    return schema.check_rows([tuple(row)])[0]


def _value(column: Column, value: Any, unit: TimeUnit | None) -> Any:  # noqa: ANN401 - any type
    if value is None:
        return None
    try:
        if unit is not None and column.type.kind == "TIMESTAMP" and type(value) is int:
            return timestamp_from(value, unit)
        return json_value(column.type, value)
    except SchemaMismatchError as error:
        raise SchemaMismatchError(f"column {column.name!r}: {error.message}") from None


def timestamp_from(value: int, unit: TimeUnit) -> datetime:
    """The time that a number of units after 1970 is.

    >>> timestamp_from(1_500, "ms").isoformat()
    '1970-01-01T00:00:01.500000+00:00'

    Raises:
        SchemaMismatchError: it is too far away, or more exact than a TIMESTAMP.
    """
    micros, rest = divmod(value * 1_000_000, {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit])
    try:
        moment = EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        rest = 1
    if rest:
        raise SchemaMismatchError(f"no TIMESTAMP is {value} {unit} after 1970")
    return moment
