"""Messages of brokers: their bodies as rows of a source, changes as the bodies of messages.

A body is a JSON object whose names are the columns, or it is raw: the value of one column. What a
message has besides (its topic, its id) goes to columns that the options name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.connectors.contract import Delivery, Option, Rejected
from millstream.errors import InvalidOptionError, SchemaMismatchError
from millstream.formats.json_output import to_json
from millstream.formats.records import FORMATS, record_decoder
from millstream.formats.text import text_value
from millstream.model.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from millstream.connectors.batches import SinkBatch
    from millstream.connectors.contract import Settings, SinkInput
    from millstream.model.change import Change
    from millstream.model.schema import Row

FORMAT: Final = Option(
    "format", "choice", default="json", choices=("json", "raw"), help="what a message holds"
)
TIMESTAMP_UNIT: Final = Option(
    "timestamp_unit",
    "choice",
    choices=("s", "ms", "us", "ns"),
    help="what a number in a TIMESTAMP column counts since 1970; without it, times are text",
)
MODE: Final = Option(
    "mode", "choice", default="append", choices=("append", "upsert"), help="what is written"
)


class MessageDecoder:
    """Makes deliveries of messages.

    Args:
        settings: has ``format`` and ``timestamp_unit``.
        schema: the columns of the source.
        metadata: the options that name a column for something besides the body; it is VARCHAR.

    Raises:
        InvalidOptionError: the columns do not fit the format.
    """

    def __init__(self, settings: Settings, schema: Schema, metadata: Sequence[str] = ()) -> None:
        self._schema = schema
        self._besides = {name: settings[name] for name in metadata if settings[name] is not None}
        for option, column in self._besides.items():
            _check_column(schema, option, column)
        own = [each for each in schema.columns if each.name not in self._besides.values()]
        self._body = Schema(tuple(own))
        # Fields have a method of their own, and no decoder.
        name = settings["format"] if settings["format"] in FORMATS else "json"
        self._decode = record_decoder(name, self._body, timestamp_unit=settings["timestamp_unit"])

    def delivery(
        self,
        bodies: Sequence[bytes],
        position: Any = None,  # noqa: ANN401 - a JSON value
        *,
        metadata: Mapping[str, Sequence[str]] | None = None,
        origins: Sequence[str] = (),
    ) -> Delivery:
        """The rows of some messages, and what was rejected of them.

        Args:
            bodies: of the messages.
            position: the one after them.
            metadata: by the names of the options, a text for each message.
            origins: where each message was, for the dead letters.
        """
        found = self._decode(bodies)
        places = range(len(bodies)) if found.places is None else found.places
        letters = [(reason, bodies[place], place) for place, reason in found.malformed]
        rows = pa.Table.from_batches([found.rows])
        return self._made(rows, places, letters, position, metadata or {}, origins)

    def delivery_of_fields(
        self,
        records: Sequence[Mapping[bytes, bytes]],
        position: Any = None,  # noqa: ANN401 - a JSON value
        *,
        metadata: Mapping[str, Sequence[str]] | None = None,
        origins: Sequence[str] = (),
    ) -> Delivery:
        """As ``delivery``, of messages that have fields: the columns by name, each as text."""
        fit: dict[int, Row] = {}
        letters: list[tuple[str, bytes, int]] = []
        for place, record in enumerate(records):
            try:
                fit[place] = self._row(record)
            except (SchemaMismatchError, UnicodeDecodeError) as error:
                reason = getattr(error, "message", "the text is not UTF-8")
                letters.append((reason.removeprefix("row 0, "), repr(dict(record)).encode(), place))
        rows = pa.Table.from_batches([self._body.rows_to_arrow(list(fit.values()))])
        return self._made(rows, list(fit), letters, position, metadata or {}, origins)

    def _row(self, record: Mapping[bytes, bytes]) -> Row:
        texts = {name.decode(): value.decode() for name, value in record.items()}
        values = [
            text_value(each.type, texts[each.name]) if each.name in texts else None
            for each in self._body.columns
        ]
        return self._body.check_rows([tuple(values)])[0]

    def _made(  # noqa: PLR0917 - the parts of a delivery
        self,
        rows: pa.Table,
        places: Sequence[int],
        letters: Sequence[tuple[str, bytes, int]],
        position: Any,  # noqa: ANN401
        metadata: Mapping[str, Sequence[str]],
        origins: Sequence[str],
    ) -> Delivery:
        for option, column in self._besides.items():
            texts = metadata[option]
            rows = rows.append_column(column, [[texts[place] for place in places]])
        rejected = [
            Rejected(reason, payload, origins[place] if origins else "")
            for reason, payload, place in letters
        ]
        return Delivery(rows=rows, position=position, rejected=rejected)


def _check_column(schema: Schema, option: str, column: str) -> None:
    kinds = {each.name: each.type.kind for each in schema.columns}
    if kinds.get(column) != "VARCHAR":
        raise InvalidOptionError(
            f"{option} is {column!r}, which is no VARCHAR column",
            hint=f"available: {', '.join(n for n, k in kinds.items() if k == 'VARCHAR') or 'none'}",
        )


# ---- what sinks write


def check_mode(settings: Settings, given: SinkInput) -> None:
    """Raise unless the input of a sink has what its mode needs.

    Raises:
        InvalidOptionError: rows are to be updated by a key that they do not have.
    """
    if settings["mode"] == "upsert" and not given.schema.key:
        raise InvalidOptionError(
            f"mode is 'upsert', and the rows of {given.relation} have no key",
            hint="use mode = 'append', which writes every change as a message",
        )


def change_text(change: Change, names: Sequence[str]) -> str:
    """A change as JSON: its operation, its LSN, the row and what it was before.

    >>> from millstream import ChangeBatch, Schema
    >>> batch = ChangeBatch.from_rows(Schema.of(n="INT"), [(1,)])
    >>> change_text(next(iter(batch)), ["n"])
    '{"op":"insert","lsn":0,"row":{"n":1}}'
    """
    text: dict[str, Any] = {"op": change.op, "lsn": change.lsn}
    text["row"] = dict(zip(names, change.row, strict=True))
    if change.before is not None:
        text["before"] = dict(zip(names, change.before, strict=True))
    return to_json(text)


def change_texts(batch: SinkBatch) -> Iterator[str]:
    """The messages of a batch, one for each change; one that says so where all before is void."""
    if batch.replaces:
        yield to_json({"op": "reset", "lsn": batch.lsn})
    for change in batch:
        yield change_text(change, batch.schema.names)


def row_text(row: Sequence[Any], schema: Schema) -> str:
    """A row as a JSON object.

    >>> row_text((1, "x"), Schema.of(n="INT", s="VARCHAR"))
    '{"n":1,"s":"x"}'
    """
    return to_json(dict(zip(schema.names, row, strict=True)))


def key_text(key: Sequence[Any]) -> str:
    """A key as a part of a name: its values, with colons between them.

    A colon or a percent sign within a value is escaped, so that two keys never have one name.

    >>> key_text(("EUR", 7)), key_text(("a:b", "c")), key_text(("a", "b:c"))
    ('EUR:7', 'a%3Ab:c', 'a:b%3Ac')
    """
    texts = [each if isinstance(each, str) else to_json(each).strip('"') for each in key]
    return ":".join(text.replace("%", "%25").replace(":", "%3A") for text in texts)


def keys_of(rows: Sequence[Sequence[Any]], schema: Schema) -> list[tuple[Any, ...]]:
    """The keys of rows."""
    places = [schema.names.index(name) for name in schema.key]
    return [tuple(row[place] for place in places) for row in rows]
