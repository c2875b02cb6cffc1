"""Several queries in one subscription, without Spark: what it gives, and what it refuses."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

import millstream as ms
from millstream.errors import (
    ClosedError,
    InvalidOptionError,
    InvalidTokenError,
    ObjectNotFoundError,
    SubscriptionEndedError,
)
from millstream.testing import TIMEOUT, Background, Mirror, database, wait_until

SETUP = """
    CREATE SOURCE s (k INT, n BIGINT);
    CREATE TABLE t (k INT PRIMARY KEY, n BIGINT);
    CREATE MATERIALIZED VIEW large AS SELECT k, n FROM s WHERE n > 10;
    CREATE MATERIALIZED VIEW huge AS SELECT k FROM large WHERE n > 100
"""


@pytest.fixture
def db():
    with database(*SETUP.split(";")) as made:
        yield made


def follow(subscription, mirrors, until):
    """Apply cuts until one is at an LSN, or later; returns it."""
    while True:
        cut = subscription.recv(timeout=TIMEOUT)
        for query, batch in cut:
            mirrors[query].apply(batch)
        if cut.lsn >= until:
            return cut


def catch_up(subscription, mirrors):
    """Apply all cuts that there are."""

    def is_up_to_date():
        while (cut := subscription.try_recv()) is not None:
            for query, batch in cut:
                mirrors[query].apply(batch)
        return subscription.metrics.lag_rows == 0

    wait_until(is_up_to_date, "all cuts")


def test_sources_tables_views_and_selects_at_one_lsn(db):
    queries = ["s", "t", "large", "huge", "SELECT n FROM s WHERE k = 1"]
    mirrors = {query: Mirror() for query in queries}
    subscription = db.subscribe(queries)
    first = subscription.recv(timeout=TIMEOUT)
    assert first.kind == "snapshot"
    assert [query for query, _ in first] == ["t", "large", "huge"]
    for number in range(30):
        db.insert("s", [(number % 3, number * 10), (1, number)])
        if number % 5 == 0:
            db.execute("INSERT OR REPLACE INTO t VALUES (?, ?)", [number % 2, number])
        cut = follow(subscription, mirrors, 0)
        rows = mirrors["s"].rows
        assert mirrors["large"].rows == Counter(r for r in rows.elements() if r[1] > 10)
        assert mirrors["huge"].rows == Counter((r[0],) for r in rows.elements() if r[1] > 100)
        assert mirrors[queries[4]].rows == Counter((r[1],) for r in rows.elements() if r[0] == 1)
        assert subscription.position == cut.lsn
        assert subscription.token == cut.token
    catch_up(subscription, mirrors)
    for query in queries[1:4]:
        assert mirrors[query].rows == Counter(db.query(f"SELECT * FROM {query}").fetchall())


def test_arrow_by_query(db):
    subscription = db.subscribe(["s", "t"], start="now")
    db.execute("INSERT INTO t VALUES (1, 2)")
    tables = subscription.recv(timeout=TIMEOUT).to_arrow()
    assert list(tables) == ["t"]
    assert tables["t"].column_names == ["k", "n", "_op", "_weight", "_lsn"]


def test_snapshot_of_all_at_one_lsn(db):
    db.insert("s", [(1, 5), (2, 50)])
    db.wait_for("large", timeout=TIMEOUT)
    cut = db.subscribe(["s", "large", "t"], start="snapshot").recv(timeout=TIMEOUT)
    assert {query: [b.rows for b in cut[query]] for query in cut.batches} == {
        "s": [[(1, 5), (2, 50)]],
        "large": [[(2, 50)]],
        "t": [[]],
    }
    assert repr(cut) == f"<Cut snapshot at LSN {cut.lsn}: s: 2 rows, large: 1 rows, t: 0 rows>"
    assert len(cut) == 3


def test_callback(db):
    cuts = []
    subscription = db.subscribe_callback(["s", "large"], cuts.append)
    wait_until(lambda: cuts, "the snapshot")
    db.insert("s", [(1, 50)])
    wait_until(lambda: any(cut["large"] for cut in cuts[1:]), "the change")
    assert [type(cut) for cut in cuts] == [ms.Cut] * len(cuts)
    subscription.cancel()
    assert subscription.join(TIMEOUT)


def test_async_stream(db):
    async def main():
        async with db.subscribe_stream(["s", "large"]) as stream:
            assert isinstance(stream, ms.AsyncCutSubscription)
            kinds = []
            async for cut in stream:
                kinds.append(cut.kind)
                if cut["large"] and cut.kind == "changes":
                    return kinds
                if len(kinds) == 1:
                    db.insert("s", [(1, 50)])
        return []

    assert asyncio.run(asyncio.wait_for(main(), TIMEOUT))[0] == "snapshot"


def test_resumes_with_the_token_of_a_cut_after_a_restart(tmp_path):
    queries = ["s", "t", "large"]
    mirrors = {query: Mirror() for query in queries}
    with database(*SETUP.split(";"), path=tmp_path / "db") as db:
        subscription = db.subscribe(queries)
        db.insert("s", [(1, 50), (2, 5)])
        token = follow(subscription, mirrors, db.lsn).token
        db.insert("s", [(3, 500)])
        db.execute("INSERT INTO t VALUES (1, 1)")
    with ms.open(tmp_path / "db") as db:
        resumed = db.subscribe(queries, start=token)
        db.insert("s", [(4, 5000)])
        db.flush()
        db.wait_for("large", timeout=TIMEOUT)
        catch_up(resumed, mirrors)
        for query in queries:
            assert mirrors[query].rows == Counter(db.query(f"SELECT * FROM {query}").fetchall())
        with pytest.raises(InvalidTokenError, match="of 3 queries, and these are 2"):
            db.subscribe(queries[:2], start=token)


def test_a_reader_that_is_slower_than_its_buffer_misses_nothing(db):
    mirrors = {query: Mirror() for query in ("s", "large")}
    subscription = db.subscribe(["s", "large"], buffer_rows=10)
    follow(subscription, mirrors, 0)
    for number in range(200):
        db.source("s").push((1, number))
        if number % 20 == 0:
            db.flush()
    db.flush()
    db.wait_for("large", timeout=TIMEOUT)
    catch_up(subscription, mirrors)
    assert mirrors["s"].rows == Counter((1, n) for n in range(200))
    assert mirrors["large"].rows == Counter((1, n) for n in range(11, 200))


def test_no_row_is_no_cut(db):
    subscription = db.subscribe(["s", "large"], start="now")
    db.execute("INSERT INTO t VALUES (1, 2)")
    db.flush()
    assert subscription.try_recv() is None
    with pytest.raises(TimeoutError):
        subscription.recv(timeout=0.01)


def test_what_is_dropped_ends_it(db):
    subscription = db.subscribe(["s", "t"])
    subscription.recv(timeout=TIMEOUT)
    waiting = Background(subscription.recv)
    db.execute("DROP TABLE t")
    with pytest.raises(SubscriptionEndedError):
        waiting.result()
    assert subscription.state == "failed"
    assert not db.query("SHOW SUBSCRIPTIONS").fetchall()


def test_cancelled_and_closed(db):
    subscription = db.subscribe(["s", "large"])
    waiting = Background(lambda: list(subscription))
    wait_until(lambda: subscription.metrics.position or not subscription.metrics.lag_rows)
    subscription.cancel()
    waiting.result()
    with pytest.raises(ClosedError):
        subscription.recv()
    other = db.subscribe(["s", "large"])
    assert other.recv(TIMEOUT).kind == "snapshot"
    db.close()
    assert list(other) == []


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"name": "durable"}, "name"),
        ({"backpressure": "drop_oldest"}, "backpressure"),
        ({"backpressure": "conflate"}, "backpressure"),
        ({"max_rows": 5}, "max_rows"),
        ({"max_delay": 1.0, "demand": 3}, "max_delay, demand"),
    ],
)
def test_options_that_would_split_a_cut_are_refused(db, options, named):
    with pytest.raises(InvalidOptionError, match=f"several queries has no {named}"):
        db.subscribe(["s", "t"], **options)


def test_lists_that_are_refused(db):
    with pytest.raises(InvalidOptionError, match="empty"):
        db.subscribe([])
    with pytest.raises(InvalidOptionError, match="twice"):
        db.subscribe(["s", "s"])
    with pytest.raises(ObjectNotFoundError):
        db.subscribe(["s", "nothing"])
    with pytest.raises(InvalidOptionError, match="expected a query or a list"):
        db.subscribe({"s", "t"})
    with pytest.raises(InvalidOptionError, match="parameters"):
        db.subscribe(["SELECT * FROM s WHERE k = ?", "t"], [1])
    with pytest.raises(InvalidOptionError, match="inline"):
        db.subscribe_callback(["s", "t"], print, inline=True)
    with pytest.raises(InvalidOptionError, match="no token at LSN"):
        db.subscribe(["s", "t"]).token_at(5)
    assert not db.query("SHOW SUBSCRIPTIONS").fetchall()


def test_a_tenant_gets_its_own_rows(db):
    db.execute("CREATE SOURCE own (org VARCHAR NOT NULL, n BIGINT) WITH (tenant = 'org')")
    db.execute("CREATE SOURCE more (org VARCHAR NOT NULL, n BIGINT) WITH (tenant = 'org')")
    subscription = db.subscribe(["own", "more"], tenant="acme")
    db.insert("own", [("acme", 1), ("other", 2)])
    db.insert("more", [("other", 2), ("acme", 3)])
    rows = []
    while len(rows) < 2:
        rows += [row for _, batch in subscription.recv(timeout=TIMEOUT) for row in batch.rows]
    assert sorted(rows) == [("acme", 1), ("acme", 3)]
