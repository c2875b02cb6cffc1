"""Rows find the same partition in Python's form and in Arrow's, and for ever."""

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.batch import ChangeBatch
from millstream.model.schema import Schema
from millstream.views.partitions.keys import EVERY, KINDS, Partitioner, split
from millstream.views.run.columns import INITIAL, LOG

VALUES = {
    "BOOLEAN": st.booleans(),
    "TINYINT": st.integers(-128, 127),
    "SMALLINT": st.integers(-(2**15), 2**15 - 1),
    "INTEGER": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "VARCHAR": st.text(st.characters(exclude_categories=["Cs"])),
    "BINARY": st.binary(),
    "DATE": st.dates(),
    "TIMESTAMP": st.datetimes(timezones=st.just(UTC)),
}


def partitions(kinds, count=5):
    made = Partitioner(count)
    made.keys = (tuple((f"c{n}", f"c{n}", kind) for n, kind in enumerate(kinds)),)
    return made


def batch_of(kinds, rows):
    schema = Schema.of({f"c{n}": kind for n, kind in enumerate(kinds)})
    return ChangeBatch(schema, schema.check_rows(rows), None, None)


@given(st.data())
def test_rows_and_arrow_agree(data):
    kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    row = st.tuples(*(st.none() | VALUES[kind] for kind in kinds))
    rows = data.draw(st.lists(row, min_size=1, max_size=20))
    batch = batch_of(kinds, rows)
    found = partitions(kinds).of_rows(0, batch)
    assert partitions(kinds).of_feed(batch.arrow).tolist() == found
    assert set(found) <= set(range(5))


def test_parts_never_change():
    """Checkpoints count on it."""
    row = ("AAPL", 7, date(2026, 3, 1), datetime(2026, 3, 1, 12, tzinfo=UTC), True, None, b"\x00")
    kinds = ("VARCHAR", "BIGINT", "DATE", "TIMESTAMP", "BOOLEAN", "INTEGER", "BINARY")
    assert partitions(kinds, 1 << 20).of_rows(0, batch_of(kinds, [row])) == [122333]
    letters = batch_of(["VARCHAR"], [(letter,) for letter in "abcdef"])
    assert partitions(["VARCHAR"], 4).of_rows(0, letters) == [3, 1, 3, 0, 2, 0]


def test_logs_of_a_feed_have_keys_of_their_own():
    made = Partitioner(1 << 20)
    made.keys = ((("a", "_0_a", "VARCHAR"),), (("b", "_1_b", "VARCHAR"),))
    feed = pa.record_batch(
        {
            "_0_a": ["x", None, "y", None],
            "_1_b": [None, "x", None, None],
            LOG: pa.array([0, 1, 0, INITIAL], pa.int32()),
        }
    )
    first, second, third, last = made.of_feed(feed).tolist()
    assert first == second != third
    assert last == EVERY


@pytest.mark.parametrize("found", [[0, 0, 0], [2, 0, 2]])
def test_split(found):
    data = pa.record_batch({"n": [1, 2, 3]})
    rows = {partition: each.column(0).to_pylist() for partition, each in split(data, found).items()}
    assert rows == {p: [n for n, q in zip((1, 2, 3), found, strict=True) if q == p] for p in found}
