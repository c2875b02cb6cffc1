"""The state of dataflows: keys with many rows, rows that expire, restarts, sizes."""

from __future__ import annotations

import random
import re
from collections import Counter
from datetime import UTC, datetime, timedelta

import millstream as ms
from millstream.spark.internals import jvm_of
from millstream.testing import TIMEOUT, engine_of, wait_until

from .observing import rows_of, settle

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
MANY = 6000


def shown(db, view):
    db.wait_for(view, timeout=TIMEOUT)
    return sorted(db.query(f"SELECT * FROM {view}").fetchall(), key=repr)


def figures_of(db, view):
    """What SHOW VIEWS says of a view."""
    shown = db.execute("SHOW VIEWS").to_arrow().to_pylist()
    return next(row for row in shown if row["name"] == view)


def size_of(db, view):
    found = figures_of(db, view)
    return found["state_rows"], found["state_bytes"]


def asked(query):
    """A query as an ad-hoc one, which has no windows in the condition of a join."""
    minute = r"TUMBLE\((\w\.ts), INTERVAL '1' MINUTE\)"
    truncated = r"date_trunc('minute', \1) = date_trunc('minute', \2)"
    return re.sub(f"{minute} = {minute}", truncated, query)


class TestManyRowsOfAKey:
    """Pages are split, and go when they are empty."""

    def check(self, db, rows):
        values = sorted(rows.values())
        extremes = [(values[0], values[-1], len(set(values)))] if rows else [(None, None, 0)]
        assert shown(db, "extremes") == extremes
        first = sorted((value, key) for key, value in rows.items())[:5]
        assert shown(db, "top") == sorted(((key, value) for value, key in first), key=repr)
        assert shown(db, "pairs") == [(len(rows), sum(values) if rows else None)]

    def test_with_little_memory(self, tmp_path, spark, little_memory):
        self.test_come_and_go(tmp_path, spark)

    def test_come_and_go(self, tmp_path, spark):
        chance = random.Random(8)
        rows = {key: chance.randrange(1_000_000) for key in range(MANY)}
        with ms.open(tmp_path / "db", spark=spark) as db:
            db.execute(
                "CREATE TABLE t (id INT PRIMARY KEY, one INT, v BIGINT);"
                "CREATE TABLE u (id INT PRIMARY KEY, one INT);"
                "INSERT INTO u VALUES (1, 1);"
                "CREATE MATERIALIZED VIEW extremes AS"
                "    SELECT MIN(v) AS low, MAX(v) AS high, COUNT(DISTINCT v) AS n FROM t;"
                "CREATE MATERIALIZED VIEW top AS SELECT id, v FROM t ORDER BY v, id LIMIT 5;"
                "CREATE MATERIALIZED VIEW pairs AS"
                "    SELECT COUNT(*) AS n, SUM(t.v) AS s FROM t JOIN u ON t.one = u.one"
            )
            db.insert("t", [(key, 1, value) for key, value in rows.items()])
            self.check(db, rows)
            for low in range(0, MANY, 1500):
                gone = [key for key in list(rows) if key >= low and chance.random() < 0.5]
                for key in gone:
                    del rows[key]
                listed = ", ".join(map(str, gone))
                db.execute(f"DELETE FROM t WHERE id IN ({listed})")
                self.check(db, rows)
        with ms.open(tmp_path / "db", spark=spark) as db:  # pages are read from their bytes
            db.execute("UPDATE t SET v = v + 1")
            rows = {key: value + 1 for key, value in rows.items()}
            self.check(db, rows)
            db.execute("UPDATE u SET one = 2")
            assert shown(db, "pairs") == [(0, None)]
            db.execute("UPDATE u SET one = 1; DELETE FROM t WHERE id % 7 > 0")
            self.check(db, {key: value for key, value in rows.items() if key % 7 == 0})
            db.execute("DELETE FROM t")
            self.check(db, {})
            assert size_of(db, "extremes")[0] == 1  # its one group


class TestBounds:
    """What a join's condition says of event times lets rows go with the watermark."""

    JOINS = {  # noqa: RUF012
        "within": "SELECT a.id, b.n FROM a JOIN b ON a.id = b.id AND b.ts BETWEEN a.ts AND a.ends",
        "around": "SELECT a.id, b.n FROM a LEFT JOIN b ON a.id = b.id "
        "AND a.ts >= b.ts - INTERVAL '1' MINUTE AND a.ts <= b.ts + INTERVAL '30' SECOND",
        "same": "SELECT a.id, b.n FROM a FULL JOIN b ON a.id = b.id AND a.ts = b.ts",
        "after": "SELECT a.id FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.id = a.id "
        "AND b.ts >= a.ts AND b.ts < a.ts + INTERVAL '10' SECOND)",
        "windows": "SELECT a.id, b.n FROM a JOIN b ON a.id = b.id "
        "AND TUMBLE(a.ts, INTERVAL '1' MINUTE) = TUMBLE(b.ts, INTERVAL '1' MINUTE)",
    }

    def make(self, db, views=JOINS):
        marked = "WATERMARK FOR ts AS ts - INTERVAL '30' SECOND"
        db.execute(
            f"CREATE SOURCE a (id INT, ts TIMESTAMP, ends TIMESTAMP, {marked});"
            f"CREATE SOURCE b (id INT, n INT, ts TIMESTAMP, {marked})"
        )
        for name, query in views.items():
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")

    def push(self, db, minute, chance):
        """Rows of a minute: of both sources, with the same ids, at times that are near."""
        at = NOON + timedelta(minutes=minute)
        left, right = [], []
        for number in range(40):
            ts = at + timedelta(seconds=chance.randrange(60))
            left.append((number % 7, ts, ts + timedelta(seconds=chance.randrange(40))))
            right.append((number % 7, number, ts + timedelta(seconds=7 * chance.randrange(3))))
        db.insert("a", left)
        db.insert("b", right)

    def test_state_stays_flat(self, tmp_path, spark):
        chance = random.Random(3)
        sizes = []
        db = ms.open(tmp_path / "db", spark=spark)
        self.make(db)
        for minute in range(0, 40, 2):
            if minute == 20:  # what has expired, and what was kept, is in the checkpoint
                db.close()
                db = ms.open(tmp_path / "db", spark=spark)
            self.push(db, minute, chance)
            settle(db, *self.JOINS)
            sizes.append({view: size_of(db, view)[0] for view in self.JOINS})
        for view, query in self.JOINS.items():
            assert rows_of(db, view) == Counter(db.query(asked(query)).fetchall()), view
            early, later = ([each[view] for each in part] for part in (sizes[1:10], sizes[10:]))
            assert max(later) <= 1.2 * max(early), view
        db.close()

    def test_what_comes_late_is_counted(self, db):
        self.make(db)
        db.insert("a", [(1, NOON, NOON + timedelta(hours=1)), (2, NOON + timedelta(hours=1), None)])
        db.insert("b", [(1, 1, NOON + timedelta(minutes=1)), (9, 9, NOON + timedelta(hours=1))])
        db.flush()  # rows of one commit are never late against each other
        db.insert("b", [(1, 2, NOON), (1, 3, NOON + timedelta(hours=2))])  # the first is late
        settle(db, "within")
        assert rows_of(db, "within") == Counter([(1, 1)])
        assert figures_of(db, "within")["late_rows"] == 1


class TestClosedWindows:
    """Groups whose window has closed for good expire, and what was joined for them."""

    VIEWS = {  # noqa: RUF012
        "equal": "SELECT a.id, TUMBLE_END(a.ts, {0}) AS ends, COUNT(*) AS n, MAX(b.n) AS most, "
        "COUNT(DISTINCT b.n) AS d FROM a LEFT JOIN b ON a.id = b.id "
        "AND TUMBLE(a.ts, {0}) = TUMBLE(b.ts, {0}) GROUP BY a.id, TUMBLE(a.ts, {0}) EMIT FINAL",
        "bounded": "SELECT TUMBLE_END(b.ts, {0}) AS ends, COUNT(*) AS n FROM a JOIN b "
        "ON a.id = b.id AND b.ts BETWEEN a.ts AND a.ends GROUP BY TUMBLE(b.ts, {0}) "
        "EMIT ON WINDOW CLOSE ALLOW LATENESS INTERVAL '1' MINUTE",
        "again": "SELECT TUMBLE_END(a.ts, {0}) AS ends, MIN(x.n) AS n FROM a JOIN "
        "(SELECT id, ts, n FROM b UNION ALL SELECT id, ts, n + 1 FROM b) AS x ON a.ts = x.ts "
        "AND a.id = x.id GROUP BY TUMBLE(a.ts, {0}) EMIT FINAL",
        "different": "SELECT TUMBLE_END(ts, {0}) AS ends, COUNT(*) AS n "
        "FROM (SELECT DISTINCT a.ts, b.ts AS other "
        "FROM a JOIN b ON a.ts >= b.ts AND b.ts > a.ts - {0}) AS x "
        "GROUP BY TUMBLE(ts, {0}) EMIT FINAL",
    }

    def test_state_stays_flat(self, tmp_path, spark):
        chance, bounds, sizes = random.Random(3), TestBounds(), []
        db = ms.open(tmp_path / "db", spark=spark)
        bounds.make(db, {})
        for name, query in self.VIEWS.items():
            text = query.format("INTERVAL '1' MINUTE")
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {text}")
        for minute in range(0, 160, 2):
            if minute == 80:
                db.close()
                db = ms.open(tmp_path / "db", spark=spark)
            bounds.push(db, minute, chance)
            settle(db, *self.VIEWS)
            sizes.append({view: size_of(db, view)[0] for view in self.VIEWS})
        for view, query in self.VIEWS.items():
            early, later = ([each[view] for each in part] for part in (sizes[1:20], sizes[20:]))
            assert max(later) <= 1.2 * max(early), view
            text = query.format("INTERVAL '1' MINUTE").partition(" EMIT")[0]
            shown, every = rows_of(db, view), Counter(db.query(asked(text)).fetchall())
            assert len(shown) > 70
            assert not shown - every, view
            assert figures_of(db, view)["late_rows"] == 0
        db.close()


class TestSize:
    def test_bytes_count_once_they_are_written(self, tmp_path, spark):
        with ms.open(tmp_path / "db", spark=spark) as db:
            db.execute(
                "CREATE TABLE t (id INT PRIMARY KEY, v INT);"
                "CREATE MATERIALIZED VIEW v AS SELECT x.id FROM t x JOIN t y ON x.v = y.id;"
                "CREATE MATERIALIZED VIEW one AS SELECT v, COUNT(*) AS n FROM t GROUP BY v"
            )
            db.insert("t", [(n, n + 1) for n in range(100)])
            settle(db, "v")
            assert size_of(db, "v")[0] == 200
        with ms.open(tmp_path / "db", spark=spark) as db:
            db.insert("t", [(1000, 1)])
            settle(db, "v")
            rows, size = size_of(db, "v")
            assert rows == 202
            assert size > 200 * 8


def open_states(spark):
    """How many lines share the memory for state."""
    jvm = jvm_of(spark)
    loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    count = jvm.java.lang.Class.forName("millstream.dataflow.State", True, loader).getDeclaredField(
        "OPEN"
    )
    count.setAccessible(True)
    return count.get(None)


def wait_for_open(spark, count):
    wait_until(lambda: open_states(spark) == count, lambda: f"open: {open_states(spark)}")


def make_pairs(db):
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, k INT); INSERT INTO t VALUES (1, 1), (2, 2)")
    return "SELECT a.id, b.k FROM t a JOIN t b ON a.id = b.k"


def test_a_view_that_is_dropped_gives_its_memory_back(db, spark):
    select = make_pairs(db)
    wait_for_open(spark, 0)
    for number in range(6):
        db.execute(f"CREATE OR REPLACE MATERIALIZED VIEW kept AS {select} AND a.k > {number}")
        db.execute(f"CREATE MATERIALIZED VIEW dropped AS {select} AND a.k < {number}")
        settle(db, "kept", "dropped")
        assert open_states(spark) >= 2
        db.execute("DROP VIEW dropped")
        wait_for_open(spark, 1)
    db.execute("DROP VIEW kept")
    wait_for_open(spark, 0)


def test_a_warm_up_gives_its_memory_back(db, spark, monkeypatch):
    views = engine_of(db).views.spark_views
    monkeypatch.setattr(views.spark, "is_cold", lambda: True)
    select = make_pairs(db)
    wait_for_open(spark, 0)
    db.execute(f"CREATE MATERIALIZED VIEW v AS {select}")
    db.wait_for("v", timeout=TIMEOUT)
    wait_until(lambda: views._warm_ups, "a warm-up")
    warm_up = views._warm_ups[-1]
    warm_up._thread.join(TIMEOUT)
    assert warm_up.is_complete
    wait_for_open(spark, 1)
