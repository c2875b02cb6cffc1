"""Envelopes of Debezium: what was a row before and after, as a change of a table."""

from __future__ import annotations

import base64
import re
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal

from millstream.errors import SchemaMismatchError
from millstream.formats.json_records import timestamp_from
from millstream.formats.text import json_value
from millstream.model.row_change import TRUNCATE, UNCHANGED, RowChange, delete, upsert
from millstream.model.schema import Schema

if TYPE_CHECKING:
    from millstream.formats.json_records import TimeUnit
    from millstream.model.schema import Column, Row

DecimalMode = Literal["precise", "string"]
Semantics = dict[str, tuple[str, int]]
"""The names of Debezium's types by column, and the scales of decimals."""

_UNAVAILABLE: Final = "__debezium_unavailable_value"
_UNAVAILABLE_BYTES: Final = base64.b64encode(_UNAVAILABLE.encode()).decode()
_UNITS: Final[dict[str, TimeUnit]] = {
    "io.debezium.time.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
    "org.apache.kafka.connect.data.Timestamp": "ms",
}
_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_EPOCH: Final = date(1970, 1, 1)


class Envelopes:
    """Reads envelopes as changes of a table with some columns.

    Args:
        schema: the columns, with the key.
        timestamp_unit: what numbers in TIMESTAMP columns count, if the envelope does not say.
        decimals: how text in DECIMAL columns is to be read, if the envelope does not say.
    """

    def __init__(
        self,
        schema: Schema,
        timestamp_unit: TimeUnit | None = None,
        decimals: DecimalMode | None = None,
    ) -> None:
        self._schema = schema
        self._unit = timestamp_unit
        self._decimals = decimals
        self._key = Schema(
            tuple(next(c for c in schema.columns if c.name == name) for name in schema.key)
        )

    def change(
        self, envelope: dict[str, Any], key: dict[str, Any] | None, semantics: Semantics
    ) -> RowChange | None:
        """The change that an envelope stands for; None: none, as of a message or a heartbeat.

        >>> schema = Schema.of(id="BIGINT", n="INT", key=("id",))
        >>> Envelopes(schema).change({"op": "c", "after": {"id": 1, "n": 2}}, None, {})
        RowChange(op='upsert', row=(1, 2), key=None)

        Raises:
            SchemaMismatchError: it is no envelope, or its values do not fit.
        """
        op, before, after = envelope.get("op"), envelope.get("before"), envelope.get("after")
        if op in {"c", "r", "u"}:
            if not isinstance(after, dict):
                raise SchemaMismatchError(f"op {op!r} without the row after it")
            row = self._row(after, semantics)
            old = self._old_key(before, semantics) if op == "u" else None
            new = tuple(row[self._schema.names.index(name)] for name in self._schema.key)
            return upsert(row, None if old == new else old)
        if op == "d":
            found = before if isinstance(before, dict) else key
            if found is None:
                raise SchemaMismatchError("op 'd' without the row before it, and without a key")
            return delete(self.key(found, semantics))
        if op == "t":
            return TRUNCATE
        if op == "m":
            return None
        raise SchemaMismatchError(f"it is no envelope of Debezium: its op is {op!r}")

    def key(self, found: dict[str, Any], semantics: Semantics) -> Row:
        """The values of the key among those of a row or of a record's key."""
        for name in self._key.names:
            if found.get(name) is None:
                raise SchemaMismatchError(f"the column {name!r} of the key is missing")
        return self._checked(self._key, found, semantics)

    def _old_key(self, before: object, semantics: Semantics) -> Row | None:
        if not isinstance(before, dict) or any(before.get(n) is None for n in self._key.names):
            return None
        return self.key(before, semantics)

    def _row(self, found: dict[str, Any], semantics: Semantics) -> Row:
        unavailable = (
            {name for name, value in found.items() if value in (_UNAVAILABLE, _UNAVAILABLE_BYTES)}
            if _has_unavailable(found)
            else set()
        )
        if not unavailable:
            return self._checked(self._schema, found, semantics)
        known = tuple(c for c in self._schema.columns if c.name not in unavailable)
        row = dict(
            zip(
                (column.name for column in known),
                self._checked(Schema(known), found, semantics),
                strict=True,
            )
        )
        return tuple(row.get(name, UNCHANGED) for name in self._schema.names)

    def _checked(self, schema: Schema, found: dict[str, Any], semantics: Semantics) -> Row:
        row = [self._value(c, found.get(c.name), semantics.get(c.name)) for c in schema.columns]
        try:
            return schema.check_rows([tuple(row)])[0]
        except SchemaMismatchError as error:
            raise SchemaMismatchError(error.message.removeprefix("row 0, ")) from None

    def _value(self, column: Column, value: Any, semantic: tuple[str, int] | None) -> Any:  # noqa: ANN401
        if value is None:
            return None
        kind = column.type.kind
        try:
            if kind == "DATE" and type(value) is int:
                return _EPOCH + timedelta(days=value)
            if kind == "TIMESTAMP" and type(value) is int:
                unit = _UNITS.get(semantic[0]) if semantic else self._unit
                return _moment(value, unit)
            if kind == "DECIMAL" and isinstance(value, str):
                return self._decimal(value, semantic, column.type.arrow.scale)
            if kind == "INTERVAL" and type(value) is int:
                return timedelta(microseconds=value)
            return json_value(column.type, value)
        except (SchemaMismatchError, OverflowError) as error:
            raise SchemaMismatchError(f"column {column.name!r}: {error}") from None

    def _decimal(self, value: str, semantic: tuple[str, int] | None, scale: int) -> Decimal:
        mode = self._decimals
        if semantic is not None:
            mode = "precise" if semantic[0] == _DECIMAL else "string"
            scale = semantic[1]
        if mode == "string" and re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?(E[+-]?[0-9]+)?", value):
            return Decimal(value)
        if mode == "precise":
            try:
                number = int.from_bytes(base64.b64decode(value, validate=True), "big", signed=True)
            except ValueError:
                raise SchemaMismatchError(f"{value!r} is no decimal in base64") from None
            return Decimal(number).scaleb(-scale)
        raise SchemaMismatchError(f"{value!r}: text or base64 is unknown; give decimals = '...'")


def _moment(value: int, unit: TimeUnit | None) -> datetime:
    if unit is None:
        raise SchemaMismatchError(f"{value}: the unit is unknown; give timestamp_unit")
    return timestamp_from(value, unit)


def _has_unavailable(found: dict[str, Any]) -> bool:
    values = [each for each in found.values() if isinstance(each, str)]
    return _UNAVAILABLE in values or _UNAVAILABLE_BYTES in values


# ---- what the schemas beside the values say


def unwrapped(found: dict[str, Any]) -> tuple[dict[str, Any] | None, Semantics]:
    """A JSON record without the schema that Kafka Connect may put around it.

    >>> unwrapped({"schema": {"type": "struct", "fields": []}, "payload": {"id": 1}})
    ({'id': 1}, {})
    """
    if found.keys() == {"schema", "payload"}:
        return found["payload"], connect_semantics(found["schema"])
    return found, {}


def connect_semantics(schema: Any) -> Semantics:  # noqa: ANN401 - JSON
    """The types that a schema of Kafka Connect, of an envelope or of a row, gives to columns."""
    if not isinstance(schema, dict):
        return {}
    fields = schema.get("fields") or []
    for each in fields:
        if each.get("field") in {"after", "before"} and each.get("type") == "struct":
            return connect_semantics(each)
    return {
        each["field"]: (
            each.get("name") or "",
            int((each.get("parameters") or {}).get("scale", 0)),
        )
        for each in fields
        if isinstance(each, dict) and each.get("field")
    }


def avro_semantics(schema: Any) -> Semantics:  # noqa: ANN401 - a schema of Avro
    """The types that a schema of Avro, of an envelope or of a row, gives to columns."""
    found = _of_union(schema)
    if not isinstance(found, dict) or found.get("type") != "record":
        return {}
    for each in found["fields"]:
        if each["name"] in {"after", "before"}:
            inner = _of_union(each["type"])
            if isinstance(inner, dict):
                return avro_semantics(inner)
    kinds = {each["name"]: _of_union(each["type"]) for each in found["fields"]}
    return {
        name: (kind.get("connect.name") or "", int(kind.get("scale", 0)))
        for name, kind in kinds.items()
        if isinstance(kind, dict)
    }


def _of_union(of: Any) -> Any:  # noqa: ANN401 - a schema of Avro
    """The one that is not null, and is not only named."""
    if isinstance(of, list):
        others = [each for each in of if each != "null"]
        return next(
            (each for each in others if isinstance(each, dict)), others[0] if others else of
        )
    return of
