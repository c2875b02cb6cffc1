"""Which Python values belong to which type, and what they become."""

import enum
import zoneinfo
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from millstream.errors import SchemaMismatchError
from millstream.model.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    INTERVAL,
    REAL,
    SCALARS,
    SMALLINT,
    TIMESTAMP,
    TINYINT,
    VARCHAR,
    array_type,
    decimal_type,
    map_type,
    struct_type,
)


class Colour(str, enum.Enum):  # noqa: UP042 - str() of this kind gives its name
    RED = "red"


class Size(enum.IntEnum):
    BIG = 3


class Nanoseconds(datetime):
    nanosecond = 5


class Nowhere(tzinfo):
    def utcoffset(self, when):
        return None


BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)
POINT = struct_type({"x": DOUBLE, "y": BIGINT})


@pytest.mark.parametrize(
    ("sql_type", "value", "canonical"),
    [
        (BOOLEAN, True, True),
        (TINYINT, -128, -128),
        (SMALLINT, np.int16(5), 5),
        (INTEGER, Size.BIG, 3),
        (BIGINT, 2**63 - 1, 2**63 - 1),
        (BIGINT, np.uint64(7), 7),
        (REAL, 0.1, 0.10000000149011612),
        (REAL, 2**24, 16777216.0),
        (REAL, 2**60, float(2**60)),
        (REAL, float("inf"), float("inf")),
        (DOUBLE, 2**53, 9007199254740992.0),
        (DOUBLE, np.float32(0.5), 0.5),
        (DOUBLE, np.float64(0.5), 0.5),
        (decimal_type(5, 2), Decimal("1.5"), Decimal("1.50")),
        (decimal_type(5, 2), Decimal("999.99"), Decimal("999.99")),
        (decimal_type(5, 2), 12, Decimal("12.00")),
        (decimal_type(5, 2), Decimal("1.5000000"), Decimal("1.50")),
        (decimal_type(5, 0), Decimal("1E+2"), Decimal(100)),
        (decimal_type(5, 2), Decimal("-0"), Decimal("0.00")),
        (decimal_type(38, 38), Decimal("0." + "9" * 38), Decimal("0." + "9" * 38)),
        (VARCHAR, "häß \U0001f600 \x00", "häß \U0001f600 \x00"),
        (VARCHAR, Colour.RED, "red"),
        (VARCHAR, np.str_("x"), "x"),
        (BINARY, bytearray(b"\xff"), b"\xff"),
        (BINARY, memoryview(b"abc")[::2], b"ac"),
        (DATE, date(1, 1, 1), date(1, 1, 1)),
        (TIMESTAMP, NOON, NOON),
        (TIMESTAMP, NOON.replace(tzinfo=None), NOON),
        (TIMESTAMP, NOON.replace(tzinfo=Nowhere()), NOON),  # type: ignore[abstract]
        (TIMESTAMP, NOON.astimezone(BERLIN), NOON),
        (TIMESTAMP, NOON.replace(tzinfo=zoneinfo.ZoneInfo("UTC")), NOON),
        (INTERVAL, timedelta(microseconds=-1), timedelta(microseconds=-1)),
        (INTERVAL, timedelta(days=-106751991), timedelta(days=-106751991)),
        (array_type(BIGINT), (1, None), [1, None]),
        (array_type(TIMESTAMP), [NOON.astimezone(BERLIN)], [NOON]),
        (POINT, {"y": 1}, {"x": None, "y": 1}),
        (POINT, (1, 2), {"x": 1.0, "y": 2}),
        (map_type(VARCHAR, POINT), {"a": (None, 1)}, {"a": {"x": None, "y": 1}}),
    ],
)
def test_values_that_belong(sql_type, value, canonical):
    checked = sql_type.check(value)
    assert checked == canonical
    assert repr(checked) == repr(canonical)
    assert type(checked) is type(canonical)
    assert sql_type.check(checked) == canonical


@pytest.mark.parametrize(
    ("sql_type", "value"),
    [
        *((BOOLEAN, value) for value in (1, 0, "true", np.True_)),
        *((TINYINT, value) for value in (128, -129)),
        *((BIGINT, value) for value in (True, 1.0, 1.5, "1", Decimal(1), 2**63, -(2**63) - 1)),
        *((BIGINT, value) for value in (np.True_, np.array([1, 2]), NOON, np.uint64(2**63))),
        *((DOUBLE, value) for value in (True, "1", Decimal("0.5"), Fraction(1, 2), 2**53 + 1)),
        *((DOUBLE, value) for value in (10**400, 1j, np.longdouble(1) / 3)),
        *((REAL, value) for value in (1e39, 2**24 + 1, True, "1")),
        *((decimal_type(5, 2), Decimal(text)) for text in ("1.234", "1000", "NaN", "sNaN", "-Inf")),
        *((decimal_type(5, 2), value) for value in (1.5, True, "1", 1000, Decimal("1E+999999"))),
        *((VARCHAR, value) for value in (b"x", 1, "\ud800", "ok\udfff")),
        *((BINARY, value) for value in ("x", 1, [1, 2])),
        *((DATE, value) for value in (NOON, "2024-01-01", 5)),
        *((TIMESTAMP, value) for value in (0, "2024-01-01", date(2024, 1, 1), 1.5)),
        (TIMESTAMP, Nanoseconds(2024, 1, 1, tzinfo=UTC)),
        (TIMESTAMP, datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))),
        (TIMESTAMP, np.datetime64("2024-01-01")),
        *((INTERVAL, value) for value in (5, timedelta.max, timedelta.min, "1 day")),
        (INTERVAL, timedelta(microseconds=-(2**63))),
        *((array_type(BIGINT), value) for value in ("ab", {1: 2}, 5, [1.5], [[1]], {1})),
        *((POINT, value) for value in ((1,), (1, 2, 3), {"z": 1}, {"x": "1"}, [1, 2], {1: 2})),
        *((map_type(VARCHAR, BIGINT), value) for value in ({None: 1}, {"a": "b"}, {1: 1})),
        (map_type(VARCHAR, BIGINT), [("a", 1)]),
        (map_type(TIMESTAMP, BIGINT), {NOON: 1, NOON.replace(tzinfo=None): 2}),
        (map_type(REAL, BIGINT), {0.1: 1, 0.10000000149011612: 2}),
    ],
)
def test_values_that_do_not_belong(sql_type, value):
    with pytest.raises(SchemaMismatchError, match="expected") as caught:
        sql_type.check(value)
    assert type(value).__name__ in caught.value.message or sql_type.children
    assert caught.value.hint
    with pytest.raises(SchemaMismatchError):
        sql_type.check_column([value], nullable=True)


def test_an_int_too_long_to_print_is_refused_all_the_same():
    for value in (10**5000, [10**5000]):
        with pytest.raises(SchemaMismatchError, match="too many digits"):
            BIGINT.check(value)


def test_nan_is_a_number_here():
    assert np.isnan(DOUBLE.check(float("nan")))
    assert np.isnan(REAL.check(np.float32("nan")))


def test_pandas_scalars_are_taken_only_if_nothing_is_lost():
    pd = pytest.importorskip("pandas")
    assert type(TIMESTAMP.check(pd.Timestamp(NOON))) is datetime
    assert TIMESTAMP.check(pd.Timestamp(NOON).tz_convert("Europe/Berlin")) == NOON
    assert type(INTERVAL.check(pd.Timedelta(days=1))) is timedelta
    for sql_type, value in [
        (TIMESTAMP, pd.Timestamp(NOON).as_unit("ns") + pd.Timedelta(1, "ns")),
        (INTERVAL, pd.Timedelta(1, "ns")),
        *((each, pd.NaT) for each in (DATE, TIMESTAMP, INTERVAL)),
        *((each, pd.NA) for each in SCALARS),
        (DATE, pd.Timestamp(NOON)),
    ]:
        with pytest.raises(SchemaMismatchError):
            sql_type.check(value)
