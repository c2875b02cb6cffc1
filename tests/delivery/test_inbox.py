"""The border between the log and the live changes: nothing twice, nothing missing, in order."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import millstream as ms
from millstream.delivery.backpressure import Policy
from millstream.delivery.inbox import Inbox
from millstream.errors import ClosedError, LsnNotKeptError, SlowConsumerError
from millstream.model import ChangeBatch, Schema
from millstream.model.change import Gap

from ..held import PATIENCE, until  # noqa: TID252 - tests have no name

pytestmark = pytest.mark.slow

SCHEMA = Schema.of(key=("k",), k="BIGINT", v="BIGINT")


class World:
    """A dispatcher and a log in slow motion: each of their steps is drawn.

    A commit has an LSN first, then it is offered, then it can be read from the log. The reader's
    own steps call ``meanwhile`` wherever another thread could come in between.
    """

    def __init__(self, draw, commits):
        self.draw = draw
        self.inbox = None
        self.steps = [
            step for size in commits for step in (("place", size), ("offer", size), ("write", size))
        ]
        self.newest = 0
        self.placed = []
        self.written = []
        self.oldest = 1
        self.dispatcher = SimpleNamespace(handed=[], wakes=[])
        self.log = SimpleNamespace(origin=None)
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
            self.inbox.offer(self.placed[-1])
        elif kind == "write":
            self.written.append(self.placed[-1])

    def meanwhile(self):
        for _ in range(self.draw(st.integers(0, 4))):
            if self.steps:
                self.step()
        if self.is_trimmed and self.written and self.draw(st.integers(0, 9)) == 0:
            self.trim(self.draw(st.integers(self.oldest, self.written[-1].lsn + 1)))

    def trim(self, oldest):
        """Retention: rows before an LSN go."""
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

    def is_current(self, replay):
        return True

    def replay(self, first, snapshot_until):
        self.meanwhile()
        self.check_kept(first)
        return SlowReplay(self, first)


class TableWorld(World):
    """One that has current rows: applied when they are placed."""

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


@settings(max_examples=120)
@given(commit_sizes, st.integers(1, 6), st.none() | st.integers(1, 3), st.data())
def test_now_misses_nothing_and_repeats_nothing(commits, limit, most, data):
    world = World(data.draw, commits)
    world.meanwhile()
    inbox = Inbox(world, Policy("block"), limit)
    world.inbox = inbox  # it joins the routes
    inbox.start_now()
    start = inbox.position
    got = [n for batch in drain(inbox, world, most) for n, _ in batch.rows]
    assert got == list(range(start + 1, world.newest + 1))
    assert inbox.delivered == len(got)
    assert inbox.position == world.newest


@settings(max_examples=120)
@given(commit_sizes, st.integers(1, 6), st.integers(1, 8), st.data())
def test_an_lsn_and_all_after_it_come_once(commits, limit, first, data):
    world = World(data.draw, commits)
    world.meanwhile()
    inbox = Inbox(world, Policy("block"), limit)
    world.inbox = inbox
    first = min(first, world.newest + 1)
    inbox.start_at(first)
    got = [n for batch in drain(inbox, world, None) for n, _ in batch.rows]
    assert got == list(range(first, world.newest + 1))


@settings(max_examples=120)
@given(commit_sizes, st.integers(1, 6), st.none() | st.integers(1, 3), st.data())
def test_a_snapshot_and_what_follows_are_the_whole(commits, limit, most, data):
    world = TableWorld(data.draw, commits)
    world.meanwhile()
    inbox = Inbox(world, Policy("block"), limit)
    world.inbox = inbox
    inbox.start_snapshot()
    batches = drain(inbox, world, most)
    assert [n for batch in batches for n, _ in batch.rows] == list(range(1, world.newest + 1))
    kinds = [batch.kind for batch in batches]
    assert kinds == sorted(kinds, reverse=True), "the snapshot comes first"


@settings(max_examples=120)
@given(
    commit_sizes,
    st.integers(1, 6),
    st.sampled_from(["drop_oldest", "drop_newest"]),
    st.data(),
)
def test_what_a_policy_drops_is_the_only_thing_missing(commits, limit, policy, data):
    world = World(data.draw, commits)
    inbox = Inbox(world, Policy(policy), limit)
    world.inbox = inbox
    inbox.start_now()
    start = inbox.position
    batches = drain(inbox, world, None)
    got = [n for batch in batches for n, _ in batch.rows]
    gaps = [batch.gap for batch in batches if batch.gap is not None]
    lost = [n for gap in gaps for n in range(gap.first_lsn, gap.last_lsn + 1)]
    assert sorted(got + lost) == list(range(start + 1, world.newest + 1))
    assert inbox.delivered + inbox.backlog.dropped == world.newest - start


@settings(max_examples=80)
@given(commit_sizes, st.integers(1, 6), st.none() | st.integers(1, 3), st.data())
def test_what_retention_takes_is_the_only_thing_missing(commits, limit, most, data):
    world = World(data.draw, commits)
    world.is_trimmed = True
    world.meanwhile()
    inbox = Inbox(world, Policy("block"), limit)
    world.inbox = inbox
    start = data.draw(st.sampled_from(["now", "earliest", "first"]))
    if start == "now":
        inbox.start_now()
    elif start == "earliest":
        inbox.start_earliest()
    else:
        inbox.start_at(1)
    first = inbox.position + 1 if start == "now" else 1
    batches = drain(inbox, world, most)
    got = [n for batch in batches for n, _ in batch.rows]
    gaps = [batch.gap for batch in batches if batch.gap is not None]
    lost = [n for gap in gaps for n in range(gap.first_lsn, gap.last_lsn + 1)]
    assert sorted(got + lost) == list(range(first, world.newest + 1))
    assert sum(gap.count for gap in gaps) == inbox.lost == len(lost)
    assert inbox.delivered == len(got)
    last = 0
    for batch in batches:  # each gap lies between what is before and after it
        if batch.gap is not None:
            assert last < batch.gap.first_lsn
        if len(batch):
            assert batch.gap is None or batch.gap.last_lsn < batch.lsns[0]
            last = batch.lsns[-1]


# ---- with a real log


def rows_of(subscription, count):
    got = []
    while len(got) < count:
        batch = subscription.recv(PATIENCE)
        assert batch is not None
        got += batch.rows
    return got


class TestSpill:
    def test_a_slow_reader_reads_the_rest_from_the_log(self, db, source):
        subscription = db.subscribe("SELECT n FROM s WHERE n % 2 = 0", buffer_rows=10)
        for n in range(200):
            source.push((n, "x"))
            if n % 7 == 0:
                db.flush()
        db.flush()
        assert subscription._inbox._spilled_at is not None
        assert rows_of(subscription, 100) == [(n,) for n in range(0, 200, 2)]
        assert subscription.try_recv() is None
        source.push((200, "live again"))
        assert rows_of(subscription, 1) == [(200,)]
        until(lambda: not subscription._inbox.is_reading_log)
        metrics = subscription.metrics
        assert (metrics.delivered, metrics.dropped, metrics.lag_rows) == (101, 0, 0)

    def test_spill_and_return_again_and_again(self, db, source):
        subscription = db.subscribe("SELECT n FROM s", buffer_rows=4)
        n, got = 0, []
        for burst in (1, 30, 2, 50, 3, 3, 40):
            for _ in range(burst):
                source.push((n, None))
                n += 1
            db.flush()
            got += rows_of(subscription, burst // 2 or 1)
        got += rows_of(subscription, n - len(got))
        assert got == [(each,) for each in range(n)]

    def test_arrow_too(self, db, source):
        subscription = db.subscribe("SELECT n FROM s", buffer_rows=4)
        for first in range(0, 100, 10):
            data = pa.table({"n": list(range(first, first + 10)), "t": [None] * 10})
            source.push_arrow(data.cast(pa.schema([("n", pa.int64()), ("t", pa.string())])))
            db.flush()
        assert rows_of(subscription, 100) == [(n,) for n in range(100)]

    def test_while_it_is_pushed_to(self, db, source):
        subscription = db.subscribe("SELECT n FROM s", buffer_rows=3)
        got = []
        for n in range(500):
            source.push((n, None))
            if n % 5 == 0 and (batch := subscription.try_recv()) is not None:
                got += batch.rows
        got += rows_of(subscription, 500 - len(got))
        assert got == [(n,) for n in range(500)]

    def test_a_spilled_reader_of_a_dropped_source_is_told(self, db, source):
        subscription = db.subscribe("SELECT n FROM s", buffer_rows=2)
        for n in range(10):
            source.push((n, None))
            db.flush()
        db.execute("DROP SOURCE s")
        got = []
        with pytest.raises(ms.errors.SubscriptionEndedError):
            while True:
                got += subscription.recv(PATIENCE).rows
        assert got == [(n,) for n in range(len(got))]


class TestHeal:
    """Retention is faster than the reader."""

    @pytest.fixture
    def small(self, tmp_path):
        with ms.open(tmp_path / "db", segment_bytes=2000) as db:
            db.execute("CREATE SOURCE s (n BIGINT, t VARCHAR) WITH (retention_bytes = 1)")
            yield db

    def fill(self, db, first, count):
        source = db.source("s")
        for n in range(first, first + count):
            source.push((n, "x" * 100))
            db.flush()
        source.close()

    def test_an_old_token_gives_a_reset_and_goes_on(self, small):
        with small.subscribe("SELECT n FROM s") as early:
            self.fill(small, 0, 1)
            token = early.recv(PATIENCE).token
        self.fill(small, 1, 60)
        small._engine.log.retain()
        assert small._engine.log.topic("s").low_lsn > 1
        subscription = small.subscribe("SELECT n FROM s", start=token)
        first = subscription.recv(PATIENCE)
        assert first.kind == "snapshot"
        kept = [n for (n,) in small.query("SELECT n FROM s").fetchall()]
        assert first.gap.count == subscription.metrics.dropped == 60 - len(kept)
        assert first.gap.last_lsn < first.first_lsn
        got = list(first.rows)
        while len(got) < len(kept):
            batch = subscription.recv(PATIENCE)
            assert batch.gap is None
            got += batch.rows
        assert [n for (n,) in got] == kept
        self.fill(small, 61, 1)
        batch = subscription.recv(PATIENCE)
        assert (batch.kind, batch.rows) == ("changes", [(61,)])

    def test_a_spilled_reader_that_was_overtaken(self, small):
        subscription = small.subscribe("SELECT n FROM s", buffer_rows=2)
        self.fill(small, 0, 60)
        small._engine.log.retain()
        batches = []
        while not batches or batches[-1].rows[-1] != (59,):
            batches.append(subscription.recv(PATIENCE))
        got = [n for batch in batches for (n,) in batch.rows]
        assert got == sorted(set(got))
        (gap,) = [batch.gap for batch in batches if batch.gap is not None]
        assert gap.count == subscription.metrics.dropped == 60 - len(got)
        lsns = [lsn for batch in batches for lsn in batch.lsns]
        assert not [lsn for lsn in lsns if gap.first_lsn <= lsn <= gap.last_lsn]

    def test_two_resets_in_a_row_tell_of_both(self):
        """The log is overtaken again before the first batch after a reset."""
        world = World(lambda _: 0, [3] * 6)
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
        inbox.start_at(1)
        batch = inbox.take()
        assert batch.first_lsn == 13
        assert batch.gap == Gap(1, 12, 12)


class TestEnds:
    def test_disconnect_gives_what_was_there_and_then_a_token(self, db, source):
        subscription = db.subscribe("SELECT n FROM s", backpressure="disconnect", buffer_rows=3)
        for n in range(10):
            source.push((n, None))
            db.flush()
        assert rows_of(subscription, 3) == [(0,), (1,), (2,)]
        with pytest.raises(SlowConsumerError) as caught:
            subscription.recv(PATIENCE)
        assert subscription.state == "failed"
        again = db.subscribe("SELECT n FROM s", start=caught.value.token)
        assert rows_of(again, 7) == [(n,) for n in range(3, 10)]

    def test_what_is_there_can_be_taken_after_the_end(self):
        with ms.open() as db:
            db.execute("CREATE SOURCE s (n BIGINT)")
            subscription = db.subscribe("SELECT n FROM s")
            db.insert("s", [(1,), (2,)])
        assert subscription.recv(PATIENCE).rows == [(1,), (2,)]
        with pytest.raises(ClosedError):
            subscription.recv(PATIENCE)
        assert subscription.state == "completed"

    def test_cancel_lets_go_of_everything(self, db, source, dispatcher):
        subscription = db.subscribe("SELECT n FROM s")
        source.push((1, None))
        db.flush()
        subscription.cancel()
        subscription.cancel()
        with pytest.raises(ClosedError):
            subscription.recv(PATIENCE)
        assert len(dispatcher.fan_out.routes("s")) == 0
        assert subscription.state == "cancelled"


class TestPosition:
    def test_a_part_of_a_snapshot_is_no_position(self, db, table):
        """Who has only a part of a state, and resumes, must get all of it."""
        db.insert(table, [(n, "x") for n in range(10)])
        subscription = db.subscribe("SELECT * FROM t", max_rows=4)
        assert subscription.position == 0
        first = subscription.recv(PATIENCE)
        for token in (first.token, subscription.token):
            again = db.subscribe("SELECT * FROM t", start=token)
            assert len(again.recv(PATIENCE)) == 10
        assert len(rows_of(subscription, 6)) == 6
        assert subscription.position == db.lsn

    def test_while_the_dispatcher_offers_a_commit(self, db, table, dispatcher, monkeypatch):
        """The snapshot has it already; the offer comes late."""
        routes, made = dispatcher.fan_out.routes("t"), []
        deliver = type(routes).deliver

        def late(self, batch):
            if self is routes and not made:
                made.append(db.subscribe("SELECT * FROM t"))
            deliver(self, batch)

        monkeypatch.setattr(type(routes), "deliver", late)
        db.insert(table, [(1, "a")])
        db.insert(table, [(2, "b")])
        db.flush()
        assert [(b.kind, b.rows) for b in (made[0].recv(PATIENCE), made[0].recv(PATIENCE))] == [
            ("snapshot", [(1, "a")]),
            ("changes", [(2, "b")]),
        ]
        assert made[0].try_recv() is None


def test_many_readers_of_one_subscription_get_each_batch_once(db, source):
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - only here

    subscription = db.subscribe("SELECT n FROM s", max_rows=3)

    def read():
        got = []
        while (-1,) not in got:
            got += subscription.recv(PATIENCE).rows
        return got

    with ThreadPoolExecutor(3) as pool:
        reading = [pool.submit(read) for _ in range(3)]
        for n in range(300):
            source.push((n, None))
        db.flush()
        until(lambda: subscription.metrics.delivered == 300)
        for _ in range(3):
            source.push((-1, None))
            delivered = subscription.metrics.delivered
            until(lambda d=delivered: subscription.metrics.delivered > d)
        got = [n for each in reading for (n,) in each.result(PATIENCE) if n >= 0]
    assert sorted(got) == list(range(300))
