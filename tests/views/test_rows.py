"""The rows of a view: against a plain dict, both ways, through every kind of key."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model import ChangeBatch, Schema
from millstream.model.schema import Column
from millstream.model.type_text import parse_type
from millstream.views import hashes as hashing
from millstream.views import rows as rows_module
from millstream.views import runs as runs_module
from millstream.views.rows import Rows

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
            for cut, told in ((self.width, changes), (None, stored)):
                pair = (old and old[:cut], new and new[:cut])
                if pair[0] != pair[1]:
                    told += [(r, w) for r, w in zip(pair, (-1, 1), strict=True) if r is not None]
        return changes, stored


def weighted(batch):
    if batch is None:
        return []
    return list(zip(map(plain_row, batch.rows), batch.weights, strict=True))


def held(rows, *, stored=True):
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
times = st.booleans()


def batches(results):
    return st.lists(st.lists(st.tuples(results, st.booleans()), max_size=12), max_size=12)


def check(rows, model, steps, *, few):
    """Every step tells what the model tells, and leaves what the model has."""
    committed = []
    for step in steps:
        given_rows, shown = [row for row, _ in step], [there for _, there in step]
        rows._few = few(step)
        before = held(rows)
        diff = rows.diff(spark(given_rows, rows.stored_schema, shown))
        assert held(rows) == before
        changes, stored = model.step(given_rows, shown)
        assert weighted(diff.changes) == changes
        assert weighted(diff.stored) == stored
        rows.apply(diff)
        assert held(rows) == sorted(model.rows.values(), key=repr)
        assert held(rows, stored=False) == sorted(
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

    monkeypatch.setattr("millstream.views.runs.hash_columns", colliding)
    monkeypatch.setattr("millstream.views.compare.hash_columns", colliding)
    monkeypatch.setattr(
        rows_module, "one_hasher", lambda types: (lambda key, f=one(types): f(key) % 3)
    )


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
    @given(batches(result))
    def test_keys_among_the_columns(self, few, steps):
        committed = check(Rows(SCHEMA, ("k", "x")), Model((0, 1), 4), steps, few=few)
        again, model = Rows(SCHEMA, ("k", "x")), Model((0, 1), 4)
        for batch in committed:
            model.step(batch.rows, [weight > 0 for weight in batch.weights])
            again.load(batch)
        assert held(again) == sorted(model.rows.values(), key=repr)

    @given(batches(wide_result))
    def test_hidden_keys(self, few, steps):
        schema = Schema.of(k="VARCHAR", x="DOUBLE", n="BIGINT", v="DOUBLE")
        rows = Rows(schema, ("x", "_k0"), HIDDEN)
        check(rows, Model((1, 4), 4), steps, few=few)

    @given(batches(result))
    def test_no_keys(self, few, steps):
        schema = Schema.of(k="VARCHAR", x="DOUBLE", n="BIGINT", v="DOUBLE")
        check(Rows(schema, ()), Model((), 4), steps, few=few)
