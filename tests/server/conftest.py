from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import replace

import httpx
import pytest

import millstream as ms
from millstream.server.keys import Keys
from millstream.server.run import Server
from millstream.server.settings import Limits, Settings
from millstream.testing import TIMEOUT


class Served:
    """A server in a thread of this process, and a client of it."""

    def __init__(self, db, server, keys):
        self.db = db
        self.server = server
        self.keys = keys
        self.url = server.http
        self.client = httpx.Client(base_url=self.url, timeout=TIMEOUT)

    def sql(self, sql, params=None, key=None):
        body = {"sql": sql} if params is None else {"sql": sql, "params": params}
        return self.client.post("/v1/sql", json=body, headers=bearer(key))

    def rows(self, sql):
        return self.sql(sql).json()["rows"]


def bearer(key):
    return {} if key is None else {"Authorization": f"Bearer {key}"}


@contextmanager
def serving(path, *, limits=None, spark=None, **settings):
    ready = threading.Event()
    with ms.open(path, spark=spark) as db:
        chosen = Settings(http=("127.0.0.1", 0), limits=replace(Limits(), **(limits or {})))
        keys = Keys(path)
        server = Server(db, replace(chosen, **settings), keys)
        thread = threading.Thread(target=server.run, args=(lambda _: ready.set(),))
        thread.start()
        try:
            assert ready.wait(TIMEOUT)
            served = Served(db, server, keys)
            with served.client:
                yield served
        finally:
            server.stop()
            thread.join(TIMEOUT)
            assert not thread.is_alive()


@pytest.fixture
def serve(tmp_path):
    """Starts a server: ``with serve(auth=True) as served``."""
    return lambda **settings: serving(tmp_path / "db", **settings)


@pytest.fixture
def served(serve):
    with serve() as served:
        yield served
