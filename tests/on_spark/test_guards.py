"""What stands guard over a view: checkpoints that are gone, the ends of batches."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

import millstream as ms
from millstream.errors import SqlError, ViewFailedError
from millstream.testing import TIMEOUT, Mirror, engine_of, wait_until
from millstream.views.run import live
from millstream.views.run.checkpoint import Offset, offset_in
from millstream.views.run.feed import ViewFeed
from millstream.views.run.query import _FINGERPRINT

from .guest import guest, invitation
from .market import SETUP, VIEWS, Market, check, subscribers
from .observing import rows_of, runner_of, running, settle

SPLIT = {"spark.sql.shuffle.partitions": "2"}
SUMS = "SELECT k, SUM(n) AS total, COUNT(*) AS c FROM s GROUP BY k"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def shown(db, view):
    """A view's row in SHOW VIEWS."""
    return next(each for each in db.query("SHOW VIEWS").to_pylist() if each["name"] == view)


def sums(rows):
    """What SUMS gives."""
    groups = {}
    for k, n in rows:
        groups.setdefault(k, []).append(n)
    return Counter((k, sum(ns), len(ns)) for k, ns in groups.items())


@pytest.mark.parametrize(
    "select",
    [
        "SELECT /*+ REPARTITION(2) */ k, COUNT(*) AS c FROM s GROUP BY k",
        "SELECT k, log10(n) AS l FROM s DISTRIBUTE BY k",
    ],
)
def test_no_query_asks_for_an_exchange(db, select):
    db.execute("CREATE SOURCE s (k BIGINT, n BIGINT)")
    with pytest.raises(SqlError):
        db.execute(f"CREATE MATERIALIZED VIEW v AS {select}")


def test_a_session_that_asks_for_exchanges(tmp_path, spark):
    """Settings by which Spark splits plans between threads split no view."""
    with ms.open(tmp_path / "db", spark=spark, spark_options=SPLIT) as db:
        db.execute("CREATE SOURCE s (k BIGINT, n BIGINT)")
        db.execute(f"CREATE MATERIALIZED VIEW v AS {SUMS}")
        pushed = [(n % 7, n) for n in range(1, 101)]
        db.source("s").push_batch(pushed)
        settle(db, "v")
        assert rows_of(db, "v") == sums(pushed)
        assert (shown(db, "v")["state"], shown(db, "v")["restarts"]) == ("live", 0)


# ---- a checkpoint that is gone


def without_checkpoints(path, spark, view, *sources):
    """A database with a view that has read what retention then took, and no checkpoint."""
    before = with_trimmed(path, spark, view, *sources)
    shutil.rmtree(path / "views")
    return before


def with_trimmed(path, spark, view, *sources):
    """A database with a view that has read what retention then took."""
    with ms.open(path, spark=spark, segment_bytes=1) as db:
        for name in sources:
            db.execute(f"CREATE SOURCE {name} (k BIGINT, n BIGINT) WITH (retention_bytes = 1)")
        for n in range(10):
            for name in sources:
                db.source(name).push((n % 2, n))
                db.flush()
        db.execute(f"CREATE MATERIALIZED VIEW v AS {view}")
        settle(db, "v")
        before = rows_of(db, "v")
    with ms.open(path, spark=spark, segment_bytes=1, retention_interval=0.01) as db:
        for name in sources:
            wait_until(lambda: len(db.query(f"SELECT * FROM {name}").fetchall()) < 10, "retention")
        settle(db, "v")
        assert rows_of(db, "v") == before
    return before


def test_a_view_that_cannot_be_rebuilt_says_so_until_it_is_replaced(tmp_path, spark):
    without_checkpoints(tmp_path / "db", spark, SUMS, "s")
    with ms.open(tmp_path / "db", spark=spark) as db:
        row = shown(db, "v")
        assert row["state"] == "failed"
        assert row["error"] == "the checkpoint of v is gone, and rows that it has read are, too"
        asked = (
            lambda: db.wait_for("v", timeout=TIMEOUT),
            lambda: db.query("SELECT * FROM v"),
            lambda: db.subscribe("SELECT * FROM v"),
            lambda: db.subscribe("SELECT * FROM v", name="durable"),
            lambda: db.subscribe_callback("SELECT * FROM v", print),
        )
        db.source("s").push((5, 5))
        for ask in asked:
            with pytest.raises(ViewFailedError, match="checkpoint of v") as caught:
                ask()
            assert "CREATE OR REPLACE MATERIALIZED VIEW v" in caught.value.hint
        db.execute(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {SUMS}")
        mirror = Mirror(db.subscribe("SELECT * FROM v", name="durable"), key_columns=1)
        settle(db, "v")
        kept = db.query("SELECT * FROM s").fetchall()
        assert (5, 5) in kept
        assert rows_of(db, "v") == sums(kept)
        db.source("s").push((5, 6))
        settle(db, "v")
        assert rows_of(db, "v") == mirror.catch_up(db).rows == sums([*kept, (5, 6)])
        assert (shown(db, "v")["state"], shown(db, "v")["error"]) == ("live", None)


def test_a_dataflow_of_another_plan_that_cannot_be_rebuilt_says_so(tmp_path, spark):
    before = with_trimmed(tmp_path / "db", spark, f"SELECT MAX(total) AS most FROM ({SUMS})", "s")
    [noted] = (tmp_path / "db" / "views").glob(f"*/{_FINGERPRINT}")
    fingerprint = noted.read_text()
    noted.write_text("of another plan")
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.source("s").push((5, 500))
        with pytest.raises(ViewFailedError, match="the checkpoint of v is of another plan") as said:
            settle(db, "v")
        assert "CREATE OR REPLACE MATERIALIZED VIEW v" in said.value.hint
    noted.write_text(fingerprint)  # the version that planned it so is back
    with ms.open(tmp_path / "db", spark=spark) as db:
        settle(db, "v")
        assert before == Counter([(25,)])
        assert rows_of(db, "v") == Counter([(500,)])


def test_a_view_of_two_logs_that_cannot_be_rebuilt_says_so(tmp_path, spark):
    both = SUMS.replace("FROM s", "FROM (SELECT * FROM s UNION ALL SELECT * FROM t)")
    before = without_checkpoints(tmp_path / "db", spark, both, "s", "t")
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.source("s").push((0, 100))
        try:
            settle(db, "v")
        except ViewFailedError:
            return
        wanted = {k: (total, c) for k, total, c in before}
        wanted[0] = (wanted[0][0] + 100, wanted[0][1] + 1)
        assert {k: (total, c) for k, total, c in rows_of(db, "v")} == wanted


def test_a_view_that_is_rebuilt_delivers_nothing_twice(tmp_path, spark):
    names = {"v": 1, "lines": 0, "minutes": 2}
    mirrors = {name: Mirror(key_columns=keyed) for name, keyed in names.items()}
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute(
            "CREATE SOURCE s (k BIGINT, n BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts);"
            f"CREATE MATERIALIZED VIEW v AS {SUMS};"
            "CREATE MATERIALIZED VIEW lines AS SELECT n, log10(n) AS l FROM s;"
            "CREATE MATERIALIZED VIEW minutes AS SELECT k, WINDOW_START AS w, COUNT(*) AS c FROM s "
            "GROUP BY k, TUMBLE(ts, INTERVAL '1 minute') EMIT ON WINDOW CLOSE LATE DATA TO late"
        )
        source = db.source("s")
        subscriptions = {name: db.subscribe(f"SELECT * FROM {name}", name=name) for name in names}
        for n in range(1, 61):
            source.push((n % 3, n, NOON.replace(minute=n // 10 if n % 20 else 0)))
            db.flush()
            if n == 40:
                settle(db, *names)
                for name, mirror in mirrors.items():
                    mirror.follow(subscriptions[name]).catch_up(db)
                    subscriptions[name].ack()
        settle(db, *names)
        before = {name: rows_of(db, name) for name in (*names, "late")}
        late = shown(db, "minutes")["late_rows"]
        assert late == before["late"].total() > 0
    shutil.rmtree(tmp_path / "db" / "views")
    with ms.open(tmp_path / "db", spark=spark) as db:
        subscriptions = {name: db.subscribe(f"SELECT * FROM {name}", name=name) for name in names}
        settle(db, *names)
        assert {name: rows_of(db, name) for name in (*names, "late")} == before
        assert shown(db, "minutes")["late_rows"] == late
        assert [running(db, name).changes for name in names] == [0, 0, 0]
        db.source("s").push((0, 1000, NOON.replace(minute=30)))
        settle(db, *names)
        for name, mirror in mirrors.items():
            assert mirror.follow(subscriptions[name]).catch_up(db).rows == rows_of(db, name)
        assert sums((k, n) for k, n, _ in db.query("SELECT * FROM s")) == rows_of(db, "v")


# ---- the end of a live batch


def checkpoints(db, view):
    """How many batches Spark has committed."""
    folder = engine_of(db).views.storage.checkpoint_of(engine_of(db).catalog[view]) / "commits"
    done = [int(each.name) for each in folder.glob("*") if each.name.isdigit()]
    return max(done, default=-1) + 1


def test_live_batches_end_by_time_while_rows_flow(db, monkeypatch):
    monkeypatch.setattr(live, "LIVE_SECONDS", 0.1)
    monkeypatch.setattr(live, "IDLE_SECONDS", 1e9)
    db.execute(SETUP)
    mirrors = [subscribers(db)]
    with Market(db, seed=3):
        wait_until(lambda: all(checkpoints(db, name) >= 3 for name in VIEWS), "the end of batches")
    check(db, mirrors)
    for name in VIEWS:
        assert (runner_of(db, name).state, runner_of(db, name).restarts) == ("live", 0)


def test_a_live_batch_that_should_end_soon_ends_when_no_row_comes(db, monkeypatch):
    monkeypatch.setattr(live, "SOON_SECONDS", 0.1)
    monkeypatch.setattr(live, "IDLE_SECONDS", 0.3)
    db.execute("CREATE SOURCE s (k BIGINT, n BIGINT)")
    db.execute(f"CREATE MATERIALIZED VIEW v AS {SUMS}")
    db.wait_for("v", timeout=TIMEOUT)
    for number in range(3):
        done = checkpoints(db, "v")
        db.source("s").push((number, 1))
        wait_until(lambda done=done: checkpoints(db, "v") > done, "the end of a batch")
    assert rows_of(db, "v") == {(0, 1, 1): 1, (1, 1, 1): 1, (2, 1, 1): 1}


def work(path):
    """The child: some live batches, then more rows, which are all delivered; and its end."""
    live.LIVE_SECONDS = 0.1
    db = ms.open(path, spark=guest())
    source, number = db.source("s"), 0
    while checkpoints(db, "v") < 4:
        source.push((number % 5, number))
        number += 1
        settle(db, "v")
    live.LIVE_SECONDS = 1e9
    for _ in range(100):
        source.push((number % 5, number))
        number += 1
    settle(db, "v")
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.crash
def test_killed_after_some_live_batches_only_the_rest_is_read_again(tmp_path, spark, monkeypatch):
    path, mirror, starts = tmp_path / "db", Mirror(key_columns=1), []
    with ms.open(path, spark=spark) as db:
        db.execute("CREATE SOURCE s (k BIGINT, n BIGINT)")
        db.execute(f"CREATE MATERIALIZED VIEW v AS {SUMS}")
        db.source("s").push((0, 0))
        settle(db, "v")
        mirror.follow(db.subscribe("SELECT * FROM v")).catch_up(db)
    code = f"from tests.on_spark.test_guards import work; work({str(path)!r})"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=Path(__file__).parents[2],
        env=invitation(spark),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")
    [folder] = (path / "views").iterdir()
    place = offset_in(folder)
    send_live = ViewFeed.send_live

    def noted(feed, names, start, wire, partition):
        starts.append(Offset.of(start).lsn)
        send_live(feed, names, start, wire, partition)

    monkeypatch.setattr(ViewFeed, "send_live", noted)
    with ms.open(path, spark=spark) as db:
        settle(db, "v")
        rows = db.query("SELECT * FROM s").fetchall()
        assert rows[1:] == [(n % 5, n) for n in range(len(rows) - 1)]
        assert rows_of(db, "v") == sums(rows)
        lsns = [lsn for batch in engine_of(db).log.read("s") for lsn in batch.lsns]
        assert starts == [place.lsn]
        assert lsns[2] < place.lsn < lsns[-1]
        assert running(db, "v").changes == 0  # all was delivered before
        db.source("s").push((0, 7))
        settle(db, "v")
        with db.subscribe("SELECT * FROM v", start=mirror.token) as subscription:
            mirror.follow(subscription).catch_up(db)
            assert mirror.rows == rows_of(db, "v") == sums([*rows, (0, 7)])
