"""SQL types: their text, their Arrow types, and the check that admits Python values to them.

A ``SqlType`` is its canonical text: two types are equal when their texts are. They are made by the
constants and functions here, of foreign data by ``type_from_arrow``, of text by ``parse_type``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import lru_cache
from types import NoneType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.errors import SchemaError, SchemaMismatchError
from millstream.model.arrow_lists import is_list
from millstream.model.names import check_column_name, quote_name
from millstream.model.values import (
    Check,
    ColumnFits,
    all_ascii,
    all_short,
    all_utc,
    always,
    array_check,
    check_binary,
    check_boolean,
    check_date,
    check_double,
    check_interval,
    check_real,
    check_timestamp,
    check_varchar,
    decimal_check,
    integer_check,
    integers_fit,
    map_check,
    struct_check,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


MAX_PRECISION = 38
MAX_DEPTH = 30  # Arrow's IPC stops at 64 levels, and a MAP has two

ALL_TYPES = (
    "The types are BOOLEAN, TINYINT, SMALLINT, INTEGER, BIGINT, REAL, DOUBLE, DECIMAL(p, s), "
    "VARCHAR, BINARY, DATE, TIMESTAMP, INTERVAL, ARRAY<T>, STRUCT<name T, ...> and MAP<K, V>."
)


@dataclass(frozen=True, slots=True)
class SqlType:
    """A type of the SQL dialect; made by ``parse_type`` or ``type_from_arrow``, not by hand.

    >>> array_type(decimal_type(10, 2))
    SqlType(sql='ARRAY<DECIMAL(10, 2)>')
    >>> INTEGER.check(7)
    7

    Attributes:
        sql: the canonical text; equality and hash are those of the text.
        kind: the text without parameters, such as ``"DECIMAL"``.
        arrow: the Arrow type of a column.
        check: returns a value in canonical form; raises SchemaMismatchError if it does not belong.
        children: the element of an ARRAY, the fields of a STRUCT, key and value of a MAP.
        names: the names of a STRUCT's fields.
    """

    sql: str
    kind: str = field(compare=False, repr=False)
    arrow: pa.DataType = field(compare=False, repr=False)
    check: Check = field(compare=False, repr=False)
    children: tuple[SqlType, ...] = field(compare=False, repr=False, default=())
    names: tuple[str, ...] = field(compare=False, repr=False, default=())
    _python: type | None = field(compare=False, repr=False, default=None)
    _fits: ColumnFits | None = field(compare=False, repr=False, default=None)

    def __str__(self) -> str:
        return self.sql

    def __reduce__(self) -> tuple[Callable[[pa.DataType], SqlType], tuple[pa.DataType]]:
        # The checks are closures, which pickle cannot take; the Arrow type says everything.
        return type_from_arrow, (self.arrow,)

    def check_column(self, values: Sequence[Any], *, nullable: bool) -> Sequence[Any]:
        """Check many values at once; returns ``values`` itself when none had to be changed.

        >>> BIGINT.check_column((1, 2), nullable=False)
        (1, 2)

        Raises:
            SchemaMismatchError: some value does not belong, or is NULL and ``nullable`` is False.
        """
        kinds = set(map(type, values))
        # One pass over the classes spares the usual column a Python call per value.
        if len(kinds) == 1 and self._fits and self._python in kinds and self._fits(values):
            return values
        if not nullable and NoneType in kinds:
            raise SchemaMismatchError(
                f"expected {self.sql} NOT NULL, got NULL", hint="Give a value, or allow NULL."
            )
        return list(map(self.check, values))


# --- The types ------------------------------------------------------------------------------------


def _scalar(
    kind: str, arrow: pa.DataType, check: Check, python: type, fits: ColumnFits | None = always
) -> SqlType:
    return SqlType(kind, kind, arrow, check, _python=python, _fits=fits)


def _integer(kind: str, arrow: pa.DataType) -> SqlType:
    high: int = (1 << (arrow.bit_width - 1)) - 1
    low = -high - 1
    return _scalar(kind, arrow, integer_check(kind, low, high), int, integers_fit(low, high))


BOOLEAN = _scalar("BOOLEAN", pa.bool_(), check_boolean, bool)
TINYINT = _integer("TINYINT", pa.int8())
SMALLINT = _integer("SMALLINT", pa.int16())
INTEGER = _integer("INTEGER", pa.int32())
BIGINT = _integer("BIGINT", pa.int64())
REAL = _scalar("REAL", pa.float32(), check_real, float, None)
DOUBLE = _scalar("DOUBLE", pa.float64(), check_double, float)
VARCHAR = _scalar("VARCHAR", pa.string(), check_varchar, str, all_ascii)
BINARY = _scalar("BINARY", pa.binary(), check_binary, bytes)
DATE = _scalar("DATE", pa.date32(), check_date, date)
TIMESTAMP = _scalar("TIMESTAMP", pa.timestamp("us", "UTC"), check_timestamp, datetime, all_utc)
INTERVAL = _scalar("INTERVAL", pa.duration("us"), check_interval, timedelta, all_short)

SCALARS = (
    *(BOOLEAN, TINYINT, SMALLINT, INTEGER, BIGINT, REAL, DOUBLE),
    *(VARCHAR, BINARY, DATE, TIMESTAMP, INTERVAL),
)
"""The types without parameters."""


def decimal_type(precision: int, scale: int = 0) -> SqlType:
    """Return DECIMAL(precision, scale): so many digits, of which ``scale`` follow the point.

    >>> from decimal import Decimal
    >>> decimal_type(10, 2).check(Decimal("1.5"))
    Decimal('1.50')
    """
    if not (1 <= precision <= MAX_PRECISION and 0 <= scale <= precision):
        raise SchemaError(
            f"DECIMAL({precision}, {scale}) cannot be",
            hint=f"Precision is 1 to {MAX_PRECISION}, scale is 0 to the precision.",
        )
    sql = f"DECIMAL({precision}, {scale})"
    check = decimal_check(sql, precision, scale)
    return SqlType(sql, "DECIMAL", pa.decimal128(precision, scale), check)


NUMERIC = decimal_type(MAX_PRECISION, 18)
"""DECIMAL or NUMERIC without a precision."""


def array_type(element: SqlType) -> SqlType:
    """Return ARRAY<element>; its elements may be NULL.

    >>> array_type(BIGINT).check((1, None))
    [1, None]
    """
    _check_depth(element)
    sql = f"ARRAY<{element.sql}>"
    check = array_check(sql, element.check)
    return SqlType(sql, "ARRAY", pa.list_(element.arrow), check, (element,))


def struct_type(fields: Mapping[str, SqlType]) -> SqlType:
    """Return STRUCT<name type, ...>; its fields may be NULL.

    >>> struct_type({"x": DOUBLE, "y": DOUBLE}).check({"x": 1.0})
    {'x': 1.0, 'y': None}
    """
    _check_depth(*fields.values())
    check_field_names(list(fields))
    inner = ", ".join(f"{quote_name(name)} {each.sql}" for name, each in fields.items())
    sql = f"STRUCT<{inner}>"
    check = struct_check(sql, {name: each.check for name, each in fields.items()})
    arrow = pa.struct([pa.field(name, each.arrow) for name, each in fields.items()])
    return SqlType(sql, "STRUCT", arrow, check, tuple(fields.values()), tuple(fields))


def map_type(key: SqlType, value: SqlType) -> SqlType:
    """Return MAP<key, value>; its values may be NULL, its keys not.

    >>> map_type(VARCHAR, BIGINT).check({"a": 1})
    {'a': 1}
    """
    _check_depth(key, value)
    if key.children:
        raise SchemaError(
            f"{key.sql} cannot be the key of a MAP",
            hint="Use a scalar key, or an ARRAY of STRUCTs instead of the MAP.",
        )
    sql = f"MAP<{key.sql}, {value.sql}>"
    check = map_check(sql, key.sql, key.check, value.check)
    return SqlType(sql, "MAP", pa.map_(key.arrow, value.arrow), check, (key, value))


def _check_depth(*children: SqlType) -> None:
    depth, level = 1, list(children)
    while level:
        depth, level = depth + 1, [inner for outer in level for inner in outer.children]
    if depth > MAX_DEPTH:
        raise too_deep()


def too_deep() -> SchemaError:
    """Return the error of a type that is nested more than ``MAX_DEPTH`` levels deep."""
    return SchemaError(
        f"the type is nested more than {MAX_DEPTH} levels deep",
        hint="Flatten it, or keep the inner part as VARCHAR or BINARY.",
    )


def check_field_names(names: Sequence[str]) -> None:
    """Check the names of a STRUCT's fields, before a dict would hide that one comes twice."""
    if not names:
        raise SchemaError("a STRUCT must have a field", hint="Write STRUCT<name TYPE, ...>.")
    seen: set[str] = set()
    for name in names:
        check_column_name(name, "field")
        if name.lower() in seen:
            raise SchemaError(
                f"a STRUCT has the field {name!r} twice",
                hint="Field names must differ in more than case: Spark SQL ignores case.",
            )
        seen.add(name.lower())


# --- From Arrow -----------------------------------------------------------------------------------

_BY_ARROW = {each.arrow: each for each in SCALARS} | {
    pa.uint8(): SMALLINT,
    pa.uint16(): INTEGER,
    pa.uint32(): BIGINT,
    pa.uint64(): decimal_type(20, 0),
    pa.float16(): REAL,
    pa.large_string(): VARCHAR,
    pa.string_view(): VARCHAR,
    pa.large_binary(): BINARY,
    pa.binary_view(): BINARY,
    pa.date64(): DATE,
}


def type_from_arrow(arrow: pa.DataType) -> SqlType:
    """Return the type that holds every value of an Arrow type, or nearly all of them.

    Nanoseconds become microseconds; ``Schema.conform`` then refuses the values that would lose
    digits. A timestamp without a zone is taken as UTC.

    >>> type_from_arrow(pa.large_list(pa.uint8())).sql
    'ARRAY<SMALLINT>'

    Raises:
        SchemaError: there is no such type.
    """
    if arrow in _BY_ARROW:
        return _BY_ARROW[arrow]
    for is_family, of_family in _FAMILIES:
        if is_family(arrow):
            return of_family(arrow)
    return _nested_from_arrow(arrow)


def _decimal_from_arrow(arrow: pa.DataType) -> SqlType:
    # Arrow allows a scale below 0 (hundreds, thousands) and one above the precision (0.00xx).
    scale = max(arrow.scale, 0)
    precision = max(arrow.precision - arrow.scale + scale, scale)
    if precision > MAX_PRECISION:
        raise SchemaError(
            f"{arrow} has more digits than a DECIMAL",
            hint=f"Cast the column to at most {MAX_PRECISION} digits first.",
        )
    return decimal_type(precision, scale)


_FAMILIES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], SqlType]], ...] = (
    (pa.types.is_timestamp, lambda _: TIMESTAMP),
    (pa.types.is_duration, lambda _: INTERVAL),
    (pa.types.is_fixed_size_binary, lambda _: BINARY),
    (pa.types.is_dictionary, lambda arrow: type_from_arrow(arrow.value_type)),
    (pa.types.is_run_end_encoded, lambda arrow: type_from_arrow(arrow.value_type)),
    (pa.types.is_decimal, _decimal_from_arrow),
)
"""Arrow types with parameters that the SQL type does not have, or has otherwise."""


def _nested_from_arrow(arrow: pa.DataType) -> SqlType:
    kinds = pa.types
    if is_list(arrow):
        return array_type(type_from_arrow(arrow.value_type))
    if kinds.is_map(arrow):
        return map_type(type_from_arrow(arrow.key_type), type_from_arrow(arrow.item_type))
    if kinds.is_struct(arrow):
        check_field_names([each.name for each in arrow])
        return struct_type({each.name: type_from_arrow(each.type) for each in arrow})
    if kinds.is_null(arrow):
        raise SchemaError(
            "a column of Arrow's null type has no type yet",
            hint="Cast it to the type that its values will have, or leave the column out.",
        )
    raise SchemaError(f"there is no SQL type for Arrow's {arrow}", hint=f"Cast it. {ALL_TYPES}")


# ---- types from text: ``parse_type`` reads what ``SqlType.sql`` writes, and the usual aliases


_BY_WORD = {each.sql: each for each in SCALARS} | {
    "BOOL": BOOLEAN,
    "BYTE": TINYINT,
    "SHORT": SMALLINT,
    "INT": INTEGER,
    "LONG": BIGINT,
    "INT2": SMALLINT,
    "INT4": INTEGER,
    "INT8": BIGINT,
    "FLOAT": REAL,
    "FLOAT4": REAL,
    "FLOAT8": DOUBLE,
    "STRING": VARCHAR,
    "TEXT": VARCHAR,
    "BYTEA": BINARY,
    "VARBINARY": BINARY,
    "BLOB": BINARY,
    "TIMESTAMPTZ": TIMESTAMP,
}

_TAILS = {"DOUBLE": ("PRECISION",), "INTERVAL": ("DAY", "TO", "SECOND")}
"""Words that may follow a type's first and say no more than it."""

_TOKEN = re.compile(
    r"""\s*(?P<token>[^\W\d]\w*|\d+|"(?:[^"]|"")+"|`(?:[^`]|``)+`|[<>(),:]|\S|$)""", re.VERBOSE
)


@lru_cache(maxsize=512)
def parse_type(text: str) -> SqlType:
    """Return the type that a text of SQL names, in any case, by its name or a usual alias.

    The inverse of ``SqlType.sql``: ``parse_type(t.sql) == t``.

    >>> parse_type("struct<id: int, tags: array<string>>").sql
    'STRUCT<id INTEGER, tags ARRAY<VARCHAR>>'

    Raises:
        SchemaError: the text names no type; the message has the position, from 0.
    """
    parser = _Parser(text)
    parsed = parser.type(1)
    parser.end()
    return parsed


_WITH_LENGTH = re.compile(
    r"\s*(?:VARCHAR|CHARACTER\s+VARYING|STRING|TEXT)\s*\(\s*([0-9]{1,9})\s*\)\s*", re.IGNORECASE
)
_WITHOUT = re.compile(r"\s*CHARACTER\s+VARYING\s*", re.IGNORECASE)
MAX_LENGTH = 10_485_760


def parse_column_type(text: str) -> tuple[SqlType, int | None]:
    """Return the type of a column, and of a text how many characters it may have at most.

    >>> parse_column_type("varchar(10)"), parse_column_type("DOUBLE")[1]
    ((SqlType(sql='VARCHAR'), 10), None)

    Raises:
        SchemaError: the text names no type, or a length that no text can have.
    """
    found = _WITH_LENGTH.fullmatch(text)
    if found is None:
        return (VARCHAR if _WITHOUT.fullmatch(text) else parse_type(text)), None
    length = int(found[1])
    if not 1 <= length <= MAX_LENGTH:
        raise SchemaError(
            f"VARCHAR({length}) cannot be", hint=f"A length is from 1 to {MAX_LENGTH}."
        )
    return VARCHAR, length


class _Parser:
    """Recursive descent over one text: each method reads its own part and stands after it."""

    __slots__ = ("_place", "_text", "_tokens")

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [(m["token"], m.start("token")) for m in _TOKEN.finditer(text)]
        self._place = 0

    def type(self, depth: int) -> SqlType:
        if depth > MAX_DEPTH:
            raise too_deep()
        word = self._peek().upper()
        if word in {"DECIMAL", "NUMERIC"}:
            return self._decimal()
        if word in {"ARRAY", "STRUCT", "MAP"}:
            return self._nested(word, depth + 1)
        if word == "FLOAT":
            return self._float()
        if word in {"CHAR", "CHARACTER", "BPCHAR"}:
            raise self._error(
                "unknown type", "CHAR pads with blanks; write VARCHAR, or VARCHAR(n)."
            )
        if word not in _BY_WORD:
            raise self._error("unknown type", ALL_TYPES)
        self._place += 1
        tail = _TAILS.get(word, ())
        if tuple(token.upper() for token, _ in self._rest(len(tail))) == tail:
            self._place += len(tail)
        if self._peek() == "(":
            raise self._parameter_error(word)
        return _BY_WORD[word]

    def end(self) -> None:
        if self._peek():
            raise self._error("unexpected", ALL_TYPES)

    def _decimal(self) -> SqlType:
        self._place += 1
        if not self._skip("("):
            return NUMERIC
        precision = self._number()
        scale = self._number() if self._skip(",") else 0
        self._expect(")")
        return decimal_type(precision, scale)

    def _float(self) -> SqlType:
        """FLOAT is REAL, as in Spark; FLOAT(n) has n binary digits at least."""
        self._place += 1
        if not self._skip("("):
            return REAL
        digits = self._number()
        if not 1 <= digits <= 53:
            self._place -= 1
            raise self._error("the digits of FLOAT are from 1 to 53, got", "Write DOUBLE.")
        self._expect(")")
        return REAL if digits <= 24 else DOUBLE

    def _nested(self, word: str, depth: int) -> SqlType:
        self._place += 1
        self._expect("<")
        if word == "ARRAY":
            nested = array_type(self.type(depth))
        elif word == "MAP":
            key = self.type(depth)
            self._expect(",")
            nested = map_type(key, self.type(depth))
        else:
            nested = self._struct(depth)
        self._expect(">")
        return nested

    def _struct(self, depth: int) -> SqlType:
        pairs = [self._field(depth)]
        while self._skip(","):
            pairs.append(self._field(depth))
        check_field_names([name for name, _ in pairs])
        return struct_type(dict(pairs))

    def _field(self, depth: int) -> tuple[str, SqlType]:
        token = self._peek()
        if token[:1] in {'"', "`"} and len(token) > 2:
            name = token[1:-1].replace(token[0] * 2, token[0])
        elif token.isidentifier():
            name = token
        else:
            raise self._error("expected the name of a field, got", "Write STRUCT<name TYPE, ...>.")
        self._place += 1
        self._skip(":")
        return name, self.type(depth)

    def _number(self) -> int:
        token = self._peek()
        if not (token.isascii() and token.isdecimal() and len(token) <= 4):
            raise self._error("expected a number, got", "Write DECIMAL(precision, scale).")
        self._place += 1
        return int(token)

    def _peek(self) -> str:
        return self._tokens[self._place][0]

    def _rest(self, count: int) -> list[tuple[str, int]]:
        return self._tokens[self._place : self._place + count]

    def _skip(self, mark: str) -> bool:
        if self._peek() != mark:
            return False
        self._place += 1
        return True

    def _expect(self, mark: str) -> None:
        if self._skip(mark):
            return
        if self._peek().upper() == "NOT":
            raise self._error(
                "NOT NULL is not allowed inside a type:", "Only columns are NOT NULL; leave it out."
            )
        raise self._error(f"expected {mark!r}, got", ALL_TYPES)

    def _parameter_error(self, word: str) -> SchemaError:
        if _BY_WORD[word] in {VARCHAR, BINARY}:
            hint = f"Only columns of VARCHAR have a length; write {word} alone."
            return self._error(f"{word} takes no length:", hint)
        return self._error(f"{word} takes no parameter:", f"Write {word} alone.")

    def _error(self, problem: str, hint: str) -> SchemaError:
        token, position = self._tokens[self._place]
        shown = repr(token) if token else "the end"
        return SchemaError(f"{problem} {shown} at position {position} of {self._text!r}", hint=hint)
