from __future__ import annotations

import itertools
import uuid

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import RowError, SchemaMismatchError
from millstream.model import ChangeBatch, ResumeToken, Schema
from millstream.model.change import Commits, Gap

SCHEMA = Schema.of(key=("k",), k="BIGINT", v="VARCHAR")
rows = st.lists(
    st.tuples(st.none() | st.integers(0, 2), st.none() | st.text("ab", max_size=2)), max_size=12
)


@st.composite
def batches(draw):
    content = draw(rows)
    weights = draw(
        st.none()
        | st.lists(st.sampled_from([-2, -1, 1, 2]), min_size=len(content), max_size=len(content))
    )
    if draw(st.booleans()):
        return ChangeBatch.from_rows(SCHEMA, content, weights=weights)
    return ChangeBatch.from_arrow(SCHEMA, SCHEMA.rows_to_arrow(content), weights=weights)


@given(batches())
def test_both_forms_say_the_same(batch):
    """The ops of to_arrow, found by columns, are those of the iterator, found by rows."""
    table = batch.to_arrow()
    assert table.schema.names == ["k", "v", "_op", "_weight", "_lsn"]
    expected = []
    for change in batch:
        if change.op == "update":
            expected += [(change.before, "update"), (change.row, "update")]
        else:
            expected.append((change.row, change.op))
    found = []
    for row, op, weight in zip(
        batch.rows, table["_op"].to_pylist(), table["_weight"].to_pylist(), strict=True
    ):
        found += [(row, op)] * (1 if op == "update" else abs(weight))
    assert found == expected
    assert table["_weight"].to_pylist() == batch.weights
    assert table["_lsn"].to_pylist() == list(batch.lsns)


@given(batches())
def test_changes_add_up_to_the_weights(batch):
    """Whatever is paired, the sum over rows is that of the Z-set."""
    total, changed = {}, {}
    for row, weight in zip(batch.rows, batch.weights, strict=True):
        total[row] = total.get(row, 0) + weight
    for change in batch:
        if change.op != "insert":
            changed[change.before] = changed.get(change.before, 0) - 1
        if change.op != "delete":
            changed[change.row] = changed.get(change.row, 0) + 1
    assert {k: v for k, v in changed.items() if v} == {k: v for k, v in total.items() if v}


@given(batches(), st.data())
def test_a_slice_is_those_rows(batch, data):
    batch = batch.placed("t", 100, committed_at=5, origin=(uuid.UUID(int=1), 1))
    start = data.draw(st.integers(0, len(batch)))
    stop = data.draw(st.integers(start, len(batch)))
    part = batch.slice(start, stop)
    assert part.rows == batch.rows[start:stop]
    assert part.weights == batch.weights[start:stop]
    assert list(part.lsns) == list(batch.lsns)[start:stop]
    assert part.arrow.equals(SCHEMA.rows_to_arrow(batch.rows[start:stop]))


class TestForms:
    def test_are_made_when_asked_and_kept(self):
        batch = ChangeBatch.from_rows(SCHEMA, [(1, "a")])
        assert not batch.is_arrow
        assert batch.arrow is batch.arrow
        assert batch.is_arrow
        again = ChangeBatch.from_arrow(SCHEMA, batch.arrow)
        assert again.held_rows is again.held_rows
        assert again.rows is not again.rows  # each a list of its own
        assert again.rows == [(1, "a")]

    def test_arrow_of_the_right_schema_is_not_copied(self):
        data = SCHEMA.rows_to_arrow([(1, "a")])
        assert ChangeBatch.from_arrow(SCHEMA, data).arrow is data

    def test_arrow_in_arrow_out_makes_no_rows(self):
        weights = pa.array([1, -1], pa.int64())
        data = SCHEMA.rows_to_arrow([(1, "a"), (2, "b")])
        batch = ChangeBatch.from_arrow(SCHEMA, data, weights=weights)
        batch.to_arrow()
        assert batch._rows is None

    def test_pandas_polars_and_pyarrow_take_it(self):
        batch = ChangeBatch.from_rows(SCHEMA, [(1, "a"), (2, None)])
        assert pa.table(batch).num_rows == 2
        assert pl.DataFrame(batch)["_op"].to_list() == ["insert", "insert"]
        assert list(pd.DataFrame.from_arrow(batch)["k"]) == [1, 2]
        assert list(batch.to_pandas()["_lsn"]) == batch.to_polars()["_lsn"].to_list()
        assert batch.to_pandas()["k"].to_list() == [1, 2]


class TestChanges:
    def test_an_update_has_both_rows(self):
        batch = ChangeBatch.from_rows(SCHEMA, [(1, "a"), (1, "b")], weights=[-1, 1])
        (change,) = batch
        assert (change.op, change.before, change.row) == ("update", (1, "a"), (1, "b"))
        assert change["v"] == "b"
        assert change.as_dict() == {"k": 1, "v": "b"}

    def test_of_a_null_key(self):
        batch = ChangeBatch.from_rows(SCHEMA, [(None, "a"), (None, "b")], weights=[-1, 1])
        assert [c.op for c in batch] == ["update"]
        assert batch.to_arrow()["_op"].to_pylist() == ["update", "update"]

    def test_different_keys_are_two_changes(self):
        batch = ChangeBatch.from_rows(SCHEMA, [(1, "a"), (2, "b")], weights=[-1, 1])
        assert [c.op for c in batch] == ["delete", "insert"]

    def test_without_a_key_nothing_is_paired(self):
        schema = Schema.of(k="BIGINT")
        batch = ChangeBatch.from_rows(schema, [(1,), (1,)], weights=[-1, 1])
        assert [c.op for c in batch] == ["delete", "insert"]


@pytest.mark.parametrize(
    "weights", [[1, 1], [], [0], [None], [1.0], ["1"], [True], [2**70], pa.array([1.0])]
)
def test_weights_must_fit(weights):
    with pytest.raises(SchemaMismatchError):
        ChangeBatch.from_rows(SCHEMA, [(1, "a")], weights=weights)


def test_weights_that_are_all_one_are_none():
    assert ChangeBatch.from_rows(SCHEMA, [(1, "a"), (2, "b")], weights=[1, 1]).is_insert_only
    assert ChangeBatch.from_rows(SCHEMA, [], weights=[]).is_insert_only


def test_weights_are_the_batch_s_own():
    weights = [-1]
    batch = ChangeBatch.from_rows(SCHEMA, [(1, "a")], weights=weights)
    weights[0] = 5
    assert batch.weights == [-1]


def test_a_watermark_holds_after_the_last_row():
    batch = ChangeBatch.from_rows(SCHEMA, [(1, "a"), (2, "b")], watermark=9)
    assert (batch.slice(0, 1).watermark, batch.slice(1).watermark) == (None, 9)


def test_an_unknown_column_says_which_there_are():
    (change,) = ChangeBatch.from_rows(SCHEMA, [(1, "a")])
    with pytest.raises(KeyError, match="the columns are k, v"):
        change["zz"]


def test_bad_rows_are_named():
    with pytest.raises(RowError) as caught:
        ChangeBatch.from_rows(SCHEMA, [(1, "a"), ("x", "b")])
    assert (caught.value.row, caught.value.column) == (1, "k")


def test_a_place_gives_lsns_and_a_token():
    database = uuid.uuid4()
    batch = ChangeBatch.from_rows(SCHEMA, [(1, "a"), (2, "b")])
    assert batch.token == ""
    placed = batch.placed("t", 7, committed_at=5, origin=(database, 3))
    assert (placed.first_lsn, placed.lsn, list(placed.lsns)) == (7, 8, [7, 8])
    assert ResumeToken.parse(placed.token) == ResumeToken(database, 3, 8)
    assert repr(placed) == "<ChangeBatch of t: 2 rows, LSN 7..8>"


def test_a_watermark_takes_a_place_too():
    batch = ChangeBatch.from_rows(SCHEMA, [], watermark=99)
    placed = batch.placed("t", 7, committed_at=5, origin=(uuid.uuid4(), 1))
    assert (len(placed), placed.first_lsn, placed.lsn, placed.watermark) == (0, 7, 7, 99)
    assert list(placed) == []


# ---- what becomes of a batch on its way to a reader

ORIGIN = (uuid.UUID(int=1), 1)


@st.composite
def placed_batches(draw, first=100):
    """Batches of a log: whole, or as a filter left them, in either form."""
    batch = draw(batches()).placed("t", first, committed_at=5, origin=ORIGIN)
    if len(batch) and draw(st.booleans()):
        mask = draw(st.lists(st.booleans(), min_size=len(batch), max_size=len(batch)))
        if any(mask):
            places = [n for n, kept in enumerate(mask) if kept]
            how = draw(st.sampled_from(["places", "mask", "take"]))
            if how == "places":
                return batch.keep_places(places)
            if how == "mask":
                return batch.keep_mask(pa.array(mask))
            return batch.take(pa.array(places))
    return batch


def content(batch):
    assert len(batch) == len(batch.rows) == len(batch.weights) == len(batch.lsns)
    return list(zip(batch.rows, batch.weights, batch.lsns, strict=True))


@given(batches(), st.data())
def test_three_ways_to_keep_rows_agree(batch, data):
    batch = batch.placed("t", 100, committed_at=5, origin=ORIGIN)
    mask = data.draw(st.lists(st.booleans(), min_size=len(batch), max_size=len(batch)))
    places = [n for n, kept in enumerate(mask) if kept]
    expected = [content(batch)[n] for n in places]
    for kept in (
        batch.keep_places(places) if places else batch.take(pa.array(places, pa.int64())),
        batch.keep_mask(pa.array(mask, pa.bool_())),
        batch.take(pa.array(places, pa.int64())),
    ):
        assert content(kept) == expected
        assert kept.lsns_arrow().to_pylist() == [lsn for _, _, lsn in expected]
        assert kept.to_arrow()["_lsn"].to_pylist() == [lsn for _, _, lsn in expected]
        assert (kept.topic, kept.first_lsn, kept.lsn) == ("t", 100, batch.lsn)
        assert kept.token == batch.token
        assert kept.committed_at == 5


def test_no_places_of_weighted_rows_keep_nothing():
    batch = ChangeBatch.from_rows(SCHEMA, [(1, "a"), (1, "b")], weights=[-1, 1])
    assert len(batch.keep_places([])) == 0


@given(placed_batches(), st.data())
def test_slices_are_adjoining_and_together_the_whole(batch, data):
    cuts = data.draw(st.lists(st.integers(1, max(1, len(batch) - 1)), max_size=3, unique=True))
    edges = [0, *sorted(c for c in cuts if c < len(batch)), len(batch)]
    batch = batch.with_watermark(9)
    parts = [batch.slice(a, b) for a, b in itertools.pairwise(edges)]
    assert [c for part in parts for c in content(part)] == content(batch)
    assert parts[0].first_lsn == batch.first_lsn
    assert parts[-1].lsn == batch.lsn
    for one, other in itertools.pairwise(parts):
        assert one.lsn + 1 == other.first_lsn
        assert one.lsn == list(one.lsns)[-1]
    assert [part.watermark for part in parts] == [None] * (len(parts) - 1) + [9]


def test_a_later_piece_has_its_own_lsns():
    batch = ChangeBatch.from_rows(SCHEMA, [(1, "a"), (2, "b")])
    batch = batch.placed("t", 100, committed_at=5, origin=ORIGIN)
    assert list(batch.piece(1, 2).lsns) == [101]


@given(placed_batches(), st.data())
def test_a_piece_stands_for_all_lsns(batch, data):
    start = 0 if batch.is_counted else data.draw(st.integers(0, len(batch)))
    stop = data.draw(st.integers(start, len(batch)))
    piece = batch.piece(start, stop)
    assert content(piece) == content(batch)[start:stop]
    assert (piece.first_lsn, piece.lsn) == (batch.first_lsn, batch.lsn)


@given(st.data(), st.integers(1, 4))
def test_concat_is_one_after_the_other(data, count):
    parts, first = [], 100
    for _ in range(count):
        parts.append(data.draw(placed_batches(first)))
        first = parts[-1].lsn + 1 + data.draw(st.integers(0, 2))
    joined = ChangeBatch.concat(parts)
    assert content(joined) == [c for part in parts for c in content(part)]
    assert joined.lsns_arrow().to_pylist() == list(joined.lsns)
    assert (joined.first_lsn, joined.lsn) == (parts[0].first_lsn, parts[-1].lsn)
    assert joined.is_arrow == all(part.is_arrow for part in parts)
    assert joined.is_insert_only == all(part.is_insert_only for part in parts)


def test_concat_keeps_the_newest_watermark_and_the_first_gap():
    gap = Gap(1, 9, 9)
    one = ChangeBatch.from_rows(SCHEMA, [(1, "a")], watermark=5)
    one = one.placed("t", 10, committed_at=1, origin=ORIGIN).copy(gap=gap)
    two = ChangeBatch.from_rows(SCHEMA, [(2, "b")])
    two = two.placed("t", 11, committed_at=2, origin=ORIGIN)
    joined = ChangeBatch.concat([one, two])
    assert (joined.watermark, joined.gap) == (5, gap)
    assert ResumeToken.parse(joined.token).lsn == 11


@given(st.lists(placed_batches(), min_size=1, max_size=6), st.data())
def test_each_row_keeps_the_time_of_its_commit(parts, data):
    """However batches are joined, cut, filtered and projected."""
    placed, lsn, time = [], 1, 1
    for part in parts:
        time += data.draw(st.integers(0, 1))
        placed.append(part.placed("t", lsn, committed_at=time, origin=ORIGIN))
        lsn = placed[-1].lsn + 1
    times = {lsn: part.committed_at for part in placed for lsn in part.lsns}
    joined = ChangeBatch.concat(placed)
    start = data.draw(st.integers(0, len(joined)))
    stop = data.draw(st.integers(start, len(joined)))
    places = range(0, len(joined), data.draw(st.integers(1, 3)))
    for batch in (
        joined,
        joined.slice(start, stop),
        joined.piece(start, stop),
        joined.keep_places(places),
        joined.take(pa.array(places, pa.int64())).copy(kind="snapshot"),
    ):
        assert [batch.commit_time(n) for n in batch.lsns] == [times[n] for n in batch.lsns]
    assert joined.committed_at == placed[-1].committed_at


def test_concat_of_one_is_itself():
    batch = ChangeBatch.from_rows(SCHEMA, [(1, "a")])
    assert ChangeBatch.concat([batch]) is batch


@given(placed_batches())
def test_a_copy_has_the_same_rows_and_another_kind_and_gap(batch):
    gap = Gap(1, 2, 3)
    copied = batch.copy(kind="snapshot", gap=gap)
    assert content(copied) == content(batch)
    assert (copied.kind, copied.gap, copied.token) == ("snapshot", gap, batch.token)
    assert (batch.kind, batch.gap) == ("changes", None)
    assert copied.copy().gap == gap
    assert copied.copy().kind == "snapshot"


@given(placed_batches())
def test_with_columns_has_the_same_changes(batch):
    schema = Schema.of(v="VARCHAR")
    rows = [(row[1],) for row in batch.rows]
    for other in (
        batch.with_columns(schema, rows, None),
        batch.with_columns(schema, None, schema.rows_to_arrow(rows)),
    ):
        assert other.rows == rows
        assert (other.weights, list(other.lsns)) == (batch.weights, list(batch.lsns))
        assert (other.schema, other.lsn, other.topic) == (schema, batch.lsn, batch.topic)


def test_netted_stands_for_all_from_the_first():
    first, last = (
        ChangeBatch.from_rows(SCHEMA, [(n, "x")]).placed("t", n, committed_at=n, origin=ORIGIN)
        for n in (10, 20)
    )
    rows, weights, lsns = [(1, "a"), (1, "b")], [-1, 1], [15, 15]
    net = last.netted(first.copy(gap=Gap(1, 9, 9)), rows, weights, lsns, Commits.of([15], [13]))
    assert (net.first_lsn, net.lsn, net.committed_at) == (10, 20, 20)
    assert net.commit_time(15) == 13
    assert content(net) == [((1, "a"), -1, 15), ((1, "b"), 1, 15)]
    assert [change.op for change in net] == ["update"]
    assert net.gap == Gap(1, 9, 9)
    assert ResumeToken.parse(net.token).lsn == 20


def test_a_part_of_a_snapshot_is_nothing_to_go_on_from():
    state = ChangeBatch(
        *(SCHEMA, [(1, "a"), (2, "b"), (3, "c")], None, None),
        topic="t",
        lsn=50,
        lsns=[50] * 3,
        kind="snapshot",
        origin=ORIGIN,
    )
    one, two = state.slice(0, 2), state.slice(2)
    assert (one.lsn, two.lsn) == (0, 50)
    assert (one.kind, two.kind) == ("snapshot", "snapshot")
    assert list(one.lsns) == [50, 50]


@given(placed_batches())
def test_nothing_changes_the_batch_it_was_made_of(batch):
    """Many subscribers read the same one."""
    before = (content(batch), batch.first_lsn, batch.lsn, batch.watermark, batch.kind, batch.gap)
    batch.copy(kind="snapshot", gap=Gap(1, 1, 1))
    batch.slice(0, len(batch) // 2)
    batch.slice(len(batch) // 2)
    batch.piece(0, 0)
    batch.with_watermark(77)
    ChangeBatch.concat([batch, batch])
    assert before == (
        *(content(batch), batch.first_lsn, batch.lsn, batch.watermark),
        *(batch.kind, batch.gap),
    )
