"""FOR SYSTEM_TIME AS OF in live views: each row with what a table had then, never corrected."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import millstream as ms
from millstream.errors import SqlUnsupportedError
from millstream.testing import Mirror

from .observing import rows_of, settle

TABLES = (
    "CREATE SOURCE orders (id INT, currency VARCHAR, country INT, ts TIMESTAMP);"
    "CREATE TABLE rates (currency VARCHAR PRIMARY KEY, rate INT);"
    "CREATE TABLE countries (id INT PRIMARY KEY, name VARCHAR);"
)
VIEWS = {
    "inner_": "SELECT o.id, r.rate FROM orders o"
    " JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.currency = r.currency",
    "outer_": "SELECT o.id, r.rate FROM orders o"
    " LEFT JOIN rates FOR SYSTEM_TIME AS OF PROCTIME() r ON r.currency = o.currency",
    "two": "SELECT o.id, r.rate, c.name FROM orders o"
    " LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.currency = r.currency"
    " LEFT JOIN countries FOR SYSTEM_TIME AS OF o.ts AS c ON o.country = c.id",
    "sums": "SELECT currency, SUM(rate) AS s FROM orders"
    " JOIN rates FOR SYSTEM_TIME AS OF orders.ts USING (currency) GROUP BY currency",
    "beside": "SELECT o.id, r.rate, c.name FROM orders o"
    " JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.currency = r.currency"
    " LEFT JOIN countries AS c ON o.country = c.id",
}


class World:
    """Random changes, and what each order was joined with."""

    def __init__(self, db, seed):
        self.db, self._chance = db, random.Random(seed)
        self.rates, self.countries, self.orders = {}, {}, []

    def change(self):
        what = self._chance.random()
        if what < 0.5:
            number = len(self.orders)
            currency = self._chance.choice(["a", "b", "c", None])
            country = self._chance.choice([1, 2, None])
            self.db.source("orders").push((number, currency, country, None))
            self.db.flush()
            found = self.rates.get(currency), self.countries.get(country)
            self.orders.append((number, currency, country, *found))
        elif what < 0.8:
            key, rate = self._chance.choice("abc"), self._chance.randrange(100)
            self.rates[key] = rate
            self.db.insert("rates", [(key, rate)], replace=True)
        elif what < 0.9:
            key = self._chance.choice("abc")
            self.rates.pop(key, None)
            self.db.execute("DELETE FROM rates WHERE currency = ?", [key])
        else:
            key, name = self._chance.choice([1, 2]), f"n{self._chance.randrange(50)}"
            self.countries[key] = name
            self.db.insert("countries", [(key, name)], replace=True)

    def expected(self):
        joined = [each for each in self.orders if each[3] is not None]
        sums = Counter()
        for each in joined:
            sums[each[1]] += each[3]
        return {
            "inner_": Counter((each[0], each[3]) for each in joined),
            "outer_": Counter((each[0], each[3]) for each in self.orders),
            "two": Counter((each[0], each[3], each[4]) for each in self.orders),
            "sums": Counter(sums.items()),
            "beside": Counter((each[0], each[3], self.countries.get(each[2])) for each in joined),
        }

    def check(self, views=VIEWS):
        settle(self.db, *views)
        expected = self.expected()
        for name in views:
            assert rows_of(self.db, name) == expected[name], name


def create(db, names, suffix=""):
    for name in names:
        db.execute(f"CREATE MATERIALIZED VIEW {name}{suffix} AS {VIEWS[name]}")


def test_rows_are_joined_once(db):
    db.execute(TABLES)
    create(db, VIEWS)
    mirror = Mirror(db.subscribe("SELECT * FROM two"))
    world = World(db, 5)
    for count in (1, 1, 5, 40, 1, 1, 60, 1):
        for _ in range(count):
            world.change()
        world.check()
    assert mirror.catch_up(db).rows == world.expected()["two"]
    db.execute("DELETE FROM rates")
    db.execute("UPDATE countries SET name = 'x'")
    world.countries = dict.fromkeys(world.countries, "x")
    world.check()


def test_a_view_that_is_created_later_has_the_same(db):
    db.execute(TABLES)
    world = World(db, 6)
    for _ in range(150):
        world.change()
    create(db, VIEWS)
    world.check()
    for _ in range(20):
        world.change()
    world.check()


def test_a_restart(tmp_path, spark):
    chosen = ("outer_", "two")
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute(TABLES)
        create(db, chosen)
        world = World(db, 7)
        for _ in range(40):
            world.change()
        world.check(chosen)
    with ms.open(tmp_path / "db", spark=spark) as db:
        world.db = db
        world.check(chosen)
        for _ in range(20):
            world.change()
        world.check(chosen)


def test_the_rows_must_come_from_a_source(db):
    db.execute(TABLES)
    grouped = "(SELECT currency, COUNT(*) AS n FROM orders GROUP BY currency) AS q"
    join = "JOIN rates FOR SYSTEM_TIME AS OF q.n AS r ON q.currency = r.currency"
    changing = "(SELECT id AS n, name AS currency FROM countries) AS q"
    for left in (grouped, changing):
        with pytest.raises(SqlUnsupportedError, match="joins rows of a source"):
            db.execute(f"CREATE MATERIALIZED VIEW v AS SELECT q.n, r.rate FROM {left} {join}")
