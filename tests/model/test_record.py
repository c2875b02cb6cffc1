"""Records: the columns that the fields of a dataclass become."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Optional

import pytest

from millstream.errors import SchemaError
from millstream.model.schema import Schema


@dataclass
class Venue:
    name: str
    opened: date | None


@dataclass
class Everything:
    a: bool
    b: int
    c: float
    d: str
    e: bytes
    f: date
    g: datetime
    h: timedelta
    i: Decimal
    j: Optional[int]  # noqa: UP045 - both spellings are in use
    k: "list[int | None]"
    m: dict[str, list[float]]
    n: Venue
    o: Venue | None


@dataclass
class Loop:
    next: "Loop | None"


@dataclass
class Unresolved:
    a: "NoSuchClass"  # type: ignore[name-defined]  # noqa: F821


@dataclass
class Untyped:
    a: list


@dataclass
class Either:
    a: int | str


def test_a_schema_of_a_dataclass():
    assert Schema.from_dataclass(Everything, key=("b",)) == Schema.of(
        key=("b",),
        a="BOOLEAN NOT NULL",
        b="BIGINT NOT NULL",
        c="DOUBLE NOT NULL",
        d="VARCHAR NOT NULL",
        e="BINARY NOT NULL",
        f="DATE NOT NULL",
        g="TIMESTAMP NOT NULL",
        h="INTERVAL NOT NULL",
        i="DECIMAL(38, 18) NOT NULL",
        j="BIGINT",
        k="ARRAY<BIGINT> NOT NULL",
        m="MAP<VARCHAR, ARRAY<DOUBLE>> NOT NULL",
        n="STRUCT<name VARCHAR, opened DATE> NOT NULL",
        o="STRUCT<name VARCHAR, opened DATE>",
    )


@pytest.mark.parametrize("record", [Loop, Unresolved, Untyped, Either, int, Venue("x", None)])
def test_dataclasses_that_have_no_schema(record):
    with pytest.raises(SchemaError) as caught:
        Schema.from_dataclass(record)
    assert caught.value.hint
