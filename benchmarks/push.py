"""The figures of pushing: ours, the baseline's in the same run, the ratio.

    python benchmarks/push.py               about a minute
    python benchmarks/push.py --laminardb   LaminarDB's wheel beside it, in its own environment

The machine is noisy: pairs are measured in turns, and medians are what counts. As a program that
cares for microseconds would, it freezes what its imports have made, so that the collector of
garbage does not walk over it again and again (``gc.freeze``).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
import tracemalloc
import venv
from collections import deque
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pyarrow as pa
from rich.console import Console
from rich.table import Table

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream import ChangeBatch, Database, Source

NOW = datetime(2026, 1, 2, tzinfo=UTC)
ROW = ("AAPL", 187.2, 100, NOW)
TRADES = "CREATE SOURCE trades (symbol VARCHAR NOT NULL, price DOUBLE, qty BIGINT, ts TIMESTAMP)"
NUMBERS = "CREATE SOURCE numbers (a BIGINT NOT NULL, b BIGINT, c BIGINT, d BIGINT)"
HIGH = "SELECT * FROM trades WHERE price > 100"


class Bare:
    """What a push costs at the very least: an append through a method."""

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows: deque[object] = deque()

    def push(self, row: object) -> None:
        """Append."""
        self.rows.append(row)


def opened(options: str = "") -> tuple[Database, Source]:
    """A database with a source of trades."""
    db = ms.open()
    db.execute(f"{TRADES} WITH ({options})" if options else TRADES)
    return db, db.source("trades")


def per_call(push: Callable[[Any], object], row: object, calls: int) -> float:
    """The nanoseconds that a call takes."""
    began = time.perf_counter_ns()
    for _ in range(calls):
        push(row)
    return (time.perf_counter_ns() - began) / calls


class Counter:
    """A callback that waits for a number of rows, and has them in the form they came in."""

    def __init__(self, wanted: int, *, arrow: bool = False) -> None:
        self.wanted = wanted
        self.seen = 0
        self.done = threading.Event()
        self._arrow = arrow

    def __call__(self, batch: ChangeBatch) -> None:
        """Count."""
        self.seen += batch.arrow.num_rows if self._arrow else len(batch.rows)
        if self.seen >= self.wanted:
            self.done.set()


class Bench:
    """One table for all the figures."""

    def __init__(self, *, scale: float, peer: dict[str, str]) -> None:
        self.scale = scale
        self.peer = peer
        self.table = Table(
            *("work", "ours", "baseline", "ratio", "must reach", "LaminarDB 0.17.0"),
            title="benchmarks/push.py",
        )

    def row(  # noqa: PLR0917 - the columns of the table
        self, work: str, ours: str, baseline: str, ratio: str, goal: str, peer: str = ""
    ) -> None:
        """Add a line to the table."""
        self.table.add_row(work, ours, baseline, ratio, goal, self.peer.get(peer, ""))

    # ---- Ring 0

    def push(self) -> None:
        """One producer; bursts that the buffer holds, so that the push is what is measured."""
        db, trades = opened("buffer_size = 1000000")
        bare, burst = Bare(), 15_000
        pairs = []
        with db:
            for _ in range(60):
                pairs.append((per_call(trades.push, ROW, burst), per_call(bare.push, ROW, burst)))
                db.flush()
                bare.rows.clear()
            two = self._two_producers(trades, db, burst)
        ours, plain = (statistics.median(pair[i] for pair in pairs[5:]) for i in (0, 1))
        ratio = statistics.median(one / other for one, other in pairs[5:])
        self.row(
            "push of a tuple, dispatcher running",
            f"{ours:.0f} ns",
            f"deque.append in a method {plain:.0f} ns",
            f"{ratio:.1f}x",
            "5x",
            "push",
        )
        self.row(
            "push with 2 producers, time per push",
            f"{two:.0f} ns",
            f"1 producer {ours:.0f} ns",
            f"{two / ours:.1f}x",
            "2x",
        )

    def _two_producers(self, trades: Source, db: Database, burst: int) -> float:
        other, times = trades.clone(), []
        for _ in range(40):
            began = time.perf_counter_ns()
            threads = [
                threading.Thread(target=per_call, args=(each.push, ROW, burst))
                for each in (trades, other)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            times.append((time.perf_counter_ns() - began) / (2 * burst))
            db.flush()
        return statistics.median(times)

    def push_arrow(self) -> None:
        """A call with 1,000 rows: text and times are checked, numbers need not be."""
        db, trades = opened("buffer_size = 10000000")
        with db:
            db.execute(f"{NUMBERS} WITH (buffer_size = 10000000)")
            numbers = db.source("numbers")
            batch = _batch(trades, 1000)
            plain = numbers.schema.conform(
                pa.record_batch([pa.array(range(1000), pa.int64())] * 4, numbers.schema.names)
            )
            pairs = []
            for _ in range(40):
                ours = per_call(trades.push_arrow, batch, 200) / 1000
                db.flush()
                pairs.append((ours, per_call(numbers.push_arrow, plain, 200) / 1000))
                db.flush()
        ours, unchecked = (statistics.median(pair[i] for pair in pairs) for i in (0, 1))
        self.row(
            "push_arrow of 1,000 rows",
            f"{ours:.1f} us",
            f"of numbers only, {unchecked:.1f} us",
            f"{statistics.median(one / other for one, other in pairs):.1f}x",
            "5 us",
        )

    def inline(self) -> None:
        """A push that calls back behind a filter, on the pusher's thread."""
        db, trades = opened("buffer_size = 1000000")
        with db:
            db.subscribe_callback(HIGH, _ignore, inline=True)
            times = []
            for _ in range(40):
                times.append(per_call(trades.push, ROW, 5_000))
                db.flush()
        ours = statistics.median(times)
        self.row("push to an inline callback behind a filter", f"{ours:.0f} ns", "", "", "1,000 ns")

    # ---- Ring 2

    def hop(self) -> None:
        """From a push to a callback on its own thread; nothing else goes on."""
        pairs = [(self._our_hop(), self._bare_hop()) for _ in range(5)]
        ours, plain = (statistics.median(pair[i] for pair in pairs) for i in (0, 1))
        ratio = statistics.median(one / other for one, other in pairs)
        self.row(
            "push to a callback on its own thread, idle, p50",
            f"{ours / 1000:.1f} us",
            f"SimpleQueue hop {plain / 1000:.1f} us",
            f"{ratio:.1f}x",
            "3x",
            "hop",
        )

    def _our_hop(self) -> float:
        db, trades = opened()
        taken, came = list[int](), threading.Event()

        def on_change(_: ChangeBatch) -> None:
            taken.append(time.perf_counter_ns())
            came.set()

        with db:
            db.subscribe_callback(HIGH, on_change)
            return _hops(lambda: trades.push(ROW), taken, came)

    def _bare_hop(self) -> float:
        queue: SimpleQueue[object] = SimpleQueue()
        taken, came = list[int](), threading.Event()

        def consume() -> None:
            while queue.get() is not None:
                taken.append(time.perf_counter_ns())
                came.set()

        thread = threading.Thread(target=consume)
        thread.start()
        try:
            return _hops(lambda: queue.put(ROW), taken, came)
        finally:
            queue.put(None)
            thread.join()

    def sustained(self) -> None:
        """One row at a time, as fast as it goes, until all are delivered."""
        rows = int(1_000_000 * self.scale)
        rates = []
        for _ in range(3):
            db, trades = opened()
            counter = Counter(rows)
            with db:
                db.subscribe_callback(HIGH, counter)
                began = time.perf_counter()
                per_call(trades.push, ROW, rows)
                counter.done.wait()
                rates.append(rows / (time.perf_counter() - began))
            if counter.seen != rows:
                raise AssertionError(f"{counter.seen} of {rows} rows came")
        self.row(
            "one-row pushes delivered to a callback, sustained",
            f"{statistics.median(rates) / 1000:.0f} thousand rows/s, none lost",
            *("", "", "500 thousand", "rows"),
        )

    def mixed(self) -> None:
        """Ordinary rows, sustained, with the dispatcher and the log at work: no two are alike."""
        gc.unfreeze()
        rows, turns = _ordinary(100_000), max(1, int(10 * self.scale))
        calls, rates, spent = [], [], []
        for _ in range(3):
            db, trades = opened()
            counter = Counter(len(rows) * turns)
            push = trades.push
            with db:
                db.subscribe_callback(HIGH, counter)
                cpu, began = time.process_time(), time.perf_counter()
                for _ in range(turns):
                    for row in rows:
                        push(row)
                pushed = time.perf_counter()
                counter.done.wait()
                calls.append((pushed - began) / len(rows) / turns * 1e9)
                rates.append(len(rows) * turns / (time.perf_counter() - began))
                db.flush()
                spent.append((time.process_time() - cpu) / len(rows) / turns * 1e9)
        gc.freeze()
        self.row(
            "push of ordinary rows, sustained, logged: time of a push",
            *(f"{statistics.median(calls):.0f} ns", "", "", "350 ns"),
        )
        self.row(
            "the same, delivered to a callback",
            *(f"{statistics.median(rates) / 1000:.0f} thousand rows/s", "", "", "1,500 thousand"),
        )
        self.row(
            "the same, processor time of a row until it is on the disk, all threads",
            *(f"{statistics.median(spent):.0f} ns", "", "", ""),
        )

    def arrow(self, rows: int, total: int, goal: str) -> None:
        """Arrow batches through a filter that keeps half, until all are delivered."""
        count = int(total * self.scale) // rows
        rates, plain = [], []
        for _ in range(3):
            plain.append(rows * count / _plain_write(rows, count))
            db, trades = opened("buffer_size = 2000000")
            batch = _batch(trades, rows)
            counter = Counter(rows // 2 * count, arrow=True)
            with db:
                db.subscribe_callback(HIGH, counter)
                began = time.perf_counter()
                for _ in range(count):
                    trades.push_arrow(batch)
                counter.done.wait()
                rates.append(rows * count / (time.perf_counter() - began))
        ours, disk = statistics.median(rates) / 1e6, statistics.median(plain) / 1e6
        self.row(
            f"{rows:,}-row Arrow batches through a filter that keeps half, logged",
            f"{ours:.0f}M rows/s",
            f"os.write of the same rows {disk:.0f}M rows/s",
            f"{ours / disk:.0%}",
            *(goal, f"arrow {rows}"),
        )

    def many(self) -> None:
        """1,000 subscribers, each with its own symbol, against one of them."""
        rows = [(f"S{n % 1000}", float(n), n, NOW) for n in range(100_000)]
        ratios, times = [], []
        for _ in range(3):
            one, thousand = (self._fan_out(rows, subscribers) for subscribers in (1, 1000))
            ratios.append(thousand / one)
            times.append((thousand, one))
        ours, plain = (statistics.median(t[i] for t in times) for i in (0, 1))
        self.row(
            "1,000 subscribers with distinct equality filters",
            f"{ours:.0f} ns a row",
            f"1 subscriber {plain:.0f} ns a row",
            f"{statistics.median(ratios):.1f}x",
            "5x",
        )

    def _fan_out(self, rows: list[Any], subscribers: int) -> float:
        db, trades = opened()
        with db:
            subscriptions = [
                db.subscribe(f"SELECT * FROM trades WHERE symbol = 'S{n}'")
                for n in range(subscribers)
            ]
            began = time.perf_counter_ns()
            for row in rows:
                trades.push(row)
            db.flush()
            took = (time.perf_counter_ns() - began) / len(rows)
            got = sum(sub.metrics.lag_rows for sub in subscriptions)
        if got != len(rows) // 1000 * subscribers:
            raise AssertionError(f"{got} rows came")
        return took

    def idle(self) -> None:
        """What a subscription costs that nothing happens to."""
        count = 200
        db, _ = opened()
        with db:
            kept = [db.subscribe(f"SELECT * FROM trades WHERE price > {n}") for n in range(5)]
            gc.collect()
            tracemalloc.start()
            before, _peak = tracemalloc.get_traced_memory()
            kept += [
                db.subscribe(f"SELECT * FROM trades WHERE price > {n}.5") for n in range(count)
            ]
            gc.collect()
            after, _peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            cpu = time.process_time()
            time.sleep(1)
            cpu = time.process_time() - cpu
        self.row(
            "idle subscription, distinct filters",
            f"{(after - before) / count / 1024:.1f} KiB; {count}: {cpu * 1000:.1f} ms CPU/s",
            *("", "", "8 KiB, no CPU"),
        )


def _ordinary(count: int) -> list[tuple[object, ...]]:
    """Rows as people have them: epochs, texts of several scripts, times of several zones."""
    zones = [UTC, ZoneInfo("Europe/Berlin"), None, timezone(timedelta(hours=-5))]
    names = ("AAPL", "Zoë Müller", "MSFT", "東京")
    made: list[tuple[object, ...]] = []
    for number in range(count):
        ts, zone = NOW + timedelta(milliseconds=number), zones[number % 4]
        ts = ts.replace(tzinfo=None) if zone is None else ts.astimezone(zone)
        price = 187.25 + number if number % 3 else 187
        made.append((names[number // 4 % 4], price, 1_790_000_000_000 + number, ts))
    return made


def _batch(trades: Source, rows: int) -> pa.RecordBatch:
    half = rows // 2
    columns = {
        "symbol": ["AAPL", "MSFT"] * half,
        "price": [50.0, 150.0] * half,
        "qty": list(range(rows)),
        "ts": [NOW] * rows,
    }
    return pa.RecordBatch.from_pydict(columns, schema=trades.schema.arrow)


def _ignore(_: ChangeBatch) -> None:
    """A callback that does nothing, so that the way to it is what is measured."""


def _plain_write(rows: int, count: int) -> float:
    """The seconds that it takes to write the same rows to a file, and to do nothing else."""
    with opened()[0] as db:
        payload = _batch(db.source("trades"), rows).serialize().to_pybytes()
    with tempfile.NamedTemporaryFile() as file:
        began = time.perf_counter()
        for _ in range(count):
            os.write(file.fileno(), payload)
        return time.perf_counter() - began


def _hops(send: Callable[[], object], taken: list[int], came: threading.Event) -> float:
    sent = []
    for _ in range(500):
        came.clear()
        time.sleep(0.002)  # all threads are asleep by then
        sent.append(time.perf_counter_ns())
        send()
        came.wait()
    return statistics.median(b - a for a, b in zip(sent[50:], taken[50:], strict=True))


def laminardb() -> dict[str, str]:
    """The same work by LaminarDB, as far as it can do it, in a virtual environment of its own."""
    with tempfile.TemporaryDirectory() as directory:
        venv.create(directory, with_pip=True)
        python = Path(directory) / "bin" / "python"
        install = ["-m", "pip", "install", "--quiet", "laminardb==0.17.0", "pyarrow"]
        subprocess.run([python, *install], check=True)
        script = Path(__file__).with_name("laminardb_push.py")
        done = subprocess.run([python, script], check=True, capture_output=True, text=True)
    figures: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, for a look")
    parser.add_argument("--laminardb", action="store_true", help="measure LaminarDB as well")
    options = parser.parse_args()
    bench = Bench(
        scale=0.1 if options.quick else 1.0, peer=laminardb() if options.laminardb else {}
    )
    console = Console(width=150)
    opened()[0].close()  # everything is imported now
    gc.collect()
    gc.freeze()
    with console.status("measuring") as status:
        for work in (
            *(bench.push, bench.push_arrow, bench.inline, bench.hop, bench.sustained),
            bench.mixed,
            lambda: bench.arrow(1_000, 20_000_000, "20M"),
            lambda: bench.arrow(100_000, 60_000_000, "150M"),
            *(bench.many, bench.idle),
        ):
            status.update(f"measuring: {getattr(work, '__name__', 'Arrow batches')}")
            work()
    console.print(bench.table)


if __name__ == "__main__":
    main()
