from __future__ import annotations

import json
import subprocess
import threading
from contextlib import contextmanager

import pytest
from tests.server.conftest import bearer

import millstream as ms
from millstream.testing import TIMEOUT, wait_until


class Events:
    """Reads Server-Sent Events as they come."""

    def __init__(self, lines):
        self._lines = lines

    def next(self):
        found = {}
        for line in self._lines:
            if not line:
                if found:
                    return found
                continue
            name, _, value = line.partition(": ")
            found[name] = json.loads(value) if name == "data" else value
        raise EOFError

    def until(self, *types):
        while True:
            event = self.next()
            if event["event"] in types:
                return event

    def rows(self, count):
        rows = []
        while len(rows) < count:
            changes = self.until("snapshot", "changes")["data"]["changes"]
            rows += [each["row"] for each in changes]
        return rows


@contextmanager
def events(served, sql, last=None, key=None, **options):
    headers = bearer(key) | ({"Last-Event-ID": last} if last else {})
    params = {"sql": sql, **options}
    with served.client.stream("GET", "/v1/subscribe", params=params, headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Events(answer.iter_lines())


@pytest.fixture
def s(served):
    served.db.execute("CREATE SOURCE s (n BIGINT, x DOUBLE)")
    served.db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR)")
    return served


def test_a_row_pushed_after_ready_is_seen(s):
    with events(s, "SELECT n FROM s WHERE n > 1") as stream:
        ready = stream.next()
        assert ready["event"] == "ready"
        assert ready["data"]["columns"] == [{"name": "n", "type": "BIGINT"}]
        assert ready["id"] == ready["data"]["token"]
        s.db.insert("s", [(1, 0.0), (2, 0.0)])
        event = stream.until("changes")
        (change,) = event["data"]["changes"]
        assert change == {"op": "insert", "row": [2], "before": None, "lsn": change["lsn"]}
        assert event["id"] == event["data"]["token"]


def test_a_table_begins_with_its_rows(s):
    s.db.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    with events(s, "SELECT * FROM t") as stream:
        assert stream.next()["data"]["key"] == ["id"]
        snapshot = stream.next()
        assert snapshot["event"] == "snapshot"
        assert [each["row"] for each in snapshot["data"]["changes"]] == [[1, "a"], [2, "b"]]
        assert stream.next()["event"] == "progress"
        s.db.execute("UPDATE t SET name = 'c' WHERE id = 1; DELETE FROM t WHERE id = 2")
        changes = []
        while len(changes) < 2:
            changes += stream.until("changes")["data"]["changes"]
        assert [(each["op"], each["before"], each["row"]) for each in changes] == [
            ("update", [1, "a"], [1, "c"]),
            ("delete", [2, "b"], [2, "b"]),
        ]


def test_last_event_id_resumes(s):
    with events(s, "SELECT n FROM s") as stream:
        stream.until("progress")
        s.db.insert("s", [(1, None)])
        token = stream.until("changes")["id"]
    s.db.insert("s", [(2, None), (3, None)])
    with events(s, "SELECT n FROM s", last=token) as stream:
        assert stream.rows(2) == [[2], [3]]
        s.db.insert("s", [(4, None)])
        assert stream.rows(1) == [[4]]
    with events(s, "SELECT n FROM s", start=token) as stream:
        assert stream.rows(3) == [[2], [3], [4]]


def test_curl_reads_it(s):
    s.db.execute("INSERT INTO t VALUES (1, 'a')")
    address = f"{s.url}/v1/subscribe"
    command = ["curl", "-sN", "--max-time", "20", "-G", address]
    child = subprocess.Popen(
        [*command, "--data-urlencode", "sql=SELECT * FROM t"], stdout=subprocess.PIPE, text=True
    )
    try:
        stream = Events(line.rstrip("\n") for line in child.stdout)
        assert stream.rows(1) == [[1, "a"]]
        s.db.execute("INSERT INTO t VALUES (2, 'b')")
        assert stream.rows(1) == [[2, "b"]]
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_clients_of_one_query_share_a_subscription(s):
    with (
        events(s, "SELECT n FROM s") as one,
        events(s, "SELECT n FROM s") as two,
        events(s, "SELECT n FROM s WHERE n > 1") as other,
    ):
        tails = s.server._service.tails
        wait_until(lambda: len(tails) == 2)
        wait_until(lambda: len(s.db.query("SHOW SUBSCRIPTIONS")) == 2)
        for n in range(100):
            s.db.insert("s", [(n, None)])
        assert one.rows(100) == two.rows(100) == [[n] for n in range(100)]
        assert other.rows(98) == [[n] for n in range(2, 100)]
    wait_until(lambda: len(tails) == 0)
    wait_until(lambda: len(s.db.query("SHOW SUBSCRIPTIONS")) == 0)
    wait_until(lambda: s.server._service.gate.subscriptions == 0)


def test_clients_that_come_while_rows_are_pushed_miss_nothing(s):
    s.db.insert("s", [(n, None) for n in range(5000)])
    with events(s, "SELECT n FROM s") as first:
        first.until("progress")
        seen = []
        for batch in range(10):
            s.db.insert("s", [(n, None) for n in range(5000 + batch * 100, 5100 + batch * 100)])
            if batch % 3 == 0:
                with events(s, "SELECT n FROM s", start="earliest") as late:
                    s.db.insert("s", [(-1, None)])
                    rows = [n for (n,) in late.rows(5000 + (batch + 1) * 100 + batch // 3 + 1)]
                    assert [n for n in rows if n >= 0] == list(range(5100 + batch * 100))
        while len(seen) < 1004:
            seen += first.rows(1)
        assert [n for (n,) in seen if n >= 0] == list(range(5000, 6000))


def test_a_token_from_before_retention_heals_by_a_reset(serve):
    with serve() as served:
        db = served.db
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)")
        db.execute("INSERT INTO t VALUES (1, 0), (2, 0)")
        with events(served, "SELECT * FROM t") as stream:
            token = stream.until("snapshot")["id"]
        for n in range(5):
            db.execute("UPDATE t SET n = ? WHERE id = 1", [n])
        db.execute("DELETE FROM t WHERE id = 2")
        db.flush()
        db._engine.log.trim("t", db.lsn)
        with events(served, "SELECT * FROM t", last=token) as stream:
            assert stream.next()["event"] == "ready"
            reset = stream.next()
            assert reset["event"] == "reset"
            assert reset["data"]["gap"]["first_lsn"] > 0
            assert stream.next()["data"]["changes"][0]["row"] == [1, 4]


@pytest.mark.parametrize(
    ("options", "status", "code"),
    [
        ({"sql": "SELEC"}, 400, "SQL_SYNTAX"),
        ({"sql": ""}, 400, "BAD_REQUEST"),
        ({"sql": "SELECT * FROM s", "nonsense": 1}, 400, "BAD_REQUEST"),
        ({"sql": "SELECT * FROM s", "buffer_rows": "x"}, 400, "BAD_REQUEST"),
        ({"sql": "SELECT * FROM s WHERE n = ?", "params": "7"}, 400, "BAD_REQUEST"),
        ({"sql": "SELECT * FROM s WHERE n = ?", "params": "{"}, 400, "BAD_REQUEST"),
        ({"sql": "SELECT * FROM s", "start": "ms1nonsense"}, 400, "TOKEN_INVALID"),
    ],
)
def test_what_is_refused_at_once(s, options, status, code):
    answer = s.client.get("/v1/subscribe", params=options)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_a_token_that_will_never_do_has_a_status_so_that_eventsource_stops(s):
    with ms.open() as other:
        foreign = other.context.engine.log.token(0)
    for token, code in (("ms1nonsense", "TOKEN_INVALID"), (foreign, "TOKEN_FOREIGN")):
        headers = {"Last-Event-ID": token}
        answer = s.client.get("/v1/subscribe", params={"sql": "SELECT * FROM s"}, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)


@pytest.mark.parametrize(
    ("sql", "options", "code"),
    [
        ("SELECT * FROM nothing", {}, "OBJECT_NOT_FOUND"),
        ("DELETE FROM t", {}, "INVALID_OPTION"),
        ("SELECT * FROM s", {"start": "99999999"}, "INVALID_OPTION"),
        ("SELECT * FROM s", {"backpressure": "panic"}, "INVALID_OPTION"),
        ("SELECT * FROM s", {"buffer_rows": 0}, "INVALID_OPTION"),
    ],
)
def test_what_fails_later_is_a_frame(s, sql, options, code):
    with events(s, sql, **options) as stream:
        assert stream.next()["data"]["error"]["code"] == code
        assert stream.next()["event"] == "end"
        with pytest.raises(EOFError):
            stream.next()


def test_dropping_the_source_ends_the_stream(s):
    with events(s, "SELECT n FROM s") as stream:
        stream.until("progress")
        wait_until(lambda: len(s.server._service.tails) == 1)
        s.db.execute("DROP SOURCE s")
        error = stream.next()["data"]["error"]
        assert error["code"] == "SUBSCRIPTION_ENDED"
        assert stream.next()["event"] == "end"


def test_closing_the_database_ends_the_stream(s):
    with events(s, "SELECT n FROM s") as stream:
        stream.until("progress")
        s.db.close()
        assert stream.until("end")["id"]


def test_a_tenant_gets_its_own_rows(serve):
    with serve(auth=True) as served:
        served.db.execute("CREATE SOURCE o (org VARCHAR NOT NULL, n BIGINT) WITH (tenant = 'org')")
        served.db.execute("CREATE SOURCE s (n BIGINT)")
        one = served.keys.create("one", tenant="a")
        two = served.keys.create("two", tenant="b")
        sql = "SELECT * FROM o"
        with events(served, sql, key=one) as a, events(served, sql, key=two) as b:
            a.until("progress")
            b.until("progress")
            served.db.insert("o", [("a", 1), ("b", 2), ("a", 3), ("c", 4)])
            assert a.rows(2) == [["a", 1], ["a", 3]]
            assert b.rows(1) == [["b", 2]]
        with events(served, "SELECT * FROM s", key=one) as stream:
            assert stream.next()["data"]["error"]["code"] == "TENANT"
        assert served.client.get("/v1/subscribe", params={"sql": sql}).status_code == 401


def test_subscriptions_of_a_key_are_limited(serve):
    with serve(limits={"subscriptions_per_key": 1}) as served:
        served.db.execute("CREATE SOURCE s (n BIGINT)")
        with events(served, "SELECT * FROM s") as stream:
            stream.next()
            answer = served.client.get("/v1/subscribe", params={"sql": "SELECT * FROM s"})
            assert (answer.status_code, answer.json()["error"]["code"]) == (429, "LIMIT")


class TestPoll:
    def poll(self, s, sql, **options):
        answer = s.client.get("/v1/poll", params={"sql": sql, **options})
        assert answer.status_code == 200
        return answer.json()

    def test_from_token_to_token(self, s):
        first = self.poll(s, "SELECT n FROM s")
        assert [each["type"] for each in first["frames"]] == ["ready", "progress"]
        s.db.insert("s", [(1, None), (2, None)])
        second = self.poll(s, "SELECT n FROM s", start=first["token"], timeout=10)
        rows = [c["row"] for f in second["frames"] for c in f.get("changes", ())]
        assert rows == [[1], [2]]
        third = self.poll(s, "SELECT n FROM s", start=second["token"])
        assert not [f for f in third["frames"] if f.get("changes")]

    def test_it_waits_for_a_change(self, s):
        first = self.poll(s, "SELECT n FROM s")

        def push():
            wait_until(lambda: s.server._service.gate.subscriptions == 1)
            s.db.insert("s", [(7, None)])

        pusher = threading.Thread(target=push)
        pusher.start()
        found = self.poll(s, "SELECT n FROM s", start=first["token"], timeout=TIMEOUT)
        pusher.join()
        rows = [c["row"] for f in found["frames"] for c in f.get("changes", ())]
        assert rows == [[7]]

    def test_nothing_comes(self, s):
        found = self.poll(s, "SELECT n FROM s", timeout=0.05)
        assert [each["type"] for each in found["frames"]] == ["ready", "progress"]
        assert found["token"]


def test_a_server_that_stops_says_so(s):
    with events(s, "SELECT n FROM s") as stream:
        stream.until("progress")
        wait_until(lambda: len(s.server._service.tails) == 1)
        s.server.stop()
        assert stream.until("end")["id"]
