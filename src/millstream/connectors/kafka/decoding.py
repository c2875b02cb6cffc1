"""Messages of Kafka as rows, changes and dead letters: the payload by its format, and the rest."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.connectors.contract import Rejected
from millstream.connectors.kafka.avro import AvroReader, plain
from millstream.connectors.kafka.client import EXTRA
from millstream.connectors.kafka.debezium import Envelopes, avro_semantics, unwrapped
from millstream.connectors.registry import needs
from millstream.errors import InvalidOptionError, SchemaMismatchError
from millstream.formats.json_records import json_object, json_row
from millstream.formats.records import Decoded as DecodedRecords
from millstream.formats.records import RecordDecoder, record_decoder
from millstream.formats.text import text_value
from millstream.model.row_change import RowChange, delete, upsert
from millstream.model.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.connectors.contract import Settings, Target
    from millstream.connectors.kafka.schema_registry import SchemaRegistry
    from millstream.model.schema import Row

ROLES: Final = {
    "key": ("VARCHAR", "BINARY"),
    "topic": ("VARCHAR",),
    "partition": ("INTEGER", "BIGINT"),
    "offset": ("BIGINT",),
    "timestamp": ("TIMESTAMP",),
    "headers": ("MAP<VARCHAR, BINARY>", "MAP<VARCHAR, VARCHAR>"),
}
"""What else a message has, and the types that its columns may have."""

_MILLIS: Final = pa.timestamp("ms", "UTC")


@dataclass(slots=True)
class Decoded:
    """What some messages say.

    Attributes:
        rows: new rows, or rows to upsert.
        changes: of a table, what is done in order; then there are no rows.
        rejected: the messages that say nothing.
    """

    rows: pa.RecordBatch | None = None
    changes: list[RowChange] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)


def metadata_columns(schema: Schema, settings: Settings) -> dict[str, str]:
    """The columns that do not come from the payload, with what they hold.

    Raises:
        InvalidOptionError: there is no such column, or it has another type.
    """
    found = {}
    types = {column.name: column.type.sql for column in schema.columns}
    for role, fitting in ROLES.items():
        named = settings[f"{role}_column"]
        name = named or f"kafka_{role}"
        if name in types:
            if types[name] not in fitting:
                raise InvalidOptionError(
                    f"the column {name} is {types[name]}, and holds the {role} of a message",
                    hint=f"make it {' or '.join(fitting)}",
                )
            found[name] = role
        elif named:
            raise InvalidOptionError(
                f"{role}_column is {named!r}, which is no column",
                hint=f"the columns are {', '.join(types)}",
            )
    return found


class Decoder:
    """Reads messages for one source or table."""

    def __init__(self, target: Target, settings: Settings, registry: SchemaRegistry | None) -> None:
        self._value_of = needs("confluent_kafka", EXTRA).Message.value
        self._schema = target.schema
        self._is_table = target.kind == "table"
        self._settings = settings
        self._format = settings["format"]
        self._unit = settings["timestamp_unit"]
        self._metadata = metadata_columns(target.schema, settings)
        payload = tuple(c for c in target.schema.columns if c.name not in self._metadata)
        self._payload = Schema(payload) if payload else None
        self._tombstones = settings["tombstones"] or ("delete" if self._is_table else "reject")
        self._avro = None if registry is None else AvroReader(registry)
        self._check()
        self._read = self._payload_reader()
        self._envelopes = (
            Envelopes(Schema(payload, target.schema.key), self._unit, settings["decimals"])
            if self._is_envelope
            else None
        )

    @property
    def _is_envelope(self) -> bool:
        return str(self._format).startswith("debezium")

    def _check(self) -> None:
        """Raise what a CREATE must not promise."""
        if self._is_envelope and not self._is_table:
            raise InvalidOptionError(
                "envelopes of Debezium change rows, and a source has only new ones",
                hint="CREATE TABLE ... (..., PRIMARY KEY (...)) WITH the same options",
            )
        if self._is_envelope and self._metadata:
            raise InvalidOptionError(
                f"the column {next(iter(self._metadata))} cannot be filled from an envelope",
                hint="leave it out: the rows of the table are those of the database outside",
            )
        if self._format == "raw" and self._payload is not None:
            (column, *more) = self._payload.columns
            if more or column.type.sql not in {"VARCHAR", "BINARY"}:
                raise InvalidOptionError(
                    "format = 'raw' fills one column of VARCHAR or BINARY",
                    hint="name columns of metadata kafka_key, kafka_offset, ...",
                )
        if self._tombstones == "null" and self._format not in {"json", "raw"}:
            raise InvalidOptionError(
                "tombstones = 'null' is for JSON and raw", hint="write 'skip' or 'reject'"
            )
        if self._tombstones == "delete" and not self._is_table:
            raise InvalidOptionError(
                "a source has no rows to delete", hint="CREATE TABLE, or tombstones = 'skip'"
            )

    # ---- all messages

    def decode(self, messages: Sequence[Any]) -> Decoded:
        """What some messages say; none of them is an error."""
        values: list[Any] = list(map(self._value_of, messages))
        if self._envelopes is not None:
            return self._changes(messages, self._envelope)
        if self._tombstones == "null":
            empty = None if self._format == "raw" else b"{}"
            values = [empty if value is None else value for value in values]
        elif None in values:
            if self._tombstones == "delete":
                return self._changes(messages, self._upsert)
            return self._without_tombstones(messages, values)
        return self._rows(messages, values)

    def _without_tombstones(self, messages: Sequence[Any], values: list[Any]) -> Decoded:
        kept = [place for place, value in enumerate(values) if value is not None]
        found = self._rows([messages[at] for at in kept], [values[at] for at in kept])
        if self._tombstones == "reject":
            gone = (message for message in messages if message.value() is None)
            reason = "a message without a value: a source has no rows to delete"
            found.rejected += [_rejected(message, reason) for message in gone]
        return found

    # ---- rows

    def _rows(self, messages: Sequence[Any], values: list[Any]) -> Decoded:
        decoded = self._read(values)
        rejected = [_rejected(messages[place], why) for place, why in decoded.malformed]
        places = decoded.places
        taken = messages if places is None else [messages[place] for place in places]
        rows = decoded.rows
        if self._metadata:
            rows, taken_rejected = self._with_metadata(taken, rows)
            rejected += taken_rejected
        return Decoded(rows, [], rejected)

    def _with_metadata(
        self, messages: Sequence[Any], payload: pa.RecordBatch
    ) -> tuple[pa.RecordBatch, list[Rejected]]:
        """The rows with the columns of metadata; without those of which a key is no text."""
        try:
            return self._joined(messages, payload), []
        except (pa.ArrowException, SchemaMismatchError):
            pass
        rows, rejected = [], []
        for place, message in enumerate(messages):
            try:
                rows.append(self._joined([message], payload.slice(place, 1)))
            except (pa.ArrowException, SchemaMismatchError) as error:
                rejected.append(_rejected(message, f"its metadata does not fit: {error}"))
        empty = [self._schema.rows_to_arrow([])]
        return pa.concat_batches(rows or empty), rejected

    def _joined(self, messages: Sequence[Any], payload: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [
            _metadata_array(self._metadata[column.name], messages, column.type.arrow)
            if column.name in self._metadata
            else payload.column(column.name)
            for column in self._schema.columns
        ]
        return self._schema.admit(pa.RecordBatch.from_arrays(arrays, list(self._schema.names)))

    def _payload_reader(self) -> Callable[[Sequence[Any]], DecodedRecords]:
        schema = self._payload
        if schema is None or self._is_envelope:
            return _nothing
        if self._format == "avro":
            row = partial(self._avro_row, schema)
            return RecordDecoder(
                schema, lambda values: schema.rows_to_arrow(list(map(row, values))), row
            )
        return record_decoder(
            self._format,
            schema,
            delimiter=self._settings["delimiter"],
            timestamp_unit=self._unit,
        )

    def _avro_row(self, schema: Schema, value: bytes) -> Row:
        if self._avro is None:
            raise AssertionError("Avro has a registry")
        found, _ = self._avro.read(value)
        return schema.check_rows([tuple(plain(found.get(name)) for name in schema.names)])[0]

    # ---- changes

    def _changes(self, messages: Sequence[Any], read: Callable[[Any], RowChange | None]) -> Decoded:
        made = Decoded()
        for message in messages:
            try:
                change = read(message)
            except SchemaMismatchError as error:
                reason = error.message.removeprefix("row 0, ")
                made.rejected.append(_rejected(message, reason))
            else:
                if change is not None:
                    made.changes.append(change)
        return made

    def _upsert(self, message: Any) -> RowChange | None:  # noqa: ANN401 - a Message
        if message.value() is None:
            return delete(self._deleted_key(message.key()))
        found = self._rows([message], [message.value()])
        if found.rejected or found.rows is None:
            raise SchemaMismatchError(found.rejected[0].reason)
        return upsert(self._schema.arrow_to_rows(found.rows)[0])

    def _deleted_key(self, key: bytes | None) -> Row:
        if key is None:
            raise SchemaMismatchError("a message with neither key nor value")
        columns = {column.name: column for column in self._schema.columns}
        schema = Schema(tuple(columns[name] for name in self._schema.key))
        form = self._settings["key_format"] or ("json" if len(schema.names) > 1 else "text")
        if form == "avro" and self._avro is not None:
            found, _ = self._avro.read(key)
            return schema.check_rows([tuple(plain(found.get(name)) for name in schema.names)])[0]
        if form == "json":
            return json_row(json_object(key), schema, timestamp_unit=self._unit)
        (column,) = schema.columns
        try:
            return schema.check_rows([(text_value(column.type, key.decode()),)])[0]
        except UnicodeDecodeError:
            raise SchemaMismatchError("the key is not UTF-8") from None

    def _envelope(self, message: Any) -> RowChange | None:  # noqa: ANN401 - a Message
        value, key = message.value(), message.key()
        if value is None or self._envelopes is None:
            return None  # the tombstone after a delete, for compaction
        if self._format == "debezium-avro" and self._avro is not None:
            found, schema = self._avro.read(value)
            key_row = self._avro.read(key)[0] if key and found.get("op") == "d" else None
            plain_rows = {
                name: {k: plain(v) for k, v in each.items()} if isinstance(each, dict) else each
                for name, each in found.items()
            }
            return self._envelopes.change(plain_rows, key_row, avro_semantics(schema))
        payload, semantics = unwrapped(json_object(value))
        if payload is None:
            return None
        if not isinstance(payload, dict):
            raise SchemaMismatchError("it is no envelope of Debezium")
        key_row = None
        if key and payload.get("op") == "d" and payload.get("before") is None:
            key_row, semantics = unwrapped(json_object(key))
        return self._envelopes.change(payload, key_row, semantics)


def _nothing(values: Sequence[Any]) -> DecodedRecords:
    """Of messages whose values are not asked for: as many rows, without a column of ours."""
    rows = pa.RecordBatch.from_arrays([pa.nulls(len(values))], ["nothing"])
    return DecodedRecords(rows, None, [])


def _metadata_array(role: str, messages: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    if role == "key":
        return pa.array([message.key() for message in messages], pa.binary()).cast(arrow)
    if role == "timestamp":
        times = [(None if at[0] == 0 else at[1]) for at in [m.timestamp() for m in messages]]
        return pa.array(times, pa.int64()).cast(_MILLIS).cast(arrow)
    if role == "headers":
        return pa.array([_headers(message, arrow) for message in messages], arrow)
    ask = {"topic": "topic", "partition": "partition", "offset": "offset"}[role]
    return pa.array([getattr(message, ask)() for message in messages], arrow)


def _headers(message: Any, arrow: pa.DataType) -> list[tuple[str, Any]]:  # noqa: ANN401
    given = message.headers() or []
    if len({name for name, _ in given}) != len(given):
        raise SchemaMismatchError("a header comes twice, and a MAP has each name once")
    if arrow.item_type == pa.binary():
        return given
    try:
        return [(name, None if value is None else value.decode()) for name, value in given]
    except UnicodeDecodeError:
        raise SchemaMismatchError("a header is not UTF-8") from None


def _rejected(message: Any, reason: str) -> Rejected:  # noqa: ANN401 - a Message
    origin = f"{message.topic()}/{message.partition()}@{message.offset()}"
    return Rejected(reason, message.value() or b"", origin)
