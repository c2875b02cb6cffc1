"""Schemas: their making, their evolution, and the two doors for rows and for Arrow data."""

import copy
import pickle
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import InvalidNameError, RowError, SchemaError, SchemaMismatchError
from millstream.model.schema import Column, Schema
from millstream.model.types import decimal_type, parse_type, type_from_arrow

from .strategies import filled, schemas

TRADES = Schema.of(
    key=("symbol",), symbol="VARCHAR NOT NULL", price="DOUBLE", qty="bigint", ts="TIMESTAMP"
)
NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)


# --- Making ---------------------------------------------------------------------------------------


def test_a_schema_of_text():
    assert TRADES.names == ("symbol", "price", "qty", "ts")
    assert TRADES.key == ("symbol",)
    assert TRADES.ddl == "symbol VARCHAR NOT NULL, price DOUBLE, qty BIGINT, ts TIMESTAMP"
    assert [column.nullable for column in TRADES.columns] == [False, True, True, True]
    assert Schema.of(a="INT  not  null ", b="INT NULL").ddl == "a INTEGER NOT NULL, b INTEGER"


@settings(max_examples=30)
@given(schemas())
def test_arrow_keeps_the_whole_schema(schema):
    assert Schema.from_arrow(schema.arrow) == schema
    assert Schema.from_arrow(pa.ipc.read_schema(schema.arrow.serialize())) == schema


@settings(max_examples=30)
@given(schemas())
def test_schemas_are_values(schema):
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert copy.deepcopy(schema) == schema
    assert hash(Schema(list(schema.columns), schema.key)) == hash(schema)


def test_names_are_quoted_in_ddl():
    columns = (Column("unit price", parse_type("INT")), Column("order", parse_type("INT")))
    assert Schema(columns).ddl == '"unit price" INTEGER, "order" INTEGER'


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Schema(()), "must have a column"),
        (lambda: Schema.of(a="INT", A="INT"), "'a' and 'A'"),
        (lambda: Schema([Column("a", parse_type("INT"))] * 2), "two columns are named 'a'"),
        (lambda: Schema.of(key=("b",), a="INT"), "'b' is no column"),
        (lambda: Schema.of(key=("a", "a"), a="INT"), "twice"),
        (lambda: Schema.of(key=("a",), a="ARRAY<INT>"), "cannot be in the key"),
        (lambda: Schema((Column("a", parse_type("INT")),), "a"), "must be a tuple"),
        (lambda: Schema.of(a="FOO"), "unknown type 'FOO'"),
        (lambda: Schema.of(a="NOT NULL"), "unknown type"),
        (lambda: Column("a", "INT"), "must be a SqlType"),
        (lambda: Schema.from_arrow(pa.schema([("t", pa.time32("s"))])), "column 't'"),
    ],
)
def test_schemas_that_cannot_be(make, reason):
    with pytest.raises(SchemaError, match=reason) as caught:
        make()
    assert caught.value.hint


@pytest.mark.parametrize("name", ["_lsn", "_Op", "", "a\nb"])
def test_columns_that_cannot_be_named(name):
    with pytest.raises(InvalidNameError):
        Schema.of(**{name: "INT"})


# --- Evolution ------------------------------------------------------------------------------------


def test_a_schema_grows_by_nullable_columns():
    grown = TRADES.with_column(Column("venue", parse_type("VARCHAR")))
    assert grown.names == (*TRADES.names, "venue")
    assert grown.key == TRADES.key
    assert grown.is_evolution_of(TRADES)
    assert TRADES.is_evolution_of(TRADES)
    assert not TRADES.is_evolution_of(grown)


def test_other_changes_are_no_evolution():
    old = Schema.of(key=("a",), a="INT", b="INT")
    assert not Schema.of(a="INT", b="INT", c="INT").is_evolution_of(old)
    assert not Schema.of(key=("a",), a="INT", b="BIGINT", c="INT").is_evolution_of(old)
    assert not Schema.of(key=("a",), a="INT", b="INT NOT NULL").is_evolution_of(old)
    assert not Schema.of(key=("a",), a="INT", b="INT", c="INT NOT NULL").is_evolution_of(old)
    assert not Schema.of(key=("a",), a="INT", c="INT", b="INT").is_evolution_of(old)


def test_columns_that_cannot_be_added():
    with pytest.raises(SchemaError, match="NOT NULL"):
        TRADES.with_column(Column("venue", parse_type("VARCHAR"), nullable=False))
    with pytest.raises(SchemaError, match="differ only in case"):
        TRADES.with_column(Column("Price", parse_type("DOUBLE")))


@settings(max_examples=30)
@given(filled())
def test_an_old_batch_is_upgraded_with_nulls(case):
    old, rows = case
    new = old.with_column(Column("a new one", parse_type("MAP<VARCHAR, TIMESTAMP>")))
    upgraded = new.upgrade(old.rows_to_arrow(rows))
    assert upgraded.schema.equals(new.arrow)
    assert new.arrow_to_rows(upgraded) == [(*row, None) for row in rows]
    assert new.upgrade(upgraded) is upgraded


def test_a_stranger_is_not_upgraded():
    for data in ({"price": [1.0]}, {"symbol": ["A"], "qty": [1]}, {"symbol": ["A"], "x": [1]}):
        with pytest.raises(SchemaMismatchError, match="not an older version"):
            TRADES.upgrade(pa.RecordBatch.from_pydict(data))
    with pytest.raises(SchemaMismatchError, match="not an older version"):
        Schema.of(a="INT", b="INT NOT NULL").upgrade(Schema.of(a="INT").rows_to_arrow([(1,)]))


# --- Rows -----------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(filled())
def test_canonical_rows_pass_unchanged(case):
    schema, rows = case
    checked = schema.check_rows(rows)
    assert repr(checked) == repr(rows)
    assert checked is not rows


def test_no_rows_are_an_empty_batch():
    assert TRADES.check_rows([]) == []
    batch = TRADES.rows_to_arrow([])
    assert batch.num_rows == 0
    assert batch.schema.equals(TRADES.arrow)
    assert TRADES.arrow_to_rows(batch) == []


def test_many_columns():
    schema = Schema.of(**{f"c{n}": "BIGINT" for n in range(1000)})
    rows = [tuple(range(n, n + 1000)) for n in range(20)]
    assert schema.arrow_to_rows(schema.rows_to_arrow(schema.check_rows(rows))) == rows


@pytest.mark.parametrize("count", [1, 100])
def test_rows_are_made_canonical(count):
    row = ["AAPL", 187, 100, NOON.replace(tzinfo=None)]
    for given_row in (row, tuple(row)):
        assert repr(TRADES.check_rows([given_row] * count)) == repr(
            [("AAPL", 187.0, 100, NOON)] * count
        )


@pytest.mark.parametrize("before", [0, 100])
@pytest.mark.parametrize(
    ("row", "column", "reason"),
    [
        (("A", "x", 1, NOON), "price", "expected DOUBLE, got str 'x'"),
        (("A", 1.0, 1.5, NOON), "qty", "expected BIGINT, got float 1.5"),
        (("A", 1.0, 1, 5), "ts", "expected TIMESTAMP, got int 5"),
        ((None, 1.0, 1, NOON), "symbol", "expected VARCHAR NOT NULL, got NULL"),
        (("A", 1.0, 1), None, "expected 4 values, got 3"),
        (("A", 1.0, 1, NOON, 5), None, "expected 4 values, got 5"),
        ("ABCD", None, "expected 4 values, got str"),
        (None, None, "expected 4 values, got NoneType"),
    ],
)
def test_a_bad_row_is_named(before, row, column, reason):
    good = ("A", 1.0, 1, NOON)
    with pytest.raises(RowError, match=reason) as caught:
        TRADES.check_rows([good] * before + [row, (1, 2), good])
    assert (caught.value.row, caught.value.column) == (before, column)
    assert f"row {before}" in caught.value.message
    assert caught.value.hint


def test_the_first_bad_row_is_named_even_if_its_column_is_later():
    rows = [("A", 1.0, 1, NOON)] * 10 + [("A", 1.0, "x", NOON), (5, 1.0, 1, NOON)]
    with pytest.raises(RowError) as caught:
        TRADES.check_rows(rows)
    assert (caught.value.row, caught.value.column) == (10, "qty")


# --- Arrow data -----------------------------------------------------------------------------------


@settings(max_examples=30)
@given(filled())
def test_data_that_conforms_is_not_copied(case):
    schema, rows = case
    batch = schema.rows_to_arrow(rows)
    assert schema.conform(batch) is batch


@settings(max_examples=30)
@given(filled(), st.randoms())
def test_columns_are_found_by_name(case, random):
    schema, rows = case
    order = list(range(len(schema.columns)))
    random.shuffle(order)
    batch = schema.rows_to_arrow(rows)
    shuffled = pa.RecordBatch.from_arrays(
        [batch.column(place) for place in order], [schema.names[place] for place in order]
    )
    assert schema.conform(shuffled) == batch


def test_not_null_holds_for_arrow_too():
    rows = [("A", None, None, None), (None, None, None, None)]
    for data in (
        pa.RecordBatch.from_pydict({"symbol": ["A", None]}),
        TRADES.rows_to_arrow(rows),  # pyarrow marks the column NOT NULL and does not look
    ):
        with pytest.raises(RowError, match="row 1, column 'symbol'") as caught:
            TRADES.conform(data)
        assert (caught.value.row, caught.value.column) == (1, "symbol")


def test_the_type_of_arrow_data_can_be_asked_first():
    batch = pa.RecordBatch.from_pydict({"n": pa.array([1], pa.uint64())})
    schema = Schema.from_arrow(batch.schema)
    assert schema.columns[0].type == type_from_arrow(pa.uint64()) == decimal_type(20, 0)
    assert schema.arrow_to_rows(batch) == [(Decimal(1),)]


# --- Many rows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 63, 64, 256, 257, 1000])
@pytest.mark.parametrize("null_at", [None, 0, -1])
def test_many_rows_to_arrow_and_back(count, null_at):
    rows = [(f"s{n}", n / 4, 2**63 - 1 - n, NOON + timedelta(microseconds=n)) for n in range(count)]
    if null_at is not None:
        rows[null_at] = ("only this", None, None, None)
    batch = TRADES.rows_to_arrow(TRADES.check_rows(rows))
    assert batch.schema.equals(TRADES.arrow)
    assert TRADES.arrow_to_rows(batch) == rows
    assert TRADES.arrow_to_rows(TRADES.conform(batch)) == rows


@pytest.mark.parametrize("place", [0, 300, 599])
def test_a_short_row_among_many_is_found(place):
    rows = [("a", 1.0, 1, NOON)] * 600
    rows[place] = ("a", 1.0, 1)
    with pytest.raises(RowError, match=f"row {place}: expected 4 values, got 3"):
        TRADES.check_rows(rows)
