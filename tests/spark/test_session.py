"""How the start of Spark is reported; that it starts is tested in ``tests/on_spark``."""

import logging
import os
import pty
import sys

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
