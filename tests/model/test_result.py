"""Results: the rows of a query, in whatever form they are wanted."""

import importlib
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from pyarrow import parquet

from millstream.errors import (
    InvalidOptionError,
    MissingExtraError,
    RowError,
    SchemaMismatchError,
)
from millstream.model.result import Result
from millstream.model.schema import Schema

from .strategies import filled

TRADES = Schema.of(symbol="VARCHAR NOT NULL", price="DOUBLE", size="BIGINT", key=("symbol",))
ROWS = [("A", 1.5, 1), ("B", None, None), ("C", 3.0, 2**60 + 1)]


def of_batches(rows=ROWS, schema=TRADES):
    """A result of two batches, with an empty one between them."""
    parts = [rows[:1], [], rows[1:]]
    return Result(schema, [schema.rows_to_arrow(part) for part in parts])


def of_rows(rows=ROWS, schema=TRADES):
    return Result.of_rows(schema, rows)


@pytest.fixture(params=[of_batches, of_rows])
def result(request):
    return request.param()


def test_what_it_says_of_itself(result):
    assert result.schema is TRADES
    assert result.columns == ("symbol", "price", "size")
    assert (result.lsn, result.rowcount, len(result), bool(result)) == (0, 3, 3, True)


def test_it_can_be_iterated_twice(result):
    assert list(result) == list(result) == ROWS


def test_rows_are_fetched_once(result):
    assert result.fetchone() == ROWS[0]
    assert list(result) == ROWS
    assert result.fetchmany(0) == []
    assert result.fetchmany() == ROWS[1:2]
    assert result.fetchmany(9) == ROWS[2:]
    assert (result.fetchone(), result.fetchmany(2), result.fetchall()) == (None, [], [])
    assert len(result) == 3


def test_all_rows_are_fetched(result):
    assert result.fetchall() == ROWS
    assert result.fetchall() == []


def test_a_size_that_cannot_be(result):
    with pytest.raises(InvalidOptionError, match="-1 rows"):
        result.fetchmany(-1)


def test_as_arrow(result):
    table = result.to_arrow()
    assert table.schema.equals(TRADES.arrow, check_metadata=True)
    assert [tuple(row.values()) for row in table.to_pylist()] == ROWS
    assert pa.table(result) == table
    assert list(result) == ROWS


def test_as_dicts(result):
    assert result.to_pylist()[0] == {"symbol": "A", "price": 1.5, "size": 1}
    assert len(result.to_pylist()) == 3


def test_as_frames(result):
    frame = result.to_pandas()
    assert list(frame.columns) == list(TRADES.names)
    assert frame["size"].dtype == "Int64"
    assert frame["size"][2] == 2**60 + 1
    assert frame["size"][1] is pd.NA
    assert math.isnan(frame["price"][1])
    assert result.to_polars().rows() == ROWS
    assert pl.DataFrame(result).rows() == ROWS


def test_a_frame_may_be_changed(result):
    frame, other = result.to_pandas(), result.to_polars()
    frame.loc[0, "price"] = 99.0
    other[0, "price"] = 99.0
    assert list(result) == ROWS


def test_integers_without_null_are_numpys():
    result = Result.of_rows(Schema.of(n="INT", m="TINYINT"), [(1, None)])
    assert list(map(str, result.to_pandas().dtypes)) == ["int32", "Int8"]


def test_the_short_names():
    result = of_rows(ROWS)
    assert result.arrow() == result.to_arrow()
    assert result.df().equals(result.to_pandas())
    assert result.pl().equals(result.to_polars())


def test_parquet(tmp_path):
    result = of_rows(ROWS)
    for path in (tmp_path / "a.parquet", str(tmp_path / "b.parquet")):
        result.to_parquet(path)
        assert parquet.read_table(path) == result.to_arrow()
    with pytest.raises(InvalidOptionError):
        result.to_parquet(5)


@pytest.mark.parametrize("name", ["pandas", "polars"])
@pytest.mark.parametrize("rows", [[], ROWS])
def test_a_package_that_is_missing(monkeypatch, name, rows):
    def missing(asked):
        raise ModuleNotFoundError(asked)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(MissingExtraError, match=f"{name} is not installed") as caught:
        getattr(of_rows(rows), f"to_{name}")()
    assert caught.value.hint == f"pip install 'millstream[{name}]'"


@pytest.mark.parametrize("empty", [of_rows([]), Result(TRADES, []), of_batches([])])
def test_no_rows(empty):
    assert not empty
    assert (len(empty), empty.rowcount, list(empty), empty.fetchone()) == (0, 0, [], None)
    assert empty.to_arrow().schema.equals(TRADES.arrow)
    assert len(empty.to_pandas()) == len(empty.to_polars()) == empty.to_arrow().num_rows == 0
    assert repr(empty).endswith("(no rows)")
    assert "(no rows)" in empty._repr_html_()


def test_a_statement_that_changed_rows():
    result = Result.of_status("INSERT 3", lsn=7, rowcount=3)
    assert (result.lsn, result.rowcount, len(result), result.fetchall()) == (7, 3, 0, [])
    assert (repr(result), result.status) == ("INSERT 3", "INSERT 3")
    assert result._repr_html_() == "<p>INSERT 3</p>"
    assert (of_rows(ROWS).status, of_rows(ROWS).rowcount) == ("", 3)


def test_texts_that_are_shown_entirely():
    long = "x" * 100
    schema = Schema.of(name="VARCHAR", sql="VARCHAR")
    result = Result.of_rows(schema, [("a", f"{long}\n\tb"), ("c", "")] * 20, show_all=True)
    lines = repr(result).splitlines()
    assert lines[2:5] == [f"a     {long}", "      \\tb", "c"]
    assert len(lines) == 2 + 3 * 20
    assert f"<td>{long}<br>\\tb</td>" in result._repr_html_()


def test_what_does_not_fit_the_schema():
    with pytest.raises(RowError, match="row 0"):
        Result.of_rows(TRADES, [("A", "x", 1)])
    with pytest.raises(SchemaMismatchError, match="no column 'other'"):
        Result(TRADES, [pa.record_batch({"other": [1]})])


# --- For people -----------------------------------------------------------------------------------


def test_the_table(result):
    assert repr(result).splitlines() == [
        "symbol  price                 size",
        "------  -----  -------------------",
        "A         1.5                    1",
        "B        NULL                 NULL",
        "C         3.0  1152921504606846977",
    ]


def test_the_table_shows_every_type():
    schema = Schema.of(
        {
            "ok": "BOOLEAN",
            "d": "DECIMAL(5, 2)",
            "b": "BINARY",
            "day": "DATE",
            "at": "TIMESTAMP",
            "long": "INTERVAL",
            "a": "ARRAY<INT>",
        }
    )
    at = datetime(2024, 5, 31, 12, tzinfo=UTC)
    row = (True, Decimal("1.5"), b"\0", date(2024, 5, 31), at, timedelta(1), [1, None])
    assert repr(Result.of_rows(schema, [row])).splitlines()[2].split("  ") == [
        *("true", "1.50", "b'\\x00'", "2024-05-31"),
        *("2024-05-31 12:00:00+00:00", "1 day, 0:00:00", "[1, None]"),
    ]


@pytest.mark.parametrize("make", [of_batches, of_rows])
def test_a_long_table_is_cut(make):
    result = make([("A", 1.0, n) for n in range(1000)])
    lines = repr(result).splitlines()
    assert len(lines) == 23
    assert lines[-1] == "... 980 more rows"
    assert lines[-2].split() == ["A", "1.0", "19"]
    page = result._repr_html_()
    assert page.count("<tr>") == 21
    assert "... 980 more rows" in page
    assert repr(make([("A", 1.0, n) for n in range(21)])).endswith("... 1 more row")
    assert len(repr(make([("A", 1.0, n) for n in range(20)])).splitlines()) == 22


def test_a_wide_table_is_cut():
    schema = Schema.of({"name " * 20: "VARCHAR"})
    result = Result.of_rows(schema, [("x" * 10**6,), ("x" * 32,), ("a\nb\tc\x1b[31m",)])
    lines = repr(result).splitlines()
    assert max(map(len, lines)) == 32
    assert lines[2] == "x" * 31 + "…"
    assert lines[3] == "x" * 32
    assert lines[4] == r"a\nb\tc\x1b[31m"


def test_html_is_escaped():
    schema = Schema.of({"<b>": "VARCHAR"})
    page = Result.of_rows(schema, [("<script>&",)])._repr_html_()
    assert page == (
        "<table><thead><tr><th>&lt;b&gt;</th></tr></thead>"
        "<tbody><tr><td>&lt;script&gt;&amp;</td></tr></tbody></table>"
    )


def test_what_python_cannot_hold_is_not_shown():
    schema = Schema.of(at="TIMESTAMP")
    far = pa.array([2**62], pa.int64()).cast(schema.arrow.field("at").type)
    result = Result(schema, [pa.record_batch([far], schema=schema.arrow)])
    assert repr(result) == "<Result: 1 rows (at TIMESTAMP)>"
    assert "1 rows" in result._repr_html_()
    with pytest.raises(SchemaMismatchError, match="column 'at'"):
        result.fetchall()


@given(filled())
def test_both_ways_to_make_one_are_the_same(drawn):
    schema, rows = drawn
    one, other = of_rows(rows, schema), of_batches(schema.check_rows(rows), schema)
    assert repr(one) == repr(other)
    assert one.to_arrow().equals(other.to_arrow())
    assert repr(list(one)) == repr(list(other))
