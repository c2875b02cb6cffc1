"""A disk that runs full and gets room again, over and over, under everything at once.

At the end the books are balanced: what was acknowledged is what was committed is what subscribers
were given, each row once and in the order of its pusher, and nobody hangs.

``MILLSTREAM_SEED`` says which dice (``seed.py``).
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict

import pytest

import millstream as ms
from millstream import errors
from millstream.dispatch import loop
from millstream.log import lifecycle
from millstream.testing import TIMEOUT, engine_of, wait_until

from ..disks import mounted  # noqa: TID252 - tests have no name
from ..seed import SEED  # noqa: TID252

pytestmark = pytest.mark.slow

ROUNDS = 5
PAYLOAD = "x" * 200
REFUSED = (errors.LogFullError, errors.SourceFullError)


class Books:
    """The outcome of each push: which rows were accepted, which were refused."""

    def __init__(self):
        self.taken = defaultdict(list)
        self.refused = 0
        self.over = threading.Event()
        self.failures = []

    def run(self, work, *args):
        """A thread of the test; what it raises is the test's failure."""

        def guarded():
            try:
                work(*args)
            except BaseException as error:
                self.failures.append(error)
                raise

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        return thread

    def push(self, name, push, pause):
        """Push ever larger numbers; one that was refused is left out, or tried again."""
        number = 0
        while not self.over.is_set():
            number += 1
            try:
                push(number)
                self.taken[name].append(number)
            except REFUSED:
                self.refused += 1
            self.over.wait(pause)


class Reader:
    """What one subscriber was given, by pusher, in order."""

    def __init__(self, db, query, **options):
        self.got = defaultdict(list)
        self.lsns = []
        self.subscription = db.subscribe(query, **options)

    def read(self):
        for batch in self.subscription:
            assert batch.gap is None
            for change in batch:
                assert change.op == "insert"
                self.got[change.row[0]].append(change.row[1])
                self.lsns.append(change.lsn)


def by_pusher(rows):
    got = defaultdict(list)
    for who, number in rows:
        got[who].append(number)
    return got


@pytest.fixture
def disk(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "_RETRY", 0.01)
    monkeypatch.setattr(lifecycle, "RETRY", 0.01)
    with mounted(tmp_path / "disk", "64m") as disk:
        yield disk


def start_pushers(db, books):
    threads = []
    for k in range(2):
        for source in ("a", "b", "y"):
            name = f"{source}{k}"
            push = db.source(source).push
            row = lambda n, name=name, push=push: push((name, n, PAYLOAD))  # noqa: E731
            threads.append(books.run(books.push, name, row, 0.0005))
    table = lambda n: db.insert("t", [(f"t{n}", n)])  # noqa: E731
    threads.append(books.run(books.push, "t", table, 0.001))
    batch = lambda n: db.insert("a", [("a2", n, PAYLOAD)])  # noqa: E731
    threads.append(books.run(books.push, "a2", batch, 0.001))
    return threads


def ask(db, books):
    """Queries never fail, and never hang."""
    while not books.over.is_set():
        rows = db.query("SELECT who, n FROM y").fetchall()
        for numbers in by_pusher(rows).values():
            assert numbers == sorted(set(numbers))
        db.execute("SHOW CHANGES FOR t LIMIT 5")
        db.subscribe("SELECT who, n FROM y", start="earliest").cancel()
        books.over.wait(0.01)


def run_full_and_get_room(db, disk, books, dice):
    for _ in range(ROUNDS):
        disk.fill()
        before = books.refused
        wait_until(
            lambda before=before: books.failures or books.refused >= before + dice.randrange(80)
        )
        if dice.random() < 0.3:
            with pytest.raises(errors.LogFullError):
                db.flush()
        disk.free()
        taken = len(books.taken["y0"])
        wait_until(lambda taken=taken: books.failures or len(books.taken["y0"]) > taken + 10)


def test_nothing_is_lost_or_doubled_and_no_thread_hangs(disk):
    dice = random.Random(SEED)
    books = Books()
    db = ms.open(disk.path / "db", segment_bytes=1 << 17)
    db.execute(
        "CREATE SOURCE a (who VARCHAR, n BIGINT, p VARCHAR) WITH (buffer_size = 64);"
        "CREATE SOURCE b (who VARCHAR, n BIGINT, p VARCHAR) "
        "WITH (buffer_size = 16, backpressure = 'reject');"
        "CREATE SOURCE y (who VARCHAR, n BIGINT, p VARCHAR) WITH (wal_mode = 'sync');"
        "CREATE TABLE t (who VARCHAR PRIMARY KEY, n BIGINT) WITH (wal_mode = 'sync')"
    )
    readers = {
        source: [
            Reader(db, f"SELECT who, n FROM {source}", start="now"),
            Reader(db, f"SELECT who, n FROM {source}", start="earliest", buffer_rows=8),
        ]
        for source in ("a", "b", "y")
    }
    reading = [books.run(each.read) for pair in readers.values() for each in pair]
    working = [*start_pushers(db, books), books.run(ask, db, books)]
    try:
        run_full_and_get_room(db, disk, books, dice)
    finally:
        books.over.set()
    for thread in working:
        thread.join(TIMEOUT)
        assert not thread.is_alive(), "a pusher or a query hangs"
    assert not books.failures
    db.flush()
    check(db, books)
    for source, pair in readers.items():
        expected = {name: taken for name, taken in books.taken.items() if name[0] == source}
        for reader in pair:
            wait_until(lambda reader=reader, all_=expected: reader.got == all_ or books.failures)
            assert reader.lsns == sorted(set(reader.lsns))
    db.close()
    for thread in reading:
        thread.join(TIMEOUT)
        assert not thread.is_alive(), "a reader hangs"
    assert all(isinstance(each, errors.ClosedError) for each in books.failures)
    with ms.open(disk.path / "db") as db:
        assert engine_of(db).log.recovery.clean
        check(db, books)


def check(db, books):
    """What was acknowledged is what is committed."""
    for source in ("a", "b", "y"):
        expected = {name: taken for name, taken in books.taken.items() if name[0] == source}
        assert by_pusher(db.query(f"SELECT who, n FROM {source}").fetchall()) == expected
    numbers = [n for (n,) in db.query("SELECT n FROM t").fetchall()]
    assert sorted(numbers) == books.taken["t"]
    assert books.refused
    for name in ("a0", "a2", "b0", "y0", "y1", "t"):
        assert books.taken[name], name
