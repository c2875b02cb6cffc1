"""The watermark of one source: a function of its log, and of promises."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from millstream.model import ChangeBatch, Schema
from millstream.model.clock import from_datetime
from millstream.sources.event_time import EventTime

SCHEMA = Schema.of(n="BIGINT", ts="TIMESTAMP")
START = datetime(2024, 1, 1, tzinfo=UTC)

seconds = st.none() | st.integers(-100, 100)
pushes = st.lists(st.tuples(st.lists(seconds, max_size=4), seconds), max_size=10)


def batch(times, watermark=None, *, arrow=False):
    rows = [(0, None if s is None else START + timedelta(seconds=s)) for s in times]
    made = ChangeBatch(SCHEMA, rows, None, None, watermark=watermark)
    return ChangeBatch(SCHEMA, None, made.arrow, None, watermark=watermark) if arrow else made


def micros(second):
    return from_datetime(START + timedelta(seconds=second))


@given(pushes, st.booleans())
def test_is_the_newest_row_less_the_delay_or_the_newest_promise(script, arrow):
    clock = EventTime(1, 5_000_000)
    known = []
    for times, promise in script:
        mark = None if promise is None else micros(promise)
        one = batch(times, mark, arrow=arrow)
        before = max(known, default=None)
        known += [micros(s - 5) for s in times if s is not None]
        known += [] if mark is None else [mark]
        clock.observe(one)
        now = max(known, default=None)
        assert clock.logged == clock.value == now
        # What did not move is not written again; a batch without rows has nothing else to say.
        assert one.watermark == (now if now != before or not times else None)


@given(pushes)
def test_a_replay_gives_the_same(script):
    """The last watermark in the batches is the one of the source that wrote them."""
    clock = EventTime(1)
    seen = None
    for times, promise in script:
        one = batch(times, None if promise is None else micros(promise))
        clock.observe(one)
        seen = seen if one.watermark is None else one.watermark
    assert seen == clock.logged
    assert EventTime(1, 0, seen).value == seen


def test_never_goes_back():
    clock = EventTime(1, 0, micros(50))
    one = batch([10, 20])
    clock.observe(one)
    assert clock.logged == micros(50)
    assert one.watermark is None


def test_a_promise_is_seen_before_it_is_logged():
    clock = EventTime()
    assert clock.value is None
    assert clock.promise(10)
    assert (clock.value, clock.logged) == (10, None)
    clock.observe(batch([], 10))
    assert (clock.value, clock.logged) == (10, 10)


def test_a_promise_that_says_nothing_new_is_none():
    clock = EventTime(1)
    clock.observe(batch([10]))
    assert not clock.promise(micros(10))
    assert not clock.promise(micros(9))
    assert clock.promise(micros(11))
    assert not clock.promise(micros(11))


def test_without_a_column_rows_say_nothing():
    clock = EventTime()
    clock.observe(batch([10]))
    assert clock.value is None
