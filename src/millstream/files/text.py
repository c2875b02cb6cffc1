"""Reading CSV and JSON lines piece by piece; bad records are raised or given apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import RowError, SchemaMismatchError
from millstream.files.lines import READ_BYTES, chunks, is_json, is_utf8, records
from millstream.files.pieces import BROKEN, BadRecord, Piece, unreadable
from millstream.formats.csv_text import csv_rows
from millstream.formats.json_text import json_rows
from millstream.model.batch import ChangeBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from millstream.files.formats import FileOptions
    from millstream.files.place import Place
    from millstream.model.schema import Schema

_FEW: Final = 64


@dataclass(slots=True)
class TextFile:
    """A file of CSV or JSON lines.

    Attributes:
        place: the file.
        schema: the columns.
        options: those of CSV.
        is_csv: CSV; else JSON lines.
        tolerant: give bad records apart instead of raising.
    """

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
        except BROKEN as error:
            raise unreadable(self.place, form, error) from error

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
