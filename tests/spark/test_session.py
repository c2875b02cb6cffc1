"""How the start of Spark is reported; that it starts is tested in ``tests/on_spark``."""

import logging
import os
import pty
import signal
import subprocess
import sys
import threading

import pytest

from millstream.spark import internals, session
from millstream.spark.session import progress
from millstream.testing import wait_until


def test_off_a_terminal_it_is_one_line_of_logging(caplog, capsys):
    with caplog.at_level(logging.INFO, "millstream"), progress("starting Spark"):
        pass
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("INFO", "starting Spark")
    ]
    assert capsys.readouterr().err == ""


def test_on_a_terminal_it_is_a_line_that_goes(caplog, monkeypatch):
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with caplog.at_level(logging.INFO, "millstream"), progress("starting Spark"):
            shown = b""
            while b"starting Spark" not in shown:
                shown += os.read(ours, 100)
        while not shown.endswith(b"\x1b[K"):
            shown += os.read(ours, 100)
    os.close(ours)
    assert not caplog.records


# ---- what it is started with


@pytest.mark.parametrize(
    ("options", "value"),
    [
        ({}, "false"),
        ({"spark.driver.memory": "2g"}, "false"),
        ({"spark.jars": "mine.jar"}, "true"),
        ({"spark.jars.packages": "a:b:1"}, "true"),
        ({"spark.driver.extraClassPath": "mine.jar"}, "true"),
        ({internals.EXTENSIONS_OF_JARS: "true"}, "true"),
        ({internals.EXTENSIONS_OF_JARS: "false", "spark.jars": "mine.jar"}, "false"),
    ],
)
def test_extensions_are_looked_for_in_jars_of_the_user(options, value, monkeypatch):
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    assert session.settings_for(options)[internals.EXTENSIONS_OF_JARS] == value


def test_extensions_are_looked_for_when_the_user_submits_jars(monkeypatch):
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--jars mine.jar pyspark-shell")
    assert session.settings_for({})[internals.EXTENSIONS_OF_JARS] == "true"


# ---- the Java process


class Gateway:
    """Stands in for PySpark's gateway to a Java process."""

    def __init__(self):
        self.proc = subprocess.Popen(["sleep", "600"], stdin=subprocess.PIPE)

    def shutdown(self):
        """Nothing to close."""


class Launch:
    """Launching Java begins, goes on when ``answer`` is set, and gives a gateway or fails."""

    def __init__(self):
        self.begun, self.answer = threading.Event(), threading.Event()
        self.fails = None
        self.made = []

    def __call__(self, conf, output, umask):
        self.begun.set()
        assert self.answer.wait(60)
        if self.fails is not None:
            raise self.fails
        self.made.append(Gateway())
        return self.made[-1]


@pytest.fixture
def launch(monkeypatch):
    launching = Launch()
    monkeypatch.setattr(internals, "launch_java", launching)
    yield launching
    for each in launching.made:
        each.proc.kill()
        each.proc.communicate()


def test_java_is_started(tmp_path, launch):
    launch.answer.set()
    assert session._start_java(None, tmp_path / "spark.log") is launch.made[0]
    assert launch.made[0].proc.poll() is None


def test_a_start_of_java_that_is_interrupted_leaves_none(tmp_path, launch):
    main = threading.main_thread().ident

    def press():
        assert launch.begun.wait(60)
        signal.pthread_kill(main, signal.SIGINT)
        launch.answer.set()

    pressing = threading.Thread(target=press)
    pressing.start()
    with pytest.raises(KeyboardInterrupt):
        session._start_java(None, tmp_path / "spark.log")
    pressing.join()
    wait_until(lambda: [each.proc.returncode for each in launch.made] == [-signal.SIGKILL])


def test_java_that_does_not_start_is_raised(tmp_path, launch):
    launch.fails = RuntimeError("no Java")
    launch.answer.set()
    with pytest.raises(RuntimeError, match="no Java"):
        session._start_java(None, tmp_path / "spark.log")
