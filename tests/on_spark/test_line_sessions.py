"""SESSION over joins and over rows that change: what a plain Python model gives, at each step."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta

import pytest

from millstream.errors import SqlUnsupportedError
from millstream.testing import Mirror

from .observing import rows_of, settle

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
GAP = timedelta(minutes=5)
SESSION = "SESSION(c.ts, INTERVAL '5 minutes')"
VIEWS = {
    "joined": "SELECT u.name, SESSION_START(c.ts) AS b, SESSION_END(c.ts) AS e, COUNT(*) AS n,"
    " SUM(c.v) AS s FROM clicks c JOIN users u ON c.who = u.id"
    f" WHERE c.v >= 0 GROUP BY u.name, {SESSION} HAVING COUNT(*) > 1",
    "renamed": "SELECT UPPER(name) AS who, WINDOW_START AS b, MAX(v) - MIN(v) AS d"
    " FROM (SELECT u.name, c.* FROM clicks c JOIN users u ON c.who = u.id) c"
    f" GROUP BY 1, {SESSION}",
    "all_of_them": f"SELECT SESSION_END(c.ts) AS e, COUNT(DISTINCT who) AS n, {SESSION}.start AS b"
    f" FROM clicks c GROUP BY {SESSION}",
    "by_alias": f"SELECT who % 2 AS odd, COUNT(*) AS n FROM clicks c GROUP BY odd, {SESSION}",
}


def sessions(rows, key):
    """The sessions of each key, in order: lists of rows, whose second field is the time."""
    by = defaultdict(list)
    for row in rows:
        if row[1] is not None:
            by[key(row)].append(row)
    found = []
    for name, own in by.items():
        own.sort(key=lambda row: row[1])
        session = [own[0]]
        for row in own[1:]:
            if row[1] - session[-1][1] > GAP:
                found.append((name, session))
                session = []
            session.append(row)
        found.append((name, session))
    return found


def answers(users, clicks):
    """What each view must have."""
    named = [(users[who], ts, who, v) for who, v, ts in clicks if who in users]
    plain = [(None, ts, who, v) for who, v, ts in clicks]
    positive = [row for row in named if row[3] >= 0]
    return {
        "joined": Counter(
            (name, own[0][1], own[-1][1] + GAP, len(own), sum(row[3] for row in own))
            for name, own in sessions(positive, lambda row: row[0])
            if len(own) > 1
        ),
        "renamed": Counter(
            (name, own[0][1], max(row[3] for row in own) - min(row[3] for row in own))
            for name, own in sessions(named, lambda row: row[0].upper())
        ),
        "all_of_them": Counter(
            (own[-1][1] + GAP, len({row[2] for row in own}), own[0][1])
            for _, own in sessions(plain, lambda _: None)
        ),
        "by_alias": Counter(
            (odd, len(own)) for odd, own in sessions(plain, lambda row: row[2] % 2)
        ),
    }


def test_sessions_over_joins_and_tables(db):
    chance = random.Random(3)
    db.execute("CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR)")
    db.execute("CREATE TABLE clicks (id INT PRIMARY KEY, who INT, v INT, ts TIMESTAMP)")
    for name, sql in VIEWS.items():
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {sql}")
    mirrors = {name: Mirror(db.subscribe(f"SELECT * FROM {name}")) for name in VIEWS}
    for step in range(16):
        for _ in range(chance.choice([1, 1, 12])):
            number, minute = chance.randrange(60), chance.randrange(90)
            row = (number, chance.randrange(6), chance.randrange(-1, 5))
            ts = NOON + timedelta(minutes=minute) if number else None
            if chance.random() < 0.3:
                db.execute("DELETE FROM clicks WHERE id = ?", [number])
            else:
                db.insert("clicks", [(*row, ts)], replace=True)
        db.insert("users", [(step % 5, f"u{chance.randrange(3)}")], replace=True)
        settle(db, *VIEWS)
        users = dict(db.query("SELECT id, name FROM users").fetchall())
        wanted = answers(users, db.query("SELECT who, v, ts FROM clicks").fetchall())
        for name in VIEWS:
            assert rows_of(db, name) == wanted[name], name
            assert mirrors[name].catch_up(db).rows == wanted[name], name


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        (f"SELECT COUNT(*) FROM c GROUP BY {SESSION}, TUMBLE(ts, INTERVAL '1 hour')", "another"),
        (f"SELECT (SELECT MAX(v) FROM c) AS m FROM c GROUP BY {SESSION}", "a subquery beside"),
        (f"SELECT COUNT(*) FROM c GROUP BY ROLLUP (v, {SESSION})", "SESSION"),
        (f"SELECT {SESSION} AS s FROM c JOIN c d ON c.id = d.id", "outside of GROUP BY"),
    ],
)
def test_what_sessions_refuse(db, sql, said):
    db.execute("CREATE TABLE c (id INT PRIMARY KEY, v INT, ts TIMESTAMP)")
    with pytest.raises(SqlUnsupportedError, match=said):
        db.execute(f"CREATE MATERIALIZED VIEW v AS {sql}")
