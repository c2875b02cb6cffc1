"""A market for views under test: rows of every kind, and what views over them must come to."""

from __future__ import annotations

import random
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from millstream.testing import TIMEOUT, Mirror, engine_of

from .observing import EPOCH, MINUTE, batches_of, in_time, rows_of, settle, window_of

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SYMBOLS = [*"abcdefgh", None]
SETUP = """
    CREATE SOURCE trades (symbol VARCHAR, qty BIGINT, ts TIMESTAMP,
        WATERMARK FOR ts AS ts - INTERVAL '5 seconds');
    CREATE SOURCE gifts (symbol VARCHAR, qty BIGINT);
    CREATE TABLE names (symbol VARCHAR PRIMARY KEY, name VARCHAR);
    CREATE MATERIALIZED VIEW sums AS
        SELECT symbol, SUM(qty) AS total, COUNT(*) AS n FROM trades GROUP BY symbol;
    CREATE MATERIALIZED VIEW minutes AS
        SELECT symbol, TUMBLE_START(ts, INTERVAL '1 minute') AS minute, SUM(qty) AS total,
            MAX(qty) AS most FROM trades GROUP BY symbol, TUMBLE(ts, INTERVAL '1 minute');
    CREATE MATERIALIZED VIEW closed AS
        SELECT symbol, TUMBLE_START(ts, INTERVAL '1 minute') AS minute, COUNT(*) AS n
        FROM trades GROUP BY symbol, TUMBLE(ts, INTERVAL '1 minute') EMIT ON WINDOW CLOSE;
    CREATE MATERIALIZED VIEW all_of_them AS
        SELECT symbol, qty FROM trades WHERE qty > 90 UNION ALL SELECT symbol, -qty FROM gifts;
    CREATE MATERIALIZED VIEW named AS
        SELECT name, SUM(qty) AS total FROM trades JOIN names ON trades.symbol = names.symbol
        GROUP BY name;
    CREATE MATERIALIZED VIEW over AS SELECT MAX(total) AS best, COUNT(*) AS n FROM sums;
"""
KEYED = {"sums": 1, "minutes": 2, "closed": 2, "all_of_them": 0, "named": 1, "over": 0}
VIEWS = tuple(KEYED)


class Market(threading.Thread):
    """Pushes trades in every form, now and then a late one, a gift or another name."""

    def __init__(self, db, seed, rows=10):
        super().__init__(daemon=True)
        self._db = db
        self._dice = random.Random(seed)
        self._rows = rows
        self._over = threading.Event()
        self._at = NOON + timedelta(minutes=seed)
        self.error = None

    def run(self):
        try:
            trades = self._db.source("trades")
            while not self._over.wait(0.01):
                self._push(trades)
                self._db.source("gifts").push((self._dice.choice(SYMBOLS), 1))
                if self._dice.random() < 0.01:
                    self._rename()
        except Exception as error:
            self.error = error

    def _push(self, trades):
        rows = [self._trade() for _ in range(self._dice.randint(1, self._rows))]
        how = self._dice.randint(0, 2)
        if how == 0:
            trades.push(rows[0])
        elif how == 1:
            trades.push_batch(rows)
        else:
            columns = zip(*rows, strict=True)
            types = [pa.string(), pa.int64(), pa.timestamp("us", "UTC")]
            arrays = [pa.array(each, of) for each, of in zip(columns, types, strict=True)]
            trades.push_arrow(pa.record_batch(arrays, names=["symbol", "qty", "ts"]))

    def _trade(self):
        self._at += timedelta(milliseconds=self._dice.randint(0, 100))
        back = 200 if self._dice.random() < 0.05 else self._dice.randint(0, 4)
        return (
            self._dice.choice(SYMBOLS),
            self._dice.randint(0, 100),
            self._at - timedelta(seconds=back),
        )

    def _rename(self):
        symbol = self._dice.choice(SYMBOLS[:-1])
        name = f"name {self._dice.randint(0, 3)}"
        if self._dice.random() < 0.3:
            self._db.execute(f"DELETE FROM names WHERE symbol = '{symbol}'")
        else:
            self._db.insert("names", [(symbol, name)], replace=True)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self.join(TIMEOUT)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error


def expected(db):
    """What each view must show, from the log of what was pushed."""
    batches = batches_of(db, "trades")
    every = [row for rows, _ in batches for row in rows]
    taken, late, mark = in_time(batches, column=2)
    sums, counts, windows = Counter(), Counter(), {}
    for symbol, qty, _ in every:
        sums[symbol] += qty
        counts[symbol] += 1
    for symbol, qty, moment in taken:
        windows.setdefault((symbol, window_of(moment)), []).append(qty)
    names = dict(db.query("SELECT * FROM names").fetchall())
    named = Counter()
    for symbol, qty, _ in every:
        if symbol in names:
            named[names[symbol]] += qty
    gifts = db.query("SELECT * FROM gifts").fetchall()
    passed = EPOCH + timedelta(microseconds=mark)
    return {
        "sums": Counter((symbol, sums[symbol], counts[symbol]) for symbol in counts),
        "minutes": Counter((*key, sum(qty), max(qty)) for key, qty in windows.items()),
        "closed": Counter(
            (*key, len(qty)) for key, qty in windows.items() if key[1] + MINUTE <= passed
        ),
        "all_of_them": Counter((symbol, qty) for symbol, qty, _ in every if qty > 90)
        + Counter((symbol, -qty) for symbol, qty in gifts),
        "named": Counter(named.items()),
        "over": Counter([(max(sums.values()), len(sums))]),
    }, len(late)


def check(db, mirrors=()):
    """Views, subscribers, and readers of the views' logs from their beginning are exact."""
    settle(db, *VIEWS)
    wanted, late = expected(db)
    for name in VIEWS:
        assert rows_of(db, name) == wanted[name], name
        with db.subscribe(f"SELECT * FROM {name}", start="earliest") as subscription:
            from_start = Mirror(key_columns=KEYED[name])
            assert from_start.follow(subscription).catch_up(db).rows == wanted[name], name
        for mirror, subscription in (each[name] for each in mirrors):
            assert mirror.follow(subscription).catch_up(db).rows == wanted[name], name
    for name in ("minutes", "closed"):
        assert engine_of(db).views[name].late_rows == late
    assert late > 0
    assert all(each["error"] is None for each in db.query("SHOW VIEWS").to_pylist())


def subscribers(db, names=VIEWS, tokens=None):
    """A mirror and a subscription to each view: from now, or going on where another one was."""
    found = {}
    for name in names:
        mirror = Mirror(key_columns=KEYED[name]) if tokens is None else tokens[name]
        start = None if tokens is None else mirror.token
        found[name] = (mirror, db.subscribe(f"SELECT * FROM {name}", start=start))
    return found
