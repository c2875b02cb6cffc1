"""Killed at every step of CREATE, CREATE OR REPLACE and DROP of a view: it is there, or it is not.

A nursery process forks a child for each step; the child is a guest in the Java of this process, so
it takes a second and not ten. It kills itself, for real, before the n-th call that changes the log
or the disk. Then the directory is opened here: a view that exists is exact, one that does not can
be made, and nothing is left over.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import millstream as ms
from millstream.engine.consistency import inconsistencies
from millstream.log import Log
from millstream.log.appending import Appender
from millstream.testing import Mirror, engine_of
from millstream.views.run.query import SparkQuery
from millstream.views.running import RunningView
from millstream.views.view import View

from .guest import guest, invitation
from .observing import rows_of, runner_of, settle, until_started

pytestmark = pytest.mark.crash

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ROWS = [(n % 3, n, NOON + timedelta(seconds=20 * n)) for n in range(30)]
SOURCE = """
    CREATE SOURCE s (k BIGINT, n BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts);
    CREATE MATERIALIZED VIEW here AS SELECT n FROM s WHERE k = 1
"""
WINDOWS = (
    "SELECT k, TUMBLE_START(ts, INTERVAL '1 minute') AS t, SUM(n) AS x FROM s "
    "GROUP BY k, TUMBLE(ts, INTERVAL '1 minute') EMIT ON WINDOW CLOSE"
)
COUNTS = WINDOWS.replace("SUM(n)", "COUNT(*)")
OLD = "SELECT k, COUNT(*) AS x FROM s GROUP BY k"
NEW = "SELECT k, SUM(n) AS x FROM s GROUP BY k"
STATEMENTS = {
    "create": f"CREATE MATERIALIZED VIEW v AS {WINDOWS}",
    "replace": f"CREATE OR REPLACE MATERIALIZED VIEW v AS {NEW}",
    "drop": "DROP VIEW v",
    "create with late": f"CREATE MATERIALIZED VIEW v AS {WINDOWS} LATE DATA TO late",
    "replace with late": f"CREATE OR REPLACE MATERIALIZED VIEW v AS {COUNTS} LATE DATA TO late",
}
STEPS = [
    *((Log, name) for name in ("create_topic", "drop_topic")),
    (Appender, "commit"),
    (View, "load"),
    (RunningView, "start"),
    (SparkQuery, "start"),
    (shutil, "rmtree"),
]


# ---- the child


def nursery():
    """Fork a child for each line, and say how it ended. Nothing here has threads."""
    for line in sys.stdin:
        path, statement, step = line.rstrip("\n").split("\t")
        pid = os.fork()
        if not pid:
            try:
                os._exit(work(path, statement, step))
            except BaseException as error:
                sys.stderr.write(f"{statement} {step}: {error!r}\n")
                os._exit(70)
        _, status = os.waitpid(pid, 0)
        os.write(1, f"{os.waitstatus_to_exitcode(status)}\n".encode())


def work(path, statement, step):
    """Carry out a statement up to a step; 0 when it has fewer."""
    db = ms.open(path, spark=guest())
    if "v" in engine_of(db).views:
        until_started(runner_of(db, "v"))
    die_at(step)
    db.execute(STATEMENTS[statement])
    if "v" in engine_of(db).views:
        until_started(runner_of(db, "v"))
    return 0


def die_at(step):
    """Before the n-th call that makes a step, in any thread, this process ends.

    Or before a certain one: ``create_topic v`` is the one that makes the topic v.
    """
    left = iter(range(int(step) - 1, -1, -1)) if step.isdigit() else iter(())

    def hooked(name, function):
        def call(*args, **options):
            if next(left, None) == 0 or step.split() == [name, *map(str, args[1:2])]:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **options)

        return call

    for owner, name in STEPS:
        setattr(owner, name, hooked(name, getattr(owner, name)))


# ---- this process


@pytest.fixture(scope="module")
def kill(spark_owner):
    """Run a statement in a directory and kill it at a step; whether it got so far."""
    code = "import pandas, pyspark.sql, tests.on_spark.test_create_crash as t; t.nursery()"
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=Path(__file__).parents[2],
        env=invitation(spark_owner.session),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:

        def kill(path, statement, step):
            process.stdin.write(f"{path}\t{statement}\t{step}\n")
            process.stdin.flush()
            code = int(process.stdout.readline())
            assert code in {0, -signal.SIGKILL}
            return code != 0

        yield kill


@pytest.fixture(scope="module")
def base(tmp_path_factory, spark_owner):
    """Databases to begin with, each with another view."""
    path = tmp_path_factory.mktemp("base")
    views = {
        "none": None,
        "old": OLD,
        "windows": WINDOWS,
        "late": f"{WINDOWS} LATE DATA TO late",
        "unnamed": "SELECT COUNT(*) AS x FROM s GROUP BY k",
    }
    for name, view in views.items():
        with ms.open(path / name, spark=spark_owner.session) as db:
            db.execute(SOURCE)
            for row in ROWS:
                db.source("s").push(row)
            if view is not None:
                db.execute(f"CREATE MATERIALIZED VIEW v AS {view}")
                settle(db, "v")
    return path


def expected(query):
    """What a view over ROWS must show; of windows, those that the last row has closed."""
    groups, passed = {}, ROWS[-1][2] - timedelta(minutes=1)
    for k, n, ts in ROWS:
        minute = ts.replace(second=0)
        if "TUMBLE" not in query:
            groups.setdefault((k,), []).append(n)
        elif minute <= passed:
            groups.setdefault((k, minute), []).append(n)
    select = len if "COUNT" in query else sum
    return Counter((*key, select(ns)) for key, ns in groups.items())


def check_exact(db):
    """A view is what its query says, and its log adds up to it."""
    wanted = expected(engine_of(db).catalog["v"].query)
    settle(db, "v")
    assert rows_of(db, "v") == wanted
    with db.subscribe("SELECT * FROM v", start="earliest") as subscription:
        keys = len(next(iter(wanted))) - 1
        assert Mirror(subscription, key_columns=keys).catch_up(db).rows == wanted
    assert all(each["error"] is None for each in db.query("SHOW VIEWS").to_pylist())


def check_tidy(db):
    """There is nothing but what was asked for: no stream, no topic, no checkpoint is left over."""
    views = {each["name"] for each in db.query("SHOW VIEWS").to_pylist()}
    assert views - {"v"} == {"here"}
    assert db.query("SHOW STREAMS").fetchall() == []
    topics = engine_of(db).log.topics
    assert {each for each in topics if not each.startswith("__")} == {"s", *views}
    kept = {each for each in topics if each.startswith(("__state", "__pending", "__query"))}
    assert kept == set(engine_of(db).views["v"].planned.rows.topics if "v" in views else ())
    known = {engine_of(db).views.storage.checkpoint_of(each).name for each in engine_of(db).catalog}
    folder = db.path / "views"
    assert {each.name for each in folder.iterdir()} <= known if folder.is_dir() else True


@pytest.mark.parametrize("statement", ["create", "replace", "drop"])
def test_killed_at_every_step(tmp_path, spark, base, kill, statement):
    step, killed, found = 0, True, set()
    while killed:
        step += 1
        path = tmp_path / str(step)
        shutil.copytree(base / ("none" if statement == "create" else "old"), path)
        killed = kill(path, statement, step)
        with ms.open(path, spark=spark) as db:
            check_tidy(db)
            there = "v" in engine_of(db).catalog
            found.add(engine_of(db).catalog["v"].query if there else None)
            if there:
                check_exact(db)
            if not there or step % 2:
                db.execute(STATEMENTS["create" if not there else "replace"])
                check_exact(db)
            check_tidy(db)
    old, new = f"CREATE MATERIALIZED VIEW v AS {OLD}", STATEMENTS[statement]
    assert found == {"create": {None, new}, "replace": {old, new}, "drop": {old, None}}[statement]


@pytest.mark.parametrize("begin", ["windows", "unnamed"])
def test_killed_between_a_view_and_what_it_keeps(tmp_path, spark, base, kill, begin):
    shutil.copytree(base / begin, tmp_path / "db")
    assert kill(tmp_path / "db", "drop" if begin == "windows" else "replace", "rmtree")
    with ms.open(tmp_path / "db", spark=spark) as db:
        check_tidy(db)
        db.execute(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {WINDOWS}")
        check_exact(db)


def test_killed_between_a_view_and_its_late_rows_at_create(tmp_path, spark, base, kill):
    shutil.copytree(base / "none", tmp_path / "db")
    assert kill(tmp_path / "db", "create with late", "create_topic v")
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute(STATEMENTS["create with late"])


def test_killed_between_a_view_and_its_late_rows_at_drop(tmp_path, spark, base, kill):
    shutil.copytree(base / "late", tmp_path / "db")
    assert kill(tmp_path / "db", "drop", "drop_topic late")
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute(STATEMENTS["create with late"])


@pytest.mark.parametrize("step", ["1", "drop_topic late", "drop_topic v", "create_topic v"])
def test_killed_while_a_view_with_late_rows_is_replaced(tmp_path, spark, base, kill, step):
    """There is the old one or the new one, each with its log of late rows; never none."""
    shutil.copytree(base / "late", tmp_path / "db")
    assert kill(tmp_path / "db", "replace with late", step)
    with ms.open(tmp_path / "db", spark=spark) as db:
        assert not inconsistencies(engine_of(db))
        assert db.schema("late").names == db.schema("s").names
        assert ("COUNT" in engine_of(db).catalog["v"].query) == (step != "1")
        check_exact(db)


def test_a_view_that_is_refused_leaves_no_log_of_late_rows(tmp_path, spark, base):
    shutil.copytree(base / "none", tmp_path / "db")
    with ms.open(tmp_path / "db", spark=spark) as db:
        with pytest.raises(ms.Error):
            db.execute(f"CREATE MATERIALIZED VIEW v AS {WINDOWS} LATE DATA TO v")
        check_tidy(db)
