"""ASOF joins in live views: after each change they are what DuckDB answers over all rows."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import millstream as ms
from millstream.errors import SqlError, SqlTypeError, SqlUnsupportedError
from millstream.testing import Mirror

from .against_duckdb import Model, Proof
from .observing import rows_of, settle

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TIME = pa.timestamp("us", tz="UTC")
SCHEMAS = {
    "t": pa.schema([("id", pa.int32()), ("k", pa.int32()), ("ts", TIME), ("at", pa.int32())]),
    "q": pa.schema([("n", pa.int32()), ("k", pa.int32()), ("ts", TIME), ("at", pa.int64())]),
}
NEAREST = (
    "SELECT id, n FROM (SELECT t.id, q.n, ROW_NUMBER() OVER (PARTITION BY t.id"
    " ORDER BY ABS(epoch_us(t.ts) - epoch_us(q.ts)), q.ts) AS place, t.ts AS one, q.ts AS other"
    " FROM t LEFT JOIN q ON t.k = q.k AND q.ts IS NOT NULL AND t.ts IS NOT NULL) WHERE place = 1"
)
VIEWS = {
    "backward": "SELECT t.id, q.n FROM t ASOF JOIN q ON t.k = q.k AND t.ts >= q.ts",
    "outer_": "SELECT t.*, q.n, q.ts AS found FROM t ASOF LEFT JOIN q ON t.k = q.k AND q.ts < t.ts",
    "forward": "SELECT t.id, q.n FROM t LEFT ASOF JOIN q MATCH_CONDITION (t.ts <= q.ts) ON t.k"
    " = q.k",
    "after_": "SELECT t.id, q.n FROM t ASOF JOIN q ON t.k = q.k AND t.ts < q.ts",
    "using_": "SELECT id, k, ts, q.n, q.ts AS found FROM t ASOF JOIN q USING (k, ts)",
    "within": "SELECT t.id, q.n FROM t ASOF LEFT JOIN q MATCH_CONDITION (t.ts >= q.ts AND t.ts"
    " - q.ts <= INTERVAL '3' SECOND) ON t.k = q.k",
    "soon": "SELECT t.id, q.n FROM t ASOF JOIN q ON t.k = q.k AND t.ts <= q.ts AND q.ts <"
    " t.ts + INTERVAL '4' SECOND",
    "nearest": "SELECT t.id, q.n FROM t ASOF LEFT JOIN q MATCH_CONDITION (NEAREST(t.ts, q.ts))"
    " ON t.k = q.k",
    "near": "SELECT t.id, q.n FROM t ASOF JOIN q MATCH_CONDITION (NEAREST(t.ts, q.ts))"
    " TOLERANCE INTERVAL '2' SECOND ON t.k = q.k",
    "numbers": "SELECT t.id, q.n, q.at FROM t ASOF LEFT JOIN q ON t.at >= q.at WHERE t.id % 2 = 0",
    "filtered": "SELECT t.id, q.n FROM t ASOF LEFT JOIN q ON t.k = q.k AND t.ts >= q.ts WHERE"
    " q.n % 3 = 0",
    "sums": "SELECT t.k, SUM(q.n) AS s, COUNT(*) AS c FROM t ASOF JOIN q ON t.k = q.k AND"
    " t.ts >= q.ts GROUP BY t.k",
    "both_": "SELECT t.id, a.n AS one, b.n AS other FROM t ASOF LEFT JOIN q AS a ON t.k = a.k"
    " AND t.ts >= a.ts ASOF LEFT JOIN q AS b ON a.k = b.k AND t.ts < b.ts",
}
EXPECTED = {
    "forward": "SELECT t.id, q.n FROM t ASOF LEFT JOIN q ON t.k = q.k AND t.ts <= q.ts",
    "using_": "SELECT id, t.k, t.ts, q.n, q.ts AS found FROM t ASOF JOIN q ON t.k = q.k AND"
    " t.ts >= q.ts",
    "within": "SELECT t.id, CASE WHEN t.ts <= q.ts + INTERVAL '3' SECOND THEN q.n END FROM t"
    " ASOF LEFT JOIN q ON t.k = q.k AND t.ts >= q.ts",
    "soon": "SELECT t.id, q.n FROM t ASOF JOIN q ON t.k = q.k AND t.ts <= q.ts WHERE q.ts <"
    " t.ts + INTERVAL '4' SECOND",
    "nearest": NEAREST,
    "near": f"{NEAREST} AND other BETWEEN one - INTERVAL '2' SECOND AND one + INTERVAL '2' SECOND",
}
"""What DuckDB is asked where it has no such words."""


def when(tick):
    return None if tick is None else NOON + timedelta(seconds=tick)


def tables(db):
    db.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, k INT, ts TIMESTAMP, at INT);"
        "CREATE TABLE q (n INT PRIMARY KEY, k INT, ts TIMESTAMP, at BIGINT)"
    )


class Changes:
    """Random changes of trades ``t`` and quotes ``q``; no two quotes are at the same time."""

    def __init__(self, proof, seed, ticks=40):
        self._proof, self._chance = proof, random.Random(seed)
        self._ticks, self._number = ticks, 0

    def fill(self, count):
        """Insert so many trades and quotes, all of one key."""
        for name, step in (("t", 2), ("q", 3)):
            ticks = self._chance.sample(range(0, self._ticks, step), count)
            rows = [(n, 1, when(tick), tick) for n, tick in enumerate(ticks, self._number)]
            self._proof.insert(name, rows)
            self._number += count

    def make(self):
        name = self._chance.choice("tq")
        key, known = self._proof._names(name)[0], self._proof.model.rows[name]
        row = self._chance.choice(known) if known else None
        what = self._chance.random()
        if row is None or what < 0.5:
            self._number += 1
            self._proof.insert(name, [self._row(name, self._number)])
        elif what < 0.75:
            _, k, ts, at = self._row(name, row[0])
            self._proof.update(name, {"k": k, "ts": ts, "at": at}, {key: row[0]})
        else:
            self._proof.delete(name, {key: row[0]})

    def _row(self, name, number):
        ticks = [None, *range(self._ticks)]
        taken = {each[3] for each in self._proof.model.rows["q"]} if name == "q" else set()
        tick = self._chance.choice([each for each in ticks if each is None or each not in taken])
        return (number, self._chance.choice([1, 1, 2, None]), when(tick), tick)


def test_each_kind_against_duckdb(db):
    tables(db)
    proof = Proof(db, Model(SCHEMAS), {"t": ["id"], "q": ["n"]})
    for name, sql in VIEWS.items():
        proof.view(name, sql, EXPECTED.get(name))
    changes = Changes(proof, 3)
    for count in (1, 1, 1, 30, 1, 1, 3, 1, 1, 8, 1, 1, 1, 20, 1, 1):
        for _ in range(count):
            changes.make()
        proof.check()
    proof.delete("q", {"k": 1})
    proof.check()
    proof.delete("t", {})
    proof.check()


def test_many_rows_of_a_key(db):
    tables(db)
    proof = Proof(db, Model(SCHEMAS), {"t": ["id"], "q": ["n"]})
    for name in ("backward", "outer_", "forward", "soon", "nearest", "near"):
        proof.view(name, VIEWS[name], EXPECTED.get(name))
    changes = Changes(proof, 2, ticks=2000)
    changes.fill(600)
    proof.check()
    for count in (1, 1, 50, 1, 100):
        for _ in range(count):
            changes.make()
        proof.check()
    proof.delete("q", {"k": 1})
    proof.check()


def test_a_restart(tmp_path, spark):
    chosen = ("backward", "forward", "near")
    with ms.open(tmp_path / "db", spark=spark) as db:
        tables(db)
        proof = Proof(db, Model(SCHEMAS), {"t": ["id"], "q": ["n"]})
        for name in chosen:
            proof.view(name, VIEWS[name], EXPECTED.get(name))
        changes = Changes(proof, 8)
        for _ in range(60):
            changes.make()
        proof.check()
    with ms.open(tmp_path / "db", spark=spark) as db:
        proof.db = db
        for _ in range(20):
            changes.make()
        settle(db, *chosen)
        for name in chosen:
            wanted = proof.model.answer(EXPECTED.get(name, VIEWS[name]))
            assert rows_of(db, name) == Counter(wanted), name


def test_a_late_quote_corrects_the_trades_that_it_concerns(db):
    db.execute(
        "CREATE SOURCE trades (id INT, symbol VARCHAR, ts TIMESTAMP);"
        "CREATE SOURCE quotes (symbol VARCHAR, ts TIMESTAMP, bid INT);"
        "CREATE MATERIALIZED VIEW priced AS SELECT t.id, q.bid FROM trades t"
        " ASOF LEFT JOIN quotes q ON t.symbol = q.symbol AND t.ts >= q.ts"
    )
    db.source("quotes").push_batch([("a", when(tick), tick) for tick in range(0, 5000, 10)])
    db.source("trades").push_batch([(tick, "a", when(tick)) for tick in range(5000)])
    settle(db, "priced")
    mirror = Mirror(db.subscribe("SELECT * FROM priced")).catch_up(db)
    assert mirror.rows == Counter({(tick, tick // 10 * 10): 1 for tick in range(5000)})
    before = changes_of(db, "priced")
    db.source("quotes").push(("a", when(1234), -1))
    settle(db, "priced")
    late = range(1234, 1240)
    wanted = {(tick, -1 if tick in late else tick // 10 * 10): 1 for tick in range(5000)}
    assert mirror.catch_up(db).rows == Counter(wanted)
    assert changes_of(db, "priced") == before + 2 * len(late)  # an old row, and a new one


def changes_of(db, view):
    return next(
        each["changes"] for each in db.execute("SHOW VIEWS").to_pylist() if each["name"] == view
    )


def test_refused(db):
    tables(db)
    refused = {
        "t.ts >= TIMESTAMP '2026-01-01' AND t.k = q.k": SqlUnsupportedError,
        "t.ts >= q.ts AND q.k = 1": SqlUnsupportedError,
        "t.ts >= q.n AND t.k = q.k": SqlError,
        "NEAREST(CAST(t.k AS DOUBLE), CAST(q.k AS DOUBLE))": SqlTypeError,
    }
    for condition, error in refused.items():
        join = f"MATCH_CONDITION ({condition})" if "NEAREST" in condition else f"ON {condition}"
        with pytest.raises(error):
            db.execute(f"CREATE MATERIALIZED VIEW v AS SELECT t.id FROM t ASOF JOIN q {join}")


# ---- several rows at the same time


TIES = {"back": "t.at >= q.at", "ahead": "t.at <= q.at", "around": "NEAREST(t.at, q.at)"}


def expected_of_ties(trades, quotes, direction):
    """Each trade with the greatest of the quotes at the nearest time."""
    fits = {"back": lambda ago: ago >= 0, "ahead": lambda ago: ago <= 0, "around": lambda _: True}
    found = Counter()
    for k, at in trades:
        fit = [each for each in quotes if each[0] == k and fits[direction](at - each[1])]
        best = max(fit, key=lambda each: (-abs(at - each[1]), -each[1], each), default=None)
        found[k, at, None if best is None else best[2]] += 1
    return found


# ---- with watermarks on both sides, rows that can no longer match expire


PAST = {
    "back": "t.at >= q.at",
    "back_strict": "t.at > q.at",
    "ahead": "t.at <= q.at",
    "ahead_strict": "t.at < q.at",
    "around": "NEAREST(t.at, q.at)",
    "within": "t.at >= q.at AND t.at - q.at <= INTERVAL '4' SECOND",
}
FITS = {
    "back": lambda ago: ago >= 0,
    "back_strict": lambda ago: ago > 0,
    "ahead": lambda ago: ago <= 0,
    "ahead_strict": lambda ago: ago < 0,
    "around": lambda _: True,
    "within": lambda ago: 0 <= ago <= 4,
}


def matched(trades, quotes, fits):
    """Each trade with the greatest of the quotes at the nearest time; all by number and tick."""
    found, by_key = Counter(), {}
    for k, tick, v in quotes:
        by_key.setdefault(k, []).append((tick, v))
    for number, k, tick in trades:
        fit = [each for each in by_key.get(k, ()) if fits(tick - each[0])]
        best = max(fit, key=lambda each: (-abs(tick - each[0]), -each[0], each[1]), default=None)
        found[number, None if best is None else best[1]] += 1
    return found


@pytest.mark.parametrize("small", [False, True])
def test_what_is_past_is_let_go(tmp_path, spark, request, small):
    if small:
        request.getfixturevalue("little_memory")
    chance, trades, quotes, sizes = random.Random(5), [], [], []
    db = ms.open(tmp_path / "db", spark=spark)
    marked = "WATERMARK FOR at AS at - INTERVAL '20 seconds'"
    db.execute(
        f"CREATE SOURCE t (n INT, k INT, at TIMESTAMP, {marked});"
        f"CREATE SOURCE q (k INT, at TIMESTAMP, v INT, {marked})"
    )
    for name, match in PAST.items():
        db.execute(
            f"CREATE MATERIALIZED VIEW {name} AS SELECT t.n, q.v FROM t"
            f" ASOF LEFT JOIN q MATCH_CONDITION ({match}) ON t.k = q.k"
        )
    steps = 10 if small else 36
    for step in range(steps):
        if step == steps // 2:  # what has expired, and what was kept, is in the checkpoint
            db.close()
            db = ms.open(tmp_path / "db", spark=spark)
        for name, known in (("t", trades), ("q", quotes)):
            # As late as 20 seconds before the newest of the last step, so never too late.
            ticks = [
                step * 30 + chance.randrange(10, 60) - 30 for _ in range(chance.choice([1, 30]))
            ]
            if name == "t":
                rows = [
                    (len(trades) + n, chance.randrange(3), each) for n, each in enumerate(ticks)
                ]
                db.insert("t", [(n, k, when(tick)) for n, k, tick in rows])
            else:
                rows = [(chance.randrange(3), each, chance.randrange(1000)) for each in ticks]
                db.insert("q", [(k, when(tick), v) for k, tick, v in rows])
            known += rows
        settle(db, *PAST)
        shown = {each["name"]: each for each in db.query("SHOW VIEWS").to_pylist()}
        sizes.append({name: shown[name]["state_rows"] for name in PAST})
        assert {shown[name]["late_rows"] for name in PAST} == {0}
        for name in PAST:
            assert rows_of(db, name) == matched(trades, quotes, FITS[name]), (name, step)
    db.close()
    if not small:
        most = {name: max(each[name] for each in sizes) for name in PAST}
        assert max(most.values()) < (len(trades) + len(quotes)) / 3, most


@pytest.mark.parametrize("seed", [1, 2])
def test_of_quotes_at_the_same_time_the_greatest_counts(db, seed):
    chance, trades, quotes = random.Random(seed), [], {}
    db.execute(
        "CREATE SOURCE t (k INT, at INT); CREATE TABLE q (n INT PRIMARY KEY, k INT, at INT, v INT)"
    )
    for name, match in TIES.items():
        db.execute(
            f"CREATE MATERIALIZED VIEW {name} AS SELECT t.k, t.at, q.v FROM t"
            f" ASOF LEFT JOIN q MATCH_CONDITION ({match}) ON t.k = q.k"
        )
    for step in range(10):
        added = [(chance.randrange(2), chance.randrange(6)) for _ in range(3)]
        trades += added
        db.source("t").push_batch(added)
        for _ in range(chance.choice([1, 6])):
            number = chance.randrange(12)
            if step > 2 and chance.random() < 0.4:
                quotes.pop(number, None)
                db.execute("DELETE FROM q WHERE n = ?", [number])
            else:
                quotes[number] = (chance.randrange(2), chance.randrange(6), chance.randrange(-4, 4))
                db.insert("q", [(number, *quotes[number])], replace=True)
        settle(db, *TIES)
        for name in TIES:
            wanted = expected_of_ties(trades, quotes.values(), name)
            assert rows_of(db, name) == wanted, name
