"""Times of any zone in UTC: always what the zone itself says, however the times come."""

import io
import struct
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.zones import UtcTimes

BERLIN = ZoneInfo("Europe/Berlin")
SPRING = datetime(2026, 3, 29, 2)  # noqa: DTZ001 - the clocks in Berlin go from 2 to 3
AUTUMN = datetime(2026, 10, 25, 3)  # noqa: DTZ001 - and from 3 back to 2


def zone_of(*transitions):
    """A zone that changes at some seconds of 1970, in UTC, to offsets in seconds."""
    times = [second for second, _ in transitions]
    offsets = [0, *(offset for _, offset in transitions)]
    types = b"".join(struct.pack(">lbB", offset, 0, 0) for offset in offsets)
    counts = struct.pack(">6l", 0, 0, 0, len(times), len(offsets), 4)
    body = bytes(range(1, len(offsets))) + types + b"ZZZ\0"
    first = b"TZif2" + bytes(15) + counts + struct.pack(f">{len(times)}l", *times) + body
    second = b"TZif2" + bytes(15) + counts + struct.pack(f">{len(times)}q", *times) + body
    return ZoneInfo.from_file(io.BytesIO(first + second + b"\n\n"), key="Test")


ERRATIC = zone_of((100_000, 3600), (100_003, 0), (100_005, 7), (100_009, 3600), (107_000, -1))


class Elsewhere(tzinfo):
    """A zone of another class, whose offset depends on the microsecond."""

    def utcoffset(self, when):
        return timedelta(hours=when.microsecond % 7)

    def dst(self, _):
        return None

    tzname = dst


ELSEWHERE = Elsewhere()
steps = st.lists(st.integers(-3_000_000, 5_000_000), min_size=1, max_size=60)
starts = st.sampled_from(
    [
        *((BERLIN, SPRING), (BERLIN, AUTUMN), (BERLIN, AUTUMN - timedelta(hours=1))),
        (ZoneInfo("Africa/Monrovia"), datetime(1972, 1, 7, 0, 44, 30)),  # noqa: DTZ001 - +0:44:30
        (ZoneInfo("Pacific/Apia"), datetime(2011, 12, 30)),  # noqa: DTZ001 - a day that was not
        (ERRATIC, datetime(1970, 1, 2, 3, 46, 38)),  # noqa: DTZ001
        (ERRATIC, datetime(1970, 1, 2, 4, 46, 38)),  # noqa: DTZ001
        (timezone(timedelta(hours=-5, microseconds=3)), AUTUMN),
        (ELSEWHERE, AUTUMN),
        (BERLIN, datetime(1, 1, 1, 0, 53, 20)),  # noqa: DTZ001 - near the first moment in UTC
        (ZoneInfo("America/New_York"), datetime(9999, 12, 31, 18, 59, 57)),  # noqa: DTZ001
    ]
)


def in_utc(times, when):
    """What it is in UTC; None when it cannot be said."""
    try:
        return times.of(when)
    except OverflowError:
        return None


def by_the_zone(when):
    try:
        return when.astimezone(UTC)
    except OverflowError:
        return None


@given(starts, steps, st.sets(st.integers(0, 59)))
def test_times_that_come_close_together(start, steps, second_ones):
    zone, local = start
    times = UtcTimes()
    for number, step in enumerate(steps):
        when = local.replace(tzinfo=zone, fold=int(number in second_ones))
        found = in_utc(times, when)
        assert repr(found) == repr(by_the_zone(when))
        assert found is None or found.tzinfo is UTC
        try:
            local += timedelta(microseconds=step)
        except OverflowError:
            break


@given(st.lists(st.datetimes(timezones=st.timezones()), max_size=20))
def test_times_of_all_zones(drawn):
    times = UtcTimes()
    for when in drawn * 2:
        assert repr(in_utc(times, when)) == repr(by_the_zone(when))


def test_what_is_known_of_a_zone_is_used_again():
    times, zone = UtcTimes(), ZoneInfo.no_cache("Europe/Berlin")
    for number in range(3_000):
        times.of(AUTUMN.replace(tzinfo=zone) + timedelta(milliseconds=number))
    start, end, _ = times.stretches[zone]
    assert end - start == timedelta(seconds=3)
    fixed = timezone(timedelta(hours=1))
    times.of(AUTUMN.replace(tzinfo=fixed))
    assert list(times.fixed) == [timezone(timedelta(hours=1))]


def test_zones_that_are_made_for_one_time_do_not_fill_memory():
    times = UtcTimes()
    for number in range(1_000):
        when = AUTUMN.replace(tzinfo=ZoneInfo.no_cache("Europe/Berlin"))
        assert times.of(when) == times.of(when) == datetime(2026, 10, 25, 2, tzinfo=UTC)
        assert times.of(AUTUMN.replace(tzinfo=timezone(timedelta(0, number)))) == (
            AUTUMN.replace(tzinfo=UTC) - timedelta(0, number)
        )
    assert len(times.fixed) + len(times.stretches) < 200


def test_a_zone_without_an_offset():
    class Nowhere(tzinfo):
        def utcoffset(self, _):
            return None

        tzname = dst = utcoffset

    with pytest.raises(TypeError):
        UtcTimes().of(AUTUMN.replace(tzinfo=Nowhere()))
