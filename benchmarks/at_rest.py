"""The log at rest: how long a database takes to open, and what it takes on the disk.

    python benchmarks/at_rest.py            some minutes: a million updates, ten million keys
    python benchmarks/at_rest.py --quick    a tenth of it, for a look

Each database is made by one process and opened by others, since the first open of a process loads
its modules; what is measured is from ``ms.open`` to the answer of the first query, the modules
loaded. The baseline is the open of a database with nothing in it.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPEN = """
import sys, time
import millstream as ms
with ms.open() as db:
    db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY)")
    db.query("SELECT * FROM t").fetchall()
began = time.perf_counter()
db = ms.open(sys.argv[1])
db.query(sys.argv[2]).fetchall()
print(time.perf_counter() - began)
db.close()
"""


_NEW_VIEW = """
import sys, time
import millstream as ms
with ms.open() as db:
    db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY)")
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT k FROM t")
db = ms.open(sys.argv[1])
db.wait_for("v", timeout=600)
began = time.perf_counter()
db.execute(sys.argv[2])
db.wait_for("w", timeout=600)
print(time.perf_counter() - began)
db.execute("DROP VIEW w")
db.close()
"""


def opened(path: Path, query: str, times: int = 3, code: str = _OPEN) -> float:
    """The seconds from the open of a database to the answer of a query; the median."""
    command = [sys.executable, "-c", code, str(path), query]
    found = [
        float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        for _ in range(times)
    ]
    return statistics.median(found)


def size(path: Path) -> int:
    """The bytes of all files of a database."""
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())


def sources(path: Path, count: int) -> None:
    """Sources, each with a row and a watermark."""
    with ms.open(path) as db:
        for n in range(count):
            db.execute(f"CREATE SOURCE s{n} (n BIGINT)")
        for n in range(count):
            db.insert(f"s{n}", [(n,)])
            db.source(f"s{n}").watermark(n)


def updates(path: Path, count: int, options: str = "") -> None:
    """A table of ten rows, updated one by one."""
    with ms.open(path, retention_interval=1.0) as db:
        db.execute(f"CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT) {options}")
        for n in range(count):
            db.insert("t", [(n % 10, n)], replace=True)


def view_updates(path: Path, count: int) -> int:
    """A view of ten rows, updated with the table it reads; returns the bytes of both.

    In commits of ten rows, since the view would take minutes for a million of one.
    """
    with ms.open(path, retention_interval=1.0) as db:
        db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT)")
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT k, v FROM t WHERE v >= 0")
        for n in range(0, count, 10):
            db.insert("t", [(k, n + k) for k in range(10)], replace=True)
            if n % 10_000 == 0:
                db.wait_for("v", timeout=600)
        db.wait_for("v", timeout=600)
    return size(path)


def keys(path: Path, count: int) -> None:
    """A table of many rows."""
    with ms.open(path) as db:
        db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT)")
        for first in range(0, count, 500_000):
            numbers = np.arange(first, min(first + 500_000, count))
            db.insert("t", pa.table({"k": numbers, "v": numbers}))


def names(path: Path, count: int) -> tuple[int, int]:
    """Durable subscriptions, one acknowledgement of each: bytes for the one and for the other."""
    with ms.open(path) as db:
        db.execute("CREATE SOURCE s (n BIGINT)")
        db.flush()
        empty = size(path)
        readers = [db.subscribe("SELECT * FROM s", name=f"d{n}") for n in range(count)]
        made = size(path)
        db.insert("s", [(1,)])
        for reader in readers:
            reader.ack(reader.recv(60))
            db.flush()
        return made - empty, size(path) - made


def points(path: Path, count: int) -> Iterator[tuple[str, float, float]]:
    """Seconds of a point UPDATE and of a point SELECT; medians."""
    keys(path, count)
    with ms.open(path) as db:
        yield "just opened", *point(db, count, 1, in_text=False)
        db.query("SELECT * FROM t WHERE v = -1").fetchall()  # all rows are Python's by then
        yield "with parameters", *point(db, count, 10_000, in_text=False)
        yield "values in the text", *point(db, count, 20_000, in_text=True)


def point(db: ms.Database, count: int, new: int, *, in_text: bool) -> tuple[float, float]:
    """Seconds of a point UPDATE and of a point SELECT; medians. New values are from ``new`` on."""
    taken: dict[str, list[float]] = {"update": [], "select": []}
    for n in range(2000):
        key = n * 7919 % count
        update, select = "UPDATE t SET v = ? WHERE k = ?", "SELECT v FROM t WHERE k = ?"
        given: tuple[list[int] | None, list[int] | None] = [-new - n, key], [key]
        if in_text:
            update, given = f"UPDATE t SET v = {-new - n} WHERE k = {key}", (None, None)
            select = f"SELECT v FROM t WHERE k = {key}"
        began = time.perf_counter()
        db.execute(update, given[0])
        then = time.perf_counter()
        db.query(select, given[1]).fetchall()
        taken["select"].append(time.perf_counter() - then)
        taken["update"].append(then - began)
    return statistics.median(taken["update"]), statistics.median(taken["select"])


def killed(path: Path, count: int) -> None:
    """A table of ten rows whose process is killed while it updates them."""
    child = os.fork()
    if child == 0:
        db = ms.open(path)
        db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT)")
        for n in range(count):
            db.insert("t", [(n % 10, n)], replace=True)
        db.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    scale = 0.1 if parser.parse_args().quick else 1
    table = Table("work", "reached", "must reach", title="benchmarks/at_rest.py")
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        n = int(100_000 * scale)
        killed(place / "killed", n)
        table.add_row(
            f"open {n:,} updates after kill -9",
            f"{opened(place / 'killed', 'SELECT * FROM t'):.2f} s",
            "",
        )
        with ms.open(place / "empty") as db:
            db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY)")
        table.add_row(
            "open an empty one", f"{opened(place / 'empty', 'SELECT * FROM t'):.2f} s", ""
        )
        n = int(1000 * scale)
        sources(place / "sources", n)
        taken = opened(place / "sources", "SELECT * FROM s7")
        table.add_row(f"open {n:,} sources", f"{taken:.2f} s", "1 s")
        n = int(1_000_000 * scale)
        for what, options in (("", ""), (", all kept", "WITH (retention = 'forever')")):
            path = place / f"updates{len(what)}"
            updates(path, n, options)
            table.add_row(
                f"open {n:,} updates of 10 rows{what}",
                f"{opened(path, 'SELECT * FROM t'):.2f} s, {size(path) / 1e6:.0f} MB",
                "1 s",
            )
        taken_bytes = view_updates(place / "view", n)
        table.add_row(
            f"open a view of 10 rows with {n:,} updates",
            f"{opened(place / 'view', 'SELECT * FROM v'):.2f} s, {taken_bytes / 1e6:.0f} MB",
            "1 s",
        )
        statement = "CREATE MATERIALIZED VIEW w AS SELECT k, v FROM v WHERE k > 1"
        table.add_row(
            "a new view over it",
            f"{opened(place / 'view', statement, code=_NEW_VIEW):.2f} s",
            "",
        )
        n = int(10_000_000 * scale)
        keys(place / "keys", n)
        taken = opened(place / "keys", "SELECT v FROM t WHERE k = 77", 1)
        table.add_row(f"open {n:,} keys", f"{taken:.2f} s", "1 s")
        made, acked = names(place / "names", 800)
        table.add_row(
            "800 durable subscriptions, an acknowledgement each",
            f"{made / 1e6:.2f} MB, {acked / 1e6:.2f} MB",
            "",
        )
        n = int(1_000_000 * scale)
        for how, update, select in points(place / "points", n):
            table.add_row(
                f"point UPDATE and SELECT, {how}, {n:,} rows",
                f"{update * 1e3:.3f} ms, {select * 1e3:.3f} ms",
                "0.3 ms",
            )
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
