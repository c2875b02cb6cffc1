"""A simulated market, pushed in; one filter, subscribed to in every style.

    python examples/push_demo.py                20 seconds, then a summary
    python examples/push_demo.py --seconds 5

A thread pushes trades, most of them one by one. An inline callback, a callback on its own thread, a
channel and an async stream each follow the trades of one symbol above a price, and print how long
after its push a trade has reached them.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import sys
import threading
import time
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.table import Table

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream import ChangeBatch, Database

SYMBOLS = ("AAPL", "AMZN", "GOOG", "META", "MSFT", "NVDA", "TSLA")
BURSTS = (1,) * 19 + (20,)
QUERY = "SELECT symbol, price, pushed FROM trades WHERE symbol = 'NVDA' AND price > 100"


class Meter:
    """What reached one subscriber, and how long it took."""

    def __init__(self, style: str) -> None:
        self.style = style
        self.rows = 0
        self.batches = 0
        self.last = 0.0
        self._latencies: deque[float] = deque(maxlen=20_000)
        self._rates: deque[tuple[float, int]] = deque(maxlen=8)

    def take(self, batch: ChangeBatch) -> None:
        """Note a batch: its last row has the time of its push."""
        now = time.perf_counter()
        self.rows += len(batch)
        self.batches += 1
        self.last = batch.rows[-1][1]
        for row in batch.rows:
            self._latencies.append(now - row[2])

    def rate(self) -> float:
        """Rows a second, lately."""
        self._rates.append((time.perf_counter(), self.rows))
        (t0, n0), (t1, n1) = self._rates[0], self._rates[-1]
        return (n1 - n0) / (t1 - t0) if t1 > t0 else 0.0

    def percentile(self, share: float) -> float:
        """The latency that this share of the rows did not exceed, in microseconds."""
        taken = sorted(self._latencies)
        return taken[min(len(taken) - 1, int(len(taken) * share))] * 1e6 if taken else 0.0


class Market(threading.Thread):
    """Pushes trades, on and on: one each millisecond, and now and then a few more."""

    def __init__(self, db: Database) -> None:
        super().__init__(name="market")
        self.pushed = 0
        self._source = db.source("trades")
        self._stop_now = threading.Event()

    def run(self) -> None:
        """Push until ``stop``."""
        rng = random.Random(7)
        prices = {symbol: rng.uniform(80, 400) for symbol in SYMBOLS}
        while not self._stop_now.wait(0.001):
            for _ in range(rng.choice(BURSTS)):
                symbol = rng.choice(SYMBOLS)
                price = prices[symbol] = max(1.0, prices[symbol] * math.exp(rng.gauss(0, 0.0005)))
                qty, now = rng.randint(1, 500), datetime.now(UTC)
                self._source.push((symbol, price, qty, now, time.perf_counter()))
                self.pushed += 1

    def stop(self) -> None:
        """No more trades."""
        self._stop_now.set()
        self.join()


def follow(db: Database, meters: dict[str, Meter]) -> Callable[[], None]:
    """Subscribe in every style; returns what ends it all."""
    db.subscribe_callback(QUERY, meters["inline callback"].take, inline=True)
    db.subscribe_callback(QUERY, meters["callback"].take)
    channel = db.subscribe(QUERY)
    stream = db.subscribe_stream(QUERY)

    def read_channel() -> None:
        for batch in channel:
            meters["channel"].take(batch)

    async def read_stream() -> None:
        async for batch in stream:
            meters["async stream"].take(batch)

    threads = [
        threading.Thread(target=read_channel),
        threading.Thread(target=lambda: asyncio.run(read_stream())),
    ]
    for thread in threads:
        thread.start()

    def end() -> None:
        channel.cancel()
        stream.cancel()
        for thread in threads:
            thread.join()

    return end


def picture(db: Database, market: Market, meters: dict[str, Meter], left: float) -> Table:
    """The table as it is now."""
    lags = {row["style"]: row["lag_rows"] for row in db.query("SHOW SUBSCRIPTIONS").to_pylist()}
    title = f"{market.pushed:,} trades pushed, LSN {db.lsn:,}, {left:.0f} s to go"
    table = Table(title=title, caption=QUERY)
    for column in ("style", "rows", "rows/s", "p50", "p99", "lag", "last price"):
        table.add_column(column, justify="left" if column == "style" else "right")
    for meter in meters.values():
        lag = lags.get(meter.style.split()[-1] if meter.style != "inline callback" else "inline")
        table.add_row(
            meter.style,
            f"{meter.rows:,}",
            f"{meter.rate():,.0f}",
            f"{meter.percentile(0.5):,.0f} us",
            f"{meter.percentile(0.99):,.0f} us",
            "-" if lag is None else f"{lag} rows",
            f"{meter.last:.2f}",
        )
    return table


def main() -> int:
    """Run for a while, and say how it went."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=20.0)
    seconds = parser.parse_args().seconds
    meters = {
        style: Meter(style) for style in ("inline callback", "callback", "channel", "async stream")
    }
    console = Console()
    with ms.open() as db:
        db.execute(
            "CREATE SOURCE trades (symbol VARCHAR NOT NULL, price DOUBLE NOT NULL, qty BIGINT, "
            "ts TIMESTAMP, pushed DOUBLE, WATERMARK FOR ts AS ts - INTERVAL '1 second')"
        )
        end = follow(db, meters)
        market = Market(db)
        market.start()
        began = time.monotonic()
        try:
            with Live(console=console, refresh_per_second=4, transient=True) as live:
                while (left := seconds - (time.monotonic() - began)) > 0:
                    time.sleep(min(0.25, left))
                    live.update(picture(db, market, meters, left))
        finally:
            market.stop()
            lsn = db.flush()
        wanted = len(db.query(QUERY))
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and any(m.rows < wanted for m in meters.values()):
            time.sleep(0.01)
        console.print(picture(db, market, meters, 0.0))
        end()
    complete = all(meter.rows == wanted for meter in meters.values())
    console.print(
        f"{market.pushed:,} trades pushed in {seconds:.0f} s, durable up to LSN {lsn:,}. "
        f"The filter kept {wanted:,}; "
        + ("each subscriber got them all." if complete else "NOT every subscriber got them all.")
    )
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
