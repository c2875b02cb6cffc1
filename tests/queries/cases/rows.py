"""The rows that ad-hoc queries are tried on, by Spark and by us."""

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from millstream.model import Schema

TRADES = Schema.of(
    id="INTEGER NOT NULL",
    symbol="VARCHAR",
    price="DOUBLE",
    small="REAL",
    qty="BIGINT",
    lot="INTEGER",
    tiny="TINYINT",
    fee="DECIMAL(10, 2)",
    wide="DECIMAL(38, 6)",
    ok="BOOLEAN",
    day="DATE",
    ts="TIMESTAMP",
    note="BINARY",
    tags="ARRAY<VARCHAR>",
    pair="STRUCT<a INT, b VARCHAR>",
)
SYMBOLS = Schema.of(
    symbol="VARCHAR NOT NULL", name="VARCHAR", rank="INTEGER", rate="DOUBLE", key=("symbol",)
)
VENUES = Schema.of(symbol="VARCHAR", venue="VARCHAR", big="BIGINT")

_PRICES = [1.5, math.nan, -0.0, 0.0, None, 100.25, -7.75, math.inf, 2.5, 1e15, 0.1]
_NAMES = ["AAPL", "MSFT", None, "aapl", "Ünï", "", "AAPL", "MSFT"]
_START = datetime(2025, 12, 31, 23, 58, 30, tzinfo=UTC)


def _time(place):
    if place % 11 == 5:
        return None
    if place % 9 == 4:
        return datetime(1969, 12, 31, 23, 59, 59, 999999, UTC) + timedelta(seconds=place)
    return _START + timedelta(seconds=(place * 37) % 211, microseconds=place % 3)


def _trade(place):
    fee = None if place % 6 == 2 else Decimal(place * 137 - 1500).scaleb(-2)
    return (
        place,
        _NAMES[place % len(_NAMES)],
        _PRICES[place % len(_PRICES)],
        None if place % 7 == 3 else [0.5, -1.25, 3.0][place % 3],
        None if place % 5 == 3 else place * 1_000_003 - 7,
        [3, 1, None, 2][place % 4],
        place % 3 - 1,
        fee,
        None if fee is None else fee * 1_000_003 / 8,
        [True, False, None][place % 3],
        None if place % 8 == 6 else date(2024, 2, 27) + timedelta(days=place * 40),
        _time(place),
        [b"", b"\x00", None, b"\xff"][place % 4],
        [None, [], ["x"], ["y", None]][place % 4],
        None if place % 5 == 1 else {"a": place % 3, "b": None if place % 2 else "b"},
    )


ROWS = {
    "trades": [_trade(place) for place in range(44)],
    "symbols": [
        ("AAPL", "Apple", 1, 0.5),
        ("MSFT", "Microsoft", 2, -0.0),
        ("aapl", None, None, math.nan),
        ("", "empty", 3, 0.0),
        ("TSLA", "Tesla", 2, None),
    ],
    "venues": [
        ("AAPL", "NYSE", 1),
        ("AAPL", "NASDAQ", None),
        (None, "OTC", 2**62),
        ("Ünï", "XETRA", -5),
        ("GONE", None, 7),
    ],
    "nothing": [],
}
SCHEMAS = {"trades": TRADES, "symbols": SYMBOLS, "venues": VENUES, "nothing": TRADES}


def is_ordered(sql):
    """Whether a query says in which order its rows come: ORDER BY at its end."""
    return "ORDER BY" in sql.rsplit(")", 1)[-1]


def plain(value):
    """A value as JSON can hold it: floats by their digits, times and decimals as text."""
    for kinds, write in _WRITERS:
        if isinstance(value, kinds):
            return write(value)
    return value


_WRITERS = (
    (float, repr),
    (Decimal, str),
    (datetime, lambda value: value.replace(tzinfo=None).isoformat()),
    (date, date.isoformat),
    (timedelta, lambda value: value // timedelta(microseconds=1)),
    ((bytes, bytearray), lambda value: value.hex()),
    (dict, lambda value: [plain(each) for each in value.values()]),
    ((list, tuple), lambda value: [plain(each) for each in value]),
)
