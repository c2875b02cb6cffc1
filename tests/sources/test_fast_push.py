"""The generated push says what ``Schema.check_rows`` says, for every type, and is never slower."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import RowError
from millstream.model.schema import Column, Schema
from millstream.model.types import SCALARS, parse_type
from millstream.sources.fast_push import make_push
from millstream.sources.inlet import Inlet
from millstream.sources.source import Source
from millstream.testing import inlet_of
from millstream.threads import Wakeup

from ..model.strategies import filled, values_of  # noqa: TID252 - tests have no name

TYPES = [
    *SCALARS,
    *map(
        parse_type,
        ("DECIMAL(5, 2)", "ARRAY<BIGINT>", "STRUCT<a: BIGINT, b: VARCHAR>", "MAP<VARCHAR, DOUBLE>"),
    ),
]


class Colour(enum.StrEnum):
    RED = "red"


class Number(int):
    pass


class Moment(datetime):
    pass


class Nowhere(tzinfo):
    """A zone that does not say what its offset is."""

    def utcoffset(self, _):
        return None

    tzname = dst = utcoffset


# Values of all sorts, at the edges and over them, for whatever column.
odd = st.sampled_from(
    [
        *(None, True, False, 0, 1, -0.0, 1.5, math.nan, math.inf, 1e308, 16777217, 0.1),
        *(127, 128, -128, -129, 32767, 32768, -32768, -32769, 2**31 - 1, 2**31, -(2**31)),
        *(-(2**31) - 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**9, 10**9 - 1, 10**400),
        *("", "a", "é", "\ud800", "🦆", Colour.RED, Number(5), Decimal("1.5"), Decimal("1.234")),
        *(b"", b"x", bytearray(b"y"), memoryview(b"z"), [1], [None], ["x"], (1, "x"), {"a": 1}),
        *({"a": 1, "b": "x"}, {"x": 1.0}, {None: 1.0}, object(), int, ...),
        *(date(2024, 1, 2), datetime(2024, 1, 2), datetime(2024, 1, 2, tzinfo=UTC)),  # noqa: DTZ001
        datetime(2024, 1, 2, tzinfo=timezone(timedelta(hours=5))),
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))),
        Moment(2024, 1, 2, tzinfo=UTC),
        datetime(2024, 1, 2, tzinfo=Nowhere()),
        datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(9999, 12, 31, 23, tzinfo=ZoneInfo("America/New_York")),
        Decimal("NaN"),
        Decimal("-0"),
        Decimal("1e30"),
        *(timedelta(1), timedelta.max, timedelta.min),
    ]
)


def source_of(schema, **options):
    return Source(Inlet("s", schema, Wakeup(), **options), lambda: 0)


def exactly(rows):
    """Equal, and of the same classes: 1 is not True, nor 1.0."""
    return [[(type(value), repr(value)) for value in row] for row in rows]


def agrees(schema, row):
    """Push a row as a tuple, and have the schema check it: both take it, or both refuse it."""
    source = source_of(schema)
    items = inlet_of(source).items
    try:
        expected = schema.check_rows([row])
    except RowError as refused:
        with pytest.raises(RowError) as caught:
            source.push(row)
        assert caught.value.column == refused.column
        assert items == []
    else:
        source.push(row)
        assert exactly(items) == exactly(expected)


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.sql)
@pytest.mark.parametrize("nullable", [True, False])
@given(data=st.data())
def test_agrees_with_the_schema(kind, nullable, data):
    schema = Schema((Column("v", kind, nullable=nullable),))
    agrees(schema, (data.draw(st.one_of(odd, values_of(kind))),))


@given(filled(), st.data())
def test_agrees_for_rows_of_several_columns(content, data):
    schema, rows = content
    for row in rows:
        agrees(schema, row)
        place = data.draw(st.integers(0, len(row) - 1))
        agrees(schema, (*row[:place], data.draw(odd), *row[place + 1 :]))


@pytest.mark.parametrize("row", [(), (1,), (1, 2, 3), None, 5, "ab", b"ab", [1, 2, 3], object()])
def test_what_is_no_row_is_refused_whole(row):
    source = source_of(Schema.of(a="BIGINT", b="BIGINT"))
    with pytest.raises(RowError):
        source.push(row)
    assert inlet_of(source).items == []


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("BOOLEAN", True),
        ("TINYINT", -128),
        ("SMALLINT", 32767),
        ("INTEGER", 5),
        ("BIGINT", 5),
        ("BIGINT", 1_790_000_000_000),
        ("BIGINT", -(2**63)),
        ("DOUBLE", math.nan),
        ("VARCHAR", "a"),
        ("VARCHAR", "Zoë, 東京 🦆"),
        ("BINARY", b"a"),
        ("DATE", date(2024, 1, 1)),
        ("TIMESTAMP", datetime(2024, 1, 1, tzinfo=UTC)),
    ],
)
def test_the_usual_takes_no_detour(sql, value):
    """It is appended as it is: the very tuple that was pushed."""
    inlet = Inlet("s", Schema.of(v=f"{sql} NOT NULL", w=sql), Wakeup())

    def detour(row):
        raise AssertionError(f"a detour for {row}")

    push, _ = make_push(inlet, detour, detour, {})
    for row in [(value, value), (value, None)]:
        push(row)
        assert inlet.items.pop() is row


@pytest.mark.parametrize(
    ("sql", "value", "held"),
    [
        ("DOUBLE", 5, 5.0),
        ("REAL", 0.1, 0.10000000149011612),
        ("VARCHAR", "two\nlines, Zoë", "two\nlines, Zoë"),
        ("TIMESTAMP", datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC)),  # noqa: DTZ001
        (
            "TIMESTAMP",
            datetime(2024, 7, 1, 2, tzinfo=ZoneInfo("Europe/Berlin")),
            datetime(2024, 7, 1, tzinfo=UTC),
        ),
        ("DECIMAL(5, 2)", Decimal("1.5"), Decimal("1.50")),
        ("DECIMAL(5, 2)", 7, Decimal("7.00")),
        ("INTERVAL", timedelta(hours=1), timedelta(hours=1)),
        ("ARRAY<BIGINT>", (1, None), [1, None]),
        ("MAP<VARCHAR, DOUBLE>", {"a": 1}, {"a": 1.0}),
    ],
)
def test_what_only_has_another_form_takes_no_detour(sql, value, held):
    inlet = Inlet("s", Schema.of(v=f"{sql} NOT NULL", w=sql), Wakeup())
    push, _ = make_push(inlet, None, None, {})
    push((value, None))
    push({"w": value, "v": value})
    assert exactly(inlet.items) == exactly([(held, None), (held, held)])


@dataclass
class Pair:
    v: int
    w: float


@given(st.tuples(odd, odd))
def test_rows_of_all_shapes_agree(row):
    schema = Schema.of(v="BIGINT", w="DOUBLE NOT NULL")
    for shape in (tuple, list, lambda each: Pair(*each), lambda each: {"w": each[1], "v": each[0]}):
        source, outcomes = source_of(schema), []
        for _ in range(2):  # the second time its class is known
            try:
                source.push(shape(row))
            except RowError as error:
                outcomes.append(str(error))
        items = inlet_of(source).items
        assert len(set(outcomes)) <= 1
        assert len(items) + len(outcomes) == 2
        assert exactly(items) == exactly(schema.check_rows([row] * 2) if items else [])


@pytest.mark.parametrize("row", [{}, {"v": 1}, {"w": 1.0, "x": 2}, {"w": 1.0, "v": 1, "x": 2}])
def test_dicts_with_other_keys_than_the_columns(row):
    source = source_of(Schema.of(v="BIGINT", w="DOUBLE"))
    if "x" in row:
        with pytest.raises(RowError, match="there is no column 'x'"):
            source.push(row)
    else:
        source.push(row)
        assert inlet_of(source).items == [(row.get("v"), row.get("w"))]


def test_a_limit_can_be_set_later():
    inlet, full = Inlet("s", Schema.of(v="BIGINT"), Wakeup(), capacity=2), []
    push, set_limit = make_push(inlet, full.append, full.append, {})
    for n in range(3):
        push((n,))
    assert full == [(2,)]
    set_limit(5)
    push((3,))
    assert inlet.items == [(0,), (1,), (3,)]
    set_limit(-1)
    push((4,))
    assert full == [(2,), (4,)]


class Listening:
    """A wakeup that notes which rows are there when it is called."""

    def __init__(self):
        self.asleep, self.inlet, self.there = False, None, []

    def wake(self):
        self.there.append(list(self.inlet.items))


def test_a_sleeper_is_woken_after_the_row_is_there():
    wakeup = Listening()
    wakeup.inlet = Inlet("s", Schema.of(v="BIGINT"), wakeup)
    push, _ = make_push(wakeup.inlet, None, None, {})
    push((1,))
    assert wakeup.there == []
    wakeup.asleep = True
    push((2,))
    assert wakeup.there == [[(1,), (2,)]]


def test_columns_may_have_any_name():
    taken = ["row", "items", "append", "wakeup", "limit", "slow", "full"]
    names = [*taken, "class", "v0", "a b", 'q"']
    schema = Schema.of(dict.fromkeys(names, "BIGINT"))
    source = source_of(schema)
    source.push(tuple(range(len(names))))
    assert inlet_of(source).items == [tuple(range(len(names)))]


def test_there_may_be_very_many_columns():
    schema = Schema.of({f"c{n}": "BIGINT NOT NULL" for n in range(300)})
    source = source_of(schema)
    source.push(tuple(range(300)))
    with pytest.raises(RowError) as caught:
        source.push((*range(299), None))
    assert caught.value.column == "c299"
    assert len(inlet_of(source).items) == 1
