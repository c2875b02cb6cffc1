"""Batches acknowledge themselves; durable callbacks acknowledge by returning."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

import millstream as ms
from millstream.errors import InvalidOptionError
from millstream.testing import TIMEOUT, wait_until


@pytest.fixture
def rows(db, table):
    """A table with one row, and what puts further ones in."""
    db.execute("INSERT INTO t VALUES (1, 'a')")
    return lambda *ids: [db.execute("INSERT INTO t VALUES (?, 'b')", [n]) for n in ids]


def again(db, style="subscribe", **options):
    """The ids that the durable subscription is given when it is opened again, up to an end."""
    db.execute("INSERT INTO t VALUES (1000, 'end')")
    ids = []
    with db.subscribe("SELECT id FROM t", name="n", **options) as subscription:
        while 1000 not in ids:
            ids += [row[0] for row in subscription.recv(TIMEOUT).rows]
    return ids[:-1]


def acknowledged(subscription, lsn):
    wait_until(lambda: subscription.metrics.acknowledged >= lsn)


class TestBatches:
    def test_of_a_channel(self, db, rows):
        with db.subscribe("SELECT id FROM t", name="n") as subscription:
            subscription.recv(TIMEOUT).ack()
            rows(2)
            first = subscription.recv(TIMEOUT)
            rows(3)
            subscription.recv(TIMEOUT)
            first.ack()
        assert again(db) == [3]

    def test_of_a_stream(self, db, rows):
        async def main():
            async with db.subscribe_stream("SELECT id FROM t", name="n") as subscription:
                async for batch in subscription:
                    batch.ack()
                    return

        asyncio.run(main())
        rows(2)
        assert again(db) == [2]

    def test_try_recv_and_slices(self, db, rows):
        with db.subscribe("SELECT id FROM t", name="n") as subscription:
            batch = wait_until(subscription.try_recv)
            batch.slice(0).ack()
        assert again(db) == []

    def test_after_the_subscription_has_ended(self, db, rows):
        with db.subscribe("SELECT id FROM t", name="n") as subscription:
            batch = subscription.recv(TIMEOUT)
        batch.ack()
        assert again(db) == []

    def test_not_of_a_durable_one(self, db, rows):
        batch = db.subscribe("SELECT id FROM t").recv(TIMEOUT)
        for each in (batch, ms.ChangeBatch.from_rows(ms.Schema.of(n="BIGINT"), [(1,)])):
            with pytest.raises(InvalidOptionError, match="durable") as caught:
                each.ack()
            assert "name=" in caught.value.hint

    def test_those_of_others_are_not_touched(self, db, rows):
        one = db.subscribe("SELECT id FROM t", name="n")
        other = db.subscribe("SELECT id FROM t", name="other")
        one.recv(TIMEOUT).ack()
        other.recv(TIMEOUT)
        rows(2)
        one.recv(TIMEOUT).ack()
        assert (one.metrics.acknowledged, other.metrics.acknowledged) == (one.position, 0)


class TestCallbacks:
    def test_the_return_acknowledges(self, db, rows):
        seen = []
        callback = db.subscribe_callback("SELECT id FROM t", seen.append, name="n")
        rows(2, 3)
        acknowledged(callback, db.lsn - 1)
        wait_until(lambda: sum(map(len, seen)) == 3)
        acknowledged(callback, seen[-1].lsn)
        callback.cancel()
        assert again(db) == []

    def test_a_batch_that_fails_is_given_again(self, db, rows):
        errors, seen = [], []

        def on_change(batch):
            seen.extend(batch.rows)
            if (2,) in batch.rows:
                raise ValueError("two")

        callback = db.subscribe_callback(
            "SELECT id FROM t", on_change, name="n", on_error=errors.append, max_rows=1
        )
        wait_until(lambda: seen == [(1,)])
        rows(2, 3)
        wait_until(lambda: seen == [(1,), (2,), (3,)])
        callback.cancel()
        assert [str(each) for each in errors] == ["two"]
        assert again(db) == [2, 3]

    def test_it_goes_on_when_the_program_acknowledges_what_failed(self, db, rows):
        failed, seen = [], []

        def on_change(batch):
            seen.extend(batch.rows)
            if (2,) in batch.rows:
                failed.append(batch)
                raise ValueError("two")

        callback = db.subscribe_callback(
            "SELECT id FROM t", on_change, name="n", on_error=lambda _: failed[0].ack()
        )
        rows(2, 3)
        wait_until(lambda: (3,) in seen)
        acknowledged(callback, failed[0].lsn + 1)
        callback.cancel()
        assert again(db) == []

    def test_by_hand(self, db, rows):
        batches = []

        def on_change(batch):
            batches.append(batch)
            if len(batches) == 1:
                batch.ack()

        callback = db.subscribe_callback("SELECT id FROM t", on_change, name="n", ack="manual")
        wait_until(lambda: batches)
        rows(2)
        wait_until(lambda: len(batches) == 2)
        callback.cancel()
        assert again(db) == [2]

    def test_without_a_name_nothing_is_acknowledged(self, db, rows):
        seen, errors = [], []
        callback = db.subscribe_callback("SELECT id FROM t", seen.append, on_error=errors.append)
        wait_until(lambda: seen)
        callback.cancel()
        assert not errors

    def test_refused(self, db, rows, source):
        with pytest.raises(InvalidOptionError, match="ack is 'later'"):
            db.subscribe_callback("SELECT id FROM t", print, name="n", ack="later")
        with pytest.raises(InvalidOptionError, match="has no ack"):
            db.subscribe_callback("SELECT n FROM s", print, inline=True, ack="manual")
        with pytest.raises(InvalidOptionError, match="has no name"):
            db.subscribe_callback("SELECT id FROM t", print, ack="manual")


PROGRAM = """
import os, signal, sys, millstream as ms
from millstream.testing import wait_until

first, end = map(int, os.environ["IDS"].split())
ends = []
db = ms.open(sys.argv[1])
def on_change(batch):
    for (id,) in batch.rows:
        print(id, flush=True)
        if id == end - 1:
            ends.append(batch.lsn)
        if id == 50 and len(sys.argv) > 2:
            # What was acknowledged before is on the disk; this batch has not been.
            wait_until(lambda: acknowledged() >= batch.first_lsn - 1)
            db.flush()
            os.kill(os.getpid(), signal.SIGKILL)
subscription = db.subscribe_callback("SELECT id FROM t", on_change, name="n", max_rows=10)
def acknowledged():
    return subscription.metrics.acknowledged
db.insert("t", [(n,) for n in range(first, end)])
wait_until(lambda: ends and acknowledged() >= ends[0])  # not db.lsn: positions have LSNs, too
db.close()
"""


@pytest.mark.slow
def test_a_kill_gives_again_what_was_not_acknowledged(tmp_path):
    with ms.open(tmp_path) as db:
        db.execute("CREATE SOURCE t (id BIGINT)")
        db.subscribe("SELECT id FROM t", name="n").cancel()

    def run(ids, *more):
        command = [sys.executable, "-c", PROGRAM, str(tmp_path), *more]
        environment = {**os.environ, "IDS": ids}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, [int(line) for line in done.stdout.split()]

    code, first = run("1 101", "kill")
    assert code == -9
    assert first == list(range(1, 51))
    code, second = run("101 111")
    assert code == 0
    assert second == list(range(41, 111)), "the batch that was under way, and what follows"
