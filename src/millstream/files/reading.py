"""Reading a file piece by piece, from an offset; bad records of text are raised or given apart.

The offset of a piece is in the unit of its format: rows of Parquet, bytes of CSV and JSON lines,
record batches of Arrow IPC. Reading from the offset after a piece gives exactly the next ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import csv as arrow_csv

from millstream.errors import (
    FileAccessError,
    FileFormatError,
    RowError,
    SchemaError,
    SchemaMismatchError,
)
from millstream.files.lines import READ_BYTES, chunks, is_json, is_utf8, records
from millstream.files.place import access_error
from millstream.formats.csv_text import csv_rows
from millstream.formats.json_text import json_rows
from millstream.model.batch import ChangeBatch
from millstream.model.schema import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from millstream.files.formats import FileOptions
    from millstream.files.place import Place

PIECE_ROWS: Final = 65_536
_FEW: Final = 64
_FILE_MAGIC: Final = b"ARROW1"
_BROKEN: Final = (OSError, pa.ArrowException, EOFError)


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record of text that cannot be taken.

    Attributes:
        reason: why.
        payload: the record.
        line: where it begins, from 1.
    """

    reason: str
    payload: bytes
    line: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of a file.

    Attributes:
        batches: the rows, checked.
        offset: where to go on after them.
        done: how much of the file was read, from 0 to 1.
        bad: records that cannot be taken.
        line: of text, the line after the piece; else 0.
    """

    batches: Sequence[ChangeBatch]
    offset: int
    done: float
    bad: Sequence[BadRecord] = ()
    line: int = 0

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(map(len, self.batches))


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
        return _Text(place, schema, options, form == "csv", tolerant=tolerant).pieces(start, line)
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
    except _BROKEN as error:
        raise _unreadable(place, form, error) from error
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


def _unreadable(place: Place, form: str, error: Exception) -> FileAccessError:
    if isinstance(error, OSError) and not isinstance(error, pa.ArrowException) and error.errno:
        return access_error("read", place.path, error)
    why = str(error).partition(" Detail:")[0][:200]
    if not place.is_local and isinstance(error, OSError):  # the network, perhaps
        return FileAccessError(f"cannot read {place.path}: {why}", hint="it is tried again")
    return FileFormatError(
        f"{place.path} cannot be read as {form}: {why}",
        hint="the file is damaged or not complete, or has another format",
    )


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
    except _BROKEN as error:
        raise _unreadable(place, "parquet", error) from error


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
    except _BROKEN as error:
        raise _unreadable(place, "arrow", error) from error


def _arrow_batches(reader: Any) -> Iterator[pa.RecordBatch]:  # noqa: ANN401 - either of the two
    if not hasattr(reader, "num_record_batches"):
        yield from reader
        return
    for number in range(reader.num_record_batches):
        yield reader.get_batch(number)


# ---- CSV and JSON


@dataclass(slots=True)
class _Text:
    place: Place
    schema: Schema
    options: FileOptions
    is_csv: bool
    tolerant: bool = field(kw_only=True)
    _header: bytes = b""
    _line: int = 1

    def pieces(self, start: int, line: int) -> Iterator[Piece]:
        """The pieces from a byte on."""
        form = "csv" if self.is_csv else "json"
        try:
            size = self.place.size()
            with self.place.system.open_input_stream(self.place.path) as stream:
                yield from self._pieces(stream, size, start, line)
        except _BROKEN as error:
            raise _unreadable(self.place, form, error) from error

    def _pieces(self, stream: Any, size: int, start: int, line: int) -> Iterator[Piece]:  # noqa: ANN401
        def read() -> bytes:
            return bytes(stream.read(READ_BYTES))

        begin = read()
        if not self.is_csv and begin.lstrip()[:1] == b"[":
            yield from self._array(begin, read, start)
            return
        whole = chunks(begin, read, is_csv=self.is_csv)
        offset = self._read_header(first := next(whole, b""))
        if start > offset:
            rest, self._line = _skipped(first, whole, start), line
        else:
            start, rest = offset, _joined(first[offset:], whole)
        for chunk in rest:
            batches, bad = self._parsed(chunk)
            self._line += chunk.count(b"\n")
            start += len(chunk)
            if batches or bad:
                yield Piece(batches, start, min(1.0, start / max(size, 1)), bad, self._line)

    def _read_header(self, first: bytes) -> int:
        """The header of CSV, its own or that of the columns; returns how long it is in the file."""
        names = self.options.delimiter.join(
            '"' + name.replace('"', '""') + '"' for name in self.schema.names
        )
        if self.is_csv and not self.options.header:
            self._header = names.encode() + b"\n"
        if not self.is_csv or not self.options.header:
            return 0
        record = next(records(first, is_csv=True), b"")
        self._header = record if record.endswith(b"\n") else record + b"\n"
        self._line = 1 + record.count(b"\n")
        return len(record)

    def _array(self, begin: bytes, read: Callable[[], bytes], start: int) -> Iterator[Piece]:
        """A file that is one array of objects: one piece."""
        parts = [begin]
        while parts[-1]:
            parts.append(read())
        whole = b"".join(parts)
        if start < len(whole):
            rows = json_rows(whole, self.schema)
            yield Piece(
                [ChangeBatch(self.schema, rows, None, None)] if rows else [], len(whole), 1.0
            )

    def _rows(self, text: bytes) -> list[ChangeBatch]:
        if not text.strip():
            return []
        if self.is_csv:
            return csv_rows(
                self._header + text,
                self.schema,
                delimiter=self.options.delimiter,
                null=self.options.null,
            )
        rows = json_rows(text, self.schema)
        return [ChangeBatch(self.schema, rows, None, None)] if rows else []

    def _parsed(self, chunk: bytes) -> tuple[list[ChangeBatch], list[BadRecord]]:
        try:
            return self._rows(chunk), []
        except SchemaMismatchError as error:
            found = list(records(chunk, is_csv=self.is_csv))
            if self._bad_record(found, error) is None:  # no row is wrong: a column of the header
                raise
            return self._around(found, self._line)

    def _around(self, found: list[bytes], line: int) -> tuple[list[ChangeBatch], list[BadRecord]]:
        """What is good of records, and what is not; raises at the first that is not."""
        batches: list[ChangeBatch] = []
        bad: list[BadRecord] = []
        place, many = 0, len(found)
        while place < len(found):
            group = found[place : place + many]
            try:
                batches += self._rows(b"".join(group))
                taken, many = len(group), many * 2
            except SchemaMismatchError as error:
                at = self._bad_record(group, error)
                if at is None:
                    raise
                # Those before it may be bad in another way, which was not looked at yet.
                before, bad_before = self._around(group[:at], line)
                batches += before
                bad += bad_before
                taken, many = at + 1, _FEW
                where = line + sum(each.count(b"\n") for each in group[:at])
                bad.append(self._refused(error, group[at], where))
            line += sum(each.count(b"\n") for each in group[:taken])
            place += taken
        return batches, bad

    def _refused(self, error: SchemaMismatchError, record: bytes, line: int) -> BadRecord:
        why = _without_place(error.message)
        if not self.tolerant:
            raise RowError(
                f"{self.place.name}, line {line}: {why}",
                row=line,
                column=getattr(error, "column", None),
                hint=error.hint,
            ) from error
        return BadRecord(why, record.rstrip(b"\r\n"), line)

    def _bad_record(self, found: Sequence[bytes], error: SchemaMismatchError) -> int | None:
        """The place of the first record that cannot be read."""
        if isinstance(error, RowError):
            rows = [place for place, each in enumerate(found) if each.strip()]
            return rows[error.row] if error.row < len(rows) else None
        is_good = is_utf8 if self.is_csv else is_json
        return next((place for place, each in enumerate(found) if not is_good(each)), None)


def _joined(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest


def _skipped(first: bytes, rest: Iterator[bytes], start: int) -> Iterator[bytes]:
    """What is after so many bytes, which end a record."""
    seen = 0
    for chunk in _joined(first, rest):
        seen += len(chunk)
        if seen > start:
            yield chunk[-min(seen - start, len(chunk)) :]


def _without_place(message: str) -> str:
    """The message of an error without the row and line that it had in its piece."""
    head, separator, rest = message.partition(": ")
    if head.startswith("row ") and ", column " in head:
        return f"column {head.partition(', column ')[2]}{separator}{rest}"
    return rest if head.startswith(("row ", "line ")) else message
