"""No text of a query runs a command, calls Java, or reads a file or the environment."""

from __future__ import annotations

import psycopg
import pytest
from tests.server.conftest import serving
from tests.server.postgres.conftest import Served

from millstream.errors import Error

HOSTILE = (
    "SELECT TRANSFORM(id) USING 'touch {canary}' AS b FROM plain",
    "SELECT * FROM (SELECT TRANSFORM(id) USING 'touch {canary}' FROM plain) t",
    "WITH q AS (SELECT TRANSFORM(id) USING 'touch {canary}' FROM plain) SELECT * FROM q",
    "SELECT id FROM plain WHERE id IN (SELECT TRANSFORM(id) USING 'touch {canary}' FROM plain)",
    "SELECT id FROM plain UNION ALL SELECT TRANSFORM(id) USING 'touch {canary}' FROM plain",
    "SELECT `reflect`('java.lang.System', 'getProperty', 'user.home') AS x FROM plain",
    "SELECT `Java_Method`('java.lang.System', 'getProperty', 'user.home') AS x FROM plain",
    "SELECT `system`.`builtin`.`reflect`('java.lang.System', 'lineSeparator') AS x FROM plain",
    "SELECT builtin.try_reflect('java.lang.System', 'lineSeparator') AS x FROM plain",
    "SELECT COUNT(*) AS n FROM plain GROUP BY `reflect`('java.lang.System', 'lineSeparator')",
    "SELECT SUM(id) OVER (ORDER BY `reflect`('java.lang.System', 'lineSeparator')) AS x FROM plain",
    "SELECT SUM(id) OVER w AS x FROM plain WINDOW w AS (ORDER BY `reflect`('a', 'b'))",
    "SELECT transform(array(id), x -> `reflect`('java.lang.System', 'exit', 1)) AS x FROM plain",
    "SELECT id FROM plain WHERE EXISTS (SELECT `reflect`('a', 'b') FROM plain)",
    "SELECT id FROM plain LATERAL VIEW explode(array(`reflect`('a', 'b'))) t AS x",
    "SELECT * FROM parquet.`/etc/passwd`",
    "SELECT * FROM text.`/etc/passwd`",
    "SELECT * FROM `text`.`/etc/passwd`",
    "SELECT * FROM read_files('/etc/passwd')",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM glob('/*')",
    "SELECT getenv('HOME') AS x FROM plain",
    "SELECT from_xml('<a/>', 'b STRING', map('rowValidationXSDPath', '/etc/passwd')) FROM plain",
    "SELECT xpath_string('<!DOCTYPE a SYSTEM \"file:///etc/passwd\"><a/>', '/a') AS x FROM plain",
    "SELECT * FROM IDENTIFIER('plain')",
    "SELECT /*+ REPARTITION(3) */ id, COUNT(*) AS n FROM plain GROUP BY id",
    "SELECT `input_file_name`() AS x, COUNT(*) AS n FROM plain",
    "SELECT com.example.Aggregate(id) AS x FROM plain",
    "SELECT spark_catalog.default.f(id) AS x FROM plain",
    "ADD JAR '/tmp/x.jar'",
    "SET spark.sql.ansi.enabled = false",
    "CREATE FUNCTION f AS 'java.lang.String'",
    "CACHE TABLE plain",
    "USE other",
    "EXECUTE IMMEDIATE 'SELECT 1'",
    "COPY (SELECT 1) TO PROGRAM 'touch {canary}'",
    "ATTACH '/etc/passwd' AS x",
    "INSTALL httpfs",
    "PRAGMA database_list",
)


@pytest.fixture(params=HOSTILE)
def hostile(request, canary):
    return request.param.format(canary=canary)


def test_not_in_a_query(db, hostile):
    with pytest.raises(Error) as raised:
        db.query(hostile)
    assert "java." not in raised.value.message


@pytest.mark.parametrize(
    "form",
    [
        "CREATE MATERIALIZED VIEW v AS {}",
        "CREATE STREAM v AS {}",
        "CREATE MATERIALIZED VIEW v WITH (partitions = 2) AS {}",
        "{} AS OF LSN 1",
        "LIVE {}",
    ],
)
def test_not_in_any_statement(db, canary, form):
    for each in HOSTILE:
        with pytest.raises(Error):
            db.execute(form.format(each.format(canary=canary)))
    assert [each["name"] for each in db.query("SHOW VIEWS").to_pylist()] == []


def test_not_in_a_subscription_or_what_is_prepared(db, canary):
    for each in HOSTILE:
        sql = each.format(canary=canary)
        with pytest.raises(Error):
            db.subscribe(sql)
        with pytest.raises(Error):
            db.subscribe_callback(sql, print)


def test_not_for_a_tenant(db, canary):
    db.execute(
        "CREATE TABLE owned (tenant_id VARCHAR NOT NULL, id BIGINT, PRIMARY KEY (tenant_id, id))"
        " WITH (tenant = 'tenant_id')"
    )
    acme = db.session(tenant="acme")
    for each in HOSTILE:
        with pytest.raises(Error):
            acme.query(each.format(canary=canary).replace("plain", "owned"))


def test_not_with_a_key_over_http(tmp_path, spark, canary):
    with serving(tmp_path / "db", spark=spark, auth=True) as served:
        served.db.execute("CREATE TABLE plain (id BIGINT PRIMARY KEY, name VARCHAR)")
        served.db.execute("INSERT INTO plain VALUES (1, 'a')")
        for role in ("read", "write", "admin"):
            key = served.keys.create(role, role=role)
            for each in HOSTILE:
                answer = served.sql(each.format(canary=canary), key=key)
                assert answer.status_code in {400, 403, 404}, (each, answer.text)
                assert "java." not in answer.json()["error"]["message"], answer.text


def test_not_over_the_protocol_of_postgres(db, canary):
    served = Served(db)
    try:
        with served.connect() as client:
            for each in HOSTILE:
                if each.startswith("SET "):  # a setting of the connection, which is kept there
                    continue
                with pytest.raises(psycopg.Error):
                    client.execute(each.format(canary=canary))
    finally:
        served.stop()


def test_a_text_stays_as_it_is(db, monkeypatch):
    monkeypatch.setenv("SECRET", "shown")
    sql = "SELECT '${env:SECRET}' || log10(id) AS x, COUNT(*) AS n FROM plain GROUP BY 1"
    assert db.query(sql).fetchall() == [("${env:SECRET}0.0", 1)]
