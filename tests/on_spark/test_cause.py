"""``db.cause``: the rows that it gives are those that a change of a view on Spark comes to."""

from __future__ import annotations

import random

import pytest

import millstream as ms
from millstream.testing import TIMEOUT, wait_until

from ..seed import SEED  # noqa: TID252
from .observing import settle
from .test_bank import SETUP, VIEWS, push_some, transfers

pytestmark = pytest.mark.slow


def all_changes(db, view):
    """Every change of a view so far, from its log."""
    with db.subscribe(f"SELECT * FROM {view}", start="earliest") as subscription:
        db.flush()
        return waiting(subscription)


def waiting(subscription):
    """The changes that wait for a reader."""
    changes = []

    def is_up_to_date():
        while (batch := subscription.try_recv()) is not None:
            changes.extend(batch)
        return subscription.metrics.lag_rows == 0

    wait_until(is_up_to_date, "all changes")
    return changes


def amount(row):
    return 0 if row is None else row[1]


def check_credits(db, changes):
    """What a change adds to an account is what its cause has transferred there."""
    for change in changes:
        led = db.cause(change)
        assert set(led) == {"transfers"}
        assert all(each.lsn <= change.cause for each in led["transfers"])
        account = change.row[0]
        added = sum(each.row[2] for each in led["transfers"] if each.row[1] == account)
        assert amount(change.row) - amount(change.before) == added, (change, led)


def test_what_changes_a_sum_is_the_sum_of_its_cause(tmp_path, spark):
    dice = random.Random(SEED)
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute(SETUP)
        settle(db, *VIEWS)
        live = db.subscribe("SELECT * FROM credits", start="now")
        for _ in range(30):
            push_some(db, dice)
        settle(db, *VIEWS)
        check_credits(db, waiting(live))
        db.source("transfers").push_batch(transfers(dice, 3000))
        push_some(db, dice)
        settle(db, *VIEWS)
        check_credits(db, random.Random(SEED).sample(all_changes(db, "credits"), 40))
    with ms.open(tmp_path / "db", spark=spark) as db:
        push_some(db, dice)
        settle(db, *VIEWS)
        check_credits(db, random.Random(SEED).sample(all_changes(db, "credits"), 40))


def test_of_a_live_view_it_is_the_rows_of_one_commit(tmp_path, spark):
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute(SETUP)
        settle(db, *VIEWS)
        readers = {view: db.subscribe(f"SELECT * FROM {view}", start="now") for view in VIEWS}
        for number in range(5):
            rows = [(number, number + 1, 10), (number, 19, 5)]
            db.source("transfers").push_batch(rows)
            settle(db, *VIEWS)
            for view in VIEWS[:3]:  # balance is a join of two views; the total is always 0
                for change in readers[view].recv(timeout=TIMEOUT):
                    led = db.cause(change)["transfers"]
                    assert [each.row for each in led] == rows, (view, change)
                    assert led[-1].lsn == change.cause


def test_a_join_has_the_rows_of_all_its_logs(tmp_path, spark):
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute("""
            CREATE SOURCE orders (id INT, product INT);
            CREATE TABLE products (id INT PRIMARY KEY, name VARCHAR);
            CREATE MATERIALIZED VIEW named AS
                SELECT o.id, p.name FROM orders o JOIN products p ON o.product = p.id;
        """)
        settle(db, "named")
        named = db.subscribe("SELECT * FROM named", start="now")
        db.execute("INSERT INTO products VALUES (1, 'anvil')")
        settle(db, "named")
        db.insert("orders", [(100, 1)])
        [change] = named.recv(timeout=TIMEOUT)
        led = db.cause(change)
        assert {name: [each.row for each in rows] for name, rows in led.items()} == {
            "orders": [(100, 1)],
            "products": [],
        }
        db.execute("UPDATE products SET name = 'rope'")
        change = list(named.recv(timeout=TIMEOUT))[-1]
        led = db.cause(change)
        assert [(each.op, each.row) for each in led["products"]] == [("update", (1, "rope"))]
        assert led["orders"] == []


def test_a_window_that_closes_has_the_rows_since_the_last_one(tmp_path, spark):
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute("""
            CREATE SOURCE e (ts TIMESTAMP, n INT, WATERMARK FOR ts AS ts);
            CREATE MATERIALIZED VIEW w AS
                SELECT TUMBLE_START(ts, INTERVAL '1 minute') AS m, SUM(n) AS n FROM e
                GROUP BY TUMBLE(ts, INTERVAL '1 minute') EMIT ON WINDOW CLOSE;
            CREATE MATERIALIZED VIEW over_w AS SELECT n FROM w WHERE n > 0;
        """)
        settle(db, "w", "over_w")
        over_w = db.subscribe("SELECT * FROM over_w", start="now")
        for second, n in ((0, 1), (30, 2), (59, 3), (70, 4)):
            stamp = f"2024-01-01 00:{second // 60:02}:{second % 60:02}"
            db.execute(f"INSERT INTO e VALUES (TIMESTAMP '{stamp}', {n})")
            settle(db, "w", "over_w")
        [change] = over_w.recv(timeout=TIMEOUT)
        assert change.row == (6,)
        assert [each.row[1] for each in db.cause(change)["e"]] == [1, 2, 3, 4]
