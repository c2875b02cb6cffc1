"""TLS: a real server with a certificate of our own; the right root, a wrong one, a wrong name."""

import shutil
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from millstream.errors import ConnectorError
from millstream.testing import database, wait_until


def certificate(name, issuer=None):
    """A key and a certificate of 127.0.0.1; without an issuer, of an authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer[1].subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
    )
    return key, builder.sign(key if issuer is None else issuer[0], hashes.SHA256())


def pem(made):
    return made[1].public_bytes(serialization.Encoding.PEM)


@pytest.fixture(scope="module")
def roots(postgres, tmp_path_factory):
    """The files of the right and of a wrong root; the server has a certificate of the right one."""
    folder = tmp_path_factory.mktemp("roots")
    right, wrong = certificate("right"), certificate("wrong")
    (folder / "right").write_bytes(pem(right))
    (folder / "wrong").write_bytes(pem(wrong))
    own = certificate("db", right)
    key = own[0].private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    data = Path(postgres.folder, "data")
    for name, content in (("server.crt", pem(own)), ("server.key", key)):
        (data / name).write_bytes(content)
        (data / name).chmod(0o600)
        if data.owner() != (data / name).owner():
            shutil.chown(data / name, data.owner())
    with postgres.connect() as connection:
        connection.execute("ALTER SYSTEM SET ssl = on")
        connection.execute("SELECT pg_reload_conf()")
        wait_until(
            lambda: connection.execute("SHOW ssl").fetchone() == ("on",), "the server has TLS"
        )
        yield folder
        connection.execute("ALTER SYSTEM RESET ssl")
        connection.execute("SELECT pg_reload_conf()")


def with_url(postgres, more, connector):
    url = f"{postgres.url.replace('hunter2', '${env:PG_TEST}')}?{more}"
    return f"WITH (connector = '{connector}', url = '{url}', table = 'public.{connector[:8]}')"


@pytest.fixture(autouse=True)
def password(monkeypatch):
    monkeypatch.setenv("PG_TEST", "hunter2")


def test_a_server_without_tls(postgres, pg):
    assert pg.execute("SHOW ssl").fetchone() == ("off",)
    pg.execute("CREATE TABLE public.postgres (id BIGINT PRIMARY KEY)")
    with database() as db, pytest.raises(ConnectorError, match="does not support SSL") as caught:
        db.execute(f"CREATE TABLE c {with_url(postgres, 'sslmode=require', 'postgres-cdc')}")
    assert "sslmode" in caught.value.hint


@pytest.mark.parametrize("mode", ["require", "verify-full"])
def test_tables_are_followed_and_written_by_tls(postgres, pg, roots, mode):
    more = f"sslmode={mode}" + (f"&sslrootcert={roots}/right" if mode == "verify-full" else "")
    pg.execute("CREATE TABLE public.postgres (id BIGINT PRIMARY KEY, v TEXT)")
    pg.execute("ALTER TABLE public.postgres RENAME TO followed")
    pg.execute("INSERT INTO followed VALUES (1, 'a')")
    with database() as db:
        source = with_url(postgres, more, "postgres-cdc").replace("public.postgres", "followed")
        db.execute(f"CREATE TABLE t {source}")
        sink = with_url(postgres, more, "postgres").replace("public.postgres", "written")
        db.execute(f"CREATE SINK k FROM t {sink}")
        pg.execute("INSERT INTO followed VALUES (2, 'b')")

        def written():
            if pg.execute("SELECT to_regclass('written')").fetchone() == (None,):
                return []
            return pg.execute("SELECT id, v FROM written ORDER BY id").fetchall()

        wait_until(lambda: written() == [(1, "a"), (2, "b")], lambda: f"{written()}")
        encrypted = pg.execute(
            "SELECT backend_type, ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) "
            "WHERE application_name = 'millstream'"
        ).fetchall()
        assert {"walsender", "client backend"} <= {each[0] for each in encrypted}
        assert all(each[1] for each in encrypted)


@pytest.mark.parametrize(
    ("more", "message", "hint"),
    [
        ("sslmode=verify-full&sslrootcert={}/wrong", "verify failed", "the root of"),
        ("sslmode=verify-ca&sslrootcert={}/none", "root certificate", "the path of"),
        ("host=localhost&sslmode=verify-full&sslrootcert={}/right", "host name", "the name that"),
    ],
)
def test_a_server_that_is_not_trusted(postgres, pg, roots, more, message, hint):  # noqa: PLR0917
    pg.execute("CREATE TABLE public.postgres (id BIGINT PRIMARY KEY)")
    with database("CREATE TABLE t (id BIGINT PRIMARY KEY)") as db:
        for create, connector in (
            ("CREATE TABLE c", "postgres-cdc"),
            ("CREATE SINK k FROM t", "postgres"),
        ):
            options = with_url(postgres, more.format(roots), connector)
            with pytest.raises(ConnectorError, match=message) as caught:
                db.execute(f"{create} {options}")
            assert hint in caught.value.hint
            assert "hunter2" not in str(caught.value)
    assert pg.execute("SELECT * FROM pg_replication_slots").fetchall() == []
