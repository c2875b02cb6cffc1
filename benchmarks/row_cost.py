"""What one row costs: the processor time and the wake-ups of each thread, Python's and Java's.

    python benchmarks/row_cost.py                   one view, ten and twenty over one source
    python benchmarks/row_cost.py --views 1         one of them
    python benchmarks/row_cost.py --threads 20      more threads in the table

Rows are pushed one at a time, the next one some milliseconds after all callbacks of the one before.
Processor time is what the kernel has counted for each thread (``/proc``, Linux only), so it hardly
depends on what else runs on the machine; a wake-up is a voluntary switch of context.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import statistics
import threading
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from views import Pings, opened, percentile

PROC = Path("/proc")
MICRO = 1000


class Use(NamedTuple):
    """What a thread has used: processor time in nanoseconds, and how often it has gone to sleep."""

    nanos: int
    sleeps: int


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for task in (PROC / str(pid) / "task").iterdir():
        with contextlib.suppress(OSError):  # the thread has just ended
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def java_process() -> int:
    """The process of Spark's Java.

    Raises:
        LookupError: none runs.
    """
    todo = children(os.getpid())
    while todo:
        pid = todo.pop()
        if (PROC / str(pid) / "comm").read_text().strip() == "java":
            return pid
        todo += children(pid)
    raise LookupError("Spark does not run")


def python_names() -> dict[int, str]:
    """The names of this process's threads."""
    return {each.native_id or 0: each.name for each in threading.enumerate()}


def uses(pid: int, names: dict[int, str] | None = None) -> dict[tuple[int, str], Use]:
    """What each thread of a process has used so far."""
    found = {}
    for task in (PROC / str(pid) / "task").iterdir():
        try:
            nanos = int((task / "schedstat").read_text().split()[0])
            status = (task / "status").read_text()
            name = (task / "comm").read_text().strip() if names is None else ""
        except OSError:  # it has just ended
            continue
        number = int(task.name)
        sleeps = int(status.rpartition("\nvoluntary_ctxt_switches:")[2].split()[0])
        name = name or (names or {}).get(number, "without a name")
        found[number, name] = Use(nanos, sleeps)
    return found


def between(
    before: dict[tuple[int, str], Use], after: dict[tuple[int, str], Use]
) -> dict[str, Use]:
    """What threads have used in between, those of one name together."""
    nanos, sleeps = Counter[str](), Counter[str]()
    for key, use in after.items():
        was = before.get(key, Use(0, 0))
        name = key[1].rstrip("0123456789").rstrip("-#. ")
        nanos[name] += use.nanos - was.nanos
        sleeps[name] += use.sleeps - was.sleeps
    return {name: Use(nanos[name], sleeps[name]) for name in nanos}


def measure(views: int, rows: int, warm: int, pause: float) -> tuple[list[float], list[Table]]:
    """Times in milliseconds, push to callback, and a table of Python and of Java."""
    db, names = opened(views)
    with db:
        pings = Pings(db, names)
        pings.many(warm, pause)
        gc.collect()
        gc.freeze()
        java = java_process()
        pings.each.clear()
        python_before, java_before = uses(os.getpid(), python_names()), uses(java)
        pings.many(rows, pause)
        python_after, java_after = uses(os.getpid(), python_names()), uses(java)
        return pings.each, [
            table(f"Python, {views} views", between(python_before, python_after), rows),
            table(f"Java, {views} views", between(java_before, java_after), rows),
        ]


def table(title: str, used: dict[str, Use], rows: int) -> Table:
    """What each thread has used for a row, the most first."""
    result = Table("thread", "us a row", "sleeps a row", title=title)
    whole = Use(sum(u.nanos for u in used.values()), sum(u.sleeps for u in used.values()))
    ordered = sorted(used.items(), key=lambda each: -each[1].nanos)
    for name, use in [("all", whole), *ordered[:LIMIT]]:
        result.add_row(name, f"{use.nanos / MICRO / rows:.0f}", f"{use.sleeps / rows:.2f}")
    return result


LIMIT = 12


def main() -> None:
    """Measure, and print the tables."""
    global LIMIT  # noqa: PLW0603
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--views", type=int, nargs="*", default=[1, 10, 20])
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--warm", type=int, default=1500)
    parser.add_argument("--pause", type=float, default=4.0, help="milliseconds between rows")
    parser.add_argument("--threads", type=int, default=12, help="how many a table shows")
    options = parser.parse_args()
    LIMIT = options.threads
    console = Console(width=100)
    for views in options.views:
        times, tables = measure(views, options.rows, options.warm, options.pause / 1000)
        p50, p99 = statistics.median(times), percentile(times, 0.99)
        console.print(f"{views} views: push to callback p50 {p50:.2f} ms, p99 {p99:.2f} ms")
        for each in tables:
            console.print(each)


if __name__ == "__main__":
    main()
