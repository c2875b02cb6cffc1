from __future__ import annotations

import json
import socket
from contextlib import suppress

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings

from millstream.testing import TIMEOUT, wait_until


def opened(served, data=b""):
    made = socket.create_connection(served.server._socket.getsockname()[:2], TIMEOUT)
    made.sendall(data)
    return made


def answer(made):
    found = b""
    while part := made.recv(65536):
        found += part
    return found


class TestConnections:
    def test_a_head_that_never_ends_is_cut_off(self, serve):
        with serve(limits={"header_seconds": 0.2}) as served:
            for data in (b"", b"GET", b"GET / HTTP/1.1\r\nHost: x\r\n"):
                with opened(served, data) as made, suppress(ConnectionResetError):
                    assert answer(made) == b""
            assert served.client.get("/health").status_code == 200

    def test_one_byte_at_a_time(self, serve):
        with serve(limits={"header_seconds": 0.3}) as served, opened(served) as made:
            made.settimeout(0.02)
            with pytest.raises((ConnectionError, EOFError)):
                while True:
                    made.sendall(b"G")
                    try:
                        if made.recv(100) == b"":
                            raise EOFError
                    except TimeoutError:
                        pass

    def test_a_body_that_never_comes(self, serve):
        with serve(limits={"body_seconds": 0.2}) as served:
            head = b"POST /v1/sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
            with opened(served, head) as made:
                made.settimeout(TIMEOUT)
                assert b"400 Bad Request" in made.recv(65536)

    def test_a_head_that_is_too_large(self, served):
        head = b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: " + b"x" * 100_000
        with opened(served, head) as made, suppress(ConnectionResetError):
            assert b" 431 " in answer(made)
        assert served.client.get("/health").status_code == 200

    def test_half_open_sockets_are_limited(self, serve):
        with serve(limits={"connections": 50, "header_seconds": 2 * TIMEOUT}) as served:
            made = [opened(served) for _ in range(80)]
            with made[-1] as last:
                assert b" 503 " in answer(last)
            made[0].close()
            wait_until(lambda: len(served.server._uvicorn.server_state.connections) < 50)
            assert served.client.get("/health").status_code == 200
            for each in made:
                each.close()

    @pytest.mark.parametrize(
        "request_line",
        [
            *(b"GET http://evil.example/health HTTP/1.1", b"GET //evil.example/ HTTP/1.1"),
            *(b"GET /v1/../../etc/passwd HTTP/1.1", b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1"),
            *(b"GET /health%00 HTTP/1.1", b"BREW / HTTP/1.1", b"\x00\x01\x02", b"GET / HTTP/9.9"),
            *(b"CONNECT x:1 HTTP/1.1", b"PRI * HTTP/2.0", b"OPTIONS * HTTP/1.1"),
        ],
    )
    def test_lines_that_make_no_sense(self, served, request_line):
        lines = request_line + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        with opened(served, lines) as made:
            try:
                found = answer(made)
            except ConnectionResetError:
                found = b""
        assert b" 500 " not in found
        assert b"root:" not in found
        assert served.client.get("/health").status_code == 200

    @pytest.mark.parametrize(
        "headers",
        [
            b"Host: localhost\r\nHost: localhost\r\n",
            b"Host: localhost\r\nOrigin: http://localhost\r\nOrigin: http://evil.example\r\n",
            b"Host: localhost@evil.example\r\n",
            b"Host: [::1\r\n",
            b"Host: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            b"Host: localhost\r\nContent-Length: -1\r\n",
            b"Host: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n",
            b"Host: localhost\r\nAuthorization: Bearer \xff\xfe\r\n",
        ],
    )
    def test_headers_that_make_no_sense(self, served, headers):
        lines = b"GET /v1/catalog HTTP/1.1\r\n" + headers + b"Connection: close\r\n\r\n"
        with opened(served, lines) as made:
            try:
                found = answer(made)
            except ConnectionResetError:
                found = b""
        assert b" 500 " not in found
        assert served.client.get("/health").status_code == 200


class TestSlowClients:
    def test_one_that_stalls_costs_little_and_holds_nothing_back(self, served):
        served.db.execute("CREATE SOURCE s (n BIGINT, pad VARCHAR)")
        line = b"GET /v1/subscribe?sql=SELECT%20*%20FROM%20s HTTP/1.1\r\nHost: localhost\r\n\r\n"
        made = [socket.socket() for _ in range(5)]
        for each in made:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.connect(served.server._socket.getsockname()[:2])
            each.sendall(line)
        tails = served.server._service.tails
        wait_until(lambda: len(tails) == 1)
        (opening,) = tails._tails.values()
        wait_until(opening.done)
        tail = opening.result()
        wait_until(lambda: len(tail._members) == 5)
        rows = [(n, "x" * 500) for n in range(2000)]
        pushed = 0
        while tail._members:  # until all of them were too slow for it
            served.db.insert("s", rows)
            served.db.flush()
            pushed += len(rows)
            assert pushed < 500_000
        for each in made:
            each.close()

    def test_one_that_was_slow_has_missed_nothing(self, served):
        served.db.execute("CREATE SOURCE s (n BIGINT, pad VARCHAR)")
        count = 20_000
        tails = served.server._service.tails
        params = {"sql": "SELECT n, pad FROM s", "buffer_rows": 100}
        with served.client.stream("GET", "/v1/subscribe", params=params) as answer:
            wait_until(lambda: len(tails) == 1)
            for start in range(0, count, 1000):
                served.db.insert("s", [(n, "x" * 1000) for n in range(start, start + 1000)])
            served.db.insert("s", [(-1, "")])
            seen = []
            lines = answer.iter_lines()
            while -1 not in seen[-1:]:
                line = next(lines)
                if line.startswith("data: "):
                    frame = json.loads(line[6:])
                    assert frame["type"] not in {"gap", "reset", "error"}
                    seen += [each["row"][0] for each in frame.get("changes", ())]
        assert seen[:-1] == list(range(count))


CHECKS = [
    schemathesis.checks.not_a_server_error,
    schemathesis.checks.status_code_conformance,
    schemathesis.checks.response_schema_conformance,
    schemathesis.checks.content_type_conformance,
]


@pytest.mark.slow
def test_the_openapi_document_holds(served):
    """Schemathesis makes requests of the document, and checks each answer against it."""
    served.db.execute("CREATE SOURCE s (n BIGINT)")
    document = served.client.get("/openapi.json").json()
    del document["paths"]["/v1/subscribe"]  # its answer never ends
    document["paths"]["/v1/poll"]["get"]["parameters"][-1]["schema"]["maximum"] = 0
    schema = schemathesis.openapi.from_dict(document)
    tested = []
    for operation in schema.get_all_operations():
        found = operation.ok()

        @settings(
            max_examples=10, deadline=None, database=None, suppress_health_check=list(HealthCheck)
        )
        @given(case=found.as_strategy())
        def run(case):
            case.call_and_validate(base_url=served.url, checks=CHECKS)

        run()
        tested.append(found.path)
    assert set(tested) == set(document["paths"])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/sql", rb'{"sql": "SELECT \ud800"}'),
        ("/v1/sql", rb'{"sql": "SELECT * FROM t WHERE a = :a", "params": {"\ud800": 1}}'),
        ("/v1/webhooks", rb'{"name": "h", "sql": "SELECT * FROM t", "url": "http://\ud800/"}'),
    ],
)
def test_a_lone_surrogate_is_refused(served, path, body):
    answer = served.client.post(path, content=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "BAD_REQUEST")
