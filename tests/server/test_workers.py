"""Threads for what would hold up the event loop: time limits, and the share of one key."""

from __future__ import annotations

import asyncio
import threading

import pytest
from tests.server.conftest import bearer

from millstream.errors import LimitError, QueryTimeoutError
from millstream.server.workers import Workers
from millstream.testing import TIMEOUT, wait_until


@pytest.fixture
def make():
    made = []

    def workers(threads, seconds=TIMEOUT, **options):
        made.append(Workers("test", threads, seconds, **options))
        return made[-1]

    yield workers
    for each in made:
        each.close()


def test_one_key_leaves_threads_for_others(make):
    async def main():
        workers, go = make(4), threading.Event()
        started = []

        def wait():
            started.append(1)
            go.wait(TIMEOUT)

        greedy = [asyncio.ensure_future(workers.run(wait, "greedy")) for _ in range(10)]
        assert await workers.run(lambda: "other", "other") == "other"
        assert await workers.run(lambda: "nobody") == "nobody"
        assert len(started) == 2
        go.set()
        await asyncio.gather(*greedy)
        assert (len(started), workers.pending, workers._shares) == (10, 0, {})

    asyncio.run(main())


def test_one_key_leaves_room_in_the_queue(make):
    async def main():
        workers, go = make(2, most=4), threading.Event()
        greedy = [
            asyncio.ensure_future(workers.run(lambda: go.wait(TIMEOUT), "greedy")) for _ in "12"
        ]
        await asyncio.sleep(0)
        with pytest.raises(LimitError):
            await workers.run(lambda: None, "greedy")
        assert await workers.run(lambda: 1, "other") == 1
        go.set()
        await asyncio.gather(*greedy)

    asyncio.run(main())


def test_a_share_is_free_again_when_the_thread_is(make):
    """What is not waited for any longer keeps its thread, and counts."""

    async def main():
        workers, go, ran = make(2), threading.Event(), []
        with pytest.raises(QueryTimeoutError):
            await workers.run(lambda: go.wait(TIMEOUT), "a", 0.01)
        with pytest.raises(QueryTimeoutError):
            await workers.run(lambda: ran.append(1), "a", 0.01)  # waits for its share
        waiting = asyncio.ensure_future(workers.run(lambda: ran.append(2), "a"))
        await asyncio.sleep(0.01)
        waiting.cancel()
        assert await workers.run(lambda: 1, "b") == 1
        go.set()
        assert await workers.run(lambda: 2, "a") == 2
        assert (ran, workers.pending, workers._shares) == ([], 0, {})

    asyncio.run(main())


def test_a_query_that_begins_after_it_was_interrupted_is_ended(make):
    async def main():
        begins, ended, running = threading.Event(), threading.Event(), []

        def interrupt(thread):
            if thread in running:
                ended.set()

        def query():
            begins.wait(TIMEOUT)  # such as to read what it needs
            running.append(threading.get_ident())
            assert ended.wait(TIMEOUT)

        workers = make(1, interrupt=interrupt)
        with pytest.raises(QueryTimeoutError):
            await workers.run(query, seconds=0.01)
        begins.set()
        assert await workers.run(lambda: 1) == 1

    asyncio.run(main())


def test_opening_subscriptions_does_not_hold_up_statements(serve):
    with serve(limits={"workers": 1}) as served:
        served.db.execute("CREATE SOURCE s (n BIGINT)")
        openings, go = served.server._service.openings, threading.Event()
        openings._pool.submit(go.wait, TIMEOUT)  # as a live query that waits for Spark
        address = "/v1/poll?sql=SELECT n FROM s&timeout=0"
        polled = threading.Thread(target=served.client.get, args=(address,))
        polled.start()
        wait_until(lambda: openings.pending)
        assert served.rows("SELECT n FROM s") == []
        go.set()
        polled.join(TIMEOUT)


def test_a_key_that_keeps_threads_busy(serve):
    with serve(auth=True, limits={"workers": 2}) as served:
        served.db.execute("CREATE SOURCE s (n BIGINT)")
        served.db.insert("s", [(n,) for n in range(3000)])
        greedy, other = served.keys.create("greedy"), served.keys.create("other")
        slow = "SELECT COUNT(*) AS n FROM s a JOIN s b ON a.n <> b.n JOIN s c ON b.n <> c.n"
        statements = served.server._service.statements
        calls = [threading.Thread(target=served.sql, args=(slow, None, greedy)) for _ in range(4)]
        for each in calls:
            each.start()
        wait_until(lambda: statements.pending >= len(calls))
        answer = served.client.post(
            "/v1/sql", json={"sql": "SELECT n FROM s LIMIT 1"}, headers=bearer(other)
        )
        assert answer.json()["rows"] == [[0]]
        assert statements.pending >= len(calls)
        for thread, cursor in list(served.db.context.engine.relations._adhoc._running.items()):
            assert thread
            cursor.interrupt()
        served.server.stop()
        for each in calls:
            each.join(TIMEOUT)
