"""Arrow tables as the CSV that COPY reads, and the types of columns that can take them. Pure."""

from __future__ import annotations

import io
import json
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.connectors._postgres_types import PgType
    from millstream.model.schema import Schema
    from millstream.model.types import SqlType

_MADE: Final = {
    "BOOLEAN": "boolean",
    "TINYINT": "smallint",
    "SMALLINT": "smallint",
    "INTEGER": "integer",
    "BIGINT": "bigint",
    "REAL": "real",
    "DOUBLE": "double precision",
    "VARCHAR": "text",
    "BINARY": "bytea",
    "DATE": "date",
    "TIMESTAMP": "timestamptz",
    "INTERVAL": "interval",
}
_TEXTS: Final = {"text", "varchar", "bpchar", "citext", "json", "jsonb", "uuid", "xml"}
_TAKEN: Final = {
    "BOOLEAN": {"bool"},
    "TINYINT": {"int2", "int4", "int8", "numeric", "float4", "float8"},
    "SMALLINT": {"int2", "int4", "int8", "numeric", "float4", "float8"},
    "INTEGER": {"int4", "int8", "numeric", "float8"},
    "BIGINT": {"int8", "numeric"},
    "REAL": {"float4", "float8"},
    "DOUBLE": {"float8"},
    "VARCHAR": _TEXTS,
    "BINARY": {"bytea"},
    "DATE": {"date"},
    "TIMESTAMP": {"timestamptz", "timestamp"},
    "INTERVAL": {"interval"},
    "STRUCT": {"json", "jsonb"},
    "MAP": {"json", "jsonb"},
}


def made_type(of: SqlType) -> str:
    """The type of a column of PostgreSQL that is made for a type.

    >>> from millstream.model.types import parse_type
    >>> made_type(parse_type("ARRAY<DECIMAL(10, 2)>"))
    'numeric(10, 2)[]'
    """
    if of.kind == "DECIMAL":
        return f"numeric{of.sql.removeprefix('DECIMAL')}"
    if of.kind == "ARRAY" and not of.children[0].children:
        return f"{made_type(of.children[0])}[]"
    return _MADE.get(of.kind, "jsonb")


def takes(to: PgType, typmod: int, of: SqlType) -> bool:
    """Whether a column of PostgreSQL can have all values of a type, without a loss."""
    if of.kind == "ARRAY":
        if to.element is not None and not of.children[0].children:
            return takes(to.element, typmod, of.children[0])
        return to.name in {"json", "jsonb"}
    if to.element is not None:
        return False
    if of.kind == "DECIMAL":
        return to.name == "numeric" and _has_digits(typmod if typmod >= 0 else to.typmod, of)
    if to.kind == "e":
        return of.kind == "VARCHAR"
    return to.name in _TAKEN[of.kind] and (to.name != "numeric" or typmod < 0)


def _has_digits(typmod: int, of: SqlType) -> bool:
    if typmod < 0:
        return True
    precision, scale = ((typmod - 4) >> 16) & 0xFFFF, (typmod - 4) & 0x7FF
    wanted: pa.Decimal128Type = of.arrow
    return bool(scale >= wanted.scale and precision - scale >= wanted.precision - wanted.scale)


def to_csv(table: pa.Table, schema: Schema) -> bytes:
    """The rows of a table as CSV: NULL is empty, and an empty text is quoted.

    >>> from millstream.model.schema import Schema
    >>> schema = Schema.of(a="VARCHAR", b="ARRAY<INT>")
    >>> rows = schema.rows_to_arrow([("", [1, None])])
    >>> to_csv(pa.Table.from_batches([rows]), schema).strip()
    b'"","{1,NULL}"'
    """
    types = {column.name: column.type for column in schema.columns}
    arrays = [
        _as_text(array, types[name])
        for name, array in zip(table.schema.names, table.columns, strict=True)
    ]
    buffer = io.BytesIO()
    csv.write_csv(
        pa.Table.from_arrays(arrays, names=table.schema.names),
        buffer,
        csv.WriteOptions(include_header=False, quoting_style="needed"),
    )
    return buffer.getvalue()


def _as_text(array: pa.ChunkedArray, of: SqlType) -> pa.ChunkedArray:
    if of.kind == "REAL":
        return array.cast(pa.float64())  # all its digits: the column may be of double precision
    if of.kind == "TIMESTAMP":
        return array.cast(pa.timestamp("us"))  # in UTC, as the session; Arrow writes zones slowly
    if of.kind == "INTERVAL":
        return pc.binary_join_element_wise(
            array.cast(pa.int64()).cast(pa.string()), pa.scalar("microseconds"), " "
        )
    text = _texts(of)
    if text is None:
        return array
    made = [None if each is None else text(each) for each in array.to_pylist()]
    return pa.chunked_array([pa.array(made, pa.string())])


def _texts(of: SqlType) -> Callable[[Any], str] | None:
    """What writes a value of a type that Arrow does not write as PostgreSQL reads it."""
    if of.kind == "BINARY":
        return lambda raw: f"\\x{raw.hex()}"
    if of.kind == "ARRAY" and not of.children[0].children:
        return _array
    return _json if of.children else None


def _array(values: list[Any]) -> str:
    return "{" + ",".join(map(_item, values)) + "}"


def _item(value: Any) -> str:  # noqa: ANN401 - of any type
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, int | float | Decimal):
        return str(value)
    text = f"\\x{value.hex()}" if isinstance(value, bytes) else _text(value)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _text(value: Any) -> str:  # noqa: ANN401 - of any type
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return f"{value // timedelta(microseconds=1)} microseconds"
    return str(value)


def _json(value: Any) -> str:  # noqa: ANN401 - of any type
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Any) -> Any:  # noqa: ANN401 - of any type
    """A value as JSON has it: of a MAP, an object, or pairs if its keys are not texts."""
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(each, tuple) for each in value):
            return {_text(name): _plain(each) for name, each in value}
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return value.hex()
    return value if isinstance(value, str | int | float | bool | None) else _text(value)
