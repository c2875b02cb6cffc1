"""Rows: whatever users push, in the columns of a schema."""

from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, make_dataclass
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import RowError, SchemaError, SchemaMismatchError
from millstream.formats.batches import as_batches
from millstream.formats.rows import RowShape, check_record
from millstream.model.schema import Schema

TRADES = Schema.of(symbol="VARCHAR NOT NULL", price="DOUBLE", size="BIGINT")
ROW = ("AAPL", 187.5, 10)


@dataclass
class Trade:
    symbol: str
    price: float | None
    size: int


@dataclass
class Point:
    x: float
    y: float


@dataclass
class Path:
    name: str
    points: list[Point]


def tuple_class(name, fields):
    return namedtuple(name, fields)  # noqa: PYI024 - their types do not matter here


InOrder = tuple_class("InOrder", "symbol price size")
OtherOrder = tuple_class("OtherOrder", "size symbol price")
OtherNames = tuple_class("OtherNames", "ticker value amount")
Fewer = tuple_class("Fewer", "size symbol")
Mixed = tuple_class("Mixed", "price ticker amount")
HalfKnown = tuple_class("HalfKnown", "symbol value amount")


def rows_of(data, schema=TRADES):
    return [row for batch in as_batches(data, schema) for row in batch.rows]


# --- One row --------------------------------------------------------------------------------------

SHAPES = [
    ROW,
    list(ROW),
    {"size": 10, "symbol": "AAPL", "price": 187.5},
    OrderedDict(price=187.5, size=10, symbol="AAPL"),
    MappingProxyType({"price": 187.5, "size": 10, "symbol": "AAPL"}),
    InOrder(*ROW),
    OtherOrder(10, "AAPL", 187.5),
    OtherNames(*ROW),
    HalfKnown(*ROW),
    Trade(*ROW),
    ("AAPL", np.float64(187.5), np.int64(10)),
]


@pytest.mark.parametrize("value", SHAPES, ids=lambda value: type(value).__name__)
def test_every_shape_is_the_same_row(value):
    shape = RowShape(TRADES)
    assert shape.row(value) == ROW
    assert type(shape.row(value)) is tuple
    assert shape.rows([value] * 7) == [ROW] * 7
    assert rows_of([value] * 7) == [ROW] * 7
    assert rows_of(iter([value])) == [ROW]


def test_shapes_may_be_mixed():
    assert RowShape(TRADES, Trade).rows(SHAPES) == [ROW] * len(SHAPES)


def test_rows_are_canonical():
    when = Schema.of(at="TIMESTAMP", price="DECIMAL(10, 2)")
    row = RowShape(when).row({"at": datetime(2024, 1, 1), "price": 1})  # noqa: DTZ001
    assert row == (datetime(2024, 1, 1, tzinfo=UTC), Decimal("1.00"))
    assert str(row[1]) == "1.00"


def test_what_is_missing_is_null():
    shape = RowShape(TRADES)
    assert shape.row({"symbol": "A"}) == ("A", None, None)
    assert shape.row(Fewer(3, "A")) == ("A", None, 3)
    assert shape.row(make_dataclass("Less", ["symbol"])("A")) == ("A", None, None)
    assert shape.rows([{"symbol": "A"}, {"symbol": "B", "size": 1}]) == [
        ("A", None, None),
        ("B", None, 1),
    ]


def test_a_missing_key_is_not_made_up():
    value = defaultdict(lambda: 7, symbol="A")
    assert RowShape(TRADES).row(value) == ("A", None, None)
    assert RowShape(TRADES).rows([value, value])[0] == ("A", None, None)
    assert dict(value) == {"symbol": "A"}


def test_one_column_is_a_row_of_one():
    shape = RowShape(Schema.of(n="INT"))
    one = make_dataclass("One", ["n"])
    assert shape.rows([{"n": 1}, {"n": 2}]) == [(1,), (2,)]
    assert shape.rows([one(1), one(2)]) == [(1,), (2,)]


@pytest.mark.parametrize(
    ("value", "column", "hint"),
    [
        ({"symbl": "A"}, "symbl", "'symbol'"),
        ({"SYMBOL": "A"}, "SYMBOL", "'symbol'"),
        ({"symbol": "A", "xyz": 1}, "xyz", "symbol, price, size"),
        ({"symbol": "A", 5: 1}, "5", "symbol, price, size"),
        ({"symbol": "A", "price": 1.0, "sise": 1}, "sise", "'size'"),
        ({"symbol": "A", "price": "x"}, "price", "float"),
        ({"price": 1.0}, "symbol", "NOT NULL"),
        (make_dataclass("Odd", ["symbol", "prize"])("A", 1.0), "prize", "'price'"),
        (Mixed(1.0, "A", 3), "price", "(symbol, price, size)"),
        (("A", 1.0), None, "(symbol, price, size)"),
        ("AAPL", None, "dict"),
        (Trade, None, "dict"),
        (None, None, "dict"),
    ],
)
def test_what_does_not_fit_names_row_and_column(value, column, hint):
    shape = RowShape(TRADES)
    with pytest.raises(RowError, match="row 0") as caught:
        shape.row(value)
    assert (caught.value.row, caught.value.column) == (0, column)
    assert hint in caught.value.hint
    for rows in ([ROW, ROW, value], [{"symbol": "A"}] * 2 + [value], [value] * 2):
        place = 0 if rows[0] is value else 2
        with pytest.raises(RowError, match=f"row {place}") as caught:
            shape.rows(rows)
        assert (caught.value.row, caught.value.column) == (place, column)


@pytest.mark.parametrize("values", ["abc", b"abc", {"symbol": "A"}, 5, None])
def test_what_holds_no_rows(values):
    with pytest.raises(SchemaMismatchError, match="expected rows, got"):
        RowShape(TRADES).rows(values)


def test_what_was_pushed_is_not_changed_later():
    schema = Schema.of(tags="ARRAY<INT>", n="INT")
    tags, rows = [1], []
    rows.append((tags, 1))
    taken = RowShape(schema).rows(rows)
    tags.append(2)
    rows.clear()
    assert taken == [([1], 1)]


def test_dataclasses_inside_of_rows():
    schema = Schema.from_dataclass(Path)
    value = Path("p", [Point(1.0, 2.0)])
    expected = ("p", [{"x": 1.0, "y": 2.0}])
    shape = RowShape(schema, Path)
    assert shape.row(value) == shape.row(("p", [Point(1.0, 2.0)])) == expected
    assert shape.row({"name": "p", "points": [{"x": 1, "y": 2.0}]}) == expected
    assert shape.row(("p", [(1.0, 2.0)])) == expected
    assert rows_of({"name": ["p"], "points": [[Point(1.0, 2.0)]]}, schema) == [expected]
    with pytest.raises(RowError, match="expected 2 values"):
        shape.row(("p",))


@given(st.lists(st.tuples(st.text("ab"), st.none() | st.floats(), st.integers(-9, 9)), max_size=9))
def test_dicts_are_as_good_as_tuples(rows):
    dicts = [dict(zip(TRADES.names, row, strict=True)) for row in rows]
    shape = RowShape(TRADES)
    assert repr(shape.rows(dicts)) == repr(shape.rows(rows)) == repr(TRADES.check_rows(rows))


# --- Records --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hints", "ddl"),
    [
        ({"n": int}, {"n": "TINYINT NOT NULL"}),
        ({"n": int}, {"n": "BIGINT", "more": "DATE"}),
        ({"x": float | None}, {"x": "REAL"}),
        ({"d": Decimal}, {"d": "DECIMAL(5, 2)"}),
        ({"a": list[int]}, {"a": "ARRAY<SMALLINT>"}),
        ({"m": dict[str, float]}, {"m": "MAP<VARCHAR, REAL>"}),
        ({"p": Point}, {"p": "STRUCT<y REAL, x DOUBLE, z INT>"}),
    ],
)
def test_a_record_that_fits(hints, ddl):
    record = make_dataclass("Rec", hints.items())
    check_record(record, Schema.of(ddl))


@pytest.mark.parametrize(
    ("hints", "ddl", "message"),
    [
        ({"m": int}, {"n": "INT"}, "no column 'm'"),
        ({"n": int, "m": int}, {"n": "INT"}, "no column 'm'"),
        ({"n": str}, {"n": "INT"}, "field 'n' of Rec is VARCHAR, but the column is INTEGER"),
        ({"n": float}, {"n": "INT"}, "field 'n'"),
        ({"n": int}, {"n": "BOOLEAN"}, "field 'n'"),
        ({"n": bool}, {"n": "INT"}, "field 'n'"),
        ({"n": int | None}, {"n": "INT NOT NULL"}, "'n' of Rec may be None"),
        ({"n": int}, {"n": "INT", "m": "INT NOT NULL"}, "no field for the column 'm'"),
        ({"a": list[int]}, {"a": "ARRAY<VARCHAR>"}, "field 'a'"),
        ({"a": list[int]}, {"a": "INT"}, "field 'a'"),
        ({"p": Point}, {"p": "STRUCT<x DOUBLE>"}, "field 'p'"),
    ],
)
def test_a_record_that_does_not_fit(hints, ddl, message):
    record = make_dataclass("Rec", hints.items())
    with pytest.raises(SchemaMismatchError, match=message):
        RowShape(Schema.of(ddl), record)


def test_what_is_no_record():
    with pytest.raises(SchemaError, match="not a dataclass"):
        check_record(dict, TRADES)


@pytest.mark.parametrize(
    "rows",
    [
        [("A", 1.0, 1), ("B", 2.0, 2)],
        [("A", 1.0, 1), ("B", 2.0, 2), ("C", 3.0, 3)],
        [{"symbol": "A"}],
        [Trade("A", 1.0, 1)],
    ],
)
def test_many_rows_where_one_is_expected(rows):
    with pytest.raises(RowError) as caught:
        RowShape(TRADES).row(rows)
    assert "push_batch(rows)" in caught.value.hint


def test_a_frame_where_a_row_is_expected():
    with pytest.raises(RowError) as caught:
        RowShape(TRADES).row(pa.table({"symbol": ["A"]}))
    assert "push_arrow(data)" in caught.value.hint


def test_integers_that_pandas_has_made_floats():
    with pytest.raises(SchemaMismatchError) as caught:
        as_batches(pd.DataFrame({"symbol": ["A", "B"], "size": [1, None]}), TRADES)
    assert "frame.astype({'size': 'Int64'})" in caught.value.hint
    frame = pd.DataFrame({"symbol": ["A", "B"], "size": [1, None]}).astype({"size": "Int64"})
    (batch,) = as_batches(frame, TRADES)
    assert [row[2] for row in batch.rows] == [1, None]
