"""Views that are late, read over HTTP, the WebSocket, the client and the shell."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

import millstream as ms
from millstream import errors
from millstream.cli.formats import Format
from millstream.cli.shell import Runner
from millstream.testing import TIMEOUT, Background, engine_of, wait_until

SQL = "SELECT id FROM v"


@pytest.fixture
def served(serve):
    with serve() as served:
        served.db.execute(
            "CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t VALUES (1);"
            "CREATE MATERIALIZED VIEW v AS SELECT id FROM t WHERE id > 0"
        )
        served.db.wait_for("v", timeout=TIMEOUT)
        yield served


@pytest.fixture
def late(served):
    working = engine_of(served.db).views["v"].view._working
    working.acquire()
    served.db.execute("INSERT INTO t VALUES (2)")

    def release():
        if working.locked():
            working.release()

    yield release
    release()


def waits(served):
    return bool(engine_of(served.db).relations.readiness._waiting)


def test_http(served, late):
    body = {"sql": SQL, "timeout": 0.01}
    answer = served.client.post("/v1/sql", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "VIEW_NOT_READY")
    assert answer.headers["Retry-After"]
    answer = served.client.post("/v1/sql", json={"sql": SQL, "stale_ok": True}).json()
    assert (answer["rows"], answer["catching_up"]) == ([[1]], ["v"])
    for wrong in ({"stale_ok": 1}, {"timeout": "1"}, {"timeout": -1}):
        assert served.client.post("/v1/sql", json={"sql": SQL, **wrong}).status_code == 400
    waiting = Background(served.sql, SQL)
    wait_until(lambda: waits(served))
    late()
    answer = waiting.result().json()
    assert answer["rows"] == [[1], [2]]
    assert "catching_up" not in answer


def test_a_statement_that_takes_too_long_waits_no_longer(served, late):
    with pytest.raises(errors.QueryTimeoutError):
        waiting = Background(served.db.query, SQL, timeout=None)
        wait_until(lambda: waits(served))
        for thread in list(engine_of(served.db).relations.readiness._waiting):
            served.server._service.statements._interrupt(thread)
        waiting.result()
    assert not waits(served)


def test_polling_waits_for_the_snapshot(served, late):
    polling = Background(served.client.get, "/v1/poll", params={"sql": SQL})
    wait_until(lambda: served.server._service.measures.frames["waiting"])
    late()
    frames = polling.result().json()["frames"]
    assert [each["type"] for each in frames] == ["ready", "snapshot", "progress"]
    assert [each["row"] for each in frames[1]["changes"]] == [[1], [2]]


def test_polling_gives_up(served, late, monkeypatch):
    monkeypatch.setattr("millstream.server.subscribe.READ_SECONDS", 0.05)
    answer = served.client.get("/v1/poll", params={"sql": SQL})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "VIEW_NOT_READY")


def test_events_say_that_the_view_is_catching_up(served, late):
    with served.client.stream("GET", "/v1/subscribe", params={"sql": SQL}) as answer:
        lines = answer.iter_lines()
        seen = []
        for line in lines:
            if line.startswith("event: "):
                seen.append(line[7:])
            if seen[-1:] == ["waiting"]:
                late()
            if seen[-1:] == ["progress"]:
                break
    assert seen == ["ready", "waiting", "snapshot", "progress"]


def test_the_client(served, late):
    with ms.connect(served.url) as client:
        with pytest.raises(errors.ViewNotReadyError):
            client.query(SQL, timeout=0.01)
        stale = client.execute(SQL, stale_ok=True)
        assert (stale.fetchall(), stale.catching_up) == ([(1,)], ("v",))
        subscription = client.subscribe(SQL)
        assert subscription.try_recv() is None
        late()
        assert client.query(SQL, timeout=None).fetchall() == [(1,), (2,)]
        assert subscription.recv(TIMEOUT).rows == [(1,), (2,)]


def test_the_client_acknowledges(served):
    with ms.connect(served.url) as client:
        with client.subscribe(SQL, name="n") as subscription:
            subscription.recv(TIMEOUT).ack()
        seen = []
        callback = client.subscribe_callback(SQL, seen.append, name="n")
        served.db.execute("INSERT INTO t VALUES (2)")
        wait_until(lambda: seen)
        assert seen[0].rows == [(2,)]
        wait_until(lambda: callback.metrics.acknowledged >= seen[0].lsn)
        callback.cancel()
        with pytest.raises(errors.InvalidOptionError):
            client.subscribe(SQL).recv(TIMEOUT).ack()


def test_the_shell(served, late):
    runner = Runner(served.db, Format.TABLE)
    out = io.StringIO()
    runner.out = Console(file=out, force_terminal=True, width=100)
    runner.run("\\stale")
    runner.run(SQL)
    assert "catching up: v" in out.getvalue()
    late()
    runner.run("\\stale")
    out.truncate(0)
    runner.run(SQL)
    assert "catching up" not in out.getvalue().split("once they have caught up")[-1]
