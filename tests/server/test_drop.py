"""DROP of what many clients follow: each is told, nothing hangs, nothing is left."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from contextlib import ExitStack
from urllib.parse import quote, urlsplit

import pytest
from tests.server.conftest import serving
from websockets.sync.client import connect

from millstream.testing import TIMEOUT, wait_until

EACH = 20


class Events:
    """Server-Sent Events, read when the test says so."""

    def __init__(self, url, sql):
        host, port = urlsplit(url).hostname, urlsplit(url).port
        self._socket = socket.create_connection((host, port), TIMEOUT)
        head = f"GET /v1/subscribe?sql={quote(sql)} HTTP/1.1\r\nHost: localhost\r\n"
        self._socket.sendall(f"{head}Connection: close\r\n\r\n".encode())

    def rest(self):
        """The names of all events; the server has ended the connection after them."""
        data = b""
        while part := self._socket.recv(65536):
            data += part
        self._socket.close()
        lines = data.decode().splitlines()
        codes = [json.loads(x[6:])["error"]["code"] for x in lines if '"error":' in x]
        return [x.removeprefix("event: ") for x in lines if x.startswith("event: ")], codes


class Postgres:
    """A SUBSCRIBE over PostgreSQL's protocol, read when the test says so."""

    def __init__(self, url, name):
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname, parts.port), TIMEOUT)
        self._file = self._socket.makefile("rb")
        self._send(b"", struct.pack("!i", 3 << 16) + b"user\0me\0database\0millstream\0\0")
        self._until(b"Z")
        self._send(b"Q", f"SUBSCRIBE {name}\0".encode())
        self._until(b"H")

    def _send(self, kind, content):
        self._socket.sendall(kind + struct.pack("!i", len(content) + 4) + content)

    def _until(self, *kinds):
        while True:
            kind, (length,) = self._file.read(1), struct.unpack("!i", self._file.read(4))
            content = self._file.read(length - 4)
            if kind in kinds:
                return content

    def rest(self):
        """The SQLSTATE that it ends with; the connection goes on."""
        content = self._until(b"E")
        self._until(b"Z")
        self._send(b"Q", b"SELECT 1\0")
        self._until(b"D")
        self._send(b"X", b"")
        self._file.close()
        self._socket.close()
        return {x[:1]: x[1:] for x in content.split(b"\0") if x}[b"C"].decode()


def websocket(stack, url, sql):
    made = stack.enter_context(connect(url.replace("http", "ws") + "/v1/ws", max_queue=None))
    made.send(json.dumps({"type": "subscribe", "id": 1, "sql": sql}))
    assert json.loads(made.recv(TIMEOUT))["type"] == "ready"
    return made


def last_of(made):
    seen = []
    while not seen or seen[-1]["type"] != "end":
        seen.append(json.loads(made.recv(TIMEOUT)))
    made.close()
    return [each["type"] for each in seen[-2:]], seen[-2].get("error", {}).get("code")


class Producers:
    """Threads that push over HTTP and here until what they push to is gone."""

    def __init__(self, served, name):
        self._served, self._name = served, name
        self.pushed, self.refused = 0, []
        self.threads = [threading.Thread(target=each) for each in (self._over_http, self._here)]
        for each in self.threads:
            each.start()

    def _over_http(self):
        address, number = f"/v1/sources/{self._name}", 0
        while True:
            number += 1
            answer = self._served.client.post(address, json=[{"id": number, "v": "x" * 200}] * 1)
            if answer.status_code != 200:
                self.refused.append(answer.json()["error"]["code"])
                return
            self.pushed += 1

    def _here(self):
        number = 1_000_000
        try:
            while True:
                number += 10
                rows = [(number + n, "y" * 200) for n in range(10)]
                self._served.db.insert(self._name, rows)
                time.sleep(0.005)  # what clients have not read yet is read by the test
        except Exception as error:
            self.refused.append(getattr(error, "code", repr(error)))


@pytest.mark.parametrize(
    ("create", "kind"),
    [
        ("CREATE SOURCE x (id BIGINT, v VARCHAR)", "SOURCE"),
        ("CREATE TABLE x (id BIGINT PRIMARY KEY, v VARCHAR)", "TABLE"),
    ],
)
def test_drop_under_many_subscribers(tmp_path, create, kind):
    with serving(tmp_path / "db", postgres=("127.0.0.1", 0)) as served, ExitStack() as stack:
        served.db.execute(create)
        before = threading.active_count()
        sql = "SELECT id, v FROM x"
        events = [Events(served.url, sql) for _ in range(EACH)]
        events += [Events(served.url, f"{sql} WHERE id > {n}") for n in range(3)]
        sockets = [websocket(stack, served.url, sql) for _ in range(EACH)]
        clients = [Postgres(served.server.postgres, "x") for _ in range(EACH)]
        service = served.server._service
        wait_until(lambda: service.gate.subscriptions == 3 * EACH + 3)
        producers = Producers(served, "x")
        wait_until(lambda: producers.pushed > 20)
        assert served.sql(f"DROP {kind} x").json()["status"] == f"DROP {kind}"
        for thread in producers.threads:
            thread.join(TIMEOUT)
            assert not thread.is_alive()
        assert producers.refused == ["OBJECT_NOT_FOUND"] * 2
        for each in events:
            names, codes = each.rest()
            assert names[0] == "ready"
            assert (names[-2:], codes) == (["error", "end"], ["SUBSCRIPTION_ENDED"])
        for each in sockets:
            assert last_of(each) == (["error", "end"], "SUBSCRIPTION_ENDED")
        assert [each.rest() for each in clients] == ["55000"] * EACH
        wait_until(lambda: not service.gate.subscriptions)
        wait_until(lambda: not (service.streaming or service.connections or len(service.tails)))
        wait_until(lambda: not served.server._postgres._connections)
        assert served.db.query("SHOW SUBSCRIPTIONS").fetchall() == []
        # The pools keep their threads; nothing else has been started for good.
        assert threading.active_count() - before <= 4 * service.settings.limits.workers
        served.db.execute(create)
        assert served.rows("SELECT COUNT(*) AS n FROM x") == [[0]]
