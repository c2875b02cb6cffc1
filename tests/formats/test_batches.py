"""Batches: rows and columns in whatever form they come."""

import subprocess
import sys
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from millstream.errors import RowError, SchemaMismatchError
from millstream.formats.batches import as_batches
from millstream.model.batch import ChangeBatch
from millstream.model.schema import Schema

TRADES = Schema.of(symbol="VARCHAR NOT NULL", price="DOUBLE", size="BIGINT")
ROW = ("AAPL", 187.5, 10)


@dataclass
class Trade:
    symbol: str
    price: float | None
    size: int


class NamedTrade(NamedTuple):
    symbol: str
    price: float | None
    size: int


COLUMNS = {"symbol": ["A", "B"], "price": [1.0, 2.0], "size": [1, 2]}
ROWS = [("A", 1.0, 1), ("B", 2.0, 2)]


def rows_of(data, schema=TRADES):
    return [row for batch in as_batches(data, schema) for row in batch.rows]


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


@pytest.mark.parametrize("value", [Trade(*ROW), NamedTrade(*ROW), dict(zip(TRADES.names, ROW))])  # noqa: B905
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


FEW_ROWS_OF_A_LOG = """
import sys
from millstream.formats.batches import batches_of_tuples
from millstream.model.schema import Schema

batches_of_tuples([(1,)] * {count}, Schema.of(n="BIGINT"))
print("pandas" in sys.modules)
"""


@pytest.mark.parametrize(("count", "imported"), [(32, "False"), (33, "True")])
def test_a_few_rows_do_not_wait_for_pandas(count, imported):
    """Whose import takes longer than all else that a first statement does."""
    program = FEW_ROWS_OF_A_LOG.format(count=count)
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == [imported]
