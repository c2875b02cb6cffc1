"""Literals: which texts are dates, times and intervals, as Spark 4.3 reads them."""

from datetime import UTC, date, datetime, timedelta

import pytest

from millstream.sql.expressions.literals import number, parse_date, parse_interval, parse_timestamp


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2020-01-05", date(2020, 1, 5)),
        (" 2020-1-5 ", date(2020, 1, 5)),
        ("2020", date(2020, 1, 1)),
        ("2020-13-01", None),
        ("2020-02-30", None),
        ("٢٠٢٠-01-01", None),
        ("20-01-01", None),
        ("", None),
    ],
)
def test_dates(text, value):
    assert parse_date(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2020-01-01", datetime(2020, 1, 1, tzinfo=UTC)),
        ("2020-1-1 1:2:3", datetime(2020, 1, 1, 1, 2, 3, tzinfo=UTC)),
        ("2020-01-01 00:00:00.5Z", datetime(2020, 1, 1, 0, 0, 0, 500000, UTC)),
        ("2020-01-01T10:00:00 UTC", datetime(2020, 1, 1, 10, tzinfo=UTC)),
        ("2020-01-01 00:00:00 +01:00", datetime(2019, 12, 31, 23, tzinfo=UTC)),
        ("2020-01-01 00:00:00-18:00", datetime(2020, 1, 1, 18, tzinfo=UTC)),
        ("2020-01-01 00:00", datetime(2020, 1, 1, tzinfo=UTC)),
        ("2020-01-01 00:00Z", None),
        ("2020-01-01Z", None),
        ("2020-01-01 24:00:00", None),
        ("2020-01-01 00:00:60", None),
        ("2020-01-01 00:00:00+18:30", None),
        ("0001-01-01 00:00:00+01:00", None),
        ("2020-01-01 00:00:00 Europe/Berlin", None),
        ("now", None),
    ],
)
def test_timestamps(text, value):
    assert parse_timestamp(text) == value


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("5", "SECONDS", timedelta(seconds=5)),
        (" +1 ", "DAY", timedelta(days=1)),
        ("-1.5", "SECOND", timedelta(seconds=-1.5)),
        ("1", "WEEK", timedelta(days=7)),
        ("3", "MILLISECONDS", timedelta(milliseconds=3)),
        ("1 day -2 hours", "", timedelta(hours=22)),
        ("1.5 seconds", "", timedelta(seconds=1.5)),
        ("1.5", "HOUR", None),
        ("1", "MONTH", None),
        ("1 year", "", None),
        ("1 day and more", "", None),
        ("1", "", None),
        ("", "DAY", None),
        ("999999999999", "DAY", None),
    ],
)
def test_intervals(text, unit, value):
    assert parse_interval(text, unit) == value


def test_numbers_of_too_many_digits_are_none():
    assert number("1" * 39) is None
    assert number("0." + "1" * 39) is None
    assert number("1" * 38).type.sql == "DECIMAL(38, 0)"
