"""LISTEN and NOTIFY."""

from __future__ import annotations

import asyncio

import pytest

import millstream as ms
from millstream.errors import ClosedError, Error
from millstream.testing import TIMEOUT, Background, inbox_of, wait_until


def payloads(listener, count):
    return [listener.recv(TIMEOUT).payload for _ in range(count)]


class TestListen:
    def test_receives_its_channels_only(self, db):
        one, both, every = db.listen("a"), db.listen("a", "b"), db.listen()
        for channel in ("a", "b", "c", "a"):
            db.notify(channel, f"to {channel}")
        assert payloads(one, 2) == ["to a", "to a"]
        assert payloads(both, 3) == ["to a", "to b", "to a"]
        assert payloads(every, 4) == ["to a", "to b", "to c", "to a"]
        assert one.try_recv() is None

    def test_notifications_have_lsn_and_time(self, db):
        listener = db.listen("a")
        db.notify("a")
        note = listener.recv(TIMEOUT)
        assert (note.channel, note.payload, note.lsn) == ("a", "", db.lsn)
        assert note.timestamp.tzinfo is not None

    def test_comes_after_what_was_pushed_before(self, db, source):
        listener = db.listen("done")
        for n in range(20):
            source.push((n, None))
            db.notify("done", str(n))
            note = listener.recv(TIMEOUT)
            assert note.payload == str(n)
            assert len(db.query("SELECT * FROM s")) == n + 1

    @pytest.mark.parametrize("channel", ["it's", "a b", "é", "x" * 100, "%"])
    def test_channels_have_any_name(self, db, channel):
        listener = db.listen(channel)
        db.notify(channel, "ä'\"\n")
        assert payloads(listener, 1) == ["ä'\"\n"]

    def test_earlier_notifications_are_not_received(self, db):
        db.notify("a", "before")
        db.flush()
        listener = db.listen("a")
        db.notify("a", "after")
        assert payloads(listener, 1) == ["after"]

    def test_waits_no_longer_than_a_timeout(self, db):
        listener = db.listen("a")
        with pytest.raises(TimeoutError):
            listener.recv(timeout=0)
        assert listener.try_recv() is None
        db.notify("a", "1")
        db.flush()
        assert listener.try_recv().payload == "1"

    def test_iterates_until_it_is_cancelled(self, db):
        with db.listen("a") as listener:
            db.notify("a", "1")
            assert next(listener).payload == "1"
        with pytest.raises(ClosedError):
            listener.recv(TIMEOUT)
        assert list(listener) == []

    def test_a_message_is_text(self, db):
        with pytest.raises(Error):
            db.notify("a", 5)
        with pytest.raises(Error):
            db.notify(None, "x")


class TestTenants:
    def test_receive_their_own_notifications_only(self, db):
        mine, every = db.listen("a", tenant="me"), db.listen("a")
        db.notify("a", "other", tenant="you")
        db.notify("a", "mine", tenant="me")
        db.notify("a", "nobody's")
        assert payloads(mine, 1) == ["mine"]
        assert mine.try_recv() is None
        assert payloads(every, 3) == ["other", "mine", "nobody's"]

    def test_by_sql(self, db):
        mine = db.listen("a", tenant="me")
        db.execute("NOTIFY a, 'x'", tenant="you")
        db.execute("NOTIFY a, 'y'", tenant="me")
        assert payloads(mine, 1) == ["y"]


class TestSql:
    def test_listen_and_notify(self, db):
        db.execute("LISTEN a; LISTEN b; LISTEN a")
        assert db.execute("SHOW CHANNELS").fetchall() == [("a",), ("b",)]
        db.execute("NOTIFY a, 'one'; NOTIFY c, 'not heard'; NOTIFY b")
        notes = db.notifies(TIMEOUT)
        assert [(n.channel, n.payload) for n in (next(notes), next(notes))] == [
            ("a", "one"),
            ("b", ""),
        ]

    def test_unlisten(self, db):
        db.execute("LISTEN a; LISTEN b; UNLISTEN a")
        db.notify("a", "1")
        db.notify("b", "2")
        assert next(db.notifies(TIMEOUT)).payload == "2"
        db.execute("UNLISTEN *")
        assert db.execute("SHOW CHANNELS").fetchall() == []
        assert list(db.notifies(TIMEOUT)) == []

    def test_ends_after_a_timeout_without_notifications(self, db):
        db.execute("LISTEN a")
        assert list(db.notifies(timeout=0)) == []
        db.notify("a", "x")
        db.flush()
        assert [n.payload for n in db.notifies(timeout=0)] == ["x"]

    def test_ends_with_the_database(self):
        with ms.open() as db:
            db.execute("LISTEN a")
            reading = Background(lambda: list(db.notifies()))
            wait_until(lambda: inbox_of(db._channels._listener.subscription).live.offer_waiters)
        assert reading.result() == []


def test_stream(db):
    async def main():
        async with asyncio.timeout(TIMEOUT):
            async with db.listen_stream("a") as listener:
                db.notify("a", "1")
                db.notify("a", "2")
                got = []
                async for note in listener:
                    got.append(note.payload)
                    if len(got) == 2:
                        return got
        return None

    assert asyncio.run(main()) == ["1", "2"]
