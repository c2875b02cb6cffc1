"""The figures of views on Spark: latency, throughput, memory, and plain PySpark beside them.

    python benchmarks/views.py                about five minutes
    python benchmarks/views.py --minutes 10   the long run, with its batch boundaries, as well
    python benchmarks/views.py --only live,first

The view is a 1-minute tumbling SUM and COUNT per symbol, of 100 symbols. Plain PySpark runs the
same query in a process of its own (``pyspark_views.py``).
"""

from __future__ import annotations

import argparse
import gc
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
from rich.console import Console
from rich.table import Table

import millstream as ms
from millstream.views.run import live as live_feed

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream import ChangeBatch, Database

HERE = Path(__file__).parent
SYMBOLS = [f"S{number:02}" for number in range(100)]
SOURCE = (
    "CREATE SOURCE trades (symbol VARCHAR, price DOUBLE, qty BIGINT, ts TIMESTAMP, "
    "WATERMARK FOR ts AS ts - INTERVAL '10 seconds')"
)
SELECT = (
    "SELECT symbol, TUMBLE_START(ts, INTERVAL '1 minute') AS minute, SUM(qty) AS volume, "
    "COUNT(*) AS trades FROM trades GROUP BY symbol, TUMBLE(ts, INTERVAL '1 minute')"
)
WARM = 3000
PINGS = 3000
ROWS = 5_000_000


class Pings:
    """Pushes one row after the other, and waits for the change that each leads to."""

    def __init__(self, db: Database, views: list[str]) -> None:
        self._source = db.source("trades")
        self._views = len(views)
        self._left = 0
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._at = 0.0
        self._began = 0.0
        self.each: list[float] = []
        for view in views:
            db.subscribe_callback(f"SELECT * FROM {view}", self._take, start="now")

    def _take(self, batch: ChangeBatch) -> None:
        del batch
        now = time.perf_counter()
        with self._lock:
            self._left -= 1
            self._at = now
            self.each.append((now - self._began) * 1e3)
            if self._left <= 0:
                self._done.set()

    def one(self, number: int) -> float:
        """The milliseconds from a push to the last callback."""
        self._done.clear()
        self._left = self._views
        row = (SYMBOLS[number % 100], 1.0, 1, datetime.now(UTC))
        self._began = time.perf_counter()
        self._source.push(row)
        if not self._done.wait(60):
            raise TimeoutError("a change did not come")
        return (self._at - self._began) * 1e3

    def many(self, count: int, pause: float = 0.002) -> list[float]:
        """The same, again and again."""
        times = []
        for number in range(count):
            times.append(self.one(number))
            time.sleep(pause)
        return times


def percentile(times: list[float], share: float) -> float:
    """What this share of the times did not exceed."""
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def opened(views: int, options: str = "") -> tuple[Database, list[str]]:
    """A database with so many live views, each of its own query."""
    db = ms.open()
    db.execute(SOURCE)
    names = [f"v{number}" for number in range(views)]
    for number, name in enumerate(names):
        extra = f", MAX(price) + {number} AS high" if number else ""
        select = SELECT.replace(" FROM", extra + " FROM")
        db.execute(f"CREATE MATERIALIZED VIEW {name} {options} AS {select}")
    for name in names:
        db.wait_for(name, timeout=120)
    return db, names


def live(views: int) -> dict[str, float]:
    """Push to callback, warm."""
    db, names = opened(views)
    with db:
        pings = Pings(db, names)
        gc.collect()
        gc.freeze()
        warm = WARM if views == 1 else WARM // 3
        pings.many(warm)
        pings.each.clear()
        last = pings.many(PINGS if views == 1 else PINGS // 3)
        times = pings.each
        return {
            "p50": statistics.median(times),
            "p99": percentile(times, 0.99),
            "last": statistics.median(last),
        }


def first_rows(count: int = 300) -> dict[str, float]:
    """Push to callback of the first rows after ``wait_for``, ten in a second."""
    db, names = opened(1)
    with db:
        times = Pings(db, names).many(count, pause=0.1)
    return {"p50": statistics.median(times), "max": max(times)}


class Stream:
    """Pushes rows at a steady rate, whatever becomes of them, and notes when each result came."""

    def __init__(self, db: Database) -> None:
        self._source = db.source("trades")
        self._pushed: dict[str, deque[float]] = {symbol: deque() for symbol in SYMBOLS}
        self._counts: dict[tuple[Any, ...], int] = {}
        self.times: list[float] = []
        db.subscribe_callback("SELECT * FROM v0", self._take, start="now")

    def _take(self, batch: ChangeBatch) -> None:
        now = time.perf_counter()
        for change in batch:
            if change.op == "delete":
                continue
            symbol, minute, _, count = change.row
            before = self._counts.get((symbol, minute), 0)
            self._counts[symbol, minute] = count
            for _ in range(count - before):
                self.times.append((now - self._pushed[symbol].popleft()) * 1e3)

    def run(self, seconds: float, rate: int = 250) -> None:
        """So many rows a second."""
        began = time.perf_counter()
        for number in range(int(seconds * rate)):
            ahead = began + number / rate - time.perf_counter()
            if ahead > 0:
                time.sleep(ahead)
            symbol = SYMBOLS[number % 100]
            self._pushed[symbol].append(time.perf_counter())
            self._source.push((symbol, 1.0, 1, datetime.now(UTC)))


def long_run(minutes: float) -> dict[str, float]:
    """The same for minutes on end, at a steady rate, with one batch boundary on the way.

    Boundaries come every 15 minutes, so ten minutes have less than one.
    """
    live_feed.LIVE_SECONDS = minutes * 40  # type: ignore[misc]
    db, _ = opened(1)
    with db:
        stream = Stream(db)
        stream.run(10)
        db.wait_for("v0", timeout=60)
        stream.times.clear()
        stream.run(minutes * 60)
        db.wait_for("v0", timeout=60)
        times = stream.times
        return {
            "p50": statistics.median(times),
            "p99": percentile(times, 0.99),
            "p99.9": percentile(times, 0.999),
            "max": max(times),
            "rows": len(times),
        }


def trades(rows: int, at: datetime) -> pa.Table:
    """Trades of one minute."""
    symbols = pa.DictionaryArray.from_arrays(
        pa.array([number % 100 for number in range(rows)], pa.int32()), pa.array(SYMBOLS)
    ).cast(pa.string())
    return pa.table(
        {
            "symbol": symbols,
            "price": pa.array([1.0]).take(pa.array([0] * rows)),
            "qty": pa.repeat(pa.scalar(1, pa.int64()), rows),
            "ts": pa.repeat(pa.scalar(at, pa.timestamp("us", "UTC")), rows),
        }
    )


def catch_up(rows: int = ROWS, options: str = "") -> float:
    """Rows a second, from the first push until a subscriber has the final counts; warm."""
    db, _ = opened(1, options)
    best = 0.0
    with db:
        at = datetime.now(UTC).replace(second=1, microsecond=0)
        table = trades(100_000, at)
        counts: dict[tuple[Any, ...], int] = {}
        wanted, done = 0, threading.Event()

        def take(batch: ChangeBatch) -> None:
            for change in batch:
                if change.op != "delete":
                    counts[change.row[:2]] = change.row[3]
            if sum(counts.values()) >= wanted:
                done.set()

        db.subscribe_callback("SELECT * FROM v0", take)
        for _ in range(4):
            done.clear()
            wanted += rows
            began = time.perf_counter()
            for _ in range(rows // table.num_rows):
                db.insert("trades", table)
            if not done.wait(120):
                raise TimeoutError(f"{sum(counts.values()):,} of {wanted:,}")
            best = max(best, rows / (time.perf_counter() - began))
    return best


def partitioned() -> str:
    """The same view with 4 partitions against 1: rows a second, and a row's way."""
    rates, times = [], []
    for options in ("", "WITH (partitions = 4)"):
        rates.append(catch_up(2_000_000, options))
        db, names = opened(1, options)
        with db:
            pings = Pings(db, names)
            pings.many(WARM // 3)
            times.append(statistics.median(pings.many(PINGS // 3)))
    return (
        f"{rates[1] / 1e6:.2f}M rows/s against {rates[0] / 1e6:.2f}M: {rates[1] / rates[0]:.0%}; "
        f"p50 {times[1]:.2f} ms against {times[0]:.2f}"
    )


def walk(groups: int = 1_000_000) -> float:
    """Milliseconds that Spark looks for closed windows, of so many open ones, at a batch's end."""
    with mock.patch("millstream.views.run.live.LIVE_ROWS", 1), ms.open() as db:
        db.execute("CREATE SOURCE t (k BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts)")
        at = datetime.now(UTC)
        times = pa.repeat(pa.scalar(at, pa.timestamp("us", "UTC")), groups)
        db.insert("t", pa.table({"k": pa.array(range(groups)), "ts": times}))
        db.execute(
            "CREATE MATERIALIZED VIEW w AS SELECT k, WINDOW_END AS e, COUNT(*) AS n FROM t "
            "GROUP BY k, TUMBLE(ts, INTERVAL '30 days')"
        )
        db.wait_for("w", timeout=300)
        for number in range(10):
            db.source("t").push((number, at))
            db.wait_for("w", timeout=60)
            time.sleep(1)  # the batch ends
        runner: Any = db._engine.views["w"].runner  # noqa: SLF001 - Spark's own figures
        [running] = runner._query.session.streams.active  # noqa: SLF001
        states = [state for batch in running.recentProgress for state in batch["stateOperators"]]
        took: list[float] = [state["allRemovalsTimeMs"] for state in states]
        return statistics.median(took)


def joined(rows: int = 2_000_000) -> tuple[float, float]:
    """Rows a second through a join with a table, and the seconds that a change of it takes."""
    db, _ = opened(1)
    with db:
        db.execute("CREATE TABLE names (symbol VARCHAR PRIMARY KEY, name VARCHAR)")
        for symbol in SYMBOLS:
            db.execute(f"INSERT INTO names VALUES ('{symbol}', 'N{symbol}')")
        db.execute(
            "CREATE MATERIALIZED VIEW named AS SELECT n.name, SUM(t.qty) AS volume "
            "FROM trades t JOIN names n ON t.symbol = n.symbol GROUP BY n.name"
        )
        db.wait_for("named", timeout=60)
        db.execute("DROP VIEW v0")
        table, best = trades(100_000, datetime.now(UTC)), 0.0
        for _ in range(3):
            began = time.perf_counter()
            for _ in range(rows // table.num_rows):
                db.insert("trades", table)
            db.wait_for("named", timeout=120)
            best = max(best, rows / (time.perf_counter() - began))
        began = time.perf_counter()
        db.execute("UPDATE names SET name = 'other' WHERE symbol = 'S07'")
        db.wait_for("named", timeout=120)
        return best, time.perf_counter() - began


def one_by_one(rows: int = 100_000) -> float:
    """Rows a second that a new view reads of those that were pushed one by one, each a commit."""
    db, _ = opened(1)
    with db:
        source, barrier = db.source("trades"), db._engine.dispatcher.barrier  # noqa: SLF001
        for number in range(rows):
            source.push((SYMBOLS[number % 100], 1.0, 1, datetime.now(UTC)))
            barrier()
        began = time.perf_counter()
        db.execute(f"CREATE MATERIALIZED VIEW later AS {SELECT.replace('SUM', 'MAX')}")
        db.wait_for("later", timeout=300)
        return rows / (time.perf_counter() - began)


def reopened(changes: int = 100_000) -> tuple[float, float]:
    """Seconds to open a database whose table has changed so often: as it is, and by its log."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "db"
        with ms.open(path) as db:
            db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT)")
            for number in range(changes):
                db.execute(f"INSERT OR REPLACE INTO t VALUES ({number % 1000}, {number})")

        def opens() -> float:
            began = time.perf_counter()
            with ms.open(path) as db:
                took = time.perf_counter() - began
                if len(db.query("SELECT k FROM t")) != 1000:
                    raise AssertionError
            return took

        saved = opens()
        shutil.rmtree(path / "rows")
        return saved, opens()


def sustained() -> float:
    """The highest rate, of those tried, that a view keeps up with for five seconds."""
    db, _ = opened(1)
    reached = 0.0
    with db:
        source, at = db.source("trades"), datetime.now(UTC)
        rows = trades(1000, at).to_batches()[0]
        running = db._engine.views["v0"]  # noqa: SLF001 - its lag is what is measured
        Pings(db, ["v0"]).many(500)
        for rate in (150_000, 250_000, 350_000, 500_000, 700_000, 1_000_000):
            began = time.perf_counter()
            for number in range(rate * 5 // 1000):
                source.push_arrow(rows)
                ahead = began + (number + 1) * 1000 / rate - time.perf_counter()
                if ahead > 0.001:
                    time.sleep(ahead)
            took = time.perf_counter() - began
            lag = running.lag(db.lsn)
            db.wait_for("v0", timeout=60)
            if lag > rate / 4:
                break
            reached = rate * 5 / took
    return reached


_FIRST = """
import time; began = time.perf_counter()
import millstream as ms
db = ms.open()
db.execute({source!r})
db.execute("CREATE MATERIALIZED VIEW v0 AS " + {select!r})
from datetime import UTC, datetime
db.source("trades").push(("S01", 1.0, 1, datetime.now(UTC)))
db.wait_for("v0", timeout=120)
assert len(db.query("SELECT * FROM v0")) == 1
print(time.perf_counter() - began)
db.close()
"""

_MEMORY = """
import gc, os, pyarrow as pa, numpy as np
import millstream as ms
def rss():
    gc.collect(); pa.default_memory_pool().release_unused()
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6
db = ms.open()
db.execute("CREATE SOURCE t (k BIGINT, v BIGINT)")
db.execute("CREATE MATERIALIZED VIEW m AS SELECT k, SUM(v) AS s, COUNT(*) AS n FROM t GROUP BY k")
db.insert("t", pa.table({"k": pa.array([0], pa.int64()), "v": pa.array([1], pa.int64())}))
db.wait_for("m", timeout=120)
before = rss()
keys = np.arange(1_000_000)
for part in np.array_split(keys, 10):
    db.insert("t", pa.table({"k": pa.array(part), "v": pa.array(np.ones(len(part), np.int64))}))
db.wait_for("m", timeout=300)
assert len(db.query("SELECT k FROM m WHERE s > 0")) == 1_000_000
print(rss() - before)
db.close()
"""


_COLD = """
import sys; sys.path.insert(0, {folder!r})
import views
found = views.first_rows()
print(found["p50"], found["max"])
"""


def figures_of(code: str) -> list[float]:
    """The figures that a program prints in its last line, run by itself."""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return [float(each) for each in done.stdout.splitlines()[-1].split()]


def in_new_process(code: str) -> float:
    """What a program prints last, run by itself."""
    return figures_of(code)[-1]


def plain_pyspark() -> dict[str, float]:
    """The same query by PySpark's own means, in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(HERE / "pyspark_views.py"), str(ROWS)],
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, float] = json.loads(done.stdout.strip().split("\n")[-1])
    return found


def main() -> None:  # noqa: C901, PLR0915 - one short function for each row
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    wanted = set(options.only.split(",")) - {""}
    table = Table("work", "reached", "must", title="Views on Spark")
    console = Console()

    def row(name: str, work: str, must: str, measure: Callable[[], str]) -> None:
        if not wanted or name in wanted:
            with console.status(work):
                table.add_row(work, measure(), must)

    plain: dict[str, float] = {}
    figures: dict[str, dict[str, float]] = {}

    def one_view() -> str:
        figures["live"] = found = live(1)
        return f"p50 {found['p50']:.2f} ms, p99 {found['p99']:.2f} ms"

    def ratio() -> str:
        plain.update(plain_pyspark())
        times = plain["ping_ms"] / figures["live"]["p50"] if "live" in figures else 0
        return f"{plain['ping_ms']:.0f} ms: {times:.0f}x"

    def throughput() -> str:
        ours = catch_up()
        if not plain:
            plain.update(plain_pyspark())
        share = ours / plain["rows_per_second"]
        theirs = plain["rows_per_second"] / 1e6
        return f"{ours / 1e6:.2f}M rows/s; PySpark {theirs:.2f}M: {share:.0%}"

    def ten() -> str:
        found = live(10)
        return f"p50 {found['p50']:.2f} ms (the last of ten {found['last']:.2f})"

    def minutes() -> str:
        found = long_run(options.minutes)
        return ", ".join(f"{name} {value:.2f}" for name, value in found.items())

    def join() -> str:
        rate, seconds = joined()
        return f"{rate / 1e6:.2f}M rows/s; corrected in {seconds:.2f} s"

    def reopen() -> str:
        saved, log = reopened()
        return f"{saved:.2f} s; by the log alone {log:.2f} s"

    def memory() -> str:
        return f"{in_new_process(_MEMORY):.0f} MB"

    def first() -> str:
        code = _FIRST.format(source=SOURCE, select=SELECT)
        return f"{in_new_process(code):.1f} s"

    def cold() -> str:
        median, most = figures_of(_COLD.format(folder=str(HERE)))
        return f"p50 {median:.2f} ms, at most {most:.0f} ms"

    def long() -> str:
        return minutes() if options.minutes else "left out (--minutes 10)"

    row("live", "push to callback, 1 view", "p50 0.3 ms, p99 1.5 ms", one_view)
    row("plain", "the same by foreachBatch", "300x", ratio)
    row("ten", "10 views", "p50 1 ms", ten)
    row("catchup", "5M rows as Arrow", "5M rows/s, 80%", throughput)
    row("partitions", "4 partitions against 1", "no loss on 2 cores", partitioned)
    row("sustained", "sustained, rows/s", "250k", lambda: f"{sustained() / 1e3:.0f}k")
    row("first", "first view ready", "5 s", first)
    row("cold", "its first 300 rows, ten in a second", "p50 0.8 ms", cold)
    row("memory", "1M keys, Python", "300 MB", memory)
    row("joined", "join with a table; a change of it", "", join)
    row("single", "backfill of rows pushed one by one", "", lambda: f"{one_by_one():,.0f} rows/s")
    row("open", "open after 100,000 changes of a table", "", reopen)
    row("state", "1M open windows, at a batch's end", "1 s", lambda: f"{walk():.0f} ms")
    row("minutes", f"{options.minutes:g} minutes", "p99.9 20 ms", long)
    console.print(table)


if __name__ == "__main__":
    main()
