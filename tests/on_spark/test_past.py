"""AS OF: what views were at any LSN is what plain Spark gives over the rows up to that LSN."""

from __future__ import annotations

import random
import threading
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

import millstream as ms
from millstream.errors import ExpressionError, SqlUnsupportedError, ViewFailedError
from millstream.model import Schema
from millstream.testing import TIMEOUT, Mirror, engine_of

from .exact import Plain, bag
from .observing import rows_of, settle

SCHEMAS = {
    "s": Schema.of(k="INTEGER", n="INTEGER", x="BIGINT"),
    "r": Schema.of(k="INTEGER", m="INTEGER"),
    "t": Schema.of(id="INTEGER", k="INTEGER", w="INTEGER"),
}
CREATE = (
    "CREATE SOURCE s (k INT, n INT, x BIGINT); CREATE SOURCE r (k INT, m INT);"
    "CREATE TABLE t (id INT PRIMARY KEY, k INT, w INT)"
)
VIEWS = {
    "kept": "SELECT k, n FROM s WHERE n > 3",
    "hashed": "SELECT id, md5(CAST(w AS STRING)) AS h FROM t",
    "counted": "SELECT k, COUNT(*) AS c, SUM(x) AS x, MAX(n) AS h FROM s GROUP BY k",
    "total": "SELECT COUNT(*) AS c, SUM(x) AS x FROM s",
    "joined": "SELECT t.id, s.n, t.w FROM s JOIN t ON s.k = t.k",
    "sums": "SELECT t.k, SUM(s.n * t.w) AS v FROM t LEFT JOIN s ON s.k = t.k GROUP BY t.k",
    "running": "SELECT k, n, SUM(x) OVER (PARTITION BY k ORDER BY n) AS sum FROM s",
    "newest": "SELECT k, n FROM s QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY n DESC) = 1",
    "first": "SELECT n, x FROM s ORDER BY n DESC LIMIT 3",
    "missing": "SELECT k FROM t WHERE k NOT IN (SELECT k FROM r WHERE k IS NOT NULL)",
    "united": "SELECT k, n FROM s UNION ALL SELECT k, m FROM r",
    "pairs": "SELECT a.n, b.n AS m FROM s a JOIN s b ON a.k = b.k AND a.n < b.n",
}
OVER_VIEWS = {
    "again": ("SELECT c, COUNT(*) AS m FROM counted GROUP BY c", "counted"),
    "both": ("SELECT t.id, counted.c FROM t JOIN counted ON t.k = counted.k", "counted"),
    "small": ("SELECT k, n FROM kept WHERE n < 9", "kept"),
    "folded": ("SELECT MAX(v) AS v, COUNT(*) AS c FROM sums", "sums"),
}


def expanded(view):
    """A view over a view as plain Spark can answer it."""
    select, read = OVER_VIEWS[view]
    return f"WITH {read} AS ({VIEWS[read]}) {select}"


class History:
    """Random changes of two sources and a table, and the rows that each had at any LSN."""

    def __init__(self, db, seed):
        self.db = db
        self._random = random.Random(seed)
        self._n = 0
        self.changes = {name: [] for name in SCHEMAS}

    def step(self):
        db, draw = self.db, self._random.randrange
        what = draw(6)
        if what < 2:
            db.insert("s", [self._row() for _ in range(draw(1, 6))])
        elif what == 2:
            db.insert("r", [(draw(4) or None, draw(9))])
        elif what == 3:
            db.insert("t", [(draw(6), draw(4), draw(9))], replace=True)
        elif what == 4:
            db.execute("UPDATE t SET w = w + 1 WHERE k = ?", [draw(4)])
        else:
            db.execute("DELETE FROM t WHERE id = ?", [draw(6)])

    def _row(self):
        self._n += 1
        return (self._random.randrange(4), self._n * 7 % 1009, self._random.randrange(100))

    def read(self):
        """Learn from the log what was committed, and at which LSN."""
        for name in SCHEMAS:
            found = []
            for batch in engine_of(self.db).log.read(name):
                found += zip(batch.lsns, batch.rows, batch.weights, strict=True)
            self.changes[name] = found

    def give(self, plain, lsn):
        """Let plain Spark read what there was at an LSN."""
        for name, changes in self.changes.items():
            rows = Counter()
            for at, row, weight in changes:
                if at <= lsn:
                    rows[row] += weight
            assert min(rows.values(), default=0) >= 0
            plain.give(name, SCHEMAS[name], list((+rows).elements()))

    def lsns(self, count):
        """Some LSNs of the past, but for those between the two rows of an update."""
        halves = {at for at, _, weight in self.changes["t"] if weight < 0}
        known = {at for each in self.changes.values() for at, _, _ in each} - halves
        return sorted(self._random.sample(sorted(known), count))


def check(plain, history, lsn, views):
    """All views as of an LSN are what plain Spark answers."""
    history.give(plain, lsn)
    for name, select in views.items():
        found = history.db.query(f"SELECT * FROM {name} AS OF {lsn}")
        assert bag(found.to_arrow()) == bag(plain.answer(select)), (name, lsn)
        assert found.lsn == lsn


def test_any_lsn(tmp_path, spark):
    """Views need not have stopped there; nor have existed."""
    views, plain = VIEWS | {name: expanded(name) for name in OVER_VIEWS}, Plain(spark)
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute(CREATE)
        history = History(db, 12)
        for _ in range(30):
            history.step()
        created = db.flush()
        for name, select in VIEWS.items():
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {select}")
        for name, (select, _) in OVER_VIEWS.items():
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {select}")
        for _ in range(60):
            history.step()
        settle(db, *VIEWS, *OVER_VIEWS)
        history.read()
        for lsn in history.lsns(2):
            check(plain, history, lsn, views)
        newest = {name: rows_of(db, name) for name in views}
        now = db.flush()
    with ms.open(tmp_path / "db", spark=spark) as db:
        history.db = db
        for _ in range(5):
            history.step()
        history.read()
        assert {name: as_of(db, name, now) for name in views} == newest
        check(plain, history, created, views)


def as_of(db, name, moment):
    return Counter(db.query(f"SELECT * FROM {name} AS OF {moment}").fetchall())


def test_queries_over_what_was(db, spark):
    """Joins and groups of views, tables and sources, all as of one LSN, by DuckDB and by Spark."""
    db.execute(CREATE)
    db.execute(f"CREATE MATERIALIZED VIEW counted AS {VIEWS['counted']}")
    history = History(db, 5)
    for _ in range(40):
        history.step()
    db.flush()
    history.read()
    queries = [
        "SELECT t.k, MAX(c.c) AS c, SUM(t.w) AS w FROM t JOIN counted c ON t.k = c.k GROUP BY t.k",
        "SELECT c.k, SOUNDEX(CAST(c.c AS STRING)) AS z FROM t JOIN counted c ON t.k = c.k",
        "SELECT k, MEDIAN(n) AS m FROM s GROUP BY k ORDER BY m DESC, k",
    ]
    plain = Plain(spark)
    for lsn in history.lsns(3):
        history.give(plain, lsn)
        for query in queries:
            expected = f"WITH counted AS ({VIEWS['counted']}) {query}"
            found = db.query(f"{query} AS OF {lsn}")
            assert bag(found.to_arrow()) == bag(plain.answer(expected)), (query, lsn)
    medians = [m for _, m in found.fetchall()]
    assert medians == sorted(medians, reverse=True)
    assert "by a Spark batch" in db.explain(f"{queries[1]} AS OF {lsn}")
    with pytest.raises(ExpressionError, match="DIVIDE_BY_ZERO"):
        db.query("SELECT SOUNDEX('a') AS z, 1 / (n - n) AS i FROM s JOIN r USING (k) AS OF 60")


NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
TIMED = {
    "tumbled": "SELECT k, TUMBLE_START(ts, INTERVAL '1 minute') AS b, COUNT(*) AS c, "
    "FIRST(n) AS f, LAST(n) AS l FROM e GROUP BY k, TUMBLE(ts, INTERVAL '1 minute')",
    "hopped": "SELECT HOP_START(ts) AS b, SUM(n) AS c FROM e "
    "GROUP BY HOP(ts, INTERVAL '30 seconds', INTERVAL '1 minute')",
    "sessions": "SELECT k, SESSION_START(ts) AS b, SESSION_END(ts) AS e, COUNT(*) AS c FROM e "
    "GROUP BY k, SESSION(ts, INTERVAL '20 seconds')",
    "named": "SELECT t.w, FIRST(e.n) AS f, LAST(e.n) AS l FROM e JOIN t ON e.k = t.k GROUP BY t.w",
    "near": "SELECT a.n, b.n AS m FROM e a JOIN d b ON a.k = b.k "
    "AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '1 minute'",
    "asof": "SELECT e.n, d.n AS m FROM e ASOF LEFT JOIN d ON e.k = d.k AND e.ts >= d.ts",
}
SHOWN = {
    "closed": TIMED["tumbled"] + " EMIT ON WINDOW CLOSE",
    "current": "SELECT e.n, t.w FROM e JOIN t FOR SYSTEM_TIME AS OF e.ts ON e.k = t.k",
    "few": "SELECT k, n, ts FROM e WHERE n > 1 WATERMARK FOR ts",
    "fewer": "SELECT TUMBLE_START(ts, INTERVAL '1 minute') AS b, COUNT(*) AS c FROM few "
    "GROUP BY TUMBLE(ts, INTERVAL '1 minute')",
}


def test_event_time(db):
    """Rows that came too late for a view are not in its past, either."""
    mark = "WATERMARK FOR ts AS ts - INTERVAL '1 second'"
    db.execute(
        f"CREATE SOURCE e (k INT, n INT, ts TIMESTAMP, {mark});"
        f"CREATE SOURCE d (k INT, n INT, ts TIMESTAMP, {mark});"
        "CREATE TABLE t (k INT PRIMARY KEY, w INT)"
    )
    for name, select in (TIMED | SHOWN).items():
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {select}")
    chosen, recorded = random.Random(3), []
    for n in range(24):
        at = NOON + timedelta(seconds=20 * n - chosen.choice([0, 0, 0, 150]))
        db.insert("e" if n % 3 else "d", [(chosen.randrange(2), n, at)])
        db.insert("t", [(chosen.randrange(2), chosen.randrange(3))], replace=True)
        if n % 6 == 5:
            lsn = db.flush()
            settle(db, *TIMED, *SHOWN)
            recorded.append((lsn, {name: rows_of(db, name) for name in TIMED}))
            recorded.append((db.flush(), {name: rows_of(db, name) for name in SHOWN}))
    late = {each["name"]: each["late_rows"] for each in db.query("SHOW VIEWS").to_pylist()}
    assert min(late[name] for name in ("tumbled", "near", "fewer")) > 0
    for lsn, views in recorded:
        for name, rows in views.items():
            assert as_of(db, name, lsn) == rows, (name, lsn)
    for name in ("closed", "current", "fewer"):
        assert "as it was shown" in db.explain(f"SELECT * FROM {name} AS OF {lsn}")


def test_a_query_that_has_no_value(db):
    db.execute(CREATE)
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT k, SUM(10 DIV n) AS q FROM s GROUP BY k")
    db.insert("s", [(1, 5, 0)])
    good = db.flush()
    settle(db, "v")
    db.insert("s", [(1, 0, 0)])
    bad = db.flush()
    assert as_of(db, "v", good) == Counter([(1, 2)])
    with pytest.raises(ViewFailedError, match="DIVIDE_BY_ZERO"):
        db.query(f"SELECT * FROM v AS OF {bad}")


def test_what_goes_by_the_order_of_a_view_is_refused(db):
    db.execute(CREATE)
    db.execute(f"CREATE MATERIALIZED VIEW united AS {VIEWS['united']}")
    db.execute(f"CREATE MATERIALIZED VIEW kept AS {VIEWS['kept']}")
    for read in ("united", "kept"):
        db.execute(
            f"CREATE MATERIALIZED VIEW first_{read} AS "
            f"SELECT k, FIRST(n) AS f FROM {read} GROUP BY k"
        )
    db.insert("s", [(1, 5, 0), (1, 4, 0)])
    lsn = db.flush()
    settle(db, "kept", "united", "first_kept", "first_united")
    assert as_of(db, "first_kept", lsn) == Counter([(1, 5)])
    with pytest.raises(SqlUnsupportedError, match="have no past"):
        db.query(f"SELECT * FROM first_united AS OF {lsn}")


# ---- subscriptions


def drained(subscription, lsn):
    """A copy of a result, once all up to an LSN was applied."""
    mirror = Mirror()
    while subscription.position < lsn:
        mirror.apply(subscription.recv(timeout=TIMEOUT))
    return mirror.rows


@pytest.mark.parametrize("view", ["counted", "sums", "running", "again"])
def test_subscribed_from_the_past(tmp_path, spark, view):
    """The snapshot is what was shown; with each change after it, it is what is shown next."""
    select, states = (VIEWS | {"again": OVER_VIEWS["again"][0]})[view], [(0, Counter())]
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute(CREATE)
        db.execute(f"CREATE MATERIALIZED VIEW counted AS {VIEWS['counted']}")
        if view != "counted":
            db.execute(f"CREATE MATERIALIZED VIEW {view} AS {select}")
        history = History(db, 7)
        seen = db.subscribe(f"SELECT * FROM {view}")
        for _ in range(40):
            history.step()
        settle(db, "counted", view)
        mirror, last = Mirror(), engine_of(db).views[view].view.lsn
        while seen.position < last:
            batch = seen.recv(timeout=TIMEOUT)
            mirror.apply(batch)
            states.append((batch.lsn, +mirror.rows))
    with ms.open(tmp_path / "db", spark=spark) as db:
        history.db = db
        for at, (lsn, _) in list(enumerate(states))[1::7]:
            begun = db.subscribe(f"SELECT * FROM {view}", start=lsn)
            mirror = Mirror()
            for _, rows in states[at:]:
                mirror.apply(begun.recv(timeout=TIMEOUT))
                assert +mirror.rows == rows
        old = db.subscribe(f"SELECT * FROM {view}", start=states[1][0])
        for _ in range(10):
            history.step()
        settle(db, "counted", view)
        assert drained(old, engine_of(db).views[view].view.lsn) == rows_of(db, view)


def test_joined_to_the_live_tail(db):
    """Nothing is lost and nothing comes twice where the log ends and live changes begin."""
    db.execute(CREATE)
    db.execute(f"CREATE MATERIALIZED VIEW counted AS {VIEWS['counted']}")
    history, over = History(db, 9), threading.Event()
    history.step()
    settle(db, "counted")
    past = db.flush()

    def push():
        while not over.is_set():
            history.step()

    pusher = threading.Thread(target=push)
    pusher.start()
    try:
        begun = []
        for _ in range(20):
            begun.append(db.subscribe("SELECT * FROM counted", start=past))
            begun[-1].recv(timeout=TIMEOUT)
    finally:
        over.set()
        pusher.join()
    settle(db, "counted")
    last, rows = engine_of(db).views["counted"].view.lsn, rows_of(db, "counted")
    fresh = db.subscribe("SELECT * FROM counted", start=past)
    assert drained(fresh, last) == rows
    for each in begun:  # which have had the snapshot
        mirror = Mirror()
        mirror.rows = as_of(db, "counted", past)
        while each.position < last:
            mirror.apply(each.recv(timeout=TIMEOUT))
        assert +mirror.rows == rows


# ---- what else there is


def test_columns_of_all_types(db):
    """Rows go to Spark and back as they are."""
    db.execute(
        "CREATE SOURCE a (id INT, b BOOLEAN, i TINYINT, l SMALLINT, r REAL, d DOUBLE, "
        "c DECIMAL(20, 4), t VARCHAR, y BINARY, e DATE, m TIMESTAMP, v INTERVAL, "
        "n ARRAY<INT>, o STRUCT<p: INT, q: ARRAY<VARCHAR>>, u MAP<VARCHAR, DOUBLE>, z INT);"
        "CREATE SOURCE k (id INT);"
        "CREATE MATERIALIZED VIEW w AS SELECT a.* FROM a JOIN k ON a.id = k.id;"
        "CREATE MATERIALIZED VIEW g AS SELECT z, MAX(c) AS c, MAX(m) AS m, MAX(v) AS v, "
        "MAX(y) AS y, COUNT(*) AS n FROM a GROUP BY z"
    )
    nothing = (0, *[None] * 15)
    something = (
        *(1, True, -5, 300, 1.5, -0.0, Decimal("12345.6789"), "Zoë\x00", b"\xff\x00"),
        *(
            date(1, 1, 1),
            NOON,
            timedelta(days=-3, microseconds=1),
            [1, None],
            {"p": 3, "q": ["a", None]},
        ),
        *({"x": 1.25, "y": None}, 7),
    )
    names = engine_of(db).catalog["a"].schema.names
    db.insert("a", [dict(zip(names, row, strict=True)) for row in (nothing, something)])
    db.insert("k", [(0,), (1,), (1,)])
    lsn = db.flush()
    settle(db, "w", "g")
    for view in ("w", "g"):
        found = db.query(f"SELECT * FROM {view} AS OF {lsn}").to_arrow()
        shown = db.query(f"SELECT * FROM {view}").to_arrow()
        assert found.schema == shown.schema
        assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, shown.to_pylist()))


def test_columns_that_were_added(db):
    db.execute(CREATE)
    db.execute("CREATE MATERIALIZED VIEW j AS SELECT t.*, s.n FROM s JOIN t ON s.k = t.k")
    db.execute("INSERT INTO t VALUES (1, 1, 1)")
    db.insert("s", [(1, 2, 3)])
    lsn = db.flush()
    db.execute("ALTER TABLE t ADD COLUMN more VARCHAR; ALTER SOURCE s ADD COLUMN more VARCHAR")
    db.execute("UPDATE t SET more = 'x'")
    db.execute(
        "CREATE MATERIALIZED VIEW c AS SELECT t.more, COUNT(s.more) AS n FROM s JOIN t "
        "ON s.k = t.k GROUP BY t.more"
    )
    assert as_of(db, "j", lsn) == as_of(db, "j", db.flush()) == Counter([(1, 1, 1, 2)])
    assert as_of(db, "c", lsn) == Counter([(None, 0)])
    assert as_of(db, "c", db.lsn) == Counter([("x", 0)])


def test_tenants(db):
    """A query that only Spark answers reads the tenant's rows, of views, too."""
    db.execute(
        "CREATE SOURCE s (who VARCHAR NOT NULL, n INT) WITH (tenant = 'who');"
        "CREATE TABLE t (who VARCHAR NOT NULL, n INT, PRIMARY KEY (who, n)) WITH (tenant = 'who');"
        "CREATE MATERIALIZED VIEW v WITH (tenant = 'who') AS "
        "SELECT who, COUNT(*) AS c FROM s GROUP BY who"
    )
    db.insert("s", [("a", 1), ("a", 2), ("b", 1)])
    db.insert("t", [("a", 1), ("b", 1), ("b", 2)])
    lsn = db.flush()
    db.insert("s", [("a", 1), ("b", 1)])
    sql = f"SELECT SOUNDEX(s.who) AS x, s.n, v.c FROM s, t, v WHERE s.n = t.n AS OF {lsn}"
    assert db.query(sql, tenant="a").fetchall() == [("A000", 1, 2)]
    assert db.query(sql, tenant="b").fetchall() == [("B000", 1, 1)]
    assert len(db.query(sql)) == 10
    assert db.query(f"SELECT c FROM v AS OF {lsn}", tenant="a").fetchall() == [(2,)]
