"""How values lie in DuckDB: a TIMESTAMP without its zone, an INTERVAL as microseconds.

All times are in UTC, so the zone says nothing; and DuckDB's own INTERVAL has months and days, which
ours has not. Both directions are casts that change no value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.model.clock import EPOCH, MICROSECOND

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from millstream.model.types import SqlType


_NAMES = {"REAL": "FLOAT", "BINARY": "BLOB", "INTERVAL": "BIGINT"}


def duck_type(of: SqlType) -> str:
    """Return the text of a type in DuckDB's SQL.

    >>> from millstream.model.types import parse_type
    >>> duck_type(parse_type("ARRAY<STRUCT<at TIMESTAMP, size BINARY>>"))
    'STRUCT("at" TIMESTAMP, "size" BLOB)[]'
    """
    match of.kind:
        case "ARRAY":
            return f"{duck_type(of.children[0])}[]"
        case "MAP":
            return f"MAP({duck_type(of.children[0])}, {duck_type(of.children[1])})"
        case "STRUCT":
            fields = zip(of.names, of.children, strict=True)
            return f"STRUCT({', '.join(f'{name_text(n)} {duck_type(t)}' for n, t in fields)})"
    return _NAMES.get(of.kind, of.sql)


def name_text(name: str) -> str:
    """Return a name in quotes."""
    return '"' + name.replace('"', '""') + '"'


def physical_type(of: pa.DataType) -> pa.DataType:
    """Return the Arrow type in which values of a type go to DuckDB and come back.

    >>> physical_type(pa.list_(pa.timestamp("us", "UTC")))
    ListType(list<item: timestamp[us]>)
    """
    if pa.types.is_timestamp(of):
        return pa.timestamp("us")
    if pa.types.is_duration(of):
        return pa.int64()
    if pa.types.is_list(of):
        return pa.list_(physical_type(of.value_type))
    if pa.types.is_struct(of):
        return pa.struct([pa.field(each.name, physical_type(each.type)) for each in of])
    if pa.types.is_map(of):
        return pa.map_(physical_type(of.key_type), physical_type(of.item_type))
    return of


def physical_schema(of: pa.Schema) -> pa.Schema:
    """Return a schema with the types in which its columns go to DuckDB."""
    return pa.schema([pa.field(each.name, physical_type(each.type)) for each in of])


# --- Constants ------------------------------------------------------------------------------------


def constant(value: Any, of: SqlType) -> str:  # noqa: ANN401 - a value of any type
    """Return the text of a value.

    >>> from millstream.model.types import INTEGER, TINYINT, VARCHAR
    >>> constant(7, INTEGER), constant(7, TINYINT), constant("it's", VARCHAR)
    ('7', "CAST('7' AS TINYINT)", "'it''s'")
    """
    if value is None:
        return f"CAST(NULL AS {duck_type(of)})"
    write = _WRITERS.get(of.kind)
    if write is not None:
        return write(value)
    digits = format(value, "f") if of.kind == "DECIMAL" else value
    return f"CAST('{digits}' AS {duck_type(of)})"


def text(value: str) -> str:
    """Return a string in quotes; DuckDB's parser ends at a NUL, so that one is spelt out."""
    parts = ["'" + part.replace("'", "''") + "'" for part in value.split("\0")]
    return parts[0] if len(parts) == 1 else f"({' || chr(0) || '.join(parts)})"


def _micros(value: datetime) -> int:
    return (value - EPOCH) // MICROSECOND


_WRITERS: dict[str, Callable[[Any], str]] = {
    "VARCHAR": text,
    "BOOLEAN": lambda value: str(value).upper(),
    "INTEGER": lambda value: f"({value})" if value < 0 else str(value),
    "BIGINT": lambda value: f"CAST({value} AS BIGINT)",
    "BINARY": lambda value: f"unhex('{value.hex()}')",
    "TIMESTAMP": lambda value: f"make_timestamp(CAST({_micros(value)} AS BIGINT))",
    "INTERVAL": lambda value: f"CAST({value // MICROSECOND} AS BIGINT)",
}
