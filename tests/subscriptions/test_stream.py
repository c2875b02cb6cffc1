"""The async style: the loop is free while there is nothing, and a cancelled task loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest

import millstream as ms
from millstream.errors import ClosedError, SubscriptionEndedError
from millstream.testing import TIMEOUT, inbox_of


def run(coroutine):
    async def bounded():
        async with asyncio.timeout(TIMEOUT):
            return await coroutine

    return asyncio.run(bounded())


async def waiting(subscription, reading=None):
    """Let a task that reads come to the point where it waits, if it does."""
    inbox = inbox_of(subscription)
    while not (
        inbox.live.offer_waiters
        or inbox.live.call_waiters
        or (reading is not None and reading.done())
    ):
        await asyncio.sleep(0)


async def rows_of(subscription, count):
    got = []
    while len(got) < count:
        got += (await subscription.recv()).rows
    return got


def test_gives_batches_in_order(db, source):
    async def main():
        async with db.subscribe_stream("SELECT n FROM s WHERE n > 0") as subscription:
            got = []
            source.push_batch([(0, None), (1, None)])
            async for batch in subscription:
                got += batch.rows
                if len(got) < 3:
                    source.push((len(got) + 1, None))
                else:
                    return got
        return None

    assert run(main()) == [(1,), (2,), (3,)]


def test_the_loop_is_free_while_it_waits(db, source):
    async def main():
        subscription = db.subscribe_stream("SELECT n FROM s")
        reading = asyncio.create_task(subscription.recv())
        await waiting(subscription)
        ticks = 0
        for _ in range(1000):  # all of it is done while the other task awaits
            await asyncio.sleep(0)
            ticks += 1
        assert not reading.done()
        thread = threading.Thread(target=source.push, args=((1, None),))
        thread.start()
        batch = await reading
        thread.join()
        return ticks, batch.rows

    assert run(main()) == (1000, [(1,)])


def test_many_wait_on_one_loop(db, source):
    async def main():
        subscriptions = [db.subscribe_stream("SELECT n FROM s") for _ in range(50)]
        reading = [asyncio.create_task(each.recv()) for each in subscriptions]
        for each in subscriptions:
            await waiting(each)
        source.push((1, None))
        return [batch.rows for batch in await asyncio.gather(*reading)]

    assert run(main()) == [[(1,)]] * 50


class TestCancellation:
    def test_of_one_that_waits_loses_nothing(self, db, source):
        async def main():
            subscription = db.subscribe_stream("SELECT n FROM s")
            got = []
            for n in range(20):
                reading = asyncio.create_task(subscription.recv())
                await waiting(subscription, reading)
                source.push((n, None))
                if n % 2:  # cancelled when the row may be there already
                    reading.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        got += (await reading).rows
                else:
                    got += (await reading).rows
                assert inbox_of(subscription).live.offer_waiters == ()
            got += await rows_of(subscription, 20 - len(got)) if len(got) < 20 else []
            return got

        assert run(main()) == [(n,) for n in range(20)]

    def test_of_one_that_reads_from_the_disk_loses_nothing(self, db, source):
        async def main():
            source.push_batch([(n, None) for n in range(100)])
            db.flush()
            subscription = db.subscribe_stream("SELECT n FROM s", start="earliest", max_rows=7)
            got = []
            while len(got) < 100:
                reading = asyncio.create_task(subscription.recv())
                await asyncio.sleep(0)
                reading.cancel()
                try:
                    got += (await reading).rows
                except asyncio.CancelledError:
                    got += (await subscription.recv()).rows
            return got

        assert run(main()) == [(n,) for n in range(100)]

    def test_by_a_timeout_loses_nothing(self, db, source):
        async def main():
            subscription = db.subscribe_stream("SELECT n FROM s")
            for _ in range(3):
                try:
                    async with asyncio.timeout(0):
                        await subscription.recv()
                except TimeoutError:
                    pass
            source.push((1, None))
            return await rows_of(subscription, 1)

        assert run(main()) == [(1,)]


def test_recv_gives_up_after_a_timeout(db, source):
    async def main():
        subscription = db.subscribe_stream("SELECT n FROM s")
        for seconds in (0, 0.001):
            with pytest.raises(ms.errors.ReceiveTimeoutError):
                await subscription.recv(timeout=seconds)
        assert subscription.try_recv() is None
        source.push((1, None))
        db.flush()
        return subscription.try_recv().rows

    assert run(main()) == [(1,)]


def test_a_backlog_that_spilled_is_read_back(db, source):
    async def main():
        subscription = db.subscribe_stream("SELECT n FROM s", buffer_rows=5)
        for n in range(200):
            source.push((n, None))
            if n % 20 == 0:
                db.flush()
        db.flush()
        got = await rows_of(subscription, 200)
        source.push((200, None))
        return got + await rows_of(subscription, 1)

    assert run(main()) == [(n,) for n in range(201)]


def test_begins_with_the_state_of_a_table(db, table):
    db.insert(table, [(1, "a")])

    async def main():
        async with db.subscribe_stream("SELECT * FROM t") as subscription:
            first = await subscription.recv()
            db.insert(table, [(2, "b")])
            second = await subscription.recv()
            return [(first.kind, first.rows), (second.kind, second.rows)]

    assert run(main()) == [("snapshot", [(1, "a")]), ("changes", [(2, "b")])]


class TestEnd:
    def test_cancel_from_another_thread_ends_the_wait(self, db, source):
        async def main():
            subscription = db.subscribe_stream("SELECT n FROM s")
            reading = asyncio.create_task(subscription.recv())
            await waiting(subscription)
            thread = threading.Thread(target=subscription.cancel)
            thread.start()
            with pytest.raises(ClosedError):
                await reading
            thread.join()
            return subscription.state

        assert run(main()) == "cancelled"

    def test_iterating_ends_with_the_database(self):
        db = ms.open()
        db.execute("CREATE SOURCE s (n BIGINT)")

        async def main():
            subscription = db.subscribe_stream("SELECT n FROM s")
            db.insert("s", [(1,)])
            db.flush()

            async def read():
                return [row async for batch in subscription for row in batch.rows]

            reading = asyncio.create_task(read())
            while not subscription.metrics.delivered:
                await asyncio.sleep(0)
            await asyncio.to_thread(db.close)
            return await reading

        assert run(main()) == [(1,)]

    def test_drop_ends_it_with_an_error(self, db, source):
        async def main():
            subscription = db.subscribe_stream("SELECT n FROM s")
            reading = asyncio.create_task(subscription.recv())
            await waiting(subscription)
            await asyncio.to_thread(db.execute, "DROP SOURCE s")
            with pytest.raises(SubscriptionEndedError):
                await reading

        run(main())

    def test_a_closed_loop_does_no_harm(self, db, source):
        """The wake-up comes after the loop was closed."""
        kept = []

        async def main():
            subscription = db.subscribe_stream("SELECT n FROM s")
            kept.append(subscription)
            kept.append(asyncio.create_task(subscription.recv()))
            await waiting(subscription)

        asyncio.run(main())
        source.push((1, None))
        assert db.query("SELECT n FROM s").fetchall() == [(1,)]
        assert kept[0].try_recv().rows == [(1,)]


def test_demand_and_pause(db, source):
    async def main():
        subscription = db.subscribe_stream("SELECT n FROM s", demand=0)
        source.push_batch([(n, None) for n in range(5)])
        db.flush()
        reading = asyncio.create_task(subscription.recv())
        await waiting(subscription)
        subscription.request(2)
        first = (await reading).rows
        subscription.pause()
        subscription.request(10)
        reading = asyncio.create_task(subscription.recv())
        await waiting(subscription)
        subscription.resume()
        return first + (await reading).rows

    assert run(main()) == [(n,) for n in range(5)]
