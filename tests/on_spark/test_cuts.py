"""Several views in one subscription: every cut is what batch queries give at its LSN."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import millstream as ms
from millstream.testing import TIMEOUT, Mirror, engine_of, wait_until

from ..seed import SEED  # noqa: TID252
from .observing import settle
from .test_bank import SETUP, VIEWS, push_some, transfers

pytestmark = pytest.mark.slow


class Copies:
    """A copy of each query, made of cuts, and its sums after each.

    Attributes:
        token: where to resume.
        cuts: how many were applied.
    """

    def __init__(self, *queries):
        self.queries = list(queries)
        self.mirrors = {query: Mirror() for query in queries}
        self.token = None
        self.lsn = 0
        self.cuts = 0

    def apply(self, cut):
        assert cut.lsn >= self.lsn
        for query, batch in cut:
            if batch.kind == "snapshot" and self.mirrors[query].rows:
                self.mirrors[query] = Mirror()
            self.mirrors[query].apply(batch)
        self.token, self.lsn = cut.token, cut.lsn
        self.cuts += 1

    def __getitem__(self, query):
        return self.mirrors[query].rows

    def total(self, query, column=1):
        return sum(row[column] * count for row, count in self[query].items())

    def subscribe(self, db):
        return db.subscribe(self.queries, start=self.token)

    def take_all(self, subscription, check):
        """Apply all cuts that there are, each checked."""

        def is_up_to_date():
            while (cut := subscription.try_recv()) is not None:
                self.apply(cut)
                check(self)
            return subscription.metrics.lag_rows == 0

        wait_until(is_up_to_date, "all cuts")


def rows_at(db, source, lsn):
    """The rows of a source up to an LSN, from the log."""
    db.flush()
    found = []
    for batch in engine_of(db).log.read(source):
        found += [row for row, at in zip(batch.rows, batch.lsns, strict=True) if at <= lsn]
    return found


def check_bank(copies, db):
    """The views, and the source itself, are those of the transfers up to the LSN of the cut."""
    assert copies.total("credits") == copies.total("debits")
    assert copies.total("balance") == 0
    received, paid = Counter(), Counter()
    for payer, payee, amount in rows_at(db, "transfers", copies.lsn):
        received[payee] += amount
        paid[payer] += amount
    assert copies["credits"] == Counter(received.items()), f"at LSN {copies.lsn}"
    assert copies["debits"] == Counter(paid.items()), f"at LSN {copies.lsn}"


BANK = ("credits", "debits", "balance", "transfers")


def test_every_cut_of_the_bank_adds_up_also_after_a_restart(tmp_path, spark):
    dice, copies = random.Random(SEED), Copies(*BANK)
    for run in range(2):
        with ms.open(tmp_path / "db", spark=spark) as db:
            if not run:
                db.execute(SETUP)
            subscription, before = copies.subscribe(db), copies.cuts
            for _ in range(100):
                push_some(db, dice)
                while (cut := subscription.try_recv()) is not None:
                    copies.apply(cut)
                    check_bank(copies, db)
            lsn = db.flush()
            settle(db, *VIEWS)
            copies.take_all(subscription, lambda each: check_bank(each, db))
            assert sum(copies["transfers"].values()) == len(rows_at(db, "transfers", lsn))
            assert copies.cuts > before + 20
            for view in ("credits", "debits", "balance"):
                rows = db.query(f"SELECT * FROM {view}").fetchall()
                assert copies[view] == Counter(rows)
            push_some(db, dice)  # what is left is given after the restart


def test_cuts_keep_coming_under_load_that_never_pauses(tmp_path, spark):
    dice, copies = random.Random(SEED), Copies("credits", "debits", "transfers")
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute(SETUP)
        settle(db, *VIEWS)
        subscription, source = copies.subscribe(db), db.source("transfers")
        copies.apply(subscription.recv(timeout=TIMEOUT))
        pushed = taken = under_load = 0
        while under_load < 15:
            is_full = pushed >= taken + 400_000
            if not is_full:
                for _ in range(20):
                    source.push_batch(transfers(dice, 200))
                pushed += 4000
            cut = subscription.recv(timeout=TIMEOUT) if is_full else subscription.try_recv()
            if cut is not None:
                copies.apply(cut)
                taken = copies["transfers"].total()
                under_load += taken < pushed
                assert (
                    copies.total("credits")
                    == copies.total("debits")
                    == copies.total("transfers", 2)
                )
        check_sums(copies, db)


def check_sums(copies, db):
    received = Counter()
    for _, payee, amount in rows_at(db, "transfers", copies.lsn):
        received[payee] += amount
    assert copies["credits"] == Counter(received.items())


def test_views_of_different_sources_and_over_views_and_selects(tmp_path, spark):
    """Every source counts up to the LSN of the cut, whichever view it passes on its way."""
    dice = random.Random(SEED)
    joined_rows = "SELECT COUNT(*) AS n FROM a JOIN b ON a.k = b.k"
    copies = Copies("per_key", "large", "of_other", joined_rows, "t")
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute("""
            CREATE SOURCE a (k INT, n BIGINT); CREATE SOURCE b (k INT, n BIGINT);
            CREATE TABLE t (k INT PRIMARY KEY, n BIGINT);
            CREATE MATERIALIZED VIEW per_key AS SELECT k, SUM(n) AS n FROM a GROUP BY k;
            CREATE MATERIALIZED VIEW large AS SELECT k, n FROM per_key WHERE n > 100;
            CREATE MATERIALIZED VIEW of_other AS SELECT k, COUNT(*) AS n FROM b GROUP BY k;
        """)
        subscription = copies.subscribe(db)

        def check(each):
            a, b = rows_at(db, "a", each.lsn), rows_at(db, "b", each.lsn)
            per_key = Counter()
            for k, n in a:
                per_key[k] += n
            assert each["per_key"] == Counter(per_key.items())
            assert each["large"] == Counter((k, n) for k, n in per_key.items() if n > 100)
            of_other = Counter(k for k, _ in b)
            assert each["of_other"] == Counter(of_other.items())
            joined = sum(of_other[k] for k, _ in a)
            assert each[joined_rows] == Counter([(joined,)])
            in_t = Counter()
            for batch in engine_of(db).log.read("t"):  # which rows_at has flushed
                for row, weight, at in zip(batch.rows, batch.weights, batch.lsns, strict=True):
                    in_t[row] += weight if at <= each.lsn else 0
            assert each["t"] == +in_t

        for number in range(60):
            name = dice.choice("ab")
            db.insert(name, [(dice.randrange(5), dice.randrange(40)) for _ in range(3)])
            if dice.random() < 0.4:
                db.insert("t", [(dice.randrange(5), number)], replace=True)
            if dice.random() < 0.3:
                copies.apply(subscription.recv(timeout=TIMEOUT))
                check(copies)
        settle(db, "per_key", "large", "of_other")
        copies.take_all(subscription, check)
        check(copies)
        assert copies.cuts > 10


def test_a_view_that_fails_ends_the_subscription(tmp_path, spark):
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute("CREATE SOURCE s (n BIGINT)")
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT n, COUNT(*) AS c FROM s GROUP BY n")
        db.execute("CREATE MATERIALIZED VIEW w AS SELECT SUM(10 / n) AS x FROM s")
        subscription = db.subscribe(["v", "w"])
        assert subscription.recv(timeout=TIMEOUT).kind == "snapshot"
        db.insert("s", [(0,)])
        with pytest.raises(ms.errors.ViewFailedError):
            wait_until(lambda: subscription.recv(timeout=TIMEOUT) and False, "the error")
