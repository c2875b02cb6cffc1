"""A durable subscription is given what is on the disk, so that no crash takes it back."""

from __future__ import annotations

import asyncio
import threading
import time
from queue import Queue

import pytest

from millstream.testing import TIMEOUT, engine_of


@pytest.fixture
def disk(db, source, monkeypatch):
    """Set: it takes what is written. Cleared: whoever waits for it waits."""
    commits = engine_of(db).log._writer.group_commit
    sync, ready = commits._sync, threading.Event()
    ready.set()

    def gated(sequence):
        assert ready.wait(TIMEOUT)
        return sync(sequence)

    monkeypatch.setattr(commits, "_sync", gated)
    yield ready
    ready.set()


def by_recv(db, given, name):
    subscription = db.subscribe("SELECT n FROM s", name=name)
    threading.Thread(target=lambda: given.put(subscription.recv(TIMEOUT))).start()


def by_try_recv(db, given, name):
    subscription = db.subscribe("SELECT n FROM s", name=name)

    def poll():
        while (batch := subscription.try_recv()) is None:
            time.sleep(0.001)
        given.put(batch)

    threading.Thread(target=poll).start()


def by_callback(db, given, name):
    db.subscribe_callback("SELECT n FROM s", given.put, name=name)


def by_stream(db, given, name):
    async def main():
        async with db.subscribe_stream("SELECT n FROM s", name=name) as subscription:
            opened.set()
            given.put(await subscription.recv(TIMEOUT))

    opened = threading.Event()
    threading.Thread(target=lambda: asyncio.run(main())).start()
    assert opened.wait(TIMEOUT)


@pytest.mark.parametrize("way", [by_recv, by_try_recv, by_callback, by_stream])
def test_what_is_not_on_the_disk_is_not_handed_over(db, source, disk, way):
    named, unnamed, log = Queue(), Queue(), engine_of(db).log
    way(db, unnamed, None)
    way(db, named, "n")
    db.flush()
    disk.clear()
    source.push((1, "a"))
    batch = unnamed.get(timeout=TIMEOUT)
    assert batch.rows == [(1,)]
    assert log.durable_lsn < batch.lsn
    assert named.empty()
    disk.set()
    assert named.get(timeout=TIMEOUT).rows == [(1,)]
    assert log.durable_lsn >= batch.lsn


def test_an_event_loop_goes_on_meanwhile(db, source, disk):
    async def main():
        async with db.subscribe_stream("SELECT n FROM s", name="n") as subscription:
            disk.clear()
            source.push((1, "a"))
            receiving = asyncio.create_task(subscription.recv(TIMEOUT))
            while not subscription._from_disk:
                await asyncio.sleep(0.001)
            disk.set()
            return (await receiving).rows

    assert asyncio.run(main()) == [(1,)]
