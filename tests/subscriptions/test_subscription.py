"""The channel style, with a database behind it."""

from __future__ import annotations

import gc
from datetime import UTC, datetime, timedelta

import pytest

import millstream as ms
from millstream.errors import (
    ClosedError,
    Error,
    ForeignTokenError,
    InvalidOptionError,
    InvalidTokenError,
    SqlUnsupportedError,
    SubscriptionEndedError,
)
from millstream.testing import TIMEOUT, Background, engine_of, inbox_of, paused, wait_until


def rows_of(subscription, count):
    got = []
    while len(got) < count:
        batch = subscription.recv(TIMEOUT)
        assert batch is not None
        got += batch.rows
    return got


class TestResults:
    def test_a_row_pushed_after_subscribe_is_delivered(self, db, source):
        for n in range(50):
            with db.subscribe(f"SELECT n FROM s WHERE n >= {n}") as subscription:
                source.push((n, None))
                assert rows_of(subscription, 1) == [(n,)]

    def test_filter_and_projection(self, db, source):
        subscription = db.subscribe("SELECT t AS name, n * 2 AS twice FROM s WHERE n > 1")
        source.push_batch([(1, "a"), (2, "b"), (3, "c")])
        batch = subscription.recv(TIMEOUT)
        assert batch.rows == [("b", 4), ("c", 6)]
        assert batch.schema.names == subscription.schema.names == ("name", "twice")
        assert list(batch.lsns) == [db.lsn - 1, db.lsn]

    def test_a_table_gives_a_snapshot_and_then_changes(self, db, table):
        db.insert(table, [(1, "a"), (2, "b")])
        subscription = db.subscribe("SELECT * FROM t")
        db.insert(table, [(1, "c")], replace=True)
        db.execute("DELETE FROM t WHERE id = 2")
        first = subscription.recv(TIMEOUT)
        assert (first.kind, first.rows) == ("snapshot", [(1, "a"), (2, "b")])
        changes = []
        while len(changes) < 2:
            batch = subscription.recv(TIMEOUT)
            assert batch.kind == "changes"
            changes += [(c.op, c.before, c.row) for c in batch]
        assert changes == [("update", (1, "a"), (1, "c")), ("delete", (2, "b"), (2, "b"))]

    def test_an_empty_table_is_a_snapshot_too(self, db, table):
        subscription = db.subscribe("SELECT * FROM t WHERE id > 100")
        batch = subscription.recv(TIMEOUT)
        assert (batch.kind, batch.rows, batch.lsn) == ("snapshot", [], 0)

    def test_an_update_that_leaves_the_filter_is_a_delete(self, db, table):
        db.insert(table, [(1, "in")])
        subscription = db.subscribe("SELECT * FROM t WHERE v = 'in'", start="now")
        db.execute("UPDATE t SET v = 'out'; UPDATE t SET v = 'other'; UPDATE t SET v = 'in'")
        db.flush()
        ops = []
        while len(ops) < 2:
            ops += [(c.op, c.row) for c in subscription.recv(TIMEOUT)]
        assert ops == [("delete", (1, "in")), ("insert", (1, "in"))]

    def test_columns_added_later_are_not_in_a_query_with_a_column_list(self, db, source):
        subscription = db.subscribe("SELECT n, t FROM s")
        db.execute("ALTER SOURCE s ADD COLUMN u BIGINT")
        source.push((1, "a", 5))
        assert rows_of(subscription, 1) == [(1, "a")]

    def test_many_subscriptions_give_the_same(self, db, source):
        subscriptions = [db.subscribe("SELECT * FROM s") for _ in range(20)]
        source.push_batch([(n, None) for n in range(10)])
        for each in subscriptions:
            assert rows_of(each, 10) == [(n, None) for n in range(10)]


class TestWaiting:
    def test_recv_waits_until_something_comes(self, db, source):
        subscription = db.subscribe("SELECT n FROM s")
        receiving = Background(subscription.recv)
        wait_until(lambda: inbox_of(subscription).live.offer_waiters)
        source.push((1, None))
        assert receiving.result().rows == [(1,)]

    def test_recv_times_out(self, db, source):
        subscription = db.subscribe("SELECT n FROM s")
        for seconds in (0, 0.001):
            with pytest.raises(TimeoutError, match="nothing was received") as late:
                subscription.recv(timeout=seconds)
            assert isinstance(late.value, ms.errors.ReceiveTimeoutError)
            assert isinstance(late.value, ms.Error)
            assert (late.value.code, bool(late.value.hint)) == ("RECEIVE_TIMEOUT", True)
        assert subscription.try_recv() is None
        assert inbox_of(subscription).live.offer_waiters == ()

    @pytest.mark.parametrize("timeout", ["x", -1, float("nan"), True, [1]])
    def test_a_timeout_is_a_number_of_seconds(self, db, source, timeout):
        listener, bus = db.listen("a"), db.changes()
        for channel in (db.subscribe("SELECT n FROM s"), bus, listener):
            with pytest.raises(InvalidOptionError, match="timeout is"):
                channel.recv(timeout=timeout)
        db.execute("LISTEN a")
        with pytest.raises(InvalidOptionError, match="timeout is"):
            list(db.notifies(timeout=timeout))

    def test_a_huge_timeout_waits_for_ever(self, db, source):
        subscription = db.subscribe("SELECT n FROM s")
        receiving = Background(lambda: subscription.recv(timeout=float("inf")))
        wait_until(lambda: inbox_of(subscription).live.offer_waiters)
        source.push((1, None))
        assert receiving.result().rows == [(1,)]

    def test_cancel_and_close_end_the_wait(self, db, source):
        subscription = db.subscribe("SELECT n FROM s")
        receiving = Background(subscription.recv)
        wait_until(lambda: inbox_of(subscription).live.offer_waiters)
        subscription.cancel()
        with pytest.raises(ClosedError):
            receiving.result()

    def test_drop_ends_the_wait(self, db, source):
        subscription = db.subscribe("SELECT n FROM s")
        receiving = Background(subscription.recv)
        wait_until(lambda: inbox_of(subscription).live.offer_waiters)
        db.execute("DROP SOURCE s")
        with pytest.raises(SubscriptionEndedError):
            receiving.result()
        assert subscription.state == "failed"

    def test_iterating_ends_with_the_database(self):
        with ms.open() as db:
            db.execute("CREATE SOURCE s (n BIGINT)")
            subscription = db.subscribe("SELECT * FROM s")
            db.insert("s", [(1,), (2,)])
            reading = Background(lambda: [row for batch in subscription for row in batch.rows])
            wait_until(lambda: subscription.metrics.delivered == 2)
        assert reading.result() == [(1,), (2,)]
        assert subscription.state == "completed"


class TestPace:
    def test_max_rows(self, db, source):
        subscription = db.subscribe("SELECT n FROM s", max_rows=3)
        source.push_batch([(n, None) for n in range(8)])
        sizes = [len(subscription.recv(TIMEOUT)) for _ in range(3)]
        assert sizes == [3, 3, 2]

    def test_max_delay_gathers(self, db, source):
        subscription = db.subscribe("SELECT n FROM s", max_rows=3, max_delay=3600)
        source.push((1, None))
        source.push((2, None))
        db.flush()
        assert subscription.try_recv() is None
        receiving = Background(subscription.recv)
        source.push((3, None))
        assert receiving.result().rows == [(1,), (2,), (3,)]

    def test_max_delay_is_over_at_the_end(self):
        with ms.open() as db:
            db.execute("CREATE SOURCE s (n BIGINT)")
            subscription = db.subscribe("SELECT n FROM s", max_delay=3600)
            db.insert("s", [(1,)])
        assert subscription.recv(TIMEOUT).rows == [(1,)]

    def test_max_delay_gives_what_there_is_when_time_is_up(self, db, source):
        subscription = db.subscribe("SELECT n FROM s", max_rows=100, max_delay=0.001)
        source.push((1, None))
        assert subscription.recv(TIMEOUT).rows == [(1,)]

    def test_demand(self, db, source):
        subscription = db.subscribe("SELECT n FROM s", demand=0)
        source.push_batch([(n, None) for n in range(10)])
        db.flush()
        assert subscription.try_recv() is None
        subscription.request(2)
        assert subscription.recv(TIMEOUT).rows == [(0,), (1,)]
        assert subscription.try_recv() is None
        receiving = Background(subscription.recv)
        wait_until(lambda: inbox_of(subscription).live.call_waiters)
        subscription.request(3)
        assert receiving.result().rows == [(2,), (3,), (4,)]
        assert subscription.metrics.delivered == 5

    def test_pause_and_resume(self, db, source):
        subscription = db.subscribe("SELECT n FROM s")
        subscription.pause()
        assert subscription.state == "paused"
        source.push((1, None))
        db.flush()
        assert subscription.try_recv() is None
        receiving = Background(subscription.recv)
        wait_until(lambda: inbox_of(subscription).live.call_waiters)
        subscription.resume()
        assert receiving.result().rows == [(1,)]
        assert subscription.state == "active"

    def test_a_paused_subscription_ends(self, db, source):
        subscription = db.subscribe("SELECT n FROM s")
        subscription.pause()
        receiving = Background(subscription.recv)
        wait_until(lambda: inbox_of(subscription).live.call_waiters)
        subscription.cancel()
        with pytest.raises(ClosedError):
            receiving.result()

    @pytest.mark.parametrize(
        "options",
        [
            *({"max_rows": 0}, {"max_rows": True}, {"max_delay": -1}, {"max_delay": "x"}),
            *({"demand": -1}, {"buffer_rows": 0}, {"backpressure": "wait"}, {"start": "later"}),
            *({"start": -1}, {"start": 10**9}, {"start": True}, {"backpressure": "conflate"}),
        ],
    )
    def test_invalid_options_are_refused_and_leave_nothing(self, db, source, options):
        with pytest.raises(InvalidOptionError):
            db.subscribe("SELECT n FROM s", **options)
        assert len(engine_of(db).dispatcher.fan_out.routes("s")) == 0
        with pytest.raises(InvalidOptionError):
            db.subscribe("SELECT n FROM s").request(0)

    @pytest.mark.parametrize(
        "start", ["begin", "", "Now", -1, 10**9, True, 1.5, ["now"], "x" * 999]
    )
    def test_an_invalid_start_is_refused_with_the_valid_ones(self, db, source, start):
        for subscribe in (
            lambda: db.subscribe("SELECT n FROM s", start=start),
            lambda: db.changes("s", start=start),
        ):
            with pytest.raises(InvalidOptionError, match="invalid start: ") as caught:
                subscribe()
            for each in ('"now"', '"earliest"', '"snapshot"', "token", "datetime", "an LSN from 0"):
                assert each in caught.value.hint
            assert len(caught.value.message) < 80

    @pytest.mark.parametrize("sql", ["DELETE FROM t", "SELECT 1; SELECT 2", "SHOW SOURCES"])
    def test_takes_one_select(self, db, source, sql):
        with pytest.raises(Error):
            db.subscribe(sql)

    def test_has_no_limit(self, db, source):
        with pytest.raises(SqlUnsupportedError, match="LIMIT"):
            db.subscribe("SELECT * FROM s LIMIT 5")


class TestPolicies:
    @pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest", "sample(3)"])
    def test_delivered_plus_dropped_is_committed(self, db, source, dispatcher, policy):
        subscription = db.subscribe("SELECT n FROM s", backpressure=policy, buffer_rows=10)
        first = engine_of(db).log.lsn + 1
        for n in range(100):
            source.push((n, None))
            if n % 10 == 0:
                db.flush()
        db.flush()
        got, reported = [], 0
        while (batch := subscription.try_recv()) is not None:
            got += batch.lsns
            reported += batch.gap.count if batch.gap is not None else 0
        metrics = subscription.metrics
        assert metrics.delivered == len(got)
        assert metrics.delivered + metrics.dropped == 100
        if policy != "sample(3)":
            assert reported == metrics.dropped
        assert got == sorted(set(got))
        assert set(got) <= set(range(first, first + 100))
        assert subscription.backpressure == policy

    def test_conflate_keeps_a_mirror_exact(self, db, table):
        db.insert(table, [(n, "0") for n in range(5)])
        subscription = db.subscribe("SELECT * FROM t", backpressure="conflate", buffer_rows=2)
        for n in range(50):
            db.insert(table, [(n % 7, str(n))], replace=True)
        db.execute("DELETE FROM t WHERE id > 4; UPDATE t SET id = 4 - id")
        db.flush()
        copy, count = {}, 0
        while (batch := subscription.try_recv()) is not None:
            count += 1
            for change in batch:
                if change.op == "delete":
                    del copy[change.row[0]]
                else:
                    copy[change.row[0]] = change.row
        assert sorted(copy.values()) == sorted(db.query("SELECT * FROM t").fetchall())
        assert count == 2
        metrics = subscription.metrics
        assert metrics.conflated > 0
        assert metrics.dropped == 0


class TestStart:
    def test_earliest_gives_all_and_goes_on(self, db, source):
        source.push_batch([(n, None) for n in range(5)])
        subscription = db.subscribe("SELECT n FROM s", start="earliest")
        source.push((5, None))
        assert rows_of(subscription, 6) == [(n,) for n in range(6)]

    def test_an_lsn_is_the_first_that_is_delivered(self, db, source):
        source.push_batch([(n, None) for n in range(5)])
        lsn = db.flush()
        subscription = db.subscribe("SELECT n FROM s", start=lsn - 1)
        assert rows_of(subscription, 2) == [(3,), (4,)]
        assert db.subscribe("SELECT n FROM s", start=lsn + 1).try_recv() is None

    def test_a_token_goes_on_after_its_batch(self, db, source):
        source.push_batch([(n, None) for n in range(10)])
        subscription = db.subscribe("SELECT n FROM s", start="earliest", max_rows=3)
        got = rows_of(subscription, 3)
        while len(got) < 10:
            token = subscription.token
            subscription.cancel()
            subscription = db.subscribe("SELECT n FROM s", start=token, max_rows=3)
            batch = subscription.recv(TIMEOUT)
            got += batch.rows
        assert got == [(n,) for n in range(10)]

    def test_a_token_works_after_a_restart(self, tmp_path):
        with ms.open(tmp_path) as db:
            db.execute("CREATE SOURCE s (n BIGINT)")
            subscription = db.subscribe("SELECT * FROM s")
            db.insert("s", [(1,)])
            token = subscription.recv(TIMEOUT).token
            db.insert("s", [(2,)])
        with ms.open(tmp_path) as db:
            assert rows_of(db.subscribe("SELECT * FROM s", start=token), 1) == [(2,)]

    def test_a_token_of_another_database_is_refused(self, db, source):
        with ms.open() as other:
            other.execute("CREATE SOURCE s (n BIGINT)")
            other.insert("s", [(1,)])
            token = other.subscribe("SELECT * FROM s").token
        with pytest.raises(ForeignTokenError):
            db.subscribe("SELECT * FROM s", start=token)
        with pytest.raises(InvalidTokenError):
            db.subscribe("SELECT * FROM s", start="ms1x")

    def test_a_time(self, db, source):
        source.push_batch([(1, None)])
        db.flush()
        past = datetime.now(UTC) - timedelta(days=1)
        assert rows_of(db.subscribe("SELECT n FROM s", start=past), 1) == [(1,)]
        future = datetime.now(UTC) + timedelta(days=1)
        with pytest.raises(InvalidOptionError, match="future"):
            db.subscribe("SELECT n FROM s", start=future)

    def test_a_snapshot_of_a_source_is_all_that_is_kept(self, db, source):
        source.push_batch([(1, None), (2, None)])
        db.flush()
        subscription = db.subscribe("SELECT n FROM s", start="snapshot")
        source.push((3, None))
        batches = []
        while sum(map(len, batches)) < 3:
            batches.append(subscription.recv(TIMEOUT))
        assert [(b.kind, b.rows) for b in batches] == [
            ("snapshot", [(1,), (2,)]),
            ("changes", [(3,)]),
        ]


class TestLifecycle:
    def test_a_garbage_collected_subscription_leaves(self, db, source, dispatcher):
        subscription = db.subscribe("SELECT n FROM s", name="r")
        assert len(dispatcher.fan_out.routes("s")) == 1
        del subscription
        gc.collect()
        dispatcher.barrier()  # its thread sees to it
        assert len(dispatcher.fan_out.routes("s")) == 0
        db.subscribe("SELECT n FROM s", name="r")

    def test_repr(self, db, source):
        subscription = db.subscribe("SELECT n FROM s", name="r")
        assert repr(subscription) == "<Subscription 'r' active: SELECT n FROM s>"
        assert (subscription.target, subscription.style) == ("s", "channel")

    def test_metrics(self, db, source, dispatcher):
        subscription = db.subscribe("SELECT n FROM s", max_rows=2)
        with paused(dispatcher):
            source.push_batch([(n, None) for n in range(5)])
        db.flush()
        subscription.recv(TIMEOUT)
        metrics = subscription.metrics
        assert (metrics.delivered, metrics.lag_rows, metrics.dropped) == (2, 3, 0)
        assert metrics.lag_seconds >= 0
        assert metrics.position == db.lsn - 3
        assert metrics.acknowledged is None
