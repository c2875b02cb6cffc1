"""A feed's columns: what Spark gets to know of rows of one log, and of several."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model import ChangeBatch, Schema
from millstream.views.run.columns import FeedColumns, feed_schema, name_in_feed

ONE = Schema.of(symbol="VARCHAR", qty="BIGINT")
OTHER = Schema.of(symbol="VARCHAR", price="DOUBLE")
HIDDEN = ["_log", "_lsn", "_weight", "_row_lsn", "_wm"]


def batch(schema, rows, first_lsn=10, weights=None):
    made = ChangeBatch.from_rows(schema, rows, weights=weights)
    made.first_lsn, made.lsn = first_lsn, first_lsn + len(rows) - 1
    return made


def test_names_of_one_log_are_its_own():
    assert feed_schema([ONE]).names == ["symbol", "qty", *HIDDEN]
    assert [each.nullable for each in feed_schema([ONE])][2:] == [False, False, False, True, True]


def test_names_of_several_say_which():
    names = feed_schema([ONE, OTHER]).names
    assert names == ["_0_symbol", "_0_qty", "_1_symbol", "_1_price", *HIDDEN]
    assert name_in_feed(1, "price", 2) == "_1_price"


def test_the_columns_that_are_wanted_of_a_log():
    """Of a log of which none is wanted, one, by which its rows count."""
    columns = FeedColumns([ONE, OTHER], ["_1_price", *HIDDEN])
    assert (columns.wanted(0), columns.wanted(1)) == (["symbol"], ["price"])
    assert FeedColumns([ONE], ["qty", *HIDDEN]).wanted(0) == ["qty"]


def test_rows_of_some_columns_of_a_log():
    columns = FeedColumns([ONE, OTHER], ["_1_price", "_log"])
    made = columns.batch(1, batch(OTHER.select(["price"]), [(1.5,), (None,)]), None)
    assert made.to_pylist() == [{"_1_price": 1.5, "_log": 1}, {"_1_price": None, "_log": 1}]
    counted = columns.batch(0, batch(ONE.select(["symbol"]), [("a",)]), None)
    assert counted.to_pylist() == [{"_1_price": None, "_log": 0}]


def test_rows_of_one_log():
    columns = FeedColumns([ONE], ["symbol", "qty", *HIDDEN])
    made = columns.batch(0, batch(ONE, [("a", 1), (None, 2)], weights=[1, -1]), 5)
    assert made.to_pylist() == [
        {
            "symbol": "a",
            "qty": 1,
            "_log": 0,
            "_lsn": 10,
            "_weight": 1,
            "_wm": made["_wm"][0].as_py(),
            "_row_lsn": 10,
        },
        {
            "symbol": None,
            "qty": 2,
            "_log": 0,
            "_lsn": 11,
            "_weight": -1,
            "_wm": made["_wm"][1].as_py(),
            "_row_lsn": 11,
        },
    ]
    assert made["_wm"].cast(pa.int64()).to_pylist() == [5, 5]


def test_rows_of_one_of_several_logs():
    columns = FeedColumns([ONE, OTHER], ["_1_price", "_0_qty", "_log", "_lsn", "_wm"])
    first = columns.batch(0, batch(ONE, [("a", 1)]), None)
    second = columns.batch(1, batch(OTHER, [("b", 2.5)], first_lsn=99), None)
    assert [tuple(row.values()) for row in first.to_pylist()] == [(None, 1, 0, 10, None)]
    assert [tuple(row.values()) for row in second.to_pylist()] == [(2.5, None, 1, 99, None)]


def test_only_what_is_wanted_in_the_order_that_is_wanted():
    columns = FeedColumns([ONE], ["_lsn", "symbol"])
    assert columns.schema.names == ["_lsn", "symbol"]
    assert columns.batch(0, batch(ONE, [("a", 1)]), None).schema == columns.schema
    assert columns.none().schema == columns.schema
    assert columns.none().num_rows == 0
    assert columns.batch(0, batch(ONE, []), None).num_rows == 0


@pytest.mark.parametrize("added_first", [True, False])
def test_a_column_that_was_added_meanwhile_is_not_seen(added_first):
    """Batches of the old and of the new schema come mixed; a view knows the columns of old."""
    wider = Schema.of(symbol="VARCHAR", qty="BIGINT", note="VARCHAR")
    columns = FeedColumns([ONE], ["symbol", "qty", "_lsn"])
    two = [batch(wider, [("b", 2, "x")], 20), batch(ONE, [("a", 1)])]
    made = [columns.batch(0, each, None) for each in (two if added_first else two[::-1])]
    found = [tuple(row.values()) for each in made for row in each.to_pylist()]
    assert sorted(found) == [("a", 1, 10), ("b", 2, 20)]
    assert all(each.schema == columns.schema for each in made)


def test_rows_that_a_filter_left_have_their_own_lsns():
    kept = batch(ONE, [("a", 1), ("b", 2), ("c", 3)]).keep_places([0, 2])
    made = FeedColumns([ONE], ["qty", "_lsn"]).batch(0, kept, None)
    assert made.to_pylist() == [{"qty": 1, "_lsn": 10}, {"qty": 3, "_lsn": 12}]


@given(st.data())
def test_batches_made_together_are_those_made_alone(data):
    """Of several logs, with rows as tuples or Arrow, weights, watermarks, or nothing at all."""
    columns = FeedColumns([ONE, OTHER], ["_1_price", "_0_qty", "_0_symbol", *HIDDEN])
    parts, lsn = [], 1
    for _ in range(data.draw(st.integers(1, 8))):
        log = data.draw(st.integers(0, 1))
        schema, value = ((ONE, 7), (OTHER, 2.5))[log]
        size = data.draw(st.sampled_from([0, 1, 2, 3, 200]))
        weights = data.draw(st.sampled_from([None, [-1] * size]))
        made = batch(schema, [("x", value), (None, None)] * size, lsn, weights and weights * 2)
        if data.draw(st.booleans()):
            made.arrow  # noqa: B018 - from now on it holds Arrow
        if data.draw(st.booleans()):
            made = made.keep_places(range(0, len(made), 2))
        parts.append((log, (made, data.draw(st.sampled_from([None, 5, 6])))))
        lsn += 2 * size + data.draw(st.integers(0, 1))
    alone = [columns.batch(log, rows, mark) for log, (rows, mark) in parts]
    assert columns.joined(parts) == pa.concat_batches(alone)
