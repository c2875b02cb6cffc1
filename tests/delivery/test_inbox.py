"""The border between the log and the live changes: nothing twice, nothing missing, in order."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.delivery.backpressure import Policy
from millstream.delivery.inbox import Inbox
from millstream.errors import LsnNotKeptError
from millstream.model import ChangeBatch, Schema
from millstream.model.change import Gap

pytestmark = pytest.mark.slow

SCHEMA = Schema.of(key=("k",), k="BIGINT", v="BIGINT")


class World:
    """A dispatcher and a log in slow motion: each of their steps is drawn.

    A commit has an LSN first, then it is offered, then it can be read from the log. The reader's
    own steps call ``meanwhile`` wherever another thread could come in between.
    """

    def __init__(self, dice, commits):
        self.dice = dice
        self.inbox = None
        self.steps = [
            step for size in commits for step in (("place", size), ("offer", size), ("write", size))
        ]
        self.newest = 0
        self.placed = []
        self.written = []
        self.oldest = 1
        fan_out = SimpleNamespace(handed=[], wakes=[])
        self.dispatcher = SimpleNamespace(fan_out=fan_out)
        self.log = SimpleNamespace(origin=None, clock=lambda: 1)
        self.plan = SimpleNamespace(schema=SCHEMA, target="t")
        self.is_trimmed = False

    def step(self):
        kind, size = self.steps.pop(0)
        if kind == "place":
            rows = [(n, n) for n in range(self.newest + 1, self.newest + 1 + size)]
            batch = ChangeBatch.from_rows(SCHEMA, rows)
            first, self.newest = self.newest + 1, self.newest + size
            self.placed.append(batch.placed("t", first, committed_at=1, origin=None))
        elif kind == "offer" and self.inbox is not None:
            self.inbox.live.offer(self.placed[-1])
        elif kind == "write":
            self.written.append(self.placed[-1])

    def meanwhile(self):
        for _ in range(self.dice.randint(0, 4)):
            if self.steps:
                self.step()
        if self.is_trimmed and self.written and self.dice.randint(0, 9) == 0:
            self.trim(self.dice.randint(self.oldest, self.written[-1].lsn + 1))

    def trim(self, oldest):
        """Retention: remove rows before an LSN."""
        self.oldest = oldest

    def check_kept(self, first):
        if first < self.oldest:
            raise LsnNotKeptError("gone", oldest=self.oldest)

    # ---- what an inbox asks of a feed

    def lsn(self):
        self.meanwhile()
        lsn = self.newest
        self.meanwhile()
        return lsn

    def earliest(self):
        return self.oldest

    def kept_from(self, first):
        low = max(first, self.oldest)
        return low, Gap(first, low - 1, low - first) if low > first else None

    def token(self, lsn):
        return f"token {lsn}"

    def snapshot(self):
        return None

    def when_ready(self, call):
        return False

    def is_current(self, replay):
        return True

    def replay(self, first, snapshot_until):
        self.meanwhile()
        self.check_kept(first)
        return SlowReplay(self, first)


class TableWorld(World):
    """A world with a table, whose current rows are changed when a commit has its LSN.

    Of a view, the rows may be late: they count some time later what was committed before.
    """

    def __init__(self, dice, commits, *, late=False):
        super().__init__(dice, commits)
        self.late = late
        self.on_ready = None

    def when_ready(self, call):
        if self.late:
            self.on_ready = call
            self.meanwhile()
        return self.late

    def meanwhile(self):
        super().meanwhile()
        if self.on_ready is not None and (not self.steps or self.dice.randint(0, 3) == 0):
            call, self.on_ready = self.on_ready, None
            call()

    def snapshot(self):
        self.meanwhile()
        rows = [row for batch in self.placed for row in batch.rows]
        lsn = self.newest
        self.meanwhile()
        state = ChangeBatch(
            SCHEMA, rows, None, None, lsn=lsn, lsns=[lsn] * len(rows), kind="snapshot"
        )
        return [state], lsn


class SlowReplay:
    def __init__(self, world, first):
        self.world, self.position, self.target = world, first - 1, None

    def next(self, timeout):
        self.world.meanwhile()
        while not self.is_over:
            self.world.check_kept(self.position + 1)
            for batch in self.world.written:
                if batch.lsn > self.position:
                    if self.target is not None and batch.first_lsn > self.target:
                        return None
                    if batch.first_lsn <= self.position:
                        batch = batch.slice(self.position - batch.first_lsn + 1)
                    self.position = batch.lsn
                    return batch
            if timeout <= 0 or not self.world.steps:
                return None
            self.world.step()
        return None

    @property
    def is_over(self):
        return self.target is not None and self.position >= self.target

    def gap_before(self):
        return None

    def close(self):
        self.world.meanwhile()


def drain(inbox, world, limit):
    got = []
    while True:
        batch = inbox.take(limit)
        world.meanwhile()
        if batch is None and not world.steps:
            batch = inbox.take(limit)
            if batch is None:
                return got
        if batch is not None:
            got.append(batch)


commit_sizes = st.lists(st.integers(1, 4), max_size=10)
dices = st.integers(0, 1 << 32).map(Random)  # to draw each step takes a hundred times as long


@settings(max_examples=500)
@given(commit_sizes, st.integers(1, 6), st.none() | st.integers(1, 3), dices)
def test_now_misses_nothing_and_repeats_nothing(commits, limit, most, dice):
    world = World(dice, commits)
    world.meanwhile()
    inbox = Inbox(world, Policy("block"), limit)
    world.inbox = inbox  # it joins the routes
    inbox.start("now")
    start = inbox.progress.position
    got = [n for batch in drain(inbox, world, most) for n, _ in batch.rows]
    assert got == list(range(start + 1, world.newest + 1))
    assert inbox.progress.delivered == len(got)
    assert inbox.progress.position == world.newest


@settings(max_examples=500)
@given(commit_sizes, st.integers(1, 6), st.integers(1, 8), dices)
def test_everything_from_an_lsn_on_comes_once(commits, limit, first, dice):
    world = World(dice, commits)
    world.meanwhile()
    inbox = Inbox(world, Policy("block"), limit)
    world.inbox = inbox
    first = min(first, world.newest + 1)
    inbox.start(first)
    got = [n for batch in drain(inbox, world, None) for n, _ in batch.rows]
    assert got == list(range(first, world.newest + 1))


@settings(max_examples=500)
@given(commit_sizes, st.integers(1, 6), st.none() | st.integers(1, 3), dices, st.booleans())
def test_a_snapshot_and_what_follows_are_complete(commits, limit, most, dice, late):
    world = TableWorld(dice, commits, late=late)
    world.meanwhile()
    inbox = Inbox(world, Policy("block"), limit)
    world.inbox = inbox
    inbox.start("snapshot")
    if world.on_ready is not None:
        assert inbox.has_more_ahead
        assert inbox.take(most) is None
    batches = drain(inbox, world, most)
    assert [n for batch in batches for n, _ in batch.rows] == list(range(1, world.newest + 1))
    kinds = [batch.kind for batch in batches]
    assert kinds == sorted(kinds, reverse=True), "the snapshot comes first"


@settings(max_examples=500)
@given(
    commit_sizes,
    st.integers(1, 6),
    st.sampled_from(["drop_oldest", "drop_newest"]),
    dices,
)
def test_only_what_a_policy_drops_is_missing(commits, limit, policy, dice):
    world = World(dice, commits)
    inbox = Inbox(world, Policy(policy), limit)
    world.inbox = inbox
    inbox.start("now")
    start = inbox.progress.position
    batches = drain(inbox, world, None)
    got = [n for batch in batches for n, _ in batch.rows]
    gaps = [batch.gap for batch in batches if batch.gap is not None]
    lost = [n for gap in gaps for n in range(gap.first_lsn, gap.last_lsn + 1)]
    assert sorted(got + lost) == list(range(start + 1, world.newest + 1))
    assert inbox.progress.delivered + inbox.backlog.dropped == world.newest - start


@settings(max_examples=500)
@given(commit_sizes, st.integers(1, 6), st.none() | st.integers(1, 3), dices)
def test_only_what_retention_removes_is_missing(commits, limit, most, dice):
    world = World(dice, commits)
    world.is_trimmed = True
    world.meanwhile()
    inbox = Inbox(world, Policy("block"), limit)
    world.inbox = inbox
    start = dice.choice(["now", "earliest", "first"])
    inbox.start(1 if start == "first" else start)
    first = inbox.progress.position + 1 if start == "now" else 1
    batches = drain(inbox, world, most)
    got = [n for batch in batches for n, _ in batch.rows]
    gaps = [batch.gap for batch in batches if batch.gap is not None]
    lost = [n for gap in gaps for n in range(gap.first_lsn, gap.last_lsn + 1)]
    assert sorted(got + lost) == list(range(first, world.newest + 1))
    assert sum(gap.count for gap in gaps) == inbox.progress.lost == len(lost)
    assert inbox.progress.delivered == len(got)
    last = 0
    for batch in batches:  # each gap lies between what is before and after it
        if batch.gap is not None:
            assert last < batch.gap.first_lsn
        if len(batch):
            assert batch.gap is None or batch.gap.last_lsn < batch.lsns[0]
            last = batch.lsns[-1]


def test_two_resets_in_a_row_report_one_gap():
    """Retention overtakes the reader again before the first batch after a reset."""
    world = World(SimpleNamespace(randint=lambda *_: 0), [3] * 6)
    while world.steps:
        world.step()
    inbox = Inbox(world, Policy("block"), 10)
    failures = [7, 13]

    def replay(first, snapshot_until):
        if failures:
            world.oldest = failures.pop(0)
            raise LsnNotKeptError("gone", oldest=world.oldest)
        return SlowReplay(world, first)

    world.replay = replay
    inbox.start(1)
    batch = inbox.take()
    assert batch.first_lsn == 13
    assert batch.gap == Gap(1, 12, 12)
