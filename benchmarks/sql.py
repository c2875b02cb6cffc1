"""The figures of views that are dataflows: latency of a change, rows a second to catch up.

    python benchmarks/sql.py                  about three minutes
    python benchmarks/sql.py --only live,live4

Beside the catch-up: plain Spark's own streaming join of the same rows, from files, and a Spark
batch where it has no streaming form; each in a process of its own.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import millstream as ms
from plain_spark import Job, seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream import ChangeBatch, Database

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
AUCTIONS = "id BIGINT, seller BIGINT, category BIGINT, reserve BIGINT, ts TIMESTAMP, ends TIMESTAMP"
BIDS = "auction BIGINT, bidder BIGINT, price BIGINT, ts TIMESTAMP"
PERSONS = "id BIGINT, name VARCHAR, city VARCHAR, state VARCHAR, ts TIMESTAMP"
JOIN = "SELECT a.id, a.category, b.bidder, b.price FROM auctions a JOIN bids b ON a.id = b.auction"
Q4 = """SELECT category, AVG(final) AS average FROM (
    SELECT a.id, a.category, MAX(b.price) AS final FROM auctions a JOIN bids b
        ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.ends GROUP BY a.id, a.category) q
    GROUP BY category"""
Q3 = """SELECT p.name, p.city, p.state, a.id FROM auctions a JOIN persons p ON a.seller = p.id
    WHERE a.category = 3 AND p.state IN ('OR', 'ID', 'CA')"""
Q7 = """SELECT b.auction, b.price, b.bidder, b.ts FROM bids b JOIN (
    SELECT MAX(price) AS most, {end} AS ends FROM bids GROUP BY {window}) m
    ON b.price = m.most AND b.ts >= m.ends - INTERVAL '1' MINUTE AND b.ts < m.ends"""
Q8 = """SELECT p.id, p.name, p.ends FROM (
    SELECT id, name, {end} AS ends FROM persons GROUP BY id, name, {window}) p JOIN (
    SELECT seller, {end} AS ends FROM auctions GROUP BY seller, {window}) a
    ON p.id = a.seller AND p.ends = a.ends"""
Q20 = """SELECT b.auction, b.bidder, b.price, b.ts, a.seller, a.reserve, a.ends
    FROM bids b JOIN auctions a ON b.auction = a.id WHERE a.category = 3"""
OURS = {"window": "TUMBLE(ts, INTERVAL '1 minute')", "end": "TUMBLE_END(ts)"}
SPARKS = {"window": "window(ts, '1 minute')", "end": "window(ts, '1 minute').end"}
ITEMS = (
    "SELECT i.kind, SUM(s.qty * i.price) AS value FROM sales s JOIN items i ON s.item = i.id "
    "GROUP BY i.kind"
)
ASOF = """SELECT t.id, t.price, q.bid FROM trades t
    LEFT ASOF JOIN quotes q MATCH_CONDITION (t.ts >= q.ts) ON t.symbol = q.symbol"""
MAX_BY = """SELECT t.id, t.price, MAX_BY(q.bid, q.ts) AS bid FROM trades t
    LEFT JOIN quotes q ON t.symbol = q.symbol AND t.ts >= q.ts GROUP BY t.id, t.price"""
TOTALS = (
    "SELECT symbol, COUNT(*) AS n, SUM(qty) AS qty, MAX(price) AS high FROM trades GROUP BY symbol"
)
SECTORS = (
    "SELECT c.sector, COUNT(*) AS n, SUM(t.qty * t.price) AS value "
    "FROM trades t JOIN companies c ON t.symbol = c.symbol GROUP BY c.sector"
)
BY_KEY = "(PARTITION BY k ORDER BY"
ORDERED = {
    "top": f"SELECT k, v FROM (SELECT k, v, ROW_NUMBER() OVER {BY_KEY} v DESC, ts) AS n"
    " FROM readings) q WHERE n <= 10",
    "newest": f"SELECT k, v FROM (SELECT k, v, ROW_NUMBER() OVER {BY_KEY} ts DESC, v) AS n"
    " FROM readings) q WHERE n = 1",
    "lag": f"SELECT k, ts, v - LAG(v) OVER {BY_KEY} ts) AS d FROM readings",
    "running": f"SELECT k, ts, SUM(v) OVER {BY_KEY} ts) AS s FROM readings",
}
SYMBOLS = 1000
WARM = 1500
PINGS = 2000
ROWS = 1_000_000
TABLE = 1_000_000


def person(number: int) -> tuple[object, ...]:
    """Somebody who sells."""
    states = ("OR", "ID", "CA", "WA", "NV")
    ts = NOON + timedelta(milliseconds=100 * number)
    return (number, f"Zoë Müller {number}", f"Köln {number % 50}", states[number % 5], ts)


def auction(number: int) -> tuple[object, ...]:
    """An auction of an hour."""
    begins = NOON + timedelta(milliseconds=10 * number)
    return (number, number % 1000, number % 10, 1, begins, begins + timedelta(hours=1))


def bid(number: int, auctions: int) -> tuple[object, ...]:
    """A bid that is within the time of its auction."""
    ts = NOON + timedelta(minutes=30, milliseconds=number // 10)
    return (number % auctions, number % 50, 100 + number * 7919 % 10_007, ts)


class Pings:
    """Makes one change after the other, and waits for what each leads to."""

    def __init__(self, db: Database, view: str, change: Callable[[int], None]) -> None:
        self._change = change
        self._numbers = itertools.count()
        self._came = threading.Event()
        db.subscribe_callback(f"SELECT * FROM {view}", self._take, start="now")

    def _take(self, batch: ChangeBatch) -> None:
        del batch
        self._came.set()

    def many(self, count: int, pause: float = 0.002) -> list[float]:
        """The milliseconds from each change to its callback."""
        times = []
        for _ in range(count):
            self._came.clear()
            began = time.perf_counter()
            self._change(next(self._numbers))
            if not self._came.wait(60):
                raise TimeoutError("a change did not come")
            times.append((time.perf_counter() - began) * 1e3)
            time.sleep(pause)
        return times


def latency(db: Database, view: str, change: Callable[[int], None]) -> str:
    """p50 and p99 of changes, warm."""
    pings = Pings(db, view, change)
    pings.many(WARM, 0)
    times = sorted(pings.many(PINGS))
    return f"p50 {statistics.median(times):.2f} ms, p99 {times[int(len(times) * 0.99)]:.2f} ms"


def nexmark(path: Path) -> Database:
    """A database with auctions and bids."""
    db = ms.open(path)
    db.execute(f"CREATE SOURCE auctions ({AUCTIONS}); CREATE SOURCE bids ({BIDS})")
    db.execute(f"CREATE SOURCE persons ({PERSONS})")
    return db


def live(path: Path, sql: str, goal: str, name: str) -> tuple[str, str, str]:
    """Push to callback, of a bid that has its auction."""
    with nexmark(path) as db:
        db.insert("auctions", [auction(n) for n in range(1000)])
        db.execute(f"CREATE MATERIALIZED VIEW v AS {sql}")
        db.wait_for("v")
        source = db.source("bids")

        def higher(number: int) -> None:
            auction_id, bidder, _, ts = bid(number, 1000)
            source.push((auction_id, bidder, 100 + number, ts))

        return name, latency(db, "v", higher), goal


def table_update(path: Path) -> tuple[str, str, str]:
    """An update of a large table, to the aggregate that is corrected."""
    with ms.open(path) as db:
        db.execute(
            "CREATE TABLE items (id BIGINT PRIMARY KEY, kind BIGINT, price BIGINT);"
            "CREATE SOURCE sales (item BIGINT, qty BIGINT)"
        )
        rows = pa.table(
            {"id": range(TABLE), "kind": [n % 10 for n in range(TABLE)], "price": [1] * TABLE}
        )
        for batch in rows.to_batches(max_chunksize=50_000):
            db.insert("items", batch)
        db.source("sales").push_batch([(n % TABLE, 1) for n in range(200_000)])
        db.execute(f"CREATE MATERIALIZED VIEW v AS {ITEMS}")
        db.wait_for("v")

        def update(number: int) -> None:
            db.execute("UPDATE items SET price = ? WHERE id = ?", [number + 2, number % 1000])

        name = f"UPDATE of a table of {TABLE:,} rows, joined and summed"
        return name, latency(db, "v", update), "p50 2 ms"


def market(path: Path, rows: int) -> Database:
    """A database with so many trades and as many quotes, by turns."""
    db = ms.open(path)
    db.execute(
        "CREATE SOURCE trades (id BIGINT, symbol BIGINT, price BIGINT, ts TIMESTAMP);"
        "CREATE SOURCE quotes (symbol BIGINT, bid BIGINT, ts TIMESTAMP)"
    )
    for first in range(0, rows, 10_000):
        numbers = range(first, first + 10_000)
        db.insert("quotes", [(n * 7 % SYMBOLS, n % 997, at(n)) for n in numbers])
        db.insert("trades", [(n, n % SYMBOLS, n % 1009, at(n)) for n in numbers])
    db.flush()
    return db


def at(number: int, before: int = 0) -> datetime:
    """The time of a trade, or so many microseconds before it."""
    return NOON + timedelta(milliseconds=number, microseconds=-before)


def asof_live(path: Path) -> tuple[str, str, str]:
    """Push to callback: a trade, then a quote that comes late and is its match, and so on."""
    count = 100_000
    with market(path, count) as db:
        db.execute(f"CREATE MATERIALIZED VIEW v AS {ASOF}")
        db.wait_for("v")
        trades, quotes = db.source("trades"), db.source("quotes")

        def change(number: int) -> None:
            trade = count + number // 2
            if number % 2:
                quotes.push((trade % SYMBOLS, -number, at(trade, before=1)))
            else:
                trades.push((trade, trade % SYMBOLS, 1, at(trade)))

        return "ASOF join, trades and late quotes", latency(db, "v", change), "p50 1 ms"


def asof_catch_up(path: Path) -> tuple[str, str, str]:
    """Rows a second of a new ASOF join over what is there, and of the same by plain Spark."""
    rows = ROWS // 2
    with market(path / "db", rows) as db:
        took = built(db, ASOF)
        for each in ("trades", "quotes"):
            pq.write_table(db.query(f"SELECT * FROM {each}").to_arrow(), path / f"{each}.parquet")
    theirs, joined = (apart(path, "batch", sql) for sql in (ASOF, MAX_BY))
    figure = (
        f"{2 * rows / took:,.0f} rows/s, plain Spark batch {2 * rows / theirs:,.0f} rows/s"
        f" (as a join with MAX_BY: {2 * rows / joined:,.0f})"
    )
    return "catch up: ASOF join", f"{figure}: {theirs / took:.0%}", "50%"


def readings(path: Path, rows: int, keys: int) -> Database:
    """A database with so many readings of so many keys."""
    db = ms.open(path)
    db.execute("CREATE SOURCE readings (k BIGINT, v BIGINT, ts TIMESTAMP)")
    for first in range(0, rows, 50_000):
        numbers = range(first, first + 50_000)
        db.insert("readings", [(n % keys, n * 7919 % 10_007, at(n)) for n in numbers])
    db.flush()
    return db


def ordered(path: Path, which: str, keys: int, *, middle: bool = False) -> tuple[str, str, str]:
    """Push to callback: a row at the end of its partition, or in the middle."""
    rows = ROWS if keys > 1 else 100_000
    with readings(path, rows, keys) as db:
        db.execute(f"CREATE MATERIALIZED VIEW v AS {ORDERED[which]}")
        db.wait_for("v")
        source = db.source("readings")

        def change(number: int) -> None:
            place = rows // 2 if middle else rows + number
            source.push((number % keys, 20_000 + number, at(place, before=number % 900)))

        where = f"{'in the middle' if middle else 'at the end'} of {rows // keys:,} rows"
        goal = "p50 2 ms" if middle else "p50 1 ms"
        return f"{which}, a row {where} of its partition", latency(db, "v", change), goal


def ordered_catch_up(path: Path, which: str) -> tuple[str, str, str]:
    """Rows a second of a new view with OVER, and of the same as a plain Spark batch."""
    with readings(path / "db", ROWS, 1000) as db:
        ours = built(db, ORDERED[which])
        pq.write_table(db.query("SELECT * FROM readings").to_arrow(), path / "readings.parquet")
    theirs = apart(path, "batch", ORDERED[which])
    figure = f"{ROWS / ours:,.0f} rows/s, plain Spark batch {ROWS / theirs:,.0f} rows/s"
    return f"catch up: {which}", f"{figure}: {theirs / ours:.0%}", "50%"


def temporal(path: Path) -> tuple[str, str, str]:
    """100,000 rows come each second, and leave five seconds later; how late, and in what memory."""
    behind: list[float] = []

    def on_change(batch: ChangeBatch) -> None:
        now = datetime.now(UTC) - timedelta(seconds=5)
        behind.extend((now - row[0]).total_seconds() for row in batch.rows if row[0] is not None)

    with ms.open(path) as db:
        db.execute("CREATE SOURCE readings (k BIGINT, v BIGINT, ts TIMESTAMP)")
        db.execute(
            "CREATE MATERIALIZED VIEW v AS SELECT MIN(ts) AS oldest, COUNT(*) AS n FROM readings "
            "WHERE ts > NOW() - INTERVAL '5 seconds'"
        )
        db.wait_for("v")
        source, memory = db.source("readings"), []
        db.subscribe_callback("SELECT * FROM v", on_change, start="now")
        began = time.perf_counter()
        for number in range(400):  # a tenth of a second each
            keys, now = np.arange(10_000), datetime.now(UTC)
            times = pa.repeat(pa.scalar(now, pa.timestamp("us", "UTC")), len(keys))
            source.push_arrow(pa.table({"k": keys, "v": keys, "ts": times}))
            if number in {150, 399}:
                memory.append(resident(os.getpid()) + sum(map(resident, children(os.getpid()))))
            if number == 150:
                behind.clear()  # from now on as many leave as come
            time.sleep(max(0.0, began + number / 10 - time.perf_counter()))
    behind.sort()
    figure = (
        f"rows leave {statistics.median(behind):.2f} s late, at most {behind[-1]:.2f} s; "
        f"{memory[0]:,.0f} MB of memory after 15 s, {memory[1]:,.0f} MB after 40 s"
    )
    return "a temporal filter that 100,000 rows leave each second", figure, "1 s, flat"


def resident(process: int) -> float:
    """The memory of a process, in MB."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def children(process: int) -> list[int]:
    """The processes that a process has started."""
    found = Path(f"/proc/{process}/task").glob("*/children")
    return [int(each) for file in found for each in file.read_text().split()]


def as_of(path: Path) -> tuple[str, str, str]:
    """SELECT AS OF, of two views and of a source, and of the same rows as a plain Spark batch."""
    rows = 10 * ROWS
    memory = {"spark.driver.memory": "3g"}  # the join keeps its rows
    with ms.open(path / "db", spark_options=memory) as db:
        db.execute("CREATE SOURCE trades (symbol VARCHAR, price BIGINT, qty BIGINT, ts TIMESTAMP)")
        db.execute("CREATE TABLE companies (symbol VARCHAR PRIMARY KEY, sector BIGINT)")
        db.insert("companies", [(f"S{n}", n % 20) for n in range(SYMBOLS)])
        for first in range(0, rows, 100_000):
            db.insert("trades", trades(first, 100_000))
        then = db.flush()
        for first in range(rows, rows + ROWS, 100_000):
            db.insert("trades", trades(first, 100_000))
        for each, sql in (("v", TOTALS), ("j", SECTORS)):
            db.execute(f"CREATE MATERIALIZED VIEW {each} AS {sql}")
            db.wait_for(each)
        view = warm(lambda: db.query(f"SELECT * FROM v AS OF {then}"))
        join = warm(lambda: db.query(f"SELECT * FROM j AS OF {then}"))
        source = warm(lambda: db.query(f"{TOTALS} AS OF {then}"))
        for each in ("trades", "companies"):
            read = db.query(f"SELECT * FROM {each} AS OF {then}").to_arrow()
            pq.write_table(read, path / f"{each}.parquet")
    plain, joined = apart(path, "batch", TOTALS), apart(path, "batch", SECTORS)
    figure = (
        f"a view {view:.1f} s, plain Spark batch {plain:.1f} s: {view / plain:.1f}x; "
        f"a view with a join {join:.1f} s, {joined:.1f} s: {join / joined:.1f}x; "
        f"a query of the source {source:.1f} s: {source / plain:.1f}x"
    )
    return f"AS OF, {rows:,} rows of the past", figure, "2x"


def trades(first: int, count: int) -> pa.Table:
    """So many trades of a thousand symbols."""
    numbers = np.arange(first, first + count)
    return pa.table(
        {
            "symbol": pa.array([f"S{n}" for n in numbers % SYMBOLS]),
            "price": numbers * 7919 % 10_007,
            "qty": numbers % 100,
            "ts": pa.array(numbers * 1000 + int(NOON.timestamp() * 1e6), pa.timestamp("us", "UTC")),
        }
    )


def warm(run: Callable[[], object]) -> float:
    """The seconds that something takes, the second time."""
    took = 0.0
    for _ in range(2):
        began = time.perf_counter()
        run()
        took = time.perf_counter() - began
    return took


def built(db: Database, sql: str) -> float:
    """The seconds that a view takes to be built, the second time: warm, as plain Spark is."""
    took = 0.0
    for _ in range(2):
        began = time.perf_counter()
        db.execute(f"CREATE MATERIALIZED VIEW v AS {sql}")
        db.wait_for("v")
        took = time.perf_counter() - began
        db.execute("DROP VIEW v")
    return took


def apart(path: Path, kind: str, sql: str) -> float:
    """The seconds that plain Spark takes, in a process of its own."""
    files = {each.stem: [str(each)] for each in path.glob("*.parquet")}
    [took] = seconds_of([Job(sql, files, streaming=kind == "streaming")])
    return took


def catch_up(path: Path, sql: str, name: str, *, streaming: bool) -> tuple[str, str, str]:
    """Rows a second of a new view over what is there, and of plain Spark."""
    auctions, persons = ROWS // 10, ROWS // 100
    with nexmark(path / "db") as db:
        for first in range(0, persons, 10_000):
            db.insert("persons", [person(n) for n in range(first, first + 10_000)])
        for first in range(0, auctions, 10_000):
            db.insert("auctions", [auction(n) for n in range(first, first + 10_000)])
        for first in range(0, ROWS, 50_000):
            db.insert("bids", [bid(n, auctions) for n in range(first, first + 50_000)])
        db.flush()
        read = {"persons": persons, "auctions": auctions, "bids": ROWS}
        rows = sum(count for each, count in read.items() if each in sql)
        ours = rows / built(db, sql.format(**OURS))
        for each in read:
            pq.write_table(db.query(f"SELECT * FROM {each}").to_arrow(), path / f"{each}.parquet")
    kind = "streaming" if streaming else "batch"
    theirs = apart(path, kind, sql.format(**SPARKS))
    figure = f"{ours:,.0f} rows/s, plain Spark {kind} {rows / theirs:,.0f} rows/s"
    return f"catch up: {name}", f"{figure}: {ours * theirs / rows:.0%}", "80%"


BENCHMARKS: dict[str, Callable[[Path], tuple[str, str, str]]] = {
    "live": lambda path: live(path, JOIN, "p50 1 ms", "stream-stream join, one match"),
    "live4": lambda path: live(path, Q4, "p50 1.5 ms", "Nexmark q4: join, MAX, AVG over it"),
    "table": table_update,
    "asof": asof_live,
    "asof_catch_up": asof_catch_up,
    "top": lambda path: ordered(path, "top", 100),
    "newest": lambda path: ordered(path, "newest", 1000),
    "lag": lambda path: ordered(path, "lag", 1000),
    "lag_middle": lambda path: ordered(path, "lag", 1, middle=True),
    "running": lambda path: ordered(path, "running", 1),
    **{f"{each}_catch_up": partial(ordered_catch_up, which=each) for each in ORDERED},
    "join": lambda path: catch_up(path, JOIN, "stream-stream join", streaming=True),
    "q3": lambda path: catch_up(path, Q3, "Nexmark q3", streaming=True),
    "q4": lambda path: catch_up(path, Q4, "Nexmark q4", streaming=False),
    "q7": lambda path: catch_up(path, Q7, "Nexmark q7", streaming=True),
    "q8": lambda path: catch_up(path, Q8, "Nexmark q8", streaming=True),
    "now": temporal,
    "as-of": as_of,
    "q20": lambda path: catch_up(path, Q20, "Nexmark q20", streaming=True),
}


def main() -> None:
    """Run the benchmarks, and print their table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(BENCHMARKS))
    given = parser.parse_args()
    chosen = given.only.split(",")
    table = Table("work", "figure", "must reach", title="benchmarks/sql.py")
    console = Console(width=120)
    for name in chosen:
        with tempfile.TemporaryDirectory() as folder, console.status(name):
            table.add_row(*BENCHMARKS[name](Path(folder)))
    console.print(table)


if __name__ == "__main__":
    main()
