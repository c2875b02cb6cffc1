"""Groups of several rows: against a dict of dicts, and through an emission."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import SchemaMismatchError
from millstream.model import Schema
from millstream.model.clock import EPOCH
from millstream.model.schema import Column
from millstream.model.types import parse_type
from millstream.state.emission import Emission
from millstream.state.rows import Rows
from millstream.state.sets import Sets

SCHEMA = Schema.of(start="TIMESTAMP", n="BIGINT")
HIDDEN = (Column("_end", parse_type("TIMESTAMP")), Column("_k0", parse_type("VARCHAR")))
TIME = pa.timestamp("us", "UTC")
MEMBER = pa.struct([("start", TIME), ("n", pa.int64()), ("_end", TIME)])


def at(micros):
    return EPOCH + timedelta(microseconds=micros)


def spark(*groups):
    """Groups (k, [(start, end, n), ...]) as Spark sends them."""
    rows = [
        None if s is None else [{"start": at(a), "n": n, "_end": at(b)} for a, b, n in s]
        for _, s in groups
    ]
    keys = pa.array([key for key, _ in groups], pa.string())
    arrays = [keys, pa.array([0] * len(groups), pa.int64()), pa.array(rows, pa.list_(MEMBER))]
    return pa.RecordBatch.from_arrays(arrays, names=["_k0", "_hash", "_rows"])


def new_sets():
    return Sets(SCHEMA, ("_k0",), ("start",), HIDDEN)


def weighted(batch):
    return [] if batch is None else list(zip(batch.rows, batch.weights, strict=True))


def contents(rows):
    names = ["_k0", "start", "_end", "n"]
    table = rows.snapshot(stored=True).select(names)
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def expected(groups):
    flat = [(k, at(a), at(b), n) for k, rows in groups.items() for a, b, n in rows]
    return sorted(flat, key=repr)


class TestSets:
    def test_only_the_difference_is_emitted(self):
        sets = new_sets()
        sets.apply(sets.diff(spark(("a", [(0, 5, 1), (10, 15, 1)]), ("b", [(0, 5, 1)]))))
        diff = sets.diff(spark(("a", [(0, 5, 1), (10, 17, 2), (20, 25, 1)])))
        assert weighted(diff.changes) == [
            ((at(10), 1), -1),
            ((at(10), 2), 1),
            ((at(20), 1), 1),
        ]
        sets.apply(diff)
        assert len(sets) == 4

    def test_two_sessions_become_one(self):
        sets = new_sets()
        sets.apply(sets.diff(spark(("a", [(0, 5, 1), (8, 13, 1)]))))
        diff = sets.diff(spark(("a", [(0, 13, 3)])))
        assert sorted(weighted(diff.changes)) == [
            ((at(0), 1), -1),
            ((at(0), 3), 1),
            ((at(8), 1), -1),
        ]

    def test_two_rows_with_the_same_match_are_refused(self):
        with pytest.raises(SchemaMismatchError, match="the same start"):
            new_sets().diff(spark(("a", [(0, 5, 1), (0, 6, 2)])))

    def test_one_group(self):
        sets = Sets(SCHEMA, (), ("start",), HIDDEN[:1])
        sets.apply(sets.diff(spark(("x", [(0, 5, 1), (10, 15, 1)])).select(["_rows"])))
        diff = sets.diff(spark(("x", [(10, 15, 1)])).select(["_rows"]))
        assert weighted(diff.changes) == [((at(0), 1), -1)]

    @given(
        st.lists(
            st.lists(
                st.tuples(
                    st.sampled_from(["a", "b", None]),
                    st.one_of(
                        st.none(),
                        st.lists(
                            st.tuples(st.integers(0, 4), st.integers(5, 7), st.integers(0, 1)),
                            unique_by=lambda row: row[0],
                        ),
                    ),
                ),
                max_size=3,
            ),
            max_size=8,
        )
    )
    def test_as_a_dict_of_sets(self, steps):
        sets, again, model = new_sets(), new_sets(), {}
        changed = {}
        for step in steps:
            before = contents(sets)
            diff = sets.diff(spark(*step))
            assert contents(sets) == before
            model.update((k, rows or []) for k, rows in step)
            sets.apply(diff)
            assert contents(sets) == expected(model)
            if diff.stored is not None:
                again.load(diff.stored)
            assert contents(again) == expected(model)
            for row, weight in weighted(diff.changes):
                changed[row] = changed.get(row, 0) + weight
        shown = {}
        for rows in model.values():
            for start, _, n in rows:
                shown[at(start), n] = shown.get((at(start), n), 0) + 1
        assert {row: count for row, count in changed.items() if count} == shown


class TestWithEmission:
    def test_sessions_close_one_by_one_and_may_still_merge(self):
        keys = ("_k0", "start")
        sets = new_sets()
        one = Emission("close", sets.rows, keys)
        assert isinstance(one.visible, Rows)

        def take(groups, lsn, watermark):
            keyed = sets.keyed(spark(*groups), one.visible, one.pending)
            release = one.take(keyed, lsn=lsn, watermark=watermark, now=0)
            one.apply(release)
            return sorted(weighted(release.changes))

        assert take([("a", [(0, 5, 1), (10, 15, 1)])], 1, 5) == [((at(0), 1), 1)]
        release = one.advance(watermark=15, now=0)
        assert weighted(release.changes) == [((at(10), 1), 1)]
        one.apply(release)
        assert take([("a", [(0, 15, 3)])], 2, 15) == [
            ((at(0), 1), -1),
            ((at(0), 3), 1),
            ((at(10), 1), -1),
        ]
        # One that has not closed yet and is swallowed is never shown.
        assert take([("a", [(0, 15, 3), (20, 30, 1), (40, 50, 1)])], 3, 16) == []
        assert take([("a", [(0, 15, 3), (20, 50, 3)])], 4, 16) == []
        release = one.advance(watermark=60, now=0)
        assert weighted(release.changes) == [((at(20), 3), 1)]
        one.apply(release)
        assert len(one.pending) == 0
        assert len(sets) == 2
