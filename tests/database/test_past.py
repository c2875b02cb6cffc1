"""The past without Spark: AS OF, and subscriptions that begin in the past."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

import millstream as ms
from millstream.errors import (
    InvalidOptionError,
    LsnNotKeptError,
    ObjectNotFoundError,
    SqlError,
    SqlUnsupportedError,
    TenantError,
)
from millstream.model.clock import ManualClock, from_datetime
from millstream.testing import TIMEOUT, Mirror, database, engine_of, wait_until

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.fixture
def quotes(db):
    """A table and a source, two views of one log each, and a stream."""
    db.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT); CREATE SOURCE s (n INT);"
        "CREATE MATERIALIZED VIEW high AS SELECT id, v * 10 AS tens FROM t WHERE v > 1;"
        "CREATE MATERIALIZED VIEW odd AS SELECT n FROM s WHERE n % 2 = 1;"
        "CREATE STREAM even AS SELECT n FROM s WHERE n % 2 = 0"
    )
    return db


def as_of(db, what, moment):
    return Counter(db.query(f"SELECT * FROM {what} AS OF {moment}").fetchall())


@pytest.mark.slow
def test_every_lsn(tmp_path):
    """Of random changes, after a restart, too."""
    draw, recorded = random.Random(12).randrange, []
    with ms.open(tmp_path) as db:
        db.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT); CREATE SOURCE s (n INT)")
        db.execute("CREATE MATERIALIZED VIEW high AS SELECT id, v * 10 AS x FROM t WHERE v > 4")
        for step in range(200):
            if draw(3):
                db.insert("t", [(draw(8), draw(9))], replace=True)
            elif draw(2):
                db.execute("DELETE FROM t WHERE v = ?", [draw(9)])
            else:
                db.insert("s", [(step,), (-step,)])
            rows = db.query("SELECT * FROM t").fetchall()
            joined = db.query("SELECT t.id, COUNT(*) AS c FROM t, s GROUP BY t.id").fetchall()
            recorded.append((db.flush(), Counter(rows), len(db.query("SELECT * FROM s")), joined))
    with ms.open(tmp_path) as db:
        for lsn, rows, count, joined in recorded[::5]:
            assert as_of(db, "t", lsn) == rows
            assert as_of(db, "high", lsn) == Counter((i, v * 10) for i, v in rows if v > 4)
            assert len(db.query(f"SELECT * FROM s AS OF {lsn}")) == count
            found = db.query(f"SELECT t.id, COUNT(*) AS c FROM t, s GROUP BY t.id AS OF {lsn}")
            assert Counter(found.fetchall()) == Counter(joined)
            assert found.lsn == lsn


def test_a_view_is_what_its_inputs_make_it(quotes):
    """At an LSN its own change may come after, and at one when it did not exist."""
    quotes.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
    quotes.insert("s", [(1,), (2,), (3,)])
    lsn = max(engine_of(quotes).log.read("s").next(timeout=TIMEOUT).lsns)
    quotes.execute("UPDATE t SET v = 5")
    quotes.execute("CREATE MATERIALIZED VIEW later AS SELECT tens + 1 AS more FROM high")
    assert as_of(quotes, "high", lsn) == Counter([(2, 20)])
    assert as_of(quotes, "later", lsn) == Counter([(21,)])
    assert as_of(quotes, "odd", lsn) == Counter([(1,), (3,)])
    assert as_of(quotes, "even", lsn) == Counter([(2,)])
    first = lsn - 2
    assert as_of(quotes, "odd", first) == Counter([(1,)])


def test_an_update_is_whole(quotes):
    quotes.execute("INSERT INTO t VALUES (1, 1)")
    before = quotes.flush()
    quotes.execute("UPDATE t SET v = 2")
    assert as_of(quotes, "t", before) == Counter([(1, 1)])
    assert as_of(quotes, "t", before + 1) == Counter([(1, 2)])
    snapshot = quotes.subscribe("SELECT * FROM t", start=before + 1).recv(timeout=TIMEOUT)
    assert snapshot.rows == [(1, 2)]


def test_where_and_limit(quotes):
    quotes.insert("s", [(n,) for n in range(10)])
    lsn = quotes.flush()
    quotes.insert("s", [(n,) for n in range(10, 20)])
    found = quotes.query("SELECT n * 2 AS m FROM s WHERE n > ? LIMIT 3 AS OF ?", [4, lsn])
    assert found.fetchall() == [(10,), (12,), (14,)]
    assert quotes.query(f"SELECT MAX(n) AS m FROM s AS OF LSN {lsn}").fetchall() == [(9,)]


def test_one_row_by_its_key(quotes):
    """Such statements are remembered by their text, which then has another moment."""
    quotes.execute("INSERT INTO t VALUES (1, 1)")
    lsn = quotes.flush()
    quotes.execute("UPDATE t SET v = 2")
    for sql, given in [
        (f"SELECT v FROM t WHERE id = ? AS OF {lsn}", [1]),
        ("SELECT v FROM t WHERE id = ? AS OF ?", [1, lsn]),
        ("SELECT v FROM t WHERE id = :id AS OF :lsn", {"id": 1, "lsn": lsn}),
    ]:
        for _ in range(3):
            assert quotes.query(sql, given).fetchall() == [(1,)]
    assert quotes.query("SELECT v FROM t WHERE id = ?", [1]).fetchall() == [(2,)]


def test_times():
    """A time means the last commit at or before it."""
    clock = ManualClock(from_datetime(NOON))
    with database(
        "CREATE SOURCE s (n INT)", "CREATE TABLE t (n INT PRIMARY KEY)", clock=clock
    ) as db:
        for n in range(5):
            clock.advance(60_000_000)
            db.insert("s", [(n,)])
            db.execute(f"INSERT INTO t VALUES ({n})")
            db.flush()
        clock.advance(30_000_000)
        for text, count in [
            ("TIMESTAMP '2026-01-02 12:03:00'", 3),
            ("'2026-01-02T13:03:59+01:00'", 3),
            ("NOW() - INTERVAL '90 seconds'", 4),
            ("INTERVAL '1' MINUTE AGO", 4),
            ("CURRENT_TIMESTAMP", 5),
            ("NOW()", 5),
        ]:
            assert len(db.query(f"SELECT * FROM s AS OF {text}")) == count, text
            assert len(db.query(f"SELECT * FROM t AS OF {text}")) == count, text
        given = {"then": NOON + timedelta(minutes=2)}
        assert len(db.query("SELECT * FROM t AS OF :then", given)) == 2
        begun = db.subscribe("SELECT * FROM t", start=NOON + timedelta(minutes=2))
        assert sorted(begun.recv(timeout=TIMEOUT).rows) == [(0,), (1,)]
        assert begun.recv(timeout=TIMEOUT).rows == [(2,)]
        with pytest.raises(SqlError, match="lies in the future"):
            db.query("SELECT * FROM s AS OF '2026-01-02 12:06:00'")
        with pytest.raises(ObjectNotFoundError, match="s did not exist at LSN 0"):
            db.query("SELECT * FROM s AS OF '2025-01-01'")


def test_what_was_pushed_just_now_counts(quotes):
    quotes.source("s").push((1,))
    assert len(quotes.query("SELECT * FROM s AS OF NOW()")) == 1


# ---- what is refused


def test_what_is_not_there(quotes):
    with pytest.raises(SqlError, match="LSN 99,999 lies in the future") as raised:
        quotes.query("SELECT *\nFROM s AS OF 99999")
    assert (raised.value.line, raised.value.column) == (2, 8)
    quotes.insert("s", [(1,)])
    quotes.wait_for("odd", timeout=TIMEOUT)  # whose row is a commit, too
    lsn = quotes.flush()
    quotes.execute("CREATE TABLE young (n INT PRIMARY KEY)")
    quotes.execute("CREATE MATERIALIZED VIEW younger AS SELECT n FROM young")
    for name in ("young", "younger"):  # nothing has happened since
        assert quotes.query(f"SELECT * FROM {name} AS OF {quotes.lsn}").fetchall() == []
    quotes.insert("s", [(1,)])
    for name in ("young", "younger"):
        with pytest.raises(ObjectNotFoundError, match=f"young did not exist at LSN {lsn}"):
            quotes.query(f"SELECT * FROM {name} AS OF {lsn}")


def test_what_retention_has_removed(quotes):
    quotes.insert("s", [(n,) for n in range(10)])
    early = quotes.flush() - 5
    quotes.wait_for("odd", timeout=TIMEOUT)
    log = engine_of(quotes).log
    log.trim("s", early + 3)
    wait_until(lambda: log.topic("s").low_lsn > early, "the trim")
    with pytest.raises(LsnNotKeptError, match="that s had"):
        quotes.query(f"SELECT * FROM s AS OF {early}")
    assert len(quotes.query(f"SELECT * FROM s AS OF {early + 4}")) == 2  # what is kept
    for lsn in (early, early + 4):  # the view has counted the others
        with pytest.raises(LsnNotKeptError, match="that s had") as raised:
            quotes.query(f"SELECT * FROM odd AS OF {lsn}")
        assert f"start={lsn}" in raised.value.hint
    assert quotes.subscribe("SELECT * FROM odd", start=quotes.lsn).recv(timeout=TIMEOUT).rows == [
        (n,) for n in (1, 3, 5, 7, 9)
    ]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT * FROM s AS OF 1 WHERE n > 1", "unexpected 'WHERE' after AS OF"),
        ("SELECT * FROM s AS OF 1 JOIN t ON s.n = t.id", "unexpected 'JOIN' after AS OF"),
        ("SELECT * FROM (SELECT * FROM s AS OF 1) q", "AS OF within a query"),
        ("SELECT * FROM s VERSION AS OF 1", "AS OF within a query"),
        ("SELECT * FROM s TIMESTAMP AS OF '2026-01-01'", "AS OF within a query"),
        ("SELECT * FROM s FOR SYSTEM_TIME AS OF 1", "FOR SYSTEM_TIME is not supported in FROM"),
        ("SELECT * FROM s AS OF -1", "an LSN or a time after AS OF"),
        ("SELECT * FROM s AS OF 1.5", "an LSN or a time after AS OF"),
        ("SELECT * FROM s AS OF LSN '1'", "an LSN or a time after AS OF"),
        ("SELECT * FROM s AS OF 'yesterday'", "is not a time"),
        ("SELECT * FROM s AS OF NOW() - INTERVAL '-1 day'", "lies in the future"),
        ("CREATE MATERIALIZED VIEW v AS SELECT * FROM s AS OF 1", "has no AS OF"),
    ],
)
def test_refused(quotes, sql, message):
    with pytest.raises(SqlError, match=message) as raised:
        quotes.execute(sql)
    assert raised.value.hint


def test_refused_in_subscriptions(quotes):
    for run in (
        lambda: quotes.subscribe("SELECT * FROM t AS OF 1"),
        lambda: quotes.subscribe("LIVE SELECT * FROM s AS OF 1"),
        lambda: quotes.subscribe(["SELECT * FROM t AS OF 1"]),
        lambda: quotes.subscribe_callback("SELECT * FROM s AS OF 1", print, inline=True),
    ):
        with pytest.raises(SqlUnsupportedError, match="a subscription has no AS OF"):
            run()
    for start in (1, NOON):
        with pytest.raises(InvalidOptionError, match="past of such a query") as raised:
            quotes.subscribe("SELECT v, COUNT(*) AS n FROM t GROUP BY v", start=start)
        assert "CREATE MATERIALIZED VIEW" in raised.value.hint


def test_tenants(db):
    db.execute(
        "CREATE TABLE t (who VARCHAR NOT NULL, id INT, PRIMARY KEY (who, id))"
        " WITH (tenant = 'who');"
        "CREATE SOURCE s (n INT)"
    )
    db.execute("INSERT INTO t VALUES ('a', 1), ('b', 2)")
    lsn = db.flush()
    db.execute("INSERT INTO t VALUES ('a', 3)")
    assert db.query(f"SELECT id FROM t AS OF {lsn}", tenant="a").fetchall() == [(1,)]
    counted = f"SELECT COUNT(*) AS n FROM t AS OF {lsn}"
    assert db.query(counted, tenant="b").fetchall() == [(1,)]
    with pytest.raises(TenantError):
        db.query(f"SELECT * FROM s AS OF {lsn}", tenant="a")
    begun = db.subscribe("SELECT id FROM t", start=lsn, tenant="a")
    assert [begun.recv(timeout=TIMEOUT).rows for _ in range(2)] == [[(1,)], [(3,)]]


def test_explain(quotes):
    lines = quotes.explain("SELECT * FROM high JOIN s ON high.id = s.n AS OF 3").splitlines()
    assert lines == [
        "as of LSN 3",
        "high: its query over what t had, in process",
        "s: from its log, in process",
        "the query over them: by DuckDB, in process",
    ]


# ---- subscriptions


@pytest.mark.parametrize("what", ["t", "high", "odd"])
def test_subscribed_from_every_lsn(quotes, what):
    """A snapshot as it was, then each change once."""
    draw = random.Random(4).randrange
    for step in range(60):
        if draw(2):
            quotes.insert("t", [(draw(5), draw(9))], replace=True)
        else:
            quotes.insert("s", [(step,)])
    for view in ("high", "odd"):
        quotes.wait_for(view, timeout=TIMEOUT)
    last, rows = quotes.flush(), Counter(quotes.query(f"SELECT * FROM {what}").fetchall())
    shown, copy = [], Counter()
    for batch in engine_of(quotes).log.read(what):
        for lsn, row, weight in zip(batch.lsns, batch.rows, batch.weights, strict=True):
            copy[row] += weight
            shown.append((lsn, weight, +copy))
    for (_, weight, before), (after, _, _) in itertools.pairwise(shown):
        if weight < 0:
            continue
        begun = quotes.subscribe(f"SELECT * FROM {what}", start=after - 1)
        mirror, snapshot = Mirror(), begun.recv(timeout=TIMEOUT)
        assert (snapshot.kind, snapshot.lsn) == ("snapshot", after - 1)
        assert Counter(snapshot.rows) == before
        mirror.apply(snapshot)
        while (batch := begun.try_recv()) is not None or begun.metrics.lag_rows:
            if batch is not None:
                mirror.apply(batch)
        assert +mirror.rows == rows
        assert begun.position <= last


def test_before_a_view_existed(quotes):
    """There was nothing to see; then comes what it began with."""
    quotes.insert("s", [(1,), (3,)])
    lsn = quotes.flush()
    quotes.execute("CREATE MATERIALIZED VIEW more AS SELECT n + 1 AS m FROM s")
    quotes.wait_for("more", timeout=TIMEOUT)
    begun = quotes.subscribe("SELECT * FROM more", start=lsn)
    assert begun.recv(timeout=TIMEOUT).rows == []
    assert begun.recv(timeout=TIMEOUT).rows == [(2,), (4,)]


def test_sources_and_lists_begin_with_the_change(quotes):
    quotes.insert("s", [(1,), (2,)])
    lsn = quotes.flush()
    quotes.execute("INSERT INTO t VALUES (1, 1)")
    assert quotes.subscribe("SELECT * FROM s", start=lsn).recv(timeout=TIMEOUT).rows == [(2,)]
    cut = quotes.subscribe(["t", "s"], start=lsn).recv(timeout=TIMEOUT)
    assert [batch.kind for batch in cut["t"]] == ["changes"]


def test_a_durable_subscription_begins_in_the_past(quotes):
    quotes.execute("INSERT INTO t VALUES (1, 1)")
    lsn = quotes.flush()
    quotes.execute("INSERT INTO t VALUES (2, 2)")
    with quotes.subscribe("SELECT * FROM t", start=lsn, name="d") as begun:
        assert begun.recv(timeout=TIMEOUT).rows == [(1, 1)]
        begun.ack()
    with quotes.subscribe("SELECT * FROM t", start=lsn, name="d") as again:
        assert again.recv(timeout=TIMEOUT).rows == [(2, 2)]
