"""The webhook sink: what is posted, how it is signed, what becomes of refusals and outages."""

import hashlib
import hmac
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from millstream.errors import InvalidOptionError
from millstream.testing import database, wait_until


class Server(ThreadingHTTPServer):
    """Accepts all posts but those that a status waits for."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Receiver)
        self.got: list = []
        self.statuses: list = []
        self.url = f"http://127.0.0.1:{self.server_port}/hook"


class Receiver(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        if status == 200:
            self.server.got.append((dict(self.headers), body))
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def receiver():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def db():
    with database("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)") as db:
        yield db


def create(receiver, more=""):
    return (
        f"CREATE SINK s FROM t WITH (connector = 'webhook', url = '{receiver.url}', "
        f"retry_delay = '1 ms'{more})"
    )


def test_changes_are_posted_and_signed(db, receiver):
    db.execute("INSERT INTO t VALUES (1, 'a')")
    db.execute(create(receiver, """, secret = 'hunter2', headers = '{"Authorization": "me"}'"""))
    wait_until(lambda: len(receiver.got) == 1, "the snapshot")
    db.execute("UPDATE t SET v = 'b'")
    wait_until(lambda: len(receiver.got) == 2, "the update")
    headers, body = receiver.got[1]
    first, second = json.loads(receiver.got[0][1]), json.loads(body)
    assert (first["type"], first["replaces"], first["complete"]) == ("snapshot", True, True)
    assert first["changes"][0]["row"] == [1, "a"]
    assert (second["sink"], second["columns"], second["key"]) == ("s", ["id", "v"], ["id"])
    (change,) = second["changes"]
    assert (change["op"], change["before"], change["row"]) == ("update", [1, "a"], [1, "b"])
    time, signed = headers["X-Millstream-Signature"].split(",")
    expected = hmac.new(b"hunter2", f"{time[2:]}.".encode() + body, hashlib.sha256).hexdigest()
    assert (signed, headers["Authorization"]) == (f"v1={expected}", "me")
    shown = str(db.query("SHOW CONNECTORS").to_pylist())
    assert "hunter2" not in shown
    assert "Authorization" not in shown


def test_an_outage_is_waited_for_and_a_refusal_is_a_dead_letter(db, receiver):
    db.execute(create(receiver))
    wait_until(lambda: len(receiver.got) == 1, "the snapshot")
    receiver.statuses = [503, 500, 400]
    db.execute("INSERT INTO t VALUES (1, 'a')")
    letters = "SELECT reason, payload FROM s_dead_letters"
    wait_until(lambda: len(db.query(letters)), "a dead letter")
    ((reason, payload),) = db.query(letters).fetchall()
    assert reason == "the receiver answered with status 400"
    assert json.loads(payload)["changes"][0]["row"] == [1, "a"]
    db.execute("INSERT INTO t VALUES (2, 'b')")
    wait_until(lambda: len(receiver.got) == 2, "the next one")
    shown = db.query("SHOW CONNECTORS").to_pylist()[0]
    assert (shown["rejected"], shown["restarts"]) == (1, 2)


def test_many_rows_come_in_parts(db, receiver):
    db.insert("t", [(n, "x") for n in range(25)])
    db.execute(create(receiver, ", batch_rows = 10"))
    wait_until(lambda: len(receiver.got) == 3, "three parts")
    parts = [json.loads(body) for _, body in receiver.got]
    assert [len(each["changes"]) for each in parts] == [10, 10, 5]
    assert [each["replaces"] for each in parts] == [True, False, False]
    assert [each["complete"] for each in parts] == [False, False, True]


def test_refused_addresses(db):
    with pytest.raises(InvalidOptionError, match="url is no URL of HTTP"):
        db.execute("CREATE SINK s FROM t WITH (connector = 'webhook', url = 'ftp://x')")
