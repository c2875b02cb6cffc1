from __future__ import annotations

import itertools
import re
import signal
import subprocess
import sys

import pytest

import millstream as ms
from millstream.testing import TIMEOUT

numbers = itertools.count(1)


def pytest_collection_modifyitems(items):
    """Mark the tests that kill a server and start it again."""
    for item in items:
        if "/tests/client/" in str(item.path) and "mortal" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


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

    @property
    def is_running(self):
        return self._child is not None and self._child.poll() is None

    def end(self, number=signal.SIGKILL):
        if not self.is_running:
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


@pytest.fixture(scope="session")
def mortal(tmp_path_factory):
    process = Process(tmp_path_factory.mktemp("mortal") / "db")
    yield process
    process.end()


@pytest.fixture
def server(mortal):
    """A server to be killed, in which there is nothing yet."""
    if not mortal.is_running:
        mortal.start()
    with ms.connect(mortal.url) as db:
        for kind in ("SOURCE", "TABLE"):
            for row in db.query(f"SHOW {kind}S").to_pylist():
                db.execute(f"DROP {kind} {row['name']}")
    return mortal


@pytest.fixture
def db(shared):
    with ms.connect(shared.url) as db:
        yield db


@pytest.fixture
def s(db):
    """The name of a source of its own, (n BIGINT, name VARCHAR)."""
    name = f"s{next(numbers)}"
    db.execute(f"CREATE SOURCE {name} (n BIGINT, name VARCHAR)")
    return name


@pytest.fixture
def t(db):
    """The name of a table of its own, (id BIGINT PRIMARY KEY, name VARCHAR)."""
    name = f"t{next(numbers)}"
    db.execute(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, name VARCHAR)")
    return name
