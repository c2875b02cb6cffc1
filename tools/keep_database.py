"""Write a small database with this version, for the tests of all later ones.

    .venv/bin/python tools/keep_database.py

It writes ``tests/data/databases/<version>.tar.gz``, with two directories:

- ``plain``: sources, tables, a view in this process, a connector, a durable subscription, keys. Its
  last process ended without closing it, as after a crash.
- ``on-spark``: views on Spark with their checkpoints, closed.

Beside it, ``<version>.json`` has every row that a later version must find there. The tests are
``tests/database/test_kept.py`` and ``tests/on_spark/test_kept.py``. A file that is there is not
written again: it is what this version wrote, not what it should have written.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import millstream as ms
from millstream.server.keys import Keys
from millstream.testing import TIMEOUT, wait_until
from millstream.views import saver

KEPT = Path(__file__).parents[1] / "tests" / "data" / "databases"
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
SEGMENT_BYTES = 16 << 10  # several segments, though there are few rows

PLAIN = """
    CREATE SOURCE trades (symbol VARCHAR NOT NULL, price DOUBLE, qty BIGINT, ts TIMESTAMP,
        WATERMARK FOR ts AS ts - INTERVAL '1 second');
    CREATE SOURCE tenants (who VARCHAR NOT NULL, n BIGINT) WITH (tenant = 'who');
    CREATE SOURCE made (id BIGINT, name VARCHAR)
        WITH (connector = 'generator', rows = 20, seed = 7, fields.id.kind = 'sequence');
    CREATE TABLE accounts (id BIGINT PRIMARY KEY, owner VARCHAR, balance DECIMAL(12, 2));
    CREATE TABLE everything (id INTEGER PRIMARY KEY, b BOOLEAN, ti TINYINT, si SMALLINT, r REAL,
        d DOUBLE, de DECIMAL(20, 5), v VARCHAR, bi BINARY, da DATE, ts TIMESTAMP,
        l ARRAY<BIGINT>, s STRUCT<x BIGINT, y VARCHAR>, m MAP<VARCHAR, DOUBLE>);
    CREATE MATERIALIZED VIEW large AS
        SELECT symbol, price * qty AS value FROM trades WHERE qty >= 50;
    CREATE MATERIALIZED VIEW rich AS SELECT id, owner FROM accounts WHERE balance > 100;
"""
ON_SPARK = """
    CREATE SOURCE trades (symbol VARCHAR NOT NULL, price DOUBLE, qty BIGINT, ts TIMESTAMP,
        WATERMARK FOR ts AS ts - INTERVAL '1 second');
    CREATE TABLE companies (symbol VARCHAR PRIMARY KEY, name VARCHAR);
    CREATE MATERIALIZED VIEW volumes AS
        SELECT symbol, SUM(qty) AS volume, MAX(price) AS high FROM trades GROUP BY symbol;
    CREATE MATERIALIZED VIEW minutes AS
        SELECT symbol, TUMBLE_START(ts, INTERVAL '1 minute') AS minute, COUNT(*) AS n FROM trades
        GROUP BY symbol, TUMBLE(ts, INTERVAL '1 minute') EMIT ON WINDOW CLOSE;
    CREATE MATERIALIZED VIEW named AS
        SELECT c.name, t.qty FROM trades AS t JOIN companies AS c ON t.symbol = c.symbol;
    CREATE MATERIALIZED VIEW ranks AS
        SELECT symbol, qty, ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY qty DESC) AS place
        FROM trades QUALIFY place <= 2;
    CREATE MATERIALIZED VIEW totals AS SELECT SUM(qty) AS volume FROM trades GROUP BY symbol;
    CREATE MATERIALIZED VIEW overall AS SELECT COUNT(*) AS n, MIN(price) AS low FROM trades;
    CREATE MATERIALIZED VIEW ends AS SELECT symbol, FIRST(price) AS first, LAST(price) AS last,
        COLLECT_LIST(qty) AS qtys, COUNT(DISTINCT qty) AS d FROM trades GROUP BY symbol;
    CREATE MATERIALIZED VIEW busy AS SELECT symbol, SUM(qty) AS volume FROM trades
        GROUP BY symbol HAVING COUNT(*) > 5 EMIT EVERY 100 MILLISECONDS;
    CREATE MATERIALIZED VIEW hours AS SELECT COUNT(*) AS n FROM trades
        GROUP BY symbol, TUMBLE(ts, INTERVAL '1 hour');
    CREATE MATERIALIZED VIEW final AS SELECT symbol, SUM(qty) AS volume FROM trades
        GROUP BY symbol, HOP(ts, INTERVAL '20 seconds', INTERVAL '1 minute') EMIT FINAL;
    CREATE MATERIALIZED VIEW visits AS SELECT symbol, SESSION_START(ts) AS start, COUNT(*) AS n
        FROM trades GROUP BY symbol, SESSION(ts, INTERVAL '10 seconds');
    CREATE MATERIALIZED VIEW calls AS SELECT symbol, SUM(qty) AS volume FROM trades
        WHERE qty > 20 GROUP BY symbol, SESSION(ts, INTERVAL '10 seconds') EMIT ON WINDOW CLOSE;
    CREATE MATERIALIZED VIEW names AS SELECT DISTINCT symbol FROM trades;
"""
RELATIONS = {
    "plain": ["trades", "tenants", "made", "accounts", "everything", "large", "rich"],
    "on-spark": [
        *("trades", "companies", "volumes", "minutes", "named", "ranks", "totals", "overall"),
        *("ends", "busy", "hours", "final", "visits", "calls", "names"),
    ],
}


def trades(first: int, last: int) -> list[tuple[Any, ...]]:
    """Rows that are the same each time."""
    symbols = ("AAPL", "MSFT", "ÅÄÖ")
    return [
        (symbols[n % 3], n / 4, n * 7 % 100, NOON + timedelta(seconds=3 * n))
        for n in range(first, last)
    ]


def shown(db: ms.Database, relation: str) -> list[Any]:
    """The rows of a relation as JSON has them, sorted."""
    return plain(db.query(f"SELECT * FROM {relation}").fetchall())


def plain(rows: list[tuple[Any, ...]]) -> list[Any]:
    """Rows as JSON has them, sorted."""
    found: list[Any] = json.loads(json.dumps(rows, default=repr))
    return sorted(found, key=json.dumps)


def write_plain(path: Path) -> None:
    """The database without Spark, as its first process leaves it."""
    with ms.open(path, segment_bytes=SEGMENT_BYTES) as db:
        db.execute(PLAIN)
        db.source("trades").push_batch(trades(0, 40))
        db.insert("tenants", [("acme", 1), ("globex", 2)])
        db.insert("accounts", [(n, f"owner {n}", Decimal(n * 10)) for n in range(20)])
        struct = {"x": 1, "y": "one"}
        row = (1, True, -1, 300, 0.5, 0.1, Decimal("1.5"), "text", b"\0\xff", date(2026, 1, 2))
        db.insert("everything", [(*row, NOON, [1, None], struct, {"a": 1.5})])
        db.insert("everything", [(2, *[None] * 13)])
        subscription = db.subscribe("SELECT * FROM accounts", name="billing")
        subscription.recv(TIMEOUT).ack()  # the snapshot
        wait_until(lambda: db.metrics()["connectors"]["made"]["state"] == "finished")
    Keys(path).create("dashboard", role="read", tenant="acme")


def crash_plain(path: Path) -> None:
    """Its second process, which ends without closing it."""
    db = ms.open(path, segment_bytes=SEGMENT_BYTES)
    lsn = db.flush()
    db.execute("UPDATE accounts SET balance = balance + 100 WHERE id % 2 = 0")
    db.execute("DELETE FROM accounts WHERE id = 3; UPDATE accounts SET id = 30 WHERE id = 5")
    db.execute("ALTER TABLE accounts ADD COLUMN note VARCHAR")
    db.execute("UPDATE accounts SET note = 'new' WHERE id = 30")
    db.source("trades").push_batch(trades(40, 60))
    db.flush()
    rows = {name: shown(db, name) for name in RELATIONS["plain"]}
    past = plain(db.query(f"SELECT * FROM accounts AS OF {lsn}").fetchall())
    print(json.dumps({"rows": rows, "past": {"lsn": lsn, "accounts": past}}), flush=True)
    os._exit(0)


def write_on_spark(path: Path) -> dict[str, Any]:
    """The database with views on Spark; what it shows."""
    with ms.open(path, segment_bytes=SEGMENT_BYTES) as db:
        db.execute(ON_SPARK)
        db.insert("companies", [("AAPL", "Apple"), ("MSFT", "Microsoft")])
        db.source("trades").push_batch(trades(0, 60))
        db.execute("UPDATE companies SET name = 'Apple Inc.' WHERE symbol = 'AAPL'")
        for view in RELATIONS["on-spark"][2:]:
            db.wait_for(view, lsn=db.flush(), timeout=TIMEOUT)
        return {"rows": {name: shown(db, name) for name in RELATIONS["on-spark"]}}


def main() -> None:
    """Write both, and what they hold."""
    kept, expected = KEPT / f"{ms.__version__}.tar.gz", KEPT / f"{ms.__version__}.json"
    if kept.exists():
        sys.exit(f"{kept} is there already")
    with tempfile.TemporaryDirectory() as folder:
        write_plain(Path(folder, "plain"))
        second = [sys.executable, __file__, "--crash", str(Path(folder, "plain"))]
        done = subprocess.run(second, stdout=subprocess.PIPE, check=True)
        holds = {"plain": json.loads(done.stdout)}
        holds["on-spark"] = write_on_spark(Path(folder, "on-spark"))
        for log in Path(folder).glob("*/spark/*"):
            log.unlink()  # what Spark has written meanwhile, which no database needs
        KEPT.mkdir(parents=True, exist_ok=True)
        _pack(Path(folder), kept)
    text = json.dumps(holds, ensure_ascii=False)
    for begin in ("[[", "], [", '], "'):  # a line for each row
        text = text.replace(begin, begin.replace("[[", "[\n[").replace("], ", "],\n"))
    expected.write_text(text + "\n")
    print(f"{kept}: {kept.stat().st_size:,} bytes")


def _pack(folder: Path, kept: Path) -> None:
    with gzip.GzipFile(kept, "wb", mtime=0) as packed, tarfile.open(None, "w", packed) as tar:
        for name in RELATIONS:
            tar.add(folder / name, name, filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """A file without its owner; sockets and the like are left out."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member if member.isfile() or member.isdir() else None


if __name__ == "__main__":
    with mock.patch.multiple(saver, MANY=5, SOME=5):  # these few rows are saved, too
        if sys.argv[1:2] == ["--crash"]:
            crash_plain(Path(sys.argv[2]))
        main()
