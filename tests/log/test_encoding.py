"""A few rows of one topic are encoded in one step: to the same bytes as by the long way."""

from __future__ import annotations

import pyarrow as pa
import pytest

from millstream.log import encoding
from millstream.log.frame import link
from millstream.log.queue import Entry, Part
from millstream.log.topics import Topic
from millstream.model import ChangeBatch, Schema

SCHEMA = Schema.of(k="VARCHAR", n="BIGINT", x="DOUBLE")
TOPIC = Topic(7, "t", (SCHEMA,))


def entry(rows, weights=None, watermark=None, cause=0, lsn=40):
    batch = ChangeBatch(SCHEMA, rows, None, None if weights is None else pa.array(weights))
    batch.watermark, batch.cause = watermark, cause
    batch.put_at("t", lsn, 1_000_000, (None, 1))
    return Entry([Part(TOPIC, 0, batch)], lsn)


FEW = [
    entry([("a", 1, 0.5)]),
    entry([("a", 1, 0.5), ("a", 2, None)], weights=[-1, 1], cause=39),
    entry([("a", 1, 0.5)] * 3, watermark=5, cause=39),
]


@pytest.mark.parametrize("few", FEW)
def test_it_is_the_same_frame(few):
    before = (3, 128)
    made = encoding._encode_few(few, 12, before)
    assert [made] == link(encoding._encode_run([few], 12), before)
    assert encoding.encode_entries([few], 12, before) == [made]


def test_what_is_not_of_a_few_rows_takes_the_long_way():
    for other in (
        entry([], watermark=5),
        entry([("a", n, 0.5) for n in range(100)]),
        Entry([*FEW[0].parts, *FEW[1].parts], 40),
        entry([("a", "no number", 0.5)]),
    ):
        assert encoding._encode_few(other, 12, (3, 128)) is None


def test_one_that_cannot_be_encoded_leaves_its_neighbours_alone():
    broken = entry([("a", "no number", 0.5)])
    made = encoding.encode_entries([FEW[0], broken, FEW[1]], 12, (3, 128))
    assert [each.frame.span for each in made] == [1, 2]
    assert broken.error is not None
    first, second = made
    assert (first.frame.previous_topic, first.frame.previous_size) == (3, 128)
    assert (second.frame.previous_topic, second.frame.previous_size) == (7, first.frame.size)
