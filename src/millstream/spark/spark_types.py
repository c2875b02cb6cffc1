"""Types of the model as Spark's, and back."""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa

from millstream.errors import SqlUnsupportedError
from millstream.model.types import SqlType, type_from_arrow

_NAMES: Final = {
    "BOOLEAN": "boolean",
    "TINYINT": "byte",
    "SMALLINT": "short",
    "INTEGER": "integer",
    "BIGINT": "long",
    "REAL": "float",
    "DOUBLE": "double",
    "VARCHAR": "string",
    "BINARY": "binary",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "INTERVAL": "interval day to second",
}


def columns_json(schema: pa.Schema) -> str:
    """Columns as the JSON that Spark writes a StructType in."""
    return json.dumps({"type": "struct", "fields": [_field(each) for each in schema]})


def _field(field: pa.Field) -> dict[str, Any]:
    return {
        "name": field.name,
        "type": _type(type_from_arrow(field.type)),
        "nullable": field.nullable,
        "metadata": {},
    }


def _type(kind: SqlType) -> Any:  # noqa: ANN401 - a name, or an object of JSON
    if kind.kind == "DECIMAL":
        return f"decimal({kind.arrow.precision},{kind.arrow.scale})"
    if kind.kind == "ARRAY":
        return {"type": "array", "elementType": _type(kind.children[0]), "containsNull": True}
    if kind.kind == "MAP":
        key, value = map(_type, kind.children)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if kind.kind == "STRUCT":
        fields = [
            {"name": name, "type": _type(each), "nullable": True, "metadata": {}}
            for name, each in zip(kind.names, kind.children, strict=True)
        ]
        return {"type": "struct", "fields": fields}
    return _NAMES[kind.kind]


def arrow_of(types: Any, sql: str = "") -> pa.Schema:  # noqa: ANN401 - a StructType
    """The Arrow columns of a result.

    Raises:
        SqlUnsupportedError: Spark gives a type that the model has not.
    """
    fields = json.loads(types.json())["fields"]
    return pa.schema([(each["name"], _arrow(each["type"], each["name"], sql)) for each in fields])


_ARROW: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}


def _arrow(kind: Any, name: str, sql: str) -> pa.DataType:  # noqa: ANN401
    if isinstance(kind, str):
        return _scalar(kind, name, sql)
    if kind["type"] == "array":
        return pa.list_(_arrow(kind["elementType"], name, sql))
    if kind["type"] == "map":
        return pa.map_(_arrow(kind["keyType"], name, sql), _arrow(kind["valueType"], name, sql))
    return pa.struct([(each["name"], _arrow(each["type"], name, sql)) for each in kind["fields"]])


def _scalar(kind: str, name: str, sql: str) -> pa.DataType:
    if kind in _ARROW:
        return _ARROW[kind]
    if kind.startswith("decimal("):
        precision, scale = kind[8:-1].split(",")
        return pa.decimal128(int(precision), int(scale))
    if kind.startswith("interval ") and "year" not in kind and "month" not in kind:
        return pa.duration("us")
    raise SqlUnsupportedError(
        f"the column {name!r} would be of Spark's type {kind}, which Millstream has not",
        sql=sql,
        hint="CAST it to a type that there is, such as VARCHAR",
    )
