"""Views over tables whose log does not go back to their beginning."""

from __future__ import annotations

import shutil

import pytest

import millstream as ms
from millstream.errors import LsnNotKeptError
from millstream.testing import engine_of

SUMS = "SELECT k % 3 AS g, COUNT(*) AS n, SUM(v) AS total FROM t GROUP BY k % 3"
AS_IT_WAS = "SELECT s.k, t.v FROM s JOIN t FOR SYSTEM_TIME AS OF s.ts ON s.k = t.k"


def change(db, first, last):
    for n in range(first, last):
        db.execute(f"INSERT OR REPLACE INTO t VALUES ({n % 10}, {n})")
    db.flush()
    engine_of(db).saver.save(0, 0)
    engine_of(db).log.retain()


def rows(db, sql):
    return sorted(map(tuple, db.query(sql).fetchall()))


def test_begin_with_the_rows_and_rebuild(tmp_path, spark):
    path = tmp_path / "db"
    with ms.open(path, spark=spark, segment_bytes=4000) as db:
        db.execute(
            "CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT) WITH (retention_bytes = 2000);"
            "CREATE SOURCE s (g BIGINT, k BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts)"
        )
        for n in range(4):
            change(db, 50 * n, 50 * n + 50)
        assert engine_of(db).log.topic("t").low_lsn > 1
        db.execute(f"CREATE MATERIALIZED VIEW sums AS {SUMS}")
        db.wait_for("sums", timeout=120)
        assert rows(db, "SELECT * FROM sums") == rows(db, SUMS)
        with pytest.raises(LsnNotKeptError, match="history is kept from LSN") as refused:
            db.execute(f"CREATE MATERIALIZED VIEW was AS {AS_IT_WAS}")
        assert "forever" in refused.value.hint
        change(db, 200, 230)
        past, wanted = db.lsn, rows(db, SUMS)
        change(db, 230, 235)
        assert rows(db, f"SELECT * FROM sums AS OF {past}") == wanted
        db.wait_for("sums", lsn=db.lsn, timeout=120)
    shutil.rmtree(path / "views")  # it is rebuilt, at the LSN that it has shown
    with ms.open(path, spark=spark, segment_bytes=4000) as db:
        change(db, 235, 240)
        db.wait_for("sums", lsn=db.lsn, timeout=120)
        assert rows(db, "SELECT * FROM sums") == rows(db, SUMS)
