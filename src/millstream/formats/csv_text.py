"""Rows from CSV, typed by the columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from millstream.errors import InvalidOptionError, RowError, SchemaMismatchError
from millstream.formats.text import (
    INTEGER,
    NUMBER,
    TextInput,
    path_hint,
    read_column,
    read_input,
    text_value,
    utf8,
)
from millstream.model.arrow_cast import check_column_names
from millstream.model.batch import ChangeBatch
from millstream.model.schema import Schema

if TYPE_CHECKING:
    from millstream.model.schema import Column

_DELIMITERS = frozenset(map(chr, range(128))) - {'"', "\r", "\n"}
_BLOCK = 1 << 24  # bytes of CSV that become one batch, and the most that one line may have


def csv_rows(
    data: TextInput,
    schema: Schema,
    *,
    header: bool = True,
    delimiter: str = ",",
    null: str = "",
) -> list[ChangeBatch]:
    r"""The rows of CSV: text, bytes, a ``Path`` or an open file; a str is text and never a path.

    With a header, columns are found by name and nullable ones may be missing; without, they are
    taken in order. A field that is ``null`` is NULL; in quotes it is NULL too, except where it
    could be a value: ``""`` is the empty text in a VARCHAR. Empty lines are skipped. Nested types
    are written as JSON.

    >>> from millstream import Schema
    >>> csv_rows("n,x\n1,2.5\n2,\n", Schema.of(n="INT", x="DOUBLE"))[0].rows
    [(1, 2.5), (2, None)]

    Raises:
        RowError: a value that does not fit, or too many of them; it names row, line and column.
        SchemaMismatchError: an unknown column, or a NOT NULL one that is missing.
    """
    if not (isinstance(delimiter, str) and len(delimiter) == 1) or delimiter not in _DELIMITERS:
        raise InvalidOptionError(
            f"{delimiter!r} cannot be the delimiter", hint="Give one character, such as ';'."
        )
    content = _content(data)
    if not content.strip():
        return []
    table = _csv_table(content, schema, header=header, delimiter=delimiter, null=null)
    try:
        check_column_names(table.schema.names, schema.names)
    except SchemaMismatchError as error:
        raise SchemaMismatchError(error.message, hint=path_hint(data) or error.hint) from None
    _check_end(table, content, header=header)
    batches: list[ChangeBatch] = []
    before = 0
    for texts in table.to_batches():
        try:
            batches.append(ChangeBatch(schema, None, _typed(texts, schema, null), None))
        except RowError as error:
            row = before + error.row
            place = f"row {row} (line {_line_of(content, row + header)})"
            message = error.message.replace(f"row {error.row}", place, 1)
            raise RowError(message, row=row, column=error.column, hint=error.hint) from error
        before += texts.num_rows
    return [batch for batch in batches if len(batch)]


def _content(data: TextInput) -> bytes:
    given = read_input(data)
    content = given.encode("utf-8", "surrogatepass") if isinstance(given, str) else given
    utf8(content)
    # pyarrow knows a header by the end of its line.
    return content if content.endswith(b"\n") else content + b"\n"


def _csv_table(
    content: bytes, schema: Schema, *, header: bool, delimiter: str, null: str
) -> pa.Table:
    """The fields as text, each as it stands: pyarrow's own types would guess and trim."""
    refused: list[csv.InvalidRow] = []

    def refuse(row: csv.InvalidRow) -> str:
        refused.append(row)
        return "error"

    names = None if header else list(schema.names)
    try:
        return csv.read_csv(
            pa.BufferReader(content),
            # With threads, pyarrow does not count the rows for its errors.
            csv.ReadOptions(use_threads=False, block_size=_BLOCK, column_names=names),
            csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, invalid_row_handler=refuse
            ),
            csv.ConvertOptions(
                column_types=dict.fromkeys(schema.names, pa.string()),
                null_values=[null],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        if not refused:
            raise SchemaMismatchError(f"this CSV cannot be read: {error}") from error
        number, row = refused[0].number - 1, refused[0].number - 1 - header
        raise RowError(
            f"row {row} (line {_line_of(content, number)}): expected "
            f"{refused[0].expected_columns} fields, got {refused[0].actual_columns}",
            row=row,
            column=None,
            hint="Put fields with a delimiter in quotes, and close every quote.",
        ) from error


def _check_end(table: pa.Table, content: bytes, *, header: bool) -> None:
    """Refuse a quote that is never closed: pyarrow takes all that follows it for one field."""
    last = table.column(-1)[-1].as_py() if table.num_rows else None
    if last and last.endswith("\n") and content.count(b'"') % 2:
        row = table.num_rows - 1
        raise RowError(
            f"row {row} (line {_line_of(content, row + header)}): a quote is never closed",
            row=row,
            column=table.schema.names[-1],
            hint="Close it, or write it twice if it is part of the text.",
        )


def _typed(texts: pa.RecordBatch, schema: Schema, null: str) -> pa.RecordBatch:
    given = [column for column in schema.columns if column.name in texts.schema.names]
    arrays = [_typed_column(column, texts.column(column.name), null) for column in given]
    return schema.conform(pa.record_batch(arrays, [column.name for column in given]))


_PLAIN = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT"), rf"^{INTEGER.pattern}$"),
    "DOUBLE": rf"^{NUMBER.pattern}$",
}


def _typed_column(column: Column, texts: pa.Array, null: str) -> pa.Array:
    kind = column.type.kind
    if kind == "VARCHAR":
        return texts
    texts = pc.utf8_trim_whitespace(texts)
    if kind != "BINARY":
        texts = pc.if_else(pc.equal(texts, null), pa.scalar(None, pa.string()), texts)
    if kind in _PLAIN and pc.all(pc.match_substring_regex(texts, _PLAIN[kind])).as_py():
        try:
            array = texts.cast(column.type.arrow)
        except pa.ArrowInvalid:
            pass  # one by one finds which it was
        else:
            if kind != "DOUBLE" or pc.all(pc.is_finite(array)).as_py():
                return array
    values = read_column(column, texts.to_pylist(), text_value)
    alone = Schema((column,))
    return alone.rows_to_arrow(alone.check_rows(list(zip(values, strict=True)))).column(0)


def _line_of(content: bytes, record: int) -> int:
    """The line, from 1, on which a record begins; quotes may hold ends of lines, 0 if lost."""
    is_open, seen = False, -1
    for number, line in enumerate(content.split(b"\n"), 1):
        if not is_open and line.rstrip(b"\r"):
            seen += 1
            if seen == record:
                return number
        is_open ^= line.count(b'"') % 2 == 1
    return 0
