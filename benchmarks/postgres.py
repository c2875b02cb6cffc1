"""The figures of PostgreSQL's protocol: point queries by psycopg, COPY, changes of SUBSCRIBE.

    python benchmarks/postgres.py             about half a minute

The server runs in a process of its own; clients are psycopg's, over the loopback device.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import threading
import time
from typing import TYPE_CHECKING, Any

import psycopg
import uvloop
from rich.console import Console
from rich.table import Table

import millstream as ms
from millstream.server.postgres import serve_postgres

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

ROWS = 100_000
POINT = "SELECT name FROM items WHERE id = %s"
WARM = 200


def serve(pipe: Connection) -> None:
    """Serve a database with one table, until the parent says so."""

    async def main() -> None:
        with ms.open() as db:
            db.execute("CREATE TABLE items (id BIGINT PRIMARY KEY, name VARCHAR)")
            db.execute("CREATE SOURCE ticks (sent BIGINT)")
            db.execute("CREATE SOURCE loaded (id BIGINT, x DOUBLE, name VARCHAR)")
            db.insert("items", [(n, f"item {n}") for n in range(ROWS)])
            async with await serve_postgres(db, "127.0.0.1", 0) as server:
                pipe.send(server.port)
                await asyncio.get_running_loop().run_in_executor(None, pipe.recv)

    uvloop.run(main())  # as millstream serve does


def connect(port: int) -> psycopg.Connection[Any]:
    """A client."""
    dsn = f"host=127.0.0.1 port={port} user=bench dbname=millstream"
    return psycopg.connect(dsn, autocommit=True)


def point(client: psycopg.Connection[Any], number: int) -> float:
    """How long one point query takes, in milliseconds."""
    begun = time.perf_counter()
    found = client.execute(POINT, [number % ROWS], prepare=True).fetchone()
    took = time.perf_counter() - begun
    assert found == (f"item {number % ROWS}",)
    return took * 1e3


def one_after_another(port: int, count: int) -> list[float]:
    """Point queries of one client."""
    with connect(port) as client:
        return [point(client, n) for n in range(count + WARM)][WARM:]


def at_once(port: int, clients: int, seconds: float, rate: float) -> list[float]:
    """Point queries of many clients, each in a thread; at a rate in all, 0: all that they can."""
    together = threading.Barrier(clients)
    times: list[list[float]] = [[] for _ in range(clients)]

    def work(place: int) -> None:
        with connect(port) as client:
            for n in range(20):
                point(client, n)
            together.wait()
            end = time.perf_counter() + seconds
            due = time.perf_counter() + (place / rate if rate else 0)
            while due < end if rate else time.perf_counter() < end:
                if rate:
                    time.sleep(max(0.0, due - time.perf_counter()))
                    due += clients / rate
                times[place].append(point(client, place * 1000 + len(times[place])))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(clients)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return [took for part in times for took in part]


def copied(port: int, rows: int) -> float:
    """Rows a second of COPY FROM STDIN."""
    data = "".join(f"{n}\t{n / 7}\tname {n}\n" for n in range(rows))
    with connect(port) as client, client.cursor() as cursor:
        begun = time.perf_counter()
        with cursor.copy("COPY loaded FROM STDIN") as copy:
            copy.write(data)
        return rows / (time.perf_counter() - begun)


def read(port: int) -> float:
    """Rows a second of a SELECT of all rows, in text."""
    with connect(port) as client:
        begun = time.perf_counter()
        found = client.execute("SELECT id, name FROM items").fetchall()
        return len(found) / (time.perf_counter() - begun)


def pushed(port: int, count: int) -> list[float]:
    """From an INSERT of one client to the row of SUBSCRIBE at another, in milliseconds."""
    times: list[float] = []
    with connect(port) as reader, connect(port) as writer, reader.cursor() as cursor:
        try:
            with cursor.copy("SUBSCRIBE ticks") as copy:
                for _ in range(count + 20):
                    writer.execute("INSERT INTO ticks VALUES (%s)", [time.perf_counter_ns()])
                    row = copy.read_row()
                    assert row is not None
                    times.append((time.perf_counter_ns() - int(row[4])) / 1e6)
                reader.cancel_safe()
                copy.read_row()
        except psycopg.errors.QueryCanceled:
            pass
    return times[20:]


def spread(times: list[float]) -> str:
    """p50 and p99."""
    cuts = statistics.quantiles(times, n=100)
    return f"p50 {cuts[49]:.2f} ms, p99 {cuts[98]:.2f} ms"


def figures(port: int, seconds: float) -> Iterator[tuple[str, str]]:
    """Each measured work, and its figure."""
    yield "prepared point SELECT, 1 connection", spread(one_after_another(port, 3000))
    paced = at_once(port, 100, seconds, 500.0)
    yield "the same, 100 connections, 500 queries/s in all", spread(paced)
    hard = at_once(port, 100, seconds, 0.0)
    yield (
        "the same, 100 connections as fast as they can",
        f"{len(hard) / seconds:,.0f} queries/s, {spread(hard)}",
    )
    yield "SELECT of 100,000 rows, psycopg", f"{read(port):,.0f} rows/s"
    yield "COPY FROM STDIN of 200,000 rows", f"{copied(port, 200_000):,.0f} rows/s"
    yield "INSERT at one client to SUBSCRIBE's row at another", spread(pushed(port, 500))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run of 100 clients")
    arguments = parser.parse_args()
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    server = context.Process(target=serve, args=(there,))
    server.start()
    table = Table("work", "figure", title="PostgreSQL's protocol")
    try:
        port = here.recv()
        for work, figure in figures(port, arguments.seconds):
            table.add_row(work, figure)
    finally:
        here.send("stop")
        server.join(20)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
