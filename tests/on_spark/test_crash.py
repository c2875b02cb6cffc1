"""A process with views that is really killed, at any moment, and opened again.

The child has a Spark of its own; it pushes rows, and reports what was flushed. After each kill this
process opens the directory: every view is what the source's log says, its own log adds up to its
rows, a subscriber resumes at its token, and nothing is delivered twice.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import millstream as ms
from millstream.testing import TIMEOUT, Mirror, engine_of
from millstream.views import saver

from ..effort import effort  # noqa: TID252 - tests have no name
from .observing import (
    EPOCH,
    MINUTE,
    batches_of,
    in_time,
    rows_of,
    runner_of,
    settle,
    until_started,
    window_of,
)

pytestmark = pytest.mark.crash

ROUNDS = effort((2, 3), range(1, 9))
LATENESS = timedelta(seconds=10)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SETUP = """
    CREATE SOURCE s (k BIGINT, n BIGINT, ts TIMESTAMP,
        WATERMARK FOR ts AS ts - INTERVAL '2 seconds');
    CREATE MATERIALIZED VIEW sums AS
        SELECT k, SUM(n) AS total, COUNT(*) AS c, MAX(n) AS most FROM s GROUP BY k;
    CREATE MATERIALIZED VIEW minutes AS
        SELECT k, TUMBLE_START(ts, INTERVAL '1 minute') AS minute, COUNT(*) AS c FROM s
        GROUP BY k, TUMBLE(ts, INTERVAL '1 minute') EMIT ON WINDOW CLOSE
        ALLOW LATENESS INTERVAL '10 seconds' LATE DATA TO too_late;
    CREATE MATERIALIZED VIEW lines AS SELECT n, md5(CAST(n AS VARCHAR)) AS m FROM s WHERE k = 1;
    CREATE MATERIALIZED VIEW pairs AS
        SELECT a.k, TUMBLE_START(a.ts, INTERVAL '1 minute') AS minute, COUNT(*) AS c
        FROM s AS a JOIN s AS b ON a.k = b.k AND a.ts = b.ts
        GROUP BY a.k, TUMBLE(a.ts, INTERVAL '1 minute') EMIT FINAL LATE DATA TO too_late_for_pairs;
    CREATE MATERIALIZED VIEW odd AS SELECT k, ts FROM s WHERE n % 2 = 1
        WATERMARK FOR ts AS ts - INTERVAL '1 second';
    CREATE MATERIALIZED VIEW odd_minutes AS
        SELECT k, TUMBLE_START(ts, INTERVAL '1 minute') AS minute, COUNT(*) AS c FROM odd
        GROUP BY k, TUMBLE(ts, INTERVAL '1 minute') EMIT FINAL;
    CREATE MATERIALIZED VIEW over AS SELECT most, COUNT(*) AS c FROM sums GROUP BY most;
"""
KEYED = {
    "sums": 1,
    "minutes": 2,
    "lines": 0,
    "over": 1,
    "pairs": 2,
    "odd": 0,
    "odd_minutes": 2,
}


def work(path, seed):
    """The child: pushes for ever, reports after each flush how many rows it has pushed."""
    saver.MANY = 5  # so that it is killed while it saves, too
    dice = random.Random(seed)
    db = ms.open(path)
    source, at = db.source("s"), NOON + timedelta(hours=seed)
    for each in engine_of(db).views:
        until_started(runner_of(db, each.view.name))
    number = 0
    while True:
        rows = []
        for _ in range(dice.choice([1, 1, 5, 200])):
            at += timedelta(milliseconds=dice.randint(0, 200))
            back = dice.choice([90, 75, 5, 1, 0, 0, 0, 0])
            rows.append((dice.randint(0, 9), seed * 10**6 + number, at - timedelta(seconds=back)))
            number += 1
        if len(rows) == 1:
            source.push(rows[0])
        else:
            source.push_batch(rows)
        if dice.random() < 0.2:
            db.flush()
            os.write(1, f"{number}\n".encode())
        time.sleep(0.001)  # paces the pushes, so that the views keep up until the kill


def killed(path, seed, *, whole_group):
    """Let a child work, and kill it at a random moment; how many of its rows were acknowledged.

    Args:
        whole_group: kill its Java as well; else that has to notice by itself.
    """
    code = f"from tests.on_spark.test_crash import work; work({str(path)!r}, {seed})"
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        said = os.read(child.stdout.fileno(), 1 << 16)  # it runs, and has flushed
        assert said, child.stderr.read().decode()
        deadline = time.monotonic() + random.Random(seed).uniform(0, 4)
        while (left := deadline - time.monotonic()) > 0:
            if select.select([child.stdout], [], [], left)[0]:
                said += os.read(child.stdout.fileno(), 1 << 16)
        if whole_group:
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
        said += child.stdout.read()
        assert child.wait(TIMEOUT) == -signal.SIGKILL
        errors = child.stderr.read().decode() if whole_group else ""
        assert not errors, errors
    finally:
        _end(child)
    return int(said.splitlines()[-1]) if said.endswith(b"\n") else int(said.splitlines()[-2])


def _end(child):
    """Whatever is left of what this test has started."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    child.stderr.close()


def expected(db):
    """What the source's log says that each view must show, and what came too late."""
    batches = batches_of(db, "s")
    every = [row for rows, _ in batches for row in rows]
    groups, windows = {}, Counter()
    for k, n, _ in every:
        groups.setdefault(k, []).append(n)
    taken, late, mark = in_time(batches, 2, MINUTE, LATENESS)
    for k, _, moment in taken:
        windows[k, window_of(moment)] += 1
    passed = EPOCH + timedelta(microseconds=mark)
    pairs, late_for_pairs = Counter(), in_time(batches, 2)[1]
    for (k, moment), count in Counter((k, ts) for k, _, ts in in_time(batches, 2)[0]).items():
        pairs[k, window_of(moment)] += count**2
    odd, _, odd_mark = in_time(batches_of(db, "odd"), 1)
    odd_windows = Counter((k, window_of(moment)) for k, moment in odd)
    odd_passed = EPOCH + timedelta(microseconds=odd_mark or 0)
    return {
        "sums": Counter((k, sum(ns), len(ns), max(ns)) for k, ns in groups.items()),
        "minutes": Counter(
            (*key, count) for key, count in windows.items() if key[1] + MINUTE <= passed
        ),
        "pairs": Counter((*key, n) for key, n in pairs.items() if key[1] + MINUTE <= passed),
        "odd_minutes": Counter(
            (*key, n) for key, n in odd_windows.items() if key[1] + MINUTE <= odd_passed
        ),
        "over": Counter(Counter(max(ns) for ns in groups.values()).items()),
    }, {"minutes": late, "pairs": late_for_pairs}


def check(db, mirrors):
    settle(db, *KEYED)
    wanted, late = expected(db)
    lines = [n for rows, _ in batches_of(db, "s") for k, n, _ in rows if k == 1]
    assert [n for n, _ in db.query("SELECT n, m FROM lines").fetchall()] == lines
    for name, keyed in KEYED.items():
        shown = rows_of(db, name)
        if name in wanted:
            assert shown == wanted[name], name
        with db.subscribe(f"SELECT * FROM {name}", start="earliest") as subscription:
            assert Mirror(key_columns=keyed).follow(subscription).catch_up(db).rows == shown, name
        with db.subscribe(f"SELECT * FROM {name}", start=mirrors[name].token) as after:
            assert mirrors[name].follow(after).catch_up(db).rows == shown, name
    assert db.query("SELECT * FROM too_late").fetchall() == late["minutes"]
    assert db.query("SELECT * FROM too_late_for_pairs").fetchall() == late["pairs"]
    for name, rows in late.items():
        assert engine_of(db).views[name].late_rows == len(rows)
    assert all(each["error"] is None for each in db.query("SHOW VIEWS").to_pylist())
    changes = db.query("SHOW CHANGES FOR sums").fetchall()
    assert len({lsn for lsn, *_ in changes}) == len(changes)


def test_killed_and_opened_again(tmp_path, spark):
    path, pushed = tmp_path / "db", 0
    mirrors = {name: Mirror(key_columns=keyed) for name, keyed in KEYED.items()}
    with ms.open(path, spark=spark) as db:
        db.execute(SETUP)
        db.source("s").push((0, 0, NOON))
        settle(db, *KEYED)
        for name, mirror in mirrors.items():
            with db.subscribe(f"SELECT * FROM {name}", start="earliest") as first:
                mirror.follow(first).catch_up(db)
            mirror.token = mirror.token or engine_of(db).log.token(db.lsn)
    for seed in ROUNDS:
        acknowledged = killed(path, seed, whole_group=seed > 2)
        with ms.open(path, spark=spark) as db:
            kept = [
                row for rows, _ in batches_of(db, "s") for row in rows if row[1] // 10**6 == seed
            ]
            assert [row[1] % 10**6 for row in kept] == list(range(len(kept)))
            assert len(kept) >= acknowledged > 0
            pushed += len(kept)
            check(db, mirrors)
            db.source("s").push((0, 0, NOON + timedelta(hours=seed + 0.9)))
            check(db, mirrors)
    assert pushed > 100
