"""Late or not: by the place in the log, the same row by row and as Arrow, whatever the window."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from millstream.model import ChangeBatch, Schema
from millstream.views.plan.plan import Window
from millstream.views.run.inputs import WatermarkTracker

SCHEMA = Schema.of(n="BIGINT", ts="TIMESTAMP")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICRO = timedelta(microseconds=1)
MOMENTS = st.integers(-400, 400)


def batch(moments, watermark=None, *, arrow=False):
    rows = [(n, None if m is None else EPOCH + m * MICRO) for n, m in enumerate(moments)]
    made = ChangeBatch.from_rows(SCHEMA, rows)
    if arrow:
        made = ChangeBatch.from_arrow(SCHEMA, made.arrow)
    made.watermark = watermark
    return made


@st.composite
def windows(draw):
    kind = draw(st.sampled_from(["tumble", "hop", "session", "cumulate"]))
    step = draw(st.integers(1, 40))
    size = step * draw(st.integers(1, 4))
    if kind == "hop":
        size += draw(st.integers(0, 3))  # a hop need not divide its size
    offset = draw(st.integers(-50, 50)) if kind != "session" else 0
    return Window(kind, "ts", size, size if kind in {"tumble", "session"} else step, offset)


def ends(window, moment):
    """The ends of all windows that a moment is in, looked for one by one."""
    if window.kind == "session":
        return [moment + window.size]
    if window.kind == "cumulate":
        start = moment - (moment - window.offset) % window.size
        steps = range(start + window.slide, start + window.size + 1, window.slide)
        return [end for end in steps if end > moment]
    starts = range(moment - window.size - window.slide, moment + 1)
    return [
        start + window.size
        for start in starts
        if (start - window.offset) % window.slide == 0 and start <= moment < start + window.size
    ]


def split(tracker, made):
    kept, late, before = tracker.split(0, made)
    numbers = ([] if part is None else [row[0] for row in part.rows] for part in (kept, late))
    return (*numbers, before)


@given(windows(), MOMENTS, st.integers(0, 60), st.lists(MOMENTS | st.none(), min_size=1))
def test_late_when_all_its_windows_have_closed(window, mark, lateness, moments):
    expected = [
        n
        for n, moment in enumerate(moments)
        if moment is not None
        and ends(window, moment)
        and max(ends(window, moment)) <= mark - lateness
    ]
    for arrow in (False, True):
        tracker = WatermarkTracker(window, (1,), lateness, (mark,))
        kept, late, before = split(tracker, batch(moments, arrow=arrow))
        assert late == expected
        assert sorted([*kept, *late]) == list(range(len(moments)))
        assert (before, tracker.late) == (mark, len(expected))


@given(windows(), MOMENTS, st.integers(0, 60), st.lists(MOMENTS | st.none(), min_size=1))
def test_one_by_one_is_the_same(window, mark, lateness, moments):
    at_once = WatermarkTracker(window, (1,), lateness, (mark,))
    _, late, _ = split(at_once, batch(moments))
    singly = WatermarkTracker(window, (1,), lateness, (mark,))
    assert [n for n, m in enumerate(moments) if split(singly, batch([m]))[1]] == late
    assert singly.late == at_once.late


def test_rows_of_one_batch_are_never_late_against_each_other():
    tracker = WatermarkTracker(Window("tumble", "ts", 10, 10), (1,), 0, (None,))
    assert split(tracker, batch([500, 1], watermark=499))[:2] == ([0, 1], [])
    assert split(tracker, batch([500, 1]))[:2] == ([0], [1])


def test_watermarks_never_go_back():
    tracker = WatermarkTracker(Window("tumble", "ts", 10, 10), (1,), 0, (None,))
    for mark in (100, 50, None, -7):
        split(tracker, batch([200], watermark=mark))
        assert tracker.watermark == 100


def test_the_slowest_log_counts_and_those_without_time_do_not():
    tracker = WatermarkTracker(Window("tumble", "ts", 10, 10), (1, 1, None), 0, (None, None, None))
    tracker.advance(0, 100)
    assert tracker.watermark is None, "of the second log nothing is known"
    assert split(tracker, batch([0]))[1] == []
    tracker.advance(1, 40)
    assert tracker.watermark == 40
    tracker.advance(2, 5)
    assert tracker.watermark == 40
    kept, late, _ = tracker.split(2, batch([0]))
    assert (len(kept), late) == (1, None), "a table's rows are never late"


def test_without_a_window_nothing_is_late():
    tracker = WatermarkTracker(None, (1,), 0, (1000,))
    assert split(tracker, batch([-5, None]))[:2] == ([0, 1], [])


def test_a_batch_with_a_watermark_only():
    tracker = WatermarkTracker(Window("tumble", "ts", 10, 10), (1,), 0, (None,))
    kept, late, before = tracker.split(0, batch([], watermark=70))
    assert (len(kept), late, before, tracker.watermark) == (0, None, None, 70)


@given(
    windows(),
    st.integers(0, 20),
    st.lists(st.tuples(st.lists(MOMENTS, max_size=4), st.none() | MOMENTS, st.booleans())),
    st.integers(0, 10),
)
def test_going_on_from_an_offset_is_the_same(window, lateness, script, cut):
    """A tracker that begins in the middle, from an offset, decides the same."""
    tracker = WatermarkTracker(window, (1,), lateness, (None,))
    decided = []
    for place, (moments, mark, arrow) in enumerate(script):
        if place == cut:
            tracker = WatermarkTracker(
                window, (1,), lateness, tuple(tracker.watermarks), tracker.late
            )
        decided.append(split(tracker, batch(moments, mark, arrow=arrow)))
    complete = WatermarkTracker(window, (1,), lateness, (None,))
    assert decided == [split(complete, batch(moments, mark)) for moments, mark, _ in script]
    assert complete.late == tracker.late
