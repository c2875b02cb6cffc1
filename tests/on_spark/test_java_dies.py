"""Spark's Java is killed under the views: they go on in a new one, and nobody misses a change."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

CHILD = """
import json, os, signal
import millstream as ms
from millstream.spark import live
from millstream.spark.checkpoint import offset_in
from millstream.testing import engine_of, wait_until

VIEWS = ("sums", "tens", "joined")
live.LIVE_ROWS = 2

with ms.open() as db:
    db.execute("CREATE SOURCE t (k VARCHAR, v BIGINT)")
    db.execute("CREATE MATERIALIZED VIEW sums AS SELECT k, SUM(v) AS s FROM t GROUP BY k")
    db.execute("CREATE MATERIALIZED VIEW tens AS SELECT k, log10(v) AS l FROM t")
    db.execute(
        "CREATE TABLE w (k VARCHAR PRIMARY KEY, weight BIGINT);"
        "INSERT INTO w VALUES ('x', 2), ('y', 3);"
        "CREATE MATERIALIZED VIEW joined AS SELECT MAX(s) AS most, COUNT(*) AS n FROM ("
        "    SELECT t.k, SUM(v * weight) AS s FROM t JOIN w ON t.k = w.k GROUP BY t.k) q"
    )
    subscription = db.subscribe("SELECT * FROM sums")
    db.insert("t", [("x", 1), ("y", 100)])
    for name in VIEWS:
        db.wait_for(name, timeout=120)
    line = engine_of(db).views["joined"].runner._query
    wait_until(lambda: offset_in(line.checkpoint) is not None)  # what follows is read again
    live.LIVE_ROWS = 1_000_000
    db.execute("UPDATE w SET weight = weight + 1; DELETE FROM w WHERE k = 'y'")
    db.wait_for("joined", timeout=120)
    before = db.query("SELECT * FROM joined").fetchall()
    spark = engine_of(db).views["sums"].runner._query.spark
    os.kill(spark.session.sparkContext._gateway.proc.pid, signal.SIGKILL)
    db.insert("t", [("x", 10)])
    for name in VIEWS:
        db.wait_for(name, timeout=120)
    changes = []
    while (batch := subscription.try_recv()) or subscription.metrics.lag_rows:
        changes += [[each.op, *each.row] for each in batch or ()]
    print(json.dumps({
        "sums": sorted(db.query("SELECT * FROM sums").fetchall()),
        "tens": sorted(db.query("SELECT * FROM tens").fetchall()),
        "joined": [before, db.query("SELECT * FROM joined").fetchall()],
        "changes": changes,
        "restarts": db.metrics()["views"]["sums"]["restarts"],
    }))
"""


@pytest.mark.crash
def test_views_go_on_in_a_new_java():
    done = subprocess.run(
        [sys.executable, "-c", CHILD], capture_output=True, text=True, check=True, timeout=280
    )
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["sums"] == [["x", 11], ["y", 100]]
    assert found["tens"] == [["x", 0.0], ["x", 1.0], ["y", 2.0]]
    assert found["joined"] == [[[3, 1]], [[33, 1]]]
    assert sorted(found["changes"][:2]) == [["insert", "x", 1], ["insert", "y", 100]]
    assert found["changes"][2:] == [["update", "x", 11]]
    assert found["restarts"] >= 1
