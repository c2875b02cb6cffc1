"""Ctrl-C at any instant: nothing stays locked, nothing is lost, nothing is there twice.

``make proof`` interrupts at every point of every call, and many times more at random.
"""

from __future__ import annotations

import itertools
import sys
import threading
from functools import partial

import pytest

import millstream as ms
from millstream.testing import Background, engine_of

from ..effort import effort  # noqa: TID252
from ..interrupting import ENDS, at_each_point, at_random  # noqa: TID252

pytestmark = [pytest.mark.slow, ENDS]
TIMES = effort(200, 5000)


@pytest.fixture(autouse=True)
def interrupted_finalizers(monkeypatch):
    """Python ignores what is raised in a finalizer. Here that may be a KeyboardInterrupt only."""
    report = sys.unraisablehook

    def report_others(raised):
        if not issubclass(raised.exc_type, KeyboardInterrupt):
            report(raised)

    monkeypatch.setattr(sys, "unraisablehook", report_others)


class World:
    """A database with one of everything, and what must hold of it whatever was interrupted."""

    def __init__(self, path):
        self.db = db = ms.open(path)
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        db.execute("CREATE TABLE st (id BIGINT PRIMARY KEY, v BIGINT) WITH (wal_mode = 'sync')")
        db.execute("CREATE SOURCE s (n BIGINT)")
        db.execute("CREATE SOURCE ss (n BIGINT) WITH (wal_mode = 'sync')")
        db.execute("CREATE SOURCE d (n BIGINT) WITH (backpressure = 'drop_oldest', buffer_size=64)")
        self.numbers = itertools.count(1)
        self.copies = {name: {} for name in ("t", "st")}
        self.received = {"s": [], "ss": []}
        self.readers = [
            db.subscribe_callback(f"SELECT * FROM {name}", partial(self.take, name))
            for name in (*self.copies, *self.received)
        ]
        self.source, self.sync_source = db.source("s"), db.source("ss")

    def take(self, name, batch):
        if name in self.received:
            self.received[name] += [row for (row,) in batch.rows]
            return
        for change in batch:
            if change.op == "insert":
                assert change.row[0] not in self.copies[name]
            if change.op == "delete":
                del self.copies[name][change.row[0]]
            else:
                self.copies[name][change.row[0]] = change.row[1]

    def insert(self, table="t"):
        n = next(self.numbers)
        self.db.insert(table, [(n, n)])

    def works(self):
        """From another thread, everything still works."""
        Background(self._use).result()

    def _use(self):
        db = self.db
        for table in ("t", "st"):
            n = -next(self.numbers)
            db.insert(table, [(n, n)])
            db.execute(f"UPDATE {table} SET v = v + 1 WHERE id = {n}")
            assert db.query(f"SELECT v FROM {table} WHERE id = {n}").fetchall() == [(n + 1,)]
            db.execute(f"DELETE FROM {table} WHERE id = {n}")
        self.source.push((n,))
        self.sync_source.push((n,))
        db.flush()

    def balances(self):
        """Every reader has what a query gives, each row once; and so after opening again."""
        db = self.db
        db.flush()
        rows = {name: sorted(db.query(f"SELECT * FROM {name}")) for name in ("t", "st", "s", "ss")}
        path = db.path
        Background(db.close).result()  # callbacks get what was committed
        for name, copy in self.copies.items():
            assert sorted(copy.items()) == rows[name]
        for name, received in self.received.items():
            assert len(set(received)) == len(received)
            assert sorted(received) == [row for (row,) in rows[name]]
        assert not any(each.errors for each in self.readers)
        with ms.open(path) as again:
            for name, expected in rows.items():
                assert sorted(again.query(f"SELECT * FROM {name}")) == expected
        return rows


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path / "db")
    yield made
    made.db.close()


WRITES = {
    "INSERT": lambda w: w.db.execute(f"INSERT INTO t VALUES ({next(w.numbers)}, 1)"),
    "db.insert": lambda w: w.insert(),
    "INSERT, sync": lambda w: w.insert("st"),
    "UPDATE": lambda w: w.db.execute("UPDATE t SET v = v + 1"),
    "DELETE": lambda w: w.db.execute(f"DELETE FROM t WHERE id < {next(w.numbers) - 9}"),
    "push": lambda w: w.source.push((next(w.numbers),)),
    "push_batch": lambda w: w.source.push_batch([(next(w.numbers),), (next(w.numbers),)]),
    "push, sync": lambda w: w.sync_source.push((next(w.numbers),)),
    "push, dropping": lambda w: w.db.source("d").push_batch([(next(w.numbers),)] * 50),
    "watermark": lambda w: w.source.watermark(next(w.numbers)),
    "NOTIFY": lambda w: w.db.notify("channel", "payload"),
    "flush": lambda w: w.db.flush(),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_write_that_is_interrupted_at_any_point(world, write):
    at_each_point(lambda: WRITES[write](world), world.works)
    world.balances()


@pytest.mark.parametrize("write", ["db.insert", "INSERT, sync", "UPDATE", "push, sync", "flush"])
def test_a_write_that_is_interrupted_at_random(world, write):
    for _ in range(10):
        at_random(lambda: WRITES[write](world), TIMES // 10, 0.0005)
        world.works()
    world.balances()


def test_a_push_that_is_interrupted_is_taken_once_or_not_at_all(world):
    """And needs no other push to be committed."""
    before = []

    def push():
        before.append(next(world.numbers))
        world.source.push((before[-1],))

    at_random(push, TIMES // 10, 0.0001)
    last = next(world.numbers)
    world.source.push((last,))
    world.db.flush()
    taken = [n for (n,) in world.db.query("SELECT n FROM s")]
    assert len(set(taken)) == len(taken)
    assert set(taken) <= {*before, last}
    assert last in taken
    world.balances()


READS = {
    "query": lambda w: w.db.query("SELECT * FROM t"),
    "query with groups": lambda w: w.db.query("SELECT v, COUNT(*) FROM t GROUP BY v"),
    "SHOW": lambda w: w.db.query("SHOW CHANGES FOR t LIMIT 3"),
    "metrics": lambda w: w.db.metrics(),
}


@pytest.mark.parametrize("read", READS)
def test_a_read_that_is_interrupted(world, read):
    world.db.insert("t", [(next(world.numbers), 1) for _ in range(50)])
    holds = engine_of(world.db).log._opened.holds
    before = len(holds._all)  # those of positions and of tables
    at_each_point(lambda: READS[read](world), world.works)
    assert len(holds._all) <= before  # nothing else holds up retention
    world.balances()


def test_statements_that_make_and_drop(world):
    db = world.db

    def change():
        db.execute("CREATE TABLE IF NOT EXISTS x (id BIGINT PRIMARY KEY)")
        db.execute("CREATE SOURCE IF NOT EXISTS y (n BIGINT)")
        db.execute("ALTER TABLE x ADD COLUMN IF NOT EXISTS more BIGINT")
        db.execute("CREATE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT n FROM y WHERE n > 1")
        db.execute("DROP VIEW IF EXISTS v; DROP TABLE IF EXISTS x; DROP SOURCE IF EXISTS y")

    at_each_point(change, world.works)
    Background(change).result()
    world.balances()


def test_subscriptions_that_come_and_go(world):
    db = world.db

    def subscribe():
        world.insert()
        with db.subscribe("SELECT * FROM t", name="durable") as durable:
            durable.ack(durable.recv(timeout=20))
            durable.pause()
            durable.resume()
        db.subscribe_callback("SELECT * FROM t", lambda batch: None).cancel()
        db.subscribe_callback("SELECT n FROM s", lambda batch: None, inline=True).cancel()
        db.changes().cancel()
        db.execute("LISTEN channel; UNLISTEN channel")

    def works():
        world.works()
        with Background(reopened).result() as durable:
            durable.try_recv()

    def reopened():
        """The one that was interrupted goes away, and with it its claim to the name."""
        while True:
            try:
                return db.subscribe("SELECT * FROM t", name="durable")
            except ms.errors.SubscriptionExistsError:
                threading.Event().wait(0.001)

    at_each_point(subscribe, works)
    Background(lambda: db.execute("DROP SUBSCRIPTION durable")).result()
    world.balances()


@pytest.mark.parametrize("style", ["batches", "events"])
@pytest.mark.parametrize("way", ["random", "each point"])
def test_recv_loses_nothing(world, style, way):
    """What a recv has taken when it is interrupted is what the next one gives."""
    db = world.db
    if style == "events":
        reader = db.changes("s")
    else:
        reader = db.subscribe("SELECT n FROM s", buffer_rows=50, max_rows=7)
    got, last = [], -1
    stop = threading.Event()

    def feed():
        for n in itertools.count(1):
            if stop.is_set():
                world.source.push((last,))
                return
            world.source.push_batch([(10 * n + i,) for i in range(5)])
            db.flush()

    def receive():
        found = reader.recv(timeout=60)
        got.extend([found.lsn] if style == "events" else found.lsns)

    feeding = Background(feed)
    if way == "random":
        at_random(receive, TIMES, 0.0005)
    else:
        at_each_point(receive, lambda: None)
    stop.set()
    feeding.result()
    end = db.flush()
    while not got or got[-1] < end:
        receive()
    lsns = [lsn for batch in engine_of(db).relations.logged(("s",), end) for lsn in batch.lsns]
    assert got == lsns
    assert reader.metrics.delivered == len(got)
    reader.cancel()


def test_opening_and_closing(tmp_path):
    """Interrupted, they go on in the background; the directory can be opened after that."""
    path = tmp_path / "db"
    with ms.open(path) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    numbers = itertools.count()

    def use():
        with ms.open(path) as db:
            db.insert("t", [(next(numbers),)])

    def check():
        def reopened():
            while True:
                try:
                    return ms.open(path)
                except ms.errors.LogLockedError:
                    threading.Event().wait(0.002)

        with Background(reopened).result() as db:
            db.query("SELECT * FROM t")

    with pytest.warns(ResourceWarning):  # of those whose opening was interrupted
        at_each_point(use, check)


def test_the_log_by_itself(tmp_path):
    log = ms.Log(tmp_path)
    log.create_topic("t", ms.Schema.of(n="BIGINT"))
    numbers, acknowledged = itertools.count(), []

    def append():
        n = next(numbers)
        log.append("t", [(n,)], wal_mode="sync")
        acknowledged.append(n)
        log.append("t", [(next(numbers),)])
        log.flush()

    def check():
        Background(append).result()

    at_each_point(append, check)
    at_random(append, TIMES, 0.002)
    check()
    log.close()
    with ms.Log(tmp_path) as again:
        kept = [n for batch in again.read("t") for (n,) in batch.rows]
        assert not again.recovery.damaged
    assert sorted(set(kept)) == sorted(kept)
    assert set(acknowledged) <= set(kept)
