"""Views end and start again while rows come in: neither rows nor changes are lost."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import millstream as ms
from millstream.testing import Mirror, engine_of, wait_until
from millstream.views import running
from millstream.views.run import live
from millstream.views.run.checkpoint import offset_in

from .market import NOON, SETUP, VIEWS, Market, check, subscribers
from .observing import restart, rows_of, runner_of, settle


@pytest.mark.parametrize("gracefully", [True, False])
def test_queries_start_again_while_rows_come(db, gracefully):
    """From a checkpoint that is written then, and from an earlier one: some rows are read again."""
    db.execute(SETUP)
    mirrors = [subscribers(db)]
    with Market(db, seed=1):
        for _ in range(3):
            restart(db, *VIEWS, gracefully=gracefully)
            mirrors.append(subscribers(db))
    check(db, mirrors)
    assert all(runner_of(db, name).restarts == 0 for name in VIEWS)


def test_many_batches_while_rows_come(db, monkeypatch):
    """Spark writes checkpoints all the time."""
    monkeypatch.setattr(live, "LIVE_ROWS", 200)
    db.execute(SETUP)
    mirrors = [subscribers(db)]
    with Market(db, seed=2):
        checkpoint, seen = runner_of(db, "sums")._query.checkpoint, set()

        def has_several():
            place = offset_in(checkpoint)
            seen.add(place and place.lsn)
            return len(seen) > 5

        wait_until(has_several, "five checkpoints")
        mirrors.append(subscribers(db))
    check(db, mirrors)


def test_falls_behind_and_catches_up(db, monkeypatch):
    """More rows than a view takes: it says that it is catching up, until it has done so."""
    monkeypatch.setattr(running, "_BEHIND", 10_000)
    db.execute("CREATE SOURCE s (k BIGINT, n BIGINT)")
    db.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT k, SUM(n) AS n, COUNT(*) AS c FROM s GROUP BY k"
    )
    view, source, pushed = engine_of(db).views["v"], db.source("s"), 0
    wait_until(lambda: view.state == "live")
    batch = pa.record_batch({"k": pa.arange(0, 10_000), "n": pa.arange(0, 10_000)})
    while view.state == "live":
        source.push_arrow(batch)
        pushed += 1
    assert view.state == "catching up"
    assert view.lag(db.lsn) > 0
    wait_until(lambda: view.state == "live")
    source.push((7, 0))
    settle(db, "v")
    assert (view.state, view.lag(db.lsn)) == ("live", 0)
    wanted = Counter((k, k * pushed, pushed + (k == 7)) for k in range(10_000))
    assert rows_of(db, "v") == wanted
    with db.subscribe("SELECT * FROM v", start="earliest") as again:
        assert Mirror(key_columns=1).follow(again).catch_up(db).rows == wanted


def test_closed_and_opened_between_restarts(tmp_path, spark):
    """Also with rows that nobody has seen, and with subscribers that go on with their tokens."""
    path, mirrors = tmp_path / "db", None
    for seed in range(4):
        with ms.open(path, spark=spark) as db:
            if seed == 0:
                db.execute(SETUP)
                copies = subscribers(db)
            else:
                copies = subscribers(db, tokens=mirrors)
            with Market(db, seed=10 + seed):
                if seed < 3:
                    restart(db, "sums", "minutes", "named")
            check(db, [copies])
            mirrors = {name: mirror for name, (mirror, _) in copies.items()}
            if seed == 2:
                db.source("trades").push(("late to the party", 1, NOON + timedelta(days=1)))
    with ms.open(path, spark=spark) as db:
        check(db, [subscribers(db, tokens=mirrors)])


CHILD = """
import sys
import millstream as ms
from tests.on_spark.market import VIEWS, Market, check
from tests.on_spark.observing import restart

with ms.open(sys.argv[1]) as db:
    with Market(db, seed=30):
        restart(db, *VIEWS)
    check(db)
    print("exact")
"""


def test_goes_on_in_another_process(tmp_path, spark):
    path = tmp_path / "db"
    with ms.open(path, spark=spark) as db:
        db.execute(SETUP)
        copies = subscribers(db)
        with Market(db, seed=20):
            restart(db, "sums", "named")
        check(db, [copies])
        mirrors = {name: mirror for name, (mirror, _) in copies.items()}
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (child.stdout, child.returncode) == ("exact\n", 0), child.stderr
    with ms.open(path, spark=spark) as db:
        copies = subscribers(db, tokens=mirrors)
        with Market(db, seed=40):
            restart(db, *VIEWS)
        check(db, [copies])
