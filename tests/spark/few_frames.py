"""Reads what ``few_rows`` writes, as ``FewRows.java`` does."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa

CODES = {
    pa.bool_(): "?",
    pa.int8(): "b",
    pa.int16(): "h",
    pa.int32(): "i",
    pa.int64(): "q",
    pa.float32(): "f",
    pa.float64(): "d",
    pa.date32(): "i",
    pa.timestamp("us", "UTC"): "q",
    pa.duration("us"): "q",
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_few(file, schema):
    """The rows of a frame, as dicts."""
    (count,) = struct.unpack(">I", file.read(4))
    return [_row(file, schema) for _ in range(count)]


def _row(file, schema):
    (nulls,) = struct.unpack(">Q", file.read(8))
    values = {}
    long = [each for each in schema if _code(each.type) is None]
    for field in schema:
        if field not in long:
            code = ">" + _code(field.type)
            (values[field.name],) = struct.unpack(code, file.read(struct.calcsize(code)))
    sizes = struct.unpack(f">{len(long)}I", file.read(4 * len(long)))
    for field, size in zip(long, sizes, strict=True):
        values[field.name] = file.read(size)
    return {
        field.name: None if nulls >> place & 1 else _value(field.type, values[field.name])
        for place, field in enumerate(schema)
    }


def _code(kind):
    if pa.types.is_decimal128(kind):
        return "q" if kind.precision <= 18 else None
    return CODES.get(kind)


def _value(kind, value):
    if pa.types.is_timestamp(kind):
        return EPOCH + timedelta(microseconds=value)
    if pa.types.is_duration(kind):
        return timedelta(microseconds=value)
    if pa.types.is_date32(kind):
        return date(1970, 1, 1) + timedelta(days=value)
    if pa.types.is_decimal128(kind):
        whole = value if isinstance(value, int) else int.from_bytes(value, "big", signed=True)
        digits = tuple(map(int, str(abs(whole))))
        return Decimal((int(whole < 0), digits, -kind.scale))
    return value.decode() if pa.types.is_string(kind) else value
