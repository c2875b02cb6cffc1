"""Watermarks move forward only, and several together are as late as the latest."""

from hypothesis import given
from hypothesis import strategies as st

from millstream.model.clock import MonotonicWatermark, combine

values = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(values))
def test_a_watermark_is_the_greatest_so_far(steps):
    watermark = MonotonicWatermark()
    for count, step in enumerate(steps, 1):
        before = watermark.value
        moved = watermark.advance(step)
        assert moved == (watermark.value != before)
        assert watermark.value == max(steps[:count])


def test_a_watermark_begins_unknown_or_at_a_given_time():
    assert MonotonicWatermark().value is None
    watermark = MonotonicWatermark(5)
    assert not watermark.advance(5)
    assert watermark.advance(6)
    assert repr(watermark) == "MonotonicWatermark(6)"


def test_before_1970_is_a_time_too():
    assert MonotonicWatermark().advance(-1)


@given(st.lists(values, min_size=1))
def test_together_they_are_the_least(several):
    assert combine(several) == min(several)


@given(st.lists(values), st.lists(values))
def test_one_unknown_makes_all_unknown(some, others):
    assert combine([*some, None, *others]) is None


def test_no_input_knows_nothing():
    assert combine([]) is None
