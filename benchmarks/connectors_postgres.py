"""The figures of PostgreSQL's connectors, against a real server that this starts.

    python benchmarks/connectors_postgres.py             about two minutes
    python benchmarks/connectors_postgres.py --only append upsert

Ratios are of one run: the sink beside psql's COPY of the same rows, and beside a batched upsert by
hand (COPY to a temporary table, INSERT ... ON CONFLICT, 10,000 rows in a transaction).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COLUMNS = "id bigint PRIMARY KEY, region text, amount double precision, at timestamptz"
HERE = "id BIGINT PRIMARY KEY, region VARCHAR, amount DOUBLE, at TIMESTAMP"
ROWS = 200_000
BATCH = 10_000
CHANGES = 100_000
IN_TRANSACTION = 100
WRITERS = 2


@contextlib.contextmanager
def server() -> Iterator[str]:
    """A PostgreSQL in a temporary folder; gives its URL."""
    programs = max(Path("/usr/lib/postgresql").glob("*/bin"))
    user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    folder = Path(tempfile.mkdtemp(prefix="millstream-bench-"))
    if user:
        shutil.chown(folder, "postgres")
    data = str(folder / "data")
    subprocess.run(
        [*user, str(programs / "initdb"), "-D", data, "-U", "postgres", "-A", "trust"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = ["wal_level=logical", "unix_socket_directories=", "max_wal_size=4GB"]
    options = [part for each in settings for part in ("-c", each)]
    process = subprocess.Popen(
        [*user, str(programs / "postgres"), "-D", data, "-p", str(port), *options],
        stderr=subprocess.DEVNULL,
    )
    url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
    try:
        until(lambda: answers(url))
        yield url
    finally:
        os.kill(int(Path(data, "postmaster.pid").read_text().split()[0]), signal.SIGINT)
        process.wait(60)
        shutil.rmtree(folder)


def answers(url: str) -> bool:
    """Whether the server takes connections."""
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


def until(condition: Callable[[], Any], pause: float = 0.005) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + 300
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("nothing came for five minutes")
        time.sleep(pause)


def follow(db: ms.Database, pg: psycopg.Connection[Any], url: str) -> None:
    """A table of PostgreSQL, and its followed copy."""
    pg.execute("DROP TABLE IF EXISTS orders")
    pg.execute(f"CREATE TABLE orders ({COLUMNS})")
    db.execute(
        f"CREATE TABLE orders WITH (connector = 'postgres-cdc', url = '{url}', "
        "table = 'public.orders')"
    )
    until(lambda: "transactions" in str(shown(db, "orders")["metrics"]))


def shown(db: ms.Database, name: str) -> dict[str, Any]:
    """What SHOW CONNECTORS says of one."""
    found = db.query("SHOW CONNECTORS").to_pylist()
    return next(each for each in found if each["name"] == name)


def latency(url: str) -> list[tuple[str, str]]:
    """From before the INSERT that commits to the change of a view at a callback."""
    with ms.open() as db, psycopg.connect(url, autocommit=True) as pg:
        follow(db, pg, url)
        db.execute(
            "CREATE MATERIALIZED VIEW totals AS SELECT region, SUM(amount) AS total, COUNT(*) AS n "
            "FROM orders GROUP BY region EMIT CHANGES"
        )
        came, counts = threading.Event(), [0]

        def on_change(batch: Any) -> None:  # noqa: ANN401 - a batch of changes
            counts[0] = max([counts[0], *(change.row[2] for change in batch if change.row)])
            came.set()

        subscription = db.subscribe_callback("SELECT * FROM totals", on_change)
        db.wait_for("totals")
        times = []
        for number in range(600):
            begun = time.perf_counter()
            pg.execute("INSERT INTO orders VALUES (%s, 'north', 1.5, now())", [number])
            while counts[0] <= number:
                came.wait(1)
                came.clear()
            times.append((time.perf_counter() - begun) * 1000)
            time.sleep(0.005)
        subscription.cancel()
        db.execute("DROP MATERIALIZED VIEW totals")
        db.execute("DROP TABLE orders")
    last = sorted(times[200:])
    p99 = last[int(len(last) * 0.99)]
    return [
        ("INSERT to callback of a view", f"p50 {statistics.median(last):.1f} ms, p99 {p99:.1f}")
    ]


def rate(url: str) -> list[tuple[str, str]]:
    """Row changes a second: of a writer that does not wait, and of a backlog."""
    with ms.open() as db, psycopg.connect(url, autocommit=True) as pg:
        follow(db, pg, url)
        begun = time.perf_counter()
        written = write(pg, url)
        until(lambda: shown(db, "orders")["rows"] >= CHANGES, 0.05)
        live = time.perf_counter() - begun
        db.execute("ALTER TABLE orders PAUSE")
        write(pg, url)
        db.execute("ALTER TABLE orders RESUME")
        begun = time.perf_counter()
        until(lambda: shown(db, "orders")["rows"] >= 2 * CHANGES, 0.05)
        backlog = time.perf_counter() - begun
        here = db.query("SELECT COUNT(*), SUM(amount) FROM orders").fetchall()
        there = pg.execute("SELECT count(*), sum(amount) FROM orders").fetchall()
        if here != there:
            raise ValueError(f"{here} is not {there}")
        db.execute("DROP TABLE orders")
    return [
        (f"written to PostgreSQL, by {WRITERS} connections", per_second(CHANGES, written)),
        ("followed while it is written", per_second(CHANGES, live)),
        ("a backlog", per_second(CHANGES, backlog)),
    ]


def write(pg: psycopg.Connection[Any], url: str) -> float:
    """Inserts and updates, so many in a transaction, by psql beside us; returns the seconds.

    In processes of their own, as a database's clients are: a thread of this one would share the
    interpreter's lock with what follows the table.
    """
    (first,) = pg.execute("SELECT count(*) FROM orders").fetchall()[0]
    each = CHANGES // 2 // WRITERS
    texts = [statements(first + number * each, each) for number in range(WRITERS)]
    command = ["psql", "-q", "-v", "ON_ERROR_STOP=1", url]
    begun = time.perf_counter()
    running = [subprocess.Popen(command, stdin=subprocess.PIPE, text=True) for _ in texts]
    threads = [
        threading.Thread(target=process.communicate, args=(text,))
        for process, text in zip(running, texts, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if any(process.returncode for process in running):
        raise ValueError("psql has failed")
    return time.perf_counter() - begun


def statements(first: int, count: int) -> str:
    """Each row inserted, then updated; a statement is a transaction."""
    made = []
    for begin in range(first, first + count, IN_TRANSACTION):
        end = begin + IN_TRANSACTION - 1
        rows = f"SELECT i, 'region ' || i % 10, i, now() FROM generate_series({begin}, {end}) i"
        made.append(f"INSERT INTO orders {rows};")
        made.append(f"UPDATE orders SET amount = amount + 1 WHERE id BETWEEN {begin} AND {end};")
    return "\n".join(made)


def per_second(rows: int, seconds: float) -> str:
    """Thousands of rows a second."""
    return f"{rows / seconds / 1000:,.0f} thousand row changes/s"


def made() -> pa.Table:
    """The rows that sinks write."""
    now = int(time.time() * 1_000_000)
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "region": [f"region {n % 10}" for n in range(ROWS)],
            "amount": [n / 7 for n in range(ROWS)],
            "at": pa.array([now + n for n in range(ROWS)], pa.timestamp("us", "UTC")),
        }
    )


def append(url: str) -> list[tuple[str, str]]:
    """A sink of a source that has rows, beside psql's COPY of them."""
    rows = made()
    plain = COLUMNS.replace(" PRIMARY KEY", "")
    with tempfile.TemporaryDirectory() as folder, psycopg.connect(url, autocommit=True) as pg:
        file = Path(folder) / "rows.csv"
        rows.to_pandas().to_csv(file, index=False, header=False)
        ours, theirs = [], []
        for _ in range(3):
            pg.execute(f"DROP TABLE IF EXISTS a; CREATE TABLE a ({plain})")
            begun = time.perf_counter()
            subprocess.run(["psql", "-q", url, "-c", f"\\copy a FROM {file} CSV"], check=True)
            theirs.append(time.perf_counter() - begun)
            pg.execute(f"DROP TABLE IF EXISTS b; CREATE TABLE b ({plain})")
            with ms.open() as db:
                db.execute(f"CREATE SOURCE s ({HERE.replace(' PRIMARY KEY', '')})")
                db.insert("s", rows)
                db.flush()
                begun = time.perf_counter()
                db.execute(
                    f"CREATE SINK k FROM s WITH (connector = 'postgres', url = '{url}', "
                    "table = 'b', mode = 'append', start = 'earliest')"
                )
                until(lambda: shown(db, "k")["rows"] >= ROWS, 0.02)
                ours.append(time.perf_counter() - begun)
                if pg.execute("SELECT count(*) FROM b").fetchall() != [(ROWS,)]:
                    raise ValueError("rows are missing")
                db.execute("DROP SINK k")
    return compared("append", "COPY of psql", ours, theirs)


def upsert(url: str) -> list[tuple[str, str]]:
    """A sink of a table whose rows all change, beside batches by hand."""
    rows = made()
    with psycopg.connect(url, autocommit=True) as pg, ms.open() as db:
        pg.execute(f"DROP TABLE IF EXISTS c; CREATE TABLE c ({COLUMNS})")
        db.execute(f"CREATE TABLE t ({HERE})")
        db.execute(
            f"CREATE SINK k FROM t WITH (connector = 'postgres', url = '{url}', table = 'd', "
            "mode = 'upsert')"
        )
        by_hand(pg, rows)
        db.insert("t", rows)
        until(lambda: pg.execute("SELECT count(*) FROM d").fetchall() == [(ROWS,)], 0.05)
        ours, theirs = [], []
        for number in range(1, 3):
            changed = rows.set_column(2, "amount", pa.array([float(number)] * ROWS))
            begun = time.perf_counter()
            by_hand(pg, changed)
            theirs.append(time.perf_counter() - begun)
            db.execute("ALTER SINK k PAUSE")
            db.execute(f"UPDATE t SET amount = {float(number)}")
            db.flush()
            begun = time.perf_counter()
            db.execute("ALTER SINK k RESUME")
            done = f"SELECT count(*) FROM d WHERE amount = {float(number)}"
            until(lambda: pg.execute(done).fetchall() == [(ROWS,)], 0.2)  # noqa: B023
            ours.append(time.perf_counter() - begun)
        db.execute("DROP SINK k")
    return compared("upsert", "batches by hand", ours, theirs)


def by_hand(pg: psycopg.Connection[Any], rows: pa.Table) -> None:
    """What one would write: COPY to a temporary table, then INSERT ... ON CONFLICT."""
    pg.execute("CREATE TEMP TABLE IF NOT EXISTS stage (LIKE c) ON COMMIT DELETE ROWS")
    values = list(zip(*(column.to_pylist() for column in rows.columns), strict=True))
    for first in range(0, ROWS, BATCH):
        with pg.transaction():
            with pg.cursor().copy("COPY stage FROM STDIN") as copy:
                for row in values[first : first + BATCH]:
                    copy.write_row(row)
            pg.execute(
                "INSERT INTO c SELECT * FROM stage ON CONFLICT (id) DO UPDATE SET "
                "region = EXCLUDED.region, amount = EXCLUDED.amount, at = EXCLUDED.at"
            )


def compared(
    what: str, other: str, ours: list[float], theirs: list[float]
) -> list[tuple[str, str]]:
    """The medians of both, and their ratio."""
    mine, yours = statistics.median(ours), statistics.median(theirs)
    return [
        (f"sink, {what}", f"{ROWS / mine / 1000:,.0f} thousand rows/s"),
        (other, f"{ROWS / yours / 1000:,.0f} thousand rows/s"),
        (f"ratio, {what}", f"{100 * yours / mine:.0f}%"),
    ]


PARTS = {"latency": latency, "rate": rate, "append": append, "upsert": upsert}


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description="the figures of PostgreSQL's connectors")
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    chosen = parser.parse_args().only
    table = Table("PostgreSQL", "")
    with server() as url:
        for name in chosen:
            for row in PARTS[name](url):
                table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    main()
