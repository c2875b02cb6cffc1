"""Rows from JSON: an array of objects, one object, or one object a line."""

from __future__ import annotations

import json
import reprlib
from typing import TYPE_CHECKING, Any

from millstream.errors import RowError, SchemaMismatchError
from millstream.formats.rows import RowShape
from millstream.formats.text import (
    DECODER,
    TextInput,
    json_value,
    path_hint,
    read_column,
    read_input,
    utf8,
)

if TYPE_CHECKING:
    from millstream.model.schema import Row, Schema


def json_rows(data: TextInput, schema: Schema) -> list[Row]:
    """The rows of JSON: an array of objects, one object, or one object after another by line.

    It comes as text, bytes, a ``Path`` or an open file; a str is text and never a path.

    Dates, timestamps and intervals are ISO 8601 text (an INTERVAL may be a number of seconds),
    BINARY is base64, DECIMAL a number or text, both exact. The keys of a MAP are text as in CSV.

    >>> from millstream import Schema
    >>> json_rows('{"day": "2024-05-31", "n": 1}', Schema.of(day="DATE", n="INT"))
    [(datetime.date(2024, 5, 31), 1)]

    Raises:
        RowError: a value that does not fit; it names row and column.
        SchemaMismatchError: invalid JSON; the error names line and column.
    """
    read = read_input(data)
    text = read if isinstance(read, str) else utf8(read)
    try:
        objects = _json_objects(text.removeprefix("\ufeff"))
    except SchemaMismatchError as error:
        raise SchemaMismatchError(error.message, hint=path_hint(data) or error.hint) from error
    for row, each in enumerate(objects):
        if type(each) is not dict:
            raise RowError(
                f"row {row}: expected an object, got {reprlib.repr(each)}",
                row=row,
                column=None,
                hint=f'A row is an object {{"{schema.names[0]}": ..., }}.',
            )
    rows = RowShape(schema).ordered(objects)
    given = zip(schema.columns, zip(*rows, strict=True), strict=False)  # no rows: no columns
    columns = [read_column(column, values, json_value) for column, values in given]
    return schema.check_rows(list(zip(*columns, strict=True)))


def _json_objects(text: str) -> list[Any]:
    found: list[Any] = []
    end, at = 0, _next_place(text, 0)
    while at < len(text):
        if found and "\n" not in text[end:at]:
            raise _invalid(text, at, "a new line must begin here")
        try:
            value, end = DECODER.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise _invalid(text, error.pos, error.msg) from error
        except (ValueError, ArithmeticError, RecursionError) as error:
            raise _invalid(text, at, str(error) or "a number is out of range") from error
        at = _next_place(text, end)
        if isinstance(value, list) and not found:
            if at < len(text):
                raise _invalid(text, at, "nothing may follow the array")
            return value
        found.append(value)
    return found


def _next_place(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _invalid(text: str, at: int, why: str) -> SchemaMismatchError:
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    return SchemaMismatchError(
        f"line {line}, column {column}: invalid JSON: {why}",
        hint="Give an array of objects, or one object per line. Nothing was taken.",
    )
