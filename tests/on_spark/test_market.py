"""Views of every kind while rows come: created late, closed, opened again, in another process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import millstream as ms
from millstream.testing import wait_until

from .market import SETUP, VIEWS, Market, check, subscribers
from .observing import runner_of


def wait_for_rows(db, count):
    """Wait until so many more have come."""
    lsn = db.lsn
    wait_until(lambda: db.lsn > lsn + count, "some rows")


def test_views_that_are_created_while_rows_come(db):
    sources, create, views = SETUP.partition("CREATE MATERIALIZED VIEW")
    db.execute(sources)
    with Market(db, seed=1, rows=200):
        wait_until(lambda: len(db.query("SELECT * FROM trades")) > 3000, "a backlog")
        db.execute(create + views)
        mirrors = [subscribers(db), subscribers(db)]
        wait_until(lambda: all(runner_of(db, name).state == "live" for name in VIEWS), "live")
        mirrors.append(subscribers(db))
    check(db, mirrors)
    assert all(runner_of(db, name).restarts == 0 for name in VIEWS)


def test_closed_and_opened_again(tmp_path, spark):
    """Subscribers go on with their tokens, also after rows that no view has taken in."""
    tokens = None
    for seed in range(4):
        with ms.open(tmp_path / "db", spark=spark) as db:
            if not seed:
                db.execute(SETUP)
            copies = subscribers(db, tokens=tokens)
            with Market(db, seed=10 + seed):
                wait_for_rows(db, 500)
            check(db, [copies])
            tokens = {name: mirror for name, (mirror, _) in copies.items()}
            with Market(db, seed=20 + seed):
                wait_for_rows(db, 100)


CHILD = """
import sys
import millstream as ms
from tests.on_spark.market import Market, VIEWS, check
from tests.on_spark.observing import settle

with ms.open(sys.argv[1]) as db:
    with Market(db, seed=30):
        settle(db, *VIEWS)
    check(db)
    print("exact")
"""


def test_goes_on_in_another_process(tmp_path, spark):
    path = tmp_path / "db"
    with ms.open(path, spark=spark) as db:
        db.execute(SETUP)
        copies = subscribers(db)
        with Market(db, seed=1):
            wait_for_rows(db, 500)
        check(db, [copies])
        tokens = {name: mirror for name, (mirror, _) in copies.items()}
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (child.stdout, child.returncode) == ("exact\n", 0), child.stderr
    with ms.open(path, spark=spark) as db:
        copies = subscribers(db, tokens=tokens)
        with Market(db, seed=40):
            wait_for_rows(db, 100)
        check(db, [copies])
