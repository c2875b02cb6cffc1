"""Queries of Nexmark and TPC-H as live views in a process that is killed, and whose Java is killed.

The child has a Spark of its own. It pushes events, changes tables, and kills its Java once on the
way; then it is killed itself. Opened again, every view is what DuckDB answers over the rows that
the log has kept. ``make proof`` runs all queries of each.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import millstream as ms
from millstream.testing import TIMEOUT
from millstream.views.run import live

from ..effort import effort  # noqa: TID252 - tests have no name
from . import test_nexmark as nexmark
from . import test_tpch as tpch
from .against_duckdb import Model, same
from .observing import runner_of, settle

pytestmark = pytest.mark.crash

ROUNDS = effort(1, 4)
STEPS = 25
QUERIES = {
    **{f"q{n}": nexmark.QUERIES[n] for n in effort(["4", "8"], nexmark.QUERIES)},
    **{f"h{n}": re.sub(r"LIMIT \d+", "", tpch.QUERIES[n]) for n in effort(["4"], tpch.QUERIES)},
}
IN_DUCKDB = {**QUERIES, **{f"q{n}": sql for n, sql in nexmark.IN_DUCKDB.items()}}


def work(path, seed):
    """The child: pushes and changes rows for ever, and says how many steps it has made."""
    live.LIVE_ROWS = 500  # so that it is killed between checkpoints, and near them
    dice = random.Random(seed)
    db = ms.open(path)
    for name in QUERIES:
        db.wait_for(name, timeout=TIMEOUT)
    site, step = nexmark.Site(dice), 0
    while True:
        for name, rows in site.events(dice.choice([1, 5, 30])).items():
            db.insert(name, rows)
        change_a_table(db, dice)
        step += 1
        if step == STEPS:
            java = runner_of(db, next(iter(QUERIES)))._query.spark.session
            os.kill(java.sparkContext._gateway.proc.pid, signal.SIGKILL)
        if step in {STEPS // 2, STEPS + 5}:
            for name in QUERIES:  # also after Java was killed
                db.wait_for(name, timeout=TIMEOUT)
        db.flush()
        os.write(1, b"+")


def change_a_table(db, dice):
    """Rows of a table of TPC-H come or are replaced, or some go."""
    name = dice.choice(["orders", "lineitem", "customer"])
    rows = dice.sample(tpch.rows_of(tpch.TABLES[name]), dice.choice([1, 5, 40]))
    if dice.random() < 0.7:
        db.insert(name, rows, replace=True)
        return
    key = tpch.KEYS[name][0]
    place = tpch.TABLES[name].schema.names.index(key)
    db.execute(f"DELETE FROM {name} WHERE {key} = ?", [rows[0][place]])


def killed(path, seed):
    """Let a child work until its Java has been killed, and kill it, and what it started, later."""
    code = f"from tests.on_spark.test_killed_queries import work; work({str(path)!r}, {seed})"
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        steps, wanted = 0, STEPS + random.Random(seed).randrange(5, 40)
        while steps < wanted:
            said = os.read(child.stdout.fileno(), 1 << 16)
            assert said, child.stderr.read().decode()
            steps += len(said)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
        child.stderr.close()


def check(db, model):
    """Every view is what DuckDB answers over the rows that are there."""
    settle(db, *QUERIES)
    for name in model.rows:
        model.put(name, db.query(f"SELECT * FROM {name}").fetchall())
    wrong = [
        name
        for name in QUERIES
        if not same(
            db.query(f"SELECT * FROM {name}").fetchall(),
            model.answer(IN_DUCKDB[name]),
            tpch.MICRO,
        )
    ]
    assert not wrong
    assert all(each["error"] is None for each in db.query("SHOW VIEWS").to_pylist())


def test_killed_and_opened_again(tmp_path, spark):
    path, dice = tmp_path / "db", random.Random(7)
    schemas = nexmark.SCHEMAS | {name: each.schema for name, each in tpch.TABLES.items()}
    model = Model(schemas)
    with ms.open(path, spark=spark) as db:
        nexmark.create(db)
        for name, table in tpch.TABLES.items():
            db.execute(tpch.ddl(name))
            rows = tpch.rows_of(table)
            db.insert(name, dice.sample(rows, len(rows) // 2))
        for name, sql in QUERIES.items():
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {sql}")
        check(db, model)
    for seed in range(1, ROUNDS + 1):
        killed(path, seed)
        with ms.open(path, spark=spark) as db:
            check(db, model)
            for name, rows in nexmark.Site(dice).events(40).items():
                db.insert(name, rows)
            change_a_table(db, dice)
            check(db, model)
            assert len(model.rows["bid"]) > STEPS * seed
