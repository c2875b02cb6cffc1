"""Views in several partitions: as exact as in one, commits whole, whatever is killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import millstream as ms
from millstream.errors import SqlUnsupportedError
from millstream.testing import Mirror, wait_until
from millstream.views.run import live
from millstream.views.run.checkpoint import offset_in

from .exact import Twin
from .guest import guest, invitation
from .observing import batches_of, rows_of, runner_of, settle

IN_THREE = "WITH (partitions = 3)"
SUMS = "SELECT k, SUM(v) AS s, COUNT(*) AS c FROM t GROUP BY k"
JOINED = "SELECT t.k, SUM(v * x) AS s, COUNT(*) AS c FROM t JOIN w ON t.k = w.k GROUP BY t.k"
RANKED = (
    "SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS r FROM t QUALIFY r <= 2"
)
SHARED = f"WITH r AS ({SUMS}) SELECT p.k, p.s, q.c FROM r p JOIN r q ON p.k = q.k AND p.s > q.c"
KEYS = [f"k{number}" for number in range(7)]


def test_exact_and_by_whole_commits(db, spark):
    twin, dice = Twin(db, spark), random.Random(1)
    twin.source("t", "k VARCHAR, v BIGINT")
    twin.table("w", "k VARCHAR PRIMARY KEY, x BIGINT")
    db.execute("INSERT INTO w VALUES ('k1', 2), ('k2', 3)")
    twin.view("sums", SUMS, options=IN_THREE)
    twin.view("joined", JOINED, options=IN_THREE)
    twin.view("ranked", RANKED, options=IN_THREE)
    twin.view("shared", SHARED, options=IN_THREE)
    numbers, counts = iter(range(10**6)), db.subscribe("SELECT c FROM sums")

    def push(how):
        """A row for each key, in one commit, or each in one of its own."""
        keys = dice.sample(KEYS, len(KEYS))
        twin.push("t", [(key, next(numbers)) for key in keys], how)

    for how in ("arrow", "batch", "single"):
        push(how)
        twin.check()
    db.execute("UPDATE w SET x = x + 1; INSERT INTO w VALUES ('k5', 7); DELETE FROM w WHERE x = 3")
    twin.await_live()
    mirror = Mirror(counts).catch_up(db)
    for _ in range(30):
        push("batch")
        db.flush()
    while mirror.rows != Counter({(33,): len(KEYS)}):
        mirror.apply(counts.recv(timeout=60))
        assert len(mirror.rows) == 1, "half of a commit"  # all keys have as many rows
    with twin.opened_again() as again:
        for how in ("single", "arrow", "batch"):
            push(how)
        twin.check()
        assert [each["partitions"] for each in again.query("SHOW VIEWS").to_pylist()] == [3] * 4
        assert {each.restarts for each in twin.runners.values()} == {0}


@pytest.mark.parametrize(
    ("select", "why"),
    [
        ("SELECT COUNT(*) AS n FROM t", "an aggregate without GROUP BY"),
        ("SELECT upper(k) AS u, COUNT(*) AS n FROM t GROUP BY upper(k)", "GROUP BY"),
        (f"SELECT c, COUNT(*) AS n FROM ({SUMS}) GROUP BY c", "GROUP BY c"),
        ("SELECT a.k, b.v FROM t a JOIN t b ON a.v = b.u", "the join by v"),
        ("SELECT k, v, MAX(v) OVER (ORDER BY v) AS m FROM t", "OVER without PARTITION BY"),
        (
            "SELECT b.k, COUNT(*) AS n FROM t a LEFT JOIN t b ON a.k = b.k GROUP BY b.k",
            "GROUP BY k",
        ),
        ("SELECT k, v FROM t ORDER BY v LIMIT 3", "LIMIT"),
        ("SELECT k, md5(k) AS m FROM t", "no state"),
        ("SELECT k FROM t WHERE v > 3", "needs no Spark"),
    ],
)
def test_refused_without_a_common_key(db, select, why):
    db.execute("CREATE SOURCE t (k VARCHAR, v BIGINT, u BIGINT)")
    with pytest.raises(SqlUnsupportedError, match="cannot be partitioned") as refused:
        db.execute(f"CREATE MATERIALIZED VIEW bad {IN_THREE} AS {select}")
    assert why in refused.value.message
    assert refused.value.hint


def test_explained(db):
    db.execute("CREATE SOURCE t (k VARCHAR, v BIGINT)")
    db.execute("CREATE TABLE w (k VARCHAR PRIMARY KEY, x BIGINT)")
    lines = db.execute(f"EXPLAIN CREATE MATERIALIZED VIEW j {IN_THREE} AS {JOINED}").fetchall()
    assert ("partitions: 3 queries, each with its own keys of t.k, w.k",) in lines


def work(path):
    """The child: batches that end all the time, then more rows; and its end, amid them."""
    live.LIVE_ROWS = 3
    db = ms.open(path, spark=guest())
    for number in range(1000):
        db.source("t").push_batch([(key, number) for key in KEYS[: number % 7 + 1]])
        settle(db, "sums", "ranked")
        if number == 6:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.crash
def test_killed_and_opened_again(tmp_path, spark):
    path = tmp_path / "db"
    mirrors = {name: Mirror() for name in ("sums", "ranked")}
    with ms.open(path, spark=spark) as db:
        db.execute("CREATE SOURCE t (k VARCHAR, v BIGINT)")
        db.execute(f"CREATE MATERIALIZED VIEW sums {IN_THREE} AS {SUMS}")
        db.execute(f"CREATE MATERIALIZED VIEW ranked {IN_THREE} AS {RANKED}")
        db.source("t").push(("k0", -1))
        settle(db, *mirrors)
        for name, mirror in mirrors.items():
            mirror.follow(db.subscribe(f"SELECT * FROM {name}")).catch_up(db)
    done = subprocess.run(
        [
            *(sys.executable, "-W", "ignore", "-c"),
            f"from tests.on_spark.test_partitions import work; work({str(path)!r})",
        ],
        cwd=Path(__file__).parents[2],
        env=invitation(spark),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")
    put_one_part_back(path)
    with ms.open(path, spark=spark) as db:
        db.source("t").push_batch([(key, 5) for key in KEYS])
        settle(db, *mirrors)
        groups = {}
        for k, v in (row for rows, _ in batches_of(db, "t") for row in rows):
            groups.setdefault(k, []).append(v)
        wanted = {
            "sums": Counter((k, sum(vs), len(vs)) for k, vs in groups.items()),
            "ranked": Counter(
                (k, v, place + 1)
                for k, vs in groups.items()
                for place, v in enumerate(sorted(vs, reverse=True)[:2])
            ),
        }
        for name, mirror in mirrors.items():
            assert rows_of(db, name) == wanted[name], name
            with db.subscribe(f"SELECT * FROM {name}", start=mirror.token) as after:
                assert mirror.follow(after).catch_up(db).rows == wanted[name], name
        assert all(each["error"] is None for each in db.query("SHOW VIEWS").to_pylist())


def put_one_part_back(path):
    """As if the process had been killed when all partitions but one had noted their last batch."""
    for view in (path / "views").iterdir():
        partition = view / "part1"
        commits = sorted(
            int(each.name) for each in (partition / "commits").iterdir() if each.name.isdigit()
        )
        assert len(commits) > 1
        before = offset_in(partition)
        (partition / "commits" / str(commits[-1])).unlink()
        assert offset_in(partition).lsn < before.lsn == offset_in(view / "part0").lsn


def test_one_part_fails_and_all_go_on(db):
    db.execute("CREATE SOURCE t (k VARCHAR, v BIGINT)")
    db.execute(f"CREATE MATERIALIZED VIEW sums {IN_THREE} AS {SUMS}")
    db.source("t").push_batch([(key, 1) for key in KEYS])
    settle(db, "sums")
    runner = runner_of(db, "sums")
    wait_until(lambda: runner.state == "live")
    runner._query.partitions[1].session.streams.active[0].stop()
    db.source("t").push_batch([(key, 1) for key in KEYS])
    settle(db, "sums")
    assert rows_of(db, "sums") == Counter((key, 2, 2) for key in KEYS)
    wait_until(lambda: runner.state == "live" and runner.error is None)
