"""Nexmark's queries as live views: rows a second to catch up, and whether they are exact.

    python benchmarks/nexmark.py                        1 million events, about ten minutes
    python benchmarks/nexmark.py --events 10000000      more than an hour
    python benchmarks/nexmark.py --only q4,q7

Persons, auctions and bids are sources, what q13 looks up is a table; q20 is there twice: with the
auctions as a source, as Nexmark has it, and as a table. Not here: q10, which writes files by
partition and has no query of its own, and q12, whose windows are of the clock, so that no two runs
have the same answer. Each view is timed until it has caught up; then 2,000 more events come and
rows of the tables change; then its rows are compared with those of a plain Spark batch.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

import millstream as ms
from live_queries import GIVE_UP, Comparison, compare, show
from nexmark_events import COLUMNS, FIRST_ID, Events

if TYPE_CHECKING:
    from millstream import Database

EVENTS = 1_000_000
CHUNK = 100_000
MORE = 2_000
SIDE = 10_000
TABLES = {
    "side_input": "key BIGINT PRIMARY KEY, value VARCHAR",
    "listing": "id BIGINT PRIMARY KEY, item VARCHAR, reserve BIGINT, seller BIGINT,"
    " category BIGINT",
}
LISTING = ["id", "item", "reserve", "seller", "category"]
OURS = {
    "tumble": "TUMBLE(ts, INTERVAL '10 seconds')",
    "tumble_start": "TUMBLE_START(ts, INTERVAL '10 seconds')",
    "tumble_end": "TUMBLE_END(ts, INTERVAL '10 seconds')",
    "hop": "HOP(ts, INTERVAL '2 seconds', INTERVAL '10 seconds')",
    "hop_start": "HOP_START(ts, INTERVAL '2 seconds', INTERVAL '10 seconds')",
    "session": "SESSION(ts, INTERVAL '10 seconds')",
    "session_start": "SESSION_START(ts, INTERVAL '10 seconds')",
    "session_end": "SESSION_END(ts, INTERVAL '10 seconds')",
}
SPARKS = {
    "tumble": "window(ts, '10 seconds')",
    "tumble_start": "window(ts, '10 seconds').start",
    "tumble_end": "window(ts, '10 seconds').end",
    "hop": "window(ts, '10 seconds', '2 seconds')",
    "hop_start": "window(ts, '10 seconds', '2 seconds').start",
    "session": "session_window(ts, '10 seconds')",
    "session_start": "session_window(ts, '10 seconds').start",
    "session_end": "session_window(ts, '10 seconds').end",
}
WON = """SELECT a.*, b.auction, b.bidder, b.price, b.ts AS bid_ts, b.extra AS bid_extra,
    ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.ts) AS place
    FROM auction a JOIN bid b ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.expires"""
HOT = """SELECT auction, COUNT(*) AS num, {hop_start} AS starts FROM bid GROUP BY auction, {hop}"""
RANKS = {"rank1": "price < 10000", "rank2": "price >= 10000 AND price < 1000000"}
RANKS["rank3"] = "price >= 1000000"


def statistics_of(counted: dict[str, str]) -> str:
    """Columns that count something, all of it and in each range of prices."""
    return ", ".join(
        f"{what} AS {name}, "
        + ", ".join(f"{what} FILTER (WHERE {of}) AS {rank}_{name}" for rank, of in RANKS.items())
        for name, what in counted.items()
    )


COUNTS = {
    "bids": "COUNT(*)",
    "bidders": "COUNT(DISTINCT bidder)",
    "auctions": "COUNT(DISTINCT auction)",
}
DAY = "DATE_FORMAT(ts, 'yyyy-MM-dd')"
CHANNEL_ID = "REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2)"
LARGE = ("google", "facebook", "baidu", "apple")
QUERIES = {
    "q0": ("bid", "SELECT auction, bidder, price, ts, extra FROM bid"),
    "q1": ("bid", "SELECT auction, bidder, 0.908 * price AS price, ts, extra FROM bid"),
    "q2": ("bid", "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0"),
    "q3": (
        "auction person",
        """SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    ),
    "q4": (
        "auction bid",
        """SELECT category, AVG(final) AS average FROM (SELECT MAX(b.price) AS final, a.category
        FROM auction a JOIN bid b ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.expires
        GROUP BY a.id, a.category) q GROUP BY category""",
    ),
    "q5": (
        "bid",
        f"""SELECT c.auction, c.num, c.starts FROM ({HOT}) c JOIN (
        SELECT MAX(num) AS most, starts FROM ({HOT}) h GROUP BY starts) m
        ON c.starts = m.starts AND c.num >= m.most""",
    ),
    "q6": (
        "auction bid",
        f"""SELECT seller, id, AVG(price) OVER (PARTITION BY seller ORDER BY bid_ts
        ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS average FROM ({WON}) w WHERE place = 1""",
    ),
    "q7": (
        "bid",
        """SELECT b.auction, b.bidder, b.price, b.ts, b.extra FROM bid b JOIN (
        SELECT MAX(price) AS most, {tumble_end} AS ends FROM bid GROUP BY {tumble}) m
        ON b.price = m.most AND b.ts BETWEEN m.ends - INTERVAL '10' SECOND AND m.ends""",
    ),
    "q8": (
        "person auction",
        """SELECT p.id, p.name, p.starts FROM (SELECT id, name, {tumble_start} AS starts
        FROM person GROUP BY id, name, {tumble}) p JOIN (SELECT seller, {tumble_start} AS starts
        FROM auction GROUP BY seller, {tumble}) a ON p.id = a.seller AND p.starts = a.starts""",
    ),
    "q9": (
        "auction bid",
        f"""SELECT id, item, description, initial, reserve, ts, expires, seller, category, extra,
        auction, bidder, price, bid_ts, bid_extra FROM ({WON}) w WHERE place = 1""",
    ),
    "q11": (
        "bid",
        """SELECT bidder, COUNT(*) AS bids, {session_start} AS starts, {session_end} AS ends
        FROM bid GROUP BY bidder, {session}""",
    ),
    "q13": (
        "bid side_input",
        """SELECT b.auction, b.bidder, b.price, b.ts, s.value FROM bid b
        JOIN side_input s ON MOD(b.auction, 10000) = s.key""",
    ),
    "q14": (
        "bid",
        """SELECT auction, bidder, 0.908 * price AS price, CASE
        WHEN HOUR(ts) >= 8 AND HOUR(ts) <= 18 THEN 'dayTime'
        WHEN HOUR(ts) <= 6 OR HOUR(ts) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS time_type,
        ts, extra, LENGTH(extra) - LENGTH(REPLACE(extra, 'c', '')) AS c_counts
        FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
    ),
    "q15": ("bid", f"SELECT {DAY} AS day, {statistics_of(COUNTS)} FROM bid GROUP BY {DAY}"),
    "q16": (
        "bid",
        f"""SELECT channel, {DAY} AS day, MAX(DATE_FORMAT(ts, 'HH:mm')) AS minute,
        {statistics_of(COUNTS)} FROM bid GROUP BY channel, {DAY}""",
    ),
    "q17": (
        "bid",
        f"""SELECT auction, {DAY} AS day, {statistics_of({"bids": "COUNT(*)"})},
        MIN(price) AS least, MAX(price) AS most, AVG(price) AS average, SUM(price) AS total
        FROM bid GROUP BY auction, {DAY}""",
    ),
    "q18": (
        "bid",
        """SELECT auction, bidder, price, channel, url, ts, extra FROM (SELECT *, ROW_NUMBER()
        OVER (PARTITION BY bidder, auction ORDER BY ts DESC) AS place FROM bid) q
        WHERE place <= 1""",
    ),
    "q19": (
        "bid",
        """SELECT auction, bidder, price, channel, url, ts, extra, place FROM (SELECT *,
        ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, ts) AS place FROM bid) q
        WHERE place <= 10""",
    ),
    "q20": (
        "bid auction",
        """SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.ts, a.item, a.description,
        a.initial, a.reserve, a.expires, a.seller, a.category
        FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10""",
    ),
    "q20_table": (
        "bid listing",
        """SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.ts, l.item, l.reserve,
        l.seller, l.category FROM bid b JOIN listing l ON b.auction = l.id
        WHERE l.category = 10""",
    ),
    "q21": (
        "bid",
        f"""SELECT auction, bidder, price, channel, CASE
        {" ".join(f"WHEN LOWER(channel) = '{name}' THEN '{n}'" for n, name in enumerate(LARGE))}
        ELSE {CHANNEL_ID} END AS channel_id FROM bid
        WHERE {CHANNEL_ID} <> '' OR LOWER(channel) IN {LARGE}""",
    ),
    "q22": (
        "bid",
        """SELECT auction, bidder, price, channel, SPLIT(url, '/')[3] AS dir1,
        SPLIT(url, '/')[4] AS dir2, SPLIT(url, '/')[5] AS dir3 FROM bid""",
    ),
}


class Site:
    """The sources and tables of the auction site, and the files with the same rows.

    Args:
        db: the database.
        folder: for the files.
    """

    def __init__(self, db: Database, folder: Path) -> None:
        self._db, self._folder = db, folder
        self._events = Events()
        self._next = 0
        self._parts: dict[str, list[str]] = {name: [] for name in COLUMNS}
        self._snapshots = 0
        self.rows: Counter[str] = Counter()
        for name, columns in COLUMNS.items():
            mark = "WATERMARK FOR ts AS ts - INTERVAL '4 seconds'"
            db.execute(f"CREATE SOURCE {name} ({columns}, {mark})")
        for name, columns in TABLES.items():
            db.execute(f"CREATE TABLE {name} ({columns})")

    def push(self, count: int, *, listed: bool = False) -> None:
        """Push the next events, and put the auctions among them into the table, too."""
        rows = self._events.between(self._next, self._next + count)
        self._next += count
        for name, table in rows.items():
            self._db.insert(name, table)
            path = f"{self._folder}/{name}{len(self._parts[name])}.parquet"
            pq.write_table(table, path)
            self._parts[name].append(path)
            self.rows[name] += table.num_rows
        if listed:
            self._insert("listing", rows["auction"].select(LISTING))

    def fill_side_input(self) -> None:
        """The rows that q13 looks up."""
        keys = range(SIDE)
        self._insert("side_input", pa.table({"key": keys, "value": [f"v{n % 97}" for n in keys]}))

    def _insert(self, name: str, table: pa.Table) -> None:
        self._db.insert(name, table)
        self.rows[name] += table.num_rows

    def change(self) -> None:
        """Some more events, and rows of the tables come, go and change."""
        for _ in range(4):
            self.push(MORE // 4)
        step = self._next % 997
        first, db = FIRST_ID + step, self._db
        db.execute("UPDATE side_input SET value = ? WHERE key % 500 = ?", [f"w{step}", step % 500])
        db.execute("DELETE FROM side_input WHERE key = ?", [step])
        db.execute("UPDATE listing SET category = 10 WHERE id BETWEEN ? AND ?", [first, first + 40])
        db.execute(
            "UPDATE listing SET category = 12, item = 'gone' WHERE category = 10 AND id % 1000 = ?",
            [step],
        )
        db.execute("DELETE FROM listing WHERE id BETWEEN ? AND ?", [first + 100, first + 110])

    def files(self, names: list[str]) -> dict[str, list[str]]:
        """The files with the rows that some of them have now."""
        return {name: self._files(name) for name in names}

    def _files(self, name: str) -> list[str]:
        if name in self._parts:
            return list(self._parts[name])
        self._snapshots += 1
        path = f"{self._folder}/{name}_{self._snapshots}.parquet"
        pq.write_table(self._db.query(f"SELECT * FROM {name}").to_arrow(), path)
        return [path]


def main() -> None:
    """Run the queries, and print their table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--only", default=",".join(QUERIES))
    parser.add_argument("--give-up", type=float, default=GIVE_UP, help="seconds a view may take")
    given = parser.parse_args()
    measured = []
    with tempfile.TemporaryDirectory() as name, Console(stderr=True).status("") as status:
        folder = Path(name)
        with ms.open(folder / "db") as db:
            site = Site(db, folder)
            site.fill_side_input()
            for first in range(0, given.events, CHUNK):
                status.update(f"{first:,} events")
                size = min(CHUNK, given.events - first)
                site.push(size, listed="q20_table" in given.only)
            comparison = Comparison(
                db,
                folder,
                status,
                change=site.change,
                files=site.files,
                give_up=given.give_up,
            )
            comparison.warm_up()
            for query in given.only.split(","):
                names, sql = QUERIES[query]
                read = {name: site.rows[name] for name in names.split()}
                ours, plain = (sql.format(**forms) for forms in (OURS, SPARKS))
                measured.append(comparison.measure(query, ours, plain, read))
        compare(measured, folder, status)
    show(measured, f"Nexmark, {given.events:,} events")


if __name__ == "__main__":
    main()
