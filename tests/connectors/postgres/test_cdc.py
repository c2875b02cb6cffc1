"""A table of PostgreSQL that is followed: snapshot, all kinds of changes, types, errors."""

import datetime
import threading
from decimal import Decimal

import psycopg
import pytest

import millstream as ms
from millstream.connectors.sources._postgres_snapshot import SnapshotPhase
from millstream.errors import ConnectorError, ConnectorFailedError, SqlOptionError
from millstream.testing import Mirror, database, wait_until
from millstream.testing.connectors import SourceScenario, check_source

ORDERS = "CREATE TABLE orders (id bigint PRIMARY KEY, item text, qty int)"


def create(postgres, table="orders", name="o", columns="", **options):
    more = "".join(f", {option} = '{value}'" for option, value in options.items())
    return (
        f"CREATE TABLE {name} {columns} WITH (connector = 'postgres-cdc', url = '{postgres.url}', "
        f"table = 'public.{table}'{more})"
    )


def shown(db, name="o"):
    return next(e for e in db.query("SHOW CONNECTORS").to_pylist() if e["name"] == name)


def same(db, pg, columns="*", table="orders", name="o"):
    """Wait until the table here has the rows of PostgreSQL."""

    def rows():
        try:
            return sorted(db.query(f"SELECT {columns} FROM {name}").fetchall(), key=repr)
        except ms.Error as error:  # a column that is still to come
            return error

    expected = sorted(pg.execute(f"SELECT {columns} FROM {table}").fetchall(), key=repr)
    wait_until(lambda: rows() == expected, lambda: f"{rows()} == {expected}: {shown(db, name)}")


def streaming(db, name="o"):
    """Wait until the snapshot is over."""
    wait_until(
        lambda: "transactions" in (shown(db, name)["metrics"] or ""), lambda: shown(db, name)
    )


def free(pg):
    """Wait until the server has seen that the connection of a slot was closed."""
    used = "SELECT 1 FROM pg_replication_slots WHERE active"
    wait_until(lambda: not pg.execute(used).fetchall(), "a slot that is free")


def failed(db, *words, name="o"):
    """Wait until the connector has stopped, with an error that has some words."""
    state = wait_until(
        lambda: s if (s := shown(db, name))["state"] == "failed" else None,
        lambda: str(shown(db, name)),
    )
    assert all(word in state["error"] for word in words), state["error"]


def test_each_transaction_is_one_commit(postgres, pg):
    pg.execute(ORDERS)
    pg.execute("INSERT INTO orders SELECT i, 'item ' || i, i FROM generate_series(1, 100) i")
    with database(create(postgres, snapshot_rows=30)) as db:
        same(db, pg)
        mirror = Mirror(db.subscribe("SELECT * FROM o"), key_columns=1)
        wait_until(lambda: shown(db)["batches"] == 4, "the snapshot, in four parts")
        with pg.transaction():
            pg.execute("INSERT INTO orders VALUES (1000, 'new', 1), (1001, NULL, NULL)")
            pg.execute("UPDATE orders SET qty = qty + 1 WHERE id <= 50")
            pg.execute("DELETE FROM orders WHERE id BETWEEN 40 AND 60")
            pg.execute("UPDATE orders SET id = id + 5000 WHERE id BETWEEN 90 AND 95")
            pg.execute("UPDATE orders SET id = 5090 WHERE id = 1 AND false")
        same(db, pg)
        wait_until(lambda: shown(db)["batches"] > 4, "they are counted after the commit")
        assert shown(db)["batches"] == 5
        with pg.transaction():
            pg.execute("INSERT INTO orders VALUES (7777, 'never', 0)")
            pg.execute("SELECT pg_logical_emit_message(true, 'prefix', 'content')")
            raise psycopg.Rollback
        pg.execute("TRUNCATE orders")
        same(db, pg)
        with pg.transaction():
            pg.execute("INSERT INTO orders VALUES (1, 'a', 1), (2, 'b', 2)")
            pg.execute("TRUNCATE orders")
            pg.execute("INSERT INTO orders VALUES (2, 'c', 3)")
        same(db, pg)
        mirror.catch_up(db)
        assert list(mirror.rows) == [(2, "c", 3)]


def test_rows_that_come_while_the_snapshot_is_read(postgres, pg):
    pg.execute(ORDERS)
    pg.execute("INSERT INTO orders SELECT i, 'x', 0 FROM generate_series(1, 3000) i")
    ending = threading.Event()

    def write():
        with postgres.connect() as other:
            step = 0
            while not ending.is_set():
                step += 1
                other.execute("UPDATE orders SET qty = qty + 1 WHERE id %% 100 = %s", [step % 100])
                other.execute("INSERT INTO orders VALUES (%s, 'y', 0)", [10_000 + step])
                other.execute("DELETE FROM orders WHERE id = %s", [step])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with database(create(postgres, snapshot_rows=200)) as db:
            wait_until(lambda: '"transactions": 2' in (shown(db)["metrics"] or ""), "the stream")
            ending.set()
            writer.join()
            same(db, pg)
    finally:
        ending.set()
        writer.join()


def test_a_snapshot_that_is_interrupted(postgres, pg, monkeypatch):
    """What had come of it, and is there no more, goes when it begins anew."""
    pg.execute(ORDERS)
    pg.execute("INSERT INTO orders SELECT i, 'x', 0 FROM generate_series(1, 100) i")
    real, delivered, interrupted = SnapshotPhase.read, [], threading.Event()

    def read(self, timeout):
        if len(delivered) == 2 and not interrupted.is_set():
            pg.execute("DELETE FROM orders WHERE id % 2 = 0")
            interrupted.set()
            raise ConnectionError("a failure that a test makes")
        delivery = real(self, timeout)
        if delivery is not None:
            delivered.append(delivery)
        return delivery

    monkeypatch.setattr(SnapshotPhase, "read", read)
    with database(create(postgres, snapshot_rows=30, retry_delay="10 milliseconds")) as db:
        assert interrupted.wait(30)
        same(db, pg)
        assert delivered[0].rows.num_rows == 30


def test_types_are_discovered(postgres, pg):
    pg.execute("CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE DOMAIN price AS numeric(8, 3)")
    pg.execute("""CREATE TABLE orders (
        k1 int, "K2" text, PRIMARY KEY ("K2", k1), s smallint, n numeric, n2 numeric(10, 2),
        p price, f real, d double precision, b boolean, day date, at timestamptz,
        plain timestamp, len interval, raw bytea, u uuid, j jsonb, m mood, list int[],
        texts text[], c char(3), t time, dbl int GENERATED
        ALWAYS AS (k1 * 2) STORED)""")  # fmt: skip
    insert = """INSERT INTO orders VALUES (%s, 'é "x",\n', -7, 1.5, 12.34, 1.125, 0.1, 'NaN', true,
        '2024-02-29', '2024-01-01 12:00:00.000001+02', '1999-12-31 23:59:59', '-1 day 02:03:04.5',
        '\\x00ff', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{"a": [1]}', 'happy', '{1,NULL,3}',
        '{"a,b","c\\"d",NULL,"NULL",""}', 'ab', '12:34')"""
    pg.execute(insert, [1])
    pg.execute("""INSERT INTO orders (k1, "K2") VALUES (9, '')""")
    with database(create(postgres)) as db:
        wait_until(
            lambda: db.query("SELECT COUNT(*) FROM o").fetchall() == [(2,)], lambda: shown(db)
        )
        pg.execute(insert, [2])
        pg.execute("""INSERT INTO orders (k1, "K2") VALUES (10, '')""")
        wait_until(
            lambda: db.query("SELECT COUNT(*) FROM o").fetchall() == [(4,)], lambda: shown(db)
        )
        types = {e["column"]: e["type"] for e in db.query("DESCRIBE o").to_pylist()}
        rows = {row["k1"]: row for row in db.query("SELECT * FROM o").to_pylist()}
    assert types == {
        "k1": "INTEGER", "K2": "VARCHAR", "s": "SMALLINT", "n": "DECIMAL(38, 18)",
        "n2": "DECIMAL(10, 2)", "p": "DECIMAL(8, 3)", "f": "REAL", "d": "DOUBLE", "b": "BOOLEAN",
        "day": "DATE", "at": "TIMESTAMP", "plain": "TIMESTAMP", "len": "INTERVAL", "raw": "BINARY",
        "u": "VARCHAR", "j": "VARCHAR", "m": "VARCHAR", "list": "ARRAY<INTEGER>",
        "texts": "ARRAY<VARCHAR>", "c": "VARCHAR", "t": "VARCHAR",
    }  # fmt: skip
    utc = datetime.UTC
    assert repr({**rows[1], "k1": 2}) == repr(rows[2])  # the snapshot's values are the stream's
    assert {**rows[9], "k1": 10} == rows[10]
    assert set(rows[9].values()) == {9, "", None}
    assert repr(rows[1].pop("d")) == "nan"
    assert rows[1].pop("f") == pytest.approx(0.1)
    assert rows[1] == {
        "k1": 1, "K2": 'é "x",\n', "s": -7, "n": Decimal("1.5"), "n2": Decimal("12.34"),
        "p": Decimal("1.125"), "b": True, "day": datetime.date(2024, 2, 29),
        "at": datetime.datetime(2024, 1, 1, 10, 0, 0, 1, utc),
        "plain": datetime.datetime(1999, 12, 31, 23, 59, 59, tzinfo=utc),
        "len": datetime.timedelta(days=-1, seconds=7384, microseconds=500_000), "raw": b"\x00\xff",
        "u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "j": '{"a": [1]}', "m": "happy",
        "list": [1, None, 3], "texts": ["a,b", 'c"d', None, "NULL", ""], "c": "ab ",
        "t": "12:34:00",
    }  # fmt: skip


def test_large_values_that_an_update_does_not_send(postgres, pg):
    pg.execute("CREATE TABLE orders (id int PRIMARY KEY, big text, n int)")
    pg.execute("ALTER TABLE orders ALTER big SET STORAGE external")
    pg.execute("INSERT INTO orders VALUES (1, repeat('x', 9000), 0), (2, repeat('y', 9000), 0)")
    with database(create(postgres)) as db:
        same(db, pg)
        pg.execute("UPDATE orders SET n = 1 WHERE id = 1")
        pg.execute("UPDATE orders SET id = 3 WHERE id = 2")
        same(db, pg)
        with pg.transaction():
            pg.execute("UPDATE orders SET id = 4, n = 7 WHERE id = 3")
            pg.execute("UPDATE orders SET n = 8 WHERE id = 4")
            pg.execute("INSERT INTO orders VALUES (5, repeat('z', 9000), 0)")
            pg.execute("UPDATE orders SET n = 9 WHERE id = 5")
        same(db, pg)
        pg.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
        pg.execute("UPDATE orders SET n = 2 WHERE id = 1")
        pg.execute("DELETE FROM orders WHERE id = 5")
        same(db, pg)


def test_columns_that_are_added(postgres, pg):
    pg.execute(ORDERS + "; INSERT INTO orders VALUES (1, 'a', 1), (2, 'b', 2)")
    with database(create(postgres, columns="(id BIGINT PRIMARY KEY, qty BIGINT)")) as db:
        same(db, pg, "id, qty")
        with pg.transaction():
            pg.execute("INSERT INTO orders VALUES (3, 'c', 3)")
            pg.execute("ALTER TABLE orders ADD note text")
            pg.execute("UPDATE orders SET note = 'n', qty = 9 WHERE id = 1")
        same(db, pg, "id, qty, note")
        # rows that were there have the default, which no message says: all rows are read again
        pg.execute("ALTER TABLE orders ADD state text DEFAULT 'open'")
        pg.execute("INSERT INTO orders VALUES (4)")
        same(db, pg, "id, qty, note, state")
        pg.execute("ALTER TABLE orders DROP item")  # was left out
        pg.execute("UPDATE orders SET qty = 10 WHERE id = 1")
        same(db, pg, "id, qty, note, state")
        assert db.query("DESCRIBE o").to_arrow()["column"].to_pylist() == [
            "id",
            "qty",
            "note",
            "state",
        ]


def test_columns_that_change_while_nobody_reads(postgres, pg, tmp_path):
    pg.execute(ORDERS + "; INSERT INTO orders VALUES (1, 'a', 1)")
    with database(
        create(postgres, columns="(id BIGINT PRIMARY KEY, qty BIGINT)"), path=tmp_path
    ) as db:
        same(db, pg, "id, qty")
    pg.execute("ALTER TABLE orders ALTER qty TYPE bigint USING qty * 100, ADD more int")
    pg.execute("INSERT INTO orders VALUES (2, 'b', 2, 5)")
    with database(path=tmp_path) as db:
        same(db, pg, "id, qty, more")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("ALTER TABLE orders ALTER qty TYPE text", ("qty is text", "does not fit INTEGER")),
        ("ALTER TABLE orders DROP qty", ("does not send a column qty", "CREATE it anew")),
        ("ALTER TABLE orders REPLICA IDENTITY NOTHING", ()),
        ("ALTER TABLE orders DROP CONSTRAINT orders_pkey", ()),
    ],
)
def test_changes_of_the_table_that_do_not_fit(postgres, pg, change, words):
    pg.execute(ORDERS + "; INSERT INTO orders VALUES (1, 'a', 1)")
    with database(create(postgres)) as db:
        same(db, pg)
        pg.execute(change)
        pg.execute("INSERT INTO orders (id) VALUES (2)")
        failed(db, *words)
        assert db.query("SELECT * FROM o").fetchall() == [(1, "a", 1)]  # the rest goes on


def test_a_table_that_is_gone(postgres, pg, monkeypatch):
    monkeypatch.setattr("millstream.connectors.sources._postgres_stream.WATCH_SECONDS", 0.05)
    pg.execute(ORDERS)
    with database(create(postgres)) as db:
        streaming(db)
        pg.execute("DROP TABLE orders")
        failed(db, "there is no table public.orders")
        pg.execute(ORDERS)
        db.execute("ALTER TABLE o RESUME")
        failed(db, "was dropped and created again")


def test_a_lost_slot(postgres, pg, tmp_path):
    pg.execute(ORDERS + "; INSERT INTO orders VALUES (1, 'a', 1)")
    with database(create(postgres), path=tmp_path) as db:
        db.execute(create(postgres, name="p", on_lost_slot="snapshot"))
        same(db, pg)
        same(db, pg, name="p")
    free(pg)
    pg.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    pg.execute("DELETE FROM orders; INSERT INTO orders VALUES (2, 'b', 2)")
    with database(path=tmp_path) as db:
        failed(db, "replication slot", "is gone", "CREATE it anew")
        same(db, pg, name="p")


def test_a_slot_that_has_run_ahead(postgres, pg, tmp_path):
    """As after a backup of the directory was put back."""
    pg.execute(ORDERS + "; INSERT INTO orders VALUES (1, 'a', 1)")
    with database(create(postgres), path=tmp_path) as db:
        same(db, pg)
    free(pg)
    pg.execute("INSERT INTO orders VALUES (2, 'b', 2)")
    pg.execute(
        "SELECT pg_replication_slot_advance(slot_name, pg_current_wal_lsn()) "
        "FROM pg_replication_slots"
    )
    with database(path=tmp_path) as db:
        failed(db, "changes are here only up to")


def test_a_slot_that_holds_too_much(postgres, pg, monkeypatch):
    monkeypatch.setattr("millstream.connectors.sources._postgres_stream.WATCH_SECONDS", 0.05)
    pg.execute(ORDERS)
    with database(create(postgres, max_slot_lag="1 MB")) as db:
        streaming(db)
        db.execute("ALTER TABLE o PAUSE")
        pg.execute(
            "INSERT INTO orders SELECT i, repeat('x', 100), i FROM generate_series(1, 20000) i"
        )
        db.execute("ALTER TABLE o RESUME")
        failed(db, "more than max_slot_lag")
        assert not pg.execute("SELECT * FROM pg_replication_slots").fetchall()


def test_wal_of_other_tables_is_released(postgres, pg, monkeypatch):
    monkeypatch.setattr("millstream.connectors.sources._postgres_stream.IDLE_SECONDS", 0.05)
    pg.execute(ORDERS + "; CREATE TABLE others (n int)")
    with database(create(postgres)) as db:
        streaming(db)
        pg.execute("INSERT INTO others SELECT generate_series(1, 1000)")
        (wanted,) = pg.execute("SELECT pg_current_wal_lsn()").fetchone()
        confirmed = "SELECT confirmed_flush_lsn >= %s FROM pg_replication_slots"
        wait_until(lambda: pg.execute(confirmed, [wanted]).fetchone() == (True,), lambda: shown(db))


def test_values_that_cannot_be_held(postgres, pg):
    pg.execute("CREATE TABLE orders (id int PRIMARY KEY, at timestamptz)")
    pg.execute("INSERT INTO orders VALUES (1, 'infinity')")
    with database(create(postgres)) as db:
        db.execute(create(postgres, name="n", invalid_values="null"))
        db.execute(create(postgres, name="v", columns="(id INT PRIMARY KEY, at VARCHAR)"))
        failed(db, "the column at has the value infinity, which TIMESTAMP cannot hold")
        pg.execute("INSERT INTO orders VALUES (2, '0044-03-15 BC')")
        wait_until(lambda: len(db.query("SELECT * FROM v").fetchall()) == 2, lambda: shown(db, "v"))
        wait_until(lambda: len(db.query("SELECT * FROM n").fetchall()) == 2, lambda: shown(db, "n"))
        assert db.query("SELECT at FROM n").fetchall() == [(None,), (None,)]
        assert sorted(db.query("SELECT at FROM v").fetchall()) == [
            ("0044-03-15 00:00:00+00 BC",),
            ("infinity",),
        ]


def test_a_publication_that_is_given(postgres, pg):
    pg.execute(ORDERS + "; CREATE TABLE parts (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)")
    pg.execute("CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10)")
    pg.execute("CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (10) TO (20)")
    pg.execute("INSERT INTO parts VALUES (1, 'a'), (11, 'b')")
    pg.execute(
        "CREATE PUBLICATION p FOR TABLE orders, parts WITH (publish_via_partition_root = true)"
    )
    with database(create(postgres, table="parts", publication="p")) as db:
        db.execute(create(postgres, name="q", publication="p"))
        same(db, pg, table="parts")
        pg.execute("INSERT INTO orders VALUES (5, 'x', 1); INSERT INTO parts VALUES (12, 'c')")
        pg.execute("UPDATE parts SET id = 13 WHERE id = 1")
        same(db, pg, table="parts")
        same(db, pg, name="q")
        db.execute("DROP TABLE o")
        db.execute("DROP TABLE q")
    assert pg.execute("SELECT pubname FROM pg_publication").fetchall() == [("p",)]
    assert not pg.execute("SELECT * FROM pg_replication_slots").fetchall()


def test_what_was_made_is_removed(postgres, pg):
    pg.execute(ORDERS)
    with database(create(postgres)) as db:
        streaming(db)
        assert pg.execute(
            "SELECT slot_name, pubname FROM pg_replication_slots, pg_publication"
        ).fetchall()
        db.execute("DROP TABLE o")
    assert not pg.execute("SELECT slot_name FROM pg_replication_slots").fetchall()
    assert not pg.execute("SELECT pubname FROM pg_publication").fetchall()


PUBLISHED = ORDERS + "; CREATE PUBLICATION p"
REFUSED = [
    (ORDERS, {}, "(id BIGINT PRIMARY KEY, nope INT)", "PostgreSQL does not send a column nope"),
    (ORDERS, {}, "(id INT PRIMARY KEY)", "the column id is int8 in PostgreSQL, which does not fit"),
    (ORDERS, {}, "(qty INT PRIMARY KEY)", "the key (qty) is not one"),
    (ORDERS, {"publication": "nope"}, "", "there is no publication nope"),
    (ORDERS, {"password": "wrong"}, "", "password authentication failed"),
    (ORDERS, {"slot": "Bad name"}, "", "'Bad name' cannot be the name of a replication slot"),
    (ORDERS, {"snapshot_rows": 0}, "", "snapshot_rows is '0'"),
    ("CREATE TABLE other (id int)", {}, "", "there is no table public.orders"),
    ("CREATE TABLE orders (id int)", {}, "", "REPLICA IDENTITY USING INDEX"),
    ("CREATE VIEW orders AS SELECT 1 AS id", {}, "", "is no table"),
    (PUBLISHED + " FOR TABLE orders WHERE (qty > 1)", {"publication": "p"}, "", "has only a part"),
    (PUBLISHED, {"publication": "p"}, "", "does not have the table"),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(postgres, pg, case):
    made, options, columns, words = case
    pg.execute(made)
    with database() as db:
        with pytest.raises((ConnectorError, SqlOptionError)) as caught:
            db.execute(create(postgres, columns=columns, **options))
        assert words in str(caught.value)
        assert "hunter2" not in str(caught.value)
        assert caught.value.hint
        assert not db.query("SHOW CONNECTORS").fetchall()
    assert not pg.execute("SELECT * FROM pg_replication_slots").fetchall()


def test_slots_and_publications_of_others_are_left_alone(postgres, pg):
    pg.execute(ORDERS + "; CREATE PUBLICATION second FOR TABLE orders")
    pg.execute("SELECT pg_create_logical_replication_slot('first', 'pgoutput')")
    with database() as db:
        for slot in ("first", "second"):
            with pytest.raises(ConnectorFailedError, match=f"{slot} already") as caught:
                db.execute(create(postgres, slot=slot))
            assert "another name" in caught.value.hint
    assert pg.execute("SELECT slot_name FROM pg_replication_slots").fetchall() == [("first",)]
    assert pg.execute("SELECT pubname FROM pg_publication").fetchall() == [("second",)]


def test_a_server_that_restarts(postgres, pg, tmp_path):
    pg.execute(ORDERS + "; CREATE TABLE other (n int); INSERT INTO orders VALUES (1, 'a', 1)")
    with database(create(postgres, retry_delay="10 milliseconds")) as db:
        same(db, pg)
        pg.execute("INSERT INTO orders VALUES (2, 'b', 2)")
        same(db, pg)
        # The server does not shut down before WAL without a row of ours is confirmed, too.
        pg.execute("INSERT INTO other VALUES (1)")
        postgres.restart()
        with postgres.connect() as again:
            again.execute("INSERT INTO orders VALUES (3, 'c', 3)")
            same(db, again)
        assert shown(db)["restarts"] > 0


def test_a_server_that_shuts_down_does_not_wait_for_us(postgres, pg):
    pg.execute(ORDERS + "; INSERT INTO orders VALUES (1, 'a', 1); CREATE TABLE other (id int)")
    with database(create(postgres, retry_delay="10 milliseconds")) as db:
        same(db, pg)
        pg.execute("INSERT INTO other SELECT generate_series(1, 1000)")
        pg.close()
        try:
            postgres.stop(timeout=15)  # it asks whether the WAL of the other table is stored here
        finally:
            postgres.start()
        with postgres.connect() as again:
            again.execute("INSERT INTO orders VALUES (2, 'b', 2)")
            same(db, again)


@pytest.mark.crash
def test_delivered_exactly_once(postgres, pg, tmp_path):
    pg.execute(ORDERS)

    def produce(numbers):
        with postgres.connect() as writer:
            for number in numbers:
                with writer.transaction():
                    writer.execute(f"INSERT INTO orders VALUES ({number}, 'made', {number % 7})")
                    writer.execute(f"UPDATE orders SET item = 'changed' WHERE id = {number - 5}")
                    writer.execute(f"DELETE FROM orders WHERE id = {number - 20} AND id % 3 = 0")

    scenario = SourceScenario(
        create=create(postgres, retry_delay="10 milliseconds"),
        name="o",
        produce=produce,
        row=lambda number: (number, "made", number % 7),
        expected=remaining,
        restart=postgres.restart,
    )
    check_source(scenario, tmp_path)


def remaining(count):
    """The orders after so many transactions, each of which adds, changes and deletes."""
    return [
        (number, "changed" if number < count - 5 else "made", number % 7)
        for number in range(count)
        if number % 3 or number >= count - 20
    ]
