from __future__ import annotations

import json
import struct
from contextlib import contextmanager, suppress

import httpx
import pyarrow as pa
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from millstream.server import service
from millstream.testing import TIMEOUT, wait_until


class Client:
    """A WebSocket client that is given frames one by one."""

    def __init__(self, socket):
        self.socket = socket

    def send(self, **message):
        self.socket.send(json.dumps(message))

    def next(self):
        message = self.socket.recv(timeout=TIMEOUT)
        if isinstance(message, str):
            return json.loads(message)
        (size,) = struct.unpack_from(">I", message)
        head = json.loads(message[4 : 4 + size])
        return head | {"table": pa.ipc.open_stream(message[4 + size :]).read_all()}

    def until(self, *types):
        while True:
            frame = self.next()
            if frame["type"] in types:
                return frame

    def rows(self, count):
        rows = []
        while len(rows) < count:
            rows += [each["row"] for each in self.until("snapshot", "changes")["changes"]]
        return rows


@contextmanager
def client(served, **options):
    address = served.url.replace("http", "ws") + "/v1/ws"
    with connect(address, **options) as socket:
        yield Client(socket)


@pytest.fixture
def s(served):
    served.db.execute("CREATE SOURCE s (n BIGINT, x DOUBLE)")
    served.db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR)")
    return served


@pytest.fixture
def ws(s):
    with client(s) as ws:
        yield ws


def test_many_subscriptions_on_one_connection(s, ws):
    ws.send(type="subscribe", id=1, sql="SELECT n FROM s")
    ws.send(type="subscribe", id="two", sql="SELECT n FROM s WHERE n > ?", params=[1])
    ready = [ws.until("ready"), ws.until("ready")]
    assert {each["id"] for each in ready} == {1, "two"}
    s.db.insert("s", [(1, None), (2, None)])
    found = [ws.until("changes"), ws.until("changes")]
    rows = {each["id"]: [c["row"] for c in each["changes"]] for each in found}
    assert rows == {1: [[1], [2]], "two": [[2]]}
    ws.send(type="unsubscribe", id=1)
    assert ws.until("end")["id"] == 1
    s.db.insert("s", [(3, None)])
    assert ws.until("changes")["id"] == "two"


def test_arrow(s, ws):
    s.db.execute("INSERT INTO t VALUES (1, 'a')")
    ws.send(type="subscribe", id=1, sql="SELECT * FROM t", encoding="arrow")
    assert ws.next()["type"] == "ready"
    snapshot = ws.next()
    assert snapshot["table"].to_pylist() == [
        {"id": 1, "name": "a", "_op": "insert", "_weight": 1, "_lsn": snapshot["lsn"]}
    ]
    ws.until("progress")
    s.db.execute("UPDATE t SET name = 'b'")
    changes = ws.until("changes")["table"].to_pylist()
    assert [(each["name"], each["_op"], each["_weight"]) for each in changes] == [
        ("a", "update", -1),
        ("b", "update", 1),
    ]


def test_demand(s, ws):
    ws.send(type="subscribe", id=1, sql="SELECT n FROM s", demand=0)
    ws.until("progress")
    s.db.insert("s", [(n, None) for n in range(10)])
    ws.send(type="request", id=1, rows=3)
    assert ws.rows(3) == [[0], [1], [2]]
    ws.send(type="request", id=1, rows=4)
    assert ws.rows(4) == [[3], [4], [5], [6]]
    ws.send(type="request", id=1, rows=0)
    assert ws.until("error")["error"]["code"] == "INVALID_OPTION"


def test_pause(s, ws):
    ws.send(type="subscribe", id=1, sql="SELECT n FROM s", buffer_rows=10)
    ws.until("progress")
    ws.send(type="pause", id=1)
    assert ws.until("ok")["of"] == "pause"
    for n in range(100):
        s.db.insert("s", [(n, None)])
    ws.send(type="sql", id="q", sql="SELECT COUNT(*) AS n FROM s")
    assert ws.next()["rows"] == [[100]]  # and no change before it
    ws.send(type="resume", id=1)
    assert ws.rows(100) == [[n] for n in range(100)]


def test_a_durable_subscription_goes_on_after_what_was_acknowledged(s):
    for expected in ([[0], [1], [2], [3]], [[2], [3]]):
        with client(s) as ws:
            ws.send(type="subscribe", id=1, sql="SELECT n FROM s", name="d", start="earliest")
            if expected[0] == [0]:
                ws.until("progress")
                s.db.insert("s", [(0, None), (1, None)])
                changes = ws.until("changes")
                s.db.insert("s", [(2, None), (3, None)])
                assert [each["row"] for each in changes["changes"]] + ws.rows(2) == expected
                ws.send(type="ack", id=1, token=changes["token"])
                assert ws.until("ok")["of"] == "ack"
            else:
                assert ws.rows(2) == expected
        wait_until(lambda: s.server._service.gate.subscriptions == 0)


def test_messages_on_channels(s, ws):
    ws.send(type="listen", channel="orders", id=1)
    assert ws.next() == {"type": "ok", "id": 1, "of": "listen"}
    s.db.notify("other", "no")
    s.db.notify("orders", "42")
    found = ws.next()
    assert (found["type"], found["channel"], found["payload"]) == ("notification", "orders", "42")
    ws.send(type="notify", channel="orders", payload="43")
    assert {ws.next()["type"], ws.next()["type"]} == {"ok", "notification"}
    ws.send(type="unlisten", channel="orders")
    assert ws.next()["of"] == "unlisten"
    s.db.notify("orders", "44")
    ws.send(type="sql", id=2, sql="SELECT COUNT(*) AS n FROM s")
    assert ws.next()["type"] == "result"


def test_statements(s, ws):
    ws.send(type="sql", id=1, sql="INSERT INTO t VALUES (?, ?)", params=[1, "a"])
    assert ws.next()["status"] == "INSERT 1"
    ws.send(type="sql", id=2, sql="SELECT name FROM t")
    found = ws.next()
    assert (found["id"], found["columns"], found["rows"]) == (
        2,
        [{"name": "name", "type": "VARCHAR"}],
        [["a"]],
    )
    ws.send(type="sql", id=3, sql="SELEC")
    assert ws.next()["error"]["code"] == "SQL_SYNTAX"


@pytest.mark.parametrize(
    "message",
    [
        *("", "x", "[]", "7", "{}", '{"type": 7}', '{"type": "nonsense"}', "[" * 100_000),
        *('{"type": "subscribe"}', '{"type": "subscribe", "id": 1}'),
        *('{"type": "subscribe", "id": [1], "sql": "SELECT 1"}', '{"type": "pause", "id": 9}'),
        '{"type": "subscribe", "id": 1, "sql": "SELECT n FROM s", "max_rows": "x"}',
        '{"type": "subscribe", "id": 1, "sql": "SELECT n FROM s", "encoding": "xml"}',
        *('{"type": "listen"}', '{"type": "sql", "sql": 7}', b"\x00\xff", b""),
    ],
)
def test_a_message_that_makes_no_sense_is_answered(s, ws, message):
    ws.socket.send(message)
    assert ws.next()["error"]["code"] == "BAD_REQUEST"
    ws.send(type="sql", id=1, sql="SHOW TABLES")
    assert ws.next()["type"] == "result"


def test_an_id_is_used_once_at_a_time(s, ws):
    ws.send(type="subscribe", id=1, sql="SELECT n FROM s")
    ws.send(type="subscribe", id=1, sql="SELECT n FROM s")
    assert ws.until("error")["error"]["code"] == "BAD_REQUEST"


def test_limits(serve):
    with serve(limits={"subscriptions_per_connection": 1, "message_bytes": 1000}) as served:
        served.db.execute("CREATE SOURCE s (n BIGINT)")
        with client(served) as ws:
            ws.send(type="subscribe", id=1, sql="SELECT n FROM s")
            ws.send(type="subscribe", id=2, sql="SELECT n FROM s")
            assert ws.until("error")["error"]["code"] == "LIMIT"
            ws.socket.send("x" * 2000)
            with pytest.raises(ConnectionClosed) as closed:
                while True:
                    ws.next()
            assert closed.value.rcvd.code == 1009


def test_keys_and_origins(serve):
    with serve(auth=True) as served:
        served.db.execute("CREATE SOURCE s (n BIGINT)")
        read = served.keys.create("r", role="read")
        for options in (
            {},
            {"additional_headers": {"Authorization": "Bearer x"}},
            {"subprotocols": ["millstream.v1", "millstream.key.x"]},
            {"origin": "https://evil.example"},
        ):
            with pytest.raises(InvalidStatus) as refused, client(served, **options):
                pass
            assert refused.value.response.status_code in {401, 403}
        with client(served, subprotocols=["millstream.v1", f"millstream.key.{read}"]) as ws:
            assert ws.socket.subprotocol == "millstream.v1"
            ws.send(type="sql", id=1, sql="INSERT INTO s VALUES (1)")
            assert ws.next()["error"]["code"] == "ROLE"
            ws.send(type="notify", channel="c")
            assert ws.next()["error"]["code"] == "ROLE"
            ws.send(type="subscribe", id=1, sql="SELECT n FROM s", name="d")
            assert ws.next()["error"]["code"] == "ROLE"


def test_everything_ends_with_the_connection(s):
    with client(s) as ws:
        ws.send(type="subscribe", id=1, sql="SELECT n FROM s")
        ws.send(type="listen", channel="c")
        ws.until("progress")
    wait_until(lambda: s.server._service.gate.subscriptions == 0)
    wait_until(lambda: len(s.db.query("SHOW SUBSCRIPTIONS")) == 0)
    assert s.server._service.measures.connections == 0


def test_a_revoked_key_ends_its_connections(serve, monkeypatch):
    monkeypatch.setattr(service, "_KEYS_SECONDS", 0.02)
    with serve(auth=True) as served:
        served.db.execute("CREATE SOURCE s (n BIGINT)")
        headers = {"Authorization": f"Bearer {served.keys.create('r')}"}
        other = {"Authorization": f"Bearer {served.keys.create('o')}"}
        params = {"sql": "SELECT * FROM s"}
        with (
            client(served, additional_headers=headers) as ws,
            client(served, additional_headers=other) as stays,
            served.client.stream("GET", "/v1/subscribe", params=params, headers=headers) as sse,
        ):
            lines = sse.iter_lines()
            assert next(lines)
            ws.send(type="subscribe", id=1, sql="SELECT * FROM s")
            ws.until("progress")
            served.keys.revoke("r")
            with pytest.raises(ConnectionClosed) as closed:
                while True:
                    ws.next()
            assert closed.value.rcvd.code == 1008
            with suppress(httpx.RemoteProtocolError):
                for _ in lines:
                    pass
            stays.send(type="sql", id=1, sql="SHOW SOURCES")
            assert stays.next()["type"] == "result"


def test_a_client_that_leaves_while_its_tail_is_opened(s):
    for _ in range(30):
        with client(s) as ws:
            ws.send(type="subscribe", id=1, sql="SELECT n FROM s")
            ws.until("ready")
    wait_until(lambda: s.server._service.gate.subscriptions == 0)
    wait_until(lambda: len(s.server._service.tails) == 0)
    wait_until(lambda: len(s.db.query("SHOW SUBSCRIPTIONS")) == 0)


def test_an_id_that_cannot_be_sent_back_is_refused(s, ws):
    ws.socket.send(r'{"type": "sql", "id": "\ud800", "sql": "SELECT * FROM t"}')
    assert ws.next()["error"]["code"] == "BAD_REQUEST"
    ws.socket.send(r'{"type": "sql", "id": "\ud83d\ude00", "sql": "SELECT * FROM t"}')
    assert ws.next()["id"] == "\U0001f600"


def test_names_of_webhooks_are_not_for_clients(s, ws):
    ws.send(type="subscribe", id=1, sql="SELECT n FROM s", name="webhook.w")
    assert ws.next()["error"]["code"] == "INVALID_OPTION"
