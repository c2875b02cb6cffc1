"""Rows here in a table of PostgreSQL: exactly once, whatever is killed; errors."""

import datetime
from decimal import Decimal

import pytest

from millstream.errors import ConnectorError, InvalidOptionError, SqlOptionError
from millstream.testing import database, wait_until
from millstream.testing.connectors import ITEMS as SOURCE
from millstream.testing.connectors import TABLE, SinkScenario, check_sink

ITEMS = "CREATE TABLE items (id BIGINT PRIMARY KEY, v VARCHAR)"


def create(postgres, relation="items", name="s", table="stored", **options):
    more = "".join(f", {option} = '{value}'" for option, value in options.items())
    return (
        f"CREATE SINK {name} FROM {relation} WITH (connector = 'postgres', url = '{postgres.url}', "
        f"table = 'public.{table}'{more})"
    )


def shown(db, name="s"):
    return next(e for e in db.query("SHOW CONNECTORS").to_pylist() if e["name"] == name)


def rows(pg, table="stored", columns="*"):
    if pg.execute("SELECT to_regclass(%s)", [table]).fetchone() == (None,):
        return None
    return sorted(pg.execute(f"SELECT {columns} FROM {table}").fetchall(), key=repr)


def stored(db, pg, expected, table="stored"):
    wait_until(
        lambda: rows(pg, table) == expected, lambda: f"{rows(pg, table)} {expected} {shown(db)}"
    )


@pytest.mark.crash
@pytest.mark.parametrize("mode", ["upsert", "append"])
def test_stored_exactly_once(postgres, pg, tmp_path, mode):
    def now_stored():
        with postgres.connect() as reader:
            return rows(reader) or []

    scenario = SinkScenario(
        create=create(postgres, mode=mode, retry_delay="10 milliseconds"),
        name="s",
        stored=now_stored,
        appends=mode == "append",
        input=SOURCE if mode == "append" else TABLE,
        restart=postgres.restart,
    )
    check_sink(scenario, tmp_path)


def test_all_types_as_they_are_made(postgres, pg):
    with database(
        "CREATE TABLE t (id INT, name VARCHAR, PRIMARY KEY (name, id), ti TINYINT, si SMALLINT, "
        "r REAL, d DOUBLE, dec DECIMAL(38, 10), ok BOOLEAN, raw BINARY, day DATE, at TIMESTAMP, "
        "len INTERVAL, list ARRAY<VARCHAR>, deep ARRAY<ARRAY<INT>>, s STRUCT<x INT, y DATE>, "
        "m MAP<VARCHAR, BIGINT>)"
    ) as db:
        at = datetime.datetime(2024, 2, 29, 12, 0, 0, 1, datetime.UTC)
        values = (7, 'é",\n\\', 1, -2, 0.1, float("inf"), Decimal("12345678901234567890.5"), True,
                  b"\x00\xff", at.date(), at, datetime.timedelta(days=-1, microseconds=1),
                  ["a", 'b"\\c', None, ""], [[1], []],
                  {"x": 1, "y": at.date()}, {"k": 1})  # fmt: skip
        db.insert("t", [values, (8, "", *[None] * 14)])
        db.execute(create(postgres, "t"))
        wait_until(lambda: len(rows(pg) or ()) == 2, lambda: shown(db))
        full, empty = pg.execute("SELECT * FROM stored ORDER BY id").fetchall()
        assert full == (*values[:-2], {"x": 1, "y": "2024-02-29"}, {"k": 1})
        assert empty == (8, "", *[None] * 14)
        key = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'stored_pkey'"
        assert pg.execute(key).fetchall() == [("PRIMARY KEY (name, id)",)]
        db.execute("DELETE FROM t WHERE id = 7")
        wait_until(lambda: len(rows(pg)) == 1, lambda: shown(db))


def test_a_table_that_is_there(postgres, pg):
    pg.execute(
        "CREATE TABLE stored (v text, n int DEFAULT 7, id numeric NOT NULL, made timestamptz "
        "DEFAULT now(), UNIQUE (id))"
    )
    with database(ITEMS, "INSERT INTO items VALUES (1, 'a'), (2, NULL)") as db:
        db.execute(create(postgres))
        wait_until(
            lambda: rows(pg, columns="id, v, n") == [(1, "a", 7), (2, None, 7)], lambda: shown(db)
        )


def test_rows_that_are_there(postgres, pg, tmp_path):
    pg.execute("CREATE TABLE stored (id bigint PRIMARY KEY, v text)")
    pg.execute("INSERT INTO stored VALUES (1, 'old'), (9, 'old')")
    with database(ITEMS, "INSERT INTO items VALUES (1, 'a')", path=tmp_path) as db:
        with pytest.raises(ConnectorError, match="has rows, which the sink would replace"):
            db.execute(create(postgres))
        db.execute(create(postgres, overwrite=True))
        stored(db, pg, [(1, "a")])
        db.execute("CREATE SOURCE e (id BIGINT, v VARCHAR)")
        pg.execute("CREATE TABLE log (id bigint, v text); INSERT INTO log VALUES (0, 'other')")
        db.execute(create(postgres, "e", "l", "log", mode="append"))
        db.execute("INSERT INTO e VALUES (1, 'x'), (1, 'x')")
        stored(db, pg, [(0, "other"), (1, "x"), (1, "x")], "log")
        db.execute("DROP SINK l")
        assert len(pg.execute("SELECT sink FROM millstream_sinks").fetchall()) == 1
        db.execute("DROP SINK s")
        assert not pg.execute("SELECT sink FROM millstream_sinks").fetchall()
    assert rows(pg) == [(1, "a")]


def test_another_process_with_the_same_sink(postgres, pg):
    with database(ITEMS) as db:
        db.execute(create(postgres, retry_limit=1000))
        wait_until(
            lambda: pg.execute("SELECT to_regclass('millstream_sinks')").fetchone() != (None,)
        )
        db.execute("INSERT INTO items VALUES (1, 'a')")
        stored(db, pg, [(1, "a")])
        token = pg.execute("SELECT token FROM millstream_sinks").fetchone()
        pg.execute("UPDATE millstream_sinks SET token = 'another'")
        db.execute("INSERT INTO items VALUES (2, 'b')")
        wait_until(lambda: shown(db)["error"], lambda: shown(db))
        assert rows(pg) == [(1, "a")]
        pg.execute("UPDATE millstream_sinks SET token = %s", token)
        db.execute("ALTER SINK s RESUME")
        stored(db, pg, [(1, "a"), (2, "b")])


def test_a_table_that_is_gone_is_not_made_again_without_its_rows(postgres, pg):
    with database(ITEMS, "INSERT INTO items VALUES (1, 'a')") as db:
        db.execute(create(postgres, retry_delay="10 milliseconds"))
        stored(db, pg, [(1, "a")])
        pg.execute("DROP TABLE stored")
        db.execute("INSERT INTO items VALUES (2, 'b')")
        wait_until(lambda: shown(db)["state"] == "failed", lambda: shown(db))
        db.execute("ALTER SINK s RESUME")
        wait_until(lambda: "is gone" in (shown(db)["error"] or ""), lambda: shown(db))
        assert "DROP the sink" in shown(db)["error"]
        db.execute("DROP SINK s")
        db.execute(create(postgres))
        stored(db, pg, [(1, "a"), (2, "b")])


@pytest.mark.parametrize(
    ("made", "options", "words"),
    [
        ("CREATE TABLE stored (id bigint PRIMARY KEY)", {}, "has no column v"),
        ("CREATE TABLE stored (id int PRIMARY KEY, v text)", {}, "id of public.stored is int4"),
        ("CREATE TABLE stored (id bigint, v text)", {}, "CREATE UNIQUE INDEX"),
        ("CREATE TABLE stored (id bigint PRIMARY KEY, v text, w int NOT NULL)", {}, "w of"),
        ("SELECT 1", {"create_table": "false"}, "there is no table public.stored"),
        ("SELECT 1", {"password": "wrong"}, "password authentication failed"),
        ("SELECT 1", {"table": "b.c"}, "write the table as schema.table"),
        ("SELECT 1", {"batch_rows": -1}, "batch_rows is '-1'"),
        ("SELECT 1", {"mode": "append"}, "use mode = 'upsert'"),
        ("SELECT 1", {"mod": "append"}, "did you mean mode?"),
    ],
)
def test_what_is_refused(postgres, pg, made, options, words):
    pg.execute(made)
    with database(ITEMS) as db:
        with pytest.raises((ConnectorError, InvalidOptionError, SqlOptionError)) as caught:
            db.execute(create(postgres, **options))
        assert words in str(caught.value)
        assert caught.value.hint


def test_a_table_that_cannot_be_created_is_refused_at_once(postgres, pg):
    with database(ITEMS) as db:
        with pytest.raises(ConnectorError, match='schema "nowhere" does not exist') as caught:
            db.execute(create(postgres).replace("public.stored", "nowhere.stored"))
        assert caught.value.hint == "create the schema, or give another one"
        assert not db.query("SHOW SINKS").fetchall()


def test_values_that_postgresql_refuses(postgres, pg):
    with database(ITEMS) as db:
        db.execute(create(postgres))
        db.insert("items", [(1, "with a \0")])
        wait_until(lambda: shown(db)["state"] == "failed", lambda: shown(db))
        assert "invalid byte sequence" in shown(db)["error"]
        assert db.query("SELECT COUNT(*) FROM items").fetchall() == [(1,)]  # the rest goes on
