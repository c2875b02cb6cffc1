from __future__ import annotations

import hashlib
import hmac
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.server.conftest import bearer

import millstream as ms
from millstream.errors import AddressRefusedError, InvalidOptionError
from millstream.server.addresses import AddressRules, parse_networks
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
    assert hooks[None, "h"].replay() == (0, 1)
    receiver.status = 200
    db.insert("s", [(2,)])
    wait_until(lambda: receiver.rows() == [[2]])
    assert hooks[None, "h"].replay() == (1, 0)
    assert receiver.rows() == [[2], [1]]
    assert hooks[None, "h"].dead_letters() == []


def test_an_answer_that_is_no_http_is_tried_again(db, hooks):
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        made = hooks.add(Webhook("h", "SELECT n FROM s", url, "", attempts=2))
        db.insert("s", [(1,)])
        for _ in range(made.attempts):
            connection, _ = server.accept()
            with connection:
                received = b""
                while not received.endswith(b"]}"):
                    received += connection.recv(65536)
                connection.sendall(b"no HTTP at all\r\n\r\n")
        wait_until(lambda: hooks.shown(None)[0]["dead"] == 1)
    [letter] = hooks[None, "h"].dead_letters()
    assert letter["why"] == "BadStatusLine"
    assert hooks.shown(None)[0]["error"] is None


def test_a_webhook_that_is_refused_leaves_no_file(db, hooks):
    with pytest.raises(ms.Error):
        hooks.add(Webhook("h", "SELECT n FROM nothing", "http://127.0.0.1:9/", ""))
    assert list((db.path / "webhooks").iterdir()) == []


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
        hooks.remove((None, "h"))
        assert db.query("SHOW SUBSCRIPTIONS").fetchall() == []
        hooks.close()


@pytest.mark.parametrize("url", ["ftp://x/", "file:///etc/passwd", "x", "http://", "http://[::1"])
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


LOOPBACK = parse_networks(["127.0.0.0/8"])
TENANTS = "CREATE SOURCE s (org VARCHAR NOT NULL, n BIGINT) WITH (tenant = 'org')"


def test_each_tenant_has_names_of_its_own(serve, receiver):
    with serve(auth=True, webhook_networks=LOOPBACK) as served:
        served.db.execute(TENANTS)
        keys = {
            tenant: bearer(served.keys.create(f"k{tenant}", role="admin", tenant=tenant))
            for tenant in ("a", "b", None)
        }
        post, get, delete = served.client.post, served.client.get, served.client.delete
        for tenant, sql in (("a", "SELECT n FROM s"), ("b", "SELECT n + 10 AS n FROM s")):
            wanted = {"name": "h", "sql": sql, "url": receiver.url}
            assert post("/v1/webhooks", json=wanted, headers=keys[tenant]).status_code == 201
            assert post("/v1/webhooks", json=wanted, headers=keys[tenant]).status_code == 409
        served.db.insert("s", [("a", 1), ("b", 2)])
        wait_until(lambda: sorted(receiver.rows()) == [[1], [12]])
        listed = get("/v1/webhooks", headers=keys["b"]).json()["webhooks"]
        assert [each["tenant"] for each in listed] == ["b"]
        assert len(get("/v1/webhooks", headers=keys[None]).json()["webhooks"]) == 2
        ambiguous = delete("/v1/webhooks/h", headers=keys[None])
        assert ambiguous.status_code == 400
        assert "?tenant=" in ambiguous.json()["error"]["hint"]
        # Whose it is, a tenant cannot choose.
        assert delete("/v1/webhooks/h?tenant=b", headers=keys["a"]).status_code == 200
        assert delete("/v1/webhooks/h", headers=keys["a"]).status_code == 404
        served.db.insert("s", [("a", 3), ("b", 4)])
        wait_until(lambda: sorted(receiver.rows()) == [[1], [12], [14]])
        assert post("/v1/webhooks/h/replay?tenant=b", headers=keys[None]).status_code == 200
        assert delete("/v1/webhooks/h", headers=keys[None]).status_code == 200
        assert served.db.query("SHOW SUBSCRIPTIONS").fetchall() == []


def test_webhooks_of_tenants_go_on_after_a_restart(tmp_path, receiver):
    with ms.open(tmp_path / "db") as db:
        db.execute(TENANTS)
        hooks = Webhooks(db, rules=AddressRules(LOOPBACK))
        for tenant in ("a", "B/../x", None):
            hooks.add(Webhook("h", "SELECT n FROM s", receiver.url, "x", tenant))
        hooks.close()
        # Where earlier versions have kept those of tenants.
        directory = tmp_path / "db" / "webhooks"
        (old,) = [each for each in directory.glob("*/h.json") if '"a"' in each.read_text()]
        old.rename(directory / "old.json")
        (directory / "h.json").rename(directory / "later.json")
        (directory / "old.json").rename(directory / "h.json")
        (directory / "later.json").unlink()
        db.insert("s", [("a", 1), ("B/../x", 2)])
    with ms.open(tmp_path / "db") as db:
        hooks = Webhooks(db, rules=AddressRules(LOOPBACK))
        hooks.start()
        wait_until(lambda: sorted(receiver.rows()) == [[1], [2]])
        hooks.add(Webhook("g", "SELECT n FROM s", receiver.url, "x"))
        for key in (("a", "h"), ("B/../x", "h"), (None, "g")):
            hooks.remove(key)
        assert not list(directory.glob("**/*.json"))
        hooks.close()


def test_the_topology_shows_no_subscription_of_another_tenant(serve):
    with serve(auth=True) as served:
        served.db.execute(TENANTS)
        a = bearer(served.keys.create("ka", tenant="a"))
        with (
            served.db.subscribe("SELECT n FROM s", name="s", tenant="b"),
            served.db.subscribe("SELECT n FROM s", name="own", tenant="a"),
        ):
            drawn = served.client.get("/v1/topology", headers=a).json()
            everything = served.db.topology()
        assert [each["name"] for each in drawn["nodes"]] == ["s", "own"]
        assert drawn["edges"] == [{"from": "s", "to": "own"}]
        assert "s of b" in [each["name"] for each in everything["nodes"]]


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "[::1]", "0.0.0.0", "[::]", "2130706433", "127.1"),
        *("10.0.0.1", "172.16.3.4", "192.168.1.1", "100.100.100.200", "[fd00:ec2::254]"),
        *("169.254.169.254", "[fe80::1]", "168.63.129.16", "224.0.0.1", "[fec0::1]"),
        *("[::ffff:10.0.0.1]", "[64:ff9b::a00:1]", "[2002:7f00:1::]"),
    ],
)
def test_a_tenants_webhook_reaches_public_addresses_only(db, hooks, host):
    db.execute("CREATE TABLE t (org VARCHAR PRIMARY KEY) WITH (tenant = 'org')")
    url = f"http://{host}:9/"
    with pytest.raises(AddressRefusedError):
        hooks.add(Webhook("h", "SELECT * FROM t", url, "", tenant="a"))
    assert hooks.shown(None) == []
    assert db.query("SHOW SUBSCRIPTIONS").fetchall() == []
    hooks.add(Webhook("h", "SELECT * FROM t", url, ""))  # without a tenant: as the admin says


def test_public_addresses():
    rules = AddressRules(parse_networks(["10.1.0.0/16"]))
    for each in ("93.184.216.34", "2606:2800:220:1::1", "10.1.2.3", "::ffff:10.1.2.3"):
        rules.check(each)
    with pytest.raises(AddressRefusedError) as caught:
        rules.check("10.2.0.1")
    assert "10.2.0.1" not in str(caught.value)


def test_a_name_that_leads_elsewhere_later(db, receiver, monkeypatch):
    found = ["93.184.216.34"]
    real = socket.getaddrinfo

    def lookup(host, port, *given, **options):
        if host != "hook.example":
            return real(host, port, *given, **options)
        return real(found[-1], port, *given, **options)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    hooks = Webhooks(db, pause=lambda _: 0.001)
    url = receiver.url.replace("127.0.0.1", "hook.example")
    db.execute(TENANTS.replace(" s ", " r "))
    hooks.add(Webhook("h", "SELECT n FROM r", url, "", tenant="a", attempts=2))
    found.append("127.0.0.1")
    db.insert("r", [("a", 1)])
    wait_until(lambda: hooks.shown("a")[0]["dead"] == 1)
    assert receiver.deliveries == []
    [letter] = hooks["a", "h"].dead_letters()
    assert "not of the public internet" in letter["why"]
    assert hooks["a", "h"].replay() == (0, 1)
    hooks.close()
    allowed = Webhooks(db, rules=AddressRules(LOOPBACK))
    allowed.start()
    assert allowed["a", "h"].replay() == (1, 0)
    assert receiver.rows() == [[1]]
    allowed.close()


def test_secrets_in_addresses_are_masked(db, hooks):
    for number, url in enumerate(
        [
            "https://user:hunter2@127.0.0.1:9/x",
            "https://hunter2@127.0.0.1:9/x",
            "https://127.0.0.1:9/x?id=7&api_key=hunter2&Signature=hunter2",
        ]
    ):
        made = hooks.add(Webhook(f"h{number}", "SELECT n FROM s", url, "hunter2"))
        assert "hunter2" not in json.dumps(made.shown())
    assert "hunter2" not in json.dumps(hooks.shown(None))
    assert "id=7" in json.dumps(hooks.shown(None))


def test_over_http_the_address_of_a_tenant_is_refused(serve):
    with serve(auth=True) as served:
        served.db.execute(TENANTS)
        admin = bearer(served.keys.create("k", role="admin", tenant="a"))
        wanted = {"name": "h", "sql": "SELECT n FROM s", "url": "http://169.254.169.254/latest"}
        answer = served.client.post("/v1/webhooks", json=wanted, headers=admin)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "ADDRESS_REFUSED")
