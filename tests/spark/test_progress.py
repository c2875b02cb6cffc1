"""The progress line: only where the main thread waits, so that a prompt is never overwritten."""

from __future__ import annotations

import io
import sys
import threading

from millstream.spark.session import progress


class Screen(io.StringIO):
    """A standard error that is a terminal."""

    def isatty(self):
        return True


def shown(monkeypatch, run):
    """What is on the screen after something that takes until the line has been drawn."""
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    run(screen)
    return screen.getvalue()


def test_a_line_while_the_main_thread_waits(monkeypatch):
    def run(screen):
        with progress("starting"):
            while "starting ..." not in screen.getvalue():
                threading.Event().wait(0.01)

    assert shown(monkeypatch, run).endswith("\r\x1b[K")


def test_nothing_behind_a_prompt(monkeypatch, caplog):
    caplog.set_level("INFO", "millstream.spark")

    def wait():
        with progress("starting"):
            pass

    def run(_):
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join()

    assert shown(monkeypatch, run) == ""
    assert caplog.messages == ["starting"]
