"""SESSION over joins and over rows that change: what a plain Python model gives, at each step."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta

import pytest

import millstream as ms
from millstream.errors import SqlUnsupportedError
from millstream.testing import TIMEOUT, Mirror, engine_of

from .observing import EPOCH, batches_of, rows_of, settle
from .test_operator_state import size_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
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


# ---- sessions of a table, whose rows change and disappear


def test_a_table_is_closed_and_opened_again(tmp_path, spark):
    """Rows in any order, many at the same time, join sessions, and part them when they go."""
    chance, rows, mirror = random.Random(11), {}, Mirror()
    for run in range(3):
        with ms.open(tmp_path / "db", spark=spark) as db:
            if not run:
                db.execute("CREATE TABLE c (id INT PRIMARY KEY, who INT, v INT, ts TIMESTAMP)")
                db.execute(
                    "CREATE MATERIALIZED VIEW v AS SELECT who, SESSION_START(ts) AS b, COUNT(*) AS"
                    f" n, MIN(v) AS low FROM c GROUP BY who, {SESSION.replace('c.ts', 'ts')}"
                )
            mirror.follow(db.subscribe("SELECT * FROM v", start=mirror.token if run else None))
            for _ in range(12):
                change_table(db, chance, rows)
                settle(db, "v")
                found = sessions([(who, ts, v) for who, v, ts in rows.values()], lambda row: row[0])
                wanted = Counter(
                    (who, own[0][1], len(own), min(row[2] for row in own)) for who, own in found
                )
                assert rows_of(db, "v") == wanted
                assert mirror.catch_up(db).rows == wanted


def change_table(db, chance, rows):
    """One commit: rows that come, change and go."""
    gone = [key for key in rows if chance.random() < 0.2]
    if gone and chance.random() < 0.5:
        db.execute(f"DELETE FROM c WHERE id IN ({', '.join(map(str, gone))})")
        for key in gone:
            del rows[key]
        return
    for number in chance.sample(range(80), chance.choice([1, 2, 15])):
        minute = chance.randrange(120)
        ts = NOON + minute * MINUTE if minute else None
        rows[number] = (chance.randrange(3), chance.randrange(9), ts)
    db.insert("c", [(number, *row) for number, row in rows.items()], replace=True)


# ---- sessions of a source, by its watermark


DELAY = timedelta(minutes=2)
SOURCE = (
    "CREATE SOURCE s (who INT, v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '2 minutes')"
)
BY_SESSION = f"FROM s GROUP BY who, {SESSION.replace('c.ts', 'ts')}"
EMITS = {
    "changes": ("EMIT CHANGES", 0),
    "changes_later": ("EMIT CHANGES ALLOW LATENESS INTERVAL '3 minutes'", 3),
    "close": ("EMIT ON WINDOW CLOSE", 0),
    "close_later": ("EMIT ON WINDOW CLOSE ALLOW LATENESS INTERVAL '3 minutes'", 3),
    "final": ("EMIT FINAL", 0),
    "final_later": ("EMIT FINAL ALLOW LATENESS INTERVAL '3 minutes'", 3),
}
"""EMIT, and for how many minutes rows may be late, by the names of views."""


def in_time(db, name):
    """The rows of the source that a view takes, how many are late, and the watermark."""
    lateness = EMITS[name][1] * MINUTE
    taken, late, mark = [], 0, None
    for rows, watermark in batches_of(db, "s"):
        for row in rows:
            is_late = mark is not None and row[2] is not None and row[2] + GAP <= mark - lateness
            late += is_late
            if not is_late:
                taken.append((row[0], row[2], row[1]))
        if watermark is not None:
            moment = EPOCH + timedelta(microseconds=watermark)
            mark = moment if mark is None else max(mark, moment)
    return taken, late, mark


def answer(who, own):
    return who, own[0][1], own[-1][1] + GAP, len(own), sum(row[2] for row in own)


def check_emitted(db, mirrors):
    settle(db, *EMITS)
    for name, (_, minutes) in EMITS.items():
        taken, late, mark = in_time(db, name)
        found = [answer(*each) for each in sessions(taken, lambda row: row[0])]
        if not name.startswith("changes"):  # a row that is in time may still come in the gap after
            found = [row for row in found if row[2] + GAP < mark - minutes * MINUTE]
        shown, wanted = rows_of(db, name), Counter(found)
        if name.startswith("close"):  # those that such a row may change have been shown, too
            shown &= wanted
        assert shown == wanted, name
        assert mirrors[name].catch_up(db).rows == rows_of(db, name), name
        assert engine_of(db).views[name].late_rows == late, name


def push_clicks(db, chance, at):
    """Some commits of rows, many of them behind; the time after them."""
    for _ in range(chance.choice([1, 3, 10])):
        rows = []
        for _ in range(chance.choice([1, 1, 4, 12])):
            at += chance.choice([0, 0, 1, 1, 2, 7]) * MINUTE
            back = chance.choice([0, 0, 0, 1, 2, 3, 5, 6, 9, 12, 40]) * MINUTE
            ts = at - back if chance.random() < 0.95 else None
            rows.append((chance.randrange(4), chance.randrange(9), ts))
        db.source("s").push_batch(rows)
        db.flush()
    return at


def test_every_emit_with_rows_that_are_late(tmp_path, spark):
    chance, at = random.Random(21), NOON
    mirrors = {name: Mirror() for name in EMITS}
    for run in range(3):
        with ms.open(tmp_path / "db", spark=spark) as db:
            if not run:
                db.execute(SOURCE)
                for name, (emit, _) in EMITS.items():
                    db.execute(
                        f"CREATE MATERIALIZED VIEW {name} AS SELECT who, SESSION_START(ts) AS b,"
                        f" SESSION_END(ts) AS e, COUNT(*) AS n, SUM(v) AS s {BY_SESSION} {emit}"
                    )
            for name, mirror in mirrors.items():
                start = mirror.token if run else None
                mirror.follow(db.subscribe(f"SELECT * FROM {name}", start=start))
            for _ in range(10):
                at = push_clicks(db, chance, at)
                check_emitted(db, mirrors)
            for name in ("final", "final_later"):
                batches = engine_of(db).log.read(name)
                assert all(batch.is_insert_only for batch in batches), name
            if run == 2:
                db.source("s").watermark(at + timedelta(days=1))
                check_emitted(db, mirrors)
                assert rows_of(db, "close_later") == rows_of(db, "final_later")
                late = [engine_of(db).views[name].late_rows for name in EMITS]
                assert late[0] == late[2] == late[4] > late[1] == late[3] == late[5] > 0


@pytest.mark.parametrize("minutes", [0, 3])
def test_final_comes_when_no_row_can_change_it(db, minutes):
    """A row at the end of a session still belongs to it; one just after it does not."""
    db.execute(SOURCE)
    db.execute(
        f"CREATE MATERIALIZED VIEW v AS SELECT who, COUNT(*) AS n {BY_SESSION}"
        f" EMIT FINAL ALLOW LATENESS INTERVAL '{minutes} minutes'"
    )
    source, closes = db.source("s"), NOON + GAP + minutes * MINUTE
    source.push((1, 1, NOON))
    source.watermark(closes)
    settle(db, "v")
    assert rows_of(db, "v") == Counter()
    source.push((1, 1, NOON + GAP))
    source.watermark(closes + timedelta(microseconds=1))
    settle(db, "v")
    assert rows_of(db, "v") == Counter()  # the row has made it longer
    source.watermark(closes + 2 * GAP)
    settle(db, "v")
    assert rows_of(db, "v") == Counter()
    source.watermark(closes + 2 * GAP + timedelta(microseconds=1))
    settle(db, "v")
    assert rows_of(db, "v") == Counter([(1, 2)])
    source.push((1, 1, NOON + 2 * GAP))  # late by a microsecond
    settle(db, "v")
    assert engine_of(db).views["v"].late_rows == 1
    assert rows_of(db, "v") == Counter([(1, 2)])


class TestState:
    """Rows and sessions expire with the watermark, whatever of them is selected."""

    VIEWS = {  # noqa: RUF012
        "neither": f"SELECT who, COUNT(*) AS n {BY_SESSION}",
        "starts": f"SELECT who, SESSION_START(ts) AS b, MAX(v) AS m {BY_SESSION}",
        "ends": f"SELECT SESSION_END(ts) AS e, COUNT(DISTINCT v) AS n {BY_SESSION}",
        "later": f"SELECT COUNT(*) AS n {BY_SESSION} ALLOW LATENESS INTERVAL '3 minutes'",
        "large": f"SELECT who, SUM(v) AS s {BY_SESSION} HAVING COUNT(*) > 2",
        "closed": f"SELECT who, COUNT(*) AS n {BY_SESSION} EMIT ON WINDOW CLOSE",
        "closed_ends": f"SELECT SESSION_END(ts), MIN(v) {BY_SESSION} EMIT ON WINDOW CLOSE",
        "final": f"SELECT who, COUNT(*) AS n {BY_SESSION} EMIT FINAL",
        "final_starts": f"SELECT SESSION_START(ts) AS b, LAST(v) AS l {BY_SESSION} EMIT FINAL",
        "every": f"SELECT who, COUNT(*) AS n {BY_SESSION} EMIT EVERY INTERVAL '10 milliseconds'",
    }

    def push(self, db, chance, at):
        """Sessions of twenty people, a hundred in all, of up to five rows each."""
        for _ in range(5):
            rows = [
                (who, chance.randrange(5), at + (place + chance.randrange(2)) * MINUTE)
                for who in range(20)
                for place in range(chance.randint(1, 5))
            ]
            chance.shuffle(rows)
            db.source("s").push_batch(rows)
            db.flush()
            at += 15 * MINUTE
        return at

    def test_stays_flat_over_thousands_of_sessions(self, tmp_path, spark):
        chance, at, sizes, kept = random.Random(5), NOON, [], []
        for run in range(3):
            with ms.open(tmp_path / "db", spark=spark) as db:
                if not run:
                    db.execute(SOURCE)
                    for name, sql in self.VIEWS.items():
                        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {sql}")
                else:
                    db.source("s").push((0, 0, at))
                    settle(db, *self.VIEWS)
                    kept.append({view: size_of(db, view)[1] for view in self.VIEWS})
                for _ in range(12 if run < 2 else 0):
                    at = self.push(db, chance, at)
                    settle(db, *self.VIEWS)
                    sizes.append({view: size_of(db, view)[0] for view in self.VIEWS})
                if run == 2:
                    assert len(db.query("SELECT * FROM starts")) > 2000
        for view in self.VIEWS:
            early, later = ([each[view] for each in part] for part in (sizes[:4], sizes[4:]))
            assert max(later) <= 1.2 * max(early), (view, early, later)
            first, last = (each[view] for each in kept)
            assert 0 < last <= 1.2 * first, (view, first, last)


@pytest.mark.parametrize("kind", ["MATERIALIZED VIEW", "STREAM"])
def test_no_update_without_a_difference(db, kind):
    """The end of a session is hidden where it is not selected: nobody sees it move."""
    queries = {
        "many": f"SELECT who, COUNT(*) > 1 AS many {BY_SESSION}",
        "most": f"SELECT who, SESSION_START(ts) AS b, MAX(v) AS m {BY_SESSION}",
    }
    db.execute(SOURCE)
    for name, sql in queries.items():
        db.execute(f"CREATE {kind} {name} AS {sql}")
    settle(db, *queries)
    asked = [*(f"SELECT * FROM {name}" for name in queries), *queries.values()]
    subscriptions = [db.subscribe(each) for each in asked]
    source = db.source("s")
    for minute in range(12):
        source.push((1, 5 if minute else 7, NOON + minute * MINUTE))
        lsn = db.flush()
        for each in engine_of(db).views:  # those that only subscriptions read, too
            each.wait_for(lsn, TIMEOUT)
    source.push_batch([(2, 7, NOON + 12 * MINUTE), (2, 5, NOON + 13 * MINUTE)])
    many = [("insert", (1, False)), ("delete", (1, False)), ("insert", (1, True))]
    wanted = {
        "many": [*many, ("insert", (2, True))],
        "most": [("insert", (1, NOON, 7)), ("insert", (2, NOON + 12 * MINUTE, 7))],
    }
    for subscription, query in zip(subscriptions, asked, strict=True):
        changes = []
        while not changes or changes[-1].row[0] != 2:
            changes += subscription.recv(timeout=TIMEOUT)
        name = "many" if "many" in query else "most"
        assert [(each.op, each.row) for each in changes] == wanted[name], query
