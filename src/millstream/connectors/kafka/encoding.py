"""Rows as messages of Kafka: keys and values, as JSON or Avro; envelopes as Debezium has them."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream.connectors.kafka.avro import AvroWriter
from millstream.errors import InvalidOptionError
from millstream.formats.json_output import to_json
from millstream.model.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.connectors.batches import SinkBatch
    from millstream.connectors.contract import Settings, SinkInput
    from millstream.connectors.kafka.schema_registry import SchemaRegistry
    from millstream.model.change import Change
    from millstream.model.schema import Row


class Record(NamedTuple):
    """What is produced; without a value, a tombstone."""

    key: bytes | None
    value: bytes | None


class Encoder:
    """Makes the messages of a sink.

    Args:
        given: what the sink reads.
        settings: topic, mode, format, key_format.
        registry: the schema registry; of Avro only.
    """

    def __init__(
        self, given: SinkInput, settings: Settings, registry: SchemaRegistry | None
    ) -> None:
        schema, topic = given.schema, settings["topic"]
        self._names = schema.names
        self._places = [schema.names.index(name) for name in schema.key]
        self._source = {"connector": "millstream", "name": given.name, "table": given.relation}
        columns = {column.name: column for column in schema.columns}
        key = Schema(tuple(columns[name] for name in schema.key)) if schema.key else None
        self._key_names = schema.key
        self._value: Callable[[dict[str, Any]], bytes] = _json
        self._key: Callable[[dict[str, Any]], bytes] = _json
        if registry is not None:
            value = AvroWriter(registry, f"{topic}-value", schema, f"{topic}_value")
            self._value = value.write
            if key is not None:
                self._key = AvroWriter(registry, f"{topic}-key", key, f"{topic}_key").write
        if settings["key_format"] == "text":
            if len(schema.key) != 1:
                raise InvalidOptionError(
                    "key_format = 'text' is for a key of one column", hint="leave it out: JSON"
                )
            self._key = _text

    def key(self, values: Row) -> bytes:
        """The key of a message, of the values of the key's columns."""
        return self._key(dict(zip(self._key_names, values, strict=True)))

    def _row_key(self, row: Row) -> bytes | None:
        return self.key(tuple([row[at] for at in self._places])) if self._places else None

    def _row(self, row: Row) -> dict[str, Any]:
        return dict(zip(self._names, row, strict=True))

    # ---- what a batch becomes, by mode

    def appended(self, batch: SinkBatch) -> Iterator[Record]:
        """New rows; raises if a row changes."""
        batch.inserted()
        for row in batch.changes.held_rows:
            yield Record(self._row_key(row), self._value(self._row(row)))

    def upserted(self, batch: SinkBatch) -> Iterator[Record]:
        """Of each key, the row that is there after the batch, or a tombstone."""
        net = batch.net()
        for row in net.upserts:
            yield Record(self._row_key(row), self._value(self._row(row)))
        for key in net.deletes:
            yield Record(self.key(key), None)

    def enveloped(self, batch: SinkBatch) -> Iterator[Record]:
        """Each change as an envelope; a tombstone after a delete, so that compaction forgets."""
        millis = time.time_ns() // 1_000_000
        for change in batch:
            yield self._envelope(change, millis, is_read=batch.kind == "snapshot")
            if change.op == "delete" and self._places:
                yield Record(self._row_key(change.row), None)

    def _envelope(self, change: Change, millis: int, *, is_read: bool) -> Record:
        op = "r" if is_read else {"insert": "c", "update": "u", "delete": "d"}[change.op]
        after = None if op == "d" else self._row(change.row)
        before = None if change.before is None else self._row(change.before)
        source = {**self._source, "lsn": change.lsn}
        made = {"before": before, "after": after, "op": op, "ts_ms": millis, "source": source}
        return Record(self._row_key(change.row), _json(made))

    def removed(self, key: bytes, value: bytes) -> Iterator[Record]:
        """An envelope that says: the row of an earlier envelope is gone; and a tombstone."""
        found = json.loads(value)
        if found.get("op") != "d":
            millis, source = time.time_ns() // 1_000_000, self._source
            gone = {"before": found["after"], "after": None, "op": "d"}
            yield Record(key, _json({**gone, "ts_ms": millis, "source": source}))
        yield Record(key, None)


def _json(row: dict[str, Any]) -> bytes:
    return to_json(row).encode()


def _text(key: dict[str, Any]) -> bytes:
    (value,) = key.values()
    return value.encode() if isinstance(value, str) else to_json(value).strip('"').encode()
