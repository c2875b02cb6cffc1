"""SQL types: their text, their Arrow types, and which Python values belong to them.

A ``SqlType`` is its canonical text: two types are equal when their texts are. ``parse_type`` reads
the text, ``type_from_arrow`` finds the type of foreign data, ``SqlType.check`` admits Python
values.
The check is strict because pyarrow alone is not: it makes 1 of 1.5, loses the time of a datetime
in a DATE, and takes an int for the microseconds of a TIMESTAMP, all without a word.

The canonical Python values, which ``check`` returns and which rows hold: bool, int, float, Decimal
(with exactly the scale of its type), str, bytes, date, datetime (in UTC), timedelta, list for an
ARRAY, dict for a STRUCT and for a MAP, None for NULL.
"""

from __future__ import annotations

import operator
import re
import reprlib
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import lru_cache
from numbers import Rational, Real
from types import NoneType
from typing import Any

import pyarrow as pa

from millstream.errors import SchemaError, SchemaMismatchError
from millstream.model.names import check_column_name, quote_name

Check = Callable[[Any], Any]
"""Returns a value in canonical form (None stays None), or raises SchemaMismatchError."""

ColumnFits = Callable[[Sequence[Any]], bool]
"""Whether values, all of exactly the canonical class, may stay as they are; False: check each."""

MAX_PRECISION = 38
MAX_DEPTH = 30  # Arrow's IPC stops at 64 levels, and a MAP has two

_ALL_TYPES = (
    "The types are BOOLEAN, TINYINT, SMALLINT, INTEGER, BIGINT, REAL, DOUBLE, DECIMAL(p, s), "
    "VARCHAR, BINARY, DATE, TIMESTAMP, INTERVAL, ARRAY<T>, STRUCT<name T, ...> and MAP<K, V>."
)


@dataclass(frozen=True, slots=True)
class SqlType:
    """A type of the SQL dialect; made by ``parse_type`` or ``type_from_arrow``, not by hand.

    >>> parse_type("array<decimal(10, 2)>")
    SqlType(sql='ARRAY<DECIMAL(10, 2)>')
    >>> parse_type("int").check(7)
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

        >>> parse_type("BIGINT").check_column((1, 2), nullable=False)
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


# --- Values ---------------------------------------------------------------------------------------


def _misfit(expected: str, value: object, hint: str = "") -> SchemaMismatchError:
    try:
        shown = reprlib.repr(value)
    except ValueError:  # an int of more digits than Python prints
        shown = "of too many digits to print"
    kind = type(value).__name__
    return SchemaMismatchError(f"expected {expected}, got {kind} {shown}", hint=hint)


def _whole(expected: str, value: object, hint: str = "") -> int:
    """Return the value of an int or of anything that says it is one, such as numpy's integers."""
    if not isinstance(value, bool) and hasattr(value, "__index__"):
        try:
            return int(operator.index(value))
        except TypeError:  # an array of several, which has the method but no value
            pass
    raise _misfit(expected, value, hint)


def _check_boolean(value: object) -> bool | None:
    if value is True or value is False or value is None:
        return value
    raise _misfit("BOOLEAN", value, "Only True and False are BOOLEAN; convert with bool(value).")


def _integer(kind: str, arrow: pa.DataType) -> SqlType:
    high: int = (1 << (arrow.bit_width - 1)) - 1
    low = -high - 1
    hint = f"{kind} takes an int from {low} to {high}; convert with int(value) if that is meant."

    def check(value: object) -> int | None:
        if type(value) is int:
            whole = value
        elif value is None:
            return None
        else:
            whole = _whole(kind, value, hint)
        if low <= whole <= high:
            return whole
        raise _misfit(kind, value, hint)

    def fits(values: Sequence[int]) -> bool:
        return low <= min(values) and max(values) <= high

    return SqlType(kind, kind, arrow, check, _python=int, _fits=fits)


def _number(expected: str, value: object) -> float:
    """Return a float of the same value; Decimal and Fraction are refused, as few have one."""
    hint = f"{expected} takes a float, or an int that a float can hold exactly."
    if isinstance(value, float):
        return float(value)
    # numpy's floats of other widths are Real, and so is Fraction, which is Rational too.
    exact: Real | int
    if isinstance(value, Real) and not isinstance(value, Rational):
        exact = value
    else:
        exact = _whole(expected, value, hint)
    try:
        number = float(exact)
    except OverflowError as error:
        raise _misfit(expected, value, hint) from error
    if number == exact or number != number:  # noqa: PLR0124 - only NaN is not itself
        return number
    raise _misfit(expected, value, hint)


def _check_double(value: object) -> float | None:
    if type(value) is float or value is None:
        return value
    return _number("DOUBLE", value)


_FLOAT32 = struct.Struct("<f")


def _check_real(value: object) -> float | None:
    if value is None:
        return None
    number = value if type(value) is float else _number("REAL", value)
    try:
        # Rounded here, so that a row reads the same before and after its way through Arrow.
        nearest: float = _FLOAT32.unpack(_FLOAT32.pack(number))[0]
    except OverflowError as error:
        raise _misfit("REAL", value, "It is too large for 32 bits; use DOUBLE.") from error
    if nearest != number and hasattr(value, "__index__"):
        raise _misfit("REAL", value, "REAL holds ints exactly up to 2**24; use DOUBLE or BIGINT.")
    return nearest


def _check_varchar(value: object) -> str | None:
    if type(value) is str:
        text = value
    elif value is None:
        return None
    elif isinstance(value, str):
        text = str.__str__(value)  # of an enum: its value, where str() may give its name
    else:
        raise _misfit("VARCHAR", value, "Convert it with str(value), or bytes with .decode().")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            hint = "It has a lone surrogate, which UTF-8 cannot hold; decode with errors='replace'."
            raise _misfit("VARCHAR", value, hint) from error
    return text


def _check_binary(value: object) -> bytes | None:
    if type(value) is bytes or value is None:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise _misfit("BINARY", value, "BINARY takes bytes; convert text with .encode().")


def _check_date(value: object) -> date | None:
    if type(value) is date or value is None:
        return value
    if isinstance(value, date) and not isinstance(value, datetime):
        return date(value.year, value.month, value.day)
    raise _misfit("DATE", value, "DATE takes a date; of a datetime, give value.date().")


def _check_timestamp(value: object) -> datetime | None:
    if type(value) is datetime and value.tzinfo is UTC:
        return value
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise _misfit("TIMESTAMP", value, "TIMESTAMP takes a datetime; without a zone it is UTC.")
    # pandas' Timestamp is a datetime with more digits, and its NaT is one without a value.
    if getattr(value, "nanosecond", 0) or value != value:  # noqa: PLR0124 - NaT is not itself
        raise _misfit("TIMESTAMP", value, "It must have whole microseconds; give None for NaT.")
    zone = UTC if value.utcoffset() is None else value.tzinfo
    plain = datetime.combine(value.date(), value.time(), zone)
    try:
        return plain.astimezone(UTC)
    except OverflowError as error:
        raise _misfit("TIMESTAMP", value, "In UTC it is outside the years 1 to 9999.") from error


# The whole days that 64 bits of microseconds hold: pyarrow multiplies the days first, and gives up
# on a negative timedelta whose days alone go beyond although its seconds lead back.
_LONGEST = timedelta(days=106751991)


def _check_interval(value: object) -> timedelta | None:
    if value is None:
        return None
    # pandas' NaT compares as False with everything, so it is refused too.
    if not isinstance(value, timedelta) or not -_LONGEST <= value <= _LONGEST:
        hint = "INTERVAL takes a timedelta of at most 292 thousand years."
        raise _misfit("INTERVAL", value, hint)
    if type(value) is timedelta:
        return value
    if getattr(value, "nanoseconds", 0):
        raise _misfit("INTERVAL", value, "It must have whole microseconds; round it first.")
    return timedelta(value.days, value.seconds, value.microseconds)


def _always(values: Sequence[Any]) -> bool:  # noqa: ARG001 - the class alone decides
    return True


def _all_ascii(values: Sequence[str]) -> bool:
    return all(map(str.isascii, values))


def _all_utc(values: Sequence[datetime]) -> bool:
    return not [value for value in values if value.tzinfo is not UTC]


def _all_short(values: Sequence[timedelta]) -> bool:
    return min(values) >= -_LONGEST and max(values) <= _LONGEST


# --- The types ------------------------------------------------------------------------------------


def _scalar(
    kind: str, arrow: pa.DataType, check: Check, python: type, fits: ColumnFits | None = _always
) -> SqlType:
    return SqlType(kind, kind, arrow, check, _python=python, _fits=fits)


BOOLEAN = _scalar("BOOLEAN", pa.bool_(), _check_boolean, bool)
TINYINT = _integer("TINYINT", pa.int8())
SMALLINT = _integer("SMALLINT", pa.int16())
INTEGER = _integer("INTEGER", pa.int32())
BIGINT = _integer("BIGINT", pa.int64())
REAL = _scalar("REAL", pa.float32(), _check_real, float, None)
DOUBLE = _scalar("DOUBLE", pa.float64(), _check_double, float)
VARCHAR = _scalar("VARCHAR", pa.string(), _check_varchar, str, _all_ascii)
BINARY = _scalar("BINARY", pa.binary(), _check_binary, bytes)
DATE = _scalar("DATE", pa.date32(), _check_date, date)
TIMESTAMP = _scalar("TIMESTAMP", pa.timestamp("us", "UTC"), _check_timestamp, datetime, _all_utc)
INTERVAL = _scalar("INTERVAL", pa.duration("us"), _check_interval, timedelta, _all_short)


def decimal_type(precision: int = 10, scale: int = 0) -> SqlType:
    """Return DECIMAL(precision, scale): so many digits, of which ``scale`` follow the point.

    >>> decimal_type(10, 2).check(Decimal("1.5"))
    Decimal('1.50')
    """
    if not (1 <= precision <= MAX_PRECISION and 0 <= scale <= precision):
        raise SchemaError(
            f"DECIMAL({precision}, {scale}) cannot be",
            hint=f"Precision is 1 to {MAX_PRECISION}, scale is 0 to the precision.",
        )
    sql = f"DECIMAL({precision}, {scale})"
    quantum = Decimal(1).scaleb(-scale)
    # quantize with these traps is the whole check: too many digits, or digits that would be lost.
    context = Context(prec=precision, traps=[InvalidOperation, Inexact])

    def check(value: object) -> Decimal | None:
        if value is None:
            return None
        number = value if isinstance(value, Decimal) else Decimal(_whole(sql, value, hint))
        try:
            exact = number.quantize(quantum, context=context)
        except (InvalidOperation, Inexact) as error:
            raise _misfit(sql, value, hint) from error
        if exact.is_nan():
            raise _misfit(sql, value, hint)
        return exact or exact.copy_abs()  # Arrow knows no -0

    hint = f"{sql} takes a Decimal or an int that it holds exactly; round it first."
    return SqlType(sql, "DECIMAL", pa.decimal128(precision, scale), check)


def array_type(element: SqlType) -> SqlType:
    """Return ARRAY<element>; its elements may be NULL.

    >>> array_type(BIGINT).check((1, None))
    [1, None]
    """
    _check_depth(element)
    sql, check_element = f"ARRAY<{element.sql}>", element.check

    def check(value: object) -> list[Any] | None:
        if value is None:
            return None
        if isinstance(value, (list, tuple)):
            return list(map(check_element, value))
        raise _misfit(sql, value, "ARRAY takes a list or a tuple.")

    return SqlType(sql, "ARRAY", pa.list_(element.arrow), check, (element,))


def struct_type(fields: Mapping[str, SqlType]) -> SqlType:
    """Return STRUCT<name type, ...>; its fields may be NULL.

    >>> struct_type({"x": DOUBLE, "y": DOUBLE}).check({"x": 1.0})
    {'x': 1.0, 'y': None}
    """
    _check_depth(*fields.values())
    _check_field_names(list(fields))
    inner = ", ".join(f"{quote_name(name)} {each.sql}" for name, each in fields.items())
    sql, known = f"STRUCT<{inner}>", fields.keys()
    checks = [(name, each.check) for name, each in fields.items()]

    def check(value: object) -> dict[str, Any] | None:
        if value is None:
            return None
        if isinstance(value, tuple) and len(value) == len(checks):
            pairs = zip(checks, value, strict=True)
            return {name: check_field(each) for (name, check_field), each in pairs}
        if isinstance(value, dict) and value.keys() <= known:
            return {name: check_field(value.get(name)) for name, check_field in checks}
        hint = "STRUCT takes a dict of its fields, or a tuple of all of them in order."
        raise _misfit(sql, value, hint)

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
    sql, check_key, check_value = f"MAP<{key.sql}, {value.sql}>", key.check, value.check

    def check(given: object) -> dict[Any, Any] | None:
        if given is None:
            return None
        if not isinstance(given, dict) or None in given:
            raise _misfit(sql, given, "MAP takes a dict without the key None.")
        checked = {check_key(k): check_value(v) for k, v in given.items()}
        if len(checked) != len(given):
            raise _misfit(sql, given, f"Two of its keys are the same {key.sql}.")
        return checked

    return SqlType(sql, "MAP", pa.map_(key.arrow, value.arrow), check, (key, value))


def _check_depth(*children: SqlType) -> None:
    depth, level = 1, list(children)
    while level:
        depth, level = depth + 1, [inner for outer in level for inner in outer.children]
    if depth > MAX_DEPTH:
        raise _too_deep()


def _too_deep() -> SchemaError:
    return SchemaError(
        f"the type is nested more than {MAX_DEPTH} levels deep",
        hint="Flatten it, or keep the inner part as VARCHAR or BINARY.",
    )


def _check_field_names(names: Sequence[str]) -> None:
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

_BY_ARROW = {
    each.arrow: each
    for each in (
        *(BOOLEAN, TINYINT, SMALLINT, INTEGER, BIGINT, REAL, DOUBLE),
        *(VARCHAR, BINARY, DATE, TIMESTAMP, INTERVAL),
    )
} | {
    pa.uint8(): SMALLINT,
    pa.uint16(): INTEGER,
    pa.uint32(): BIGINT,
    pa.uint64(): decimal_type(20, 0),
    pa.float16(): REAL,
    pa.large_string(): VARCHAR,
    pa.string_view(): VARCHAR,
    pa.large_binary(): BINARY,
    pa.binary_view(): BINARY,
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
    (pa.types.is_decimal, _decimal_from_arrow),
)
"""Arrow types with parameters that the SQL type does not have, or has otherwise."""


def _nested_from_arrow(arrow: pa.DataType) -> SqlType:
    kinds = pa.types
    if kinds.is_list(arrow) or kinds.is_large_list(arrow) or kinds.is_fixed_size_list(arrow):
        return array_type(type_from_arrow(arrow.value_type))
    if kinds.is_map(arrow):
        return map_type(type_from_arrow(arrow.key_type), type_from_arrow(arrow.item_type))
    if kinds.is_struct(arrow):
        _check_field_names([each.name for each in arrow])  # before a dict would hide a double
        return struct_type({each.name: type_from_arrow(each.type) for each in arrow})
    if kinds.is_null(arrow):
        raise SchemaError(
            "a column of Arrow's null type has no type yet",
            hint="Cast it to the type that its values will have, or leave the column out.",
        )
    raise SchemaError(f"there is no SQL type for Arrow's {arrow}", hint=f"Cast it. {_ALL_TYPES}")


# --- From text ------------------------------------------------------------------------------------

_BY_WORD = {each.sql: each for each in _BY_ARROW.values() if each.kind != "DECIMAL"} | {
    "BOOL": BOOLEAN,
    "BYTE": TINYINT,
    "SHORT": SMALLINT,
    "INT": INTEGER,
    "LONG": BIGINT,
    "FLOAT": REAL,
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


class _Parser:
    """Recursive descent over one text: each method reads its own part and stands after it."""

    __slots__ = ("_place", "_text", "_tokens")

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [(m["token"], m.start("token")) for m in _TOKEN.finditer(text)]
        self._place = 0

    def type(self, depth: int) -> SqlType:
        if depth > MAX_DEPTH:
            raise _too_deep()
        word = self._peek().upper()
        if word in {"DECIMAL", "NUMERIC"}:
            return self._decimal()
        if word in {"ARRAY", "STRUCT", "MAP"}:
            return self._nested(word, depth + 1)
        if word not in _BY_WORD:
            raise self._error("unknown type", _ALL_TYPES)
        self._place += 1
        tail = _TAILS.get(word, ())
        if tuple(token.upper() for token, _ in self._rest(len(tail))) == tail:
            self._place += len(tail)
        if self._peek() == "(":
            raise self._parameter_error(word)
        return _BY_WORD[word]

    def end(self) -> None:
        if self._peek():
            raise self._error("unexpected", _ALL_TYPES)

    def _decimal(self) -> SqlType:
        self._place += 1
        if not self._skip("("):
            return decimal_type()
        precision = self._number()
        scale = self._number() if self._skip(",") else 0
        self._expect(")")
        return decimal_type(precision, scale)

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
        _check_field_names([name for name, _ in pairs])  # before a dict would hide a double
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
                "NOT NULL has no place inside a type:", "Only columns are NOT NULL; leave it out."
            )
        raise self._error(f"expected {mark!r}, got", _ALL_TYPES)

    def _parameter_error(self, word: str) -> SchemaError:
        if _BY_WORD[word] in {VARCHAR, BINARY}:
            hint = f"The length would not be enforced, so it is not taken; write {word} alone."
            return self._error(f"{word} takes no length:", hint)
        return self._error(f"{word} takes no parameter:", f"Write {word} alone.")

    def _error(self, problem: str, hint: str) -> SchemaError:
        token, position = self._tokens[self._place]
        shown = repr(token) if token else "the end"
        return SchemaError(f"{problem} {shown} at position {position} of {self._text!r}", hint=hint)
