"""Ctrl-C, a close, a second database: while Spark starts, which takes seconds, and later on.

Two children, each with a Spark of its own, go through all of it and report what happened. Signals
are sent to the process group, as a terminal does, when the main thread is in a certain function.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import pytest

import millstream as ms
from millstream.spark import internals
from millstream.spark.session import Spark
from millstream.testing import TIMEOUT, wait_until

from .observing import rows_of, settle

pytestmark = pytest.mark.crash

SUMS = "CREATE MATERIALIZED VIEW v AS SELECT k, SUM(n) AS t FROM s GROUP BY k"


# ---- the children


def interrupted(do, *names):
    """Do something, and press Ctrl-C when it is in functions of these names; how it ended."""
    main, over = threading.main_thread().ident, threading.Event()

    def press():
        while not over.wait(0.001):
            frame, found = sys._current_frames()[main], set()
            while frame is not None:
                found.add(frame.f_code.co_name)
                frame = frame.f_back
            if found.issuperset(names):
                os.killpg(0, signal.SIGINT)
                return

    presser = threading.Thread(target=press)
    presser.start()
    try:
        do()
    except BaseException as error:
        return type(error).__name__
    finally:
        over.set()
        presser.join()
    return "done"


def javas():
    """The processes that this one has started, and not seen the end of."""
    command = ["ps", "--ppid", str(os.getpid()), "-o", "pid=,comm="]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return {line.strip() for line in listed.splitlines() if not line.endswith(" ps")}


def seen(db, *rows):
    """What the view shows when it has taken in some more rows."""
    for row in rows:
        db.source("s").push(row)
    settle(db, "v")
    return sorted(rows_of(db, "v"))


def interrupts(path):
    """Ctrl-C in each phase of the first start, while waiting, and while Spark starts again."""
    internals.import_pyspark()  # which may take longer than Java's start, beside it
    with ms.open(path) as db:
        db.execute("CREATE SOURCE s (k VARCHAR, n BIGINT)")
        yield "java starts", interrupted(lambda: db.execute(SUMS), "start_java", "result")
        yield "spark starts", interrupted(lambda: db.execute(SUMS), "_do_init", "readinto")
        # Python handles a signal when it gets to it: the view may have been made by then.
        db.execute(SUMS.replace("VIEW v", "VIEW IF NOT EXISTS v"))
        yield "then", seen(db, ("a", 1))
        wait = lambda: db.wait_for("v", lsn=10**9)  # noqa: E731
        yield "waiting", interrupted(wait, "wait_for", "wait")
        yield "after", seen(db, ("a", 2))
    yield "left", sorted(javas())
    with ms.open(path) as db:
        db.source("s").push(("a", 3))
        wait_until(javas, "Java")
        yield "starting", db.query("SHOW VIEWS").to_pylist()[0]["state"]
        yield "waiting while it starts", interrupted(lambda: db.wait_for("v"), "wait_for", "wait")


def together(path):
    """A close while the first view is made, before Spark is asked for, and two views at once."""
    made = {}

    def make(name, db, view="v"):
        try:
            db.execute(SUMS.replace(" v ", f" {view} "))
        except BaseException as error:
            made[name] = [type(error).__name__, isinstance(error, ms.Error)]
        else:
            made[name] = "done"

    db = ms.open(path)
    db.execute("CREATE SOURCE s (k VARCHAR, n BIGINT)")
    maker = threading.Thread(target=make, args=("closed", db))
    maker.start()
    wait_until(javas, "Java")
    db.close()
    maker.join()
    yield "closed", made["closed"]
    yield "left by the closed one", len(javas())
    with ms.open(path) as first, ms.open(tempfile.mkdtemp(dir=Path(path).parent)) as second:
        second.execute("CREATE SOURCE s (k VARCHAR, n BIGINT)")
        pair = {"first": first, "second": second}
        makers = [threading.Thread(target=make, args=each) for each in pair.items()]
        for each in makers:
            each.start()
        for each in makers:
            each.join()
        yield "made together", [made[name] for name in pair]
        for name, db in pair.items():
            if made[name] != "done":
                db.execute(SUMS)
        yield "both", [seen(db, ("a", n)) for n, db in enumerate(pair.values())]
    left = javas()
    yield "left by both", len(left)
    db, closed, check_room = ms.open(path), threading.Event(), Spark.check_room
    Spark.check_room = lambda *args: closed.wait() and check_room(*args)
    maker = threading.Thread(target=make, args=("late", db, "w"))
    maker.start()
    db.close()
    closed.set()
    maker.join()
    yield "made after the close", [made["late"], len(javas() - left)]


def report(facts):
    os.write(1, json.dumps(dict(facts)).encode())


# ---- this process


def child(path, what):
    """What a child reports; it must end by itself, and say nothing else."""
    code = (
        f"import faulthandler; faulthandler.dump_traceback_later({2 * TIMEOUT}, exit=True); "
        f"import tests.on_spark.test_interrupts as t; t.report(t.{what}({str(path)!r}))"
    )
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=2 * TIMEOUT + 30)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert (errors, process.returncode) == ("", 0)
    return json.loads(output)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("interrupts") / "db"


@pytest.fixture(scope="module")
def facts(path):
    return child(path, "interrupts")


@pytest.fixture(scope="module")
def facts_together(tmp_path_factory):
    return child(tmp_path_factory.mktemp("together") / "db", "together")


def test_the_first_start_can_be_interrupted_and_made_again(facts):
    assert (facts["java starts"], facts["spark starts"]) == ("KeyboardInterrupt",) * 2
    assert facts["then"] == [["a", 1]]


def test_a_waiting_thread_can_be_interrupted_and_the_view_goes_on(facts):
    assert facts["waiting"] == "KeyboardInterrupt"
    assert facts["after"] == [["a", 3]]


def test_interrupted_and_closed_while_spark_starts_it_goes_on_later(facts, path, spark):
    assert facts["starting"] == "starting"
    assert facts["waiting while it starts"] == "KeyboardInterrupt"
    with ms.open(path, spark=spark) as db:
        assert seen(db, ("a", 4)) == [("a", 10)]


def test_no_java_is_left_after_an_interrupted_start(facts):
    assert facts["left"] == []


def test_closed_while_its_first_view_is_made_it_can_be_made_later(facts_together):
    assert facts_together["closed"] != "done"
    assert facts_together["both"][0] == [["a", 0]]


def test_closed_while_its_first_view_is_made_says_so(facts_together):
    assert facts_together["closed"] == ["ClosedError", True]
    assert facts_together["left by the closed one"] == 0


def test_a_view_that_is_made_after_the_close_starts_no_spark(facts_together):
    assert facts_together["made after the close"] == [["ClosedError", True], 0]


def test_two_databases_whose_views_start_at_once_are_exact(facts_together):
    assert facts_together["both"] == [[["a", 0]], [["a", 1]]]


def test_two_databases_can_start_spark_at_once(facts_together):
    assert facts_together["made together"] == ["done", "done"]
    assert facts_together["left by both"] == 0
