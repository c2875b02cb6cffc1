"""Queries of Nexmark, an auction site's, as live views: exact after every push, against DuckDB.

Persons, auctions and bids are sources; what q13 and q20 look up are tables, whose rows change.
``make proof`` runs all queries.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from ..effort import effort  # noqa: TID252
from ..seed import SEED  # noqa: TID252
from .against_duckdb import Model, Proof

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
INT, TEXT, TIME = pa.int64(), pa.string(), pa.timestamp("us", tz="UTC")
COLUMNS = {
    "person": {"id": INT, "name": TEXT, "city": TEXT, "state": TEXT, "ts": TIME},
    "auction": {
        "id": INT,
        "item": TEXT,
        "reserve": INT,
        "ts": TIME,
        "expires": TIME,
        "seller": INT,
        "category": INT,
    },
    "bid": {"auction": INT, "bidder": INT, "price": INT, "channel": TEXT, "ts": TIME},
    "side_input": {"key": INT, "value": TEXT},
    "listing": {"id": INT, "item": TEXT, "category": INT},
}
SCHEMAS = {name: pa.schema(list(columns.items())) for name, columns in COLUMNS.items()}
KEYS = {"side_input": ("key",), "listing": ("id",)}
SQL_TYPES = {INT: "BIGINT", TEXT: "VARCHAR", TIME: "TIMESTAMP"}

TEN = "INTERVAL '10 seconds'"
HOP = "HOP(ts, INTERVAL '2 seconds', INTERVAL '10 seconds')"
COUNTS = f"""(SELECT auction, COUNT(*) AS num, HOP_START(ts) AS starts, HOP_END(ts) AS ends
    FROM bid GROUP BY auction, {HOP})"""
QUERIES = {
    "3": """SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "4": """SELECT q.category, AVG(q.final) AS average FROM (SELECT MAX(b.price) AS final,
        a.category FROM auction a, bid b WHERE a.id = b.auction AND b.ts BETWEEN a.ts AND a.expires
        GROUP BY a.id, a.category) q GROUP BY q.category""",
    "5": f"""SELECT c.auction, c.num, c.starts FROM {COUNTS} c JOIN (SELECT MAX(num) AS most,
        starts, ends FROM {COUNTS} GROUP BY starts, ends) m
        ON c.starts = m.starts AND c.ends = m.ends AND c.num >= m.most""",
    "7": f"""SELECT b.auction, b.price, b.bidder, b.ts FROM bid b JOIN (SELECT MAX(price) AS most,
        TUMBLE_END(ts, {TEN}) AS ends FROM bid GROUP BY TUMBLE(ts, {TEN})) m ON b.price = m.most
        WHERE b.ts BETWEEN m.ends - {TEN} AND m.ends""",
    "8": f"""SELECT p.id, p.name, p.starts FROM (SELECT id, name, TUMBLE_START(ts) AS starts,
        TUMBLE_END(ts) AS ends FROM person GROUP BY id, name, TUMBLE(ts, {TEN})) p JOIN (SELECT
        seller, TUMBLE_START(ts) AS starts, TUMBLE_END(ts) AS ends FROM auction
        GROUP BY seller, TUMBLE(ts, {TEN})) a
        ON p.id = a.seller AND p.starts = a.starts AND p.ends = a.ends""",
    "13": """SELECT b.auction, b.bidder, b.price, b.ts, s.value FROM bid b JOIN side_input s
        ON MOD(b.auction, 16) = s.key""",
    "20": """SELECT b.auction, b.bidder, b.price, b.channel, b.ts, l.item FROM bid b JOIN listing l
        ON b.auction = l.id WHERE l.category = 10""",
}
HOPS = """(SELECT *, TIME_BUCKET(INTERVAL '2 seconds', ts) - INTERVAL 2 SECONDS * i AS starts
    FROM bid, (VALUES (0), (1), (2), (3), (4)) h(i))"""
BUCKET = f"TIME_BUCKET({TEN}, ts)"
COUNTED = f"(SELECT auction, COUNT(*) AS num, starts FROM {HOPS} GROUP BY auction, starts)"
IN_DUCKDB = {
    "5": f"""SELECT c.auction, c.num, c.starts FROM {COUNTED} c JOIN (SELECT MAX(num) AS most,
        starts FROM {COUNTED} GROUP BY starts) m ON c.starts = m.starts AND c.num >= m.most""",
    "7": f"""SELECT b.auction, b.price, b.bidder, b.ts FROM bid b JOIN (SELECT MAX(price) AS most,
        {BUCKET} + {TEN} AS ends FROM bid GROUP BY {BUCKET}) m ON b.price = m.most
        WHERE b.ts BETWEEN m.ends - {TEN} AND m.ends""",
    "8": f"""SELECT p.id, p.name, p.starts FROM (SELECT id, name, {BUCKET} AS starts FROM person
        GROUP BY ALL) p JOIN (SELECT seller, {BUCKET} AS starts FROM auction GROUP BY ALL) a
        ON p.id = a.seller AND p.starts = a.starts""",
}
CHOSEN = effort(["4", "5", "8"], [*QUERIES])
PUSHES = effort(5, 12)


class Site:
    """Draws what happens on the site, as time goes on."""

    def __init__(self, dice):
        self._dice = dice
        self._seconds = 0.0
        self._people = self._auctions = 0

    def events(self, count):
        """The rows of the next events, by source: of 50, 3 are persons, and 9 auctions."""
        rows = {"person": [], "auction": [], "bid": []}
        for _ in range(count):
            self._seconds += self._dice.choice([0.1, 0.3, 1.5])
            drawn = self._dice.random()
            kind = "person" if drawn < 0.1 else "auction" if drawn < 0.3 else "bid"
            rows[kind].append(getattr(self, f"_{kind}")())
        return rows

    def _now(self):
        late = self._dice.choice([0.0, 0.0, 4.0])  # no row comes too late
        return NOON + timedelta(seconds=round(self._seconds - late, 1))

    def _one_of(self, count):
        """One of those that there are, rather a new one; or one that is yet to come."""
        return max(0, count - self._dice.choice([-1, 0, 0, 1, 2, 5, 9]))

    def _person(self):
        self._people += 1
        city, state = self._dice.choice([("Phoenix", "AZ"), ("Boise", "ID"), ("Portland", "OR")])
        return (self._people, f"n{self._dice.randrange(9)}", city, state, self._now())

    def _auction(self):
        self._auctions += 1
        now, category = self._now(), self._dice.choice([10, 11, 12])
        expires = now + timedelta(seconds=self._dice.choice([1, 5, 20]))
        seller, reserve = self._one_of(self._people), self._dice.randrange(100)
        return (self._auctions, f"i{self._auctions}", reserve, now, expires, seller, category)

    def _bid(self):
        channel = self._dice.choice(["Google", "Apple", None])
        price = self._dice.randrange(50)
        return (
            self._one_of(self._auctions),
            self._one_of(self._people),
            price,
            channel,
            self._now(),
        )


def change_tables(proof, dice):
    """Rows of the tables come, get another value, or go."""
    keys = dice.sample(range(16), 5)
    proof.insert("side_input", [(key, dice.choice("abc")) for key in keys])
    proof.insert("listing", [(key, f"l{key}", dice.choice([10, 11])) for key in keys])
    proof.update("side_input", {"value": "d"}, {"value": "a"})
    proof.update("listing", {"category": 10}, {"category": 11})
    proof.delete("side_input", {"key": keys[0]})
    proof.delete("listing", {"id": keys[0]} if dice.random() < 0.8 else {})
    proof.insert("listing", [(key, f"m{key}", dice.choice([10, 11])) for key in keys[1:]])


def create(db):
    """The sources and tables."""
    for name, columns in COLUMNS.items():
        key = KEYS.get(name, ())
        text = ", ".join(
            f"{column} {SQL_TYPES[kind]}{' PRIMARY KEY' if column in key else ''}"
            for column, kind in columns.items()
        )
        db.execute(f"CREATE {'TABLE' if key else 'SOURCE'} {name} ({text})")


@pytest.fixture
def proof(db):
    create(db)
    return Proof(db, Model(SCHEMAS), KEYS)


def test_nexmark(proof):
    dice = random.Random(SEED)
    site = Site(dice)
    for number in range(PUSHES):
        for name, rows in site.events(60 if number == 0 else dice.choice([1, 5, 30])).items():
            if rows:
                proof.insert(name, rows)
        change_tables(proof, dice)
        if number == 0:  # some rows are there, and some will come
            for query in CHOSEN:
                sql = QUERIES[query]
                proof.view(f"q{query}", sql, IN_DUCKDB.get(query, sql))
        proof.check()
