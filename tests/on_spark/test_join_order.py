"""The order of joins: by primary keys, and exact whatever changes."""

from __future__ import annotations

import random

import pytest

from millstream.testing import TIMEOUT

from ..seed import SEED  # noqa: TID252

TABLES = {"item": "ord sup q", "ord": "cust d", "cust": "nat q", "sup": "nat q", "nat": "size q"}
CHAIN = (
    "FROM cust c, ord o, item i, sup s, nat n WHERE c.id = o.cust AND i.ord = o.id"
    " AND s.id = i.sup AND s.nat = n.id"
)
OTHERS = "SELECT * FROM item j WHERE j.ord = i.ord AND j.sup <> i.sup"
QUERIES = {
    "filtered": f"SELECT i.id, c.q, n.size AS x {CHAIN} AND n.q > 2 AND o.d < 4",
    "unfiltered": f"SELECT i.q, c.nat, n.size AS x {CHAIN}",
    "across": f"SELECT n.id, SUM(i.q) AS s {CHAIN} AND c.nat = s.nat AND n.q > 1 GROUP BY n.id",
    "compared": f"SELECT i.id, n.q {CHAIN} AND n.q > c.q AND o.d BETWEEN 1 AND 4",
    "exists": f"SELECT s.id, COUNT(*) AS c {CHAIN} AND n.q > 1 AND EXISTS ({OTHERS})"
    f" AND NOT EXISTS ({OTHERS} AND j.q > 3) GROUP BY s.id",
    "one_join": f"SELECT i.id FROM item i, sup s WHERE i.sup = s.id AND s.q > 2 AND EXISTS"
    f" ({OTHERS})",
    "not_in": "SELECT i.id, s.nat FROM item i JOIN sup s ON i.sup = s.id JOIN nat n ON"
    " n.id = s.nat WHERE n.q > 1 AND i.ord NOT IN (SELECT cust FROM ord WHERE d = 1)",
    "of_groups": "SELECT i.id, g.n FROM item i JOIN ord o ON o.id = i.ord AND o.d > 1 JOIN"
    " (SELECT nat, COUNT(*) AS n FROM cust GROUP BY nat) g ON g.nat = o.cust",
    "twice": f"WITH r AS (SELECT i.id, i.q, s.nat, n.q AS w, c.q AS v {CHAIN} AND n.q > 2)"
    " SELECT a.id, b.v FROM r a JOIN r b ON a.id = b.q AND a.w = b.nat",
}


@pytest.fixture
def tables(db):
    for name, columns in TABLES.items():
        typed = ", ".join(f"{column} INT" for column in columns.split())
        db.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, {typed})")
    return db


def some(dice):
    return dice.choice([None, *range(6)])


def test_exact(tables):
    dice = random.Random(SEED)
    for name, query in QUERIES.items():
        tables.execute(f"CREATE MATERIALIZED VIEW v_{name} AS {query}")
    filled = False
    for _ in range(6):
        for name, columns in TABLES.items():
            rows = [(n, some(dice), some(dice), some(dice)) for n in dice.sample(range(8), 5)]
            width = 1 + len(columns.split())
            tables.insert(name, [each[:width] for each in rows], replace=True)
            tables.execute(f"DELETE FROM {name} WHERE id = {dice.randrange(8)}")
        for name, query in QUERIES.items():
            tables.wait_for(f"v_{name}", timeout=TIMEOUT)
            found = tables.query(f"SELECT * FROM v_{name}").fetchall()
            expected = tables.query(query).fetchall()
            assert sorted(found, key=repr) == sorted(expected, key=repr), name
            filled = filled or bool(found)
    assert filled


@pytest.mark.parametrize(
    ("query", "order"),
    [
        ("filtered", ["ord", "nat", "sup", "cust"]),
        ("exists", ["nat", "sup", "ord", "cust", "ord where", "ord where"]),
    ],
)
def test_shown(tables, query, order):
    """What leaves rows out is joined first, with what it refers to; EXISTS comes after that."""
    explained = tables.query(f"EXPLAIN CREATE MATERIALIZED VIEW v AS {QUERIES[query]}")
    joins = [line for (line,) in explained.fetchall() if " join by " in line]
    for line, by in zip(joins, order, strict=True):
        assert f" join by {by}" in line, joins
