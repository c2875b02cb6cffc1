"""Reading a file piece by piece, from an offset; bad records of text are raised or given apart.

The offset of a piece is in the unit of its format: rows of Parquet, bytes of CSV and JSON lines,
record batches of Arrow IPC. Reading from the offset after a piece gives exactly the next ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import csv as arrow_csv

from millstream.errors import (
    RowError,
    SchemaError,
    SchemaMismatchError,
)
from millstream.files.lines import READ_BYTES, chunks
from millstream.files.pieces import BROKEN, Piece, unreadable
from millstream.files.text import TextFile
from millstream.model.batch import ChangeBatch
from millstream.model.schema import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.files.formats import FileOptions
    from millstream.files.place import Place

PIECE_ROWS: Final = 65_536
_FILE_MAGIC: Final = b"ARROW1"


def read_file(
    place: Place,
    schema: Schema,
    options: FileOptions,
    *,
    start: int = 0,
    line: int = 0,
    tolerant: bool = False,
) -> Iterator[Piece]:
    """The rows of a file, from an offset on.

    Args:
        place: the file.
        schema: its columns are found by name, and missing ones are NULL. CSV without a header
            has all of them in their order.
        options: its format.
        start: the offset after the last piece that was taken; 0: the beginning.
        line: of text, the line of that piece.
        tolerant: give bad records of CSV and JSON apart instead of raising.

    Raises:
        RowError: a value that does not fit; it names the line, or the row, and the column.
        SchemaMismatchError: columns that do not fit.
        FileAccessError: the file cannot be read, or is not of that format.
    """
    form = options.of(place.name)
    if form in {"csv", "json"}:
        return TextFile(place, schema, options, form == "csv", tolerant=tolerant).pieces(
            start, line
        )
    read = _parquet if form == "parquet" else _arrow
    return read(place, schema, start)


def discover_schema(place: Place, options: FileOptions) -> Schema:
    """The columns of a file: of CSV and JSON, what its first megabyte looks like.

    Raises:
        FileAccessError: the file cannot be read, or is not of that format.
        SchemaError: a column of a type that there is not.
    """
    form = options.of(place.name)
    try:
        if form == "parquet":
            from pyarrow import parquet  # noqa: PLC0415 - takes longer to import than all the rest

            with place.system.open_input_file(place.path) as file:
                found = parquet.read_schema(file)
        elif form == "arrow":
            with place.system.open_input_file(place.path) as file:
                found = _arrow_reader(file).schema
        else:
            found = _guessed(place, options, is_csv=form == "csv")
    except BROKEN as error:
        raise unreadable(place, form, error) from error
    columns = Schema.from_arrow(found.remove_metadata()).columns
    if not columns:
        raise SchemaError(f"{place.path} has no columns", hint="name the columns yourself")
    return Schema(tuple(Column(each.name, each.type) for each in columns))


def _guessed(place: Place, options: FileOptions, *, is_csv: bool) -> pa.Schema:
    with place.system.open_input_stream(place.path) as stream:
        begin = next(chunks(b"", lambda: bytes(stream.read(READ_BYTES)), is_csv=is_csv), b"")
    if not is_csv:
        from pyarrow import json as arrow_json  # noqa: PLC0415 - for this only

        return arrow_json.read_json(pa.BufferReader(begin)).schema
    return arrow_csv.read_csv(
        pa.BufferReader(begin),
        arrow_csv.ReadOptions(autogenerate_column_names=not options.header),
        arrow_csv.ParseOptions(delimiter=options.delimiter, newlines_in_values=True),
    ).schema


# ---- Parquet and Arrow


def _admitted(batch: pa.RecordBatch, schema: Schema, before: int, place: Place) -> ChangeBatch:
    try:
        return ChangeBatch.from_arrow(schema, batch)
    except RowError as error:
        found = error.at(before + error.row)
        raise RowError(
            f"{place.name}: {found.message}", row=found.row, column=found.column, hint=found.hint
        ) from None
    except SchemaMismatchError as error:
        raise SchemaMismatchError(f"{place.name}: {error.message}", hint=error.hint) from None


def _parquet(place: Place, schema: Schema, start: int) -> Iterator[Piece]:
    from pyarrow import parquet  # noqa: PLC0415 - takes longer to import than all the rest

    try:
        with place.system.open_input_file(place.path) as opened:
            file = parquet.ParquetFile(opened)
            total, end = file.metadata.num_rows, 0
            for group in range(file.num_row_groups):
                begin, end = end, end + file.metadata.row_group(group).num_rows
                if end <= start:
                    continue
                for batch in file.iter_batches(batch_size=PIECE_ROWS, row_groups=[group]):
                    left = batch.slice(min(max(start - begin, 0), batch.num_rows))
                    begin += batch.num_rows
                    if left.num_rows:
                        made = _admitted(left, schema, begin - left.num_rows, place)
                        yield Piece([made], begin, begin / total)
    except BROKEN as error:
        raise unreadable(place, "parquet", error) from error


def _arrow_reader(file: Any) -> Any:  # noqa: ANN401 - of a file or of a stream
    begin = file.read(len(_FILE_MAGIC))
    file.seek(0)
    return pa.ipc.open_file(file) if begin == _FILE_MAGIC else pa.ipc.open_stream(file)


def _arrow(place: Place, schema: Schema, start: int) -> Iterator[Piece]:
    try:
        with place.system.open_input_file(place.path) as file:
            size, before = file.size(), 0
            for number, batch in enumerate(_arrow_batches(_arrow_reader(file)), 1):
                if number > start:
                    made = _admitted(batch, schema, before, place)
                    yield Piece([made], number, file.tell() / size)
                before += batch.num_rows
    except BROKEN as error:
        raise unreadable(place, "arrow", error) from error


def _arrow_batches(reader: Any) -> Iterator[pa.RecordBatch]:  # noqa: ANN401 - either of the two
    if not hasattr(reader, "num_record_batches"):
        yield from reader
        return
    for number in range(reader.num_record_batches):
        yield reader.get_batch(number)
