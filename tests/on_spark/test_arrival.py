"""Groups apply rows on arrival and emit once a commit is complete."""

from __future__ import annotations

import random

import millstream as ms
from millstream.testing import TIMEOUT, Mirror

from ..effort import effort  # noqa: TID252 - tests have no name

MOST = 2**63 - 1
KEYS = ("a", "b", None)
STEPS = effort(8, 60)
AGGREGATES = (
    "COUNT(*) AS n, COUNT(v) AS c, SUM(v) AS s, AVG(v) AS a, MIN(v) AS low, MAX(v) AS high, "
    "COUNT(DISTINCT v) AS d, SUM(v) FILTER (WHERE v > 5) AS f, "
    "ARRAY_JOIN(SORT_ARRAY(COLLECT_LIST(v)), ',') AS l, "
    "SUM(price) AS p"
)
VIEWS = {
    "grouped": f"SELECT k, {AGGREGATES} FROM t GROUP BY k",
    "whole": f"SELECT {AGGREGATES} FROM t",
    "shown": "SELECT k, MAX(v) AS high FROM t GROUP BY k HAVING COUNT(*) > 2",
    "nested": "SELECT n, COUNT(*) AS groups, SUM(s) AS s FROM ({grouped}) g GROUP BY n",
    "joined": "SELECT u.k, SUM(t.v) AS s, MIN(t.v) AS low FROM t LEFT JOIN u ON t.k = u.k "
    "GROUP BY u.k",
}


def shown(db, view):
    db.wait_for(view, timeout=TIMEOUT)
    return sorted(db.query(f"SELECT * FROM {view}").fetchall(), key=repr)


def change(db, chance):
    """One commit of several rows: some groups lose a row and get it back, some come or go."""
    keys = ", ".join(map(str, chance.sample(range(40), 12)))
    step = chance.randrange(4)
    if step == 0:
        db.execute(f"DELETE FROM t WHERE id IN ({keys})")
    elif step == 1:
        db.execute(f"UPDATE t SET v = 9 - v, price = price + 1 WHERE id IN ({keys})")
    else:
        values = chance.choices((None, *range(10)), k=12)
        rows = zip(map(int, keys.split(", ")), chance.choices(KEYS, k=12), values, strict=True)
        db.insert("t", [(*row, row[-1] or 0) for row in rows], replace=True)


def run(path, spark):
    """Random commits: after each the views are what a query over the table gives."""
    chance = random.Random(11)
    with ms.open(path, spark=spark) as db:
        db.execute(
            "CREATE TABLE t (id INT PRIMARY KEY, k VARCHAR, v BIGINT, price DECIMAL(12, 2));"
            "CREATE TABLE u (k VARCHAR PRIMARY KEY);"
            "INSERT INTO u VALUES ('a')"
        )
        queries = {name: query.format(grouped=VIEWS["grouped"]) for name, query in VIEWS.items()}
        for name, query in queries.items():
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        followers = {name: Mirror(db.subscribe(f"SELECT * FROM {name}")) for name in VIEWS}
        for _ in range(STEPS):
            change(db, chance)
            for name, follower in followers.items():
                expected = sorted(db.query(queries[name]).fetchall(), key=repr)
                assert sorted(follower.catch_up(db, name).fetchall(), key=repr) == expected, name
    with ms.open(path, spark=spark) as db:  # from what is stored
        db.execute("UPDATE t SET v = COALESCE(v, 0) + 1")
        db.execute("DELETE FROM t WHERE k IS NULL")
        for name, query in queries.items():
            assert shown(db, name) == sorted(db.query(query).fetchall(), key=repr), name


def test_random_commits(tmp_path, spark):
    run(tmp_path / "db", spark)


def test_random_commits_with_little_memory(tmp_path, spark, little_memory):
    run(tmp_path / "db", spark)


class TestOneCommit:
    def test_that_changes_nothing_is_not_shown(self, db):
        db.execute(
            "CREATE TABLE t (id INT PRIMARY KEY, k VARCHAR, v BIGINT);"
            "INSERT INTO t VALUES (1, 'a', 1), (2, 'a', 2);"
            "CREATE MATERIALIZED VIEW v AS SELECT k, SUM(v) AS s, MIN(v) AS low FROM t GROUP BY k"
        )
        db.wait_for("v", timeout=TIMEOUT)
        with db.subscribe("SELECT * FROM v", start="now") as subscription:
            db.execute("UPDATE t SET v = 3 - v")  # each group ends as it began
            db.execute("INSERT INTO t VALUES (4, NULL, 5)")
            (only,) = subscription.recv(timeout=TIMEOUT)
            assert (only.op, only.row) == ("insert", (None, 5, 5))

    def test_may_have_no_value_before_its_end(self, db):
        db.execute(
            "CREATE TABLE t (id INT PRIMARY KEY, k VARCHAR, v BIGINT, w BIGINT);"
            f"INSERT INTO t VALUES (1, 'a', {MOST}, 1), (2, 'a', 0, 0), (3, 'b', 1, 1);"
            "CREATE MATERIALIZED VIEW v AS"
            "    SELECT k, SUM(v) AS s, 10 / SUM(w) AS q, MIN(v) AS low FROM t GROUP BY k"
        )
        assert shown(db, "v") == [("a", MOST, 10.0, 0), ("b", 1, 10.0, 1)]
        db.execute(f"UPDATE t SET v = {MOST} - v, w = 1 - w WHERE k = 'a'")
        db.execute(f"UPDATE t SET v = {MOST} - v, w = 5 - w WHERE k = 'a'")
        assert shown(db, "v") == [("a", MOST, 10 / 9, 0), ("b", 1, 10.0, 1)]

    def test_of_many_rows_is_shown_whole(self, db):
        """One commit of one change of each group, though its rows do not fit into a frame."""
        count = 10_000
        db.execute(
            "CREATE TABLE t (id INT PRIMARY KEY, k VARCHAR, v BIGINT);"
            "CREATE MATERIALIZED VIEW v AS SELECT k, SUM(v) AS s, COUNT(*) AS n FROM t GROUP BY k"
        )
        db.wait_for("v", timeout=TIMEOUT)
        with db.subscribe("SELECT * FROM v", start="now") as subscription:
            for step in (1, 2):
                db.insert("t", [(i, "abc"[i % 3], step) for i in range(count)], replace=True)
                changes = list(subscription.recv(timeout=TIMEOUT))
                shown = sorted((each["k"], each["s"], each["n"]) for each in changes)
                assert shown == [
                    (k, step * n, n) for k, n in zip("abc", (3334, 3333, 3333), strict=True)
                ]
                assert {each.cause for each in changes} == {changes[0].cause}
