"""Views that work out what Python cannot hold: all else of them goes on, and every row is read."""

from __future__ import annotations

from datetime import date

import pytest

import millstream as ms
from millstream import errors
from millstream.testing import TIMEOUT

FAR = 5_000_000  # days: the year 15,659
VIEWS = {
    "rows": "SELECT id, DATE_ADD(d, n) AS far, UNHEX(x) AS bytes FROM s",
    "groups": "SELECT id, MAX(DATE_ADD(d, n)) AS far, LAST(CAST(UNHEX(x) AS VARCHAR)) AS word "
    "FROM s GROUP BY id",
    "counts": "SELECT DATE_ADD(d, n) AS far, COUNT(*) AS n FROM s GROUP BY DATE_ADD(d, n)",
}


def push(db, first, many):
    """Rows of which every tenth has a day, and a word, that Python cannot hold."""
    rows = [
        (n, date(1970, 1, 2), FAR if n % 10 == 3 else 0, "ff" if n % 10 == 3 else "41")
        for n in range(first, first + many)
    ]
    db.insert("s", rows)


def current(name, subscription):
    """What the changes have added up to, once that is all."""
    copy = {}
    while not is_all(name, copy):
        for change in subscription.recv(timeout=TIMEOUT):
            if change.op == "delete":
                copy.pop(change.row[0])
            else:
                copy[change.row[0]] = change.row
    return copy


def is_all(name, copy):
    if name == "counts":
        return sorted(row[1] for row in copy.values()) == [300, 2700]
    return len(copy) == 3000


def test_every_row_reaches_every_reader(tmp_path, spark):
    path = tmp_path / "db"
    with ms.open(path, spark=spark) as db:
        db.execute("CREATE SOURCE s (id BIGINT, d DATE, n INT, x VARCHAR)")
        for name, query in VIEWS.items():
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        subscriptions = {name: db.subscribe(f"SELECT * FROM {name}") for name in VIEWS}
        bus = db.changes("groups", include="after", start="earliest")
        push(db, 0, 5)  # few rows, handled as Python; then many, handled as Arrow
        for name in VIEWS:
            db.wait_for(name, timeout=TIMEOUT)
        push(db, 5, 2995)
        for name in VIEWS:
            db.wait_for(name, timeout=TIMEOUT)
        check(db, {name: current(name, each) for name, each in subscriptions.items()})
        events = {}
        while len(events) < 3000:
            event = bus.recv(TIMEOUT)
            events[event.after["id"]] = event.after
        assert isinstance(events[3]["far"], ms.Unreadable)
        assert isinstance(events[3]["word"], ms.Unreadable)
        assert events[4] == {"id": 4, "far": date(1970, 1, 2), "word": "A"}
        assert len(db.query("SHOW CHANGES FOR groups").fetchall()) >= 3000
    with ms.open(path, spark=spark) as db:
        for name in VIEWS:
            db.wait_for(name, timeout=TIMEOUT)
        opened = {name: db.subscribe(f"SELECT * FROM {name}") for name in VIEWS}
        check(db, {name: current(name, each) for name, each in opened.items()})


def check(db, copies):
    for name in ("rows", "groups"):
        copy = copies[name]
        assert copy[4][1] == date(1970, 1, 2)
        assert {n for n, row in copy.items() if isinstance(row[1], ms.Unreadable)} == set(
            range(3, 3000, 10)
        )
        assert copy[3][1].arrow.value == FAR + 1
    assert copies["groups"][4][2] == "A"
    assert isinstance(copies["groups"][3][2], ms.Unreadable)
    assert {row["error"] for row in db.query("SHOW VIEWS").to_pylist()} == {None}
    for name in VIEWS:
        result = db.query(f"SELECT * FROM {name}")
        assert result.to_arrow().num_rows == len(copies[name])
        with pytest.raises(errors.RowError):
            result.fetchall()
    assert len(db.query("SELECT id FROM groups").fetchall()) == 3000
