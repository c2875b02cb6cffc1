"""Commands as users run them: in processes of their own, and on a terminal."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

from millstream.cli.app import main

COMMAND = (sys.executable, "-m", "millstream")
_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[=>()][0-9A-Z]?)")
_SECONDS = 25.0
_PROCESSES = {"cli", "terminal"}


def pytest_collection_modifyitems(items):
    """Mark the tests that start commands in processes of their own: a second each."""
    for item in items:
        if "/tests/cli/" in str(item.path) and _PROCESSES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def cli(tmp_path):
    """Runs a command to its end."""

    def run(*arguments, given="", check=None):
        done = subprocess.run(
            [*COMMAND, *map(str, arguments)],
            input=given,
            capture_output=True,
            text=isinstance(given, str),
            cwd=tmp_path,
            timeout=_SECONDS,
            check=False,
        )
        if check is not None:
            assert done.returncode == check, (done.stdout, done.stderr)
        return done

    return run


def _own_the_terminal():
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C becomes a signal


@pytest.fixture
def quick(tmp_path, monkeypatch, capsys):
    """Runs a command to its end in this process, which saves the second that a new one takes."""

    def run(*arguments, given="", check=None):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["millstream", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
        with pytest.raises(SystemExit) as ended:
            main()
        for each, handler in handlers.items():
            signal.signal(each, handler)
        code, shown = ended.value.code or 0, capsys.readouterr()
        if check is not None:
            assert code == check, shown
        return subprocess.CompletedProcess(arguments, code, shown.out, shown.err)

    return run


class Terminal:
    """A command on a pseudo-terminal: what it shows, without colours, and what is typed."""

    def __init__(self, *arguments, env, cwd):
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env={**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", **env},
            start_new_session=True,
            preexec_fn=_own_the_terminal,  # noqa: PLW1509 - one system call
        )
        os.close(slave)
        self._raw = ""
        self._seen = 0

    @property
    def text(self):
        return _ESCAPES.sub("", self._raw).replace("\r", "")

    def type(self, text):
        os.write(self._master, text.encode())

    def expect(self, text):
        """Wait until the text is shown, after what was expected before."""
        until = time.monotonic() + _SECONDS
        while True:
            found = self.text.find(text, self._seen)
            if found >= 0:
                self._seen = found + len(text)
                return
            assert self._read(until), f"{text!r} is not in {self.text[self._seen :]!r}"

    def wait(self):
        """Wait for the end of the process; returns its exit code."""
        until = time.monotonic() + _SECONDS
        while self._read(until):
            pass
        return self.process.wait(_SECONDS)

    def _read(self, until):
        ready, _, _ = select.select([self._master], [], [], max(0.0, until - time.monotonic()))
        try:
            more = os.read(self._master, 65536) if ready else b""
        except OSError:  # Linux: the other end is closed
            more = b""
        self._raw += more.decode(errors="replace")
        return bool(more)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)


@pytest.fixture
def terminal(tmp_path):
    """Starts a command on a terminal."""
    opened = []

    def start(*arguments):
        env = {"MILLSTREAM_HISTORY": str(tmp_path / "history")}
        opened.append(Terminal(*arguments, env=env, cwd=tmp_path))
        return opened[-1]

    yield start
    for each in opened:
        each.close()
