"""Millstream's types as PostgreSQL's: their OIDs, and values written as text and as binary."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from math import isinf, isnan
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from millstream.formats.json_output import to_json
from millstream.model.arrow_values import Unreadable
from millstream.model.clock import MICROSECOND
from millstream.model.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    REAL,
    SMALLINT,
    SqlType,
    array_type,
)
from millstream.model.types import DATE as DATES
from millstream.model.types import INTERVAL as INTERVALS
from millstream.model.types import NUMERIC as DECIMAL
from millstream.model.types import TIMESTAMP as TIMESTAMPS
from millstream.model.types import VARCHAR as TEXTS
from millstream.server.postgres.styles import ISO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from millstream.server.postgres.styles import Style

    Writer = Callable[[Any], bytes]

BOOL, BYTEA, INT8, INT2, INT4, TEXT, OID = 16, 17, 20, 21, 23, 25, 26
JSON, FLOAT4, FLOAT8, UNKNOWN = 114, 700, 701, 705
BPCHAR, VARCHAR, DATE, TIMESTAMP, TIMESTAMPTZ, INTERVAL = 1042, 1043, 1082, 1114, 1184, 1186
NUMERIC, UUID, JSONB, NAME = 1700, 2950, 3802, 19

EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
EPOCH_DAY: Final = date(2000, 1, 1).toordinal()


@dataclass(frozen=True, slots=True)
class PgType:
    """A type of PostgreSQL.

    Attributes:
        name: as ``pg_type`` has it.
        oid: its number.
        size: of a value, in bytes; -1 when they differ.
        array: the OID of its arrays; 0 when there are none.
    """

    name: str
    oid: int
    size: int
    array: int


PG_TYPES: Final = (
    PgType("bool", BOOL, 1, 1000),
    PgType("bytea", BYTEA, -1, 1001),
    PgType("name", NAME, 64, 1003),
    PgType("int8", INT8, 8, 1016),
    PgType("int2", INT2, 2, 1005),
    PgType("int4", INT4, 4, 1007),
    PgType("text", TEXT, -1, 1009),
    PgType("oid", OID, 4, 1028),
    PgType("json", JSON, -1, 199),
    PgType("float4", FLOAT4, 4, 1021),
    PgType("float8", FLOAT8, 8, 1022),
    PgType("unknown", UNKNOWN, -2, 0),
    PgType("bpchar", BPCHAR, -1, 1014),
    PgType("varchar", VARCHAR, -1, 1015),
    PgType("date", DATE, 4, 1182),
    PgType("timestamp", TIMESTAMP, 8, 1115),
    PgType("timestamptz", TIMESTAMPTZ, 8, 1185),
    PgType("interval", INTERVAL, 16, 1187),
    PgType("numeric", NUMERIC, -1, 1231),
    PgType("uuid", UUID, 16, 2951),
    PgType("jsonb", JSONB, -1, 3807),
)
BY_OID: Final = {each.oid: each for each in PG_TYPES}
ELEMENTS: Final = {each.array: each.oid for each in PG_TYPES if each.array}

_OIDS: Final = {
    "BOOLEAN": BOOL,
    "TINYINT": INT2,
    "SMALLINT": INT2,
    "INTEGER": INT4,
    "BIGINT": INT8,
    "REAL": FLOAT4,
    "DOUBLE": FLOAT8,
    "DECIMAL": NUMERIC,
    "VARCHAR": TEXT,
    "BINARY": BYTEA,
    "DATE": DATE,
    "TIMESTAMP": TIMESTAMPTZ,  # an instant, in UTC
    "INTERVAL": INTERVAL,
}


OIDS: Final = replace(array_type(BIGINT))
"""Arrays of OIDs: to the catalog arrays of numbers, to clients a type of its own."""


def oid_of(of: SqlType) -> int:
    """The OID of a type. An ARRAY of scalars is an array, anything else that is nested is json.

    >>> from millstream.model.types import parse_type
    >>> [oid_of(parse_type(each)) for each in ("BIGINT", "ARRAY<BIGINT>", "MAP<VARCHAR, INT>")]
    [20, 1016, 114]
    """
    if of is OIDS:
        return BY_OID[OID].array
    if of.kind == "ARRAY" and of.children[0].kind in _OIDS:
        return BY_OID[_OIDS[of.children[0].kind]].array
    return _OIDS.get(of.kind, JSON)


def typmod_of(of: SqlType) -> int:
    """The modifier of a type: the digits of a numeric that was declared with some; else -1.

    >>> from millstream.model.types import NUMERIC, parse_type
    >>> typmod_of(parse_type("DECIMAL(10, 2)")), typmod_of(NUMERIC)
    (655366, -1)
    """
    if of.kind != "DECIMAL" or of == DECIMAL:
        return -1
    return ((int(of.arrow.precision) << 16) | int(of.arrow.scale)) + 4


_TYPES: Final[dict[int, SqlType]] = {
    BOOL: BOOLEAN,
    INT2: SMALLINT,
    INT4: INTEGER,
    INT8: BIGINT,
    FLOAT4: REAL,
    FLOAT8: DOUBLE,
    **dict.fromkeys((TEXT, VARCHAR, BPCHAR, NAME), TEXTS),
    BYTEA: BINARY,
    DATE: DATES,
    **dict.fromkeys((TIMESTAMP, TIMESTAMPTZ), TIMESTAMPS),
    INTERVAL: INTERVALS,
}


def type_of(oid: int) -> SqlType | None:
    """The type of a scalar OID; None if it is another one, or has no one type of ours."""
    return _TYPES.get(oid)


def size_of(oid: int) -> int:
    """The size of a type's values; -1 when they differ."""
    known = BY_OID.get(oid)
    return -1 if known is None else known.size


# ---- text


def _bool_text(value: Any) -> bytes:  # noqa: ANN401
    return b"t" if value else b"f"


def _int_text(value: Any) -> bytes:  # noqa: ANN401
    return b"%d" % value


def _float_text(value: Any) -> bytes:  # noqa: ANN401
    return _number_text(value, repr(value))


def _real_text(value: Any) -> bytes:  # noqa: ANN401
    return _number_text(value, str(np.float32(value)))


def _number_text(value: float, shown: str) -> bytes:
    if isnan(value):
        return b"NaN"
    if isinf(value):
        return b"Infinity" if value > 0 else b"-Infinity"
    return shown.removesuffix(".0").encode()


def _decimal_text(value: Any) -> bytes:  # noqa: ANN401
    return format(value, "f").encode()


def _text_text(value: Any) -> bytes:  # noqa: ANN401
    return str(value).replace("\0", "").encode("utf-8", "replace")


def _bytes_text(value: Any) -> bytes:  # noqa: ANN401
    return b"\\x" + bytes(value).hex().encode()


def _json_text(value: Any) -> bytes:  # noqa: ANN401
    return to_json(value).encode("utf-8", "replace")


_BARE: Final = re.compile(rb'[^{}",\\\s]+')


def _quoted(value: bytes) -> bytes:
    """An element of an array as text, in quotes where it would be read otherwise without."""
    if _BARE.fullmatch(value) and value.upper() != b"NULL":
        return value
    return b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def _array_text(element: Writer) -> Writer:
    def write(values: Iterable[Any]) -> bytes:
        parts = [b"NULL" if each is None else _quoted(element(each)) for each in values]
        return b"{" + b",".join(parts) + b"}"

    return write


_TEXT: Final[dict[int, Writer]] = {
    BOOL: _bool_text,
    INT2: _int_text,
    INT4: _int_text,
    INT8: _int_text,
    OID: _int_text,
    FLOAT4: _real_text,
    FLOAT8: _float_text,
    NUMERIC: _decimal_text,
    TEXT: _text_text,
    NAME: _text_text,
    BYTEA: _bytes_text,
    DATE: ISO.date,
    TIMESTAMP: ISO.timestamp,
    TIMESTAMPTZ: ISO.timestamp,
    INTERVAL: ISO.interval,
    JSON: _json_text,
}


@lru_cache(maxsize=64)
def _text_writers(style: Style) -> dict[int, Writer]:
    times = dict.fromkeys((TIMESTAMP, TIMESTAMPTZ), style.timestamp)
    return {**_TEXT, **times, DATE: style.date, INTERVAL: style.interval}


# ---- binary


def _date_binary(value: Any) -> bytes:  # noqa: ANN401
    return struct.pack("!i", value.toordinal() - EPOCH_DAY)


def _timestamp_binary(value: Any) -> bytes:  # noqa: ANN401
    moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return struct.pack("!q", (moment - EPOCH) // MICROSECOND)


def _interval_binary(value: timedelta) -> bytes:
    rest = value - timedelta(days=value.days)
    return struct.pack("!qii", rest // MICROSECOND, value.days, 0)


def numeric_binary(value: Decimal) -> bytes:
    """A numeric: groups of four digits, the place of the first, the sign, the scale."""
    if value.is_nan():
        return struct.pack("!hhHh", 0, 0, 0xC000, 0)
    sign, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    whole = int("".join(map(str, digits)) or "0") * 10 ** max(0, int(exponent))
    padded = -scale % 4  # the groups are counted from the point
    whole *= 10**padded
    groups: list[int] = []
    while whole:
        whole, group = divmod(whole, 10000)
        groups.append(group)
    weight = len(groups) - 1 - (scale + padded) // 4
    groups.reverse()
    while groups and groups[-1] == 0:
        groups.pop()
    head = struct.pack("!hhHh", len(groups), weight if groups else 0, 0x4000 * sign, scale)
    return head + struct.pack(f"!{len(groups)}h", *groups)


def _array_binary(element: Writer, oid: int) -> Writer:
    def write(values: Sequence[Any]) -> bytes:
        if not values:
            return struct.pack("!iiI", 0, 0, oid)
        has_null = any(each is None for each in values)
        parts = [struct.pack("!iiIii", 1, int(has_null), oid, len(values), 1)]
        for each in values:
            if each is None:
                parts.append(b"\xff\xff\xff\xff")
            else:
                made = element(each)
                parts += (struct.pack("!i", len(made)), made)
        return b"".join(parts)

    return write


_BINARY: Final[dict[int, Writer]] = {
    BOOL: lambda value: b"\1" if value else b"\0",
    INT2: struct.Struct("!h").pack,
    INT4: struct.Struct("!i").pack,
    INT8: struct.Struct("!q").pack,
    OID: struct.Struct("!I").pack,
    FLOAT4: struct.Struct("!f").pack,
    FLOAT8: struct.Struct("!d").pack,
    NUMERIC: numeric_binary,
    TEXT: _text_text,
    NAME: _text_text,
    BYTEA: bytes,
    DATE: _date_binary,
    TIMESTAMP: _timestamp_binary,
    TIMESTAMPTZ: _timestamp_binary,
    INTERVAL: _interval_binary,
    JSON: _json_text,
}


def writer(oid: int, code: int, typmod: int = -1, style: Style = ISO) -> Writer:
    """What writes the values of a type.

    Args:
        oid: the type.
        code: 0 as text, 1 as binary.
        typmod: the type's modifier; a numeric without one has no zeros at its end.
        style: how text has times.
    """
    if oid == NUMERIC and typmod < 0:
        return _plain_binary if code else _plain_text
    table = _BINARY if code else _TEXT if style is ISO else _text_writers(style)
    element = ELEMENTS.get(oid)
    if element is not None:
        one = table.get(element, _text_text)
        return _array_binary(one, element) if code else _array_text(one)
    return table.get(oid, _text_text)


def _plain_text(value: Decimal) -> bytes:
    text = format(value, "f")
    return (text.rstrip("0").rstrip(".") if "." in text else text).encode()


def _plain_binary(value: Decimal) -> bytes:
    return numeric_binary(Decimal(_plain_text(value).decode()))


_NULL: Final = b"\xff\xff\xff\xff"


def data_rows(rows: Iterable[Sequence[Any]], writers: Sequence[Writer]) -> bytes:
    """DataRow messages of some rows."""
    count = struct.pack("!h", len(writers))
    pack = struct.Struct("!i").pack
    out: list[bytes] = []
    for row in rows:
        parts = [count]
        for value, write in zip(row, writers, strict=True):
            if value is None:
                parts.append(_NULL)
            else:
                made = written(value, write)
                parts += (pack(len(made)), made)
        body = b"".join(parts)
        out += (b"D", pack(len(body) + 4), body)
    return b"".join(out)


def written(value: Any, write: Writer) -> bytes:  # noqa: ANN401 - of any type
    """A value as its writer has it; one that Python cannot hold, as PostgreSQL or Arrow has it."""
    if type(value) is not Unreadable:
        return write(value)
    scalar = value.arrow
    is_day = pa.types.is_date32(scalar.type)
    if not (is_day or pa.types.is_timestamp(scalar.type)):
        return value.reason.encode()
    count, most = int(scalar.value), 2**31 - 1 if is_day else 2**63 - 1
    is_infinite = abs(count) >= most
    if write is _date_binary or write is _timestamp_binary:
        since = count - (_DAYS_TO_2000 if is_day else _MICROS_TO_2000)
        infinity = most if count > 0 else -most - 1
        return struct.pack("!i" if is_day else "!q", infinity if is_infinite else since)
    if is_infinite:
        return b"infinity" if count > 0 else b"-infinity"
    text: str = scalar.cast(pa.string()).as_py()
    return text.removesuffix("Z").encode() + (b"" if is_day else b"+00")


_DAYS_TO_2000: Final = EPOCH_DAY - date(1970, 1, 1).toordinal()
_MICROS_TO_2000: Final = _DAYS_TO_2000 * 86_400_000_000
