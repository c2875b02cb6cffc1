"""Readers that fall behind and read from the log: nothing twice, nothing missing, in order."""

from __future__ import annotations

import pyarrow as pa
import pytest

import millstream as ms
from millstream.errors import ClosedError, SlowConsumerError
from millstream.testing import TIMEOUT, engine_of, inbox_of, wait_until

from .test_subscription import rows_of

pytestmark = pytest.mark.slow


class TestSpill:
    def test_a_slow_reader_reads_the_rest_from_the_log(self, db, source):
        subscription = db.subscribe("SELECT n FROM s WHERE n % 2 = 0", buffer_rows=10)
        for n in range(200):
            source.push((n, "x"))
            if n % 7 == 0:
                db.flush()
        db.flush()
        assert inbox_of(subscription).live.spilled_at is not None
        assert rows_of(subscription, 100) == [(n,) for n in range(0, 200, 2)]
        assert subscription.try_recv() is None
        source.push((200, "live again"))
        assert rows_of(subscription, 1) == [(200,)]
        wait_until(lambda: not inbox_of(subscription).is_reading_log)
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

    def test_a_spilled_reader_of_a_dropped_source_fails(self, db, source):
        subscription = db.subscribe("SELECT n FROM s", buffer_rows=2)
        for n in range(10):
            source.push((n, None))
            db.flush()
        db.execute("DROP SOURCE s")
        got = []
        with pytest.raises(ms.errors.SubscriptionEndedError):
            while True:
                got += subscription.recv(TIMEOUT).rows
        assert got == [(n,) for n in range(len(got))]


class TestRetention:
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
            token = early.recv(TIMEOUT).token
        self.fill(small, 1, 60)
        engine_of(small).log.retain()
        assert engine_of(small).log.topic("s").low_lsn > 1
        subscription = small.subscribe("SELECT n FROM s", start=token)
        first = subscription.recv(TIMEOUT)
        assert first.kind == "snapshot"
        kept = [n for (n,) in small.query("SELECT n FROM s").fetchall()]
        assert first.gap.count == subscription.metrics.dropped == 60 - len(kept)
        assert first.gap.last_lsn < first.first_lsn
        got = list(first.rows)
        while len(got) < len(kept):
            batch = subscription.recv(TIMEOUT)
            assert batch.gap is None
            got += batch.rows
        assert [n for (n,) in got] == kept
        self.fill(small, 61, 1)
        batch = subscription.recv(TIMEOUT)
        assert (batch.kind, batch.rows) == ("changes", [(61,)])

    def test_a_spilled_reader_that_was_overtaken(self, small):
        subscription = small.subscribe("SELECT n FROM s", buffer_rows=2)
        self.fill(small, 0, 60)
        engine_of(small).log.retain()
        batches = []
        while not batches or batches[-1].rows[-1] != (59,):
            batches.append(subscription.recv(TIMEOUT))
        got = [n for batch in batches for (n,) in batch.rows]
        assert got == sorted(set(got))
        (gap,) = [batch.gap for batch in batches if batch.gap is not None]
        assert gap.count == subscription.metrics.dropped == 60 - len(got)
        lsns = [lsn for batch in batches for lsn in batch.lsns]
        assert not [lsn for lsn in lsns if gap.first_lsn <= lsn <= gap.last_lsn]


class TestEnds:
    def test_disconnect_gives_the_backlog_and_then_a_token(self, db, source):
        subscription = db.subscribe("SELECT n FROM s", backpressure="disconnect", buffer_rows=3)
        for n in range(10):
            source.push((n, None))
            db.flush()
        assert rows_of(subscription, 3) == [(0,), (1,), (2,)]
        with pytest.raises(SlowConsumerError) as caught:
            subscription.recv(TIMEOUT)
        assert subscription.state == "failed"
        again = db.subscribe("SELECT n FROM s", start=caught.value.token)
        assert rows_of(again, 7) == [(n,) for n in range(3, 10)]

    def test_the_backlog_can_be_read_after_the_end(self):
        with ms.open() as db:
            db.execute("CREATE SOURCE s (n BIGINT)")
            subscription = db.subscribe("SELECT n FROM s")
            db.insert("s", [(1,), (2,)])
        assert subscription.recv(TIMEOUT).rows == [(1,), (2,)]
        with pytest.raises(ClosedError):
            subscription.recv(TIMEOUT)
        assert subscription.state == "completed"

    def test_cancel_drops_everything(self, db, source, dispatcher):
        subscription = db.subscribe("SELECT n FROM s")
        source.push((1, None))
        db.flush()
        subscription.cancel()
        subscription.cancel()
        with pytest.raises(ClosedError):
            subscription.recv(TIMEOUT)
        assert len(dispatcher.fan_out.routes("s")) == 0
        assert subscription.state == "cancelled"


class TestPosition:
    def test_a_part_of_a_snapshot_is_no_position(self, db, table):
        """A reader that has a part of a snapshot, and resumes, gets all of it."""
        db.insert(table, [(n, "x") for n in range(10)])
        subscription = db.subscribe("SELECT * FROM t", max_rows=4)
        assert subscription.position == 0
        first = subscription.recv(TIMEOUT)
        for token in (first.token, subscription.token):
            again = db.subscribe("SELECT * FROM t", start=token)
            assert len(again.recv(TIMEOUT)) == 10
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
        assert [(b.kind, b.rows) for b in (made[0].recv(TIMEOUT), made[0].recv(TIMEOUT))] == [
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
            got += subscription.recv(TIMEOUT).rows
        return got

    with ThreadPoolExecutor(3) as pool:
        reading = [pool.submit(read) for _ in range(3)]
        for n in range(300):
            source.push((n, None))
        db.flush()
        wait_until(lambda: subscription.metrics.delivered == 300)
        for _ in range(3):
            source.push((-1, None))
            delivered = subscription.metrics.delivered
            wait_until(lambda d=delivered: subscription.metrics.delivered > d)
        got = [n for each in reading for (n,) in each.result(TIMEOUT) if n >= 0]
    assert sorted(got) == list(range(300))
