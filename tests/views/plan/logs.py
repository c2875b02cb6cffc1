"""The logs that the tests of the planner read: their schemas, and rows with all that is odd."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal

from millstream.errors import ObjectNotFoundError
from millstream.model import Schema
from millstream.sql import Input

TRADES = Input(
    "trades",
    "source",
    Schema.of(
        symbol="VARCHAR", price="DOUBLE", qty="BIGINT", ts="TIMESTAMP", tags="ARRAY<VARCHAR>"
    ),
    event_time="ts",
)
ORDERS = Input(
    "orders",
    "source",
    Schema.of(
        {"symbol": "VARCHAR", "amount": "DECIMAL(10, 2)", "at": "TIMESTAMP", "Big Note": "VARCHAR"}
    ),
    event_time="at",
)
ACCOUNTS = Input(
    "accounts",
    "table",
    Schema.of(
        key=("id",),
        id="INT NOT NULL",
        symbol="VARCHAR",
        owner="VARCHAR",
        balance="DECIMAL(12, 2)",
        rate="DOUBLE",
        small="SMALLINT",
        active="BOOLEAN",
    ),
    retracts=True,
)
PLAIN = Input("plain", "source", Schema.of(k="VARCHAR", v="INT", at="TIMESTAMP"))
CHANGING = Input(
    "changing",
    "view",
    Schema.of(k="VARCHAR", v="DOUBLE", ts="TIMESTAMP"),
    retracts=True,
    event_time="ts",
)
PEOPLE = Input(
    "people",
    "table",
    Schema.of(key=("name",), name="VARCHAR NOT NULL", k="VARCHAR"),
    retracts=True,
)
LOGS = {each.name: each for each in (TRADES, ORDERS, ACCOUNTS, PLAIN, CHANGING, PEOPLE)}


def find(name):
    """The input of a name in any case, as the catalog would give it."""
    if name.lower() not in LOGS:
        raise ObjectNotFoundError(f"there is no {name}")
    return LOGS[name.lower()]


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


NAN = math.nan
ROWS = {
    "trades": [
        ("a", 1.5, 10, at("2026-01-01 00:00:10"), ["x", "y"]),
        ("b", 2.0, 20, at("2025-12-31 23:59:59.999999"), []),
        ("a", 3.0, None, at("2026-01-01 00:00:40"), ["x", None]),
        ("a", -0.0, 5, at("2026-01-01 00:01:00"), None),
        ("a", 0.0, 5, at("2026-01-01 00:00:10"), ["z"]),
        (None, NAN, 7, at("1969-12-31 23:59:30"), ["x"]),
        (None, 8.25, -7, at("1969-12-31 23:58:30"), ["x"]),
        ("b", None, 1, None, ["n"]),
        ("c", 4.0, 2**40, at("2024-02-29 12:00:00"), ["x", "x"]),
        ("b", 2.0, 20, at("2026-01-01 00:04:59"), ["y"]),
        ("a", 7.5, 1, at("2025-12-31 23:58:00"), ["y"]),
    ],
    "orders": [
        ("a", Decimal("1.25"), at("2026-01-01 00:00:20"), "it's"),
        ("b", Decimal("-2.50"), at("2025-12-31 23:59:00"), None),
        ("z", None, at("2026-01-01 00:03:00"), "ü"),
    ],
    "accounts": [
        (1, "a", "Ann", Decimal("10.10"), 0.1, 1, True),
        (2, "b", "Bob", Decimal("20.25"), 0.2, -3, False),
        (3, "c", "Ann", None, NAN, None, None),
        (4, "a", "Cid", Decimal("-5.00"), math.inf, 7, True),
        (5, None, None, Decimal("0.01"), None, 9, None),
    ],
    "plain": [
        ("a", 1, at("2026-01-01 00:00:10")),
        ("a", 2, at("2026-01-01 00:00:05")),
        ("b", 3, None),
    ],
    "changing": [
        ("a", 1.0, at("2026-01-01 00:00:10")),
        ("a", 2.5, at("2026-01-01 00:00:50")),
        ("b", None, at("2026-01-01 00:01:10")),
        ("b", 4.0, at("2026-01-01 00:01:20")),
    ],
    "people": [("Ann", "a"), ("Bob", "b")],
}
"""The rows that are there in the end; of a log that retracts, others came and went."""

GONE = {
    "accounts": [
        (1, "a", "Old", Decimal("99.99"), NAN, 100, False),
        (2, "b", "Bob", None, -math.inf, None, True),
        (9, "q", "Eve", Decimal("1.00"), 1e300, 5, True),
    ],
    "changing": [
        ("a", 100.0, at("2026-01-01 00:00:01")),
        ("a", -1.0, at("2026-01-01 00:00:59")),
        ("x", NAN, at("2026-01-01 00:00:20")),
    ],
}
"""Rows that came and went again before the end."""


def changes(name):
    """The log: rows with their weights, in order; what goes went in between."""
    log = [(row, 1) for row in GONE.get(name, [])]  # type: ignore[attr-defined]
    for place, row in enumerate(ROWS[name]):
        log.insert(2 * place, (row, 1))
    return log + [(row, -1) for row in GONE.get(name, [])]  # type: ignore[attr-defined]
