"""Records of Avro as a schema registry frames them: a zero byte, the schema's id, the value."""

from __future__ import annotations

import io
import re
import uuid
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.kafka.client import EXTRA
from millstream.connectors.kafka.schema_registry import UnknownSchemaError
from millstream.connectors.registry import needs
from millstream.errors import ConnectorFailedError, SchemaMismatchError
from millstream.model.schema import Column, Schema
from millstream.model.types import parse_type

if TYPE_CHECKING:
    from millstream.connectors.kafka.schema_registry import SchemaRegistry
    from millstream.model.types import SqlType

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class AvroReader:
    """Reads records, each with the schema that it was written with."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._fastavro = needs("fastavro", EXTRA)
        self._parsed: dict[int, Any] = {}

    def read(self, data: bytes) -> tuple[dict[str, Any], Any]:
        """The record in some bytes, and the schema it was written with.

        Raises:
            SchemaMismatchError: they are no such record.
            ConnectorError: the registry does not answer.
        """
        if len(data) < 5 or data[0] != 0:
            raise SchemaMismatchError("it does not begin with a zero byte and the id of a schema")
        number = int.from_bytes(data[1:5], "big")
        try:
            schema = self._schema(number)
        except UnknownSchemaError as error:
            raise SchemaMismatchError(f"schema {number}: {error.message}") from None
        stream = io.BytesIO(data[5:])
        try:
            found = self._fastavro.schemaless_reader(stream, schema, None)
        except Exception as error:  # noqa: BLE001 - of bytes that are no record, anything
            name = type(error).__name__
            raise SchemaMismatchError(f"it is not of schema {number}: {name}: {error}") from None
        if stream.read(1):
            raise SchemaMismatchError(f"bytes are left after the record of schema {number}")
        if not isinstance(found, dict):
            raise SchemaMismatchError(f"schema {number} is not of a record")
        return found, self._registry.schema(number)

    def _schema(self, number: int) -> Any:  # noqa: ANN401 - as fastavro has it
        found = self._parsed.get(number)
        if found is None:
            schema = self._registry.schema(number)
            found = self._parsed[number] = self._fastavro.parse_schema(schema)
        return found


def plain(value: Any) -> Any:  # noqa: ANN401 - a value of Avro
    """A value as a column takes it: a UUID is its text."""
    return str(value) if isinstance(value, uuid.UUID) else value


# ---- from Avro


def columns_of(schema: Any) -> Schema:  # noqa: ANN401 - a schema of Avro
    """The columns of a record.

    >>> columns_of({"type": "record", "name": "r", "fields": [
    ...     {"name": "n", "type": "long"}, {"name": "s", "type": ["null", "string"]}]}).ddl
    'n BIGINT NOT NULL, s VARCHAR'

    Raises:
        ConnectorFailedError: it has a type that no column has.
    """
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ConnectorFailedError("the schema is not of a record", hint="write the columns")
    return Schema(
        tuple(_column(each["name"], each["type"], schema["name"]) for each in schema["fields"])
    )


def _column(name: str, of: Any, record: str) -> Column:  # noqa: ANN401 - a schema of Avro
    text, nullable = _sql_type(of, f"{record}.{name}")
    return Column(name, parse_type(text), nullable=nullable)


_SIMPLE: Final = {
    "boolean": "BOOLEAN",
    "int": "INTEGER",
    "long": "BIGINT",
    "float": "REAL",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "bytes": "BINARY",
    "fixed": "BINARY",
    "enum": "VARCHAR",
}
_LOGICAL: Final = {
    "date": "DATE",
    "timestamp-millis": "TIMESTAMP",
    "timestamp-micros": "TIMESTAMP",
    "uuid": "VARCHAR",
}


def _sql_type(of: Any, where: str) -> tuple[str, bool]:  # noqa: ANN401 - a schema of Avro
    """The SQL type of a schema, and whether it may be NULL."""
    if isinstance(of, list):
        others = [each for each in of if each != "null"]
        if len(others) == 1:
            return _sql_type(others[0], where)[0], len(others) < len(of)
    if isinstance(of, str) and of in _SIMPLE:
        return _SIMPLE[of], False
    if isinstance(of, dict):
        made = _complex_type(of, where)
        if made:
            return made, False
    raise ConnectorFailedError(
        f"no column has the type of {where}: {of}", hint="write the columns, without this one"
    )


def _complex_type(of: dict[str, Any], where: str) -> str:
    kind, logical = of["type"], of.get("logicalType")
    if logical == "decimal":
        return f"DECIMAL({of['precision']}, {of.get('scale', 0)})"
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if kind == "array":
        return f"ARRAY<{_sql_type(of['items'], where)[0]}>"
    if kind == "map":
        return f"MAP<VARCHAR, {_sql_type(of['values'], where)[0]}>"
    if kind == "record":
        parts = (f'"{each["name"]}" {_sql_type(each["type"], where)[0]}' for each in of["fields"])
        return f"STRUCT<{', '.join(parts)}>"
    return "" if logical else _SIMPLE.get(kind, "")


# ---- to Avro


def avro_schema(schema: Schema, name: str) -> dict[str, Any]:
    """The schema of a record with the columns.

    >>> avro_schema(Schema.of(n="BIGINT NOT NULL"), "r")["fields"]
    [{'name': 'n', 'type': 'long'}]

    Raises:
        ConnectorFailedError: Avro has no such type or name.
    """
    clean = re.sub(r"[^A-Za-z0-9_]", "_", name)
    clean = clean if _NAME.fullmatch(clean) else f"_{clean}"
    fields = []
    for column in schema.columns:
        of = _avro_type(column.type, f"{clean}_{column.name}")
        if not _NAME.fullmatch(column.name):
            raise ConnectorFailedError(
                f"Avro has no field named {column.name!r}", hint="rename it in the view"
            )
        made: dict[str, Any] = {"name": column.name, "type": of}
        if column.nullable:
            made |= {"type": ["null", of], "default": None}
        fields.append(made)
    return {"type": "record", "name": clean, "fields": fields}


_AVRO: Final[dict[str, Any]] = {
    "BOOLEAN": "boolean",
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER"), "int"),
    "BIGINT": "long",
    "REAL": "float",
    "DOUBLE": "double",
    "VARCHAR": "string",
    "BINARY": "bytes",
    "DATE": {"type": "int", "logicalType": "date"},
    "TIMESTAMP": {"type": "long", "logicalType": "timestamp-micros"},
}


def _avro_type(of: SqlType, name: str) -> Any:  # noqa: ANN401 - a schema of Avro
    if of.kind in _AVRO:
        return _AVRO[of.kind]
    made: dict[str, Any] | None = None
    if of.kind == "DECIMAL":
        numbers = {"precision": of.arrow.precision, "scale": of.arrow.scale}
        made = {"type": "bytes", "logicalType": "decimal", **numbers}
    elif of.kind == "ARRAY":
        made = {"type": "array", "items": ["null", _avro_type(of.children[0], name)]}
    elif of.kind == "MAP" and of.children[0].kind == "VARCHAR":
        made = {"type": "map", "values": ["null", _avro_type(of.children[1], name)]}
    elif of.kind == "STRUCT":
        columns = (Column(n, t) for n, t in zip(of.names, of.children, strict=True))
        made = avro_schema(Schema(tuple(columns)), name)
    if made is None:
        raise ConnectorFailedError(
            f"Avro has no type for {of.sql}", hint="cast it in the view, to VARCHAR for example"
        )
    return made


class AvroWriter:
    """Writes records with the schema of some columns, under its id in the registry."""

    def __init__(self, registry: SchemaRegistry, subject: str, schema: Schema, name: str) -> None:
        self._fastavro = needs("fastavro", EXTRA)
        made = avro_schema(schema, name)
        self._head = b"\0" + registry.register(subject, made).to_bytes(4, "big")
        self._schema = self._fastavro.parse_schema(made)

    def write(self, row: dict[str, Any]) -> bytes:
        """A row in bytes."""
        stream = io.BytesIO()
        stream.write(self._head)
        self._fastavro.schemaless_writer(stream, self._schema, row)
        return stream.getvalue()
