"""What LaminarDB 0.17.0 does of the work in ``push.py``. Run by it, where only laminardb is."""

from __future__ import annotations

import json
import statistics
import threading
import time
from typing import Any

import laminardb  # type: ignore[import-not-found,unused-ignore]
import pyarrow as pa

ROW = {"symbol": "AAPL", "price": 187.2, "qty": 100, "ts": 1}


class Counter:
    """A callback that waits for a number of rows."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.seen = 0
        self.done = threading.Event()

    def __call__(self, event: Any) -> None:  # noqa: ANN401 - whatever it gives
        """Count."""
        rows = event.num_rows if hasattr(event, "num_rows") else len(event)
        self.seen += rows
        if self.seen >= self.wanted:
            self.done.set()


def opened(counter: Counter) -> Any:  # noqa: ANN401 - an untyped library
    """A source of trades, a filter over it, and a callback."""
    db = laminardb.open(":memory:")
    db.execute("CREATE SOURCE trades (symbol VARCHAR, price DOUBLE, qty BIGINT, ts BIGINT)")
    db.execute("CREATE STREAM high AS SELECT symbol, price, qty, ts FROM trades WHERE price > 100")
    db.start()
    return db, db.subscribe_stream_callback("high", counter)


def arrow(rows: int, count: int) -> float:
    """Rows a second, in batches, until all are delivered."""
    half = rows // 2
    batch = pa.RecordBatch.from_pydict(
        {
            "symbol": ["AAPL", "MSFT"] * half,
            "price": [50.0, 150.0] * half,
            "qty": list(range(rows)),
            "ts": [1] * rows,
        }
    )
    counter = Counter(half * count)
    db, _subscription = opened(counter)
    began = time.perf_counter()
    for _ in range(count):
        db.insert("trades", batch)
    counter.done.wait(60)
    took = time.perf_counter() - began
    db.close()
    return counter.seen * 2 / took


def main() -> None:
    """Measure, and print the figures as JSON."""
    counter = Counter(2000)
    db, _subscription = opened(counter)
    began = time.perf_counter()
    for _ in range(2000):
        db.insert("trades", ROW)
    push = (time.perf_counter() - began) / 2000
    counter.done.wait(60)
    rows = counter.seen / (time.perf_counter() - began)
    hops = []
    for _ in range(20):
        counter.done.clear()
        counter.wanted = counter.seen + 1
        began = time.perf_counter()
        db.insert("trades", ROW)
        counter.done.wait(10)
        hops.append(time.perf_counter() - began)
    db.close()
    figures = {
        "push": f"{push * 1e9:,.0f} ns",
        "hop": f"{statistics.median(hops) * 1000:.0f} ms",
        "rows": f"{rows:,.0f} rows/s",
        "arrow 1000": f"{arrow(1000, 5000) / 1e6:.1f}M rows/s",
        "arrow 100000": f"{arrow(100_000, 300) / 1e6:.0f}M rows/s",
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
