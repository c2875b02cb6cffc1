from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest

import millstream as ms
from millstream.testing import TIMEOUT


class Process:
    """``millstream serve`` in a process of its own, at an address that outlives it."""

    def __init__(self, path, *options):
        self.path = path
        self._options = options
        self.port = 0
        self._child = None

    def start(self):
        address = f"127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "millstream", "serve", str(self.path), "--http", address]
        self._child = subprocess.Popen(
            [*command, *self._options], stdout=subprocess.PIPE, text=True
        )
        line = self._child.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert found, line
        self.port = int(found[1])
        return self

    def end(self, number=signal.SIGKILL):
        if self._child is None or self._child.poll() is not None:
            return
        self._child.send_signal(number)
        self._child.wait(TIMEOUT)
        self._child.stdout.close()

    def restart(self, number=signal.SIGKILL):
        self.end(number)
        self.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """A server for all tests that do not kill it."""
    process = Process(tmp_path_factory.mktemp("shared") / "db").start()
    yield process
    process.end(signal.SIGTERM)


@pytest.fixture
def server(tmp_path):
    """A server to be killed."""
    process = Process(tmp_path / "db").start()
    yield process
    process.end()


@pytest.fixture
def db(shared):
    with ms.connect(shared.url) as db:
        yield db


@pytest.fixture
def s(db, request):
    """The name of a source of its own, (n BIGINT, name VARCHAR)."""
    name = re.sub(r"\W", "_", f"s_{request.node.name}")[:60].lower()
    db.execute(f"CREATE SOURCE {name} (n BIGINT, name VARCHAR)")
    return name


@pytest.fixture
def t(db, request):
    """The name of a table of its own, (id BIGINT PRIMARY KEY, name VARCHAR)."""
    name = re.sub(r"\W", "_", f"t_{request.node.name}")[:60].lower()
    db.execute(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, name VARCHAR)")
    return name
