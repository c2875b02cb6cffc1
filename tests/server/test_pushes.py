from __future__ import annotations

import asyncio

import pytest

import millstream as ms
from millstream.server import tails
from millstream.server.measures import Measures
from millstream.server.pushes import Pushes
from millstream.server.tails import Member, Tail


def test_waits_until_the_last_push_is_answered() -> None:
    async def run() -> None:
        pushes = Pushes()
        assert await pushes.answered(60) == 60
        with pushes:
            with pushes:
                waiting = asyncio.ensure_future(pushes.answered(60))
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not waiting.done()
        assert 0 < await waiting <= 60

    asyncio.run(run())


def test_waits_only_so_long() -> None:
    async def run() -> None:
        pushes = Pushes()
        with pushes:
            left = await pushes.answered(0.001)
            assert left <= 0
            assert await pushes.answered(left) == left
            waiting = asyncio.ensure_future(pushes.answered(60))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        assert await pushes.answered(60) == 60

    asyncio.run(run())


@pytest.mark.parametrize("clients", [10, 200])
def test_many_clients_are_sent_a_frame_once_the_push_is_answered(
    clients: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tails, "_GIVES_WAY", 60.0)

    async def run(db: ms.Database) -> None:
        pushes, joined = Pushes(), asyncio.Event()
        tail = Tail(db.subscribe_stream("SELECT * FROM s"), "json", Measures(), pushes, joined.set)
        members = [Member(0, 100, None) for _ in range(clients)]
        for each in members:
            assert tail.join(each, db.lsn)
        late = Member(0, 100, None)
        with pushes:
            db.insert("s", [(1,)])
            while not tail._kept:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0)
            assert all(bool(each._frames) is (clients == 10) for each in members)
            assert tail.join(late, 0)  # gets it from what is kept
        for each in (*members, late):
            frame = await each.take()
            assert frame is not None
            assert len(frame) == 1
        tail.close()

    with ms.open() as db:
        db.execute("CREATE SOURCE s (n BIGINT)")
        asyncio.run(run(db))
