"""Spark's Java is killed under the views: they go on in a new one, and nobody misses a change.

Every kind of view runs in a child with a Spark of its own, which kills its Java once, twice in a
row, and stops it for a while; in ``make proof``, at random moments for twenty rounds.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import millstream as ms
from millstream.errors import ViewFailedError, ViewNotReadyError
from millstream.spark import internals
from millstream.spark.session import Spark
from millstream.testing import Mirror, engine_of, wait_until
from millstream.views.run import live, setbacks

from ..effort import effort  # noqa: TID252
from ..seed import SEED  # noqa: TID252 - tests have no name
from .against_duckdb import Model, same
from .observing import runner_of

pytestmark = pytest.mark.crash

ROUNDS = effort(0, 20)
SECONDS = 300
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LONG_AGO, FAR_AHEAD = datetime(2020, 1, 1, tzinfo=UTC), datetime(2090, 1, 1, tzinfo=UTC)

RELATIONS = """
CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, v BIGINT, ts TIMESTAMP);
CREATE TABLE w (k BIGINT PRIMARY KEY, name VARCHAR);
CREATE TABLE q (n BIGINT PRIMARY KEY, k BIGINT, ts TIMESTAMP);
CREATE SOURCE e (id BIGINT, k BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5 seconds')
"""
JOINED = "SELECT w.name, SUM(t.v) AS s FROM t JOIN w ON t.k = w.k GROUP BY w.name"
BY_KEY = "SELECT t.k, COUNT(*) AS c, SUM(t.v) AS s FROM t JOIN w ON t.k = w.k GROUP BY t.k"
SESSIONS = """
    SELECT k, MIN(ts) AS s, COUNT(*) AS n FROM (
        SELECT k, ts, SUM(f) OVER (PARTITION BY k ORDER BY ts, id ROWS UNBOUNDED PRECEDING) AS part
        FROM (
            SELECT *, (ts - LAG(ts) OVER (PARTITION BY k ORDER BY ts, id)
                <= INTERVAL '5 seconds' IS NOT TRUE)::INT AS f
            FROM e
        )
    ) GROUP BY k, part
"""
WINDOWS = """
    SELECT k, time_bucket(INTERVAL '30 seconds', ts) AS s, COUNT(*) AS n FROM e
    WHERE time_bucket(INTERVAL '30 seconds', ts) + INTERVAL '30 seconds'
        <= (SELECT MAX(ts) - INTERVAL '5 seconds' FROM e)
    GROUP BY 1, 2
"""
VIEWS = {
    "sums": ("", "SELECT k, SUM(id) AS s FROM e GROUP BY k", ""),
    "lines": ("", "SELECT id, log10(id) AS l FROM e", ""),
    "medians": ("", "SELECT k, MEDIAN(id) AS m FROM e GROUP BY k", ""),
    "joined": ("", JOINED, ""),
    "ranked": ("", "SELECT id, SUM(v) OVER (PARTITION BY k ORDER BY id) AS s FROM t", ""),
    "asof_": ("", "SELECT e.id, q.n FROM e ASOF JOIN q ON e.k = q.k AND e.ts >= q.ts", ""),
    "timed": ("", "SELECT id FROM t WHERE ts > NOW() - INTERVAL '1' HOUR", ""),
    "sessions": (
        """SELECT k, SESSION_START(ts) AS s, COUNT(*) AS n FROM e
            GROUP BY k, SESSION(ts, INTERVAL '5 seconds')""",
        SESSIONS,
        "",
    ),
    "closed": (
        """SELECT k, TUMBLE_START(ts, INTERVAL '30 seconds') AS s, COUNT(*) AS n FROM e
            GROUP BY k, TUMBLE(ts, INTERVAL '30 seconds') EMIT ON WINDOW CLOSE""",
        WINDOWS,
        "",
    ),
    "nested": ("", "SELECT COUNT(*) AS c, MAX(s) AS m FROM joined", ""),
    "parted": ("", BY_KEY, "WITH (partitions = 2)"),
}
"""Our SELECT, if it is another one than DuckDB's; DuckDB's; options."""


class Site:
    """A database with every kind of view, a subscriber of each, and DuckDB beside it."""

    def __init__(self, db, seed):
        self.db, self.dice = db, random.Random(seed)
        self._number, self._moment = 0, NOON
        db.execute(RELATIONS)
        db.insert("w", [(k, f"name {k % 3}") for k in range(6)])
        self.model = Model({name: engine_of(db).catalog[name].schema.arrow for name in "twqe"})
        self.mirrors = {}
        for name, (ours, sql, options) in VIEWS.items():
            db.execute(f"CREATE MATERIALIZED VIEW {name} {options} AS {ours or sql}")
            self.model.view(name, sql)
            self.mirrors[name] = Mirror(db.subscribe(f"SELECT * FROM {name}"))
        self.change()
        self.check()

    def change(self):
        """Rows come, change and go."""
        db, dice = self.db, self.dice
        for _ in range(dice.randrange(8, 16)):
            self._number += 1
            n, k = self._number, dice.randrange(6)
            self._moment += timedelta(seconds=dice.choice([0, 2, 8, 24]))
            db.insert("e", [(n, k, self._moment)])
            db.insert("t", [(n, k, dice.randrange(100), LONG_AGO if n % 2 else FAR_AHEAD)])
            db.insert("q", [(n, k, self._moment - timedelta(seconds=1, milliseconds=n))])
        db.execute("UPDATE t SET v = v + 1 WHERE k = ?", [dice.randrange(6)])
        db.execute("DELETE FROM t WHERE id = ?", [dice.randrange(1, self._number)])
        db.execute("UPDATE w SET name = ? WHERE k = 0", [f"name {dice.randrange(9)}"])

    def check(self):
        """Every view, and what its subscriber has, is what DuckDB answers; none has an error."""
        lsn = self.db.flush()
        for name in VIEWS:
            self.db.wait_for(name, lsn=lsn, timeout=SECONDS)
        self.db.wait_for("nested", lsn=self.db.flush(), timeout=SECONDS)
        for name in "twqe":
            self.model.put(name, self.db.query(f"SELECT * FROM {name}").fetchall())
        wrong = []
        for name in VIEWS:
            expected = self.model.answer(f"SELECT * FROM {name}")
            streamed = self.mirrors[name].catch_up(self.db).fetchall()
            for reader, found in (("view", self.rows(name)), ("subscriber", streamed)):
                if not same(found, expected):
                    wrong.append((name, reader, found, expected))
        assert not wrong
        wait_until(lambda: set(self.states()) == {"live"}, self.states)
        assert not self.errors()

    def rows(self, name, *, stale_ok=False):
        return self.db.query(f"SELECT * FROM {name}", stale_ok=stale_ok).fetchall()

    def states(self):
        return [each["state"] for each in self.db.query("SHOW VIEWS").to_pylist()]

    def errors(self):
        shown = self.db.query("SHOW VIEWS").to_pylist()
        return {each["error"] for each in shown if each["error"] is not None}

    @property
    def spark(self):
        return runner_of(self.db, "sums")._query.spark

    # ---- what happens to Java

    def kill(self):
        """Kill it: the views restart, say why, and show their rows."""
        before = {name: self.rows(name) for name in VIEWS}
        end(java())
        wait_until(lambda: set(self.states()) == {"restarting"}, self.states)
        assert all("Java" in each for each in self.errors())
        # Nothing was committed since, but ticks of the clock, which only NOW() waits for.
        after = {name: self.rows(name, stale_ok=name == "timed") for name in VIEWS}
        assert before == after

    def kill_twice(self):
        """Kill it, and the next one while it starts."""
        self.kill()
        wait_until(java, "another Java", timeout=SECONDS)
        end(java())

    def kill_under_the_starting_views(self):
        """Kill it, and the next one when the first view starts in it."""
        self.kill()
        wait_until(java, "another Java", timeout=SECONDS)
        wait_until(lambda: self.spark._is_ready, "another Spark", timeout=SECONDS)
        end(java())

    def kill_at_some_moment(self):
        """Kill it several times, sooner or later."""
        for _ in range(self.dice.randrange(1, 4)):
            with suppress(AssertionError):
                wait_until(lambda: False, timeout=self.dice.choice([0.1, 1, 3, 8, 20]))
            end(java())

    def stop_for_a_while(self):
        """Stop it: rows are taken and shown, the views wait, and go on with it."""
        restarts = [each["restarts"] for each in self.db.query("SHOW VIEWS").to_pylist()]
        before = {name: self.rows(name) for name in VIEWS}
        (pid,) = java()
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_until(lambda: set(thread_states(pid)) == {"T"})  # one thread stops the others
            self.change()
            with pytest.raises(ViewNotReadyError):
                self.db.wait_for("parted", timeout=10 if ROUNDS else 1)
            assert before == {name: self.rows(name, stale_ok=True) for name in VIEWS}
        finally:
            os.kill(pid, signal.SIGCONT)
        self.check()
        assert restarts == [each["restarts"] for each in self.db.query("SHOW VIEWS").to_pylist()]


def java():
    """The Java processes below this one."""
    children, found, todo = {}, [], [os.getpid()]
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with suppress(OSError):
                name, _, rest = (each / "stat").read_text().rpartition(")")
                state, parent = rest.split()[:2]
                if state != "Z":
                    children.setdefault(int(parent), []).append((int(each.name), name))
    while todo:
        for pid, name in children.get(todo.pop(), ()):
            todo.append(pid)
            if name.endswith("(java"):
                found.append(pid)
    return found


def thread_states(pid):
    """The states of the threads of a process, as the kernel names them."""
    for each in Path(f"/proc/{pid}/task").iterdir():
        yield (each / "stat").read_text().rpartition(")")[2].split()[0]


def end(pids):
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def work(path, seed):
    """The child."""
    live.LIVE_ROWS = 60  # so that it is killed between checkpoints, and near them
    with ms.open(path) as db:
        site = Site(db, seed)
        kills = [site.kill, site.kill_twice, site.kill_under_the_starting_views]
        for happens in effort(kills[2:], kills):  # the last one kills two, as the second does
            happens()
            site.change()
            site.check()
        site.stop_for_a_while()
        for _ in range(ROUNDS):
            site.kill_at_some_moment()
            site.change()
            site.check()


def work_without_java(path):
    """The child: no other Java starts, and then one does."""
    setbacks._PAUSES = (0.1,)
    with ms.open(path) as db:
        db.execute("CREATE SOURCE t (k BIGINT, v BIGINT)")
        db.execute("CREATE MATERIALIZED VIEW sums AS SELECT k, SUM(v) AS s FROM t GROUP BY k")
        db.insert("t", [(1, 2)])
        db.wait_for("sums", timeout=SECONDS)
        subscription = db.subscribe("SELECT * FROM sums")
        options = runner_of(db, "sums")._query.spark._options
        options["spark.driver.memory"] = "1k"
        end(java())
        db.insert("t", [(1, 3)])
        for ask in (lambda: db.wait_for("sums", timeout=SECONDS), lambda: list(subscription)):
            with pytest.raises(ViewFailedError, match=r"did not start.*Too small maximum heap"):
                ask()
        del options["spark.driver.memory"]
        progress = engine_of(db).views["sums"].view.progress
        wait_until(lambda: progress.error is None, "another Java", timeout=SECONDS)
        db.wait_for("sums", timeout=SECONDS)
        assert db.query("SELECT s FROM sums").fetchall() == [(5,)]


def work_after_a_session_of_others():
    """The child: the Java of a session has ended, and nobody has said so to PySpark."""
    with TemporaryDirectory() as folder:
        process = internals.java_process(internals.gateway_of(Spark(Path(folder)).session))
        process.kill()
        process.wait()
        with ms.open() as db:
            db.execute("CREATE SOURCE t (k BIGINT, v BIGINT)")
            db.execute("CREATE MATERIALIZED VIEW sums AS SELECT k, SUM(v) AS s FROM t GROUP BY k")
            db.wait_for("sums", timeout=SECONDS)


def child(call, seconds=SECONDS):
    """Run a function of this module in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", f"from tests.on_spark import test_java_dies as t; t.{call}"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


@pytest.mark.timeout(SECONDS * (2 + ROUNDS))
def test_every_kind_of_view_goes_on_in_a_new_java(tmp_path):
    child(f"work({str(tmp_path / 'db')!r}, {SEED})", SECONDS * (2 + ROUNDS))


def test_a_java_that_never_starts_again_is_reported_with_its_last_words(tmp_path):
    child(f"work_without_java({str(tmp_path / 'db')!r})")


def test_a_database_starts_a_java_of_its_own_after_that_of_a_session_has_ended():
    child("work_after_a_session_of_others()")
