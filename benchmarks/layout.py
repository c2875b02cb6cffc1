"""One log for all topics, or one per topic? The figures behind docs/decisions/0002.

    python benchmarks/layout.py         about half a minute

"Own" is a directory, a queue and a file per topic; "shared" is what Millstream does.
"""

from __future__ import annotations

import heapq
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from millstream.log import Log
from millstream.model import Schema

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = Schema.of(symbol="VARCHAR", price="DOUBLE", qty="BIGINT")
ROUNDS = 5


def median_time(work: Callable[[], object]) -> float:
    """The median of some rounds, in seconds."""
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def names(count: int) -> list[str]:
    """Names of topics."""
    return [f"t{n}" for n in range(count)]


def open_shared(path: Path, topics: list[str]) -> Log:
    """One log for all topics."""
    log = Log(path)
    for topic in topics:
        log.create_topic(topic, SCHEMA)
    return log


def commits(directory: Path, count: int) -> tuple[float, float]:
    """Seconds for a durable commit to several topics: shared, own."""
    topics, rows = names(count), [("AAPL", 1.0, 1)]
    with ExitStack() as stack:
        shared = stack.enter_context(open_shared(directory / f"shared{count}", topics))
        own = [stack.enter_context(open_shared(directory / f"own{count}-{t}", [t])) for t in topics]

        def commit_shared() -> None:
            for _ in range(50):
                with shared.transaction(wal_mode="sync") as transaction:
                    for topic in topics:
                        transaction.append(topic, rows)

        def commit_own() -> None:
            for _ in range(50):
                for topic, log in zip(topics, own, strict=True):
                    log.append(topic, rows, wal_mode="sync")

        return median_time(commit_shared) / 50, median_time(commit_own) / 50


def fill(log: Log, topics: list[str], *, batches: int, rows: int) -> None:
    """Batches to each topic in turn."""
    batch = SCHEMA.rows_to_arrow([("AAPL", 1.0, n) for n in range(rows)])
    for _ in range(batches):
        for topic in topics:
            log.append(topic, batch)
    log.flush()


def replay(directory: Path, rows: int) -> tuple[float, float]:
    """Seconds to read one topic of sixteen: shared, own."""
    topics = names(16)
    with (
        open_shared(directory / f"replay-shared{rows}", topics) as shared,
        open_shared(directory / f"replay-own{rows}", topics[:1]) as own,
    ):
        batches = 2_000_000 // rows // 16
        fill(shared, topics, batches=batches, rows=rows)
        fill(own, topics[:1], batches=batches, rows=rows)
        return (
            median_time(lambda: sum(map(len, shared.read("t0")))),
            median_time(lambda: sum(map(len, own.read("t0")))),
        )


def merged(directory: Path) -> tuple[float, float]:
    """Seconds to read four topics in one order: shared, own with a merge by time."""
    topics = names(4)
    with ExitStack() as stack:
        shared = stack.enter_context(open_shared(directory / "merged-shared", topics))
        own = [stack.enter_context(open_shared(directory / f"merged-{t}", [t])) for t in topics]
        fill(shared, topics, batches=500, rows=1000)
        for topic, log in zip(topics, own, strict=True):
            fill(log, [topic], batches=500, rows=1000)

        def read_own() -> int:
            readers = [log.read() for log in own]
            return sum(map(len, heapq.merge(*readers, key=lambda batch: batch.committed_at)))

        return median_time(lambda: sum(map(len, shared.read()))), median_time(read_own)


def main() -> None:
    """Measure both layouts and print the table."""
    table = Table("work", "shared", "own", "own / shared", title="benchmarks/layout.py")

    def row(work: str, figures: tuple[float, float]) -> None:
        shared, own = figures
        table.add_row(work, f"{shared * 1e3:.2f} ms", f"{own * 1e3:.2f} ms", f"{own / shared:.2f}x")

    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as name:
        directory = Path(name)
        for count in (1, 4, 16):
            row(f"durable commit to {count} topics at once", commits(directory, count))
        row("replay 1 of 16 topics, 10k rows a batch", replay(directory, 10_000))
        row("replay 1 of 16 topics, 100 rows a batch", replay(directory, 100))
        row("read 4 topics merged, 1k rows a batch", merged(directory))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
