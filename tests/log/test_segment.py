from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from millstream.log.frame import Kind, encode
from millstream.log.segment import MOST_RANGES, STRIDE, SegmentIndex


def built(steps, base=1):
    """An index over frames of (topic, span, size); with where each frame is."""
    index, offset, lsn, places = SegmentIndex(base, {}), 100, base, []
    for time, (topic, span, size) in enumerate(steps, 1):
        payload = bytes(size)
        frame = encode(
            Kind.ROWS, payload, topic=topic, first_lsn=lsn, span=span, committed_at=time
        ).frame
        index.add(frame, offset)
        places.append((lsn, offset, time))
        offset += frame.size
        lsn += span
    return index, places, lsn


steps = st.lists(
    st.tuples(
        st.integers(1, 3), st.integers(1, 50), st.sampled_from([0, 100, STRIDE // 3, STRIDE])
    ),
    min_size=1,
    max_size=40,
)


@given(steps, st.data())
def test_an_offset_is_at_or_before_the_frame_and_close_to_it(steps, data):
    index, places, end = built(steps)
    lsn = data.draw(st.integers(1, end - 1))
    frame_at = max(offset for first, offset, _ in places if first <= lsn)
    found = index.offset_of(lsn, 0)
    assert found in {offset for _, offset, _ in places}
    assert found <= frame_at
    assert frame_at - found < 2 * STRIDE + 128


@given(steps, st.data())
def test_an_offset_for_a_time_is_not_after_its_first_frame(steps, data):
    index, places, _ = built(steps)
    time = data.draw(st.integers(0, len(steps)))
    first = min(offset for _, offset, t in places if t >= time)
    assert index.offset_at(time, 0) <= first


@given(steps)
def test_it_is_the_same_after_json(steps):
    index, _, _ = built(steps)
    again = SegmentIndex.from_json(json.loads(json.dumps(index.to_json())))
    assert again.to_json() == index.to_json()


@given(steps)
def test_extents_add_up(steps):
    index, _, end = built(steps)
    assert sum(e.rows for e in index.extents.values()) == sum(span for _, span, _ in steps)
    assert max(e.last_lsn for e in index.extents.values()) == end - 1
    assert index.end_lsn == end
    assert (index.first_time, index.last_time) == (1, len(steps))


def test_an_empty_one_gives_the_default():
    index = SegmentIndex(5, {})
    assert index.offset_of(7, 42) == 42
    assert index.offset_at(7, 42) == 42
    assert index.end_lsn == 5


@given(steps, st.sets(st.integers(1, 4)), st.data())
def test_no_frame_of_a_topic_is_outside_its_ranges(steps, topics, data):
    index, places, _ = built(steps * 4)
    offsets = [offset for _, offset, _ in places]
    start, end = sorted(data.draw(st.tuples(*[st.sampled_from([*offsets, 1 << 40])] * 2)))
    ranges = index.ranges_of(topics, start, end)
    assert ranges == sorted(ranges)
    if start == end:
        assert ranges == [(start, end)]
    else:
        assert all(start <= first < last <= end for first, last in ranges)
    for (topic, _, _), offset in zip(steps * 4, offsets, strict=True):
        if topic in topics and start <= offset < end:
            assert sum(first <= offset < last for first, last in ranges) == 1
    assert all(len(each.ranges) <= MOST_RANGES for each in index.extents.values())


def test_ranges_of_a_rare_topic_are_small():
    index, _, _ = built(([(1, 1, 1000)] * 100 + [(2, 1, 10)]) * 500)
    ranges = index.ranges_of({2}, 0, 1 << 40)
    assert sum(end - start for start, end in ranges) < 0.99 * index.extents[1].size
    index, _, _ = built([(2, 1, 10)] * 5 + [(1, 1, 1000)] * 9000 + [(2, 1, 10)])
    assert sum(end - start for start, end in index.ranges_of({2}, 0, 1 << 40)) < 1000
