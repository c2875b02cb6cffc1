"""The figures of connectors: what the runtime costs, then each system outside.

    python benchmarks/connectors.py              about a minute, and some for each system
    python benchmarks/connectors.py --only core  the runtime alone

The first table needs no system outside: deliveries of a generator and of a queue in this process,
each beside the plainest way to do the same, in the same run. Then every ``connectors_*.py`` beside
this file is run, each against its real system.
"""

from __future__ import annotations

import argparse
import json
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

import millstream as ms
from millstream.connectors import (
    Delivery,
    SinkBatch,
    SinkConnector,
    SinkWriter,
    SourceConnector,
    SourceReader,
    register,
    upsert,
)
from millstream.formats.records import record_decoder
from millstream.model import Schema
from millstream.testing import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

COLUMNS = "id BIGINT, symbol VARCHAR, price DOUBLE, ts TIMESTAMP"
SCHEMA = Schema.of(id="BIGINT", symbol="VARCHAR", price="DOUBLE", ts="TIMESTAMP")
GENERATED = (
    f"CREATE SOURCE g ({COLUMNS}) WITH (connector = 'generator', rows = {{rows}}, "
    "batch_rows = 50000, fields.id.kind = 'sequence', fields.symbol.values = 'AAPL,MSFT,ACME')"
)
ROWS = 2_000_000


class Waiting(SourceConnector):
    """Delivers what is put into a queue."""

    name = "waiting"
    kinds = ("source", "table")
    given: queue.SimpleQueue[Delivery] = queue.SimpleQueue()

    def open(self, position: Any) -> SourceReader:  # noqa: ANN401, ARG002
        """Read the queue."""
        return WaitingReader()


class WaitingReader(SourceReader):
    """The reader of a queue."""

    def read(self, timeout: float) -> Delivery | None:
        """The next one."""
        try:
            return Waiting.given.get(timeout=timeout)
        except queue.Empty:
            return None


class Counting(SinkConnector):
    """Counts the rows that it is given."""

    name = "counting"
    rows = 0

    def open(self) -> SinkWriter:
        """Count."""
        return CountingWriter()


class CountingWriter(SinkWriter):
    """The writer that counts."""

    def write(self, batch: SinkBatch) -> bool:
        """Count."""
        Counting.rows += len(batch)
        return True


def seconds(work: Callable[[], object]) -> float:
    """How long it takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def pause_until(condition: Callable[[], bool]) -> None:
    """Wait, looking rarely: the work has the interpreter."""
    wait = threading.Event()
    while not condition():
        wait.wait(0.02)


def generated() -> tuple[float, float]:
    """Rows a second of the generator into the log; of the same rows by push_arrow."""
    with ms.open() as db:
        db.execute(GENERATED.format(rows=ROWS))
        ours = seconds(
            lambda: pause_until(lambda: db.metrics()["connectors"]["g"]["state"] == "finished")
        )
        db.flush()
        rows = db.query("SELECT * FROM g").to_arrow()
        db.execute(f"CREATE SOURCE plain ({COLUMNS})")
        plain = db.source("plain")
        size = 50_000
        parts = [rows.slice(at, size) for at in range(0, ROWS, size)]

        def push() -> None:
            for part in parts:
                plain.push_arrow(part)
            plain.flush()

        return ROWS / ours, ROWS / seconds(push)


def delivered() -> tuple[float, float]:
    """The median time from a delivery to a callback; from a push to a callback."""
    times: list[float] = []

    def took(batch: ms.ChangeBatch) -> None:
        now = time.perf_counter()
        times.extend(now - row[0] for row in batch.rows)

    with ms.open() as db:
        db.execute("CREATE SOURCE k (t DOUBLE) WITH (connector = 'waiting')")
        db.execute("CREATE SOURCE s (t DOUBLE)")
        db.subscribe_callback("SELECT * FROM k", took)
        wait_until(lambda: db.metrics()["connectors"]["k"]["state"] == "running")
        for number in range(2000):
            Waiting.given.put(Delivery(rows=[(time.perf_counter(),)], position=number))
            time.sleep(0.001)
        pause_until(lambda: len(times) == 2000)
        ours, times = statistics.median(times), []
        db.subscribe_callback("SELECT * FROM s", took)
        source = db.source("s")
        for _ in range(2000):
            source.push((time.perf_counter(),))
            time.sleep(0.001)
        pause_until(lambda: len(times) == 2000)
        return ours, statistics.median(times)


def changed() -> tuple[float, float]:
    """Row changes a second of a table, ten a transaction; of INSERT OR REPLACE of ten rows."""
    count = 4000
    with ms.open() as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR) WITH (connector = 'waiting')")
        db.execute("CREATE TABLE plain (id BIGINT PRIMARY KEY, v VARCHAR)")
        wait_until(lambda: db.metrics()["connectors"]["t"]["state"] == "running")
        batches = [
            [(number * 10 + row, f"v{number}") for row in range(10)] for number in range(count)
        ]
        deliveries = [
            Delivery(changes=[upsert(row) for row in rows], position=number)
            for number, rows in enumerate(batches)
        ]

        def deliver() -> None:
            for each in deliveries:
                Waiting.given.put(each)
            pause_until(lambda: db.metrics()["connectors"]["t"]["batches"] == count)

        ours = seconds(deliver)

        def insert() -> None:
            for rows in batches:
                db.insert("plain", rows)

        return 10 * count / ours, 10 * count / seconds(insert)


def decoded() -> tuple[float, float]:
    """JSON records a second to Arrow; by json.loads and a list."""
    records = [
        b'{"id": %d, "symbol": "AAPL", "price": %d.5, "ts": "2026-01-02T12:00:00Z"}' % (n, n)
        for n in range(200_000)
    ]
    decode = record_decoder("json", SCHEMA)
    ours = seconds(lambda: [decode(records[at : at + 10_000]) for at in range(0, 200_000, 10_000)])
    plain = seconds(lambda: [tuple(json.loads(each).values()) for each in records])
    return len(records) / ours, len(records) / plain


def stored() -> tuple[float, float]:
    """Rows a second from a source to a sink's writer; to a durable subscription's reader."""
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as path, ms.open(path) as db:
        db.execute(GENERATED.format(rows=ROWS))
        pause_until(lambda: db.metrics()["connectors"]["g"]["state"] == "finished")
        db.flush()
        Counting.rows = 0

        def sink() -> None:
            db.execute("CREATE SINK s FROM g WITH (connector = 'counting')")
            pause_until(lambda: Counting.rows == ROWS)

        def subscription() -> None:
            found = 0
            with db.subscribe("SELECT * FROM g", start="earliest", name="plain") as opened:
                while found < ROWS:
                    batch = opened.recv(timeout=60)
                    found += len(batch)
                    opened.ack(batch)

        return ROWS / seconds(sink), ROWS / seconds(subscription)


def core() -> None:
    """What the runtime costs."""
    register(Waiting)
    register(Counting)
    table = Table("work", "connector", "plain", "ratio", title="benchmarks/connectors.py")

    def row(work: str, figures: tuple[float, float], *, unit: str = "/s") -> None:
        ours, plain = figures
        if unit == "us":
            shown = (f"{ours * 1e6:.0f} us", f"{plain * 1e6:.0f} us")
        else:
            shown = (f"{ours:,.0f}/s", f"{plain:,.0f}/s")
        table.add_row(work, *shown, f"{ours / plain:.2f}x")

    row("generator to the log; push_arrow of the same rows", generated())
    row("delivery to callback, p50; push to callback", delivered(), unit="us")
    row("changes by key, 10 a commit; db.insert of 10 rows", changed())
    row("JSON records to Arrow; json.loads to tuples", decoded())
    row("log to a sink's writer; to a subscription", stored())
    Console(width=110).print(table)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="core, or the end of a connectors_*.py")
    only = parser.parse_args().only
    if only in {"", "core"}:
        core()
    for script in sorted(Path(__file__).parent.glob("connectors_*.py")):
        if only in {"", script.stem.removeprefix("connectors_")}:
            subprocess.run([sys.executable, str(script)], check=True)


if __name__ == "__main__":
    main()
