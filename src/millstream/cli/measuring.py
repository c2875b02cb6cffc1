"""The small benchmark of ``millstream bench``: each figure is a function."""

from __future__ import annotations

import statistics
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from rich.table import Table

import millstream as ms
from millstream.cli.output import console

if TYPE_CHECKING:
    from millstream import Database, Subscription

_SOURCE: Final = "CREATE SOURCE {} (symbol VARCHAR, price DOUBLE, ts TIMESTAMP)"
_WINDOW: Final = """
CREATE MATERIALIZED VIEW per_minute AS
SELECT symbol, TUMBLE_START(ts, INTERVAL '1 minute') AS minute, SUM(price) AS total
FROM windowed GROUP BY symbol, TUMBLE(ts, INTERVAL '1 minute') EMIT CHANGES
"""
_BATCH: Final = 10_000
_PROBES: Final = 200
_WAIT: Final = 60.0


def measure(rows: int, *, spark: bool) -> None:
    """Run all of it in a temporary database, and print a table."""
    table = Table("work", "figure", title=f"{rows:,} rows")
    table.columns[1].justify = "right"
    with ms.open() as db:
        for name in ("one", "arrow", "filtered", "windowed"):
            db.execute(_SOURCE.format(name))
        table.add_row("push, row by row, until on the disk", f"{push_rows(db, rows):,.0f} rows/s")
        table.add_row(f"push_arrow in batches of {_BATCH:,}", f"{push_arrow(db, rows):,.0f} rows/s")
        with db.subscribe("SELECT symbol FROM filtered WHERE price > 0", start="now") as changes:
            table.add_row("push to a filter's subscriber", latency(db, "filtered", changes))
        if spark:
            db.execute(_WINDOW)
            db.wait_for("per_minute", timeout=2 * _WAIT)
            with db.subscribe("SELECT * FROM per_minute", start="now") as changes:
                table.add_row("push to a windowed SUM on Spark", latency(db, "windowed", changes))
    console().print(table)


def push_rows(db: Database, rows: int) -> float:
    """Rows per second, pushed one by one."""
    row = ("AAPL", 187.25, datetime.now(UTC))
    with db.source("one") as source:
        push = source.push
        began = time.perf_counter()
        for _ in range(rows):
            push(row)
        source.flush()
        return rows / (time.perf_counter() - began)


def push_arrow(db: Database, rows: int) -> float:
    """Rows per second, pushed as Arrow batches."""
    columns = [["AAPL"] * _BATCH, [187.25] * _BATCH, [datetime.now(UTC)] * _BATCH]
    batch = pa.record_batch([pa.array(each) for each in columns], schema=db.schema("arrow").arrow)
    count = max(1, rows // _BATCH)
    with db.source("arrow") as source:
        began = time.perf_counter()
        for _ in range(count):
            source.push_arrow(batch)
        source.flush()
        return count * _BATCH / (time.perf_counter() - began)


def latency(db: Database, name: str, changes: Subscription) -> str:
    """How long a push takes to become a change, one at a time: the median and the 99th percent."""
    taken = []
    with db.source(name) as source:
        for n in range(_PROBES):
            row = (f"S{n % 7}", float(n + 1), datetime.now(UTC))
            began = time.perf_counter()
            source.push(row)
            changes.recv(timeout=_WAIT)
            taken.append((time.perf_counter() - began) * 1e3)
    most = statistics.quantiles(taken, n=100)[98]
    return f"p50 {statistics.median(taken):.2f} ms, p99 {most:.2f} ms"
