"""Joins by inequalities: rows are ordered by what the condition compares."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from millstream.testing import TIMEOUT

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
DOUBLES = [0.0, -0.0, 1.5, -1.5, float("nan"), float("inf"), float("-inf"), 1e300, None]
CONDITIONS = {
    "within": "a.n BETWEEN b.low AND b.high",
    "less": "a.n < b.low",
    "at_least": "a.n >= b.high",
    "other_types": "a.small > b.low AND a.small <= b.x",
    "doubles": "a.x >= b.x AND a.x < b.high",
    "days": "a.day > b.day",
    "times": "a.ts BETWEEN b.ts - INTERVAL '10' SECOND AND b.ts + INTERVAL '1' MINUTE",
    "both_shifted": "a.ts + INTERVAL '5' SECOND < b.ts - INTERVAL '5' SECOND",
    "with_a_key": "a.k = b.k AND a.n > b.low AND a.n <> b.high",
    "may_fail": "a.n > b.low AND (b.low = 0 OR a.n <= 100 / b.low)",
}
JOINS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")


def row_of(dice, key):
    """A row of either table; values repeat, some are NULL."""

    def some(values):
        return dice.choice([*values, None])

    low = some(range(-5, 6))
    return (
        key,
        dice.randrange(3),
        some(range(-5, 6)),
        some([-128, -1, 0, 3, 127]),
        dice.choice(DOUBLES),
        some(NOON.date() + timedelta(days=n) for n in range(-2, 3)),
        some(NOON + timedelta(seconds=5 * n) for n in range(-4, 15)),
        low,
        None if low is None else low + dice.randrange(4),
    )


@pytest.fixture
def tables(db):
    columns = (
        "id INT PRIMARY KEY, k INT, n BIGINT, small TINYINT, x DOUBLE, day DATE, "
        "ts TIMESTAMP, low INT, high BIGINT"
    )
    db.execute(f"CREATE TABLE a ({columns}); CREATE TABLE b ({columns})")
    return db


def check(db, views):
    for name, query in views.items():
        db.wait_for(name, timeout=TIMEOUT)
        found = db.query(f"SELECT * FROM {name}").fetchall()
        assert sorted(found, key=repr) == sorted(db.query(query).fetchall(), key=repr), query


@pytest.mark.parametrize("join", JOINS)
def test_against_duckdb(tables, join):
    dice, db = random.Random(join), tables
    views = {
        name: f"SELECT a.id AS one, b.id AS two FROM a {join} b ON {condition}"
        for name, condition in CONDITIONS.items()
    }
    for name in "ab":
        db.insert(name, [row_of(dice, key) for key in range(12)])
    for name, query in views.items():
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    check(db, views)
    for _ in range(3):
        for name in "ab":
            keys = dice.sample(range(16), 5)
            db.insert(name, [row_of(dice, key) for key in keys], replace=True)
            db.execute(
                f"DELETE FROM {name} WHERE id IN ({dice.randrange(16)}, {dice.randrange(16)})"
            )
        check(db, views)
