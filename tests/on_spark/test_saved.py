"""Views that are opened from saved rows are as if opened from the complete log."""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

import millstream as ms
from millstream.state.bags import AppendOnlyRows, Bag
from millstream.testing import engine_of

from .observing import rows_of, settle

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
BY_MINUTE = "FROM s GROUP BY k, TUMBLE(ts, INTERVAL '1 minute')"
VIEWS = {
    "sums": "SELECT k, SUM(n) AS t FROM s GROUP BY k",
    "total": "SELECT SUM(n) AS t FROM s",
    "unnamed": "SELECT COUNT(*) AS c FROM s GROUP BY k",
    "closed": f"SELECT k, COUNT(*) AS c {BY_MINUTE} EMIT ON WINDOW CLOSE",
    "final": f"SELECT COUNT(*) AS c {BY_MINUTE} EMIT FINAL ALLOW LATENESS INTERVAL '1' MINUTE",
    "sessions": "SELECT k, COUNT(*) AS c FROM s GROUP BY k, SESSION(ts, INTERVAL '30 seconds')",
    "lines": "SELECT n, log10(n) AS l FROM s WHERE k > 0",
    "over": "SELECT t, COUNT(*) AS c FROM sums GROUP BY t",
    "changing": "SELECT t + 1 AS t FROM sums",
}


def push(db, first, last):
    for n in range(first, last):
        db.source("s").push((n % 4, n, NOON + timedelta(seconds=7 * n)))
        if n % 3 == 0:
            db.flush()
    settle(db, *VIEWS)


def shown(db):
    return {name: rows_of(db, name) for name in VIEWS}


@pytest.fixture
def loaded(monkeypatch):
    """How many rows were loaded."""
    counts = []

    def counting(load):
        def count(rows, batch):
            counts.append(len(batch))
            load(rows, batch)

        return count

    for kind in (Bag, AppendOnlyRows):
        monkeypatch.setattr(kind, "load", counting(kind.load))
    return counts


def test_as_if_opened_from_the_complete_log(tmp_path, spark, loaded):
    path = tmp_path / "db"
    with ms.open(path, spark=spark) as db:
        db.execute("CREATE SOURCE s (k BIGINT, n BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts)")
        for name, query in VIEWS.items():
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        push(db, 0, 60)
        engine_of(db).saver.save(0, 0)
        push(db, 60, 70)
        before = shown(db)
    loaded.clear()
    with ms.open(path, spark=spark) as db:
        few = sum(loaded)
        settle(db, *VIEWS)
        assert shown(db) == before
        push(db, 70, 80)
        after = shown(db)
    shutil.copytree(path, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "rows")
    loaded.clear()
    with ms.open(tmp_path / "copy", spark=spark) as db:
        assert sum(loaded) > few
        settle(db, *VIEWS)
        assert shown(db) == after
        push(db, 80, 90)
        expected = shown(db)
    with ms.open(path, spark=spark) as db:
        push(db, 80, 90)
        assert shown(db) == expected


def test_a_view_that_an_older_version_kept_on_spark_stays_there(tmp_path, spark, monkeypatch):
    """This version could select its rows without Spark, and names other columns NOT NULL."""

    def refused(*_args):
        raise ms.errors.SqlUnsupportedError("not yet")

    path, sql = tmp_path / "db", "SELECT n & 3 AS low FROM s WHERE n & 1 = 1"
    with ms.open(path, spark=spark) as db, monkeypatch.context() as older:
        older.setattr("millstream.views.planning.plan_select", refused)
        db.execute("CREATE SOURCE s (n INT NOT NULL)")
        db.execute(f"CREATE MATERIALIZED VIEW v AS {sql}")
        db.insert("s", [(n,) for n in range(6)])
        settle(db, "v")
    with ms.open(path, spark=spark) as db:
        assert rows_of(db, "v") == {(1,): 2, (3,): 1}
        db.insert("s", [(n,) for n in range(6, 9)])
        db.execute(f"CREATE MATERIALIZED VIEW here AS {sql}")
        settle(db, "v", "here")
        assert rows_of(db, "v") == {(1,): 2, (3,): 2} == rows_of(db, "here")
        assert len(list((path / "views").iterdir())) == 1, "only one of them has a checkpoint"


TRIMMED = ("sums", "unnamed", "closed", "over", "changing")


def everything(path, spark, options, *, lose):
    """What views show at three moments: after much, after a restart, after one without checkpoints.

    Args:
        path: where the database is to be.
        spark: the session.
        options: of the views whose rows change.
        lose: which file of their saved rows is lost at each restart.
    """
    found = []
    with ms.open(path, spark=spark, segment_bytes=3000) as db:
        db.execute("CREATE SOURCE s (k BIGINT, n BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts)")
        for name in TRIMMED:
            own = options if name != "closed" else ""  # which is append-only
            db.execute(f"CREATE MATERIALIZED VIEW {name} {own} AS {VIEWS[name]}")
        for first in range(0, 80, 20):
            push_to(db, first, first + 20)
            engine_of(db).saver.save(0, 0)
        found.append(shown_by(db))
    for pattern in lose:
        for file in path.glob(f"rows/{pattern}"):
            file.unlink()
        with ms.open(path, spark=spark, segment_bytes=3000) as db:
            push_to(db, 80 + 10 * len(found), 90 + 10 * len(found))
            if len(found) == 2:
                db.execute("CREATE MATERIALIZED VIEW late AS SELECT t FROM sums WHERE t > 10")
                settle(db, "late")
                assert rows_of(db, "late") == Counter(
                    (total,) for _, total in rows_of(db, "sums").elements() if total > 10
                )
            found.append(shown_by(db))
            engine_of(db).saver.save(0, 0)
            log = engine_of(db).log
            log.retain()
            lows = {name: log.topic(name).low_lsn for name in log.topics}
        shutil.rmtree(path / "views")  # over and changing are rebuilt, at the LSN they have shown
    return found, lows


def push_to(db, first, last):
    for n in range(first, last):
        db.source("s").push((n % 4, n, NOON + timedelta(seconds=7 * n)))
        db.flush()
    settle(db, *TRIMMED)


def shown_by(db):
    return {name: rows_of(db, name) for name in TRIMMED}


def test_as_if_the_log_were_kept(tmp_path, spark):
    options, lose = "WITH (retention = 'forever')", ("none", "none")
    whole, lows = everything(tmp_path / "whole", spark, options, lose=lose)
    assert not any(lows[name] > 1 for name in TRIMMED)
    lose = ("*.rows", "*.before")
    short, lows = everything(tmp_path / "short", spark, "WITH (retention_bytes = 1)", lose=lose)
    assert short == whole
    assert lows["closed"] <= 1
    for name in ("sums", "unnamed"):
        assert lows[name] > 1
