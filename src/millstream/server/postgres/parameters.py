"""Values that clients send, from PostgreSQL's text and binary formats to Python."""

from __future__ import annotations

import re
import struct
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from millstream.formats.text import DECODER, bytea, json_value
from millstream.server.postgres import types as pg
from millstream.server.postgres.errors import PostgresError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import tzinfo

    from millstream.model.types import SqlType

    Reader = Callable[[Any], Any]


def read_value(
    data: bytes | None, oid: int, code: int, *, zone: tzinfo = UTC, of: SqlType | None = None
) -> Any:  # noqa: ANN401 - of any type
    """The value of a parameter.

    Args:
        data: as it was sent; None: NULL.
        oid: its type.
        code: 0 when it is text, 1 when it is binary.
        zone: of a time that names none.
        of: the type of its column, which says what is in JSON; None: it is no JSON.

    Raises:
        PostgresError: it is no value of that type.
    """
    if data is None:
        return None
    try:
        if oid in _JSONS and of is not None:
            return json_value(of, (_TEXT, _BINARY)[code][oid](data if code else data.decode()))
        if code == 0:
            return read_text(data.decode(), oid, zone)
        element = pg.ELEMENTS.get(oid)
        if element is not None:
            return _array_binary(data, element)
        value = _BINARY.get(oid, _utf8)(data)
        return value.replace(tzinfo=zone).astimezone(UTC) if oid == pg.TIMESTAMP else value
    except (ValueError, struct.error, ArithmeticError, IndexError, RecursionError) as error:
        known = pg.BY_OID.get(oid)
        name = "text" if known is None else known.name
        raise PostgresError(f"invalid input for type {name}", sqlstate="22P02") from error


def read_text(text: str, oid: int, zone: tzinfo = UTC) -> Any:  # noqa: ANN401 - of any type
    """The value that a text stands for."""
    element = pg.ELEMENTS.get(oid)
    if element is not None:
        items = array_items(text)
        return [None if each is None else read_text(each, element, zone) for each in items]
    if oid in {pg.TIMESTAMP, pg.TIMESTAMPTZ}:
        return _moment(text, zone)
    return _TEXT.get(oid, str)(text)


# ---- text

_JSONS: Final = (pg.JSON, pg.JSONB)
_TRUE: Final = {"t", "true", "y", "yes", "on", "1"}
_FALSE: Final = {"f", "false", "n", "no", "off", "0"}


def _bool(text: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE | _FALSE:
        raise ValueError(word)
    return word in _TRUE


def _moment(text: str, zone: tzinfo) -> datetime:
    made = datetime.fromisoformat(text.strip())
    return (made.replace(tzinfo=zone) if made.tzinfo is None else made).astimezone(UTC)


def _day(text: str) -> date:
    plain = text.strip()
    return datetime.fromisoformat(plain).date() if len(plain) > 10 else date.fromisoformat(plain)


_SECOND: Final = 1_000_000
_UNITS: Final = {
    **dict.fromkeys(("week", "w"), 604_800 * _SECOND),
    **dict.fromkeys(("day", "d"), 86_400 * _SECOND),
    **dict.fromkeys(("hour", "hr", "h"), 3600 * _SECOND),
    **dict.fromkeys(("minute", "min", "m"), 60 * _SECOND),
    **dict.fromkeys(("second", "sec", "s"), _SECOND),
    **dict.fromkeys(("millisecond", "msec", "ms"), 1000),
    **dict.fromkeys(("microsecond", "usec", "us"), 1),
}
"""Units of time, in microseconds."""
_PART: Final = re.compile(
    r"\s*(?:(?P<sign>[+-])?(?P<h>\d+):(?P<m>\d\d)(?::(?P<s>\d\d(?:\.\d+)?))?"
    r"|(?P<number>[+-]?\d+(?:\.\d+)?)\s*(?P<unit>[a-z]+))",
    re.IGNORECASE,
)
_ISO_PART: Final = re.compile(r"([+-]?\d+(?:\.\d+)?)([WDHMS])", re.IGNORECASE)


def interval(text: str) -> timedelta:
    """A length of time: ``1 day 02:00:00``, ``90 seconds``, ``P1DT2H``.

    >>> str(interval("1 day -00:00:01.5")), str(interval("500 ms")), str(interval("PT-90S"))
    ('23:59:58.500000', '0:00:00.500000', '-1 day, 23:58:30')
    """
    text = text.strip()
    if text[:1] in {"P", "p"}:
        return _iso_interval(text)
    is_ago = text.lower().endswith(" ago")
    text = text.removeprefix("@").strip()
    text = text[:-4].rstrip() if is_ago else text
    total, place = 0, 0
    while place < len(text):
        part = _PART.match(text, place)
        if part is None:
            raise ValueError(text)
        place = part.end()
        if part["unit"]:
            total += _amount(part["number"], part["unit"].lower())
        else:
            clock = int(part["h"]) * 3600 * _SECOND + int(part["m"]) * 60 * _SECOND
            clock += _amount(part["s"] or "0", "s")
            total += -clock if part["sign"] == "-" else clock
    return timedelta(microseconds=-total if is_ago else total)


def _amount(number: str, unit: str) -> int:
    """A number of a unit, in microseconds."""
    unit = unit if unit in _UNITS else unit.removesuffix("s")
    if unit not in _UNITS:
        raise ValueError(unit)
    return int((Decimal(number) * _UNITS[unit]).to_integral_value())


def _iso_interval(text: str) -> timedelta:
    days, _, clock = text[1:].upper().partition("T")
    total = 0
    for part, units in ((days, "WD"), (clock, "HMS")):
        found = _ISO_PART.findall(part)
        if "".join(n + unit for n, unit in found) != part or not {u for _, u in found} <= {*units}:
            raise ValueError(text)
        total += sum(_amount(number, unit.lower()) for number, unit in found)
    return timedelta(microseconds=total)


_ITEM: Final = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^,{}"]*))\s*', re.DOTALL)


def array_items(text: str) -> list[str | None]:
    r"""The elements of an array as text.

    >>> array_items(r'{1,NULL,"a \" b"}')
    ['1', None, 'a " b']
    """
    inner = text.strip()
    if not (inner.startswith("{") and inner.endswith("}")):
        raise ValueError(text)
    inner = inner[1:-1]
    made: list[str | None] = []
    place = 0
    while inner:
        item = _ITEM.match(inner, place)
        if item is None:
            raise ValueError(text)
        bare = (item[2] or "").strip()
        if item[1] is not None:
            made.append(re.sub(r"\\(.)", r"\1", item[1], flags=re.DOTALL))
        else:
            made.append(None if bare.upper() == "NULL" else bare)
        place = item.end()
        if place >= len(inner):
            break
        if inner[place] != ",":
            raise ValueError(text)
        place += 1
    return made


_TEXT: Final[dict[int, Reader]] = {
    pg.BOOL: _bool,
    pg.INT2: int,
    pg.INT4: int,
    pg.INT8: int,
    pg.OID: int,
    pg.FLOAT4: float,
    pg.FLOAT8: float,
    pg.NUMERIC: Decimal,
    pg.BYTEA: bytea,
    pg.DATE: _day,
    pg.INTERVAL: interval,
    pg.JSON: DECODER.decode,
    pg.JSONB: DECODER.decode,
}

# ---- binary


def _utf8(data: bytes) -> str:
    return data.decode()


def _number(form: str) -> Reader:
    unpack = struct.Struct(form).unpack

    def read(data: bytes) -> Any:  # noqa: ANN401 - an int or a float
        return unpack(data)[0]

    return read


def _binary_moment(data: bytes) -> datetime:
    (micros,) = struct.unpack("!q", data)
    return pg.EPOCH + timedelta(microseconds=micros)


def _binary_day(data: bytes) -> date:
    return date.fromordinal(struct.unpack("!i", data)[0] + pg.EPOCH_DAY)


def _binary_interval(data: bytes) -> timedelta:
    micros, days, months = struct.unpack("!qii", data)
    if months:
        raise ValueError("an interval with months has no length")
    return timedelta(days=days, microseconds=micros)


def _binary_numeric(data: bytes) -> Decimal:
    count, weight, sign, scale = struct.unpack_from("!hhHh", data)
    groups = struct.unpack_from(f"!{count}h", data, 8)
    if sign == 0xC000:
        return Decimal("NaN")
    value = 0
    for group in groups:
        value = value * 10000 + group
    power = (weight - count + 1) * 4
    shift = scale + power
    digits = value * 10**shift if shift >= 0 else value // 10**-shift
    # Exact: arithmetic of Decimals would round to 28 digits.
    return Decimal((int(sign == 0x4000), tuple(map(int, str(digits))), -scale))


def _array_binary(data: bytes, element: int) -> list[Any]:
    dimensions, _, _ = struct.unpack_from("!iiI", data)
    if dimensions == 0:
        return []
    if dimensions != 1:
        raise ValueError("an array of several dimensions")
    count, _ = struct.unpack_from("!ii", data, 12)
    if not 0 <= count <= len(data):
        raise ValueError("a wrong number of elements")
    place = 20
    made: list[Any] = []
    for _ in range(count):
        (length,) = struct.unpack_from("!i", data, place)
        place += 4
        if length < 0:
            made.append(None)
            continue
        if place + length > len(data):
            raise ValueError("an array that is cut short")
        made.append(_BINARY.get(element, _utf8)(data[place : place + length]))
        place += length
    return made


_BINARY: Final[dict[int, Reader]] = {
    pg.BOOL: lambda data: data != b"\0",
    pg.INT2: _number("!h"),
    pg.INT4: _number("!i"),
    pg.INT8: _number("!q"),
    pg.OID: _number("!I"),
    pg.FLOAT4: _number("!f"),
    pg.FLOAT8: _number("!d"),
    pg.NUMERIC: _binary_numeric,
    pg.BYTEA: bytes,
    pg.DATE: _binary_day,
    pg.TIMESTAMP: _binary_moment,
    pg.TIMESTAMPTZ: _binary_moment,
    pg.INTERVAL: _binary_interval,
    pg.UUID: lambda data: str(uuid.UUID(bytes=data)),
    pg.JSON: lambda data: DECODER.decode(data.decode()),
    pg.JSONB: lambda data: DECODER.decode(data[1:].decode()),
}
