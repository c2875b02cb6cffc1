"""Rows without a key: against a counter."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import SchemaMismatchError
from millstream.model import ChangeBatch, Schema
from millstream.state import bags as bag_module
from millstream.state.bags import AppendOnlyRows, Bag

SCHEMA = Schema.of(a="VARCHAR", x="DOUBLE")
NESTED = Schema.of(a="VARCHAR", x="ARRAY<DOUBLE>")


def spark(rows, weights, schema=SCHEMA):
    batch = schema.rows_to_arrow(rows)
    fields = [*batch.schema, pa.field("_weight", pa.int64())]
    arrays = [*batch.columns, pa.array(weights, pa.int64())]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def contents(rows):
    table = rows.snapshot()
    assert table.schema.equals(rows.schema.arrow)
    return Counter(
        repr(row) for batch in table.to_batches() for row in rows.schema.arrow_to_rows(batch)
    )


texts = st.sampled_from(["a", "b", None])
flat = st.tuples(texts, st.sampled_from([1.0, None, float("nan")]))
nested = st.tuples(texts, st.sampled_from([None, [], [1.0], [1.0, None]]))


def steps(row):
    return st.lists(st.lists(st.tuples(row, st.sampled_from([1, -1])), max_size=8), max_size=10)


@pytest.mark.parametrize("few", [64, 0, 4], ids=["rows", "arrow", "both"])
class TestBag:
    def check(self, schema, steps, few):
        bag, again = Bag(schema), Bag(schema)
        bag.few = min(bag.few, few)
        counts = Counter()
        for step in steps:
            rows, weights = [row for row, _ in step], [weight for _, weight in step]
            before = contents(bag)
            diff = bag.diff(spark(rows, weights, schema))
            assert contents(bag) == before
            net = Counter()
            for row, weight in step:
                net[repr(row)] += weight
            changed = Counter()
            if diff.changes is not None:
                for row, weight in zip(diff.changes.rows, diff.changes.weights, strict=True):
                    changed[repr(row)] += weight
                again.load(diff.changes)
            assert dict(changed) == {row: weight for row, weight in net.items() if weight}
            counts.update(net)
            bag.apply(diff)
            assert contents(bag) == +counts
            assert contents(again) == +counts
            assert len(bag) == len(again) == max(sum(counts.values()), 0)

    @given(steps(flat))
    def test_each_row_as_often_as_it_was_inserted(self, few, steps):
        self.check(SCHEMA, steps, few)

    @pytest.mark.slow
    @given(steps(nested))
    def test_nested(self, few, steps):
        self.check(NESTED, steps, few)

    def test_append_only_rows_are_emitted_in_their_order(self, monkeypatch, few):
        monkeypatch.setattr(bag_module, "_FEW", few)
        diff = Bag(SCHEMA).diff(spark([("a", 1.0), ("a", 1.0)], [1, 1]))
        assert diff.changes.rows == [("a", 1.0)] * 2
        assert diff.changes.is_insert_only

    def test_an_update_stays_side_by_side(self, monkeypatch, few):
        monkeypatch.setattr(bag_module, "_FEW", few)
        bag = Bag(SCHEMA)
        bag.apply(bag.diff(spark([("a", 1.0), ("b", 1.0)], [1, 1])))
        diff = bag.diff(
            spark([("b", 1.0), ("b", 2.0), ("a", 1.0), ("a", 3.0), ("b", 1.0)], [-1, 1, -1, 1, 1])
        )
        assert diff.changes.rows == [("b", 2.0), ("a", 1.0), ("a", 3.0)]
        assert diff.changes.weights == [1, -1, 1]

    def test_recent_rows_move_to_runs(self, monkeypatch, few):
        """Rows come, go and come again, while most of them lie in runs that are joined."""
        monkeypatch.setattr(bag_module, "_MOST", 20)
        chance, bag, counts = random.Random(few), Bag(SCHEMA), Counter()
        bag.few = few
        for _ in range(300):
            there = list(counts.elements())
            gone = Counter(chance.sample(there, min(len(there), chance.choice([0, 1, 9]))))
            come = Counter(
                (f"k{chance.randrange(40)}", 1.0) for _ in range(chance.choice([0, 1, 9]))
            )
            counts.subtract(gone)
            counts.update(come)
            counts = +counts
            changed = [(row, -n) for row, n in gone.items()] + list(come.items())
            if changed:
                diff = bag.diff(spark(*zip(*changed, strict=True)))
                bag.check(diff)
                bag.apply(diff)
            assert len(bag) == counts.total()
        assert contents(bag) == Counter(repr(row) for row in counts.elements())
        rows, weights = bag.capture()()
        again = Bag(SCHEMA)
        own = None if weights is None else pa.array(weights)
        [data] = rows.combine_chunks().to_batches()
        again.load(ChangeBatch(SCHEMA, None, data, own))
        assert contents(again) == contents(bag)

    def test_a_retraction_of_nothing_is_found(self, few):
        bag = Bag(SCHEMA)
        bag.few = few
        for rows in ([("a", 1.0), ("b", 1.0)], [("a", 1.0)]):
            bag.apply(bag.diff(spark(rows, [1] * len(rows))))
        bag.check(bag.diff(spark([("a", 1.0)], [-2])))
        for row, weight in ((("a", 1.0), -3), (("b", 2.0), -1)):
            with pytest.raises(AssertionError, match="is retracted that is not there"):
                bag.check(bag.diff(spark([row], [weight])))

    def test_a_column_may_be_called_count(self, monkeypatch, few):
        monkeypatch.setattr(bag_module, "_FEW", few)
        bag = Bag(Schema.of(_count="BIGINT"))
        bag.apply(bag.diff(spark([(7,), (7,)], [1, 1], bag.schema)))
        assert bag.snapshot().to_pylist() == [{"_count": 7}] * 2


class TestAppendOnlyRows:
    @given(st.lists(st.lists(flat, max_size=9), max_size=20))
    def test_all_that_was_inserted(self, steps):
        rows_kept, again, all_rows = AppendOnlyRows(SCHEMA), AppendOnlyRows(SCHEMA), []
        for rows in steps:
            diff = rows_kept.diff(spark(rows, [1] * len(rows)))
            rows_kept.apply(diff)
            all_rows += rows
            if rows:
                assert repr(diff.changes.rows) == repr(rows)
                again.load(diff.changes)
            else:
                assert diff.changes is None
        assert contents(rows_kept) == contents(again) == Counter(map(repr, all_rows))

    def test_pieces_stay_few(self, monkeypatch):
        monkeypatch.setattr(bag_module, "_PIECE", 64)
        rows_kept = AppendOnlyRows(SCHEMA)
        for number in range(1000):
            rows_kept.apply(rows_kept.diff(spark([("a", float(number))], [1])))
        assert rows_kept.snapshot().column("x").to_pylist() == [float(n) for n in range(1000)]
        assert len(rows_kept._pieces) < 1000 / 32 + 7

    def test_a_row_may_come_twice_at_once(self):
        rows_kept = AppendOnlyRows(SCHEMA)
        diff = rows_kept.diff(spark([("a", 1.0), ("b", 1.0)], [2, 1]))
        assert diff.changes.rows == [("a", 1.0), ("a", 1.0), ("b", 1.0)]

    def test_a_retraction_is_refused(self):
        rows_kept = AppendOnlyRows(SCHEMA)
        with pytest.raises(SchemaMismatchError, match="retracted"):
            rows_kept.diff(spark([("a", 1.0)], [-1]))
        with pytest.raises(SchemaMismatchError, match="retracted"):
            rows_kept.load(ChangeBatch.from_rows(SCHEMA, [("a", 1.0)], weights=[-1]))


@pytest.mark.parametrize("weight", [100, 300])
def test_rows_that_are_there_often_go_again(weight):
    """Weights that Arrow holds cannot be written to."""
    bag, rows = Bag(SCHEMA), [("a", float(number)) for number in range(300)]
    bag.apply(bag.diff(spark(rows, [weight] * 300)))
    assert len(bag) == weight * 300
    bag.apply(bag.diff(spark(rows, [-weight] * 300)))
    assert (len(bag), contents(bag)) == (0, Counter())
