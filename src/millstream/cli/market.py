"""A simulated market: OHLC and VWAP per symbol and minute, on Spark, pushed at each trade.

A thread pushes trades. A view on Spark turns each into a change of its symbol's
minute; a callback is given the change. What a trade was pushed at travels with it, so the table
prints how long it took from the push to the change. The console shows the same in a browser.
"""

from __future__ import annotations

import math
import random
import sys
import threading
import time
from collections import deque
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

import millstream as ms
from millstream.cli.serve import server_module
from millstream.errors import MissingExtraError
from millstream.server.settings import Settings, parse_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream import ChangeBatch, Database

SYMBOLS = ("AAPL", "AMZN", "GOOG", "META", "MSFT", "NVDA", "TSLA")
SOURCE = (
    "CREATE SOURCE trades (symbol VARCHAR, price DOUBLE, qty BIGINT, ts TIMESTAMP, pushed DOUBLE, "
    "WATERMARK FOR ts AS ts - INTERVAL '1 second')"
)
VIEW = """
CREATE MATERIALIZED VIEW ohlc AS
SELECT symbol, TUMBLE_START(ts, INTERVAL '1 minute') AS minute,
       FIRST(price) AS open, MAX(price) AS high, MIN(price) AS low, LAST(price) AS close,
       SUM(price * qty) / SUM(qty) AS vwap, SUM(qty) AS volume, MAX(pushed) AS pushed
FROM trades
GROUP BY symbol, TUMBLE(ts, INTERVAL '1 minute')
EMIT CHANGES
"""


class Meter:
    """The newest row of each symbol, and how long changes took."""

    def __init__(self) -> None:
        self.changes = 0
        self.newest: dict[str, dict[str, Any]] = {}
        self._latencies: deque[float] = deque(maxlen=200_000)
        self._lock = threading.Lock()

    def take(self, batch: ChangeBatch) -> None:
        """A callback: note what changed."""
        now = time.perf_counter()
        with self._lock:
            for change in batch:
                row = dict(zip(batch.schema.names, change.row, strict=True))
                self.changes += 1
                self.newest[row["symbol"]] = row
                self._latencies.append(now - row["pushed"])

    def percentile(self, share: float) -> float:
        """The latency that this share of the changes did not exceed, in milliseconds."""
        with self._lock:
            taken = sorted(self._latencies)
        return taken[min(len(taken) - 1, int(len(taken) * share))] * 1e3 if taken else 0.0


class Market(threading.Thread):
    """Pushes trades, on and on: one every two milliseconds."""

    def __init__(self, db: Database) -> None:
        super().__init__(name="market")
        self.pushed = 0
        self._source = db.source("trades")
        self._stop_now = threading.Event()

    def run(self) -> None:
        """Push until ``stop``."""
        rng = random.Random(7)  # noqa: S311 - no secrets here
        prices = {symbol: rng.uniform(80, 400) for symbol in SYMBOLS}
        while not self._stop_now.wait(0.002):
            symbol = rng.choice(SYMBOLS)
            price = prices[symbol] = max(1.0, prices[symbol] * math.exp(rng.gauss(0, 0.0005)))
            row = (symbol, price, rng.randint(1, 500), datetime.now(UTC), time.perf_counter())
            self._source.push(row)
            self.pushed += 1

    def stop(self) -> None:
        """No more trades."""
        self._stop_now.set()
        self.join()


def table_of(meter: Meter, pushed: int, state: str) -> Table:
    """What there is to see."""
    table = Table(
        title=f"{pushed:,} trades, {meter.changes:,} changes, view: {state}, push to change "
        f"p50 {meter.percentile(0.5):.2f} ms, p99 {meter.percentile(0.99):.2f} ms"
    )
    for name in ("symbol", "minute", "open", "high", "low", "close", "vwap", "volume"):
        table.add_column(name, justify="left" if name in {"symbol", "minute"} else "right")
    for symbol in sorted(meter.newest):
        row = meter.newest[symbol]
        prices = [f"{row[name]:.2f}" for name in ("open", "high", "low", "close", "vwap")]
        table.add_row(symbol, f"{row['minute']:%H:%M}", *prices, f"{row['volume']:,}")
    return table


@contextmanager
def served(db: Database, http: str) -> Iterator[str]:
    """Serve a database meanwhile; gives the address of the console, or what it lacks."""
    try:
        run = server_module()
    except MissingExtraError as error:
        yield f"no console: {error.message}; {error.hint}"
        return
    server = run.Server(db, Settings(http=parse_address(http)))
    ready = threading.Event()
    thread = threading.Thread(target=server.run, args=(lambda _: ready.set(),), name="server")
    thread.start()
    try:
        while not ready.wait(0.1) and thread.is_alive():
            pass
        yield f"console: {server.http}/"
    finally:
        server.stop()
        thread.join()


def show(
    console: Console, db: Database, meter: Meter, market: Market, seconds: float | None
) -> None:
    """Show the newest rows for some seconds, or until Ctrl-C."""
    until = math.inf if seconds is None else time.monotonic() + seconds
    with (
        suppress(KeyboardInterrupt),
        Live(console=console, auto_refresh=False, transient=True) as live,
    ):
        while time.monotonic() < until:
            time.sleep(0.25)
            state = db.metrics()["views"]["ohlc"]["state"]
            live.update(table_of(meter, market.pushed, state), refresh=True)


def run_market(seconds: float, *, keep: bool = False, http: str = "127.0.0.1:0") -> None:
    """Run the market for some seconds, or until Ctrl-C, show and serve it, sum it up."""
    console = Console()
    if not sys.stderr.isatty():
        console.print("starting Spark, about ten seconds ...")
    with ms.open() as db:
        db.execute(SOURCE)
        db.execute(VIEW)
        db.wait_for("ohlc", timeout=120)
        meter, market = Meter(), Market(db)
        db.subscribe_callback("SELECT * FROM ohlc", meter.take)
        market.start()
        with served(db, http) as address:
            console.print(address, soft_wrap=True)
            try:
                show(console, db, meter, market, None if keep else seconds)
            finally:
                market.stop()
        db.wait_for("ohlc", timeout=60)
        state = db.metrics()["views"]["ohlc"]["state"]
        console.print(table_of(meter, market.pushed, state))
        volume = db.query("SELECT SUM(volume) AS v FROM ohlc").fetchall()[0][0]
        console.print(
            f"{market.pushed:,} rows in, {meter.changes:,} changes out; push to change "
            f"p50 {meter.percentile(0.5):.2f} ms, p99 {meter.percentile(0.99):.2f} ms; "
            f"view {state}; volume {volume:,}"
        )
