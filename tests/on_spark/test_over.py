"""OVER and OFFSET in live views: after each change they are what DuckDB answers over all rows."""

from __future__ import annotations

import random
from collections import Counter

import duckdb

import millstream as ms
from millstream.testing import Mirror

from .observing import rows_of, settle

BY = "PARTITION BY k ORDER BY v, id"
TABLE = {
    "numbers": f"SELECT id, ROW_NUMBER() OVER ({BY}) AS n FROM t",
    "largest": "SELECT id, k, v FROM (SELECT id, k, v,"
    " ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC, id) AS n FROM t) q WHERE n <= 2",
    "ranks": "SELECT id, n FROM ("
    "SELECT id, RANK() OVER (PARTITION BY k ORDER BY v) AS n FROM t) q WHERE n <= 3",
    "dense": "SELECT id, n FROM ("
    "SELECT id, DENSE_RANK() OVER (PARTITION BY k ORDER BY v) AS n FROM t) q WHERE n < 3",
    "steps": f"SELECT id, v - LAG(v) OVER ({BY}) AS d, LEAD(id, 2) OVER ({BY}) AS later FROM t",
    "moving": "SELECT id, SUM(v) OVER (PARTITION BY k ORDER BY id"
    " ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS s FROM t",
    "running": "SELECT id, SUM(v) OVER (PARTITION BY k ORDER BY v) AS s,"
    " COUNT(*) OVER (PARTITION BY k) AS n FROM t",
    "near": "SELECT id, COUNT(*) OVER (PARTITION BY k ORDER BY v"
    " RANGE BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS n FROM t",
    "values_": f"SELECT id, FIRST_VALUE(id) OVER ({BY}) AS f, NTH_VALUE(v, 2) OVER ({BY}) AS s,"
    " MAX(v) OVER (ORDER BY id ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING) AS m FROM t",
    "shares": f"SELECT id, NTILE(3) OVER ({BY}) AS n, CUME_DIST() OVER ({BY}) AS c FROM t",
    "page": "SELECT id, v FROM t ORDER BY v DESC NULLS LAST, id LIMIT 3 OFFSET 2",
    "over_groups": "SELECT k, SUM(v) AS s, RANK() OVER (ORDER BY SUM(v) DESC) AS n"
    " FROM t GROUP BY k",
}


SOURCE = {
    "twice": "SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM s",
    "sums": "SELECT k, v, SUM(v) OVER (PARTITION BY k ORDER BY v ROWS 1 PRECEDING) AS two FROM s",
    "newest": "SELECT k, v FROM s QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) = 1",
}


def answer(db, sql):
    """What a query gives in batch; DuckDB itself knows some forms that ad-hoc queries lack."""
    if "QUALIFY" not in sql and "RANGE" not in sql:
        return Counter(db.query(sql).fetchall())
    name = sql.split(" FROM ")[1].split()[0]
    with duckdb.connect() as duck:
        duck.register(name, db.query(f"SELECT * FROM {name}").to_arrow())
        return Counter(duck.execute(sql).fetchall())


class Followed:
    """Views of a database, and mirrors of them.

    Args:
        db: the database.
        queries: each view's query.
    """

    def __init__(self, db, queries):
        self._db = db
        self._queries = queries
        for name, sql in queries.items():
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {sql}")
        self._mirrors = {name: Mirror(db.subscribe(f"SELECT * FROM {name}")) for name in queries}

    def check(self):
        settle(self._db, *self._queries)
        for name, sql in self._queries.items():
            wanted = answer(self._db, sql)
            assert rows_of(self._db, name) == wanted, name
            assert self._mirrors[name].catch_up(self._db).rows == wanted, name


def change(db, chance, known):
    """Insert, update or delete a row."""
    number, value = chance.randrange(60), chance.choice([None, *range(12)])
    if number not in known:
        known.add(number)
        db.execute("INSERT INTO t VALUES (?, ?, ?)", [number, chance.randrange(3), value])
    elif chance.random() < 0.4:
        known.discard(number)
        db.execute("DELETE FROM t WHERE id = ?", [number])
    else:
        db.execute("UPDATE t SET v = ? WHERE id = ?", [value, number])


def test_over_a_table(db):
    chance, known = random.Random(12), set()
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, k INT, v INT)")
    views = Followed(db, TABLE)
    for step in range(12):
        for _ in range(30 if step == 3 else chance.choice([1, 1, 4])):
            change(db, chance, known)
        views.check()
    db.execute("UPDATE t SET k = 1")
    views.check()
    db.execute("DELETE FROM t")
    views.check()


def test_over_a_source_with_equal_rows(db):
    chance = random.Random(4)
    db.execute("CREATE SOURCE s (k INT, v INT)")
    views = Followed(db, SOURCE)
    for count in (1, 40, 1, 5):
        rows = [(chance.randrange(2), chance.randrange(8)) for _ in range(count)]
        db.source("s").push_batch(rows)
        views.check()


def test_large_partitions_and_a_restart(tmp_path, spark):
    queries = {
        "top": "SELECT id, v FROM ("
        "SELECT id, v, ROW_NUMBER() OVER (ORDER BY v DESC, id) AS n FROM t) q WHERE n <= 10",
        "steps": "SELECT id, v - LAG(v) OVER (ORDER BY v, id) AS d FROM t",
    }
    chance = random.Random(1)
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
        views = Followed(db, queries)
        db.insert("t", [(number, chance.randrange(10_000)) for number in range(2000)])
        views.check()
        db.execute("DELETE FROM t WHERE id % 3 = 0")
        views.check()
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute("UPDATE t SET v = 20000 WHERE id = 7; UPDATE t SET v = v - 1 WHERE id % 50 = 1")
        settle(db, *queries)
        for name, sql in queries.items():
            assert rows_of(db, name) == Counter(db.query(sql).fetchall()), name


RUNNING = {
    "totals": "SELECT id, SUM(v) OVER (ORDER BY v, id) AS s,"
    " RANK() OVER (ORDER BY v, id) AS n FROM t",
    "peers": "SELECT id, SUM(v) OVER (ORDER BY v) AS s, COUNT(*) OVER (ORDER BY v) AS n,"
    " DENSE_RANK() OVER (ORDER BY v) AS r, MIN(w) OVER (ORDER BY v) AS m FROM t",
    "mixed": "SELECT id, AVG(v) OVER (PARTITION BY k ORDER BY w ROWS UNBOUNDED PRECEDING) AS a,"
    " MAX(id) OVER (PARTITION BY k ORDER BY w) AS b FROM (SELECT id, id % 2 AS k, v,"
    " CAST(id AS VARCHAR) || '-' || w AS w FROM t) q",
    "best": "SELECT id, MAX(v) OVER (ORDER BY id) AS m,"
    " FIRST_VALUE(w) OVER (ORDER BY id) AS f FROM t",
}


def test_running_totals_of_large_partitions(tmp_path, spark):
    chance = random.Random(5)
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT, w VARCHAR)")
        views = Followed(db, RUNNING)
        for step in range(14):
            count = [400, 1, 1, 150, 1, 1, 1][step % 7]
            rows = [
                (chance.randrange(900), chance.randrange(40), "xyzäö"[n % 5]) for n in range(count)
            ]
            db.insert("t", list({row[0]: row for row in rows}.values()), replace=True)
            views.check()
            first = chance.randrange(900)
            db.execute("DELETE FROM t WHERE id BETWEEN ? AND ?", [first, first + 8 * (step % 9)])
            views.check()
        db.execute("DELETE FROM t WHERE id > 0")
        views.check()
        db.execute("DELETE FROM t")
        views.check()
        db.insert("t", [(number, 3, "again") for number in range(300)])
        views.check()
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute("UPDATE t SET v = 2 WHERE id = 150; INSERT INTO t VALUES (1000, 9, 'last')")
        settle(db, *RUNNING)
        for name, sql in RUNNING.items():
            assert rows_of(db, name) == answer(db, sql), name
