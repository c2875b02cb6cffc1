from __future__ import annotations

import hashlib
import hmac
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.server.conftest import bearer

import millstream as ms
from millstream.errors import InvalidOptionError
from millstream.server.webhooks import Webhook, Webhooks, checked, pause_after
from millstream.testing import wait_until


class Receiver:
    """Takes what is posted; ``status`` says how it answers."""

    def __init__(self):
        self.status = 200
        self.deliveries = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.deliveries.append((receiver.status, dict(self.headers), body))
                self.send_response(receiver.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"

    def rows(self, status=200):
        return [
            change["row"]
            for answered, _, body in self.deliveries
            if answered == status
            for frame in json.loads(body)["frames"]
            for change in frame.get("changes", ())
        ]

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def receiver():
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def db(tmp_path):
    with ms.open(tmp_path / "db") as db:
        db.execute("CREATE SOURCE s (n BIGINT)")
        yield db


@pytest.fixture
def hooks(db):
    hooks = Webhooks(db, pause=lambda attempt: 0.001)
    yield hooks
    hooks.close()


def test_changes_are_posted_and_signed(db, hooks, receiver):
    made = hooks.add(Webhook("h", "SELECT n FROM s WHERE n > 1", receiver.url, "secret"))
    db.insert("s", [(1,), (2,), (3,)])
    wait_until(lambda: receiver.rows() == [[2], [3]])
    _, headers, body = receiver.deliveries[0]
    time, signed = headers["X-Millstream-Signature"].removeprefix("t=").split(",v1=")
    expected = hmac.new(b"secret", f"{time}.".encode() + body, hashlib.sha256).hexdigest()
    assert signed == expected
    assert headers["X-Millstream-Webhook"] == "h"
    assert made.secret == "secret"
    assert "secret" not in json.dumps(hooks.shown(None))


def test_what_is_not_accepted_is_tried_again_in_order(db, hooks, receiver):
    hooks.add(Webhook("h", "SELECT n FROM s", receiver.url, "", attempts=100))
    receiver.status = 503
    db.insert("s", [(1,)])
    wait_until(lambda: len(receiver.deliveries) >= 3)
    db.insert("s", [(2,)])
    receiver.status = 200
    wait_until(lambda: receiver.rows() == [[1], [2]])
    ids = {headers["X-Millstream-Delivery"] for _, headers, body in receiver.deliveries}
    assert len(ids) == 2


def test_dead_letters_are_put_aside_and_replayed(db, hooks, receiver):
    hooks.add(Webhook("h", "SELECT n FROM s", receiver.url, "", attempts=2))
    receiver.status = 500
    db.insert("s", [(1,)])
    wait_until(lambda: hooks.shown(None)[0]["dead"] == 1)
    assert len(receiver.deliveries) == 2
    assert hooks["h"].replay() == (0, 1)
    receiver.status = 200
    db.insert("s", [(2,)])
    wait_until(lambda: receiver.rows() == [[2]])
    assert hooks["h"].replay() == (1, 0)
    assert receiver.rows() == [[2], [1]]
    assert hooks["h"].dead_letters() == []


def test_it_goes_on_after_a_restart(tmp_path, receiver):
    with ms.open(tmp_path / "db") as db:
        db.execute("CREATE SOURCE s (n BIGINT)")
        hooks = Webhooks(db)
        hooks.add(Webhook("h", "SELECT n FROM s", receiver.url, "x"))
        db.insert("s", [(1,)])
        wait_until(lambda: receiver.rows() == [[1]])
        hooks.close()
        db.insert("s", [(2,)])
    with ms.open(tmp_path / "db") as db:
        hooks = Webhooks(db)
        hooks.start()
        wait_until(lambda: receiver.rows() == [[1], [2]])
        hooks.remove("h")
        assert db.query("SHOW SUBSCRIPTIONS").fetchall() == []
        hooks.close()


@pytest.mark.parametrize("url", ["ftp://x/", "file:///etc/passwd", "x", "http://"])
def test_addresses_that_cannot_be(url):
    with pytest.raises(InvalidOptionError):
        checked(Webhook("h", "SELECT 1", url, ""))


def test_pauses_grow():
    assert [pause_after(n) for n in (1, 2, 3, 10)] == [1.0, 2.0, 4.0, 60.0]


def test_over_http(serve, receiver):
    with serve(auth=True) as served:
        served.db.execute("CREATE SOURCE s (n BIGINT)")
        admin = bearer(served.keys.create("a", role="admin"))
        writer = bearer(served.keys.create("w", role="write"))
        wanted = {"name": "h", "sql": "SELECT n FROM s", "url": receiver.url}
        post, get = served.client.post, served.client.get
        assert post("/v1/webhooks", json=wanted, headers=writer).status_code == 403
        made = post("/v1/webhooks", json=wanted, headers=admin)
        assert made.status_code == 201
        assert post("/v1/webhooks", json=wanted, headers=admin).status_code == 409
        served.db.insert("s", [(1,)])
        wait_until(lambda: receiver.rows() == [[1]])
        listed = get("/v1/webhooks", headers=admin)
        assert listed.json()["webhooks"][0]["name"] == "h"
        assert made.json()["secret"] not in listed.text
        replayed = post("/v1/webhooks/h/replay", headers=admin)
        assert replayed.json() == {"accepted": 0, "left": 0}
        assert served.client.delete("/v1/webhooks/h", headers=admin).status_code == 200
        assert served.client.delete("/v1/webhooks/h", headers=admin).status_code == 404
