"""What an ad-hoc query cannot have in this process is answered by Spark, over the newest rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from millstream.errors import ExpressionError, SqlColumnError, SqlUnsupportedError, TenantError
from millstream.model import Schema
from millstream.testing import Background, engine_of, wait_until

from .exact import Plain, bag
from .observing import settle

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
SCHEMAS = {
    "s": Schema.of(k="INTEGER", n="INTEGER", at="TIMESTAMP"),
    "t": Schema.of(k="INTEGER", name="VARCHAR", x="DOUBLE"),
    "v": Schema.of(k="INTEGER", c="BIGINT"),
}
QUERIES = [
    "SELECT k, SOUNDEX(name) AS sound FROM t WHERE x > 1",
    "SELECT k, x FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY name ORDER BY x DESC) = 1",
    "SELECT name, SUM(x) AS total FROM t GROUP BY ROLLUP (name)",
    "SELECT name, MEDIAN(x) AS middle, COUNT(*) AS c FROM t GROUP BY ALL",
    "SELECT * FROM (SELECT name, x FROM t) PIVOT (SUM(x) AS x FOR name IN ('a' AS a, 'b' AS b))",
    "SELECT k, part FROM t LATERAL VIEW EXPLODE(SPLIT(name || ',z', ',')) AS part",
    "SELECT k, TO_JSON(NAMED_STRUCT('x', x)) AS j FROM t",
    "SELECT s.n, v.c, POW(x, 2) AS square FROM s JOIN t ON s.k = t.k LEFT JOIN v ON v.k = t.k",
    "SELECT MEDIAN(c) AS middle FROM v",
    "SELECT k, PERCENTILE_APPROX(n, 0.5) AS p FROM s GROUP BY k",
    "SELECT n, SUM(n) OVER (ORDER BY at RANGE INTERVAL '2' SECOND PRECEDING) AS moving FROM s",
]


# What this process has the words for, and not the types or the place.
BEYOND = [
    "SELECT SUM(i) AS s, AVG(i) AS a FROM w",
    """SELECT k, SUM(p * k) AS v FROM w GROUP BY k
    HAVING SUM(p * k) > (SELECT SUM(p * k) * 0.0001 FROM w)""",
    """SELECT k FROM w WHERE EXISTS (
    SELECT 1 FROM (SELECT k, n FROM s WHERE w.k = s.k) AS a JOIN t ON a.k = t.k)""",
    "SELECT XXHASH64(k) AS h, SOUNDEX('a') AS a FROM w",
]


@pytest.fixture
def made(db):
    db.execute(
        "CREATE SOURCE s (k INT, n INT, at TIMESTAMP);"
        "CREATE TABLE t (k INT PRIMARY KEY, name VARCHAR, x DOUBLE);"
        "CREATE MATERIALIZED VIEW v AS SELECT k, COUNT(*) AS c FROM s GROUP BY k"
    )
    db.insert("s", [(n % 3, n, NOON + timedelta(seconds=n)) for n in range(10)])
    db.insert("t", [(n, "ab"[n % 2], n / 2) for n in range(5)])
    db.execute("DELETE FROM t WHERE k = 4; UPDATE t SET x = 7 WHERE k = 0")
    db.flush()
    settle(db, "v")
    return db


def test_it_is_what_plain_spark_gives(made, spark):
    plain = Plain(spark)
    for turn in range(2):
        for name, schema in SCHEMAS.items():
            plain.give(name, schema, made.query(f"SELECT * FROM {name}").fetchall())
        for sql in QUERIES:
            assert bag(made.query(sql).to_arrow()) == bag(plain.answer(sql)), sql
        if turn == 0:  # rows that were just pushed are read
            made.insert("s", [(5, 50, NOON), (None, None, None)])
            made.insert("t", [(5, None, None)])
            settle(made, "v")


def test_what_a_view_takes_is_taken(made, spark):
    made.execute("CREATE TABLE w (k INT PRIMARY KEY, i INTERVAL, p DECIMAL(28, 10))")
    made.insert("w", [(n, timedelta(seconds=n), n) for n in range(3)])
    plain = Plain(spark)
    schemas = {**SCHEMAS, "w": Schema.of(k="INTEGER", i="INTERVAL", p="DECIMAL(28, 10)")}
    for name, schema in schemas.items():
        plain.give(name, schema, made.query(f"SELECT * FROM {name}").fetchall())
    for sql in BEYOND:
        assert bag(made.query(sql).to_arrow()) == bag(plain.answer(sql)), sql
    sql = "SELECT SOUNDEX(name) AS s FROM t WHERE NOW() > TIMESTAMP '2020-01-01' AND k = 1"
    assert made.query(sql).fetchall() == [("B000",)]
    assert made.prepare(sql).columns.ddl == "s VARCHAR"


def test_an_order_an_as_of_join_and_parameters(made):
    sql = "SELECT k, SOUNDEX(name) AS s FROM t WHERE x >= ? ORDER BY k DESC LIMIT 2"
    assert made.query(sql, [0.5]).fetchall() == [(3, "B000"), (2, "A000")]
    joined = "SELECT s.n, t.k FROM s ASOF LEFT JOIN t ON s.n >= t.k ORDER BY s.n LIMIT 5"
    assert made.query(joined).fetchall() == [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3)]


def test_what_it_says_of_itself(made):
    sql = "SELECT MEDIAN(x) AS middle FROM t"
    assert made.query(f"EXPLAIN {sql}").fetchall()[0] == (
        "ad hoc: a Spark batch: MEDIAN is not supported in a query in process",
    )
    result = made.query(sql)
    assert (result.schema.names, result.lsn) == (("middle",), made.lsn)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT k, UUID() AS u FROM t ORDER BY k",
        "SELECT MEDIAN(x) AS m FROM t EMIT CHANGES",
        "SELECT SOUNDEX(name) AS s FROM t LIMIT 2",  # which two?
    ],
)
def test_what_has_no_one_answer_is_refused_as_before(made, sql):
    with pytest.raises(SqlUnsupportedError) as caught:
        made.query(sql)
    assert caught.value.hint


def test_what_is_wrong_is_said_and_not_that_a_function_is_missing(made):
    with pytest.raises(SqlColumnError, match="nope"):
        made.query("SELECT MEDIAN(nope) AS m FROM t")


def test_a_row_without_a_value(made):
    with pytest.raises(ExpressionError, match="zero"):
        made.query("SELECT MEDIAN(1 / k) AS m FROM t")


def test_a_query_that_takes_too_long_is_ended(made, spark):
    made.insert("s", [(n, n, NOON) for n in range(3000)])
    tracker, relations = spark.sparkContext.statusTracker(), engine_of(made).relations
    live = len(tracker.getActiveJobsIds())
    asked = Background(lambda: made.query("SELECT MEDIAN(a.n * b.n + c.n) AS m FROM s a, s b, s c"))
    [thread] = wait_until(lambda: list(relations._past._running))
    wait_until(lambda: len(tracker.getActiveJobsIds()) > live)
    relations.interrupt(thread)
    with pytest.raises(ExpressionError, match=r"(?i)cancel"):
        asked.result()
    wait_until(lambda: len(tracker.getActiveJobsIds()) == live)
    assert made.query("SELECT MEDIAN(k) AS m FROM t").fetchall() == [(1.5,)]


def test_tenants_read_their_own_rows(db):
    db.execute(
        "CREATE SOURCE s (who VARCHAR NOT NULL, n INT) WITH (tenant = 'who');"
        "CREATE TABLE t (who VARCHAR NOT NULL, n INT, PRIMARY KEY (who, n)) WITH (tenant = 'who');"
        "CREATE MATERIALIZED VIEW v WITH (tenant = 'who') AS "
        "SELECT who, COUNT(*) AS c FROM s GROUP BY who;"
        "CREATE TABLE secret (n INT PRIMARY KEY)"
    )
    db.insert("s", [("a", 1), ("a", 2), ("b", 5)])
    db.insert("t", [("a", 1), ("b", 5), ("b", 2)])
    sql = "SELECT MEDIAN(s.n) AS m, COUNT(t.n) AS c FROM s LEFT JOIN t ON s.n = t.n"
    assert db.query(sql, tenant="a").fetchall() == [(1.5, 1)]
    assert db.query(sql, tenant="b").fetchall() == [(5.0, 1)]
    assert db.query(sql).fetchall() == [(2.0, 3)]
    settle(db, "v")
    assert db.query("SELECT SOUNDEX(who) AS w, c FROM v", tenant="a").fetchall() == [("A000", 2)]
    with pytest.raises(TenantError):
        db.query("SELECT MEDIAN(n) AS m FROM secret", tenant="a")
