import base64
import contextlib
import datetime
import ssl
import threading

import psycopg
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.server.conftest import bearer, serving
from tests.server.postgres.conftest import fields

from millstream.server.keys import Keys, ScramVerifier
from millstream.server.postgres.auth import Scram
from millstream.server.postgres.server import Limits
from millstream.testing import TIMEOUT, wait_until

TENANTS = """CREATE TABLE own (tenant VARCHAR NOT NULL, id BIGINT, PRIMARY KEY (tenant, id))
WITH (tenant = 'tenant'); CREATE TABLE all_ours (id BIGINT PRIMARY KEY)"""


@pytest.fixture
def keys(tmp_path):
    return Keys(tmp_path)


@pytest.fixture
def guarded(serve, keys):
    return serve(keys=keys)


def _log_in(served, name, secret):
    served.user, served.password = name, secret
    return served.connect()


def test_a_key_is_asked_for(guarded, keys):
    secret = keys.create("writer", role="write")
    with _log_in(guarded, "writer", secret) as client:
        assert client.execute("SELECT current_user").fetchone() == ("writer",)
    for name, given in (("writer", secret[:-1] + "!"), ("nobody", secret), ("writer", "")):
        with pytest.raises(psycopg.OperationalError, match=r"password authentication failed|fe_"):
            _log_in(guarded, name, given or "x")


def test_scram_is_that_of_the_rfc():
    # RFC 7677, section 3
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    verifier = ScramVerifier.of("pencil", salt, 4096)
    nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    scram = Scram(verifier, nonce)
    first = scram.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == f"r=rOprNGfwEbeRWgbNEkqO{nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    final = scram.final(f"c=biws,r=rOprNGfwEbeRWgbNEkqO{nonce},p={proof}".encode())
    assert final == "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize(
    ("role", "sql"),
    [
        ("read", "INSERT INTO own VALUES ('acme', 1)"),
        ("read", "DELETE FROM own"),
        ("read", "NOTIFY a, 'b'"),
        ("read", "SELECT pg_notify('a', 'b')"),
        ("read", "COPY own FROM STDIN"),
        ("write", "COPY own FROM '/etc/passwd' WITH (format = 'csv')"),
        ("write", "COPY (SELECT * FROM own) TO '/tmp/never.csv'"),
        ("write", "DROP TABLE own"),
        ("write", "CREATE TABLE t (id BIGINT PRIMARY KEY)"),
    ],
)
def test_a_role_may_not(guarded, keys, role, sql):
    guarded.db.execute(TENANTS)
    secret = keys.create("key", role=role)
    with _log_in(guarded, "key", secret) as client:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            client.execute(sql)
        assert client.execute("SELECT COUNT(*) AS n FROM own").fetchone() == (0,)
        client.execute("LISTEN a; SHOW TABLES; DECLARE c CURSOR FOR SUBSCRIBE own")


def test_a_tenant_sees_its_own(guarded, keys):
    guarded.db.execute(TENANTS)
    guarded.db.insert("own", [("acme", 1), ("other", 2)])
    with _log_in(guarded, "acme", keys.create("acme", role="admin", tenant="acme")) as client:
        assert client.execute("SELECT id FROM own").fetchall() == [(1,)]
        assert client.execute("SELECT COUNT(*) AS n FROM own").fetchall() == [(1,)]
        found = client.execute("SELECT relname FROM pg_class WHERE relkind = 'r'").fetchall()
        assert found == [("own",)]
        client.execute("DECLARE c CURSOR FOR SUBSCRIBE own")
        found = client.execute("FETCH ALL c WITH (timeout = '10s')").fetchall()
        assert [row[4:] for row in found] == [("acme", 1)]
        point = "SELECT id FROM own WHERE tenant = %s AND id = %s"
        for _ in range(3):  # also when the engine remembers what the text does
            guarded.db.query(point.replace("%s", "?"), ["other", 2])
            assert client.execute(point, ["other", 2], prepare=True).fetchall() == []
        refused = [
            "SELECT * FROM all_ours",
            "INSERT INTO own VALUES ('other', 3)",
            "SHOW CREATE own",
            "SUBSCRIBE all_ours",
            "COPY all_ours TO STDOUT",
            "COPY own TO '/tmp/never.csv'",
            "DROP TABLE own",
        ]
        for sql in refused:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                client.execute(sql)
        with pytest.raises(psycopg.errors.InsufficientPrivilege), client.cursor() as cursor:  # noqa: SIM117
            with cursor.copy("COPY own FROM STDIN") as copy:
                copy.write("other\t9\n")
        client.execute("LISTEN a")
        guarded.db.notify("a", "not for tenants")
        guarded.db.session(tenant="other").notify("a", "not for acme")
        client.execute("NOTIFY a, 'own'")
        found = [each.payload for each in client.notifies(timeout=10, stop_after=1)]
        assert found == ["own"]


def test_a_revoked_key_ends_the_connection(guarded, keys):
    with _log_in(guarded, "key", keys.create("key")) as client:
        client.execute("SELECT 1")
        keys.revoke("key")
        with pytest.raises(psycopg.OperationalError, match="the key was revoked"):
            client.execute("SELECT 1")


def test_the_key_is_in_no_error(guarded, keys):
    secret = keys.create("key")
    raw = guarded.raw()
    raw.send(b"", b"\0\3\0\0user\0key\0database\0millstream\0\0")
    kind, content = raw.message()
    assert (kind, content[:4]) == (b"R", b"\0\0\0\x0a")
    raw.send(b"p", b"SCRAM-SHA-256\0\0\0\0\4junk")
    [(kind, content)] = raw.ended()
    assert (kind, fields(content)["C"]) == (b"E", "08P01")
    assert secret.encode() not in content


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + secret)
    return path


def test_tls(serve, keys, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    served = serve(keys=keys, tls=context)
    secret = keys.create("key")
    for mode in ("require", "prefer", "disable"):
        dsn = f"{served.dsn} sslmode={mode} password={secret}".replace("user=tester", "user=key")
        with psycopg.connect(dsn, autocommit=True) as client:
            assert client.pgconn.ssl_in_use == (mode != "disable")
            assert client.execute("SELECT 1").fetchone() == (1,)
    raw = served.raw()  # bytes before the handshake must not count as encrypted
    raw.socket.sendall(b"\0\0\0\x08\x04\xd2\x16\x2f" + b"\0\0\0\x08\0\3\0\0")
    assert [kind for kind, _ in raw.ended()] == [b"E"]


def test_without_tls_it_is_refused(served):
    with pytest.raises(psycopg.OperationalError, match="SSL"):
        psycopg.connect(f"{served.dsn} sslmode=require")


def test_a_revoked_key_ends_a_stream(guarded, keys):
    guarded.db.execute("CREATE SOURCE s (n BIGINT)")
    with (
        _log_in(guarded, "key", keys.create("key")) as client,
        pytest.raises(psycopg.OperationalError, match="the key was revoked"),
        client.cursor() as cursor,
        cursor.copy("COPY (SUBSCRIBE s) TO STDOUT") as copy,
    ):
        guarded.db.insert("s", [(1,)])
        assert copy.read()
        keys.revoke("key")
        while copy.read():
            pass
    assert not guarded.db.query("SHOW SUBSCRIPTIONS").fetchall()


def test_connections_of_one_key(serve, keys):
    served = serve(keys=keys, limits=Limits(connections_per_key=2))
    secret, other = keys.create("key"), keys.create("other")
    clients = [_log_in(served, "key", secret) for _ in range(2)]
    with pytest.raises(psycopg.OperationalError, match='too many connections for role "key"'):
        _log_in(served, "key", secret)
    _log_in(served, "other", other).close()
    clients.pop().close()
    wait_until(lambda: _may_log_in(served, secret))
    clients.pop().close()


def _may_log_in(served, secret):
    try:
        _log_in(served, "key", secret).close()
    except psycopg.OperationalError:
        return False
    return True


def test_a_key_that_keeps_threads_busy(serve, keys):
    served = serve(keys=keys, limits=Limits(threads=2))
    served.db.execute("CREATE SOURCE s (n BIGINT)")
    served.db.insert("s", [(n,) for n in range(3000)])
    slow = "SELECT COUNT(*) AS n FROM s a JOIN s b ON a.n <> b.n JOIN s c ON b.n <> c.n"
    greedy, other = keys.create("greedy"), keys.create("other")
    clients = [_log_in(served, "greedy", greedy) for _ in range(3)]
    asking = [threading.Thread(target=_ask, args=(each, slow)) for each in clients]
    for each in asking:
        each.start()
    wait_until(lambda: served.server._pools.statements.pending == len(clients))
    with _log_in(served, "other", other) as client:
        assert client.execute("SELECT n FROM s LIMIT 1").fetchone() == (0,)
    for each in clients:
        each.cancel_safe(timeout=TIMEOUT)
    for each in asking:
        each.join(TIMEOUT)
        assert not each.is_alive()
    for each in clients:
        each.close()


def _ask(client, sql):
    with contextlib.suppress(psycopg.errors.QueryCanceled):
        client.execute(sql)


def test_limits_are_those_of_the_server(tmp_path):
    limits = {"subscriptions_per_key": 2, "query_seconds": 0.3}
    with serving(tmp_path / "db", auth=True, postgres=("127.0.0.1", 0), limits=limits) as served:
        served.db.execute("CREATE SOURCE s (n BIGINT)")
        served.db.insert("s", [(n,) for n in range(3000)])
        secret = served.keys.create("key")
        url = served.server.postgres.replace("//", f"//key:{secret}@")
        slow = "SELECT COUNT(*) AS n FROM s a JOIN s b ON a.n <> b.n JOIN s c ON b.n <> c.n"
        with psycopg.connect(url, autocommit=True) as client:
            with pytest.raises(psycopg.errors.QueryCanceled):
                client.execute(slow)
            client.execute("DECLARE a CURSOR FOR SUBSCRIBE s")
            client.execute("DECLARE b CURSOR FOR SUBSCRIBE s")
            for sql in ("DECLARE c CURSOR FOR SUBSCRIBE s", "SUBSCRIBE s"):
                with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="2 subscriptions"):
                    client.execute(sql)
            refused = served.client.get("/v1/subscribe?sql=SELECT * FROM s", headers=bearer(secret))
            assert refused.json()["error"]["code"] == "LIMIT"  # they are counted together
            client.execute("CLOSE a")
            client.execute("DECLARE c CURSOR FOR SUBSCRIBE s")
        wait_until(lambda: not served.server._service.gate.subscriptions)
