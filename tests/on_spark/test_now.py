"""Conditions on the time in live views: after each tick they are what DuckDB answers for it.

The time is that of a clock which the tests move; ``Timed.tick`` has it committed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import millstream as ms
from millstream.errors import SqlUnsupportedError
from millstream.model.clock import from_datetime
from millstream.testing import ManualClock, Mirror, database, engine_of, wait_until

from .against_duckdb import Model, Proof
from .guest import guest, invitation
from .observing import rows_of, settle

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
TIME = pa.timestamp("us", tz="UTC")
SCHEMAS = {
    "t": pa.schema([("id", pa.int32()), ("k", pa.int32()), ("ts", TIME), ("till", TIME)]),
    "s": pa.schema([("n", pa.int32()), ("k", pa.int32()), ("ts", TIME)]),
    "clock": pa.schema([("now", TIME)]),
}
VIEWS = {
    "recent": "SELECT id, ts FROM t WHERE ts > NOW() - INTERVAL '10 seconds'",
    "until": "SELECT * FROM t WHERE NOW() <= ts + INTERVAL '10' SECOND AND k > 0",
    "past": "SELECT id, k FROM t WHERE ts <= CURRENT_TIMESTAMP",
    "before": "SELECT id, k FROM t WHERE ts < NOW() - INTERVAL '5' SECOND",
    "within": "SELECT n, ts FROM s WHERE ts BETWEEN NOW() - INTERVAL '10 seconds' AND NOW()",
    "valid": "SELECT id FROM t WHERE NOW() >= ts AND NOW() < till",
    "age": "SELECT n FROM s WHERE NOW() - ts < INTERVAL '7' SECOND",
    "ahead": "SELECT n FROM s WHERE ts - NOW() >= INTERVAL '3' SECOND",
    "fixed": "SELECT n FROM s WHERE ts BETWEEN NOW() AND TIMESTAMP '2026-01-01 12:00:30'",
    "counts": "SELECT k, COUNT(*) AS c, MAX(id) AS m FROM t WHERE ts >= NOW() - INTERVAL '10'"
    " SECOND GROUP BY k",
    "total": "SELECT COUNT(*) AS c FROM s WHERE ts > NOW() - INTERVAL '10' SECOND AND ts <= NOW()",
    "joined": "SELECT t.id, s.n FROM t JOIN s ON t.k = s.k WHERE s.ts > NOW() - INTERVAL '10'"
    " SECOND AND t.ts <= NOW()",
    "outer_": "SELECT t.id, x.n FROM t LEFT JOIN (SELECT * FROM s WHERE ts > NOW() - INTERVAL '9'"
    " SECOND) AS x ON t.k = x.k",
    "some_": "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM s WHERE s.k = t.k AND s.ts > NOW())",
    "among": "SELECT id FROM t WHERE ts <= NOW() AND k IN (SELECT k FROM s WHERE ts > NOW())",
    "newest": "SELECT k, m FROM (SELECT k, MAX(ts) AS m FROM t GROUP BY k) WHERE m > NOW() -"
    " INTERVAL '6' SECOND",
    "top_": "SELECT id, ts FROM t WHERE ts <= NOW() ORDER BY ts DESC, id LIMIT 3",
    "both_": "SELECT id AS n FROM t WHERE ts > NOW() UNION ALL SELECT n FROM s WHERE ts > NOW()",
    "latest": "SELECT k, COUNT(*) AS c FROM t WHERE id > 1 GROUP BY k HAVING MAX(ts) > NOW() -"
    " INTERVAL '6' SECOND AND COUNT(*) < 9",
    "some_of_all": "SELECT COUNT(*) AS c FROM s HAVING MIN(ts) < NOW() OR MAX(ts) > NOW()",
    "either": "SELECT id FROM t WHERE ts > NOW() - INTERVAL '5' SECOND OR till <= NOW()",
    "outside": "SELECT id, k FROM t WHERE k > 0 AND NOT (ts <= NOW() AND NOW() < till)",
    "mixed": "SELECT id FROM t WHERE (k = 0 AND ts > NOW()) OR (k = 1 AND till > NOW()) OR k = 2",
    "apart": "SELECT n, k FROM s WHERE NOW() BETWEEN ts AND ts + INTERVAL '2' SECOND OR NOW()"
    " BETWEEN ts + INTERVAL '4' SECOND AND ts + INTERVAL '6' SECOND",
    "on_": "SELECT t.id, s.n FROM t JOIN s ON t.k = s.k AND s.ts > NOW() AND t.till <> NOW()",
    "at_": "SELECT n FROM s WHERE ts = NOW() OR k <> 1 AND ts <> NOW() - INTERVAL '1' SECOND",
    "grouped_": "SELECT k, COUNT(*) AS c FROM t WHERE ts > NOW() OR till > NOW() GROUP BY k",
    "over_": "SELECT a.id, b.c FROM recent a JOIN counts b ON a.id = b.m",
}


def expected(sql):
    """The same SELECT for DuckDB, where the time is a row."""
    now = "(SELECT now FROM clock)"
    return sql.replace("NOW()", now).replace("CURRENT_TIMESTAMP", now)


def tables(db):
    db.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, k INT, ts TIMESTAMP, till TIMESTAMP);"
        "CREATE SOURCE s (n INT, k INT, ts TIMESTAMP)"
    )


class Timed:
    """A database whose clock stands until it is moved, and a model of its rows."""

    def __init__(self, db, clock):
        self.db, self._clock = db, clock
        self.proof = Proof(db, Model(SCHEMAS), {"t": ["id"]})
        self._show()

    def _show(self):
        now = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self._clock())
        self.proof.model.put("clock", [(now,)])

    def tick(self, step=SECOND):
        self._clock.advance(step // timedelta(microseconds=1))
        engine_of(self.db).views.clock.tick()
        self._show()

    def view(self, name, sql):
        self.proof.view(name, sql, expected(sql))


@pytest.fixture
def timed(tmp_path, spark):
    clock = ManualClock(from_datetime(NOON))
    with database(path=tmp_path / "db", spark=spark, clock=clock) as db:
        tables(db)
        yield Timed(db, clock)


class Changes:
    """Random changes of the table ``t`` and the source ``s``, around the time."""

    def __init__(self, timed, seed):
        self._timed, self._chance, self._number = timed, random.Random(seed), 0

    def when(self):
        [(now,)] = self._timed.proof.model.rows["clock"]
        step = self._chance.choice([None, *range(-15, 16)])
        return None if step is None else now + step * SECOND

    def make(self):
        proof, chance = self._timed.proof, self._chance
        known = proof.model.rows["t"]
        what = chance.random()
        self._number += 1
        if not known or what < 0.6:
            k = chance.choice([0, 1, 2, None])
            if what < 0.3:
                proof.insert("s", [(self._number, k, self.when())])
            else:
                proof.insert("t", [(self._number, k, self.when(), self.when())])
        elif what < 0.8:
            where = {"id": chance.choice(known)[0]}
            proof.update("t", {"ts": self.when(), "till": self.when()}, where)
        else:
            proof.delete("t", {"id": chance.choice(known)[0]})


def test_each_kind_against_duckdb(timed):
    changes = Changes(timed, 5)
    for _ in range(12):
        changes.make()
    for name, sql in VIEWS.items():
        timed.view(name, sql)
    timed.proof.check()
    for count, step in [(1, 1), (5, 0), (0, 1), (8, 3), (3, 0), (20, 1), (0, 2), (4, 7), (0, 40)]:
        for _ in range(count):
            changes.make()
        if step:
            timed.tick(step * SECOND)
        timed.proof.check()


def test_rows_come_and_go_at_their_microsecond(timed):
    db, micro = timed.db, timedelta(microseconds=1)
    db.insert("s", [(1, 1, NOON), (2, 1, NOON + micro), (3, 1, None)])
    for name, test in {
        "lt": "ts < NOW()",
        "le": "ts <= NOW()",
        "gt": "ts > NOW()",
        "ge": "ts >= NOW()",
        "never": "ts > NOW() AND ts < NOW()",
    }.items():
        timed.view(name, f"SELECT n FROM s WHERE {test}")
    timed.proof.model.put("s", [(1, 1, NOON), (2, 1, NOON + micro), (3, 1, None)])
    for _ in range(4):
        timed.proof.check()
        timed.tick(micro)


def test_a_tick_is_one_commit_with_its_lsn(timed):
    db = timed.db
    timed.view("v", "SELECT n FROM s WHERE ts > NOW()")
    subscription = db.subscribe("SELECT * FROM v")
    subscription.recv(timeout=60)
    db.insert("s", [(n, 1, NOON + 5 * SECOND) for n in range(3)])
    assert len(subscription.recv(timeout=60)) == 3
    timed.tick(5 * SECOND)
    gone = list(subscription.recv(timeout=60))
    assert [change.op for change in gone] == ["delete"] * 3
    assert len({change.cause for change in gone}) == 1
    assert db.cause(gone[0]) == {"s": []}


def test_the_clock_is_not_shown(timed):
    db = timed.db
    timed.view("v", "SELECT n FROM s WHERE ts > NOW()")
    assert [each["name"] for each in db.query("SHOW SOURCES").to_pylist()] == ["s"]
    assert "__clock" not in str(db.topology())
    text = "\n".join(map(str, db.query("EXPLAIN SELECT n FROM s WHERE ts > NOW() EMIT CHANGES")))
    assert "read the clock, s" in text
    with pytest.raises(ms.Error):
        db.execute("CREATE MATERIALIZED VIEW w AS SELECT * FROM __clock")
    db.execute("DROP VIEW v; DROP SOURCE s")


def test_any_select_can_be_subscribed_to(timed):
    db = timed.db
    mirror = Mirror(db.subscribe("SELECT k, COUNT(*) AS n FROM s WHERE ts > NOW() GROUP BY k"))
    db.insert("s", [(1, 1, NOON + SECOND), (2, 1, NOON + 2 * SECOND)])
    wait_until(lambda: mirror.catch_up(db).fetchall() == [(1, 2)])
    timed.tick()
    wait_until(lambda: mirror.catch_up(db).fetchall() == [(1, 1)])


def state_rows(db, view):
    [found] = [each for each in db.query("SHOW VIEWS").to_pylist() if each["name"] == view]
    return found["state_rows"]


def test_state_stays_flat(timed):
    db = timed.db
    timed.view("v", "SELECT n FROM s WHERE ts > NOW() - INTERVAL '5' SECOND")
    sizes = []
    for step in range(60):
        now = NOON + step * SECOND
        timed.proof.insert("s", [(10 * step + n, 1, now) for n in range(10)])
        timed.tick()
        if step % 10 == 9:
            timed.proof.check()
            sizes.append(state_rows(db, "v"))
    assert sizes == [41] * 6, "the rows of four seconds, and the time"


def test_old_rows_leave_nothing_behind(timed):
    db = timed.db
    timed.proof.insert("s", [(n, 1, NOON - 60 * SECOND) for n in range(100)])
    timed.view("v", "SELECT n FROM s WHERE ts > NOW() - INTERVAL '5' SECOND")
    timed.proof.check()
    assert state_rows(db, "v") == 1


def test_time_goes_on_after_opening(tmp_path, spark):
    clock = ManualClock(from_datetime(NOON))
    with database(path=tmp_path / "db", spark=spark, clock=clock) as db:
        tables(db)
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT n FROM s WHERE ts > NOW()")
        db.insert("s", [(1, 1, NOON + 5 * SECOND), (2, 1, NOON + 60 * SECOND)])
        settle(db, "v")
        assert rows_of(db, "v") == {(1,): 1, (2,): 1}
    clock.advance(10_000_000)
    with database(path=tmp_path / "db", spark=spark, clock=clock) as db:
        wait_until(lambda: rows_of(db, "v") == {(2,): 1})
        clock.advance(-60_000_000)  # a clock that is set back does not bring rows back
        engine_of(db).views.clock.tick()
        db.insert("s", [(3, 1, NOON + 5 * SECOND), (4, 1, NOON + 20 * SECOND)])
        settle(db, "v")
        assert rows_of(db, "v") == {(2,): 1, (4,): 1}


def test_a_view_without_its_checkpoint_begins_where_it_stood(tmp_path, spark):
    clock = ManualClock(from_datetime(NOON))
    with database(path=tmp_path / "db", spark=spark, clock=clock) as db:
        tables(db)
        db.execute(
            "CREATE MATERIALIZED VIEW v AS SELECT n FROM s WHERE ts > NOW();"
            "CREATE MATERIALIZED VIEW c AS SELECT COUNT(*) AS n FROM s WHERE ts > NOW()"
        )
        db.insert("s", [(n, 1, NOON + n * SECOND) for n in range(10)])
        for _ in range(3):
            clock.advance(1_000_000)
            engine_of(db).views.clock.tick()
        settle(db, "v", "c")
        assert rows_of(db, "c") == {(6,): 1}
        storage = engine_of(db).views.storage
        folders = [storage.checkpoint_of(storage.catalog[name]) for name in ("v", "c")]
    for each in folders:
        each.rename(each.with_suffix(".gone"))
    clock.advance(2_000_000)
    with database(path=tmp_path / "db", spark=spark, clock=clock) as db:
        mirror = Mirror(db.subscribe("SELECT * FROM v", start="earliest"))
        wait_until(lambda: rows_of(db, "c") == {(4,): 1})
        settle(db, "v")
        assert sorted(rows_of(db, "v").elements()) == [(6,), (7,), (8,), (9,)]
        assert sorted(mirror.catch_up(db).fetchall()) == [(6,), (7,), (8,), (9,)]


def test_without_checkpoint_and_ticks_it_fails_until_it_is_replaced(tmp_path, spark):
    clock = ManualClock(from_datetime(NOON))
    with database(path=tmp_path / "db", spark=spark, clock=clock) as db:
        tables(db)
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT n FROM s WHERE ts > NOW()")
        db.insert("s", [(n, 1, NOON + n * SECOND) for n in range(5)])
        settle(db, "v")
        clock.advance(1_000_000)
        engine_of(db).views.clock.tick()
        settle(db, "v")
        storage = engine_of(db).views.storage
        folder = storage.checkpoint_of(storage.catalog["v"])
        db.insert("s", [(5, 1, NOON)])
        storage.log.trim("__clock", db.flush())
    folder.rename(folder.with_suffix(".gone"))
    with database(path=tmp_path / "db", spark=spark, clock=clock) as db:
        with pytest.raises(ms.errors.ViewFailedError, match="rows that it has read"):
            db.wait_for("v", timeout=60)
        db.execute("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT n FROM s WHERE ts > NOW()")
        assert sorted(rows_of(db, "v").elements()) == [(2,), (3,), (4,)]


def test_only_rows_after_it_was_created(timed):
    db = timed.db
    db.insert("s", [(1, 1, NOON + 9 * SECOND)])
    sql = "SELECT n FROM s WHERE ts > NOW()"
    db.execute(f"CREATE MATERIALIZED VIEW v WITH (start = 'now') AS {sql}")
    db.insert("s", [(2, 1, NOON + 9 * SECOND), (3, 1, NOON - SECOND)])
    settle(db, "v")
    assert rows_of(db, "v") == {(2,): 1}
    timed.tick(9 * SECOND)
    settle(db, "v")
    assert rows_of(db, "v") == {}


def test_a_view_is_replaced(timed):
    db = timed.db
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT n FROM s WHERE ts > NOW()")
    db.insert("s", [(n, 1, NOON + n * SECOND) for n in range(10)])
    timed.tick(2 * SECOND)
    db.execute(
        "CREATE OR REPLACE MATERIALIZED VIEW v AS"
        " SELECT n FROM s WHERE ts > NOW() - INTERVAL '1' SECOND AND n <> 5"
    )
    assert sorted(rows_of(db, "v").elements()) == [(2,), (3,), (4,), (6,), (7,), (8,), (9,)]
    timed.tick(2 * SECOND)
    settle(db, "v")
    assert sorted(rows_of(db, "v").elements()) == [(4,), (6,), (7,), (8,), (9,)]


def test_a_tenant_has_the_time_too(timed):
    db = timed.db
    db.execute(
        "CREATE SOURCE own (who VARCHAR NOT NULL, n INT, ts TIMESTAMP) WITH (tenant = 'who')"
    )
    sql = "SELECT COUNT(*) AS c, MAX(n) AS m FROM own WHERE ts > NOW()"
    mirror = Mirror(db.subscribe(sql, tenant="a"))
    db.insert("own", [("a", n, NOON + n * SECOND) for n in (1, 2)] + [("b", 3, NOON + 9 * SECOND)])
    wait_until(lambda: mirror.catch_up(db).fetchall() == [(2, 2)])
    timed.tick()
    wait_until(lambda: mirror.catch_up(db).fetchall() == [(1, 2)])


def test_beside_a_join_with_a_table_as_it_was(timed):
    db = timed.db
    db.insert("t", [(1, 10, NOON, NOON)])
    db.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT s.n, t.k FROM s JOIN t FOR SYSTEM_TIME AS OF s.ts"
        " ON s.k = t.id WHERE s.ts > NOW()"
    )
    db.insert("s", [(1, 1, NOON + SECOND), (2, 1, NOON + 2 * SECOND)])
    db.flush()
    db.execute("UPDATE t SET k = 20")
    db.insert("s", [(3, 1, NOON + 3 * SECOND)])
    settle(db, "v")
    assert rows_of(db, "v") == {(1, 10): 1, (2, 10): 1, (3, 20): 1}
    timed.tick(2 * SECOND)
    settle(db, "v")
    assert rows_of(db, "v") == {(3, 20): 1}


WINDOW = timedelta(milliseconds=1500)


def child(path, seed):
    """Pushes rows around the machine's time, for ever; a line after each commit."""
    db, dice = ms.open(path, spark=guest()), random.Random(seed)
    number = seed * 10**6
    while True:
        now = datetime.now(UTC)
        number += 1
        step = timedelta(milliseconds=dice.randint(-2000, 2000))
        db.insert("s", [(number, dice.randint(0, 3), now + step)])
        db.flush()
        os.write(1, b"fine\n")
        time.sleep(0.005)  # paces the pushes, so that ticks come between them


def killed(path, spark, seed):
    """Let a child work, and kill it after some commits."""
    code = f"import tests.on_spark.test_now as t; t.child({str(path)!r}, {seed})"
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=Path(__file__).parents[2],
        env=invitation(spark),
        stdout=subprocess.PIPE,
    ) as process:
        try:
            for _ in range(random.Random(seed).randint(200, 500)):
                assert process.stdout.readline() == b"fine\n"
        finally:
            process.kill()


def frames(db, view):
    """What a view showed after each of its commits, with the LSN that this is of."""
    shown, found = Counter(), []
    for batch in engine_of(db).log.read(view):
        for row, weight in zip(batch.rows, batch.weights, strict=True):
            shown[row] += weight
        if found and found[-1][0] == batch.cause:
            found.pop()
        found.append((batch.cause, +shown))
    return found


def at_each_lsn(db, lsns):
    """The rows in the window at some LSNs, by the ticks and rows of the log up to there."""
    log = engine_of(db).log
    ticks, rows = (
        [each for batch in log.read(topic) for each in zip(batch.lsns, batch.rows, strict=True)]
        for topic in ("__clock", "s")
    )
    for lsn in lsns:
        now = max(tick for at, (tick,) in ticks if at <= lsn)
        yield [row for at, row in rows if at <= lsn and now - WINDOW < row[2] <= now]


@pytest.mark.crash
def test_killed_and_opened_again(tmp_path, spark):
    path, test = tmp_path / "db", "ts > NOW() - INTERVAL '1.5' SECOND AND ts <= NOW()"
    with ms.open(path, spark=spark) as db:
        tables(db)
        db.execute(
            f"CREATE MATERIALIZED VIEW v AS SELECT n FROM s WHERE {test};"
            f"CREATE MATERIALIZED VIEW c AS SELECT k, COUNT(*) AS c FROM s WHERE {test} GROUP BY k"
        )
    for seed in (1, 2):
        killed(path, spark, seed)
    with ms.open(path, spark=spark) as db:
        settle(db, "v", "c")
        for view, wanted in {
            "v": lambda rows: Counter((n,) for n, _, _ in rows),
            "c": lambda rows: Counter(dict.fromkeys(Counter(k for _, k, _ in rows).items(), 1)),
        }.items():
            found = frames(db, view)
            assert len(found) > 20
            lsns = [lsn for lsn, _ in found]
            for (lsn, shown), rows in zip(found, at_each_lsn(db, lsns), strict=True):
                assert shown == wanted(rows), (view, lsn)


def test_the_log_keeps_what_views_may_need(timed):
    db = timed.db
    timed.view("v", "SELECT n FROM s WHERE ts > NOW()")
    clock = engine_of(db).views.clock
    timed.proof.insert("s", [(1, 1, NOON + 100 * SECOND)])
    settle(db, "v")
    for _ in range(300):
        timed.tick()
    settle(db, "v")
    timed.proof.check()
    assert clock._hold.lsn == clock._ticks[0]
    assert len(clock._ticks) < 300, "ticks before the last change are kept no more"


def test_the_machine_s_clock(db):
    tables(db)
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT n FROM s WHERE ts > NOW()")
    now = datetime.now(UTC)
    db.insert("s", [(1, 1, now + timedelta(seconds=3)), (2, 1, now + timedelta(days=1))])
    settle(db, "v")
    wait_until(lambda: rows_of(db, "v") == {(2,): 1})
    assert datetime.now(UTC) >= now + timedelta(seconds=3)


@pytest.mark.parametrize(
    "test",
    [
        "ts > NOW() - INTERVAL '1' MONTH",
        "ts > NOW() OR year(NOW()) = n",
        "date_trunc('hour', NOW()) < ts",
        "NOW() > TIMESTAMP '2026-01-01'",
        "year(NOW()) = n",
    ],
)
def test_refused(db, test):
    tables(db)
    with pytest.raises(SqlUnsupportedError, match="NOW") as caught:
        db.execute(f"CREATE MATERIALIZED VIEW v AS SELECT n FROM s WHERE {test}")
    assert "INTERVAL '5 minutes'" in caught.value.hint
