r"""Records of other systems, many at a time, as Arrow: JSON, CSV, raw. The malformed are set apart.

Each record is one row. They are decoded together, by Arrow's own readers; only when those refuse,
they are halved, again and again, so that a few malformed ones cost little.

>>> from millstream import Schema
>>> decode = record_decoder("json", Schema.of(n="INT", s="VARCHAR"))
>>> decoded = decode([b'{"n": 1, "s": "a"}', b"oops", b'{"n": 3}'])
>>> decoded.rows.to_pylist(), decoded.places, [place for place, _ in decoded.malformed]
([{'n': 1, 's': 'a'}, {'n': 3, 's': None}], [0, 2], [1])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.errors import InvalidOptionError, SchemaMismatchError
from millstream.formats.csv_text import csv_rows
from millstream.formats.json_records import json_batch, json_object, json_row, json_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.formats.json_records import TimeUnit
    from millstream.model.schema import Row, Schema

FORMATS: Final = ("json", "csv", "raw")
_FEW: Final = 8


@dataclass(frozen=True, slots=True)
class Decoded:
    """Records, decoded.

    Attributes:
        rows: one for each record that could be, in order, of the schema.
        places: the place of each row's record among all; None: all records are rows.
        malformed: the places of the others, and why.
    """

    rows: pa.RecordBatch
    places: list[int] | None
    malformed: list[tuple[int, str]]


class RecordDecoder:
    """Decodes records of one format.

    Args:
        schema: the columns that they become.
        together: decodes several, or raises SchemaMismatchError or pa.ArrowInvalid.
        alone: decodes one to its row, or raises SchemaMismatchError that says why not.
    """

    def __init__(
        self,
        schema: Schema,
        together: Callable[[Sequence[bytes]], pa.RecordBatch],
        alone: Callable[[bytes], Row],
    ) -> None:
        self._schema = schema
        self._together = together
        self._alone = alone

    def __call__(self, records: Sequence[bytes]) -> Decoded:
        """Decode records."""
        parts: list[pa.RecordBatch] = []
        malformed: list[tuple[int, str]] = []
        self._decode(records, 0, parts, malformed)
        if not parts:
            rows = self._schema.rows_to_arrow([])
        elif len(parts) == 1:
            rows = parts[0]
        else:
            table = pa.Table.from_batches(parts).combine_chunks()
            rows = table.to_batches()[0]
        if not malformed:
            return Decoded(rows, None, malformed)
        bad = {place for place, _ in malformed}
        return Decoded(rows, [n for n in range(len(records)) if n not in bad], malformed)

    def _decode(
        self,
        records: Sequence[bytes],
        first: int,
        parts: list[pa.RecordBatch],
        malformed: list[tuple[int, str]],
    ) -> None:
        if len(records) > _FEW:
            try:
                rows = self._together(records)
            except (SchemaMismatchError, pa.ArrowException):
                middle = len(records) // 2
                self._decode(records[:middle], first, parts, malformed)
                self._decode(records[middle:], first + middle, parts, malformed)
            else:
                parts.append(rows)
            return
        taken: list[Row] = []
        for place, record in enumerate(records, first):
            try:
                taken.append(self._alone(record))
            except SchemaMismatchError as error:
                malformed.append((place, error.message.replace("row 0, ", "", 1)))
        if taken:
            parts.append(self._schema.rows_to_arrow(taken))


def record_decoder(
    name: str,
    schema: Schema,
    *,
    delimiter: str = ",",
    timestamp_unit: TimeUnit | None = None,
) -> RecordDecoder:
    """Return a decoder for records of a format: ``json``, ``csv`` or ``raw``.

    - ``json``: one object per record. Columns are matched by name, unknown names are ignored, and
      values are read as by ``insert_json``.
    - ``csv``: one line per record, with the fields in the order of the columns. Values are read as
      by ``insert_csv``.
    - ``raw``: the bytes are the value of the only column, VARCHAR or BINARY; None is NULL.

    Args:
        name: the format.
        schema: the columns.
        delimiter: the separator of CSV fields.
        timestamp_unit: the unit of numbers in TIMESTAMP columns of JSON, since 1970; None: such
            numbers are rejected.

    Raises:
        InvalidOptionError: the format is unknown, or does not support these columns.
    """
    if name == "json":
        return _json_decoder(schema, timestamp_unit)
    if name == "csv":
        return _csv_decoder(schema, delimiter)
    if name == "raw":
        return _raw_decoder(schema)
    raise InvalidOptionError(f"there is no format {name!r}", hint=f"one of {', '.join(FORMATS)}")


# ---- JSON


def _json_decoder(schema: Schema, timestamp_unit: TimeUnit | None) -> RecordDecoder:
    arrow = json_schema(schema, timestamp_unit)

    def row(record: bytes) -> Row:
        return json_row(json_object(record), schema, timestamp_unit=timestamp_unit)

    if arrow is None:
        return RecordDecoder(
            schema, lambda records: schema.rows_to_arrow(list(map(row, records))), row
        )

    def together(records: Sequence[bytes]) -> pa.RecordBatch:
        return json_batch(records, schema, arrow, timestamp_unit)

    def alone(record: bytes) -> Row:
        """As together, if that can be: what becomes of a record does not depend on others."""
        try:
            return schema.arrow_to_rows(together([record]))[0]
        except (SchemaMismatchError, pa.ArrowException):
            return row(record)

    return RecordDecoder(schema, together, alone)


# ---- CSV


def _csv_decoder(schema: Schema, delimiter: str) -> RecordDecoder:
    def decoded(records: Sequence[bytes]) -> pa.Table:
        text = b"\n".join(records) + b"\n"
        batches = csv_rows(text, schema, header=False, delimiter=delimiter)
        made = pa.Table.from_batches([each.arrow for each in batches], schema=schema.arrow)
        if made.num_rows != len(records):
            raise SchemaMismatchError("a record is not one line")
        return made

    def together(records: Sequence[bytes]) -> pa.RecordBatch:
        if any(b"\n" in record or not record.strip() for record in records):
            raise SchemaMismatchError("a record is not one line")
        return schema.admit(decoded(records).combine_chunks().to_batches()[0])

    def alone(record: bytes) -> Row:
        rows: list[Row] = schema.arrow_to_rows(decoded([record]).to_batches()[0])
        return rows[0]

    return RecordDecoder(schema, together, alone)


# ---- raw


def _raw_decoder(schema: Schema) -> RecordDecoder:
    kinds = [column.type.kind for column in schema.columns]
    if kinds not in (["VARCHAR"], ["BINARY"]):
        raise InvalidOptionError(
            "raw records are the value of one column",
            hint="give it one column of type VARCHAR or BINARY",
        )

    def together(records: Sequence[bytes]) -> pa.RecordBatch:
        values = pa.array(records, pa.binary()).cast(schema.arrow.field(0).type)
        values.validate(full=True)
        return schema.admit(pa.RecordBatch.from_arrays([values], schema=schema.arrow))

    def alone(record: bytes | None) -> Row:
        try:
            value = record if record is None or kinds == ["BINARY"] else record.decode()
        except UnicodeDecodeError:
            raise SchemaMismatchError("the record is not UTF-8") from None
        return schema.check_rows([(value,)])[0]

    return RecordDecoder(schema, together, alone)
