"""ARRAY and STRUCT values as keys: of groups, joins, sets, partitions and orders, against Spark."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

import millstream as ms
from millstream.testing import TIMEOUT, engine_of

from ..effort import effort  # noqa: TID252 - tests have no name
from ..seed import SEED  # noqa: TID252
from .exact import Copy, Plain, bag, difference
from .observing import settle

STEPS = effort(6, 15)
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
NAN = float("nan")
LISTS = [None, [], [None], [0.0], [-0.0], [NAN], [1.0, None], [1.0, -0.0], [None, 1.0], [1.0]]
RECORDS = [
    None,
    *({"x": x, "y": y} for x in (None, 1) for y in (None, 0.0, -0.0, NAN)),
]
DEEP = [None, [], [None], *([{"k": k, "v": [v]}] for k in (None, "ü") for v in (None, -0.0, 0.0))]
COLUMNS = "a ARRAY<DOUBLE>, st STRUCT<x INT, y DOUBLE>, n ARRAY<STRUCT<k VARCHAR, v ARRAY<REAL>>>"
VIEWS = {
    "by_list": "SELECT a, COUNT(*) AS c, SUM(b) AS s FROM t GROUP BY a",
    "by_record": "SELECT st, n, COUNT(*) AS c FROM t GROUP BY st, n HAVING COUNT(*) < 5",
    "of_source": "SELECT a, st, MAX(b) AS m FROM e GROUP BY a, st",
    "made": "SELECT array(b, 1) AS k, COUNT(*) AS c FROM e GROUP BY array(b, 1)",
    "sets": "SELECT a, b, COUNT(*) AS c FROM t GROUP BY ROLLUP (a, b)",
    "distinct_of": "SELECT DISTINCT st, n FROM e",
    "unites": "SELECT a, st FROM t UNION SELECT a, st FROM e",
    "intersects": "SELECT st FROM t INTERSECT SELECT st FROM e",
    "intersects_all": "SELECT n FROM t INTERSECT ALL SELECT n FROM e",
    "excepts": "SELECT a, n FROM t EXCEPT SELECT a, n FROM e",
    "excepts_all": "SELECT a FROM t EXCEPT ALL SELECT a FROM u",
    "counts": "SELECT b, COUNT(DISTINCT a) AS x, COUNT(DISTINCT st) AS y FROM t GROUP BY b",
    "counts_once": "SELECT COUNT(DISTINCT st) AS x, COUNT(*) AS c FROM t",
    "counts_pairs": "SELECT COUNT(DISTINCT a, b) AS x FROM e",
    "joins": "SELECT t.id, u.id AS j FROM t JOIN u ON t.a = u.a",
    "joins_left": "SELECT t.id, u.id AS j FROM t LEFT JOIN u ON t.st = u.st AND t.b <> u.b",
    "joins_full": "SELECT t.id, u.id AS j FROM t FULL JOIN u ON t.n <=> u.n",
    "isin": "SELECT id FROM t WHERE a IN (SELECT a FROM u)",
    "isnt": "SELECT id FROM t WHERE st NOT IN (SELECT st FROM u WHERE st IS NOT NULL)",
    "ranks": "SELECT id, ROW_NUMBER() OVER (PARTITION BY a ORDER BY id) AS r FROM t",
    "totals": "SELECT id, SUM(b) OVER (PARTITION BY st, n ORDER BY id) AS r FROM t",
    "ordered": "SELECT id, RANK() OVER (ORDER BY a DESC, st) AS r FROM t",
    "top": "SELECT id, n, st FROM t ORDER BY n DESC, st, id LIMIT 3",
    "extremes": "SELECT b, MIN(a) AS x, MAX(st) AS y FROM t GROUP BY b",
    "typed": "SELECT t.id, e.b FROM e JOIN t ON e.b = get(t.a, 0)",
}


class Nested:
    """A database whose rows have nested values, and plain Spark over the same."""

    def __init__(self, db, spark, dice):
        self.db, self.plain, self.dice = db, Plain(spark), dice
        self.pushed, self.copies = [], {}

    def create(self):
        self.db.execute(
            f"CREATE TABLE t (id INT PRIMARY KEY, {COLUMNS}, b INT);"
            f"CREATE TABLE u (id INT PRIMARY KEY, {COLUMNS}, b INT);"
            f"CREATE SOURCE e ({COLUMNS}, b INT)"
        )

    def views(self, names):
        for name in names:
            self.db.execute(f"CREATE MATERIALIZED VIEW {name} AS {VIEWS[name]}")
            self.follow(name)

    def follow(self, name):
        subscription = self.db.subscribe(f"SELECT * FROM {name}")
        self.copies[name] = Copy(subscription)
        self.copies[name].drain(1)  # the snapshot

    def values(self):
        return (*map(self.dice.choice, (LISTS, RECORDS, DEEP)), self.dice.choice([None, 1, 2]))

    def step(self):
        draw, table = self.dice.random(), self.dice.choice("tu")
        if draw < 0.3:
            rows = [self.values() for _ in range(self.dice.choice([1, 3]))]
            self.db.insert("e", rows)
            self.pushed += rows
        elif draw < 0.7:
            ids = self.dice.sample(range(12), self.dice.choice([1, 4]))
            self.db.insert(table, [(each, *self.values()) for each in ids], replace=True)
        elif draw < 0.85:
            self.db.execute(
                f"UPDATE {table} SET b = ? WHERE id % 2 = 0", [self.dice.choice([1, 2])]
            )
        else:
            self.db.execute(f"DELETE FROM {table} WHERE id % 3 = {self.dice.randrange(3)}")

    def check(self):
        settle(self.db, *self.copies)
        catalog = engine_of(self.db).catalog
        self.plain.give("e", catalog["e"].schema, self.pushed)
        for name in ("t", "u"):
            rows = self.db.query(f"SELECT * FROM {name}").fetchall()
            self.plain.give(name, catalog[name].schema, rows)
        wrong = []
        for name, copy in self.copies.items():
            expected = bag(self.plain.answer(VIEWS[name]))
            shown = self.db.query(f"SELECT * FROM {name}").to_arrow()
            view = engine_of(self.db).views[name].view
            streamed = copy.drain(view.lsn if view.changes else 0)
            for reader, found in (("the view", bag(shown)), ("its changes", streamed)):
                if found != expected:
                    wrong.append(difference(name, reader, found, expected))
        assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("part", range(3))
def test_nested_keys(tmp_path, spark, part):
    dice = random.Random(f"{SEED}/{part}")
    names = list(VIEWS)[part::3]
    with ms.open(tmp_path / "db", spark=spark) as db:
        nested = Nested(db, spark, dice)
        nested.create()
        nested.views(names[:4])
        for number in range(STEPS):
            nested.step()
            if number == STEPS // 3:
                nested.views(names[4:])
            nested.check()
    with ms.open(tmp_path / "db", spark=spark) as db:
        nested.db, nested.copies = db, {}
        for name in names:
            nested.follow(name)
        for _ in range(STEPS // 3):
            nested.check()
            nested.step()
        for table in ("t", "u"):
            db.execute(f"DELETE FROM {table}")
        nested.check()


def test_groups_of_nested_keys_wait_for_their_windows(tmp_path, spark):
    """The groups of pending output are told apart by nested values, also after a restart."""
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute(
            "CREATE SOURCE s (a ARRAY<DOUBLE>, ts TIMESTAMP, WATERMARK FOR ts);"
            "CREATE MATERIALIZED VIEW v AS SELECT a, array(size(a)) AS n, COUNT(*) AS c FROM s"
            "    GROUP BY a, array(size(a)), TUMBLE(ts, INTERVAL '1 minute') EMIT FINAL"
        )
        db.insert("s", [([0.0], NOON), ([-0.0], NOON), ([NAN], NOON), (None, NOON), ([], NOON)])
        db.wait_for("v", timeout=TIMEOUT)
        assert db.query("SELECT * FROM v").fetchall() == []
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.insert("s", [([NAN], NOON), ([], NOON + timedelta(minutes=1))])
        db.wait_for("v", timeout=TIMEOUT)
        found = bag(db.query("SELECT * FROM v").to_arrow())
        assert found == Counter(
            {((0.0,), (1,), 2): 1, (("NaN",), (1,), 2): 1, (None, (None,), 1): 1, ((), (0,), 1): 1}
        )


def test_rows_are_read_in_the_order_of_nested_values(db):
    db.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, a ARRAY<DOUBLE>);"
        "CREATE MATERIALIZED VIEW v AS SELECT id, a FROM t ORDER BY a DESC NULLS FIRST, id"
    )
    lists = [[1.0], [NAN], [], None, [1.0, None], [None], [0.5, 7.0], [1.0]]
    db.insert("t", list(enumerate(lists)))
    db.wait_for("v", timeout=TIMEOUT)
    assert [row[0] for row in db.query("SELECT * FROM v").fetchall()] == [3, 1, 4, 0, 7, 6, 5, 2]


def test_nothing_to_explode_is_null(db):
    db.execute(
        "CREATE SOURCE s (id INT, a ARRAY<INT>); CREATE TABLE t (id INT PRIMARY KEY); "
        "INSERT INTO t VALUES (1), (2), (3); "
        "CREATE MATERIALIZED VIEW v AS SELECT s.id, x.p, x.c FROM s LATERAL VIEW OUTER "
        "POSEXPLODE(a) x AS p, c WHERE id IN (SELECT id FROM t)"
    )
    db.insert("s", [(1, [5, None]), (2, []), (3, None), (4, [1])])
    settle(db, "v")
    rows = db.query("SELECT * FROM v").fetchall()
    assert sorted(rows, key=repr) == [(1, 0, 5), (1, 1, None), (2, None, None), (3, None, None)]
