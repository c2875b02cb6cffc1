"""The table of permissions, walked over HTTP, WebSocket and PostgreSQL's protocol.

Each cell (action, role, tenant) either works, or is refused with the error of its kind.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import httpx
import psycopg
import pytest
from tests.server.conftest import bearer, serving
from websockets.sync.client import connect

from millstream.engine import permissions
from millstream.engine.permissions import ROLES, TABLE, action_of
from millstream.errors import FileRefusedError, RoleError, TenantError
from millstream.server import websocket
from millstream.server.addresses import parse_networks
from millstream.server.postgres.runner import Pools
from millstream.server.postgres.statements import Statements
from millstream.server.roles import LOCAL
from millstream.sql import Statement, parse
from millstream.sql.statements.statement import DropKind, ShowKind
from millstream.testing import TIMEOUT

TENANTS = (None, "acme")
CELLS = [(role, tenant) for role in ROLES for tenant in TENANTS]
WORKS, ROLE, TENANT = "works", "ROLE", "TENANT"
NEEDS_CONNECTION = "SQL_UNSUPPORTED"
"""What LISTEN and LIVE SELECT are answered where a request has one answer."""

MADE = """
CREATE SOURCE IF NOT EXISTS s (org VARCHAR NOT NULL, n BIGINT) WITH (tenant = 'org');
CREATE TABLE IF NOT EXISTS t (org VARCHAR, id BIGINT, PRIMARY KEY (org, id)) WITH (tenant = 'org');
CREATE SINK IF NOT EXISTS o FROM s WITH (connector = 'files', path = '{files}/out', start = 'now');
CREATE SOURCE IF NOT EXISTS g (n BIGINT)
    WITH (connector = 'files', path = '{files}/in', format = 'csv');
"""


@dataclass(frozen=True)
class Case:
    """A statement, who may run it, and what must be there before."""

    role: str
    tenants: bool
    sql: str
    before: str = ""
    after: str = ""
    over_http: bool = True
    over_postgres: bool = True

    @property
    def action(self):
        return action_of(parse(self.sql)[0])

    def expected(self, role, tenant):
        if ROLES.index(role) < ROLES.index(self.role):
            return ROLE
        return TENANT if tenant is not None and not self.tenants else WORKS


FILE = "COPY t FROM 't.csv'"
STATEMENTS = [
    Case("read", True, "SELECT * FROM s"),
    Case("read", True, "SELECT COUNT(*) AS n FROM t WHERE id > 0"),
    Case("read", True, "LIVE SELECT * FROM s", over_http=False, over_postgres=False),
    Case("read", True, "EXPLAIN SELECT * FROM s"),
    Case("read", True, "DESCRIBE s"),
    Case("read", True, "SHOW SOURCES"),
    Case("read", True, "SHOW TABLES"),
    Case("read", True, "SHOW VIEWS"),
    Case("read", True, "SHOW STREAMS"),
    Case("read", True, "SHOW CHANGES FOR s"),
    Case("read", True, "SHOW CHANNELS"),
    Case("read", True, "LISTEN c", over_http=False),
    Case("read", True, "UNLISTEN *", over_http=False),
    Case("read", False, "SHOW SUBSCRIPTIONS"),
    Case("read", False, "SHOW SINKS"),
    Case("read", False, "SHOW CONNECTORS"),
    Case("read", False, "SHOW CREATE s"),
    Case("read", False, "DESCRIBE SINK o"),
    Case("read", False, "EXPLAIN CREATE MATERIALIZED VIEW x AS SELECT n FROM s"),
    Case("read", False, "EXPLAIN CREATE STREAM x AS SELECT n FROM s"),
    Case("write", True, "INSERT INTO s VALUES ('acme', 1)"),
    Case("write", True, "INSERT INTO t VALUES ('acme', 7)", before="DELETE FROM t WHERE id = 7"),
    Case("write", True, "UPDATE t SET id = id WHERE id = 1"),
    Case("write", True, "DELETE FROM t WHERE id = 1"),
    Case("write", True, "NOTIFY c, 'x'"),
    Case("admin", False, "CREATE SOURCE new (n BIGINT)", after="DROP SOURCE IF EXISTS new"),
    Case("admin", False, "CREATE TABLE new (n BIGINT PRIMARY KEY)", after="DROP TABLE new"),
    Case("admin", False, "CREATE MATERIALIZED VIEW new AS SELECT n FROM s", after="DROP VIEW new"),
    Case("admin", False, "CREATE STREAM new AS SELECT n FROM s", after="DROP STREAM new"),
    Case(
        "admin",
        False,
        "CREATE SOURCE new (n BIGINT) WITH (connector = 'files', path = 'in', format = 'csv')",
        after="DROP SOURCE IF EXISTS new CASCADE; DROP SOURCE IF EXISTS new_dead_letters",
    ),
    Case(
        "admin",
        False,
        "CREATE TABLE new (n BIGINT PRIMARY KEY)"
        " WITH (connector = 'files', path = 'in', format = 'csv')",
        after="DROP TABLE IF EXISTS new CASCADE; DROP SOURCE IF EXISTS new_dead_letters",
    ),
    Case(
        "admin",
        False,
        "CREATE SINK new FROM s WITH (connector = 'files', path = 'new')",
        after="DROP SINK IF EXISTS new",
    ),
    Case("admin", False, "DROP SOURCE old", before="CREATE SOURCE IF NOT EXISTS old (n BIGINT)"),
    Case(
        "admin",
        False,
        "DROP TABLE old_t",
        before="CREATE TABLE IF NOT EXISTS old_t (n BIGINT PRIMARY KEY)",
    ),
    Case(
        "admin",
        False,
        "DROP VIEW old_v",
        before="CREATE MATERIALIZED VIEW IF NOT EXISTS old_v AS SELECT n FROM s",
    ),
    Case(
        "admin",
        False,
        "DROP STREAM old_c",
        before="CREATE STREAM IF NOT EXISTS old_c AS SELECT n FROM s",
    ),
    Case(
        "admin",
        False,
        "DROP SINK old_o",
        before="CREATE SINK IF NOT EXISTS old_o FROM s WITH (connector = 'files', path = "
        "'{files}/old')",
    ),
    Case("admin", True, "DROP SUBSCRIPTION IF EXISTS none"),
    Case("admin", False, "ALTER TABLE t ADD COLUMN IF NOT EXISTS x BIGINT"),
    Case("admin", False, "ALTER TABLE t SKIP DAMAGE"),
    Case("admin", False, "ALTER SINK o PAUSE"),
    Case("admin", False, "ALTER SINK o RESUME"),
    Case("admin", False, FILE, before="DELETE FROM t WHERE id = 9"),
    Case("admin", False, "COPY (SELECT n FROM s) TO 's.csv'"),
]

OF_POSTGRES = {
    "BEGIN": "BEGIN",
    "START": "START TRANSACTION",
    "COMMIT": "COMMIT",
    "END": "END",
    "ROLLBACK": "ROLLBACK",
    "ABORT": "ABORT",
    "SAVEPOINT": "SAVEPOINT a",
    "RELEASE": "RELEASE SAVEPOINT a",
    "SET": "SET application_name = 'x'",
    "RESET": "RESET application_name",
    "DISCARD": "DISCARD ALL",
    "SHOW a setting": "SHOW server_version",
    "PREPARE": "PREPARE p AS SELECT n FROM s",
    "EXECUTE": "EXECUTE p",
    "DEALLOCATE": "DEALLOCATE p",
    "DECLARE": "DECLARE c CURSOR FOR SELECT n FROM s",
    "FETCH": "FETCH 1 FROM c",
    "CLOSE": "CLOSE c",
    "SELECT of pg_catalog": "SELECT relname FROM pg_class",
    "SELECT pg_sleep": "SELECT pg_sleep(0)",
    "COPY TO STDOUT": "COPY s TO STDOUT",
    "COPY FROM STDIN": "COPY s FROM STDIN",
    "NOTIFY": "SELECT pg_notify('c', 'x')",
    "subscribe": "DECLARE d CURSOR FOR SUBSCRIBE s",
    "LISTEN": "LISTEN c",
    "UNLISTEN": "UNLISTEN c",
}
"""What PostgreSQL's protocol has besides the statements of the engine, in an order that works."""

OVER_HTTP = {
    "push rows": ("POST", "/v1/sources/s", [{"org": "acme", "n": 1}]),
    "set a watermark": ("POST", "/v1/sources/s/watermark", {"watermark": "1971-01-01T00:00:00Z"}),
    "subscribe": ("GET", "/v1/poll?sql=SELECT n FROM s", None),
    "see causes": ("GET", "/v1/cause/{lsn}", None),
    "see metrics": ("GET", "/metrics", None),
    "see the topology": ("GET", "/v1/topology", None),
    "see webhooks": ("GET", "/v1/webhooks", None),
    "change webhooks": (
        "POST",
        "/v1/webhooks",
        {"name": "h", "sql": "SELECT n FROM s", "url": "http://127.0.0.1:9/"},
    ),
}
OVER_WEBSOCKET = {
    "subscribe": {"type": "subscribe", "sql": "SELECT n FROM s"},
    "keep a durable subscription": {"type": "subscribe", "sql": "SELECT n FROM s", "name": "d"},
    "follow the change bus": {"type": "changes"},
    "LISTEN": {"type": "listen", "channel": "c"},
    "UNLISTEN": {"type": "unlisten", "channel": "c"},
    "NOTIFY": {"type": "notify", "channel": "c", "payload": "x"},
}


class Walk:
    """A server with a key for each role and tenant."""

    def __init__(self, served, files):
        self.served = served
        self.files = files
        self.keys = {
            (role, tenant): served.keys.create(f"{role}_{tenant}", role=role, tenant=tenant)
            for role, tenant in CELLS
        }
        self.run(MADE)
        served.db.insert("s", [("acme", 1)])
        self.lsn = served.db.flush()

    def run(self, sql):
        if sql:
            self.served.db.execute(sql.replace("{files}", str(self.files)))

    def http(self, cell, method, path, content=None):
        """What a request is answered: works, or the code of the error."""
        path = path.replace("{lsn}", str(self.lsn))
        headers = bearer(self.keys[cell])
        answer = self.served.client.request(method, path, json=content, headers=headers)
        return outcome_of(answer)

    def websocket(self, cell, message):
        address = self.served.url.replace("http", "ws") + "/v1/ws"
        headers = bearer(self.keys[cell])
        with connect(address, additional_headers=headers) as socket:
            socket.send(json.dumps({"id": 1, **message}))
            answer = json.loads(socket.recv(timeout=TIMEOUT))
        return answer["error"]["code"] if answer["type"] == "error" else WORKS

    def client(self, cell):
        user = f"{cell[0]}_{cell[1]}"
        url = self.served.server.postgres.replace("//", f"//{user}:{self.keys[cell]}@")
        return psycopg.connect(url, autocommit=True)

    def postgres(self, client, sql):
        try:
            if sql.endswith(("STDIN", "STDOUT")):
                with client.cursor() as cursor, cursor.copy(sql) as copy:
                    if sql.endswith("STDIN"):
                        copy.write("acme\t5\n")
                    else:
                        list(copy)
            else:
                client.execute(sql)
        except psycopg.errors.InsufficientPrivilege as error:
            return ROLE if str(error).startswith("the role") else TENANT
        return WORKS


def outcome_of(answer: httpx.Response):
    if answer.is_success:
        frames = answer.json().get("frames", ()) if answer.text.startswith("{") else ()
        errors = [each["error"]["code"] for each in frames if each["type"] == "error"]
        return errors[0] if errors else WORKS
    code = answer.json()["error"]["code"]
    assert (answer.status_code == 403) == (code in {ROLE, TENANT}), answer.text
    return code


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    files = tmp_path_factory.mktemp("files")
    (files / "in").mkdir()
    (files / "t.csv").write_text("org,id\nacme,9\n")
    with serving(
        tmp_path_factory.mktemp("served") / "db",
        auth=True,
        postgres=("127.0.0.1", 0),
        directories=(files,),
        webhook_networks=parse_networks(["127.0.0.0/8"]),
    ) as served:
        yield Walk(served, files)


def expected(action, role, tenant):
    row = TABLE[action]
    if ROLES.index(role) < ROLES.index(row.role):
        return ROLE
    return TENANT if tenant is not None and row.refused else WORKS


# ---- the table itself


def test_every_statement_is_in_the_table():
    # By name: a dataclass with slots is a second class, made of the first.
    kinds = {each.__name__ for each in Statement.__subclasses__()}
    assert kinds == {each.__name__ for each in permissions._ACTIONS}
    assert {each.action for each in STATEMENTS} <= TABLE.keys()
    assert {f"SHOW {each.upper()}" for each in get_args(ShowKind)} <= TABLE.keys()
    assert {f"DROP {each.upper()}" for each in get_args(DropKind)} <= TABLE.keys()


def test_every_row_of_the_table_is_walked():
    walked = {each.action for each in STATEMENTS} | OF_POSTGRES.keys()
    assert walked | OVER_HTTP.keys() | OVER_WEBSOCKET.keys() == TABLE.keys()


@pytest.mark.parametrize("case", STATEMENTS, ids=lambda each: each.sql[:60])
def test_the_table_says_what_is_expected(case):
    row = TABLE[case.action]
    assert (row.role, not row.refused) == (case.role, case.tenants)


def test_what_each_transport_takes_is_in_the_table(walk):
    made: Any = Statements(
        walk.served.db.session(),
        Pools(None, None),
        SimpleNamespace(deliver=None, process=0),
        identity=LOCAL,
        catalog=None,
        copy_bytes=0,
    )
    words = made._own.keys() | made._going_on.keys()
    assert words - {"SUBSCRIBE", "LIVE", "COPY"} <= TABLE.keys()
    of_own = {"unsubscribe", "pause", "resume", "request", "ack"}  # on what it has opened
    walked = {each["type"] for each in OVER_WEBSOCKET.values()}
    assert websocket._COMMANDS.keys() == of_own | walked | {"sql"}
    routes = walk.served.client.get("/openapi.json").json()["paths"].keys()
    requests = {path.partition("?")[0] for _, path, _ in OVER_HTTP.values()}
    built = {"/v1/catalog", "/v1/sql", "/v1/subscribe", "/v1/ws"}  # of statements; walked apart
    free = {"/health", "/ready", "/openapi.json", "/", "/v1/millstream.js"}
    named = {path.replace("{name}", "s") for path in routes}
    webhook = {"/v1/webhooks/s", "/v1/webhooks/s/replay"}
    assert named <= requests | built | free | webhook


def test_names_of_the_database_are_not_for_clients(walk):
    for name in ("__sink.o", "__SINK.o", "webhook.h"):
        message = {"type": "subscribe", "sql": "SELECT * FROM s", "name": name}
        assert walk.websocket(("admin", None), message) == "INVALID_OPTION"


def test_the_table_is_that_of_the_page():
    """SECURITY.md has each action in the row of its role, with what tenants may."""
    lines = Path("SECURITY.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| `")]
    found = {
        action: (role.strip("`"), tenants == "refused")
        for actions, role, tenants in rows
        for action in actions.strip("`").split("`, `")
    }
    assert found == {each.action: (each.role, bool(each.refused)) for each in TABLE.values()}


def test_a_statement_that_the_table_does_not_know():
    class Fly(Statement):
        pass

    assert permissions.permission_of(action_of(Fly())).role == "admin"
    with pytest.raises(TenantError):
        permissions.check(action_of(Fly()), "admin", "acme")
    with pytest.raises(RoleError):
        permissions.check(action_of(Fly()), "write", None)


# ---- the walk


@pytest.mark.parametrize("case", STATEMENTS, ids=lambda each: each.sql[:60])
def test_a_statement_over_each_transport(walk, case):
    found, right = {}, {}
    for role, tenant in CELLS:
        expect = case.expected(role, tenant)
        for transport in ("embedded", "http", "websocket", "postgres"):
            if transport == "postgres" and not case.over_postgres:
                continue
            walk.run(case.before)
            if transport == "embedded":
                outcome = embedded(walk, case.sql, role, tenant)
            elif transport == "http":
                outcome = walk.http((role, tenant), "POST", "/v1/sql", {"sql": case.sql})
            elif transport == "websocket":
                outcome = walk.websocket((role, tenant), {"type": "sql", "sql": case.sql})
            else:
                with walk.client((role, tenant)) as client:
                    outcome = walk.postgres(client, case.sql)
            if outcome == WORKS and transport != "embedded":
                walk.run(case.after)
            needs = transport in {"http", "websocket"} and not case.over_http
            found[role, tenant, transport] = outcome
            right[role, tenant, transport] = NEEDS_CONNECTION if needs else expect
    assert found == right


def embedded(walk, sql, role, tenant):
    """What a session of the role and the tenant says; what it makes is removed."""
    try:
        with walk.served.db.session(role=role, tenant=tenant, directories=[walk.files]) as session:
            if sql.startswith("LIVE "):
                session.subscribe(sql.removeprefix("LIVE ")).cancel()
            else:
                session.execute(sql)
    except (RoleError, TenantError) as error:
        return error.code
    case = next(each for each in STATEMENTS if each.sql == sql)
    walk.run(case.after)
    return WORKS


@pytest.mark.parametrize("action", OVER_HTTP)
def test_a_request(walk, action):
    found = {}
    for role, tenant in CELLS:
        found[role, tenant] = walk.http((role, tenant), *OVER_HTTP[action])
        if action == "change webhooks" and found[role, tenant] == WORKS:
            assert walk.http((role, tenant), "POST", "/v1/webhooks/h/replay") == WORKS
            assert walk.http((role, tenant), "DELETE", "/v1/webhooks/h") == WORKS
        elif action == "change webhooks":
            assert walk.http((role, tenant), "DELETE", "/v1/webhooks/h") == found[role, tenant]
    assert found == {(role, tenant): expected(action, role, tenant) for role, tenant in CELLS}


def test_events_from_the_server(walk):
    with httpx.stream(
        "GET",
        f"{walk.served.url}/v1/subscribe?sql=DELETE FROM t",
        headers=bearer(walk.keys["read", None]),
    ) as answer:
        assert answer.status_code == 403


@pytest.mark.parametrize("action", OVER_WEBSOCKET)
def test_a_message(walk, action):
    found = {cell: walk.websocket(cell, OVER_WEBSOCKET[action]) for cell in CELLS}
    assert found == {cell: expected(action, *cell) for cell in CELLS}


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_statements_of_postgresql(walk, cell):
    with walk.client(cell) as client:
        found = {action: walk.postgres(client, sql) for action, sql in OF_POSTGRES.items()}
    assert found == {action: expected(action, *cell) for action in OF_POSTGRES}


def test_nothing_of_a_text_runs_when_a_part_is_refused(walk):
    cell = "write", "acme"
    text = "INSERT INTO t VALUES ('acme', 77); DROP TABLE t"
    assert walk.http(cell, "POST", "/v1/sql", {"sql": text}) == ROLE
    assert walk.websocket(cell, {"type": "sql", "sql": text}) == ROLE
    assert walk.served.db.query("SELECT id FROM t WHERE id = 77").fetchall() == []


def test_points_that_are_remembered_are_for_those_who_may(walk):
    sql = "INSERT OR REPLACE INTO t (org, id) VALUES ('acme', 5)"
    for _ in range(3):
        walk.run(sql)
    assert walk.http(("read", None), "POST", "/v1/sql", {"sql": sql}) == ROLE
    with walk.client(("read", None)) as client:
        assert walk.postgres(client, sql) == ROLE


@pytest.mark.parametrize("tenant", TENANTS)
def test_the_text_of_a_view_may_name_other_tenants(walk, tenant):
    """SHOW CREATE is refused for tenants, and PostgreSQL's catalog has nothing for them instead."""
    walk.run(
        "CREATE MATERIALIZED VIEW secret WITH (tenant = 'org') AS SELECT * FROM s WHERE n > 42"
    )
    with walk.client(("read", tenant)) as client:
        asked = [
            client.execute(sql).fetchall()
            for sql in (
                "SELECT pg_get_viewdef('secret'::regclass)",
                "SELECT definition FROM pg_views WHERE viewname = 'secret'",
                "SELECT definition FROM pg_matviews WHERE matviewname = 'secret'",
                "SELECT view_definition FROM information_schema.views WHERE table_name = 'secret'",
            )
        ]
        shown = walk.served.client.get("/v1/catalog", headers=bearer(walk.keys["read", tenant]))
    walk.run("DROP VIEW secret")
    assert ("42" in str(asked)) == ("n > 42" in shown.text) == (tenant is None)


def test_a_token_of_another_tenant_shows_nothing_of_it(walk):
    """A token is a place in the log, and no right: its reader sees rows of its own tenant only."""
    other = walk.served.keys.create("other", tenant="other")
    polled = walk.served.client.get(
        "/v1/poll?sql=SELECT org, n FROM s&start=earliest",
        headers=bearer(walk.keys["read", "acme"]),
    ).json()
    walk.served.db.insert("s", [("acme", 666), ("other", 1), ("acme", 666)])
    walk.served.db.flush()
    for start in (polled["token"], "earliest"):
        answer = walk.served.client.get(
            "/v1/poll",
            params={"sql": "SELECT org, n FROM s", "start": start},
            headers=bearer(other),
        )
        rows = [row["row"] for frame in answer.json()["frames"] for row in frame.get("changes", ())]
        assert rows == [["other", 1]]
        assert "666" not in answer.text
        assert "acme" not in answer.text
    address = walk.served.url.replace("http", "ws") + "/v1/ws"
    with connect(address, additional_headers=bearer(other)) as socket:
        bus = {"type": "changes", "id": 1, "start": polled["token"]}
        socket.send(json.dumps(bus))
        received = [socket.recv(timeout=TIMEOUT) for _ in range(2)]
        assert "666" not in "".join(received)
        assert '"other"' in received[1]


@pytest.mark.parametrize(
    "sql",
    [
        "COPY t FROM '/etc/passwd' WITH (format = 'csv')",
        "COPY (SELECT * FROM t) TO '/tmp/never.csv'",
        "COPY (SELECT * FROM t) TO '../never.csv'",
        "CREATE SOURCE new (a VARCHAR) WITH (connector = 'files', path = '/etc', format = 'csv')",
        "CREATE SINK new FROM s WITH (connector = 'files', path = '../never')",
    ],
)
def test_an_admin_names_files_in_the_directory_of_the_server_only(walk, sql):
    cell = "admin", None
    answer = walk.served.client.post("/v1/sql", json={"sql": sql}, headers=bearer(walk.keys[cell]))
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "FILE_REFUSED")
    with walk.client(cell) as client, pytest.raises(psycopg.errors.InsufficientPrivilege):
        client.execute(sql)
    with pytest.raises(FileRefusedError):
        walk.served.db.session(directories=[]).execute(sql)
