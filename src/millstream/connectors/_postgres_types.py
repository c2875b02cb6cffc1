"""Types of PostgreSQL and what they are here; values from the text that PostgreSQL writes. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from millstream.model.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    INTERVAL,
    REAL,
    SMALLINT,
    TIMESTAMP,
    VARCHAR,
    SqlType,
    array_type,
    decimal_type,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Decode = Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class PgType:
    """A type of PostgreSQL.

    Attributes:
        oid: its number; of a domain, its own.
        name: its name; of a domain, that of the type it is made of.
        kind: ``b`` base, ``e`` enum, ``c`` composite, ``r`` range, ``m`` multirange.
        element: of an array, the type of its elements.
        typmod: of a domain, the parameters it gives; -1: none.
    """

    oid: int
    name: str
    kind: str = "b"
    element: PgType | None = None
    typmod: int = -1


_SCALARS: Final = {
    "bool": BOOLEAN,
    "int2": SMALLINT,
    "int4": INTEGER,
    "int8": BIGINT,
    "oid": BIGINT,
    "float4": REAL,
    "float8": DOUBLE,
    "bytea": BINARY,
    "date": DATE,
    "timestamp": TIMESTAMP,
    "timestamptz": TIMESTAMP,
    "interval": INTERVAL,
}
# Which types a column here may have, besides VARCHAR, which takes the text of anything.
_FITTING: Final = {
    "BOOLEAN": {"bool"},
    "SMALLINT": {"int2"},
    "INTEGER": {"int2", "int4"},
    "BIGINT": {"int2", "int4", "int8", "oid"},
    "REAL": {"float4"},
    "DOUBLE": {"int2", "int4", "float4", "float8", "numeric"},
    "DECIMAL": {"int2", "int4", "int8", "oid", "numeric"},
    "BINARY": {"bytea"},
    "DATE": {"date"},
    "TIMESTAMP": {"timestamp", "timestamptz"},
    "INTERVAL": {"interval"},
}


def sql_type(of: PgType, typmod: int) -> SqlType:
    """The type that a column of PostgreSQL has here, unless CREATE says another one.

    >>> sql_type(PgType(1700, "numeric"), ((10 << 16) | 2) + 4)
    SqlType(sql='DECIMAL(10, 2)')
    """
    if of.element is not None:
        return array_type(sql_type(of.element, typmod))
    if of.name == "numeric":
        parameters = typmod if typmod >= 0 else of.typmod
        precision, scale = ((parameters - 4) >> 16) & 0xFFFF, (parameters - 4) & 0x7FF
        if parameters < 0:
            return decimal_type(38, 18)
        return decimal_type(precision, scale) if scale <= precision <= 38 else VARCHAR
    return _SCALARS.get(of.name, VARCHAR) if of.kind == "b" else VARCHAR


def fits(of: PgType, into: SqlType) -> bool:
    """Whether values of a type of PostgreSQL can be in a column of a type here.

    >>> fits(PgType(23, "int4"), BIGINT), fits(PgType(20, "int8"), INTEGER)
    (True, False)
    """
    if into.kind == "VARCHAR":
        return True
    if into.kind == "ARRAY":
        return of.element is not None and fits(of.element, into.children[0])
    return of.element is None and of.kind == "b" and of.name in _FITTING.get(into.kind, ())


def decoder(of: PgType, into: SqlType) -> Decode:
    """What makes a value of a type here from the text of PostgreSQL.

    Of text that is no such value it raises ValueError, ArithmeticError or SchemaMismatchError.

    >>> decoder(PgType(1009, "_text", element=PgType(25, "text")), array_type(VARCHAR))(b'{a,NULL}')
    ['a', None]
    """
    if into.kind == "ARRAY" and of.element is not None:
        return _array(decoder(of.element, into.children[0]))
    if into.kind == "DECIMAL":
        check = into.check
        return lambda raw: check(Decimal(raw.decode()))
    if into.kind == "TIMESTAMP":
        return _timestamptz if of.name == "timestamptz" else _timestamp
    return _DECODERS[into.kind]


def _text(raw: bytes) -> str:
    return str(raw, "utf-8")


def _boolean(raw: bytes) -> bool:
    return raw == b"t"


def _binary(raw: bytes) -> bytes:
    return bytes.fromhex(str(raw[2:], "ascii"))


def _date(raw: bytes) -> date:
    return date.fromisoformat(str(raw, "ascii"))


def _timestamptz(raw: bytes) -> datetime:
    return datetime.fromisoformat(str(raw, "ascii"))


def _timestamp(raw: bytes) -> datetime:
    return datetime.fromisoformat(str(raw, "ascii") + "+00")


_INTERVAL: Final = re.compile(
    r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?[\d.]+)S)?)?"
)


def _interval(raw: bytes) -> timedelta:
    found = _INTERVAL.fullmatch(str(raw, "ascii"))
    if found is None or found[1] or found[2]:
        raise ValueError("an interval of months has no fixed length")
    days, hours, minutes = (int(found[place] or 0) for place in (3, 4, 5))
    micros = int(Decimal(found[6] or 0) * 1_000_000)
    return timedelta(days=days, hours=hours, minutes=minutes, microseconds=micros)


_DECODERS: Final[dict[str, Decode]] = {
    "VARCHAR": _text,
    "BOOLEAN": _boolean,
    "SMALLINT": int,
    "INTEGER": int,
    "BIGINT": int,
    "REAL": float,
    "DOUBLE": float,
    "BINARY": _binary,
    "DATE": _date,
    "INTERVAL": _interval,
}

_ITEM: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"|([^",{}]+)|([{},])', re.DOTALL)


def _array(decode: Decode) -> Decode:
    """The decoder of arrays of one dimension."""

    def decoded(raw: bytes) -> list[Any]:
        body = raw[raw.index(b"={") + 1 :] if raw.startswith(b"[") else raw
        values: list[Any] = []
        for quoted, bare, mark in _ITEM.findall(body[1:-1]):
            if mark == b",":
                continue
            if mark:
                raise ValueError("an array of several dimensions")
            if bare:
                values.append(None if bare == b"NULL" else decode(bare))
            else:
                values.append(decode(re.sub(rb"\\(.)", rb"\1", quoted, flags=re.DOTALL)))
        return values

    return decoded
