from __future__ import annotations

import io
import threading

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.server.conftest import bearer

from millstream.testing import TIMEOUT, wait_until

ORGS = "CREATE SOURCE o (org VARCHAR NOT NULL, n BIGINT) WITH (tenant = 'org')"
ARROW = "application/vnd.apache.arrow.stream"


def ipc(table):
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


@pytest.fixture
def s(served):
    served.db.execute("CREATE SOURCE s (n BIGINT, x DOUBLE)")
    served.db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR)")
    return served


class TestSql:
    def test_statements_and_rows(self, served):
        made = served.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, d DECIMAL(9, 2))").json()
        assert (made["status"], made["columns"], made["rows"]) == ("CREATE TABLE", [], [])
        assert served.sql("INSERT INTO t VALUES (?, ?)", [1, 1.5]).json()["status"] == "INSERT 1"
        found = served.sql("SELECT id, d FROM t WHERE id = :id", {"id": 1}).json()
        assert found["columns"] == [
            {"name": "id", "type": "BIGINT"},
            {"name": "d", "type": "DECIMAL(9, 2)"},
        ]
        assert found["rows"] == [[1, "1.50"]]

    def test_an_error_has_a_place_and_a_hint(self, served):
        answer = served.sql("SELECT 1,\n FROM")
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert set(error) == {"code", "message", "hint", "line", "column"}
        assert error["code"] == "SQL_SYNTAX"
        assert error["line"] == 2

    @pytest.mark.parametrize(
        ("sql", "status", "code"),
        [
            ("SELECT * FROM nothing", 404, "OBJECT_NOT_FOUND"),
            ("CREATE SOURCE s (n BIGINT)", 409, "OBJECT_EXISTS"),
            ("LIVE SELECT * FROM s", 400, "SQL_UNSUPPORTED"),
            ("LISTEN c", 400, "SQL_UNSUPPORTED"),
            ("INSERT INTO t VALUES (1, 'a'), (1, 'b')", 409, "DUPLICATE_KEY"),
        ],
    )
    def test_statuses(self, s, sql, status, code):
        answer = s.sql(sql)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)

    @pytest.mark.parametrize(
        "body",
        [
            *(b"", b"[]", b"{}", b'{"sql": 7}', b'{"sql": ""}', b'{"sql": "SELECT 1", "x": 1}'),
            *(b'{"sql": "SELECT 1", "params": 7}', b"[" * 100_000, b'{"sql": true}', b"\xff"),
        ],
    )
    def test_what_is_no_request(self, served, body):
        answer = served.client.post("/v1/sql", content=body)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "BAD_REQUEST"

    def test_arrow(self, s):
        s.sql("INSERT INTO t VALUES (1, 'a')")
        answer = s.client.post(
            "/v1/sql", json={"sql": "SELECT * FROM t"}, headers={"Accept": ARROW}
        )
        assert pa.ipc.open_stream(answer.content).read_all().to_pylist() == [{"id": 1, "name": "a"}]
        done = s.client.post("/v1/sql", json={"sql": "DELETE FROM t"}, headers={"Accept": ARROW})
        schema = pa.ipc.open_stream(done.content).schema
        assert (schema.metadata[b"status"], schema.metadata[b"rowcount"]) == (b"DELETE 1", b"1")

    def test_too_many_rows(self, serve):
        with serve(limits={"result_rows": 2}) as served:
            served.sql("CREATE SOURCE s (n BIGINT); INSERT INTO s VALUES (1), (2), (3)")
            answer = served.sql("SELECT * FROM s")
            assert (answer.status_code, answer.json()["error"]["code"]) == (429, "LIMIT")
            assert len(served.rows("SELECT * FROM s LIMIT 2")) == 2

    def test_a_statement_that_takes_too_long(self, serve):
        with serve(limits={"query_seconds": 0.05}) as served:
            service, go = served.server._service, threading.Event()
            service.database.query = None
            service.session = lambda identity: go.wait(TIMEOUT)
            answer = served.sql("SELECT 1")
            go.set()
            assert (answer.status_code, answer.json()["error"]["code"]) == (504, "QUERY_TIMEOUT")
            assert served.client.get("/health").status_code == 200

    def test_a_query_that_takes_too_long_is_ended(self, serve):
        with serve(limits={"query_seconds": 0.3, "workers": 1}) as served:
            served.db.execute("CREATE SOURCE s (n BIGINT)")
            served.db.insert("s", [(n,) for n in range(3000)])
            joins = "".join(f" JOIN s s{n} ON s.n <> s{n}.n" for n in range(5))  # 3000 ** 6 rows
            assert served.sql(f"SELECT COUNT(*) AS n FROM s{joins}").status_code == 504
            workers = served.server._service.statements
            wait_until(lambda: not workers.pending, "its only thread is free again")
            assert served.rows("SELECT n FROM s LIMIT 1") == [[0]]

    def test_what_has_waited_too_long_is_not_run(self, serve):
        with serve(limits={"query_seconds": 0.1, "workers": 1}) as served:
            served.db.execute("CREATE SOURCE s (n BIGINT)")
            workers, go = served.server._service.statements, threading.Event()
            workers._pool.submit(go.wait)
            assert served.sql("INSERT INTO s VALUES (1)").status_code == 504
            go.set()
            workers._pool.submit(lambda: None).result(TIMEOUT)
            assert served.db.query("SELECT * FROM s").fetchall() == []


class TestPush:
    @pytest.mark.parametrize(
        ("media", "body"),
        [
            ("application/json", b'[{"n": 1, "x": 0.5}, {"n": 2}]'),
            ("application/x-ndjson", b'{"n": 1, "x": 0.5}\n{"n": 2}\n'),
            ("text/csv; charset=utf-8", b"n,x\n1,0.5\n2,\n"),
            (ARROW, ipc(pa.table({"n": [1, 2], "x": [0.5, None]}))),
        ],
    )
    @pytest.mark.parametrize("key", [None, "k"])
    def test_formats(self, s, media, body, key):
        headers = {"Content-Type": media} | ({"Idempotency-Key": key} if key else {})
        answer = s.client.post("/v1/sources/s", content=body, headers=headers)
        assert answer.json()["rows"] == 2
        assert s.rows("SELECT * FROM s") == [[1, 0.5], [2, None]]

    def test_a_retry_adds_nothing_twice(self, s):
        headers = {"Idempotency-Key": "a"}
        for repeated in (False, True, True):
            answer = s.client.post("/v1/sources/s", json=[{"n": 1}], headers=headers)
            assert answer.json()["repeated"] is repeated
        assert s.rows("SELECT n FROM s") == [[1]]
        other = s.client.post("/v1/sources/s", json=[{"n": 1}, {"n": 2}], headers=headers)
        assert other.status_code == 400

    def test_a_table(self, s):
        answer = s.client.post("/v1/sources/t", json=[{"id": 1, "name": "a"}])
        assert answer.json() == {"rows": 1}
        again = s.client.post("/v1/sources/t", json=[{"id": 1, "name": "a"}])
        assert again.status_code == 409

    @pytest.mark.parametrize(
        ("media", "body", "status"),
        [
            ("application/json", b"{", 400),
            ("application/json", b'[{"n": "x"}]', 400),
            ("application/json", b'[{"m": 1}]', 400),
            ("text/csv", b"n,x\n1,2,3\n", 400),
            (ARROW, b"nonsense", 400),
            (ARROW, b"", 400),
            (ARROW, ipc(pa.table({"n": [1] * 1000}))[:-700], 400),
            (ARROW, ipc(pa.table({"n": ["a"]})), 400),
            ("application/xml", b"<a/>", 415),
            ("", b"n", 415),
        ],
    )
    def test_what_cannot_be_read_adds_nothing(self, s, media, body, status):
        answer = s.client.post("/v1/sources/s", content=body, headers={"Content-Type": media})
        assert answer.status_code == status
        assert s.rows("SELECT * FROM s") == []

    @pytest.mark.parametrize(
        ("name", "status"),
        [("nothing", 404), ("%2e%2e", 404), ("a%00b", 404), ("__notifications", 404), ("💧", 404)],
    )
    def test_a_source_that_there_is_not(self, s, name, status):
        answer = s.client.post(f"/v1/sources/{name}", json=[{"n": 1}])
        assert answer.status_code == status

    def test_too_large(self, serve):
        with serve(limits={"body_bytes": 1000}) as served:
            served.db.execute("CREATE SOURCE s (n BIGINT)")
            body = b" " * 1001 + b"[]"
            headers = {"Content-Type": "application/json"}
            for content in (body, iter([body])):  # with and without Content-Length
                answer = served.client.post("/v1/sources/s", content=content, headers=headers)
                assert (answer.status_code, answer.json()["error"]["code"]) == (413, "TOO_LARGE")

    def test_compressed(self, s):
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        assert s.client.post("/v1/sources/s", content=b"x", headers=headers).status_code == 415


class TestLooking:
    def test_catalog_and_topology(self, s):
        found = s.client.get("/v1/catalog").json()
        assert [each["name"] for each in found["sources"]] == ["s"]
        assert found["tables"][0]["schema"][0] == {
            "name": "id",
            "type": "BIGINT",
            "nullable": False,
            "key": True,
        }
        nodes = s.client.get("/v1/topology").json()["nodes"]
        assert {"name": "s", "kind": "source"} in nodes

    def test_health_and_ready(self, s):
        assert s.client.get("/health").json()["status"] == "ok"
        assert s.client.get("/ready").json()["status"] == "ready"
        s.db.close()
        assert s.client.get("/ready").status_code == 503
        assert s.client.get("/health").status_code == 200
        assert s.sql("SELECT * FROM s").status_code == 503

    def test_metrics_are_read_by_prometheus_own_parser(self, s):
        s.db.insert("s", [(1, 1.0)])
        s.db.flush()
        with s.db.subscribe("SELECT * FROM s", name="a.b"):
            text = s.client.get("/metrics")
            families = {each.name: each for each in text_string_to_metric_families(text.text)}
        rows = families["millstream_source_rows"].samples
        assert [(each.labels, each.value) for each in rows] == [({"source": "s"}, 1.0)]
        lags = families["millstream_subscription_lag_rows"].samples
        assert [each.labels["name"] for each in lags] == ["a.b"]
        assert "SELECT" not in text.text

    def test_no_such_path_or_method(self, s):
        assert s.client.get("/nothing").json()["error"]["code"] == "BAD_REQUEST"
        assert s.client.get("/v1/sql").status_code == 405
        assert s.client.get("/v1/sources/../../etc/passwd").status_code == 404


class TestWhoMay:
    @pytest.fixture
    def keyed(self, serve):
        with serve(auth=True) as served:
            served.db.execute(
                "CREATE SOURCE o (org VARCHAR NOT NULL, n BIGINT) WITH (tenant = 'org')"
            )
            served.db.execute("CREATE SOURCE s (n BIGINT)")
            served.db.insert("o", [("acme", 1), ("other", 2)])
            yield served

    @pytest.mark.parametrize("path", ["/v1/catalog", "/v1/topology", "/metrics"])
    def test_without_a_key(self, keyed, path):
        for header in (None, "Bearer", "Bearer x", "Basic eDp4", "bearer"):
            headers = {} if header is None else {"Authorization": header}
            answer = keyed.client.get(path, headers=headers)
            assert answer.status_code == 401
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert keyed.sql("SELECT 1").status_code == 401
        assert keyed.client.get("/health").status_code == 200

    def test_roles(self, keyed):
        read = keyed.keys.create("r", role="read")
        write = keyed.keys.create("w", role="write")
        admin = keyed.keys.create("a", role="admin")
        assert keyed.sql("SELECT * FROM s", key=read).status_code == 200
        assert keyed.sql("INSERT INTO s VALUES (1)", key=read).status_code == 403
        assert keyed.sql("INSERT INTO s VALUES (1)", key=write).status_code == 200
        assert keyed.sql("DROP SOURCE s", key=write).status_code == 403
        push = {"json": [{"n": 1}], "headers": bearer(read)}
        assert keyed.client.post("/v1/sources/s", **push).status_code == 403
        push["headers"] = bearer(write)
        assert keyed.client.post("/v1/sources/s", **push).status_code == 200
        assert keyed.sql("DROP SOURCE s", key=admin).status_code == 200
        keyed.keys.revoke("a")
        assert keyed.sql("SHOW SOURCES", key=admin).status_code == 401

    def test_a_tenant_sees_its_own(self, keyed):
        key = keyed.keys.create("acme", role="admin", tenant="acme")
        assert keyed.sql("SELECT * FROM o", key=key).json()["rows"] == [["acme", 1]]
        assert keyed.sql("SELECT * FROM s", key=key).status_code == 403
        assert keyed.sql("SELECT COUNT(*) FROM o", key=key).json()["rows"] == [[1]]
        assert keyed.sql("INSERT INTO o VALUES ('other', 3)", key=key).status_code == 403
        assert keyed.sql("DROP SOURCE o", key=key).status_code == 403
        push = {"json": [{"org": "other", "n": 3}], "headers": bearer(key)}
        assert keyed.client.post("/v1/sources/o", **push).status_code == 403
        assert keyed.client.get("/metrics", headers=bearer(key)).status_code == 403
        catalog = keyed.client.get("/v1/catalog", headers=bearer(key)).json()
        assert [each["name"] for each in catalog["sources"]] == ["o"]
        assert "pushed" not in catalog["sources"][0]
        drawn = keyed.client.get("/v1/topology", headers=bearer(key)).json()
        assert drawn == {"nodes": [{"name": "o", "kind": "source"}], "edges": []}

    def test_keys_are_nowhere(self, keyed, caplog):
        secret = keyed.keys.create("a", role="admin")
        texts = [keyed.client.get("/metrics", headers=bearer(secret)).text]
        texts.append(keyed.sql("SHOW SUBSCRIPTIONS", key=secret).text)
        texts.append(keyed.sql("SELEC", key=secret).text)
        texts.append(keyed.client.get("/v1/catalog", headers=bearer(secret + "x")).text)
        assert not [text for text in (*texts, caplog.text) if secret in text]


class TestPages:
    def test_pages_of_other_sites_may_not(self, served):
        for headers in (
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Host": "evil.example"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Host": "evil.example", "Origin": "http://evil.example"},
        ):
            answer = served.client.post("/v1/sql", json={"sql": "SHOW TABLES"}, headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "ORIGIN")
            assert "access-control-allow-origin" not in answer.headers

    def test_its_own_pages_and_those_that_were_named_may(self, serve):
        with serve(origins=("https://good.example",)) as served:
            for origin in (served.url, "https://good.example"):
                answer = served.client.get("/v1/catalog", headers={"Origin": origin})
                assert answer.status_code == 200
                assert answer.headers["access-control-allow-origin"] == origin
            preflight = {
                "Origin": "https://good.example",
                "Access-Control-Request-Method": "POST",
            }
            answer = served.client.options("/v1/sql", headers=preflight)
            assert answer.status_code == 204
            assert "Authorization" in answer.headers["access-control-allow-headers"]
