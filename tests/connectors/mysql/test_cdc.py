"""A table of MariaDB that is followed: snapshot, all kinds of changes, types, errors."""

import datetime
import threading
from decimal import Decimal

import pytest

import millstream as ms
from millstream.connectors.sources._mysql_binlog import effect, with_mysql_gtid
from millstream.errors import ConnectorError
from millstream.testing import Mirror, database, wait_until
from millstream.testing.connectors import SourceScenario, check_source

ORDERS = "CREATE TABLE orders (id BIGINT PRIMARY KEY, item VARCHAR(20), qty INT)"


def create(mariadb, name="o", columns="", **options):
    more = "".join(f", {option} = '{value}'" for option, value in options.items())
    return (
        f"CREATE TABLE {name} {columns} WITH (connector = 'mysql-cdc', url = '{mariadb.url}', "
        f"table = 'shop.orders'{more})"
    )


def shown(db, name="o"):
    return next(e for e in db.query("SHOW CONNECTORS").to_pylist() if e["name"] == name)


def streaming(db, name="o"):
    wait_until(
        lambda: "transactions" in (shown(db, name)["metrics"] or ""), lambda: shown(db, name)
    )


def same(db, my, columns="*", name="o"):
    def rows():
        try:
            return sorted(db.query(f"SELECT {columns} FROM {name}").fetchall(), key=repr)
        except ms.Error as error:  # a column that is still to come
            return error

    expected = sorted(my.execute(f"SELECT {columns} FROM shop.orders"), key=repr)
    wait_until(lambda: rows() == expected, lambda: f"{rows()} == {expected}: {shown(db, name)}")


def failed(db, *words, name="o"):
    state = wait_until(
        lambda: s if (s := shown(db, name))["state"] == "failed" else None,
        lambda: str(shown(db, name)),
    )
    assert all(word in state["error"] for word in words), state["error"]


def test_each_transaction_is_one_commit(mariadb, my):
    my.execute(ORDERS, "INSERT INTO orders SELECT seq, CONCAT('item ', seq), seq FROM seq_1_to_100")
    with database(create(mariadb, snapshot_rows=30)) as db:
        same(db, my)
        streaming(db)
        mirror = Mirror(db.subscribe("SELECT * FROM o"), key_columns=1)
        wait_until(lambda: shown(db)["batches"] == 4, "the snapshot, in four parts")
        my.execute(
            "BEGIN",
            "INSERT INTO orders VALUES (1000, 'new', 1), (1001, NULL, NULL)",
            "UPDATE orders SET qty = qty + 1 WHERE id <= 50",
            "DELETE FROM orders WHERE id BETWEEN 40 AND 60",
            "UPDATE orders SET id = id + 5000 WHERE id BETWEEN 90 AND 95",
            "COMMIT",
        )
        same(db, my)
        wait_until(lambda: shown(db)["batches"] > 4, "they are counted after the commit")
        assert shown(db)["batches"] == 5
        my.execute("BEGIN", "INSERT INTO orders VALUES (7777, 'never', 0)", "ROLLBACK")
        my.execute("CREATE TABLE other (id INT)", "INSERT INTO other VALUES (1)")
        my.execute("TRUNCATE TABLE orders")
        same(db, my)
        my.execute("INSERT INTO orders VALUES (2, 'c', 3)")
        same(db, my)
        mirror.catch_up(db)
        assert list(mirror.rows) == [(2, "c", 3)]


def test_rows_that_come_while_the_snapshot_is_read(mariadb, my):
    my.execute(ORDERS, "INSERT INTO orders SELECT seq, 'x', 0 FROM seq_1_to_2000")
    ending = threading.Event()

    def write():
        other, step = mariadb.connect(), 0
        while not ending.is_set():
            step += 1
            other.execute(
                f"UPDATE shop.orders SET qty = qty + 1 WHERE id % 100 = {step % 100}",
                f"INSERT INTO shop.orders VALUES ({10_000 + step}, 'y', 0)",
                f"DELETE FROM shop.orders WHERE id = {step}",
            )
        other.close()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with database(create(mariadb, snapshot_rows=200)) as db:
            streaming(db)
            wait_until(lambda: shown(db)["batches"] > 15, lambda: shown(db))
            ending.set()
            writer.join()
            same(db, my)
    finally:
        ending.set()
        writer.join()


def test_types_are_discovered(mariadb, my):
    my.execute("""CREATE TABLE orders (id INT UNSIGNED, k VARCHAR(9), PRIMARY KEY (k, id),
        d DECIMAL(10, 2), dt DATETIME(6), ts TIMESTAMP(3) NULL, b BLOB, bin BINARY(4),
        e ENUM('x', 'y'), st SET('a', 'b', 'c'), t TIME, y YEAR, f FLOAT, g DOUBLE,
        u BIGINT UNSIGNED, j JSON, ti TINYINT, da DATE, c CHAR(5))""")
    values = """'é', 1.5, '2024-01-02 03:04:05.000001', '2024-01-02 03:04:05.123', x'00ff', x'61',
        'x', 'c,a', '-12:34:56', 2024, 0.1, 0.1, 18446744073709551615, '{"a":1}', -1, '2024-02-29',
        'ab')"""
    my.execute(
        f"INSERT INTO orders VALUES (1, {values}", "INSERT INTO orders (id, k) VALUES (3, '')"
    )
    with database(create(mariadb)) as db:
        streaming(db)
        my.execute(
            f"INSERT INTO orders VALUES (2, {values}", "INSERT INTO orders (id, k) VALUES (4, '')"
        )
        wait_until(
            lambda: db.query("SELECT COUNT(*) FROM o").fetchall() == [(4,)], lambda: shown(db)
        )
        rows = {row["id"]: row for row in db.query("SELECT * FROM o").to_pylist()}
        types = [each["type"] for each in db.query("DESCRIBE o").to_pylist()]
    assert types == [
        "BIGINT", "VARCHAR", "DECIMAL(10, 2)", "TIMESTAMP", "TIMESTAMP", "BINARY", "BINARY",
        "VARCHAR", "VARCHAR", "INTERVAL", "INTEGER", "REAL", "DOUBLE", "DECIMAL(20, 0)", "VARCHAR",
        "TINYINT", "DATE", "VARCHAR",
    ]  # fmt: skip
    assert {**rows[1], "id": 2} == rows[2]  # the snapshot's values are those of the binary log
    assert {**rows[3], "id": 4} == rows[4]
    assert rows[1].pop("f") == pytest.approx(0.1)
    at = datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    assert list(rows[1].values()) == [
        1, "é", Decimal("1.50"), at.replace(microsecond=1), at.replace(microsecond=123000),
        b"\x00\xff", b"a\0\0\0", "x", "a,c", -datetime.timedelta(hours=12, minutes=34, seconds=56),
        2024, 0.1, Decimal(18446744073709551615), '{"a":1}', -1, datetime.date(2024, 2, 29), "ab",
    ]  # fmt: skip


def test_columns_that_are_added(mariadb, my, tmp_path):
    my.execute(ORDERS, "INSERT INTO orders VALUES (1, 'a', 1), (2, 'b', 2)")
    here = "(id BIGINT PRIMARY KEY, qty BIGINT)"
    with database(create(mariadb, columns=here), path=tmp_path) as db:
        same(db, my, "id, qty")
        my.execute("ALTER TABLE orders ADD note VARCHAR(9)", "UPDATE orders SET note = 'n'")
        same(db, my, "id, qty, note")
        my.execute("ALTER TABLE orders ADD state INT DEFAULT 7, ADD INDEX (qty)")
        same(db, my, "id, qty, note, state")
    my.execute("INSERT INTO orders VALUES (3, 'c', 3, NULL, NULL)")
    my.execute("ALTER TABLE orders ADD more INT", "UPDATE orders SET more = qty WHERE id > 1")
    my.execute("ALTER TABLE orders DROP COLUMN item", "DELETE FROM orders WHERE id = 2")
    with database(path=tmp_path) as db:
        same(db, my, "id, qty, note, state, more")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("ALTER TABLE orders MODIFY qty VARCHAR(9)", ("qty is varchar(9) there", "INTEGER")),
        ("ALTER TABLE orders DROP COLUMN qty", ("has no column qty",)),
        ("DROP TABLE orders", ("dropped, renamed or created again",)),
        ("RENAME TABLE orders TO others", ("dropped, renamed or created again",)),
        ("ALTER TABLE orders DROP PRIMARY KEY", ("no primary key",)),
    ],
)
def test_changes_of_the_table_that_do_not_fit(mariadb, my, change, words):
    my.execute(ORDERS, "INSERT INTO orders VALUES (1, 'a', 1)")
    with database(create(mariadb)) as db:
        same(db, my)
        streaming(db)
        my.execute(change, "CREATE TABLE IF NOT EXISTS orders (id INT)")
        my.execute("INSERT INTO orders (id) VALUES (2)")
        failed(db, *words)
        assert db.query("SELECT * FROM o").fetchall() == [(1, "a", 1)]  # the rest goes on


def test_binary_logs_that_are_gone(mariadb, my, tmp_path):
    my.execute(ORDERS, "INSERT INTO orders VALUES (1, 'a', 1)")
    with database(create(mariadb), path=tmp_path) as db:
        db.execute(create(mariadb, name="p", on_lost_binlog="snapshot"))
        same(db, my)
        same(db, my, name="p")
        streaming(db)
        streaming(db, "p")
    my.execute("DELETE FROM orders", "INSERT INTO orders VALUES (2, 'b', 2)", "FLUSH BINARY LOGS")
    my.execute("INSERT INTO orders VALUES (3, 'c', 3)", "FLUSH BINARY LOGS")
    last = my.execute("SHOW BINARY LOGS")[-1][0]

    def purged():
        my.execute(f"PURGE BINARY LOGS TO '{last}'")
        return len(my.execute("SHOW BINARY LOGS")) == 1

    wait_until(purged, "binary logs are gone")
    with database(path=tmp_path) as db:
        failed(db, "binary log cannot be read")
        same(db, my, name="p")


def test_values_that_cannot_be_held(mariadb, my):
    my.execute("CREATE TABLE orders (id INT PRIMARY KEY, at DATE)", "SET sql_mode = ''")
    my.execute("INSERT INTO orders VALUES (1, '0000-00-00')")
    with database(create(mariadb)) as db:
        db.execute(create(mariadb, name="n", invalid_values="null"))
        failed(db, "the column at has a value that DATE cannot hold")
        streaming(db, "n")
        my.execute("INSERT INTO orders VALUES (2, '0000-00-00'), (3, NULL)")
        wait_until(lambda: len(db.query("SELECT * FROM n").fetchall()) == 3, lambda: shown(db, "n"))
        assert db.query("SELECT at FROM n").fetchall() == [(None,)] * 3


@pytest.mark.parametrize(
    ("made", "options", "columns", "words"),
    [
        (ORDERS, {}, "(id BIGINT PRIMARY KEY, nope INT)", "has no column nope"),
        (ORDERS, {}, "(id INT PRIMARY KEY)", "the column id is bigint"),
        (ORDERS, {}, "(qty INT PRIMARY KEY)", "the key (qty) is no unique key"),
        (ORDERS, {"password": "wrong"}, "", "Access denied"),
        (ORDERS, {"ssl_ca": "/nowhere"}, "", "ssl_ca /nowhere cannot be used"),
        ("CREATE TABLE other (id INT)", {}, "", "there is no table shop.orders"),
        ("CREATE TABLE orders (id INT)", {}, "", "has no primary key"),
        (ORDERS + " ENGINE = MyISAM", {}, "", "has no transactions"),
        ("CREATE TABLE orders (id INT PRIMARY KEY, p POINT)", {}, "", "which cannot be followed"),
    ],
)
def test_what_is_refused(mariadb, my, made, options, columns, words):  # noqa: PLR0917
    my.execute(made)
    with database() as db:
        with pytest.raises(ConnectorError) as caught:
            db.execute(create(mariadb, columns=columns, **options))
        assert words in str(caught.value)
        assert "hunter2" not in str(caught.value)
        assert caught.value.hint
        assert not db.query("SHOW CONNECTORS").fetchall()


def test_parameters_in_the_url_are_not_passed_over(mariadb, my):
    my.execute(ORDERS)
    statement = create(mariadb).replace("/shop'", "/shop?ssl-mode=REQUIRED'")
    with database() as db, pytest.raises(ConnectorError, match="the url has parameters") as caught:
        db.execute(statement)
    assert "ssl_ca" in caught.value.hint


def test_no_bytes_are_bytes(mariadb, my):
    my.execute("CREATE TABLE orders (id INT PRIMARY KEY, a VARBINARY(9), b BINARY(2), c BLOB)")
    my.execute("INSERT INTO orders VALUES (1, '', '', '')")
    with database(create(mariadb)) as db:

        def same(ids):
            wanted = [(each, b"", b"\0\0", b"") for each in ids]
            return db.query("SELECT * FROM o ORDER BY id").fetchall() == wanted

        wait_until(lambda: same([1]), lambda: shown(db))
        streaming(db)
        my.execute("INSERT INTO orders VALUES (2, '', '', '')", "DELETE FROM orders WHERE id = 1")
        wait_until(lambda: same([2]), lambda: shown(db))


def test_names_in_backquotes(mariadb, my):
    my.execute("CREATE TABLE `a.b``ö` (id INT PRIMARY KEY)", "INSERT INTO `a.b``ö` VALUES (1)")
    for name, table in (("o", "shop.`a.b``ö`"), ("p", "`a.b``ö`")):
        with database(create(mariadb, name=name).replace("shop.orders", table)) as db:
            wait_until(lambda: db.query(f"SELECT * FROM {name}").fetchall() == [(1,)])
            my.execute("DELETE FROM `a.b``ö`")
            wait_until(lambda: not db.query(f"SELECT * FROM {name}").fetchall())
            my.execute("INSERT INTO `a.b``ö` VALUES (1)")


@pytest.mark.crash
def test_delivered_exactly_once(mariadb, my, tmp_path):
    my.execute(ORDERS)
    writers = [my]

    def restart():
        mariadb.restart()
        writers.append(mariadb.connect())
        writers[-1].execute("USE shop")

    def produce(numbers):
        for number in numbers:
            writers[-1].execute(
                "BEGIN",
                f"INSERT INTO orders VALUES ({number}, 'made', {number % 7})",
                f"UPDATE orders SET item = 'changed' WHERE id = {number - 5}",
                f"DELETE FROM orders WHERE id = {number - 20} AND id % 3 = 0",
                "COMMIT",
            )

    scenario = SourceScenario(
        create=create(mariadb, retry_delay="10 milliseconds"),
        name="o",
        produce=produce,
        row=lambda number: (number, "made", number % 7),
        expected=remaining,
        restart=restart,
    )
    check_source(scenario, tmp_path)
    for each in writers[1:]:
        each.close()


def remaining(count):
    """The orders after so many transactions, each of which adds, changes and deletes."""
    return [
        (number, "changed" if number < count - 5 else "made", number % 7)
        for number in range(count)
        if number % 3 or number >= count - 20
    ]


@pytest.mark.parametrize(
    ("sql", "done"),
    [
        ("truncate `orders` /* x */", "truncate"),
        ("TRUNCATE other.orders", "none"),
        ("DROP TABLE IF EXISTS `a`,`orders`", "gone"),
        ("DROP TEMPORARY TABLE orders", "none"),
        ("CREATE TABLE copy LIKE orders", "none"),
        ("CREATE OR REPLACE TABLE orders (id int)", "gone"),
        ("DROP DATABASE shop", "gone"),
        ("ALTER TABLE `shop`.`orders` TRUNCATE PARTITION p0", "rewritten"),
        ("CREATE INDEX i ON orders (id)", "altered"),
        ("UPDATE orders SET id = 1", "statement"),
        ("ALTER TABLE orders_2 ADD n INT", "none"),
    ],
)
def test_statements_in_the_binary_log(sql, done):
    assert effect(sql, "shop", "shop", "orders") == done


def test_gtids_of_mysql():
    position = ""
    for gtid in ("a:1", "a:3", "b:7", "a:2"):
        position = with_mysql_gtid(position, gtid)
    assert position == "a:1-3,b:7"
