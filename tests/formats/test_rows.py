"""Rows and batches: whatever users push, in the columns of a schema."""

from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, make_dataclass
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import RowError, SchemaError, SchemaMismatchError
from millstream.formats.batches import as_batches
from millstream.formats.rows import RowShape, check_record
from millstream.model.batch import ChangeBatch
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


# --- Many rows, or columns ------------------------------------------------------------------------

COLUMNS = {"symbol": ["A", "B"], "price": [1.0, 2.0], "size": [1, 2]}
ROWS = [("A", 1.0, 1), ("B", 2.0, 2)]


class ArrayOnly:
    """Speaks the smaller half of Arrow's interface."""

    def __init__(self, batch):
        self.batch = batch

    def __arrow_c_array__(self, requested_schema=None):
        return self.batch.__arrow_c_array__(requested_schema)


def forms():
    table = pa.table(COLUMNS)
    yield "columns", COLUMNS
    yield "tuples", {name: tuple(values) for name, values in COLUMNS.items()}
    yield "range", COLUMNS | {"size": range(1, 3)}
    yield "numpy", {name: np.array(values) for name, values in COLUMNS.items()}
    yield "objects", {name: np.array(values, object) for name, values in COLUMNS.items()}
    yield "small", COLUMNS | {"size": np.array([1, 2], np.int8)}
    yield "arrow columns", {name: pa.array(values) for name, values in COLUMNS.items()}
    yield "chunked", {name: pa.chunked_array([values]) for name, values in COLUMNS.items()}
    yield "pandas columns", {name: pd.Series(values) for name, values in COLUMNS.items()}
    yield "polars columns", {name: pl.Series(values) for name, values in COLUMNS.items()}
    yield "table", table
    yield "other order", table.select(["size", "symbol", "price"])
    yield "record batch", table.to_batches()[0]
    yield "reader", table.to_reader()
    yield "struct array", table.to_struct_array().combine_chunks()
    yield "array only", ArrayOnly(table.to_batches()[0])
    yield "pandas", pd.DataFrame(COLUMNS)
    yield "indexed", pd.DataFrame(COLUMNS).set_index("symbol")
    yield "nameless index", pd.DataFrame(COLUMNS, index=[7, 3])
    yield "polars", pl.DataFrame(COLUMNS)
    yield "rows", ROWS
    yield "tuple of rows", tuple(ROWS)
    yield "generator", (row for row in ROWS)
    yield "dicts", pa.table(COLUMNS).to_pylist()
    yield "records", [Trade(*row) for row in ROWS]
    yield "batch", ChangeBatch.from_rows(TRADES, ROWS)


@pytest.mark.parametrize(("name", "data"), list(forms()))
def test_every_form_is_the_same_rows(name, data):
    batches = as_batches(data, TRADES)
    assert [batch.schema for batch in batches] == [TRADES]
    assert rows_of(batches[0].arrow) == ROWS
    assert batches[0].rows == ROWS
    batches[0].arrow.validate(full=True)


@pytest.mark.parametrize("value", [Trade(*ROW), InOrder(*ROW), dict(zip(TRADES.names, ROW))])  # noqa: B905
def test_one_row_alone(value):
    assert rows_of(value) == [ROW]


@pytest.mark.parametrize(
    "data",
    [
        *([], (), {}, iter(()), {"symbol": [], "price": []}, {"symbol": np.array([])}),
        *(pd.DataFrame(), pd.DataFrame(COLUMNS)[:0], pl.DataFrame(), pl.DataFrame(COLUMNS)[:0]),
        *(pa.table(COLUMNS)[:0], pa.table({}), pa.RecordBatch.from_pydict({})),
        ChangeBatch.from_rows(TRADES, []),
    ],
)
def test_nothing_is_no_batch(data):
    assert as_batches(data, TRADES) == []


def test_a_watermark_needs_no_rows():
    batch = ChangeBatch.from_rows(TRADES, [], watermark=5)
    (taken,) = as_batches(batch, TRADES)
    assert (len(taken), taken.watermark) == (0, 5)


def test_a_batch_of_another_schema():
    with pytest.raises(SchemaMismatchError, match="a batch with"):
        as_batches(ChangeBatch.from_rows(Schema.of(n="INT"), [(1,)]), TRADES)


def test_a_dict_of_lists_is_a_row_where_it_can_be_one():
    tags = Schema.of(tags="ARRAY<VARCHAR>", n="INT")
    assert rows_of({"tags": ["a", "b"]}, tags) == [(["a", "b"], None)]
    assert rows_of({"tags": ["a"], "n": 1}, tags) == [(["a"], 1)]
    assert rows_of({"tags": [["a"], None], "n": [1, 2]}, tags) == [(["a"], 1), (None, 2)]
    assert rows_of({"tags": pa.array([["a"]])}, tags) == [(["a"], None)]
    assert rows_of({"tags": pl.Series([["a"]])}, tags) == [(["a"], None)]
    point = Schema.of(p="STRUCT<x DOUBLE, y DOUBLE>")
    assert rows_of({"p": (1, 2)}, point) == [({"x": 1.0, "y": 2.0},)]
    assert rows_of({"p": [(1, 2)]}, point) == [({"x": 1.0, "y": 2.0},)]
    matrix = Schema.of(v="ARRAY<DOUBLE>")
    assert rows_of({"v": np.array([[1.0, 2.0]])}, matrix) == [([1.0, 2.0],)]
    assert rows_of({"n": np.int64(1)}, tags) == [(None, 1)]


def test_missing_columns_are_null():
    for data in ({"symbol": ["A"]}, pa.table({"symbol": ["A"]}), pl.DataFrame({"symbol": ["A"]})):
        assert rows_of(data) == [("A", None, None)]


def test_missing_values_of_frames_are_null():
    frame = pd.DataFrame({"symbol": ["A", "B"], "price": [1.0, None]})
    assert rows_of(frame) == [("A", 1.0, None), ("B", None, None)]
    assert rows_of({"symbol": ["A"], "price": pd.Series([None], dtype="Float64")})[0][1] is None
    assert rows_of(pl.DataFrame({"symbol": ["A"], "price": [None]})) == [("A", None, None)]


@pytest.mark.parametrize("make", [dict, pa.table, pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"price": [1.0]}, "'symbol'.* NOT NULL"),
        ({"symbol": ["A"], "prize": [1.0]}, "no column 'prize'"),
        ({"symbol": ["A"], "size": [1.5]}, "column 'size'"),
        ({"symbol": ["A"], "size": ["1"]}, "column 'size'"),
        ({"symbol": [1]}, "column 'symbol'"),
        ({"symbol": ["A", None]}, "row 1, column 'symbol'"),
    ],
)
def test_columns_that_do_not_fit(make, columns, message):
    with pytest.raises(SchemaMismatchError, match=message):
        as_batches(make(columns), TRADES)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"symbol": ["A", "B"], "size": [1]}, "symbol 2, size 1"),
        ({"symbol": ["A"], "price": np.array([[1.0]])}, "column 'price'"),
        ({"symbol": ["A"], "price": np.array([1j])}, "column 'price': a ndarray"),
        ({"symbol": ["A", 1]}, "row 1, column 'symbol'"),
        ({"symbol": "A", "price": [1.0]}, "row 0, column 'price'"),
        (pd.DataFrame(COLUMNS).rename_axis("when"), None),
        (pd.DataFrame(COLUMNS, index=pd.Index([1, 2], name="when")), "no column 'when'"),
        (
            pd.DataFrame({"symbol": ["A", 5]}, dtype=object),
            "cannot read the columns of this DataFrame",
        ),
        (pd.Series([1]), "cannot read the columns of this Series"),
        (pa.array([1]), "cannot read the columns of this Int64Array"),
        (("A", 1.0, 1), "row 0: expected a tuple, dict or dataclass, got str"),
        ("symbol,price", "got str"),
        (5, "got int"),
        (Trade, "got type"),
    ],
)
def test_data_that_does_not_fit(data, message):
    if message is None:  # a name on an index that only counts does not make it a column
        assert rows_of(data) == ROWS
        return
    with pytest.raises(SchemaMismatchError, match=message):
        as_batches(data, TRADES)


def test_a_row_is_counted_from_the_first_batch():
    parts = [pa.record_batch({"symbol": ["A", "B"]}), pa.record_batch({"symbol": ["C", None]})]
    with pytest.raises(RowError, match="row 3, column 'symbol'") as caught:
        as_batches(pa.Table.from_batches(parts), TRADES)
    assert caught.value.row == 3


def test_batches_come_as_they_are():
    parts = [pa.record_batch({"symbol": ["A"]}), pa.record_batch({"symbol": ["B"]})]
    assert list(map(len, as_batches(pa.Table.from_batches(parts), TRADES))) == [1, 1]


def test_an_iterator_that_fails_gives_nothing():
    def rows():
        yield ROW
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        as_batches(rows(), TRADES)


# --- What was pushed stays ------------------------------------------------------------------------

NUMBERS = Schema.of(x="DOUBLE", n="BIGINT")


def lenders():
    x, n = np.array([1.0, 2.0]), np.array([1, 2])
    frame = pd.DataFrame({"x": x, "n": n}, copy=False)
    yield "columns", {"x": x, "n": n}, x
    yield "series", {"x": frame["x"], "n": [1, 2]}, x
    yield "frame", frame, x
    yield "table of a frame", pa.Table.from_pandas(frame), x
    yield "batch of a frame", pa.RecordBatch.from_pandas(frame), x
    sliced = pd.DataFrame({"x": x, "n": n}, copy=False)[:2]
    yield "part of a frame", sliced, x


@pytest.mark.parametrize(("name", "data", "memory"), list(lenders()))
def test_memory_of_others_is_copied(name, data, memory):
    memory[0] = 1.0
    (batch,) = as_batches(data, NUMBERS)
    memory[0] = 99.0
    assert batch.rows[0] == (1.0, 1)


def test_a_frame_may_be_changed_after_the_push():
    frame = pd.DataFrame({"x": [1.0, 2.0], "n": [1, 2]})
    (batch,) = as_batches(frame, NUMBERS)
    frame.loc[0, "x"] = 99.0
    frame.loc[1, "n"] = 99
    assert batch.rows == [(1.0, 1), (2.0, 2)]
    frame = pl.DataFrame({"x": [1.0, 2.0], "n": [1, 2]})
    (batch,) = as_batches(frame, NUMBERS)
    frame[0, "x"] = 99.0
    assert batch.rows == [(1.0, 1), (2.0, 2)]


def test_memory_that_cannot_change_is_not_copied():
    batch = NUMBERS.rows_to_arrow([(1.0, 1)])
    (pushed,) = as_batches(batch, NUMBERS)
    assert pushed.arrow.column(0).buffers()[1].address == batch.column(0).buffers()[1].address
