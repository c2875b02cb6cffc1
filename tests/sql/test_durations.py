"""Durations are read exactly, and written so that they are read back."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import InvalidOptionError
from millstream.sql import duration_text, parse_duration


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("7 days", timedelta(days=7)),
        ("1 WEEK", timedelta(weeks=1)),
        ("90s", timedelta(seconds=90)),
        (" 1 hour, 30 minutes ", timedelta(minutes=90)),
        ("1.5 hours", timedelta(minutes=90)),
        ("500ms 3us", timedelta(microseconds=500_003)),
        ("-1 day", timedelta(days=-1)),
        ("1 day - 2 hours", timedelta(hours=22)),
        ("0 seconds", timedelta(0)),
    ],
)
def test_texts(text, duration):
    assert parse_duration(text) == duration


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is not a duration"),
        ("7", "is not a duration"),
        ("days", "is not a duration"),
        ("7 days and", "is not a duration"),
        ("7 moons", "not a unit of time"),
        ("7 m", "not a unit of time"),
        ("1 month", "not always of the same length"),
        ("2 years", "not always of the same length"),
        ("0.5 us", "part of a microsecond"),
        ("999999999999 days", "too long"),
        ("٣ days", "is not a duration"),
    ],
)
def test_no_durations(text, reason):
    with pytest.raises(InvalidOptionError, match=reason) as caught:
        parse_duration(text)
    assert caught.value.hint


@given(st.timedeltas())
def test_what_is_written_is_read(duration):
    assert parse_duration(duration_text(duration)) == duration
