"""Live queries of tenants: each is kept up to date from the rows of its tenant alone."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from millstream import errors
from millstream.testing import TIMEOUT, engine_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
QUERIES = [
    "SELECT k, SUM(n) AS n, COUNT(*) AS c FROM s GROUP BY k",
    "SELECT s.k, label, COUNT(*) AS c FROM s LEFT JOIN t ON s.k = t.k GROUP BY s.k, label",
    "SELECT COUNT(*) AS c, MAX(n) AS n FROM (SELECT n FROM s UNION ALL SELECT n FROM t) AS u",
    # It would fail on rows of b.
    "SELECT k, SUM(1 / (n - 100)) AS x FROM s WHERE 1 / (n - 100) < 9 GROUP BY k",
]


@pytest.fixture
def two(db):
    db.execute(
        "CREATE SOURCE s (who VARCHAR NOT NULL, k VARCHAR, n BIGINT, ts TIMESTAMP, "
        "WATERMARK FOR ts AS ts) WITH (tenant = 'who');"
        "CREATE TABLE t (k VARCHAR, who VARCHAR NOT NULL, label VARCHAR, n BIGINT, "
        "PRIMARY KEY (k, who)) WITH (tenant = 'who');"
        "CREATE SOURCE open (k VARCHAR)"
    )
    db.insert("s", [row("a", "x", 1), row("b", "x", 100), row("a", "y", 2), row("b", "z", 30)])
    db.insert("t", [("x", "a", "ax", 7), ("y", "b", "by", 500), ("x", "b", "bx", 900)])
    return db


def row(who, key, n, seconds=0):
    return (who, key, n, NOON + timedelta(seconds=seconds))


def follow(subscription, copy, wanted):
    """Add up what a subscription gives until it is what is wanted."""
    while True:
        batch = subscription.try_recv()
        if batch is None:
            if Counter({each: n for each, n in copy.items() if n}) == wanted:
                return
            batch = subscription.recv(TIMEOUT)
        for each, weight in zip(batch.rows, batch.weights, strict=True):
            copy[each] += weight


def test_live_queries_of_a_tenant_see_no_row_of_another(two):
    tenants = {"a": QUERIES, "b": QUERIES[:3]}
    live = {
        (tenant, sql): (two.subscribe(sql, tenant=tenant), Counter())
        for tenant, queries in tenants.items()
        for sql in queries
    }

    def check():
        for (tenant, sql), (subscription, copy) in live.items():
            follow(subscription, copy, Counter(two.query(sql, tenant=tenant)))

    check()
    two.insert("s", [row("b", "x", 100), row("a", "x", 5), row("b", "new", 9)])
    check()
    two.insert("s", [row("b", "only b", 100)])
    two.execute("UPDATE t SET who = 'a' WHERE k = 'y'; DELETE FROM t WHERE k = 'x' AND who = 'a'")
    check()
    assert all(" b" not in each[0] for each in live["a", QUERIES[0]][1])
    with two.subscribe(QUERIES[0], tenant="a") as same, two.subscribe(QUERIES[0]) as all_rows:
        assert len([each for each in engine_of(two).views if each.users == 2]) == 1
        follow(same, Counter(), Counter(two.query(QUERIES[0], tenant="a")))
        follow(all_rows, Counter(), Counter(two.query(QUERIES[0])))
    for subscription, _ in live.values():
        subscription.cancel()


def test_windows_of_a_tenant_close_with_the_source(two):
    """The watermark is the source's: rows of all tenants move it, and none shows."""
    sql = (
        "SELECT k, TUMBLE_START(ts, INTERVAL '1 minute') AS m, SUM(n) AS n FROM s "
        "GROUP BY k, TUMBLE(ts, INTERVAL '1 minute') EMIT ON WINDOW CLOSE"
    )
    with two.subscribe(sql, tenant="a") as mine:
        two.insert("s", [row("b", "x", 1, 200)])
        follow(mine, Counter(), Counter([("x", NOON, 1), ("y", NOON, 2)]))
        two.insert("s", [row("a", "late", 1, 0), row("a", "x", 8, 210)])
        two.insert("s", [row("b", "x", 1, 400)])
        follow(mine, Counter(), Counter([("x", NOON + timedelta(minutes=3), 8)]))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) AS n FROM open",
        "SELECT s.k, COUNT(*) AS n FROM (SELECT k FROM open) AS s GROUP BY s.k",
        "SELECT COUNT(*) AS n FROM (SELECT k FROM s UNION ALL SELECT k FROM open) AS u",
    ],
)
def test_a_live_query_over_a_relation_without_a_tenant_column_is_refused(two, sql):
    for subscribe in (two.subscribe, two.subscribe_stream):
        with pytest.raises(errors.TenantError, match="open has no tenant column"):
            subscribe(sql, tenant="a")
    assert not list(engine_of(two).views)
