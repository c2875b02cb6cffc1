"""COPY: a file into a source or a table; a relation or a query into a file."""

from __future__ import annotations

import difflib
import posixpath
from typing import IO, TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.connectors.options import resolve
from millstream.engine import dml
from millstream.engine.context import CopyProgress
from millstream.errors import SchemaMismatchError, SqlColumnError, SqlOptionError
from millstream.files.formats import FORMATS, FileOptions
from millstream.files.place import NewFile, open_place
from millstream.files.reading import PIECE_ROWS, read_file
from millstream.files.writing import open_writer
from millstream.model.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.catalog import Definition
    from millstream.engine.context import Context
    from millstream.files.place import Place
    from millstream.model.batch import ChangeBatch
    from millstream.model.result import Result
    from millstream.sql import CopyFrom, CopyTo

_OF_CSV: Final = ("header", "delimiter", "null")
_ACCESS: Final = (
    *("access_key", "secret_key", "session_token", "region", "endpoint", "anonymous"),
    *("account", "sas_token"),
)
_FLAGS: Final = frozenset({"header", "anonymous", "replace", "atomic"})
_COMPRESSIONS: Final = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}


def copy_from(context: Context, statement: CopyFrom) -> Result:
    """COPY ... FROM: all rows or none, in one commit; with ``atomic = false``, as they are read.

    Raises:
        RowError: a row that does not fit; it names the line, or the row, and the column.
        DuplicateKeyError: a key of a table that is there already.
        FileAccessError: the file cannot be read.
    """
    definition = context.find(statement.target)
    place, options, more = _options(context, statement, ("replace", "atomic"))
    file_schema = _of_file(definition.schema, statement)
    pieces = _read(context, definition, place, file_schema, options)
    conflict: Any = "replace" if more.get("replace") else "error"
    if more.get("atomic", True):
        rows = dml.insert_batches(context, definition, list(pieces), conflict)
        return context.done(f"COPY {rows}", rows)
    rows = 0
    try:
        for batch in pieces:
            rows += dml.insert_batches(context, definition, [batch], conflict)
    except SchemaMismatchError as error:
        error.hint = f"{error.hint} {rows:,} rows before it were taken.".strip()
        raise
    return context.done(f"COPY {rows}", rows)


def _read(
    context: Context, definition: Definition, place: Place, schema: Schema, options: FileOptions
) -> Iterator[ChangeBatch]:
    rows = 0
    for piece in read_file(place, schema, options):
        for batch in piece.batches:
            yield batch if schema is definition.schema else _widened(batch, definition.schema)
        rows += piece.rows
        if context.progress is not None:
            context.progress(CopyProgress(rows, piece.done))


def _widened(batch: ChangeBatch, schema: Schema) -> ChangeBatch:
    """Rows of some columns as rows of all, NULL in the others."""
    return batch.with_columns(schema, None, schema.conform(batch.arrow.replace_schema_metadata()))


def _of_file(schema: Schema, statement: CopyFrom) -> Schema:
    """The columns of the file: those that the statement lists, in its order."""
    if not statement.columns:
        return schema
    known = {column.name.lower(): column for column in schema.columns}
    for name in statement.columns:
        if name.lower() not in known:
            near = difflib.get_close_matches(name, schema.names, 1)
            raise SqlColumnError(
                f"there is no column {name}",
                sql=statement.sql,
                line=statement.line,
                column=statement.column,
                hint=f"did you mean {near[0]}?" if near else f"columns: {', '.join(schema.names)}",
            )
    return Schema(tuple(known[name.lower()] for name in statement.columns))


def copy_to(context: Context, statement: CopyTo) -> Result:
    """COPY ... TO: the file appears when it is whole, in place of one of that name.

    Raises:
        FileAccessError: the file cannot be written.
    """
    place, options, _ = _options(context, statement, ())
    form = options.of(place.name)
    table, rows = dml.query(context, statement.query).to_arrow(), 0
    with NewFile(place.at(posixpath.dirname(place.path))) as new:
        out = _compressed(new.file, place.name)
        writer = open_writer(out, table.schema.remove_metadata(), form, options)
        for batch in table.to_batches(max_chunksize=PIECE_ROWS):
            writer.write_batch(batch.replace_schema_metadata())
            rows += batch.num_rows
            if context.progress is not None:
                context.progress(CopyProgress(rows, rows / table.num_rows))
        writer.close()
        if out is not new.file:
            out.close()
        new.finish(place.name)
    return context.done(f"COPY {rows}", rows)


def _compressed(file: IO[bytes], name: str) -> Any:  # noqa: ANN401 - a file of either kind
    kind = _COMPRESSIONS.get(posixpath.splitext(name.lower())[1])
    if kind is None:
        return file
    return pa.CompressedOutputStream(_KeptOpen(file), kind)


class _KeptOpen:
    """A file for Arrow to write to, which stays open when Arrow closes it."""

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self.write = file.write
        self.flush = file.flush

    def close(self) -> None:
        """The owner of the file closes it."""


def _options(
    context: Context, statement: CopyFrom | CopyTo, more: tuple[str, ...]
) -> tuple[Place, FileOptions, dict[str, Any]]:
    """The file, how it is written, and the values of other options."""
    values: dict[str, Any] = {}
    known = ("format", *_OF_CSV, *more, *_ACCESS)
    for name, option in statement.options.items():
        value = option.value
        at = (option.line, option.column)
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            did = f"did you mean {near[0]}? " if near else ""
            at, problem = option.name_at, f"there is no option {name}"
            hint = f"{did}available: {', '.join(known)}"
        elif name == "format" and value not in FORMATS:
            problem = f"there is no format {value!r}"
            hint = f"formats: {', '.join(FORMATS)}"
        elif isinstance(value, bool) != (name in _FLAGS):
            problem = f"{name} has a wrong value"
            hint = "true or false" if name in _FLAGS else "a text"
        else:
            values[name] = value if name in _FLAGS else str(resolve(value))
            continue
        raise SqlOptionError(problem, sql=statement.sql, line=at[0], column=at[1], hint=hint)
    place = open_place(context.path(statement.place), {name: values.get(name) for name in _ACCESS})
    named = {name: values[name] for name in _OF_CSV if name in values}
    form = FileOptions(values.get("format")).of(place.name)
    if form != "csv" and named:
        option = statement.options[next(iter(named))]
        raise SqlOptionError(
            f"{next(iter(named))} is an option of CSV, and the file is {form}",
            sql=statement.sql,
            line=option.name_at[0],
            column=option.name_at[1],
            hint="leave it out, or write format = 'csv'",
        )
    if statement.place.lower().partition(".tsv")[1] and "delimiter" not in named:
        named["delimiter"] = "\t"
    return place, FileOptions(values.get("format"), **named), values
