from __future__ import annotations

import threading
from dataclasses import dataclass

import pyarrow as pa
import pytest

import millstream as ms
from millstream import errors
from millstream.client import source as module
from millstream.testing import TIMEOUT, wait_until


@dataclass
class Named:
    n: int
    name: str


def rows(db, s):
    return [row[0] for row in db.query(f"SELECT n FROM {s}")]


class TestPushing:
    def test_any_shape(self, db, s):
        with db.source(s, Named) as source:
            source.push((0, "a"))
            source.push({"n": 1})
            source.push(Named(2, "c"))
            assert source.try_push((3, "d"))
            assert source.push_batch([(4, "e"), {"n": 5}]) == 2
            assert source.push_batch([]) == 0
            assert source.push_arrow(pa.table({"n": [6, 7]})) == 2
            assert source.push_arrow(pa.record_batch({"n": [8]})) == 1
            lsn = source.flush()
            assert source.pending == 0
            assert 0 < lsn <= db.lsn
            assert rows(db, s) == list(range(9))
            assert source.name == s
            assert source.schema == db.schema(s)
        with pytest.raises(errors.ClosedError):
            source.push((9, "x"))

    def test_a_row_that_does_not_fit(self, db, s):
        source = db.source(s)
        with pytest.raises(errors.RowError) as caught:
            source.push(("x", "y"))
        assert caught.value.column == "n"
        with pytest.raises(errors.RowError):
            source.push_batch([(1, "a"), (2, 3)])
        source.flush()
        assert rows(db, s) == []
        with pytest.raises(errors.ObjectNotFoundError):
            db.source("nothing")

    def test_rows_gather_and_keep_their_order(self, db, s):
        source = db.source(s)
        for n in range(30_000):
            source.push((n, None))
        db.flush()
        assert rows(db, s) == list(range(30_000))

    def test_closing_the_client_sends_what_was_pushed(self, db, s, shared):
        with ms.connect(shared.url) as other:
            other.source(s).push((1, "a"))
        assert rows(db, s) == [1]

    def test_large_batches_go_in_parts(self, db, s, monkeypatch):
        monkeypatch.setattr(module, "_BODY_BYTES", 2_000)
        with db.source(s) as source:
            source.push_batch([(n, "x" * 50) for n in range(500)])
        assert rows(db, s) == list(range(500))

    def test_a_full_buffer_waits(self, db, s, monkeypatch):
        monkeypatch.setattr(module, "CAPACITY", 10)
        with db.source(s) as source:
            for n in range(200):
                source.push((n, None))
        assert rows(db, s) == list(range(200))

    def test_what_the_server_refuses_is_raised(self, db, t):
        source = db.source(t)
        source.push((1, "a"))
        source.flush()
        source.push((1, "b"))
        with pytest.raises(errors.DuplicateKeyError):
            source.flush()
        with pytest.raises(errors.DuplicateKeyError):
            source.push((2, "c"))
        with db.source(t) as again:
            again.push((3, "d"))
        assert len(db.query(f"SELECT * FROM {t}")) == 2


class TestRestarts:
    def test_each_row_is_added_once(self, server):
        with ms.connect(server.url, timeout=TIMEOUT) as db:
            # Rows that were seen and are lost in a crash would be a reset.
            db.execute("CREATE SOURCE s (n BIGINT) WITH (wal_mode = 'sync')")
            subscription = db.subscribe("SELECT n FROM s")
            source = db.source("s")
            killed = threading.Event()

            def push():
                for n in range(2_000):
                    source.push((n,))
                    if n % 50 == 0:
                        source.flush()
                    if n == 500:
                        killed.set()

            pusher = threading.Thread(target=push)
            pusher.start()
            for _ in range(2):
                assert killed.wait(TIMEOUT)
                server.restart()
            pusher.join(TIMEOUT)
            assert not pusher.is_alive()
            source.flush()
            assert rows(db, "s") == list(range(2_000))
            found = []
            while len(found) < 2_000:
                found += [row[0] for row in subscription.recv(TIMEOUT).rows]
            assert found == list(range(2_000))

    def test_flush_while_the_server_is_away(self, server):
        db = ms.connect(server.url, timeout=0.05)
        db.execute("CREATE SOURCE s (n BIGINT)")
        source = db.source("s")
        server.end()
        source.push((1,))
        with pytest.raises(errors.DisconnectedError):
            source.flush()
        assert source.pending == 1
        server.start()
        wait_until(lambda: source.pending == 0, "it was sent")
        assert rows(db, "s") == [1]
        server.end()
        source.push((2,))
        with pytest.raises(errors.DisconnectedError):
            db.close()
