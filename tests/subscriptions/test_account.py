"""Delivered + reported as lost = committed: every style and policy, over retention and restarts."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from datetime import UTC, datetime

import pytest

import millstream as ms
from millstream.testing import TIMEOUT, engine_of, wait_until

pytestmark = pytest.mark.slow

SOURCES = ("a", "b", "kept")
RUNS = 3
INSERTS = 120


class Account:
    """One reader over several runs of the database: what it was given, and what it was not."""

    def __init__(self, sources, options, rng):
        self.sources = sources
        self.options = options
        self.rng = rng
        self.start = "now"
        self.count = 0
        self.last_lsn = 0
        self.marks = []  # tokens, and what was accounted for by then

    def batch(self, batch):
        gap = batch.gap
        if gap is not None:
            assert gap.count is not None
            assert self.last_lsn < gap.first_lsn <= gap.last_lsn
            self.last_lsn = gap.last_lsn
            self.count += gap.count
        if len(batch):
            assert self.last_lsn < batch.lsns[0]
            self.last_lsn = batch.lsns[-1]
            self.count += len(batch)
        self.mark(batch.token)

    def event(self, event, token):
        assert self.last_lsn < event.lsn
        assert event.collection in ("", *self.sources)
        self.last_lsn = event.lsn
        self.count += event.gap.count if event.op == "gap" else 1
        self.mark(token)

    def mark(self, token):
        if self.rng.randrange(20) == 0:
            self.marks.append((token, self.count))


class Channel(Account):
    """``db.subscribe``."""

    def open(self, db):
        self.reader = db.subscribe(f"SELECT * FROM {self.sources[0]}", **self.at())

    def at(self):
        return {**self.options, "start": self.start}

    def read(self, done):
        while not done(self):
            with contextlib.suppress(TimeoutError):
                self.batch(self.reader.recv(timeout=0.05))
                if self.rng.randrange(8) == 0:
                    threading.Event().wait(self.rng.random() * 0.05)

    def close(self):
        self.start = self.reader.token
        self.reader.cancel()


class Callback(Channel):
    """``db.subscribe_callback``."""

    def open(self, db):
        sql = f"SELECT * FROM {self.sources[0]}"
        self.errors = []
        self.reader = db.subscribe_callback(
            sql, self.batch, on_error=self.errors.append, **self.at()
        )

    def read(self, done):
        wait_until(lambda: done(self) or self.errors)
        assert not self.errors


class Stream(Channel):
    """``db.subscribe_stream``."""

    def open(self, db):
        self.reader = db.subscribe_stream(f"SELECT * FROM {self.sources[0]}", **self.at())

    def read(self, done):
        async def main():
            while not done(self):
                with contextlib.suppress(TimeoutError):
                    self.batch(await self.reader.recv(timeout=0.05))

        asyncio.run(main())


class Bus(Channel):
    """``db.changes``, of one collection or of all."""

    def open(self, db):
        collection = self.sources[0] if len(self.sources) == 1 else None
        self.reader = db.changes(collection, **self.at())

    def read(self, done):
        while not done(self):
            with contextlib.suppress(TimeoutError):
                self.event(self.reader.recv(timeout=0.05), self.reader.token)


class AsyncBus(Bus):
    """``db.changes_stream``."""

    def open(self, db):
        self.reader = db.changes_stream(self.sources[0], **self.at())

    def read(self, done):
        async def main():
            while not done(self):
                with contextlib.suppress(TimeoutError):
                    self.event(await self.reader.recv(timeout=0.05), self.reader.token)

        asyncio.run(main())


def accounts(rng):
    policies = ["block", "block", "drop_oldest", "drop_newest"]
    for kind in (Channel, Callback, Stream, Bus, AsyncBus):
        for source in ("a", "b"):
            options = {"backpressure": rng.choice(policies), "buffer_rows": rng.randint(1, 60)}
            yield kind((source,), options, random.Random(rng.random()))
    for policy in ("block", "drop_oldest"):
        yield Bus(SOURCES, {"backpressure": policy, "buffer_rows": 30}, random.Random(1))


def one_run(db, readers, committed, rng):
    """Write, read and retain, all at once, until every reader has accounted for every row."""
    over = threading.Event()
    failed = []

    def guarded(function, *args):
        try:
            function(*args)
        except BaseException as error:
            failed.append(error)
            over.set()

    def retain():
        while not over.wait(0.005):
            engine_of(db).log.retain()

    def done(reader):
        wanted = sum(committed[source] for source in reader.sources)
        assert reader.count <= wanted or not written.is_set(), (reader.count, wanted)
        return over.is_set() or (written.is_set() and reader.count == wanted)

    written = threading.Event()
    for reader in readers:
        reader.open(db)
    threads = [threading.Thread(target=guarded, args=(each.read, done)) for each in readers]
    retaining = threading.Thread(target=guarded, args=(retain,))
    for thread in (*threads, retaining):
        thread.start()
    for _ in range(INSERTS):
        source, size = rng.choice(SOURCES), rng.choice([1, 1, 3, 40])
        db.insert(source, [(n, "x" * 60) for n in range(size)])
        committed[source] += size
        if rng.randrange(3) == 0:
            db.flush()
    db.flush()
    written.set()
    for reader, thread in zip(readers, threads, strict=True):
        thread.join(2 * TIMEOUT)
        about = (type(reader).__name__, reader.sources, reader.options, reader.reader.metrics)
        assert not thread.is_alive(), (*about, reader.count, committed)
    over.set()
    retaining.join(TIMEOUT)
    assert not failed, failed
    for reader in readers:
        reader.close()


def counted(db, source, start):
    """What a late reader is given, and what it is not."""
    count = 0
    with db.subscribe(f"SELECT * FROM {source}", start=start) as subscription:
        while (batch := subscription.try_recv()) or subscription.metrics.lag_rows:
            if batch is not None:
                count += len(batch) + (batch.gap.count if batch.gap is not None else 0)
        assert subscription.metrics.delivered + subscription.metrics.dropped == count
    return count


@pytest.mark.parametrize("seed", range(3))
def test_delivered_plus_dropped_is_committed(tmp_path, seed):
    rng = random.Random(seed)
    begin = datetime.now(UTC)
    readers = list(accounts(rng))
    committed = dict.fromkeys(SOURCES, 0)
    for run in range(RUNS):
        with ms.open(tmp_path / "db", segment_bytes=4000) as db:
            if run == 0:
                db.execute(
                    "CREATE SOURCE a (n BIGINT, t VARCHAR) WITH (retention_bytes = 1);"
                    "CREATE SOURCE b (n BIGINT, t VARCHAR) WITH (retention_bytes = 20000);"
                    "CREATE SOURCE kept (n BIGINT, t VARCHAR)"
                )
            one_run(db, readers, committed, rng)
    with ms.open(tmp_path / "db", segment_bytes=4000) as db:
        for source in SOURCES:
            for start in ("earliest", 1, begin):
                assert counted(db, source, start) == committed[source], (source, start)
        for source in ("a", "b"):
            kept = len(db.query(f"SELECT n FROM {source}"))
            assert engine_of(db).log.topic(source).trimmed_rows == committed[source] - kept > 0
        for reader in readers:
            if len(reader.sources) == 1:
                for token, before in rng.sample(reader.marks, min(5, len(reader.marks))):
                    (source,) = reader.sources
                    assert before + counted(db, source, token) == committed[source]
