"""Rows one by one, pushed in batches."""

from __future__ import annotations

import pytest

from millstream.errors import ClosedError, InvalidOptionError, RowError
from millstream.testing import TIMEOUT, engine_of


@pytest.fixture
def writer(db):
    db.execute("CREATE SOURCE s (n BIGINT NOT NULL, t VARCHAR)")
    return db.writer("s", batch_rows=3)


def test_pushes_when_a_batch_is_full(db, writer, rows):
    subscription = db.subscribe("SELECT n FROM s")
    writer.write((1, "a"))
    writer.write({"n": 2})
    assert (writer.pending, rows("s")) == (2, [])
    writer.write((3, None))
    assert writer.pending == 0
    assert subscription.recv(TIMEOUT).rows == [(1,), (2,), (3,)]


def test_takes_one_row_or_several(writer, rows):
    writer.insert({"n": 1})
    writer.insert([(2, "b"), {"n": 3}, (4, "d")])
    assert writer.pending == 1
    writer.push()
    writer.push()
    assert rows("s") == [(1, None), (2, "b"), (3, None), (4, "d")]


def test_flush_pushes_and_waits(db, writer):
    writer.write((1, "a"))
    lsn = writer.flush()
    assert lsn == db.lsn
    assert engine_of(db).log.durable_lsn >= lsn
    assert writer.pending == 0


def test_a_bad_row_is_found_when_its_batch_is_pushed_and_nothing_is_lost(writer, rows):
    writer.write((1, "a"))
    writer.write((None, "b"))
    with pytest.raises(RowError) as caught:
        writer.write((3, "c"))
    assert (caught.value.row, caught.value.column) == (1, "n")
    assert (writer.pending, rows("s")) == (3, [])


def test_a_watermark_comes_after_what_was_written(db, writer):
    subscription = db.subscribe("SELECT n FROM s")
    writer.write((1, "a"))
    writer.watermark(77)
    seen = []
    while not any(batch.watermark for batch in seen):
        seen.append(subscription.recv(TIMEOUT))
    assert [row for batch in seen for row in batch.rows] == [(1,)]
    assert seen[-1].watermark == 77


def test_the_end_pushes_what_is_left(writer, rows):
    with writer:
        writer.write((1, "a"))
    assert rows("s") == [(1, "a")]
    writer.write((2, "b"))
    with pytest.raises(ClosedError):
        writer.push()


def test_an_error_leaves_what_was_not_pushed(writer, rows):
    with pytest.raises(ZeroDivisionError), writer:
        writer.write((1, "a"))
        raise ZeroDivisionError
    assert rows("s") == []


def test_its_handle_is_closed_even_if_the_rest_does_not_fit(db, writer):
    writer.write((None, "a"))
    with pytest.raises(RowError):
        writer.close()
    assert db.source("s").producer_count == 1


@pytest.mark.parametrize("size", [0, -1, True, "3", 1.5])
def test_a_batch_has_rows(db, size):
    db.execute("CREATE SOURCE s (n BIGINT)")
    with pytest.raises(InvalidOptionError):
        db.writer("s", batch_rows=size)
