"""Rows of a stream of bytes, inserted batch by batch; a bad row is reported by its line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import pyarrow as pa
import typer

from millstream.cli.formats import InputFormat
from millstream.errors import Error, RowError, SchemaMismatchError
from millstream.files.lines import READ_BYTES, chunks, is_json, is_utf8
from millstream.files.lines import records as records_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream import Database

_SUFFIXES: Final = {
    ".json": InputFormat.JSON,
    ".jsonl": InputFormat.JSON,
    ".ndjson": InputFormat.JSON,
    ".csv": InputFormat.CSV,
    ".arrow": InputFormat.ARROW,
    ".arrows": InputFormat.ARROW,
    ".ipc": InputFormat.ARROW,
    ".feather": InputFormat.ARROW,
}
_FILE_MAGIC: Final = b"ARROW1"
_STREAM_MAGIC: Final = b"\xff\xff\xff\xff"
_FEW: Final = 64
_PLACE: Final = re.compile(r"(?:row \d+(?: \(line \d+\))?|line (\d+)(?:, column \d+)?)[:,] ")


@dataclass(slots=True)
class Pushed:
    """What was done so far.

    Attributes:
        rows: rows that are in the database.
        bytes: how much of the input was read.
        skipped: rows that did not fit and were reported.
    """

    rows: int = 0
    bytes: int = 0
    skipped: int = 0


class PushError(SchemaMismatchError):
    """A row of the input that does not fit; those before it were taken."""

    code = "PUSH"


def push_stream(
    database: Database,
    name: str,
    stream: BinaryIO,
    form: InputFormat | None = None,
    *,
    name_of_file: str = "",
    skip_bad: bool = False,
    report: Callable[[Pushed], None] = lambda _: None,
) -> Pushed:
    """Insert all rows of a stream.

    Raises:
        PushError: a row that does not fit; the error names its line.
        ObjectNotFoundError: there is no source or table of that name.
    """
    database.schema(name)
    done = Pushed()
    begin = _read(stream)
    found = form or _format_of(name_of_file, begin)
    if found is InputFormat.ARROW:
        _push_arrow(database, name, _Joined(begin, stream), done, report)
        return done
    if found is InputFormat.JSON and begin.lstrip()[:1] == b"[":
        begin += stream.read()
        done.rows, done.bytes = database.insert_json(name, begin), len(begin)
        return done
    lines = _Lines(database, name, done, is_csv=found is InputFormat.CSV, skip_bad=skip_bad)
    for chunk in chunks(begin, lambda: _read(stream), is_csv=found is InputFormat.CSV):
        lines.insert(chunk)
        done.bytes += len(chunk)
        report(done)
    return done


def _format_of(name: str, begin: bytes) -> InputFormat:
    """The format by the name of the file, or by its first bytes."""
    suffix = f".{name.rpartition('.')[2].lower()}"
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    if begin.startswith((_FILE_MAGIC, _STREAM_MAGIC)):
        return InputFormat.ARROW
    return InputFormat.JSON if begin.lstrip()[:1] in {b"{", b"["} else InputFormat.CSV


def _read(stream: BinaryIO) -> bytes:
    """What is there, and at least a byte; a pipe is not waited for until it is full."""
    read1: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    return read1(READ_BYTES)


# ---- lines: JSON and CSV


class _Lines:
    """Inserts chunks of lines, and counts lines over all of them."""

    def __init__(
        self, database: Database, name: str, done: Pushed, *, is_csv: bool, skip_bad: bool
    ) -> None:
        self._database = database
        self._name = name
        self._done = done
        self._is_csv = is_csv
        self._skip_bad = skip_bad
        self._header = b""
        self._line = 1

    def insert(self, chunk: bytes) -> None:
        """Insert the rows of whole lines; those before a row that does not fit are taken."""
        if self._is_csv and not self._header:
            size = chunk.find(b"\n") + 1 or len(chunk)
            self._header, chunk = chunk[:size], chunk[size:]
            if not self._header.endswith(b"\n"):
                self._header += b"\n"
            self._line = 2
        self._insert_lines(chunk)

    def _insert_lines(self, chunk: bytes) -> None:
        if chunk.strip():
            try:
                self._done.rows += self._insert(chunk)
            except SchemaMismatchError as error:
                self._insert_around(chunk, error)
                return
            except Error as error:
                last = self._line + chunk.rstrip(b"\n").count(b"\n")
                raise self._refused(f"lines {self._line} to {last}", error) from error
        self._line += chunk.count(b"\n")

    def _insert(self, text: bytes) -> int:
        if self._is_csv:
            return self._database.insert_csv(self._name, self._header + text)
        return self._database.insert_json(self._name, text)

    def _insert_around(self, chunk: bytes, error: SchemaMismatchError) -> None:
        """Insert what is before the bad record; what follows it, if bad ones are skipped."""
        records = list(records_of(chunk, is_csv=self._is_csv))
        bad = self._bad_record(records, error)
        if bad is None:  # no row is wrong: a column of the header
            raise error
        self._insert_lines(b"".join(records[:bad]))
        if not self._skip_bad:
            raise self._refused(f"line {self._line}", error) from error
        message = error.message[_prefix(error.message) :]
        typer.echo(f"line {self._line}: {message}; skipped", err=True)
        self._done.skipped += 1
        self._line += records[bad].count(b"\n")
        rest = records[bad + 1 :]
        for start in range(0, len(rest), _FEW):  # each bad record costs only its neighbours
            self._insert_lines(b"".join(rest[start : start + _FEW]))

    def _bad_record(self, records: list[bytes], error: SchemaMismatchError) -> int | None:
        """The place of the first record that cannot be read."""
        if isinstance(error, RowError):
            rows = [place for place, each in enumerate(records) if each.strip()]
            return rows[error.row] if error.row < len(rows) else None
        if self._is_csv:
            return next((n for n, each in enumerate(records) if not is_utf8(each)), None)
        return next((n for n, each in enumerate(records) if not is_json(each)), None)

    def _refused(self, place: str, error: Error) -> PushError:
        message = error.message[_prefix(error.message) :]
        hint = f"{self._done.rows:,} rows before it were pushed, and nothing from it on"
        if error.hint:
            hint = f"{error.hint.replace(' Nothing was taken.', '')}\n  {hint}"
        return PushError(f"{place}: {message}", hint=hint)


def _prefix(message: str) -> int:
    found = _PLACE.match(message)
    return found.end() if found else 0


# ---- Arrow


class _Joined:
    """A file for pyarrow: bytes that were read already, and then the rest of a stream."""

    closed = False

    def __init__(self, begin: bytes, stream: BinaryIO) -> None:
        self.begin = begin
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        if size < 0:
            taken, self.begin = self.begin, b""
            return taken + self._stream.read()
        while len(self.begin) < size:
            more = _read(self._stream)
            if not more:
                break
            self.begin += more
        taken, self.begin = self.begin[:size], self.begin[size:]
        return taken


def _push_arrow(
    database: Database, name: str, file: _Joined, done: Pushed, report: Callable[[Pushed], None]
) -> None:
    try:
        for batch in _arrow_batches(file):
            first = done.rows
            try:
                done.rows += database.insert(name, batch)
            except RowError as error:
                raise PushError(
                    f"row {first + error.row + 1:,}: {error.message[_prefix(error.message) :]}",
                    hint=f"{first:,} rows before its batch were pushed, and nothing from it on",
                ) from error
            done.bytes += batch.nbytes
            report(done)
    except (pa.ArrowException, OSError) as error:
        raise PushError(
            f"the Arrow data cannot be read: {str(error)[:200]}",
            hint=f"{done.rows:,} rows before it were pushed",
        ) from error


def _arrow_batches(file: _Joined) -> Iterator[Any]:
    if file.begin.startswith(_FILE_MAGIC):
        reader = pa.ipc.open_file(pa.BufferReader(file.read()))
        for place in range(reader.num_record_batches):
            yield pa.Table.from_batches([reader.get_batch(place)])
    else:
        for batch in pa.ipc.open_stream(pa.PythonFile(file, "r")):
            yield pa.Table.from_batches([batch])
