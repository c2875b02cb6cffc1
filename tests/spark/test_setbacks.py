"""What ends a view's query, and whether it is a failure of the view."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from millstream.errors import JavaDiedError, LogFullError, SparkStartError
from millstream.spark.errors import SparkError
from millstream.spark.java_process import ended_by, last_words
from millstream.views.run.setbacks import Setbacks

ROW = SparkError("[DIVIDE_BY_ZERO] Division by zero.")
UNSTARTED = SparkStartError("Spark did not start")


class Javas:
    """A Spark whose Java dies when it is said to."""

    def __init__(self):
        self.deaths = 0

    def has_died(self, deaths, raised):
        return self.deaths > deaths


@pytest.fixture
def javas():
    return Javas()


@pytest.fixture
def setbacks(javas):
    made = Setbacks(javas)
    made.begin()
    return made


def test_a_row_fails_the_view_and_the_second_time_its_subscribers(setbacks):
    first, second = setbacks.add(ROW, ROW, 7), setbacks.add(ROW, ROW, 7)
    assert (first.is_failure, first.is_hopeless) == (True, False)
    assert (second.is_failure, second.is_hopeless) == (True, True)
    assert second.pause > first.pause
    assert not setbacks.add(ROW, ROW, 8).is_hopeless  # it has got further


def test_a_death_of_java_is_no_failure_however_often(setbacks, javas):
    pauses = []
    for _ in range(50):
        setbacks.begin()
        javas.deaths += 1
        setback = setbacks.add(ROW, ConnectionResetError(), 7)
        assert (setback.is_failure, setback.is_hopeless) == (False, False)
        assert isinstance(setback.reason, JavaDiedError)
        pauses.append(setback.pause)
    assert pauses[0] == 0  # at once
    assert pauses == sorted(pauses)
    assert max(pauses) <= 5
    setbacks.begin()
    assert not setbacks.add(ROW, ROW, 7).is_hopeless


def test_a_death_that_was_known_before_does_not_excuse_a_failure(setbacks, javas):
    javas.deaths += 1
    setbacks.begin()
    assert setbacks.add(ROW, ROW, 7).is_failure


def test_a_java_that_never_starts_fails_the_view_in_the_end(setbacks):
    found = [setbacks.add(UNSTARTED, UNSTARTED, 7) for _ in range(5)]
    assert [each.is_failure for each in found] == [False] * 4 + [True]
    assert [each.is_hopeless for each in found] == [False] * 4 + [True]
    assert found[-1].reason is UNSTARTED


def test_starts_that_fail_count_in_a_row_only(setbacks, javas):
    for _ in range(20):
        setbacks.begin()
        assert not setbacks.add(UNSTARTED, UNSTARTED, 7).is_failure
        javas.deaths += 1
        assert not setbacks.add(ROW, ConnectionResetError(), 7).is_failure


def test_a_full_disk_is_never_hopeless(setbacks):
    full = LogFullError("no room")
    assert not any(setbacks.add(full, full, 7).is_hopeless for _ in range(5))


# ---- why Java has ended


def ended(code):
    process = subprocess.Popen([sys.executable, "-c", code])
    process.wait()
    return process


def test_how_a_process_has_ended():
    assert ended_by(None) == ""
    assert ended_by(ended("raise SystemExit(3)")) == "its Java has ended with exit code 3"
    killed = ended("import os; os.kill(os.getpid(), 9)")
    assert killed.returncode == -signal.SIGKILL
    assert ended_by(killed) == "its Java was killed (SIGKILL)"


def test_the_last_words_are_those_of_this_start(tmp_path):
    log = tmp_path / "spark.log"
    assert last_words(log, 0) == ""
    log.write_text("Error: of another start\n")
    start = log.stat().st_size
    assert last_words(log, start) == ""
    with log.open("a") as file:
        file.write("a warning\n\nUnrecognized VM option 'x'\nError: no Java\nError: it exits.\n")
    assert (
        last_words(log, start) == "Unrecognized VM option 'x' / Error: no Java / Error: it exits."
    )
    log.write_text("x" * 100_000)
    assert 0 < len(last_words(log, 0)) < 1000
