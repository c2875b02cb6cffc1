"""What Pathway does of the work in ``peers.py``. Run by it, where only pathway is.

Each row is committed by itself, which is its quickest way; the window gives its sums at each row,
as a view does.
"""

from __future__ import annotations

import sys
import threading
from datetime import datetime, timedelta
from queue import SimpleQueue

import pathway as pw  # type: ignore[import-not-found,unused-ignore]

from peer_pace import Pace, Row, report


class Trade(pw.Schema):  # type: ignore[misc,unused-ignore]
    """A row."""

    symbol: str
    price: float
    qty: int
    ts: pw.DateTimeUtc


class Rows(pw.io.python.ConnectorSubject):  # type: ignore[misc,unused-ignore]
    """Rows from a queue; None ends it."""

    def __init__(self, queue: SimpleQueue[Row | None]) -> None:
        super().__init__()
        self._queue = queue

    def run(self) -> None:
        """Hand rows over, each as a commit."""
        while (row := self._queue.get()) is not None:
            symbol, price, qty, ts = row
            self.next(symbol=symbol, price=price, qty=qty, ts=ts)
            self.commit()


def measured(work: str) -> dict[str, float]:
    """The latency of one kind of work."""
    queue: SimpleQueue[Row | None] = SimpleQueue()
    pace = Pace(queue.put)
    rows = pw.io.python.read(Rows(queue), schema=Trade, autocommit_duration_ms=None)
    if work == "filter":
        result = rows.filter(rows.price > 1.0)
    else:
        window = pw.temporal.tumbling(
            duration=timedelta(minutes=1), origin=datetime.fromisoformat("2026-01-01T00:00:00Z")
        )
        result = rows.windowby(rows.ts, window=window, instance=rows.symbol).reduce(
            symbol=pw.this._pw_instance,  # noqa: SLF001 - what they are called
            minute=pw.this._pw_window_start,  # noqa: SLF001
            volume=pw.reducers.sum(pw.this.qty),
            n=pw.reducers.count(),
        )

    def on_change(key: object, row: object, time: int, is_addition: bool) -> None:  # noqa: ARG001
        if is_addition:
            pace.came()

    pw.io.subscribe(result, on_change)
    pusher = threading.Thread(target=pace.run, args=(lambda: queue.put(None),))
    pusher.start()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    pusher.join()
    return pace.result()


if __name__ == "__main__":
    report(sys.argv[1], measured(sys.argv[1]))
