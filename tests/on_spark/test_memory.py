"""A line whose state is larger than Java's memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import millstream as ms
from millstream.testing import TIMEOUT

from ..effort import effort  # noqa: TID252 - tests have no name

ROWS = effort(60_000, 100_000)
KEYS = 1000
MOVED = 100


def rows(first, count):
    """Rows of 2 kB, their keys in no order."""
    numbers = range(first, first + count)
    return [(n * 7919 % KEYS, f"{n * 2654435761 % 2**32:02000d}") for n in numbers]


def work(path):
    """Join and aggregate rows of 200 MB, each kept twice, with 512 MB of memory for all of Java."""
    with ms.open(path, spark_options={"spark.driver.memory": "512m"}) as db:
        db.execute("CREATE SOURCE s (k BIGINT, pad VARCHAR)")
        db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, g BIGINT)")
        db.insert("t", [(k, k % 10) for k in range(KEYS)])
        for first in range(0, ROWS, 10_000):
            db.insert("s", rows(first, 10_000))
        db.execute(
            "CREATE MATERIALIZED VIEW v AS SELECT t.g, COUNT(*) AS n, MAX(s.pad) AS m "
            "FROM s JOIN t ON s.k = t.k GROUP BY t.g"
        )
        check(db, {})
        db.execute(f"UPDATE t SET g = 10 WHERE k < {MOVED}")
        check(db, dict.fromkeys(range(MOVED), 10))


def check(db, moved):
    expected = {}
    for k, pad in rows(0, ROWS):
        g = moved.get(k, k % 10)
        n, m = expected.get(g, (0, ""))
        expected[g] = n + 1, max(m, pad)
    db.wait_for("v", timeout=TIMEOUT)
    found = {g: (n, m) for g, n, m in db.query("SELECT g, n, m FROM v").fetchall()}
    assert found == expected


def test_more_state_than_memory(tmp_path):
    code = f"from tests.on_spark.test_memory import work; work({str(tmp_path / 'db')!r})"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
