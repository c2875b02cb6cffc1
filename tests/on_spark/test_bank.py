"""The bank: whatever is transferred, all balances add up to 0, in every frame that anyone gets.

``balance`` joins two views over one source, ``total`` adds it up. A frame in which one of the two
has a transfer and the other has not would show money that nobody has.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

import millstream as ms
from millstream.testing import TIMEOUT, Mirror, wait_until

from ..seed import SEED  # noqa: TID252
from .guest import guest, invitation
from .observing import rows_of, settle

SETUP = """
    CREATE SOURCE transfers (payer INT, payee INT, amount BIGINT);
    CREATE MATERIALIZED VIEW credits AS
        SELECT payee AS account, SUM(amount) AS amount FROM transfers GROUP BY payee;
    CREATE MATERIALIZED VIEW debits AS
        SELECT payer AS account, SUM(amount) AS amount FROM transfers GROUP BY payer;
    CREATE MATERIALIZED VIEW balance AS
        SELECT COALESCE(c.account, d.account) AS account,
            COALESCE(c.amount, 0) - COALESCE(d.amount, 0) AS amount
        FROM credits c FULL OUTER JOIN debits d ON c.account = d.account;
    CREATE MATERIALIZED VIEW total AS SELECT COALESCE(SUM(amount), 0) AS amount FROM balance;
"""
VIEWS = ("credits", "debits", "balance", "total")
AUDITED = ("SELECT amount, account FROM balance", "SELECT amount FROM total")


class Audit:
    """Subscribers that record every frame: what the amounts add up to after it.

    It outlives a database: ``follow`` goes on in the next one where the last one ended.

    Attributes:
        sums: one for each frame, in the order of their arrival.
        errors: what subscribers reported.
    """

    def __init__(self):
        self.sums = []
        self._mirrors = {query: Mirror() for query in AUDITED}
        self._lock = threading.Lock()
        self.errors = []
        self._subscriptions = []

    def follow(self, db):
        """Subscribe, at the place of the last frame or with a snapshot."""
        for query, mirror in self._mirrors.items():
            subscription = db.subscribe_callback(
                query, self._recorder(mirror), on_error=self.errors.append, start=mirror.token
            )
            self._subscriptions.append(subscription)

    def _recorder(self, mirror):
        def record(batch):
            mirror.apply(batch)
            with self._lock:
                self.sums.append(sum(row[0] * n for row, n in mirror.rows.items()))

        return record

    def check(self):
        """All frames that were sent have come, and none had other than 0."""
        for each in self._subscriptions:
            wait_until(lambda: each.metrics.lag_rows == 0, "all frames")
        assert not self.errors, self.errors
        with self._lock:
            wrong = [(place, value) for place, value in enumerate(self.sums) if value]
        assert not wrong, f"{len(wrong)} of {len(self.sums)} frames do not add up: {wrong[:5]}"

    def end(self):
        self.check()
        for each in self._subscriptions:
            each.close()
        self._subscriptions = []


def transfers(dice, count):
    return [(dice.randrange(20), dice.randrange(20), dice.randint(-50, 100)) for _ in range(count)]


def push_some(db, dice):
    """One transfer, or several in one commit; sometimes views may catch up, for a frame of it."""
    if dice.random() < 0.7:
        db.source("transfers").push(transfers(dice, 1)[0])
    else:
        db.source("transfers").push_batch(transfers(dice, dice.choice([2, 10, 100])))
    if dice.random() < 0.5:
        settle(db, *VIEWS)


def read_at_any_moment(db):
    """Queries and new subscribers see 0, whether views have caught up or not."""
    assert sum(amount for (amount,) in db.query("SELECT amount FROM total").fetchall()) == 0
    assert sum(amount for (amount,) in db.query("SELECT amount FROM balance").fetchall()) == 0
    with db.subscribe("SELECT * FROM total", start="snapshot") as subscription:
        assert [row for row in Mirror(subscription).catch_up(db).rows if row != (0,)] == []


def check_exact(db):
    """Once views have caught up, they are what the transfers say."""
    settle(db, *VIEWS)
    balance = Counter()
    for payer, payee, amount in db.query("SELECT * FROM transfers").fetchall():
        balance[payee] += amount
        balance[payer] -= amount
    assert rows_of(db, "balance") == Counter(balance.items())
    assert rows_of(db, "total") == Counter([(0,)])
    for view in ("balance", "total"):
        with db.subscribe(f"SELECT * FROM {view}", start="earliest") as subscription:
            assert Mirror(subscription).catch_up(db).rows == rows_of(db, view)


def work(db, dice, pushes):
    """Transfers, and readers between them."""
    for number in range(pushes):
        push_some(db, dice)
        if number % 20 == 0:
            read_at_any_moment(db)


def test_total_is_0_in_every_frame_also_after_a_restart(tmp_path, spark):
    dice, audit = random.Random(SEED), Audit()
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute(SETUP)
        audit.follow(db)
        check_exact(db)
        work(db, dice, 200)
        check_exact(db)
        audit.end()
    frames = len(audit.sums)
    for _ in range(2):
        with ms.open(tmp_path / "db", spark=spark) as db:
            audit.follow(db)
            work(db, dice, 60)
            check_exact(db)
            audit.end()
    assert len(audit.sums) > frames > 50


def child(path, seed):
    """Transfers for ever, audited; a line after each commit, or what was wrong."""
    db, audit, dice = ms.open(path, spark=guest()), Audit(), random.Random(seed)
    audit.follow(db)
    while True:
        push_some(db, dice)
        db.flush()
        wrong = [value for value in audit.sums if value] + audit.errors
        os.write(1, f"wrong {wrong[:5]}\n".encode() if wrong else b"fine\n")


def killed(path, spark, seed):
    """Let a child work, and kill it after some commits; what it said."""
    commits = random.Random(seed).randint(50, 300)
    code = f"import tests.on_spark.test_bank as t; t.child({str(path)!r}, {seed})"
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=Path(__file__).parents[2],
        env=invitation(spark),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            lines = [process.stdout.readline() for _ in range(commits)]
        finally:
            process.kill()
        lines += process.stdout.read().splitlines(keepends=True)
        assert process.wait(TIMEOUT) == -signal.SIGKILL
    return lines


@pytest.mark.crash
def test_total_is_0_in_every_frame_also_after_kill_9(tmp_path, spark):
    dice, audit = random.Random(SEED), Audit()
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute(SETUP)
        audit.follow(db)
        work(db, dice, 20)
        check_exact(db)
        audit.end()
    for seed in range(2):
        lines = killed(tmp_path / "db", spark, seed)
        assert set(lines[:-1]) == {"fine\n"}, set(lines)
        with ms.open(tmp_path / "db", spark=spark) as db:
            audit.follow(db)
            read_at_any_moment(db)
            check_exact(db)
            audit.check()
            work(db, dice, 20)
            check_exact(db)
            audit.end()
