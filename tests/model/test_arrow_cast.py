"""From Arrow to Arrow: columns are cast where nothing is lost, and refused otherwise."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import SchemaMismatchError
from millstream.model.schema import Column, Schema

from .strategies import small_types, values_of

TRADES = Schema.of(
    key=("symbol",), symbol="VARCHAR NOT NULL", price="DOUBLE", qty="bigint", ts="TIMESTAMP"
)
NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)
DAY = date(2024, 6, 1)


def dictionary(values, arrow):
    """The second value, NULL, the first one: as polars' Categorical and Enum are."""
    places = pa.array([1, None, 0], pa.uint32())
    return pa.DictionaryArray.from_arrays(places, pa.array(values, arrow))


WIDEST = {
    pa.string(): pa.large_string(),
    pa.binary(): pa.large_binary(),
    pa.int8(): pa.int64(),
    pa.int16(): pa.int64(),
    pa.int32(): pa.int64(),
    pa.float32(): pa.float64(),
}


def widened(arrow):
    """The same type in the widest makes that Arrow has, nested ones too."""
    kinds = pa.types
    if arrow in WIDEST:
        return WIDEST[arrow]
    if kinds.is_decimal(arrow):
        return pa.decimal256(arrow.precision + 2, arrow.scale + 1)
    if kinds.is_list(arrow):
        return pa.large_list(widened(arrow.value_type))
    if kinds.is_map(arrow):
        return pa.map_(widened(arrow.key_type), widened(arrow.item_type), keys_sorted=True)
    if kinds.is_struct(arrow):
        return pa.struct(
            [pa.field(each.name, widened(each.type)) for each in reversed(list(arrow))]
        )
    return arrow


@given(small_types.flatmap(lambda t: st.tuples(st.just(t), st.lists(values_of(t), max_size=6))))
def test_other_makes_of_the_same_values_are_taken(case):
    each, values = case
    schema = Schema((Column("x", each),))
    foreign = pa.array(values, widened(each.arrow))
    batch = pa.RecordBatch.from_arrays([foreign], ["x"])
    conformed = schema.conform(batch)
    conformed.validate(full=True)
    assert conformed.schema.equals(schema.arrow)
    assert schema.arrow_to_rows(conformed) == [(value,) for value in values]
    assert schema.arrow_to_rows(schema.conform(batch.slice(1))) == [(v,) for v in values[1:]]


@pytest.mark.parametrize(
    ("array", "sql", "values"),
    [
        (pa.array(["a", None, "a"]).dictionary_encode(), "VARCHAR", ["a", None, "a"]),
        (pa.array(["a"], pa.string_view()), "VARCHAR", ["a"]),
        (dictionary(["a", "b"], pa.string_view()), "VARCHAR", ["b", None, "a"]),
        (dictionary([b"a", b"b"], pa.binary_view()), "BINARY", [b"b", None, b"a"]),
        (dictionary(["a", "b"], pa.large_string()).slice(1), "VARCHAR", [None, "a"]),
        (pa.RunEndEncodedArray.from_arrays([2, 3], ["a", None]), "VARCHAR", ["a", "a", None]),
        (pa.array([DAY, None], pa.date64()), "DATE", [DAY, None]),
        (pa.array([[1], None, []], pa.list_view(pa.int8())), "ARRAY<INT>", [[1], None, []]),
        (pa.array([["a"]], pa.large_list_view(pa.string())), "ARRAY<VARCHAR>", [["a"]]),
        (pa.array([b"abc"], pa.binary(3)), "BINARY", [b"abc"]),
        (pa.nulls(2), "STRUCT<a INT>", [None, None]),
        (pa.array([[], None]), "ARRAY<TIMESTAMP>", [[], None]),
        (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), "ARRAY<BIGINT>", [[1, 2], None]),
        (pa.array([2**64 - 1], pa.uint64()), "DECIMAL(20, 0)", [Decimal(2**64 - 1)]),
        (pa.array([7], pa.uint64()), "BIGINT", [7]),
        (pa.array([127, None]), "TINYINT", [127, None]),
        (pa.array([12, None]), "DECIMAL(4, 2)", [Decimal("12.00"), None]),
        (pa.array([2**53, 2**60]), "DOUBLE", [float(2**53), float(2**60)]),
        (pa.array([0.5, None]), "REAL", [0.5, None]),
        (pa.array([float("inf")]), "REAL", [float("inf")]),
        (pa.array([0.5], pa.float16()), "DOUBLE", [0.5]),
        (pa.array([NOON.replace(tzinfo=None)]), "TIMESTAMP", [NOON]),
        (pa.array([NOON], pa.timestamp("ns", "Asia/Tokyo")), "TIMESTAMP", [NOON]),
        (pa.array([5], pa.duration("s")), "INTERVAL", [timedelta(seconds=5)]),
        (pa.array([Decimal("1.50")]), "DECIMAL(2, 1)", [Decimal("1.5")]),
        (pa.array([{"b": 1}, None]), "STRUCT<a DATE, b INT>", [{"a": None, "b": 1}, None]),
    ],
)
def test_lossless_casts(array, sql, values):
    schema = Schema.of(x=sql)
    conformed = schema.conform(pa.RecordBatch.from_arrays([array], ["x"]))
    assert schema.arrow_to_rows(conformed) == [(value,) for value in values]


def test_nan_is_no_loss():
    batch = pa.RecordBatch.from_pydict({"x": [float("nan"), 1.0]})
    assert Schema.of(x="REAL").conform(batch).column(0).is_nan().to_pylist() == [True, False]


@pytest.mark.parametrize(
    ("array", "sql"),
    [
        (pa.array([128]), "TINYINT"),
        (pa.array([2**63], pa.uint64()), "BIGINT"),
        (pa.array([1.0]), "BIGINT"),
        (pa.array([1.5]), "BIGINT"),
        (pa.array([True]), "BIGINT"),
        (pa.array([1]), "BOOLEAN"),
        (pa.array(["1"]), "BIGINT"),
        (pa.array([1]), "VARCHAR"),
        (pa.array(["2024-01-01"]), "DATE"),
        (pa.array([b"a"]), "VARCHAR"),
        (pa.array(["a"]), "BINARY"),
        (pa.array([0.1]), "REAL"),
        (pa.array([1e300]), "REAL"),
        (pa.array([2**53 + 1]), "DOUBLE"),
        (pa.array([2**63 - 1]), "DOUBLE"),
        (pa.array([2**24 + 1]), "REAL"),
        (pa.array([Decimal("0.1")]), "DOUBLE"),
        (pa.array([0.5]), "DECIMAL(5, 2)"),
        (pa.array([Decimal("1.25")]), "DECIMAL(5, 1)"),
        (pa.array([1000]), "DECIMAL(5, 2)"),
        (pa.array([1], pa.timestamp("ns")), "TIMESTAMP"),
        (pa.array([86400001], pa.int64()).view(pa.date64()), "DATE"),
        (pa.array([2**62], pa.timestamp("s")), "TIMESTAMP"),
        (pa.array([1]), "TIMESTAMP"),
        (pa.array([date(2024, 1, 1)]), "TIMESTAMP"),
        (pa.array([NOON]), "DATE"),
        (pa.array([1], pa.duration("ns")), "INTERVAL"),
        (pa.array([1]), "INTERVAL"),
        (pa.array([5], pa.time64("us")), "INTERVAL"),
        (pa.array([[0.1]]), "ARRAY<REAL>"),
        (pa.array([[128]]), "ARRAY<TINYINT>"),
        (pa.array([[("a", 0.1)]], pa.map_(pa.string(), pa.float64())), "MAP<VARCHAR, REAL>"),
        (pa.array([{"a": 1, "c": 2}]), "STRUCT<a INT, b INT>"),
        (pa.array([{"a": 1}]), "MAP<VARCHAR, BIGINT>"),
        (pa.array([[1]]), "BIGINT"),
    ],
)
def test_lossy_casts_are_refused(array, sql):
    batch = pa.RecordBatch.from_arrays([pa.nulls(1, pa.int32()), array], ["ok", "bad"])
    with pytest.raises(SchemaMismatchError, match="column 'bad'") as caught:
        Schema.of(ok="INT", bad=sql).conform(batch)
    assert caught.value.hint


@given(small_types, small_types, st.data())
def test_conform_keeps_every_value_or_refuses(source, target, data):
    values = data.draw(st.lists(values_of(source), min_size=1, max_size=3))
    batch = Schema((Column("x", source),)).rows_to_arrow([(value,) for value in values])
    schema = Schema((Column("x", target),))
    try:
        conformed = schema.conform(batch)
    except SchemaMismatchError:
        return
    back = [value for (value,) in schema.arrow_to_rows(conformed)]
    if source.kind not in {"STRUCT", "ARRAY", "MAP"}:  # a field that was missing is there now
        assert back == values


def test_unknown_columns_are_refused_with_a_guess():
    with pytest.raises(SchemaMismatchError, match="no column 'pric'") as caught:
        TRADES.conform(pa.RecordBatch.from_pydict({"symbol": ["A"], "pric": [1.0]}))
    assert "'price'" in caught.value.hint


def test_a_column_twice_is_refused():
    column = pa.array(["A"])
    with pytest.raises(SchemaMismatchError, match="twice"):
        TRADES.conform(pa.RecordBatch.from_arrays([column, column], ["symbol", "symbol"]))


def test_missing_columns_are_null_if_they_may():
    conformed = TRADES.conform(pa.RecordBatch.from_pydict({"symbol": ["A"]}))
    assert TRADES.arrow_to_rows(conformed) == [("A", None, None, None)]
    with pytest.raises(SchemaMismatchError, match="'symbol' is missing"):
        TRADES.conform(pa.RecordBatch.from_pydict({"price": [1.0]}))


def test_values_are_not_copied_when_only_the_schema_differs():
    batch = pa.RecordBatch.from_pydict({"symbol": ["A"], "price": [1.0]})
    conformed = TRADES.conform(batch)
    assert (
        conformed.column("price").buffers()[1].address == batch.column("price").buffers()[1].address
    )
