"""Where the time of one row goes, from the push to the callback of a live view on Spark.

    python benchmarks/steps.py                a windowed SUM, one row every 4 ms
    python benchmarks/steps.py --join         a join and a sum
    python benchmarks/steps.py --pause 100    ten rows a second

The functions at which a step ends are wrapped to note the time: this costs a microsecond or two.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

import millstream as ms
from millstream.dispatch.route import FanOut
from millstream.views.run.live import LiveBatch
from millstream.views.run.results import Results, _Sink
from millstream.views.view import View

if TYPE_CHECKING:
    from collections.abc import Callable

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SOURCES = """
    CREATE SOURCE trades (symbol VARCHAR NOT NULL, price DOUBLE, qty BIGINT, ts TIMESTAMP,
        WATERMARK FOR ts AS ts - INTERVAL '1 second');
    CREATE TABLE companies (symbol VARCHAR PRIMARY KEY, name VARCHAR)"""
WINDOWED = """SELECT symbol, TUMBLE_START(ts, INTERVAL '1 minute') AS minute, SUM(qty) AS volume,
    COUNT(*) AS n FROM trades GROUP BY symbol, TUMBLE(ts, INTERVAL '1 minute')"""
JOINED = """SELECT c.name, SUM(t.qty) AS volume FROM trades t JOIN companies c
    ON t.symbol = c.symbol GROUP BY c.name"""
STEPS = {
    "fan-out": "the dispatcher has the commit, and begins to hand it on",
    "encode and send": "the row is written to Spark's socket",
    "Spark": "its answer has arrived",
    "receive": "the result is read",
    "diff and commit": "the change is committed, and handed on",
    "callback": "the callback runs",
}
GOALS = {
    "fan-out": 40,
    "encode and send": 20,
    "Spark": 35,
    "receive": 20,
    "diff and commit": 40,
    "callback": 25,
}


class Clock:
    """Notes when each step of one row ends."""

    def __init__(self) -> None:
        self.times: dict[str, int] = {}

    def note(self, step: str) -> None:
        """A step ends now; only the first time counts."""
        self.times.setdefault(step, time.perf_counter_ns())

    def before(self, owner: type, name: str, step: str) -> None:
        """Have a step end when a function is called."""
        self._wrap(owner, name, step, first=True)

    def after(self, owner: type, name: str, step: str) -> None:
        """Have a step end when a function returns."""
        self._wrap(owner, name, step, first=False)

    def _wrap(self, owner: type, name: str, step: str, *, first: bool) -> None:
        function: Callable[..., Any] = getattr(owner, name)

        def wrapped(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - whatever it takes
            if first:
                self.note(step)
            result = function(*args, **options)
            if not first:
                self.note(step)
            return result

        setattr(owner, name, wrapped)


def measure(query: str, rows: int, pause: float) -> dict[str, list[float]]:
    """The microseconds of each step, of each row after the first third."""
    clock, came = Clock(), threading.Event()
    clock.before(FanOut, "deliver", "fan-out")
    clock.after(LiveBatch, "_send_now", "encode and send")
    clock.before(_Sink, "ready", "Spark")
    clock.before(Results, "_flushed", "receive")
    clock.after(View, "_commit", "diff and commit")

    def on_change(_: ms.ChangeBatch) -> None:
        clock.note("callback")
        came.set()

    found: dict[str, list[float]] = {step: [] for step in STEPS}
    with tempfile.TemporaryDirectory() as folder, ms.open(f"{folder}/db") as db:
        db.execute(SOURCES)
        db.insert("companies", [(f"S{n}", f"Zoë {n % 7} GmbH") for n in range(20)])
        db.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
        db.wait_for("v")
        db.subscribe_callback("SELECT * FROM v", on_change, start="now")
        trades = db.source("trades")
        for number in track(range(rows), "pushing", transient=True):
            row = (f"S{number % 20}", 1.5, 1 + number % 7, NOON + timedelta(milliseconds=number))
            time.sleep(pause)
            came.clear()
            clock.times = {}
            began = time.perf_counter_ns()
            trades.push(row)
            if not came.wait(10):
                raise AssertionError("no change came")
            if number > rows // 3 and len(clock.times) == len(STEPS):
                add(found, clock.times, began)
    return found


def add(found: dict[str, list[float]], times: dict[str, int], began: int) -> None:
    """Add the lengths of the steps of one row."""
    for step, at in sorted(times.items(), key=lambda each: each[1]):
        found[step].append((at - began) / 1000)
        began = at


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--join", action="store_true", help="a join and a sum")
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--pause", type=float, default=4.0, help="milliseconds between rows")
    options = parser.parse_args()
    query = JOINED if options.join else WINDOWED
    found = measure(query, options.rows, options.pause / 1000)
    table = Table("step", "until", "p50, us", "p99, us", "goal, us", title="benchmarks/steps.py")
    for step, times in found.items():
        cuts = statistics.quantiles(times, n=100)
        goal = str(GOALS[step])
        table.add_row(step, STEPS[step], f"{cuts[49]:.0f}", f"{cuts[98]:.0f}", goal)
    whole = [sum(each) for each in zip(*found.values(), strict=True)]
    cuts = statistics.quantiles(whole, n=100)
    table.add_row("all", "", f"{cuts[49]:.0f}", f"{cuts[98]:.0f}", "300; p99 1,500")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
