"""Clocks, and the exact way between microseconds and datetimes."""

import time
from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import TimeRangeError
from millstream.model.clock import (
    EPOCH,
    ManualClock,
    from_datetime,
    system_clock,
    to_datetime,
)


def test_the_system_clock_tells_microseconds():
    assert time.time_ns() // 1000 <= system_clock() <= time.time_ns() // 1000


def test_a_manual_clock_moves_only_when_it_is_moved():
    clock = ManualClock(10)
    assert [clock(), clock()] == [10, 10]
    assert clock.advance(5) == 15
    assert clock.advance(-1) == 14
    assert clock() == 14
    assert repr(clock) == "ManualClock(14)"


@given(st.datetimes(timezones=st.just(UTC)))
def test_datetimes_come_back(when):
    assert to_datetime(from_datetime(when)) == when


@given(st.integers(-62135596800 * 10**6, 253402300800 * 10**6 - 1))
def test_microseconds_come_back(micros):
    assert from_datetime(to_datetime(micros)) == micros
    assert to_datetime(micros).tzinfo is UTC


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1)), st.integers(-1439, 1439))  # noqa: DTZ001
def test_zones_are_converted_and_none_is_utc(when, minutes):
    offset = timedelta(minutes=minutes)
    aware = when.replace(tzinfo=timezone(offset))
    assert to_datetime(from_datetime(aware)) == aware
    assert from_datetime(when) == from_datetime(when.replace(tzinfo=UTC))


@pytest.mark.parametrize("micros", [253402300800 * 10**6, -62135596800 * 10**6 - 1, 2**63, 10**40])
def test_times_beyond_the_calendar_are_refused(micros):
    with pytest.raises(TimeRangeError, match="outside the years"):
        to_datetime(micros)


@pytest.mark.parametrize("value", [date(2024, 1, 1), 5, None])
def test_only_datetimes_have_microseconds(value):
    with pytest.raises(TimeRangeError, match="expected a datetime"):
        from_datetime(value)


def test_the_epoch_is_zero():
    assert from_datetime(EPOCH) == 0
