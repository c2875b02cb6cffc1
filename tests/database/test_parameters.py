"""Parameters from the front door to the rows: whatever takes a text of SQL takes values for it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

import millstream as ms
from millstream.errors import SqlParameterError, SubscriptionExistsError
from millstream.testing import engine_of, wait_until

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
VALUES = {
    "BOOLEAN": (True, False),
    "TINYINT": (-128, 127),
    "BIGINT": (-(2**63), 2**63 - 1),
    "REAL": (0.5, float("-inf")),
    "DOUBLE": (1e-300, -0.1),
    "DECIMAL(10, 2)": (Decimal("-1.50"), Decimal(7)),
    "VARCHAR": ("it's \\ ? :x", "\0é🦆"),
    "BINARY": (b"\x00\xff'", b""),
    "DATE": (date(1, 1, 1), date(9999, 12, 31)),
    "TIMESTAMP": (NOON, NOON + timedelta(microseconds=1)),
    "INTERVAL": (timedelta(days=2), timedelta(microseconds=-1)),
}


@pytest.mark.parametrize("kind", VALUES)
def test_inserted_and_found_again(db, kind):
    one, two = VALUES[kind]
    db.execute(f"CREATE TABLE t (id BIGINT PRIMARY KEY, v {kind})")
    db.execute("INSERT INTO t VALUES (1, ?), (2, ?), (3, ?)", [one, two, None])
    assert db.query("SELECT v FROM t ORDER BY id").fetchall() == [(one,), (two,), (None,)]
    # In process, and by DuckDB.
    assert db.query("SELECT id FROM t WHERE v = ?", [two]).fetchall() == [(2,)]
    assert db.query("SELECT max(id) AS n FROM t WHERE v = :v", {"v": one}).fetchall() == [(1,)]
    assert db.query("SELECT sum(id) AS n FROM t WHERE v IN (?)", [[one, two]]).fetchall() == [(3,)]
    assert db.execute("UPDATE t SET v = :new WHERE v = :old", {"new": one, "old": two}).rowcount
    assert db.execute("DELETE FROM t WHERE v = ?", [one]).rowcount == 2


def test_every_style_takes_them(db, rows_of):
    db.execute("CREATE SOURCE s (n BIGINT, b VARCHAR)")
    seen, inline = [], []
    sql = "SELECT n FROM s WHERE b = ? AND n > 1"
    channel = db.subscribe(sql, ["x"])
    callback = db.subscribe_callback(sql, lambda batch: seen.extend(batch.rows), parameters=["x"])
    live = db.subscribe("LIVE SELECT n FROM s WHERE b = :b", {"b": "y"})
    db.subscribe_callback(
        sql, lambda batch: inline.extend(batch.rows), parameters=["x"], inline=True
    )
    stream = db.subscribe_stream(sql, ["x"])
    db.insert("s", [(1, "x"), (2, "x"), (3, "y")])
    assert rows_of(channel, 1) == [(2,)] == inline
    assert rows_of(live, 1) == [(3,)]
    wait_until(lambda: seen == [(2,)])
    assert wait_until(stream.try_recv).rows == [(2,)]
    assert "index on b" in db.explain(sql, ["x"])
    callback.cancel()


def test_equal_values_share_a_route(db):
    db.execute("CREATE SOURCE s (n BIGINT)")

    def routes():
        return len(engine_of(db).dispatcher.fan_out.routes("s"))

    kept = [db.subscribe("SELECT n FROM s WHERE n = ?", [7]) for _ in range(3)]
    kept += [db.subscribe("SELECT n FROM s WHERE n = :n", {"n": 7}), db.subscribe(kept[0].sql)]
    assert routes() == 1
    kept.append(db.subscribe("SELECT n FROM s WHERE n = ?", [8]))
    assert routes() == 2


def test_a_durable_name_belongs_to_a_query_with_its_values(db):
    db.execute("CREATE SOURCE s (n BIGINT)")
    with db.subscribe("SELECT n FROM s WHERE n > ?", [1], name="mine") as subscription:
        assert subscription.sql == "SELECT n FROM s WHERE n > 1"
    with db.subscribe("SELECT n FROM s WHERE n > ?", [1], name="mine"):
        pass
    with pytest.raises(SubscriptionExistsError):
        db.subscribe("SELECT n FROM s WHERE n > ?", [2], name="mine")
    shown = db.query("SHOW SUBSCRIPTIONS").to_pylist()
    assert [each["query"] for each in shown] == ["SELECT n FROM s WHERE n > 1"]


def test_nothing_of_a_text_with_a_wrong_count_is_run(db):
    with pytest.raises(SqlParameterError, match="got 1 value for 2 parameters"):
        db.execute(
            "CREATE SOURCE s (n BIGINT); INSERT INTO s VALUES (?); INSERT INTO s VALUES (?)", [1]
        )
    assert db.query("SHOW SOURCES").fetchall() == []


def test_a_value_is_never_read_as_sql(db):
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)")
    db.execute("INSERT INTO t VALUES (?, ?)", [1, "a"])
    for attack in ("' OR 1 = 1 --", "\\' OR 1 = 1 --", "a'; DROP TABLE t; --", "''", "\\"):
        assert db.query("SELECT id FROM t WHERE v = ?", [attack]).fetchall() == []
        assert db.query("SELECT count(*) AS n FROM t WHERE v = ?", [attack]).fetchall() == [(0,)]
        db.execute("UPDATE t SET v = ? WHERE id = 1", [attack])
        assert db.query("SELECT v FROM t").fetchall() == [(attack,)]
    with ms.open() as other, pytest.raises(ms.Error):
        other.query("SELECT * FROM :name", {"name": "t"})
