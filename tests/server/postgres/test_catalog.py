from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from tests.server.postgres.conftest import Served

import millstream as ms

CREATE = """CREATE TABLE users (id BIGINT PRIMARY KEY, name VARCHAR NOT NULL, worth DECIMAL(10, 2),
tags ARRAY<VARCHAR>, at TIMESTAMP); CREATE SOURCE trades (symbol VARCHAR, price DOUBLE);
CREATE MATERIALIZED VIEW dear AS SELECT symbol, price FROM trades WHERE price > 100"""


@pytest.fixture(scope="module")
def made():
    with ms.open() as db:
        db.execute(CREATE)
        served = Served(db)
        yield served
        served.stop()


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        (r"\d", ["public|dear|materialized view|millstream", "public|trades|table|millstream"]),
        (r"\dt", ["public|trades|table|millstream", "public|users|table|millstream"]),
        (r"\dm", ["public|dear|materialized view|millstream"]),
        (r"\dm d*", ["public|dear|materialized view|millstream"]),
        (r"\di", ["public|users_pkey|index|millstream|users"]),
        (r"\l", ["millstream|millstream|UTF8|C|C||libc|"]),
        (r"\dn", ["public|millstream"]),
        (r"\du", ["tester||{}"]),
        (r"\d users", ["id|bigint||not null|", "worth|numeric(10,2)|||", "tags|text[]|||"]),
        (r"\d users", ['    "users_pkey" PRIMARY KEY, btree (id)']),
        (r"\d+ dear", ["price|double precision||||plain|||", "View definition:"]),
        (r"\dt+", ["public|users|table|millstream|permanent|heap|0 bytes|"]),
        (r"\df", []),
        (r"\dT", []),
        (r"\dx", []),
        (r"\dp", ["public|users|table|||"]),
        (r"\db", ["pg_default|millstream|"]),
    ],
)
def test_psql_describes(made, command, lines):
    found = made.lines(command, options=("-A",))
    for line in lines:
        assert line in found, found


def test_psql_says_what_it_does_not_find(made):
    assert made.psql(r"\d nothing", check=False).returncode == 1


def test_what_tab_completion_asks(made):
    # psql's own query for names after FROM, as version 15 sends it
    sql = """SELECT c.relname, NULL::pg_catalog.text FROM pg_catalog.pg_class c
    WHERE c.relkind IN ('r', 'S', 'v', 'm', 'f', 'p') AND (c.relname) LIKE 'tr%'
    AND pg_catalog.pg_table_is_visible(c.oid)
    AND c.relnamespace <> (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'pg_catalog')
    UNION ALL SELECT NULL::pg_catalog.text, n.nspname FROM pg_catalog.pg_namespace n
    WHERE n.nspname LIKE 'tr%' AND n.nspname NOT LIKE E'pg\\\\_%' LIMIT 1000"""
    with made.connect() as client:
        assert client.execute(sql).fetchall() == [("trades", None)]


CLIENTS = (Path(__file__).parent / "clients.sql").read_text().split("-- name: ")[1:]


@pytest.mark.parametrize("text", CLIENTS, ids=[each.split(":")[0] for each in CLIENTS])
def test_what_other_clients_ask(made, text):
    head, _, sql = text.partition("\n")
    with made.connect() as client:
        assert len(client.execute(sql).fetchall()) == int(head.rsplit(":")[-1])


GRAFANA = """SELECT quote_ident(column_name) AS "column", data_type AS "type"
FROM information_schema.columns WHERE
  CASE WHEN array_length(parse_ident('trades'), 1) = 2
    THEN quote_ident(table_schema) = (parse_ident('trades'))[1]
      AND quote_ident(table_name) = (parse_ident('trades'))[2]
    ELSE quote_ident(table_name) = 'trades' AND quote_ident(table_schema) IN (
      SELECT CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END
      FROM generate_series(
          array_lower(string_to_array(current_setting('search_path'), ','), 1),
          array_upper(string_to_array(current_setting('search_path'), ','), 1)) as i,
        string_to_array(current_setting('search_path'), ',') s)
  END"""


def test_what_grafana_asks(made):
    with made.connect() as client:
        found = client.execute(GRAFANA).fetchall()
        assert found == [("symbol", "text"), ("price", "double precision")]
        sql = "SELECT current_setting('server_version_num')::int/100 as version"
        assert client.execute(sql).fetchone() == (1500,)
        sql = "SELECT 'timescaledb' FROM pg_extension WHERE extname = 'timescaledb'"
        assert client.execute(sql).fetchall() == []
        made.db.execute("CREATE SOURCE m (at TIMESTAMP, v DOUBLE)")
        made.db.execute("INSERT INTO m VALUES (TIMESTAMP '2026-01-01 10:00:30', 1.5)")
        sql = """SELECT date_trunc('minute', at) AS "time", avg(v) AS v FROM m
        WHERE at BETWEEN '2026-01-01T00:00:00Z' AND '2026-01-02T00:00:00.5Z'
        GROUP BY 1 ORDER BY 1"""
        [(minute, mean)] = client.execute(sql).fetchall()
        assert (minute.isoformat(), mean) == ("2026-01-01T10:00:00+00:00", 1.5)
        # $__timeGroup(at, '1m') and $__unixEpochFilter
        sql = """SELECT floor(extract(epoch from at)/60)*60 AS "time", avg(v) AS v FROM m
        WHERE EXTRACT(EPOCH FROM at) >= 1767225600 GROUP BY 1 ORDER BY 1"""
        assert client.execute(sql).fetchall() == [(1767261600, 1.5)]
        # $__timeEpoch, $__unixEpochGroup
        sql = 'SELECT extract(epoch from at) as "time" FROM m ORDER BY 1'
        assert client.execute(sql).fetchall() == [(1767261630.0,)]
        sql = """SELECT floor((UNIX_SECONDS(at))/300)*300 AS "time", max(v) AS v FROM m
        WHERE UNIX_SECONDS(at) >= 1767225600 AND UNIX_SECONDS(at) <= 1767312000
        GROUP BY 1 ORDER BY 1"""
        assert client.execute(sql).fetchall() == [(1767261600, 1.5)]
    made.db.execute("DROP SOURCE m")


def test_functions_and_nothing_to_select_from(made):
    with made.connect() as client:
        sql = "SELECT current_database(), current_schema(), current_user, 1 + 1"
        assert client.execute(sql).fetchone() == ("millstream", "public", "tester", 2)
        assert client.execute("SELECT version()").fetchone()[0].startswith("PostgreSQL 15")
        assert client.execute("SELECT %s::int + 1, %s", [1, "x"]).fetchone() == (2, "x")
        assert client.execute("VALUES (1, 'a'), (2, 'b')").fetchall() == [(1, "a"), (2, "b")]
        assert client.execute("SELECT 'users'::regclass::text").fetchone() == ("users",)
        found = psycopg.types.TypeInfo.fetch(client, "int8")
        assert (found.oid, found.array_oid) == (20, 1016)


def test_the_catalog_reads_no_files(made):
    hostile = [
        "SELECT * FROM read_csv('/etc/passwd'), pg_class",
        "SELECT * FROM '/etc/passwd', pg_class",
        "SELECT * FROM read_text('/etc/passwd') f, pg_class",
        "SELECT * FROM users, pg_class",
        "SELECT content FROM read_text('/etc/passwd')",
        "WITH a AS (SELECT 1) INSERT INTO pg_class SELECT * FROM a",
        "SELECT * FROM duckdb_settings(), pg_class",
        "SELECT 1 FROM pg_class; COPY pg_class TO '/tmp/x'",
        "COPY pg_class TO '/tmp/x.csv'",
        "COPY (SELECT * FROM pg_class) TO '/tmp/x.csv'",
        "SELECT ((((((((pg_catalog",
        "SELECT getenv('HOME')",
    ]
    with made.connect() as client:
        for sql in hostile:
            with pytest.raises(psycopg.Error):
                client.execute(sql)
        assert client.execute("SELECT 1").fetchone() == (1,)


def test_sqlalchemy(made):
    engine = sa.create_engine(f"postgresql+psycopg://tester@127.0.0.1:{made.port}/millstream")
    inspector = sa.inspect(engine)
    assert {"trades", "users"} <= set(inspector.get_table_names())
    assert inspector.get_materialized_view_names() == ["dear"]
    assert inspector.get_view_definition("dear").startswith("SELECT symbol")
    assert inspector.get_pk_constraint("users")["constrained_columns"] == ["id"]
    assert inspector.get_foreign_keys("users") == inspector.get_indexes("users") == []
    columns = {each["name"]: str(each["type"]) for each in inspector.get_columns("users")}
    assert columns == {
        "id": "BIGINT",
        "name": "TEXT",
        "worth": "NUMERIC(10, 2)",
        "tags": "ARRAY",
        "at": "TIMESTAMP",
    }
    users = sa.Table("users", sa.MetaData(), autoload_with=engine)
    with engine.begin() as client:
        client.execute(sa.insert(users), [{"id": n, "name": f"n{n}"} for n in range(5)])
        client.execute(sa.insert(users).values(id=9, name="nine", tags=["a", "b"]))
        query = sa.select(users.c.id, users.c.tags).where(users.c.id > 2)
        assert client.execute(query.order_by(users.c.id.desc()).limit(1)).all() == [(9, ["a", "b"])]
        assert client.execute(sa.select(sa.func.count()).select_from(users)).scalar() == 6
        assert (
            client.execute(sa.update(users).where(users.c.id == 1).values(name="x")).rowcount == 1
        )
        assert client.execute(sa.delete(users).where(users.c.id < 3)).rowcount == 3
    metadata = sa.MetaData()
    moments = sa.Column("at", sa.DateTime(timezone=True))
    keys = sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False)
    sa.Table("fresh", metadata, keys, sa.Column("n", sa.Text), sa.Column("x", sa.Float), moments)
    metadata.create_all(engine)
    assert "fresh" in sa.inspect(engine).get_table_names()
    metadata.drop_all(engine)
    engine.dispose()
