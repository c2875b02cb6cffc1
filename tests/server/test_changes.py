"""The change bus and cuts over a WebSocket: what tenants see, and frames in JSON."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.server.conftest import serving
from websockets.sync.client import connect

import millstream as ms
from millstream.testing import TIMEOUT

TABLE = "CREATE TABLE t (id BIGINT, org VARCHAR, PRIMARY KEY (id, org)) WITH (tenant = 'org')"


def test_events_are_those_of_the_database(serve):
    with serve() as served, ms.connect(served.url) as db:
        db.execute(TABLE)
        for n in range(20):
            db.insert("t", [(n, "acme" if n % 2 else "other")])
        here = served.db.changes(start="earliest", include="changed")
        there = db.changes(start="earliest", include="changed")
        for _ in range(20):
            assert here.recv(TIMEOUT) == there.recv(TIMEOUT)
        assert here.token == there.token

        async def stream():
            bus = db.changes_stream("t", start="earliest")
            return [(await bus.recv(TIMEOUT)).tenant for _ in range(2)]

        assert asyncio.run(stream()) == ["other", "acme"]


def test_batches_are_those_of_the_database(serve):
    with serve() as served, ms.connect(served.url) as db:
        db.execute("CREATE SOURCE s (n BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts)")
        here = served.db.subscribe("SELECT n FROM s")
        there = db.subscribe("SELECT n FROM s")
        db.execute("INSERT INTO s VALUES (1, TIMESTAMP '2026-01-31 00:00:00')")
        one, other = here.recv(TIMEOUT), there.recv(TIMEOUT)
        for name in ("topic", "committed_at", "watermark", "lsn", "first_lsn", "token", "cause"):
            assert getattr(one, name) == getattr(other, name), name
        assert one.watermark is not None
        assert here.target == there.target == "s"


def test_tenants_see_their_own(serve):
    with serve(auth=True) as served:
        served.db.execute(TABLE + "; CREATE TABLE shared (id BIGINT PRIMARY KEY)")
        key = served.keys.create("a", tenant="acme", role="read")
        with ms.connect(served.url, key=key) as db:
            bus, cuts = db.changes(include="after"), db.subscribe(["t"])
            served.db.insert("shared", [(1,)])
            served.db.insert("t", [(1, "other"), (2, "acme")])
            served.db.insert("t", [(3, "other"), (4, "acme")])
            assert [bus.recv(TIMEOUT).key["id"] for _ in range(2)] == [2, 4]
            found = []
            while len(found) < 2:
                found += [row for _, batch in cuts.recv(TIMEOUT) for row in batch.rows]
            assert found == [(2, "acme"), (4, "acme")]
            with pytest.raises(ms.Error):
                db.subscribe(["shared"])
            with pytest.raises(ms.Error):
                db.changes("shared").recv(TIMEOUT)


def test_frames_in_json(serve):
    with serve() as served, connect(served.url.replace("http", "ws") + "/v1/ws") as socket:
        served.db.execute(TABLE)

        def sent(**message):
            socket.send(json.dumps(message))

        def frame(*kinds):
            while True:
                found = json.loads(socket.recv(timeout=TIMEOUT))
                if found["type"] in kinds:
                    return found

        sent(type="changes", id=1, collection="t")
        assert frame("ready")["target"] == ""
        served.db.insert("t", [(1, "acme")])
        found = frame("changes")
        assert (found["topic"], found["tenant"], found["key"]) == ("t", "org", ["id", "org"])
        assert [each["name"] for each in found["columns"]] == ["id", "org"]
        assert found["changes"][0]["row"] == [1, "acme"]
        sent(type="unsubscribe", id=1)
        assert frame("end")
        sent(type="subscribe", id=2, queries=["t", "SELECT id FROM t WHERE id > 1"])
        ready = frame("ready")
        assert [each["query"] for each in ready["queries"]] == [
            "t",
            "SELECT id FROM t WHERE id > 1",
        ]
        parts = []
        while (found := frame("snapshot", "changes", "cut"))["type"] != "cut":
            assert "token" not in found
            parts.append((found["query"], [each["row"] for each in found["changes"]]))
        assert (0, [[1, "acme"]]) in parts
        assert found["kind"] == "snapshot"
        assert found["token"].count(".") == 1


@pytest.mark.parametrize(
    "message",
    [
        {"type": "changes"},
        {"type": "changes", "id": 1, "collection": 7},
        {"type": "changes", "id": 1, "encoding": "xml"},
        {"type": "changes", "id": 1, "sql": "SELECT 1"},
        {"type": "changes", "id": 1, "collection": "nothing"},
        {"type": "changes", "id": 1, "start": "ms1nonsense"},
        {"type": "subscribe", "id": 1, "queries": []},
        {"type": "subscribe", "id": 1, "queries": [1]},
        {"type": "subscribe", "id": 1, "queries": ["t"] * 65},
        {"type": "subscribe", "id": 1, "queries": "t"},
        {"type": "subscribe", "id": 1, "queries": ["t"], "sql": "SELECT 1"},
        {"type": "subscribe", "id": 1, "queries": ["DROP TABLE t"]},
    ],
)
def test_wrong_messages_are_refused(plain, message):
    with connect(plain.url.replace("http", "ws") + "/v1/ws") as socket:
        socket.send(json.dumps(message))
        found = json.loads(socket.recv(timeout=TIMEOUT))
        assert found["type"] == "error", found
        assert found["error"]["code"] != "internal_error"
        socket.send(json.dumps({"type": "sql", "id": 9, "sql": "SELECT COUNT(*) FROM t"}))
        while (found := json.loads(socket.recv(timeout=TIMEOUT)))["type"] == "end":
            pass
        assert found["rows"] == [[0]]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A server for all messages that are wrong."""
    with serving(tmp_path_factory.mktemp("plain") / "db") as served:
        served.db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        yield served
