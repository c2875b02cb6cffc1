from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace

import httpx
import pytest
from playwright.sync_api import expect

import millstream as ms
from millstream.server.keys import Keys
from millstream.server.run import Server
from millstream.server.settings import Settings
from millstream.testing import TIMEOUT

PATIENCE = 60_000
EXPECTED = ("Failed to load resource", "WebSocket connection to")
expect.set_options(timeout=PATIENCE)


@pytest.fixture
def browse(chromium):
    """Opens pages; what goes wrong on one fails the test."""
    contexts, problems = [], []

    def noted(said):
        # A browser says of every status that is no success, and of a server that is away.
        if said.type == "error" and not said.text.startswith(EXPECTED):
            problems.append(said.text)

    def browse(url, *, init="", **options):
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(f"a dialog: {dialog.message}"))
        page.on("console", noted)
        if init:
            page.add_init_script(init)
        page.goto(url)
        return page

    yield browse
    for context in contexts:
        context.close()
    assert problems == []


class Served:
    """A server in a thread of this process."""

    def __init__(self, db, server, keys):
        self.db = db
        self.keys = keys
        self.url = server.http


@contextmanager
def serving(path, **settings):
    ready = threading.Event()
    with ms.open(path) as db:
        keys = Keys(path)
        server = Server(db, replace(Settings(http=("127.0.0.1", 0)), **settings), keys)
        thread = threading.Thread(target=server.run, args=(lambda _: ready.set(),))
        thread.start()
        try:
            assert ready.wait(TIMEOUT)
            yield Served(db, server, keys)
        finally:
            server.stop()
            thread.join(TIMEOUT)
            assert not thread.is_alive()


@pytest.fixture
def serve(tmp_path):
    return lambda **settings: serving(tmp_path / "db", **settings)


@pytest.fixture
def served(serve):
    with serve() as served:
        yield served


class Process:
    """``millstream serve`` in a process of its own, at an address that outlives it."""

    def __init__(self, path):
        self._path = path
        self._child = None
        self.port = 0
        self.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        command = [sys.executable, "-m", "millstream", "serve", str(self._path)]
        self._child = subprocess.Popen(
            [*command, "--http", f"127.0.0.1:{self.port}"], stdout=subprocess.PIPE, text=True
        )
        said = self._child.stdout.readline()
        self.port = int(re.search(r"http://127\.0\.0\.1:(\d+)", said)[1])

    def kill(self, number=signal.SIGKILL):
        if self._child.poll() is None:
            self._child.send_signal(number)
        self._child.wait(TIMEOUT)
        self._child.stdout.close()

    def sql(self, sql):
        answer = httpx.post(f"{self.url}/v1/sql", json={"sql": sql}, timeout=TIMEOUT)
        assert answer.status_code == 200, answer.text

    def push(self, name, *rows):
        answer = httpx.post(f"{self.url}/v1/sources/{name}", json=rows, timeout=TIMEOUT)
        assert answer.status_code == 200, answer.text


@pytest.fixture
def process(tmp_path):
    process = Process(tmp_path / "db")
    yield process
    process.kill()
