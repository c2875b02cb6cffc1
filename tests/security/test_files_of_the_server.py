"""Statements of clients name files in the directories of --files-dir only."""

from __future__ import annotations

import pytest

import millstream as ms
from millstream import errors
from millstream.testing import TIMEOUT, wait_until


@pytest.fixture
def inside(tmp_path):
    made = tmp_path / "inside"
    made.mkdir()
    (made / "good.csv").write_text("n\n1\n")
    return made


@pytest.fixture
def outside(tmp_path):
    made = tmp_path / "outside"
    made.mkdir()
    (made / "secret.csv").write_text("n\n42\n")
    return made


@pytest.fixture
def client(tmp_path, inside):
    with ms.open(tmp_path / "db") as db, db.session(role="admin", directories=[inside]) as session:
        session.execute("CREATE SOURCE t (n BIGINT)")
        yield session


@pytest.mark.parametrize(
    "url",
    ["local://{0}/secret.csv", "LOCAL://{0}/secret.csv", "mock://{0}/secret.csv", "hdfs://x/y.csv"],
)
def test_no_other_name_of_this_machine_is_taken(client, outside, url):
    for statement in ("COPY t FROM '{0}'", "COPY t TO '{0}'"):
        with pytest.raises(errors.InvalidOptionError, match="there is no store"):
            client.execute(statement.format(url.format(outside)))


def test_a_path_with_a_nul_is_refused(client):
    with pytest.raises(errors.Error, match="NUL"):
        client.execute("COPY t FROM 'a\0b.csv'")


@pytest.mark.parametrize("pattern", ["", "/link*.csv", "/l*/*.csv"])
def test_links_do_not_lead_out(client, inside, outside, pattern):
    (inside / "link.csv").symlink_to(outside / "secret.csv")
    (inside / "linked").symlink_to(outside)
    with pytest.raises(errors.Error, match="link that leads out"):
        client.execute(
            f"CREATE SOURCE s (n BIGINT) WITH (connector = 'files', path = '{inside}{pattern}')"
        )


def test_a_link_that_comes_later_is_not_followed(client, inside, outside):
    client.execute(
        f"CREATE SOURCE s (n BIGINT) WITH (connector = 'files', path = '{inside}', "
        "poll_interval = '10 milliseconds', settle = '0 seconds')"
    )
    wait_until(lambda: client.query("SELECT n FROM s").fetchall() == [(1,)], timeout=TIMEOUT)
    (inside / "link.csv").symlink_to(outside / "secret.csv")
    wait_until(
        lambda: "leads out" in (client.query("SHOW CONNECTORS").to_pylist()[0]["error"] or ""),
        timeout=TIMEOUT,
    )
    assert client.query("SELECT n FROM s").fetchall() == [(1,)]


@pytest.mark.parametrize(
    "option",
    [
        "catalog.py-catalog-impl = 'evil.Catalog'",
        "catalog.uri = 'sqlite:////tmp/catalog.db', catalog.type = 'sql'",
        "catalog.warehouse = 'file:///tmp/lake'",
    ],
)
def test_a_client_configures_no_catalog(client, option):
    with pytest.raises(errors.FileRefusedError, match=r"takes no option catalog\."):
        client.execute(
            f"CREATE SINK k FROM t WITH (connector = 'iceberg', table = 'a.b', {option})"
        )


def test_no_statement_names_code(tmp_path):
    with ms.open(tmp_path / "db") as db:
        db.execute("CREATE SOURCE t (n BIGINT)")
        for name in ("py-catalog-impl", "py-io-impl"):
            with pytest.raises(errors.Error, match="would run code"):
                db.execute(
                    "CREATE SINK k FROM t WITH (connector = 'iceberg', table = 'a.b', "
                    f"catalog.{name} = 'subprocess.Popen')"
                )
