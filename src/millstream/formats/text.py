"""Text, and the values in it: where text comes from, and what a column of JSON or CSV becomes.

Text has fewer types than SQL, so each column says how its text is read. A number in text is read
exactly, except for DOUBLE and REAL, which take the nearest they have.
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
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from millstream.errors import RowError, SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.model.schema import Column
    from millstream.model.types import SqlType

# ---- where text comes from

TextInput: TypeAlias = str | bytes | os.PathLike[str] | IO[str] | IO[bytes]
"""A ``str`` and ``bytes`` are the text itself, never a path; a path is a ``pathlib.Path`` or
anything else that is ``os.PathLike``; a file may be open for text or in binary, and is read from
where it stands to its end."""


def read_input(data: TextInput) -> str | bytes:
    """The whole text.

    >>> import io
    >>> read_input(io.StringIO("a,b"))
    'a,b'

    Raises:
        SchemaMismatchError: it is neither text nor a path nor a file, or the file has no text.
        OSError: the path cannot be read.
    """
    given: Any = data
    if isinstance(given, os.PathLike):
        given = Path(given).read_bytes()
    elif hasattr(given, "read"):
        try:
            given = given.read()
        except (TypeError, ValueError) as error:  # no file; closed; or in another encoding
            raise SchemaMismatchError(
                f"the file cannot be read: {error}", hint="Open it in binary: open(path, 'rb')."
            ) from error
    if isinstance(given, str):
        return given
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(given)
    raise SchemaMismatchError(
        f"expected text, bytes, a path or an open file, got {type(data).__name__}",
        hint="A str is the text itself; for a file give pathlib.Path(name) or open(name, 'rb').",
    )


def path_hint(data: object) -> str:
    """What to say of text that cannot be read and is, or looks like, the name of a file."""
    if not isinstance(data, str) or not _names_a_file(data):
        return ""
    return f"A str is the text itself; for the file of that name give pathlib.Path({data!r})."


_FILE_NAME = re.compile(r"[^\n,;\"{]*\.(csv|tsv|txt|json|jsonl|ndjson)(\.gz)?", re.IGNORECASE)


def _names_a_file(text: str) -> bool:
    if _FILE_NAME.fullmatch(text):
        return True
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long, or with a NUL
        return False


def utf8(data: bytes) -> str:
    """Bytes as text."""
    try:
        return bytes(data).decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SchemaMismatchError(
            f"line {line}: the text is not UTF-8", hint="Decode it yourself and give a str."
        ) from error


# ---- what it says

INTEGER = re.compile(r"[+-]?[0-9]+")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
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


def _matching(pattern: re.Pattern[str], text: str) -> str:
    if pattern.fullmatch(text):
        return text
    raise ValueError(text)


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _floating(text: str) -> float:
    if _NOT_FINITE.fullmatch(text):
        return float(text)
    number = float(_matching(NUMBER, text))
    if math.isinf(number):
        raise ValueError(text)
    return number


def _seconds(number: Decimal) -> timedelta:
    exact = number.quantize(_MICROSECOND, context=_EXACT)
    return timedelta(microseconds=int(exact.scaleb(6, _EXACT)))


def _interval(text: str) -> timedelta:
    if NUMBER.fullmatch(text):
        return _seconds(Decimal(text))
    matched = _DURATION.fullmatch(text)
    if matched is None:
        raise ValueError(text)
    parts = {name: Decimal(part) for name, part in matched.groupdict("0").items() if name != "sign"}
    days = timedelta(weeks=int(parts["weeks"]), days=int(parts["days"]))
    time = timedelta(hours=int(parts["hours"]), minutes=int(parts["minutes"]))
    length = days + time + _seconds(parts["seconds"])
    return -length if matched["sign"] == "-" else length


_ESCAPED_BYTE = re.compile(rb"\\(\\|[0-3][0-7]{2}|)")


def bytea(text: str) -> bytes:
    r"""The bytes of PostgreSQL's text of a BYTEA: ``\x`` and hex digits, or the older escapes.

    >>> bytea(r"\x0001ff"), bytea(r"a\\\377")
    (b'\x00\x01\xff', b'a\\\xff')

    Raises:
        ValueError: it is neither.
    """
    if text.startswith("\\x"):
        return bytes.fromhex(text[2:])

    def byte(found: re.Match[bytes]) -> bytes:
        if not found[1]:
            raise ValueError(text)
        return b"\\" if found[1] == b"\\" else bytes([int(found[1], 8)])

    return _ESCAPED_BYTE.sub(byte, text.encode())


_FROM_TEXT: dict[str, Callable[[str], Any]] = {
    "VARCHAR": str,
    "BOOLEAN": _boolean,
    **dict.fromkeys(
        ("TINYINT", "SMALLINT", "INTEGER", "BIGINT"), lambda text: int(_matching(INTEGER, text))
    ),
    **dict.fromkeys(("REAL", "DOUBLE"), _floating),
    "DECIMAL": lambda text: Decimal(_matching(NUMBER, text)),
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


def text_value(of: SqlType, text: str) -> Any:  # noqa: ANN401 - a value of any type
    """The value of a field of CSV, or of a key of a JSON object; nested types are in JSON."""
    try:
        if of.children:
            return json_value(of, DECODER.decode(text))
        return _FROM_TEXT[of.kind](text)
    except (ValueError, KeyError, ArithmeticError, RecursionError) as error:
        raise _misfit(of, text) from error


def json_value(of: SqlType, value: Any) -> Any:  # noqa: ANN401 - a value of any type
    """What a JSON value means in a column; what means nothing there is left to the check."""
    if isinstance(value, str):
        is_number = of.kind in {"REAL", "DOUBLE"} and _NOT_FINITE.fullmatch(value)
        return text_value(of, value) if is_number or of.kind in _TEXT_IN_JSON else value
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        return _json_number(of, value)
    if isinstance(value, list) and of.kind == "ARRAY":
        return [json_value(of.children[0], each) for each in value]
    if isinstance(value, dict) and of.kind == "STRUCT":
        types = dict(zip(of.names, of.children, strict=True))
        return {k: json_value(types[k], v) if k in types else v for k, v in value.items()}
    if isinstance(value, dict) and of.kind == "MAP":
        key, item = of.children
        entries = {text_value(key, k): json_value(item, v) for k, v in value.items()}
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


def read_column(
    column: Column, values: Sequence[Any], read: Callable[[SqlType, Any], Any]
) -> list[Any]:
    """The values of one column; an error names the row."""
    made: list[Any] = []
    try:
        for value in values:
            made.append(None if value is None else read(column.type, value))  # noqa: PERF401
    except SchemaMismatchError as error:
        row = len(made)
        message = f"row {row}, column {column.name!r}: {error.message}"
        raise RowError(message, row=row, column=column.name, hint=error.hint) from error
    return made


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):  # json would keep the last without a word
        raise ValueError(f"an object has a name twice: {', '.join(name for name, _ in pairs)}")
    return made


DECODER = json.JSONDecoder(parse_float=Decimal, object_pairs_hook=_object)
