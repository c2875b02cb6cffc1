"""How the start of Spark is reported; that it starts is tested in ``tests/on_spark``."""

import logging
import os
import pty
import sys

import pytest

from millstream.spark import internals, session
from millstream.spark.session import progress


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
