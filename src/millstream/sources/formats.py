"""Text as rows: JSON and CSV, read strictly by the types of a schema.

Text has fewer types than SQL, so each column says how its text is read. A number in text is read
exactly, except for DOUBLE and REAL, which take the nearest they have. Either all rows are taken or
none is, and an error says which row and which column it was.
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
import reprlib
from datetime import date, datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from millstream.errors import InvalidOptionError, RowError, SchemaMismatchError
from millstream.model.arrow_cast import check_column_names
from millstream.model.batch import ChangeBatch
from millstream.model.schema import Row, Schema
from millstream.sources.shapes import RowShape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.model.schema import Column
    from millstream.model.types import SqlType

_BLOCK = 1 << 24  # bytes of CSV that become one batch, and the most that one line may have

_WHOLE = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(
    rf"{_DAY.pattern}([T ][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}([.,][0-9]{{1,6}}0*)?)?"
    r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)?)?"
)
_DURATION = re.compile(
    r"(?P<sign>[+-]?)P(?=.)(?:(?P<weeks>[0-9]+)W)?(?:(?P<days>[0-9]+)D)?(?:T(?=.)"
    r"(?:(?P<hours>[0-9]+)H)?(?:(?P<minutes>[0-9]+)M)?(?:(?P<seconds>[0-9]+(?:\.[0-9]+)?)S)?)?"
)
_MICROSECOND = Decimal("0.000001")
_EXACT = Context(prec=40, traps=[InvalidOperation, Inexact])


# --- One value ------------------------------------------------------------------------------------


def _matching(pattern: re.Pattern[str], text: str) -> str:
    if pattern.fullmatch(text):
        return text
    raise ValueError(text)


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _floating(text: str) -> float:
    if _NOT_FINITE.fullmatch(text):
        return float(text)
    number = float(_matching(_NUMBER, text))
    if math.isinf(number):
        raise ValueError(text)
    return number


def _seconds(number: Decimal) -> timedelta:
    exact = number.quantize(_MICROSECOND, context=_EXACT)
    return timedelta(microseconds=int(exact.scaleb(6, _EXACT)))


def _interval(text: str) -> timedelta:
    if _NUMBER.fullmatch(text):
        return _seconds(Decimal(text))
    matched = _DURATION.fullmatch(text)
    if matched is None:
        raise ValueError(text)
    parts = {name: Decimal(part) for name, part in matched.groupdict("0").items() if name != "sign"}
    days = timedelta(weeks=int(parts["weeks"]), days=int(parts["days"]))
    time = timedelta(hours=int(parts["hours"]), minutes=int(parts["minutes"]))
    length = days + time + _seconds(parts["seconds"])
    return -length if matched["sign"] == "-" else length


_FROM_TEXT: dict[str, Callable[[str], Any]] = {
    "VARCHAR": str,
    "BOOLEAN": _boolean,
    **dict.fromkeys(
        ("TINYINT", "SMALLINT", "INTEGER", "BIGINT"), lambda text: int(_matching(_WHOLE, text))
    ),
    **dict.fromkeys(("REAL", "DOUBLE"), _floating),
    "DECIMAL": lambda text: Decimal(_matching(_NUMBER, text)),
    "BINARY": lambda text: base64.b64decode(text, validate=True),
    "DATE": lambda text: date.fromisoformat(_matching(_DAY, text)),
    "TIMESTAMP": lambda text: datetime.fromisoformat(_matching(_MOMENT, text)),
    "INTERVAL": _interval,
}

_HINTS = {
    "BOOLEAN": "Write true or false.",
    "BINARY": "Write it in base64.",
    "DATE": "Write it as 2024-05-31.",
    "TIMESTAMP": "Write it as 2024-05-31T12:30:00.123456Z, with at most six digits after the "
    "point; without a zone it is UTC.",
    "INTERVAL": "Write it as P1DT2H30M5.5S, or as a number of seconds; months and years have no "
    "fixed length.",
}

_TEXT_IN_JSON = frozenset({"DECIMAL", "BINARY", "DATE", "TIMESTAMP", "INTERVAL"})


def _misfit(of: SqlType, value: object) -> SchemaMismatchError:
    what = "text" if isinstance(value, str) else type(value).__name__
    hint = _HINTS.get(of.kind, f"Write a value that {of.sql} can hold.")
    return SchemaMismatchError(f"expected {of.sql}, got {what} {reprlib.repr(value)}", hint=hint)


def _text_value(of: SqlType, text: str) -> Any:  # noqa: ANN401 - a value of any type
    """The value of a field of CSV, or of a key of a JSON object; nested types are in JSON."""
    try:
        if of.children:
            return _json_value(of, _DECODER.decode(text))
        return _FROM_TEXT[of.kind](text)
    except (ValueError, KeyError, ArithmeticError, RecursionError) as error:
        raise _misfit(of, text) from error


def _json_value(of: SqlType, value: Any) -> Any:  # noqa: ANN401 - a value of any type
    """What a JSON value means in a column; what means nothing there is left to the check."""
    if isinstance(value, str):
        is_number = of.kind in {"REAL", "DOUBLE"} and _NOT_FINITE.fullmatch(value)
        return _text_value(of, value) if is_number or of.kind in _TEXT_IN_JSON else value
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        return _json_number(of, value)
    if isinstance(value, list) and of.kind == "ARRAY":
        return [_json_value(of.children[0], each) for each in value]
    if isinstance(value, dict) and of.kind == "STRUCT":
        types = dict(zip(of.names, of.children, strict=True))
        return {k: _json_value(types[k], v) if k in types else v for k, v in value.items()}
    if isinstance(value, dict) and of.kind == "MAP":
        key, item = of.children
        entries = {_text_value(key, k): _json_value(item, v) for k, v in value.items()}
        if len(entries) != len(value):
            raise _misfit(of, value)
        return entries
    return value


def _json_number(of: SqlType, value: int | Decimal) -> Any:  # noqa: ANN401 - by the column
    try:
        if of.kind == "INTERVAL":
            return _seconds(Decimal(value))
        if of.kind in {"REAL", "DOUBLE"}:
            return _floating(str(value))
    except (ValueError, ArithmeticError) as error:
        raise _misfit(of, value) from error
    if of.kind in {"DATE", "TIMESTAMP"}:  # since when, and in which unit, would be a guess
        raise _misfit(of, value)
    return value


def _read_column(
    column: Column, values: Sequence[Any], read: Callable[[SqlType, Any], Any]
) -> list[Any]:
    made: list[Any] = []
    try:
        for value in values:
            made.append(None if value is None else read(column.type, value))  # noqa: PERF401
    except SchemaMismatchError as error:
        row = len(made)
        message = f"row {row}, column {column.name!r}: {error.message}"
        raise RowError(message, row=row, column=column.name, hint=error.hint) from error
    return made


# --- JSON -----------------------------------------------------------------------------------------


def json_rows(text: str | bytes, schema: Schema) -> list[Row]:
    """The rows of JSON text: an array of objects, one object, or one object after another by line.

    Dates, timestamps and intervals are ISO 8601 text (an INTERVAL may be a number of seconds),
    BINARY is base64, DECIMAL a number or text, both exact. The keys of a MAP are text as in CSV.

    >>> from millstream import Schema
    >>> json_rows('{"day": "2024-05-31", "n": 1}', Schema.of(day="DATE", n="INT"))
    [(datetime.date(2024, 5, 31), 1)]

    Raises:
        RowError: a value that does not fit; it names row and column.
        SchemaMismatchError: it is no JSON; it names line and column.
    """
    objects = _json_objects((text if isinstance(text, str) else _utf8(text)).removeprefix("\ufeff"))
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
    columns = [_read_column(column, values, _json_value) for column, values in given]
    return schema.check_rows(list(zip(*columns, strict=True)))


def _json_objects(text: str) -> list[Any]:
    found: list[Any] = []
    end, at = 0, _next_place(text, 0)
    while at < len(text):
        if found and "\n" not in text[end:at]:
            raise _no_json(text, at, "a new line must begin here")
        try:
            value, end = _DECODER.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise _no_json(text, error.pos, error.msg) from error
        except (ValueError, ArithmeticError, RecursionError) as error:
            raise _no_json(text, at, str(error) or "a number is out of range") from error
        at = _next_place(text, end)
        if isinstance(value, list) and not found:
            if at < len(text):
                raise _no_json(text, at, "nothing may follow the array")
            return value
        found.append(value)
    return found


def _next_place(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _no_json(text: str, at: int, why: str) -> SchemaMismatchError:
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    return SchemaMismatchError(
        f"line {line}, column {column}: no JSON: {why}",
        hint="Give an array of objects, or one object per line. Nothing was taken.",
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):  # json would keep the last without a word
        raise ValueError(f"an object has a name twice: {', '.join(name for name, _ in pairs)}")
    return made


_DECODER = json.JSONDecoder(parse_float=Decimal, object_pairs_hook=_object)


def _utf8(data: bytes) -> str:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SchemaMismatchError(
            f"line {line}: the text is not UTF-8", hint="Decode it yourself and give a str."
        ) from error


# --- CSV ------------------------------------------------------------------------------------------


def csv_rows(
    data: str | bytes | os.PathLike[str] | IO[str] | IO[bytes],
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
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        raise InvalidOptionError(
            f"{delimiter!r} cannot be the delimiter", hint="Give one character, such as ';'."
        )
    content = _content(data)
    if not content.strip():
        return []
    table = _csv_table(content, schema, header=header, delimiter=delimiter, null=null)
    check_column_names(table.schema.names, schema.names)
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


def _content(data: str | bytes | os.PathLike[str] | IO[str] | IO[bytes]) -> bytes:
    given = Path(data).read_bytes() if isinstance(data, os.PathLike) else data
    if not isinstance(given, (str, bytes, bytearray, memoryview)):
        given = given.read()
    content = given.encode("utf-8", "surrogatepass") if isinstance(given, str) else bytes(given)
    _utf8(content)
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
            raise SchemaMismatchError(f"this is no CSV that can be read: {error}") from error
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
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT"), rf"^{_WHOLE.pattern}$"),
    "DOUBLE": rf"^{_NUMBER.pattern}$",
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
    values = _read_column(column, texts.to_pylist(), _text_value)
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
