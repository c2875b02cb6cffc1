"""A disk that runs full under a view on Spark: it stops, says so, and goes on with room."""

from __future__ import annotations

from collections import Counter

import pytest

import millstream as ms
from millstream.testing import TIMEOUT, Mirror, engine_of, wait_until
from millstream.views.run import setbacks

from ..disks import mounted  # noqa: TID252 - tests have no name
from .observing import rows_of, runner_of, settle


@pytest.fixture
def disk(tmp_path, monkeypatch):
    monkeypatch.setattr(setbacks, "_FULL_PAUSE", 0.1)
    with mounted(tmp_path / "disk", "64m") as disk:
        yield disk


def shown(db):
    return db.query("SHOW VIEWS").to_pylist()[0]


def push(source, totals, first, count):
    for n in range(first, first + count):
        source.push((f"k{n % 7}", n))
        totals[f"k{n % 7}"] += n


def test_the_checkpoint_of_a_view_finds_no_room(disk, spark):
    with ms.open(disk.path / "db", spark=spark) as db:
        db.execute(
            "CREATE SOURCE s (k VARCHAR, n BIGINT);"
            "CREATE MATERIALIZED VIEW v AS SELECT k, SUM(n) AS total FROM s GROUP BY k"
        )
        source, totals, mirror = db.source("s"), Counter(), Mirror(key_columns=1)
        changes = db.subscribe("SELECT * FROM v")
        push(source, totals, 0, 1000)
        settle(db, "v")
        disk.fill()
        runner_of(db, "v")._feed.end_batch()  # whose end is written to its checkpoint
        wait_until(lambda: shown(db)["restarts"])
        assert "No space left on device" in shown(db)["error"]
        disk.fill()
        push(source, totals, 1000, 1000)
        assert rows_of(db, "v")
        disk.free()
        wait_until(lambda: not engine_of(db).log.appender.is_stalled)
        push(source, totals, 2000, 1000)
        db.wait_for("v", lsn=db.flush(), timeout=TIMEOUT)
        assert rows_of(db, "v") == Counter(totals.items())
        assert mirror.follow(changes).catch_up(db).rows == Counter(totals.items())
