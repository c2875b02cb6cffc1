"""The rows of a view: against a plain dict, both ways, through every kind of key."""

from __future__ import annotations

import math
import threading
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import SchemaMismatchError
from millstream.model import Schema
from millstream.model.batch import ChangeBatch
from millstream.model.schema import Column
from millstream.model.types import parse_type
from millstream.state import keys as hashing
from millstream.state import rows as rows_module
from millstream.state.rows import Rows

from ..effort import effort  # noqa: TID252 - tests have no name
from ..model.strategies import filled  # noqa: TID252

SCHEMA = Schema.of(key=("k", "x"), k="VARCHAR", x="DOUBLE", n="BIGINT", v="DOUBLE")
HIDDEN = (Column("_k0", parse_type("BIGINT")), Column("_end", parse_type("TIMESTAMP")))
SHOWN = pa.field("_shown", pa.bool_())


def spark(rows, schema, shown=None):
    """A batch as it comes from Spark: the stored columns and whether a group is shown."""
    batch = schema.rows_to_arrow(rows)
    if shown is None:
        return batch
    fields = [*batch.schema, SHOWN]
    return pa.RecordBatch.from_arrays([*batch.columns, pa.array(shown)], schema=pa.schema(fields))


def plain(value):
    """A value such that two are equal when GROUP BY says so."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, list):
        return tuple(map(plain, value))
    if isinstance(value, dict):
        return tuple((key, plain(each)) for key, each in value.items())
    return value


def plain_row(row):
    return tuple(map(plain, row))


class Model:
    """A dict of rows by key, and the changes that a batch makes to it."""

    def __init__(self, keys, width):
        self.keys, self.width, self.rows = keys, width, {}

    def step(self, rows, shown):
        latest = {}
        for row, there in zip(rows, shown, strict=True):
            row = plain_row(row)
            key = tuple(row[place] for place in self.keys)
            latest.pop(key, None)
            latest[key] = row if there else None
        changes, stored = [], []
        for key, new in latest.items():
            old = self.rows.pop(key, None)
            if new is not None:
                self.rows[key] = new
            for cut, expected in ((self.width, changes), (None, stored)):
                pair = (old and old[:cut], new and new[:cut])
                if pair[0] != pair[1]:
                    expected += [
                        (r, w) for r, w in zip(pair, (-1, 1), strict=True) if r is not None
                    ]
        return changes, stored


def weighted(batch):
    if batch is None:
        return []
    return list(zip(map(plain_row, batch.rows), batch.weights, strict=True))


def contents(rows, *, stored=True):
    table = rows.snapshot(stored=stored)
    schema = rows.stored_schema if stored else rows.schema
    assert table.schema.equals(schema.arrow)
    return sorted(
        (plain_row(row) for batch in table.to_batches() for row in schema.arrow_to_rows(batch)),
        key=repr,
    )


floats = st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf, None])
result = st.tuples(
    st.sampled_from(["", "a", "b", "längeres Wort", "x" * 300, None]),
    floats,
    st.integers(0, 2),
    floats,
)
wide_result = st.tuples(
    *(st.sampled_from(["a", None]), floats, st.integers(0, 2), floats),
    *(st.integers(0, 3), st.just(datetime(2024, 1, 1, tzinfo=UTC))),
)


def batches(results):
    return st.lists(st.lists(st.tuples(results, st.booleans()), max_size=12), max_size=12)


def check(rows, model, steps, *, few):
    """Every step gives the changes of the model, and leaves its rows."""
    committed = []
    for step in steps:
        given_rows, shown = [row for row, _ in step], [there for _, there in step]
        rows.few = few(step)
        before = contents(rows)
        diff = rows.diff(spark(given_rows, rows.stored_schema, shown))
        assert contents(rows) == before
        changes, stored = model.step(given_rows, shown)
        assert weighted(diff.changes) == changes
        assert weighted(diff.stored) == stored
        rows.apply(diff)
        assert contents(rows) == sorted(model.rows.values(), key=repr)
        assert contents(rows, stored=False) == sorted(
            (row[: model.width] for row in model.rows.values()), key=repr
        )
        assert len(rows) == len(model.rows)
        if diff.stored is not None:
            committed.append(diff.stored)
    return committed


@pytest.fixture(params=[False, True], ids=["hashed", "colliding"])
def hashes(request, monkeypatch):
    """All is well with good hashes, and slower but as well with three of them for all keys."""
    if not request.param:
        return
    many, one = hashing.hash_columns, hashing.one_hasher

    def colliding(*arguments):
        return many(*arguments) % np.uint64(3)

    monkeypatch.setattr("millstream.state.runs.hash_columns", colliding)

    def colliding_one(types):
        hash_one = one(types)
        return lambda key: hash_one(key) % 3

    monkeypatch.setattr(rows_module, "one_hasher", colliding_one)


@pytest.fixture(params=[3, 4096], ids=["small", "large"])
def overlay(request, monkeypatch):
    """Recent rows that are frozen again and again, or never."""
    monkeypatch.setattr(rows_module, "_MOST", request.param)


WAYS = {
    "rows": lambda _step: 64,
    "arrow": lambda _step: 0,
    "both": lambda step: 6,
}


@pytest.mark.parametrize("few", WAYS.values(), ids=WAYS)
@pytest.mark.usefixtures("hashes", "overlay")
class TestAgainstADict:
    @settings(max_examples=40)
    @given(batches(result))
    def test_keys_among_the_columns(self, few, steps):
        committed = check(Rows(SCHEMA, ("k", "x")), Model((0, 1), 4), steps, few=few)
        again, model = Rows(SCHEMA, ("k", "x")), Model((0, 1), 4)
        for batch in committed:
            model.step(batch.rows, [weight > 0 for weight in batch.weights])
            again.load(batch)
        assert contents(again) == sorted(model.rows.values(), key=repr)

    @settings(max_examples=40)
    @given(batches(wide_result))
    def test_hidden_keys(self, few, steps):
        schema = Schema.of(k="VARCHAR", x="DOUBLE", n="BIGINT", v="DOUBLE")
        rows = Rows(schema, ("x", "_k0"), HIDDEN)
        check(rows, Model((1, 4), 4), steps, few=few)

    @settings(max_examples=20)
    @given(batches(result))
    def test_no_keys(self, few, steps):
        schema = Schema.of(k="VARCHAR", x="DOUBLE", n="BIGINT", v="DOUBLE")
        check(Rows(schema, ()), Model((), 4), steps, few=few)


NESTED = Schema.of(
    k="ARRAY<DOUBLE>", m="MAP<VARCHAR, DOUBLE>", s="STRUCT<a ARRAY<BIGINT>, b DOUBLE>"
)
nested_result = st.tuples(
    st.sampled_from([None, [], [0.0], [-0.0, None], [math.nan]]),
    st.sampled_from([None, {}, {"a": 0.0}, {"a": math.nan}, {"b": None, "a": 1.0}]),
    st.sampled_from([None, {"a": None, "b": 0.0}, {"a": [1, None], "b": math.nan}]),
)


class TestEveryType:
    @given(batches(nested_result))
    def test_nested_keys_and_values(self, steps):
        check(Rows(NESTED, ("k",)), Model((0,), 3), steps, few=lambda _step: 0)

    @given(filled(), st.data())
    def test_all_types_as_keys_both_ways(self, drawn, data):
        schema, rows = drawn
        flat = [c.name for c in schema.columns if not c.type.children]
        keys = data.draw(st.lists(st.sampled_from(flat), unique=True)) if flat else []
        places = tuple(schema.names.index(name) for name in keys)
        schema = Schema(schema.columns)
        step = st.tuples(st.sampled_from(rows or [None]), st.booleans())
        steps = data.draw(st.lists(st.lists(step, max_size=5), max_size=5)) if rows else []
        few = 0 if schema.is_nested else 64
        for least in {0, few}:
            held_rows = Rows(schema, keys)
            check(held_rows, Model(places, len(schema.columns)), steps, few=lambda _step: least)

    def test_a_year_that_python_does_not_have(self):
        schema = Schema.of(key=("t",), t="TIMESTAMP", n="BIGINT")
        rows = Rows(schema, ("t",))
        far = pa.array([300_000_000_000_000_000], pa.int64()).view(schema.arrow.field(0).type)

        def put(number):
            batch = pa.RecordBatch.from_arrays([far, pa.array([number])], schema=schema.arrow)
            diff = rows.diff(batch)
            rows.apply(diff)
            return diff.changes

        assert put(1).weights == [1]
        assert put(2).arrow.column(1).to_pylist() == [1, 2]
        assert put(2) is None
        assert len(rows) == 1


class TestRows:
    def test_final_rows_are_not_revised(self):
        schema = Schema.of(key=("k",), k="VARCHAR", n="BIGINT")
        for few in (64, 0):
            rows = Rows(schema, ("k",))
            rows.few = few
            rows.apply(rows.diff(spark([("a", 1)], schema)))
            batch = spark([("a", 2), ("b", 1)], schema)
            diff = rows.diff(batch, revise=False)
            assert weighted(diff.changes) == [(("b", 1), 1)]
            rows.apply(diff)
            assert contents(rows) == [("a", 1), ("b", 1)]
            assert rows.diff(batch, keep=np.zeros(2, bool), revise=False).changes is None

    def test_groups_that_are_not_kept_are_retracted(self):
        schema = Schema.of(key=("k",), k="VARCHAR", n="BIGINT")
        rows = Rows(schema, ("k",))
        rows.apply(rows.diff(spark([("a", 1), ("b", 2)], schema)))
        diff = rows.diff(spark([("a", 9), ("c", 9)], schema), keep=np.zeros(2, bool))
        assert weighted(diff.changes) == [(("a", 1), -1)]

    @pytest.mark.parametrize("few", [64, 0])
    def test_a_diff_is_applied_once(self, few):
        rows = Rows(SCHEMA, ("k", "x"))
        rows.few = few
        diff = rows.diff(spark([("a", 1.0, 1, 1.0)], SCHEMA))
        rows.apply(diff)
        with pytest.raises(AssertionError, match="once"):
            rows.apply(diff)

    def test_a_column_that_is_missing_is_named(self):
        with pytest.raises(SchemaMismatchError, match="lacks x, n, v"):
            Rows(SCHEMA, ("k",)).diff(pa.RecordBatch.from_pydict({"k": ["a"]}))

    def test_types_are_cast_and_columns_found_by_name(self):
        schema = Schema.of(key=("k",), k="VARCHAR", t="TIMESTAMP")
        rows = Rows(schema, ("k",))
        naive = pa.array([7], pa.int64()).cast(pa.timestamp("us"))
        rows.apply(rows.diff(pa.RecordBatch.from_pydict({"t": naive, "_hash": [1], "k": ["a"]})))
        assert contents(rows) == [("a", datetime(1970, 1, 1, 0, 0, 0, 7, tzinfo=UTC))]

    def test_a_snapshot_stays_as_it_was(self):
        schema = Schema.of(key=("k",), k="BIGINT", n="BIGINT")
        rows = Rows(schema, ("k",))
        many = [(n, 0) for n in range(1000)]
        rows.apply(rows.diff(spark(many, schema)))
        rows.apply(rows.diff(spark([(1, 1)], schema)))
        before = rows.snapshot()
        content = before.to_pylist()
        rows.apply(rows.diff(spark([(n, 2) for n, _ in many], schema)))
        rows.apply(rows.diff(spark([(1, 3)], schema)))
        assert before.to_pylist() == content

    def test_a_step_in_the_middle_of_a_snapshot_is_not_seen(self, monkeypatch):
        schema = Schema.of(key=("k",), k="BIGINT", n="BIGINT")
        rows = Rows(schema, ("k",))
        rows.few = 0
        rows.apply(rows.diff(spark([(k, 0) for k in range(9)], schema)))
        rows.apply(rows.diff(spark([(1, 1)], schema)))
        steps = [rows.diff(spark([(2, 2)], schema))]
        living = rows_module.living  # type: ignore[attr-defined]

        def meanwhile(*arguments):
            while steps:
                rows.apply(steps.pop())
            return living(*arguments)

        monkeypatch.setattr(rows_module, "living", meanwhile)
        assert contents(rows) == [(0, 0), (1, 1), *((k, 0) for k in range(2, 9))]
        assert contents(rows) == [(0, 0), (1, 1), (2, 2), *((k, 0) for k in range(3, 9))]

    def test_readers_see_each_step_atomically(self):
        """Every step moves all rows from one number to the next, by a few rows or by many."""
        schema = Schema.of(key=("k",), k="BIGINT", n="BIGINT")
        rows = Rows(schema, ("k",))
        rows.apply(rows.diff(spark([(k, 0) for k in range(200)], schema)))
        seen, done = [], threading.Event()

        def read():
            while not done.is_set():
                seen.append(set(rows.snapshot().column("n").to_pylist()))

        reader = threading.Thread(target=read)
        reader.start()
        try:
            for number in range(1, 300):
                rows.few = 1000 if number % 3 else 0
                rows.apply(rows.diff(spark([(k, number) for k in range(200)], schema)))
        finally:
            done.set()
            reader.join()
        assert all(len(numbers) == 1 for numbers in seen)


@pytest.mark.slow
class TestRuns:
    @settings(max_examples=effort(30, 300))
    @given(st.lists(st.integers(1, 300), max_size=40), st.randoms(use_true_random=False))
    def test_they_stay_few_and_alive(self, sizes, random):
        schema = Schema.of(key=("k",), k="BIGINT", n="BIGINT")
        rows = Rows(schema, ("k",))
        rows.few = 0
        model = {}
        for number, size in enumerate(sizes):
            batch = [(random.randrange(1000), number) for _ in range(size)]
            shown = [random.random() < 0.7 for _ in batch]
            rows.apply(rows.diff(spark(batch, schema, shown)))
            for (k, n), there in zip(batch, shown, strict=True):
                model.pop(k, None)
                if there:
                    model[k] = n
        rows._compact()
        assert contents(rows) == sorted(model.items(), key=repr)
        assert [run.live for run in rows.runs] == [int(run.alive.sum()) for run in rows.runs]
        for run in rows.runs:
            assert run.live >= len(run.alive) / 2
            assert (np.diff(run.index[0].astype(object)) >= 0).all()
        for large, small in pairwise(rows.runs):
            assert large.live >= 2 * small.live


def test_restored_rows_are_as_they_were():
    """They are hashed when one is looked for."""
    schema = Schema.of(key=("k",), k="BIGINT", n="VARCHAR")
    rows = Rows(schema, ("k",))
    rows.apply(rows.diff(pa.RecordBatch.from_pydict({"k": range(3000), "n": ["x"] * 3000})))
    saved = rows.snapshot(stored=True)
    again = Rows(schema, ("k",))
    for batch in saved.combine_chunks().to_batches():
        again.restore(ChangeBatch(schema, None, batch, None))
    assert len(again) == 3000
    assert again.snapshot() == rows.snapshot()
    assert again.runs[0]._index is None
    for news in ({"k": [7, 5000], "n": ["y", "z"]}, {"k": range(2000), "n": ["z"] * 2000}):
        batch = pa.RecordBatch.from_pydict(news)
        diffs = [each.diff(batch) for each in (rows, again)]
        assert diffs[0].changes.rows == diffs[1].changes.rows
        for each, diff in zip((rows, again), diffs, strict=True):
            each.apply(diff)
    assert sorted(again.snapshot().to_pylist(), key=str) == sorted(
        rows.snapshot().to_pylist(), key=str
    )
