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

import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from millstream.errors import InvalidOptionError, SchemaMismatchError
from millstream.formats.csv_text import csv_rows
from millstream.formats.text import DECODER, json_value, read_column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.model.schema import Column, Row, Schema

FORMATS: Final = ("json", "csv", "raw")
_FEW: Final = 8
_DIRECT: Final = frozenset(
    {"BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "REAL", "DOUBLE", "DECIMAL"}
    | {"VARCHAR", "TIMESTAMP", "DATE"}
)
"""Types that Arrow's reader of JSON reads as we do, or refuses."""


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


def record_decoder(name: str, schema: Schema, *, delimiter: str = ",") -> RecordDecoder:
    """What decodes records of a format: ``json``, ``csv`` or ``raw``.

    JSON: an object each; columns are found by name, other names are passed over; values as for
    ``insert_json``. CSV: a line each, its fields in the order of the columns; values as for
    ``insert_csv``. Raw: the bytes are the value of the only column, VARCHAR or BINARY.

    Raises:
        InvalidOptionError: no such format, or columns that it cannot have.
    """
    if name == "json":
        return _json_decoder(schema)
    if name == "csv":
        return _csv_decoder(schema, delimiter)
    if name == "raw":
        return _raw_decoder(schema)
    raise InvalidOptionError(f"there is no format {name!r}", hint=f"one of {', '.join(FORMATS)}")


# ---- JSON


def _json_decoder(schema: Schema) -> RecordDecoder:
    is_direct = all(column.type.kind in _DIRECT for column in schema.columns)
    read = [
        pa.field(c.name, pa.string() if c.type.kind == "DATE" else c.type.arrow)
        for c in schema.columns
    ]
    options = arrow_json.ParseOptions(
        explicit_schema=pa.schema(read), unexpected_field_behavior="ignore"
    )

    def together(records: Sequence[bytes]) -> pa.RecordBatch:
        if not is_direct:
            rows = [_json_row(record, schema) for record in records]
            return schema.rows_to_arrow(schema.check_rows(rows))
        _check_objects(records)
        text = b"\n".join(records)
        block = arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 64)
        table = arrow_json.read_json(io.BytesIO(text), block, options)
        if table.num_rows != len(records):
            raise SchemaMismatchError("some records are not one object each")
        arrays = [_json_column(column, table.column(column.name)) for column in schema.columns]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)
        batch.validate(full=True)
        return schema.admit(batch)

    return RecordDecoder(
        schema, together, lambda record: schema.check_rows([_json_row(record, schema)])[0]
    )


def _check_objects(records: Sequence[bytes]) -> None:
    """Raise unless each record looks like one object.

    Then as many rows as records means a row for each: none can begin or end within another one.
    """
    for record in records:
        if record[:1] != b"{" or record[-1:] != b"}":
            record = record.strip(b" \t\r\n")  # noqa: PLW2901
            if record[:1] != b"{" or record[-1:] != b"}":
                raise SchemaMismatchError("a record is no object")


def _json_column(column: Column, values: pa.ChunkedArray) -> pa.Array:
    array = values.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.nulls(0, array.type)
    if column.type.kind == "DATE":
        lengths = pc.binary_length(array)
        if pc.any(pc.not_equal(lengths, 10)).as_py():
            raise SchemaMismatchError("a date is not written as 2024-05-31")
        return array.cast(pa.date32())
    return array


def _json_row(record: bytes, schema: Schema) -> Row:
    """The row of one record.

    Raises:
        SchemaMismatchError: it is no object, or a value does not fit.
    """
    try:
        value: Any = DECODER.decode(record.decode())
    except UnicodeDecodeError:
        raise SchemaMismatchError("the record is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise SchemaMismatchError(f"invalid JSON: {error.msg} at byte {error.pos}") from None
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise SchemaMismatchError(f"invalid JSON: {error}") from None
    if not isinstance(value, dict):
        raise SchemaMismatchError(f"expected an object, got {type(value).__name__}")
    return tuple(
        read_column(column, [value.get(column.name)], json_value)[0] for column in schema.columns
    )


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

    def alone(record: bytes) -> Row:
        try:
            return (record if kinds == ["BINARY"] else record.decode(),)
        except UnicodeDecodeError:
            raise SchemaMismatchError("the record is not UTF-8") from None

    return RecordDecoder(schema, together, alone)
