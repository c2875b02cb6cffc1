"""Views that are dataflows: what lies within a commit, restarts, keys, errors."""

from __future__ import annotations

import contextlib
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

import millstream as ms
from millstream.testing import TIMEOUT, Mirror, wait_until
from millstream.views.run import query
from millstream.views.run.query import _FINGERPRINT

from .observing import rows_of, runner_of, settle

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
MOST = 2**63 - 1


def shown(db, view):
    db.wait_for(view, timeout=TIMEOUT)
    return sorted(db.query(f"SELECT * FROM {view}").fetchall(), key=repr)


def test_what_is_read_twice_is_kept_once(tmp_path, spark):
    """EXPLAIN says so; after a restart, too."""
    query = (
        "WITH r AS (SELECT x.a, SUM(x.b * y.c) AS s, COUNT(*) AS n FROM x JOIN y ON x.a = y.a"
        " GROUP BY x.a) SELECT p.a, p.s FROM r p JOIN r q ON p.a = q.n"
        " WHERE p.s > (SELECT AVG(s) FROM r)"
    )
    with ms.open(tmp_path, spark=spark) as db:
        db.execute(
            "CREATE TABLE x (id INT PRIMARY KEY, a INT, b INT);"
            "CREATE TABLE y (id INT PRIMARY KEY, a INT, c INT);"
            "INSERT INTO x VALUES (1, 1, 5), (2, 2, 3), (3, 2, 1); INSERT INTO y VALUES (1, 2, 2);"
            f"CREATE MATERIALIZED VIEW v AS {query}"
        )
        lines = [line for (line,) in db.query(f"EXPLAIN CREATE MATERIALIZED VIEW w AS {query}")]
        assert sum(": aggregate by a:" in line for line in lines) == 1
        assert sum("read 3 times" in line for line in lines) == 1
        db.execute("INSERT INTO y VALUES (2, 1, 1)")
        assert shown(db, "v") == sorted(db.query(query).fetchall(), key=repr)
    with ms.open(tmp_path, spark=spark) as db:
        db.execute("UPDATE y SET a = 3 - a; DELETE FROM x WHERE id = 3; UPDATE x SET b = b + 9")
        assert shown(db, "v") == sorted(db.query(query).fetchall(), key=repr) != []


class TestWithinACommit:
    """What lies in the middle of a commit is not computed."""

    def test_a_division_by_what_is_0_for_a_moment(self, db):
        db.execute(
            "CREATE TABLE t (id INT PRIMARY KEY, k VARCHAR, v INT, w INT);"
            "INSERT INTO t VALUES (1, 'a', 10, 1), (2, 'a', 10, 0);"
            "CREATE MATERIALIZED VIEW v AS SELECT SUM(v) / SUM(w) AS r FROM t;"
            "CREATE MATERIALIZED VIEW h AS"
            "    SELECT k, COUNT(*) AS n FROM t GROUP BY k HAVING 10 / SUM(w) > 1"
        )
        assert shown(db, "v") == [(20.0,)]
        db.execute("UPDATE t SET w = 1 - w")
        assert shown(db, "v") == [(20.0,)]
        assert shown(db, "h") == [("a", 2)]
        db.execute("UPDATE t SET w = 5")
        assert shown(db, "v") == [(2.0,)]
        assert shown(db, "h") == []

    def test_of_a_source(self, db):
        db.execute(
            "CREATE SOURCE s (k VARCHAR, v INT, w INT);"
            "CREATE MATERIALIZED VIEW v AS SELECT k, SUM(v) / SUM(w) AS r FROM s GROUP BY k"
        )
        db.wait_for("v", timeout=TIMEOUT)
        db.source("s").push_batch([("a", 10, 0), ("a", 10, 2)])
        assert shown(db, "v") == [("a", 10.0)]

    def test_what_having_leaves_out(self, db):
        """Nothing that is selected is computed for it: before, the view failed."""
        db.execute(
            "CREATE TABLE t (id INT PRIMARY KEY, k VARCHAR, v INT, w INT);"
            "INSERT INTO t VALUES (1, 'a', 10, 2), (2, 'b', 10, 0);"
            "CREATE MATERIALIZED VIEW v AS"
            "    SELECT k, SUM(v) / SUM(w) AS r, SUM(v) * (SELECT MAX(id) FROM t) AS m FROM t"
            "    GROUP BY k HAVING SUM(w) <> 0 AND COUNT(*) < 5"
        )
        assert shown(db, "v") == [("a", 5.0, 20)]
        db.execute("UPDATE t SET w = 2 - w")
        assert shown(db, "v") == [("b", 5.0, 20)]

    def test_a_sum_that_overflows_for_a_moment(self, db):
        db.execute(
            "CREATE TABLE t (id INT PRIMARY KEY, v BIGINT);"
            f"INSERT INTO t VALUES (1, 0), (2, {MOST});"
            "CREATE MATERIALIZED VIEW v AS SELECT SUM(v) AS s FROM t"
        )
        assert shown(db, "v") == [(MOST,)]
        db.execute(f"UPDATE t SET v = {MOST} - v")
        assert shown(db, "v") == [(MOST,)]

    def test_no_reader_sees_half_of_a_statement(self, db):
        db.execute(
            "CREATE TABLE t (id INT PRIMARY KEY, side VARCHAR, n INT);"
            "INSERT INTO t VALUES (1, 'l', 5), (2, 'r', 5);"
            "CREATE MATERIALIZED VIEW v AS SELECT l.n = r.n AS same FROM"
            "    (SELECT SUM(n) AS n FROM t WHERE side = 'l') l,"
            "    (SELECT SUM(n) AS n FROM t WHERE side = 'r') r"
        )
        db.wait_for("v", timeout=TIMEOUT)
        with db.subscribe("SELECT * FROM v") as subscription:
            mirror = Mirror(subscription).catch_up(db)
            before = mirror.changes
            for n in range(50):
                db.execute("UPDATE t SET n = ?", [n])
            db.wait_for("v", timeout=TIMEOUT)
            assert dict(mirror.catch_up(db).rows) == {(True,): 1}
            assert mirror.changes == before


class TestNoValueOverNoRows:
    """A query that fails over no rows, as it does in batch: its view waits for them."""

    QUERY = "SELECT (SELECT COUNT(*) FROM s) / (SELECT COUNT(*) FROM t) AS q"

    def test_begins_with_the_rows_that_there_are(self, db):
        db.execute("CREATE TABLE t (id INT PRIMARY KEY); CREATE SOURCE s (a INT)")
        db.insert("t", [(n,) for n in range(3000)])
        db.insert("s", [(n,) for n in range(6000)])
        db.execute(f"CREATE MATERIALIZED VIEW v AS {self.QUERY}, (SELECT MAX(a) FROM s) AS m")
        assert shown(db, "v") == [(2.0, 5999)]

    def is_whole(self, db):
        with contextlib.suppress(ms.errors.ViewFailedError):
            return shown(db, "v") == [(0.0,)]
        return False

    def test_heals_when_they_come(self, db):
        db.execute(
            "CREATE TABLE t (id INT PRIMARY KEY); CREATE SOURCE s (a INT);"
            f"CREATE MATERIALIZED VIEW v AS {self.QUERY}"
        )
        with pytest.raises(ms.errors.ViewFailedError, match="DIVIDE_BY_ZERO"):
            db.wait_for("v", timeout=TIMEOUT)
        db.execute("INSERT INTO t VALUES (1), (2)")
        wait_until(lambda: self.is_whole(db), "the view to heal")
        db.insert("s", [(1,)])
        assert shown(db, "v") == [(0.5,)]

    def test_of_sources_alone_is_refused(self, db):
        db.execute("CREATE SOURCE s (a INT)")
        with pytest.raises(ms.errors.SqlError, match="DIVIDE_BY_ZERO"):
            db.execute("CREATE MATERIALIZED VIEW v AS SELECT COUNT(a) / COUNT(*) AS m FROM s")


def test_windows_over_a_join_are_corrected_when_the_table_changes(db):
    db.execute(
        "CREATE SOURCE tx (cid BIGINT, amount BIGINT, ts TIMESTAMP,"
        "    WATERMARK FOR ts AS ts - INTERVAL '5 seconds');"
        "CREATE TABLE customers (id BIGINT PRIMARY KEY, country VARCHAR);"
        "INSERT INTO customers VALUES (1, 'UK');"
        "CREATE MATERIALIZED VIEW v AS SELECT country, HOP_START(ts) AS w, SUM(amount) AS s FROM tx"
        "    JOIN customers ON cid = id"
        "    GROUP BY country, HOP(ts, INTERVAL '10 seconds', INTERVAL '20 seconds')"
    )
    for n in range(4):
        db.source("tx").push((1, n, NOON + timedelta(seconds=10 * n)))
        db.flush()
    assert len(shown(db, "v")) == 5
    db.execute("UPDATE customers SET country = 'FR'")
    starts = [NOON + timedelta(seconds=10 * n) for n in range(-1, 4)]
    sums = zip(starts, (0, 1, 3, 5, 3), strict=True)
    assert set(shown(db, "v")) == {("FR", at, s) for at, s in sums}


def test_groups_have_a_key_and_are_updated(db):
    db.execute(
        "CREATE SOURCE s (k BIGINT, n BIGINT); CREATE TABLE t (k BIGINT PRIMARY KEY, name VARCHAR);"
        "INSERT INTO t VALUES (1, 'one'), (2, 'two');"
        "CREATE MATERIALIZED VIEW v AS"
        "    SELECT SUM(n) AS total, name FROM s JOIN t ON s.k = t.k GROUP BY name"
        "    HAVING SUM(n) < 9"
    )
    assert db.query("SHOW VIEWS").to_pylist()[0]["primary_key"] == "name"
    db.source("s").push_batch([(1, 1), (2, 2), (1, 3)])
    db.wait_for("v", timeout=TIMEOUT)
    with db.subscribe("SELECT * FROM v") as subscription:
        mirror = Mirror(subscription, key_columns=0)
        db.source("s").push((1, 1))
        db.wait_for("v", timeout=TIMEOUT)
        assert set(mirror.catch_up(db).rows) == {(5, "one"), (2, "two")}
        db.source("s").push((1, 100))
        db.wait_for("v", timeout=TIMEOUT)
        assert set(mirror.catch_up(db).rows) == {(2, "two")}


def test_distinct_rows_of_a_table(db):
    """Rows of a group without aggregates have no columns: they differ by their weight only."""
    db.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, k VARCHAR, n INT);"
        "INSERT INTO t VALUES (1, 'a', 1), (2, 'a', 1), (3, 'a', 1), (4, 'b', 2);"
        "CREATE MATERIALIZED VIEW v AS SELECT DISTINCT k, n FROM t"
    )
    assert shown(db, "v") == [("a", 1), ("b", 2)]
    db.execute("DELETE FROM t WHERE id = 1")
    assert shown(db, "v") == [("a", 1), ("b", 2)]
    db.execute("UPDATE t SET k = 'b', n = 2 WHERE id = 2")
    assert shown(db, "v") == [("a", 1), ("b", 2)]
    db.execute("DELETE FROM t WHERE id IN (3, 4)")
    assert shown(db, "v") == [("b", 2)]


def test_a_result_over_no_rows(db):
    db.execute(
        "CREATE SOURCE s (k BIGINT); CREATE TABLE t (k BIGINT PRIMARY KEY);"
        "CREATE MATERIALIZED VIEW n AS"
        "    SELECT COUNT(*) AS n, SUM(s.k) AS k FROM s JOIN t ON s.k = t.k;"
        "CREATE MATERIALIZED VIEW w AS SELECT x.k, t.k AS found FROM (VALUES (1), (2)) AS x(k)"
        "    LEFT JOIN t ON t.k = x.k"
    )
    assert shown(db, "n") == [(0, None)]
    assert shown(db, "w") == [(1, None), (2, None)]


def test_wait_for_waits_through_views(db):
    db.execute(
        "CREATE SOURCE s (k BIGINT);"
        "CREATE MATERIALIZED VIEW a AS SELECT k, COUNT(*) AS n FROM s GROUP BY k;"
        "CREATE MATERIALIZED VIEW b AS SELECT n, COUNT(*) AS m FROM a GROUP BY n;"
        "CREATE MATERIALIZED VIEW c AS SELECT MAX(m) AS most FROM b"
    )
    for n in range(30):
        db.source("s").push((n % 7,))
        at = db.wait_for("c", timeout=TIMEOUT)
        counts = [sum(1 for i in range(n + 1) if i % 7 == k) for k in range(min(n + 1, 7))]
        assert at <= db.lsn
        assert shown(db, "c") == [(max(map(counts.count, counts)),)]


def test_what_a_view_reads_through_cannot_be_dropped(db):
    db.execute(
        "CREATE SOURCE s (k BIGINT);"
        "CREATE MATERIALIZED VIEW a AS SELECT k, COUNT(*) AS n FROM s GROUP BY k;"
        "CREATE MATERIALIZED VIEW v AS SELECT a.k, a.n FROM a JOIN s ON a.k = s.k"
    )
    for name in ("VIEW a", "SOURCE s"):
        with pytest.raises(ms.errors.InUseError, match="v"):
            db.execute(f"DROP {name}")


def test_another_plan_is_rebuilt_and_shows_nothing_again(tmp_path, spark):
    sql = (
        "CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT); CREATE SOURCE s (k BIGINT, n BIGINT);"
        "CREATE MATERIALIZED VIEW v AS SELECT t.id, s.n FROM s JOIN t ON s.k = t.k"
    )
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute(sql)
        db.insert("t", [(n, n % 3) for n in range(9)])
        db.source("s").push_batch([(n % 3, n) for n in range(30)])
        settle(db, "v")
        before, checkpoint = rows_of(db, "v"), runner_of(db, "v")._query.checkpoint
        last = db.execute("SHOW CHANGES FOR v").to_pylist()
    (checkpoint / _FINGERPRINT).write_text("of another plan")
    with ms.open(tmp_path / "db", spark=spark) as db:
        settle(db, "v")
        assert rows_of(db, "v") == before
        assert db.execute("SHOW CHANGES FOR v").to_pylist() == last
        db.execute("DELETE FROM t WHERE id < 3")
        settle(db, "v")
        assert sum(rows_of(db, "v").values()) == 60


def test_a_query_is_analysed_and_lowered_once(db, monkeypatch):
    calls = Counter()

    def counted(name):
        function = getattr(query, name)

        def call(*args):
            calls[name] += 1
            return function(*args)

        monkeypatch.setattr(query, name, call)

    counted("lower")
    counted("sql_frame")
    db.execute(
        "CREATE SOURCE s (k BIGINT); CREATE TABLE t (k BIGINT PRIMARY KEY);"
        "CREATE MATERIALIZED VIEW v AS SELECT s.k, COUNT(*) AS n FROM s JOIN t ON s.k = t.k"
        "    GROUP BY s.k"
    )
    db.wait_for("v", timeout=TIMEOUT)
    assert calls == {"lower": 1, "sql_frame": 1}


def test_the_order_of_its_rows(tmp_path, spark):
    ranked = [("b", 3.5), ("a", 3.5), ("d", 1.0), ("c", None)]
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute(
            "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR, n DOUBLE);"
            "CREATE MATERIALIZED VIEW v AS SELECT name, SUM(n) AS Total FROM t GROUP BY name"
            "    ORDER BY total DESC, name DESC;"
            "CREATE MATERIALIZED VIEW top AS SELECT name, n FROM t ORDER BY n DESC, 1 DESC LIMIT 2"
        )
        db.insert("t", [(n, name, value) for n, (name, value) in enumerate(reversed(ranked))])
        for view in ("v", "top"):
            db.wait_for(view, timeout=TIMEOUT)
        assert db.query("SELECT * FROM v").fetchall() == ranked
        assert db.query("SELECT name FROM v WHERE Total > 0 LIMIT 2").fetchall() == [("b",), ("a",)]
        assert db.query("SELECT * FROM top").fetchall() == ranked[:2]
        with db.subscribe("SELECT * FROM v") as subscription:
            assert subscription.recv(timeout=TIMEOUT).rows == ranked
        with db.subscribe("SELECT name, n FROM t ORDER BY n NULLS LAST, name") as subscription:
            rows = subscription.recv(timeout=TIMEOUT).rows
            assert rows == [("d", 1.0), ("a", 3.5), ("b", 3.5), ("c", None)]
    with ms.open(tmp_path / "db", spark=spark) as db:
        assert db.query("SELECT * FROM v").fetchall() == ranked


def test_explain_names_the_operators(db):
    db.execute("CREATE SOURCE s (k BIGINT); CREATE TABLE t (k BIGINT PRIMARY KEY)")
    lines = db.execute(
        "EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT MAX(n) AS m FROM"
        " (SELECT s.k, COUNT(*) AS n FROM s LEFT JOIN t ON s.k = t.k GROUP BY s.k)"
    ).fetchall()
    found = [line for (line,) in lines if line.startswith("operator")]
    assert found == [
        "operator 1: LeftOuter join by k",
        "operator 2: aggregate by k: count(1)",
        "operator 3: aggregate: max(n)",
    ]


REFUSED = [
    ("SELECT a.k FROM s a, s b LIMIT 3", "LIMIT without ORDER BY"),
    ("SELECT k FROM s ORDER BY k OFFSET 3", "OFFSET without LIMIT is not supported"),
    ("SELECT k, COLLECT_LIST(n) OVER (PARTITION BY k) AS r FROM s", "COLLECT_LIST depends on"),
    ("SELECT FIRST(a.k) AS f FROM s a, s b", "FIRST depends on the order"),
    ("SELECT k, (SELECT t.name FROM t WHERE t.k > s.k) AS x FROM s", "several rows"),
    ("SELECT a.nope FROM s a, s b", "nope"),
    ("SELECT a.*, b.k AS l FROM s a, s b ORDER BY nope", "nope"),
    ("SELECT map(k, k) AS m FROM s UNION SELECT map(k, k) FROM s", "MAP"),
]


@pytest.mark.parametrize(("query", "message"), REFUSED)
def test_refused(db, query, message):
    db.execute(
        "CREATE SOURCE s (k BIGINT, n BIGINT); CREATE TABLE t (k BIGINT PRIMARY KEY, name INT)"
    )
    with pytest.raises(ms.errors.SqlError, match=message) as caught:
        db.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert caught.value.hint
    assert db.query("SHOW VIEWS").fetchall() == []


@pytest.mark.parametrize(
    ("query", "message", "hint"),
    [
        ("SELECT a.kk FROM s a, s b", "there is no column a.kk", "Did you mean a.k?"),
        ("SELECT a.k FROM s a, s b WHERE bad > 1", "there is no column bad", "Available columns: "),
        ("SELECT MAX(c) FROM (SELECT DISTINCT k FROM s)", "there is no column c", "k"),
    ],
)
def test_a_column_that_is_not_there(db, query, message, hint):
    db.execute("CREATE SOURCE s (k BIGINT, n BIGINT)")
    with pytest.raises(ms.errors.SqlColumnError, match=message) as caught:
        db.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    error = caught.value
    assert hint in error.hint
    name = message.rsplit(" ", 1)[1]
    assert error.sql[error.column - 1 :].startswith(name)


def test_two_columns_of_one_name(db):
    db.execute("CREATE SOURCE s (k BIGINT)")
    with pytest.raises(ms.errors.SqlColumnError, match="two columns are named 'k'"):
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT * FROM s a JOIN s b ON a.k = b.k")


def test_a_subquery_whose_only_row_is_the_value(db):
    db.execute(
        "CREATE TABLE d (id INT PRIMARY KEY, year INT, seq INT);"
        "CREATE TABLE t (id INT PRIMARY KEY, seq INT);"
        "INSERT INTO t VALUES (1, 7), (2, 8), (3, NULL);"
        "CREATE MATERIALIZED VIEW v AS SELECT id,"
        "    seq - (SELECT DISTINCT (seq) FROM d WHERE year = 2001) AS n FROM t"
        "    WHERE (SELECT COUNT(*) FROM d) >= 0"
    )
    assert shown(db, "v") == [(1, None), (2, None), (3, None)]
    db.execute("INSERT INTO d VALUES (1, 2000, 5), (2, 2001, 6), (3, 2001, 6)")
    assert shown(db, "v") == [(1, 1), (2, 2), (3, None)]
    db.execute("UPDATE d SET seq = id + 5 WHERE id = 2; UPDATE d SET year = 0 WHERE id = 3")
    assert shown(db, "v") == [(1, 0), (2, 1), (3, None)]
    db.execute("INSERT INTO d VALUES (4, 2001, 9)")
    with pytest.raises(ms.errors.ViewFailedError, match="has given several rows"):
        db.wait_for("v", timeout=TIMEOUT)


def test_columns_in_parentheses_and_an_order_by_what_has_no_name(db):
    db.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR, n INT);"
        "INSERT INTO t VALUES (1, 'xb', 1), (2, 'ya', 2), (3, 'zb', 3), (4, 'xb', 4);"
        "CREATE MATERIALIZED VIEW v AS SELECT SUBSTR(name, 2, 1), SUM(n) FROM t"
        "    GROUP BY SUBSTR(name, 2, 1) ORDER BY SUM(n) DESC, SUBSTR(name, 2, 1);"
        "CREATE MATERIALIZED VIEW w AS SELECT DISTINCT (name) FROM t ORDER BY name DESC LIMIT 2"
    )
    for view in ("v", "w"):
        db.wait_for(view, timeout=TIMEOUT)
    assert db.query("SELECT * FROM v").fetchall() == [("b", 8), ("a", 2)]
    assert db.query("SELECT name FROM w").fetchall() == [("zb",), ("ya",)]


def test_an_offset_in_the_order_of_what_is_not_selected(db):
    db.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, n INT);"
        "INSERT INTO t VALUES (1, 30), (2, 20), (3, 10);"
        "CREATE MATERIALIZED VIEW v AS SELECT id + 1 AS x FROM t ORDER BY n LIMIT 1 OFFSET 1"
    )
    assert shown(db, "v") == [(3,)]
    db.execute("DELETE FROM t WHERE id = 3")
    assert shown(db, "v") == [(2,)]


def test_commits_that_are_taken_together(db):
    """A group, and the value that all groups are compared with, change in two commits."""
    db.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, k VARCHAR); CREATE TABLE u (n INT PRIMARY KEY);"
        "CREATE MATERIALIZED VIEW v AS SELECT k, COUNT(*) AS n FROM t GROUP BY k"
        "    HAVING COUNT(*) < (SELECT MAX(n) FROM u)"
    )
    db.insert("u", [(n,) for n in range(100, 141)])
    counts = Counter()
    for step in range(40):
        db.execute("DELETE FROM u WHERE n = ?", [140 - step])
        db.insert("t", [(step, "xyz"[step % 3])])
        counts["xyz"[step % 3]] += 1
        settle(db, "v")
        assert shown(db, "v") == sorted(counts.items()), step
