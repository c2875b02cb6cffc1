"""EMIT ON WINDOW CLOSE and EMIT FINAL without groups: a row is emitted when it can change no more.

What a view shows after each push is computed here: the rows that were in time, with their values
over all of these, as far as the watermark has passed them, or their window.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from ..seed import SEED  # noqa: TID252 - tests have no name

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
DELAY, SIZE = 5, 10
WINDOW = f"INTERVAL '{SIZE}' SECOND"
VIEWS = {
    "plain": "SELECT k, n, ts FROM e WHERE n % 5 <> 0 EMIT ON WINDOW CLOSE",
    "numbered": """SELECT k, n, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts, n) AS r,
        SUM(n) OVER (PARTITION BY k ORDER BY ts) AS s,
        LAG(n) OVER (PARTITION BY k ORDER BY ts, n) AS p FROM e EMIT FINAL""",
    "best": f"""SELECT k, n, window_end FROM (SELECT *, ROW_NUMBER() OVER (
        PARTITION BY window_start, k ORDER BY n DESC) AS r FROM TUMBLE(e, ts, {WINDOW})) AS x
        WHERE r <= 2 EMIT ON WINDOW CLOSE""",
    "shares": f"""SELECT n, SUM(n) OVER (PARTITION BY TUMBLE(ts, {WINDOW})) AS s,
        TUMBLE_END(ts, {WINDOW}) AS e FROM e EMIT FINAL""",
}


def window_end(moment):
    return moment // SIZE * SIZE + SIZE


def plain(rows, mark):
    return [(k, n, NOON + ts * SECOND) for k, n, ts in rows if ts < mark and n % 5]


def numbered(rows, mark):
    made = []
    for key in {k for k, _, _ in rows}:
        own = sorted((ts, n) for k, n, ts in rows if k == key)
        for place, (ts, n) in enumerate(own):
            total = sum(m for at, m in own if at <= ts)
            made.append((ts, (key, n, place + 1, total, own[place - 1][1] if place else None)))
    return [row for ts, row in made if ts < mark]


def best(rows, mark):
    made = []
    for key, end in {(k, window_end(ts)) for k, _, ts in rows}:
        own = sorted((n for k, n, ts in rows if (k, window_end(ts)) == (key, end)), reverse=True)
        made += [(key, n, NOON + end * SECOND) for n in own[:2] if end <= mark]
    return made


def shares(rows, mark):
    ends = [window_end(ts) for _, _, ts in rows]
    totals = {end: sum(row[1] for row in rows if window_end(row[2]) == end) for end in ends}
    found = zip(rows, ends, strict=True)
    return [(row[1], totals[end], NOON + end * SECOND) for row, end in found if end <= mark]


EXPECTED = {"plain": plain, "numbered": numbered, "best": best, "shares": shares}


def test_rows_are_emitted_once_when_they_are_final(db):
    dice = random.Random(SEED)
    db.execute(
        "CREATE SOURCE e (k VARCHAR, n BIGINT, ts TIMESTAMP, "
        f"WATERMARK FOR ts AS ts - INTERVAL '{DELAY}' SECOND)"
    )
    for name, query in VIEWS.items():
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    copies = {name: db.subscribe(f"SELECT * FROM {name}") for name in VIEWS}
    source, newest, numbers = db.source("e"), 0, iter(range(10_000))
    kept = {"row": [], "window": []}
    for step in range(40):
        mark = newest - DELAY if step else None
        batch = [
            (dice.choice("ab"), next(numbers), newest + dice.randint(-12, 4))
            for _ in range(dice.randint(1, 4))
        ]
        source.push_batch([(k, n, NOON + ts * SECOND) for k, n, ts in batch])
        db.flush()
        newest = max(newest, *(ts for _, _, ts in batch)) if step else max(b[2] for b in batch)
        kept["row"] += [row for row in batch if mark is None or row[2] >= mark]
        kept["window"] += [row for row in batch if mark is None or window_end(row[2]) > mark]
        if step % 8 == 7:
            check(db, kept, newest - DELAY)
    for copy in copies.values():
        while (found := copy.try_recv()) is not None:
            assert {each.op for each in found} <= {"insert"}


def check(db, kept, mark):
    for name, expected in EXPECTED.items():
        db.wait_for(name, timeout=120)
        rows = kept["window" if name in {"best", "shares"} else "row"]
        shown = db.query(f"SELECT * FROM {name}").fetchall()
        assert sorted(shown, key=repr) == sorted(expected(rows, mark), key=repr), name
