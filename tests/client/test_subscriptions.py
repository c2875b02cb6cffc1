from __future__ import annotations

import asyncio
import gc
import signal
import threading

import pytest

import millstream as ms
from millstream import errors
from millstream.testing import TIMEOUT, Mirror, wait_until


def ns(batch):
    return [row[0] for row in batch.rows]


class TestChannel:
    def test_changes_of_a_source(self, db, s):
        with db.subscribe(f"SELECT * FROM {s} WHERE n > ?", [1]) as subscription:
            assert isinstance(subscription, ms.Subscription)
            assert subscription.schema.names == ("n", "name")
            assert subscription.try_recv() is None
            db.insert(s, [(1, "a"), (2, "b"), (3, None)])
            batch = subscription.recv(TIMEOUT)
            assert isinstance(batch, ms.ChangeBatch)
            assert batch.rows == [(2, "b"), (3, None)]
            assert [change.op for change in batch] == ["insert", "insert"]
            assert batch.token == subscription.token
            assert batch.lsn == subscription.position == subscription.metrics.position
            assert batch.to_arrow().column_names == ["n", "name", "_op", "_weight", "_lsn"]
            with pytest.raises(TimeoutError):
                subscription.recv(0)
            db.insert(s, [(4, "d")])
            assert ns(subscription.recv(TIMEOUT)) == [4]
        with pytest.raises(errors.ClosedError):
            subscription.recv()
        again = db.subscribe(f"SELECT * FROM {s}", start=batch.token)
        assert ns(again.recv(TIMEOUT)) == [4]
        assert subscription.state == "cancelled"

    def test_a_table_begins_with_its_rows(self, db, t):
        db.insert(t, [(1, "a"), (2, "b")])
        subscription = db.subscribe(f"SELECT * FROM {t}")
        first = subscription.recv(TIMEOUT)
        assert (first.kind, first.rows) == ("snapshot", [(1, "a"), (2, "b")])
        db.execute(f"UPDATE {t} SET name = 'c' WHERE id = 1; DELETE FROM {t} WHERE id = 2")
        mirror = Mirror(subscription)
        mirror.apply(first)
        wait_until(lambda: mirror._is_up_to_date() and mirror.changes == 4, "both have come")
        assert mirror.fetchall() == [(1, "c")]

    def test_a_large_snapshot_is_one_batch(self, db, t):
        db.insert(t, {"id": list(range(20_000))})
        subscription = db.subscribe(f"SELECT id FROM {t}", buffer_rows=100)
        batch = subscription.recv(TIMEOUT)
        assert (batch.kind, sorted(ns(batch))) == ("snapshot", list(range(20_000)))
        db.insert(t, [(-1, "x")])
        assert ns(subscription.recv(TIMEOUT)) == [-1]
        limited = db.subscribe(f"SELECT id FROM {t}", max_rows=6_000)
        assert len(limited.recv(TIMEOUT)) == 6_000

    def test_a_slow_reader_holds_the_server_back(self, db, s):
        subscription = db.subscribe(f"SELECT n FROM {s}", buffer_rows=1_000)
        for begin in range(0, 60_000, 20_000):
            db.insert(s, {"n": list(range(begin, begin + 20_000))})
        found = []
        while len(found) < 60_000:
            found += ns(subscription.recv(TIMEOUT))
        assert found == list(range(60_000))

    def test_pause_demand_and_starts(self, db, s):
        db.insert(s, [(n, None) for n in range(5)])
        subscription = db.subscribe(f"SELECT n FROM {s}", start="earliest", demand=2)
        assert ns(subscription.recv(TIMEOUT)) == [0, 1]
        assert subscription.try_recv() is None
        subscription.request(1)
        assert ns(subscription.recv(TIMEOUT)) == [2]
        subscription.request(100)
        subscription.pause()
        assert subscription.try_recv() is None
        subscription.resume()
        assert ns(subscription.recv(TIMEOUT)) == [3, 4]

    def test_errors(self, db, s):
        with pytest.raises(errors.SqlSyntaxError):
            db.subscribe("SELEC 1")
        with pytest.raises(errors.ObjectNotFoundError):
            db.subscribe("SELECT * FROM nothing")
        with pytest.raises(errors.InvalidOptionError):
            db.subscribe(f"SELECT * FROM {s}", backpressure="sometimes")
        with pytest.raises(errors.TokenError):
            db.subscribe(f"SELECT * FROM {s}", start="ms1nonsense")
        subscription = db.subscribe(f"SELECT * FROM {s}")
        db.execute(f"DROP SOURCE {s}")
        with pytest.raises(errors.SubscriptionEndedError):
            subscription.recv(TIMEOUT)
        assert subscription.state == "failed"

    def test_a_forgotten_one_is_ended(self, db, s):
        db.subscribe(f"SELECT n FROM {s}")
        gc.collect()
        other = db.subscribe(f"SELECT n FROM {s}")
        wait_until(lambda: len(db._link._inboxes) == 1, "only the other one is open")
        assert other.state == "active"


class TestOtherStyles:
    def test_callback(self, shared, s):
        db = ms.connect(shared.url)
        got, done = [], threading.Event()
        raised = []

        def on_change(batch):
            got.extend(ns(batch))
            if 2 in ns(batch):
                raise ValueError("no")

        sql = f"SELECT n FROM {s}"
        db.subscribe_callback(sql, on_change, on_error=raised.append, on_complete=done.set)
        for n in (1, 2, 3):
            db.insert(s, [(n, None)])
        wait_until(lambda: got == [1, 2, 3], "all have come")
        db.close()
        assert done.wait(TIMEOUT)
        assert [type(each) for each in raised] == [ValueError]

    def test_stream(self, db, s):
        async def main():
            async with db.subscribe_stream(f"SELECT n FROM {s}") as subscription:
                with pytest.raises(TimeoutError):
                    await subscription.recv(0)
                await asyncio.to_thread(db.insert, s, [(1, None), (2, None)])
                return [ns(await anext(subscription))]

        assert asyncio.run(main()) == [[1, 2]]


class TestMessages:
    def test_listen_and_notify(self, db):
        with db.listen("orders", "bills") as listener, db.listen("orders") as other:
            db.notify("orders", "1")
            db.notify("nobody", "2")
            db.notify("bills")
            got = [listener.recv(TIMEOUT) for _ in range(2)]
            assert [(each.channel, each.payload) for each in got] == [
                ("orders", "1"),
                ("bills", ""),
            ]
            assert isinstance(got[0], ms.Notification)
            assert 0 < got[0].lsn < got[1].lsn
            assert other.recv(TIMEOUT).payload == "1"
            assert other.try_recv() is None
            listener.cancel()
            db.notify("orders", "3")
            assert other.recv(TIMEOUT).payload == "3"
        with pytest.raises(errors.InvalidOptionError):
            db.listen()
        with pytest.raises(errors.InvalidNameError):
            db.notify('or"ders')

    def test_as_a_stream(self, db):
        async def main():
            async with db.listen_stream("orders") as listener:
                await asyncio.to_thread(db.notify, "orders", "4")
                return (await listener.recv(TIMEOUT)).payload

        assert asyncio.run(main()) == "4"


class TestDurable:
    def test_it_goes_on_after_what_was_acknowledged(self, server):
        with ms.connect(server.url, timeout=TIMEOUT) as db:
            db.execute("CREATE SOURCE s (n BIGINT) WITH (wal_mode = 'sync')")
            subscription = db.subscribe("SELECT n FROM s", name="reader")
            listener = db.listen("orders")
            db.insert("s", [(1,)])
            first = subscription.recv(TIMEOUT)
            subscription.ack(first)
            db.insert("s", [(2,)])
            assert ns(subscription.recv(TIMEOUT)) == [2]
            server.restart()
            db.insert("s", [(3,)])
            assert ns(subscription.recv(TIMEOUT)) == [3]  # 2 comes again, and is dropped
            with pytest.raises(errors.InvalidOptionError):
                db.subscribe("SELECT n FROM s").ack()

            def has_heard():  # messages that are sent while the server is away do not come
                db.notify("orders", "5")
                return listener.try_recv() is not None

            wait_until(has_heard, "it listens again")
        with ms.connect(server.url) as db:
            opened = []

            def is_open():
                try:  # the server may not have noticed yet that the first one is gone
                    opened.append(db.subscribe("SELECT n FROM s", name="reader"))
                except errors.SubscriptionExistsError:
                    return False
                return True

            wait_until(is_open, "the name is free")
            assert ns(opened[0].recv(TIMEOUT))[0] == 2


class TestReconnecting:
    @pytest.mark.parametrize("signals", [[signal.SIGKILL] * 2, [signal.SIGTERM]])
    def test_nothing_is_lost_and_nothing_comes_twice(self, server, signals):
        with ms.connect(server.url, timeout=TIMEOUT) as db:
            db.execute("CREATE SOURCE s (n BIGINT) WITH (wal_mode = 'sync')")
            db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)")
            channel = db.subscribe("SELECT n FROM s")
            table = Mirror(db.subscribe("SELECT * FROM t"), key_columns=1)
            called = []
            db.subscribe_callback("SELECT n FROM s", lambda batch: called.extend(ns(batch)))
            sent = threading.Event()
            problems = []

            def push():
                try:
                    for n in range(60):
                        db.insert("s", [(n,)])
                        db.insert("t", [(n, n)])
                        if n == 10:
                            sent.set()
                except BaseException as error:
                    problems.append(error)
                    sent.set()

            pusher = threading.Thread(target=push)
            pusher.start()
            for number in signals:
                assert sent.wait(TIMEOUT)
                server.restart(number)
            pusher.join(TIMEOUT)
            assert not problems
            found = []
            while len(found) < 60:
                found += ns(channel.recv(TIMEOUT))
            assert found == list(range(60))
            wait_until(lambda: len(called) >= 60, "all were called back with")
            assert called == list(range(60))
            wait_until(
                lambda: table._is_up_to_date() and len(table.rows) == 60, "the copy is whole"
            )
            assert sorted(table.fetchall()) == [(n, n) for n in range(60)]
            assert channel.try_recv() is None

    def test_a_server_that_is_away(self, server):
        with ms.connect(server.url, timeout=0.1) as db:
            db.execute("CREATE SOURCE s (n BIGINT)")
            server.end()
            with pytest.raises(errors.DisconnectedError):
                db.subscribe("SELECT n FROM s")
        with pytest.raises(errors.ClosedError):
            db.subscribe("SELECT n FROM s")
