"""The Delta sink beside plain deltalake writing the same batches, in one run.

    python benchmarks/connectors_lake.py [--rows 2000000] [--batch 100000] [--rounds 5]

Both append the same rows in commits of the same size: the plain loop from Arrow tables that are
there, the sink from the log, with a token in each commit. The time of the sink counts from its
CREATE to its last commit.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

import deltalake
import pyarrow as pa

import millstream as ms
from millstream.testing import wait_until

COLUMNS = "id BIGINT, symbol VARCHAR, price DOUBLE, qty BIGINT, at TIMESTAMP"


def batches(rows: int, size: int) -> list[pa.Table]:
    """The rows, in tables of one size."""
    made = []
    for first in range(0, rows, size):
        numbers = range(first, min(first + size, rows))
        made.append(
            pa.table(
                {
                    "id": pa.array(numbers, pa.int64()),
                    "symbol": [f"S{number % 500}" for number in numbers],
                    "price": [number * 0.01 for number in numbers],
                    "qty": pa.array(numbers, pa.int64()),
                    "at": pa.array(numbers, pa.int64()).cast(pa.timestamp("us", "UTC")),
                }
            )
        )
    return made


def plain(tables: list[pa.Table], path: Path) -> float:
    """Seconds of a loop of write_deltalake."""
    began = time.perf_counter()
    target: str | deltalake.DeltaTable = str(path)
    for each in tables:
        deltalake.write_deltalake(target, each, mode="append")
        if isinstance(target, str):
            target = deltalake.DeltaTable(target)
    return time.perf_counter() - began


def sink(tables: list[pa.Table], path: Path, size: int) -> float:
    """Seconds of a sink over a source that has the rows."""
    rows = sum(each.num_rows for each in tables)
    with tempfile.TemporaryDirectory() as directory, ms.open(Path(directory) / "db") as db:
        db.execute(f"CREATE SOURCE s ({COLUMNS})")
        for each in tables:
            db.insert("s", each)
        db.flush()
        began = time.perf_counter()
        db.execute(
            f"CREATE SINK k FROM s WITH (connector = 'delta', path = '{path}', mode = 'append', "
            f"commit_rows = {size}, commit_interval = '1 hour', batch_rows = {size})"
        )

        def stored() -> int:
            shown = {each["name"]: each for each in db.query("SHOW CONNECTORS").to_pylist()}
            return int(shown["k"]["rows"])

        wait_until(lambda: stored() >= rows, "all rows", timeout=600)
        seconds = time.perf_counter() - began
    found = deltalake.DeltaTable(str(path)).count()
    if found != rows:
        raise AssertionError(f"{found} rows in the table, {rows} in the source")
    return seconds


def main() -> None:
    """Print the rates of both, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--batch", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    tables = batches(given.rows, given.batch)
    plains, sinks = [], []
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory() as directory:
            one = plain(tables, Path(directory) / "plain")
            two = sink(tables, Path(directory) / "sink", given.batch)
        plains.append(one)
        sinks.append(two)
        print(
            f"plain deltalake {given.rows / one:12,.0f} rows/s   "
            f"Delta sink {given.rows / two:12,.0f} rows/s   {one / two:.0%}"
        )
    # Other work on the machine only adds time, so the best rounds are compared, too.
    ratio = median(one / two for one, two in zip(plains, sinks, strict=True))
    print(f"Delta sink / plain deltalake: median {ratio:.0%}, best {min(plains) / min(sinks):.0%}")


if __name__ == "__main__":
    main()
