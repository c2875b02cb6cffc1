"""The power goes: what the disk was asked to keep is there, of the rest any part may be.

No test can pull the plug, so this one keeps book of what was synced, by the calls that sync, and
then takes from the rest what a disk may take: the ends of files, pages in their middle, and files
whose directory was not synced. It is harsher than kill -9, which takes nothing that was written.
"""

from __future__ import annotations

import os
import pickle
import random
import threading
import time

import pytest

from millstream.log import Log, recovery, segment_writer, storage
from millstream.model import Schema
from millstream.testing import writer_of

from ..effort import effort  # noqa: TID252 - tests have no name

pytestmark = pytest.mark.crash

SCHEMA = Schema.of(writer="BIGINT", n="BIGINT", s="VARCHAR")
PAGE = 512


class Book:
    """What of each file, and which files, were asked to be kept."""

    def __init__(self, sizes, names):
        self.sizes = sizes
        self.names = names
        self.lock = threading.RLock()
        sync_data, sync_directory = storage.sync_data, storage.sync_directory

        def note_data(fd):
            with self.lock:
                stat = os.fstat(fd)
                sync_data(fd)
                self.sizes[stat.st_ino] = max(self.sizes.get(stat.st_ino, 0), stat.st_size)

        def note_directory(path):
            with self.lock:
                names = os.listdir(path)
                sync_directory(path)
                self.names.update(names)

        for module in (segment_writer, recovery, storage):
            vars(module).update(sync_data=note_data, sync_directory=note_directory)


def live(path, seed, ledger):
    """One run of a log, with writers of all kinds, that ends at a random moment."""
    rng = random.Random(seed)
    book = Book(*(pickle.loads(ledger.read_bytes())[:2] if ledger.exists() else ({}, set())))
    log = Log(
        path,
        segment_bytes=rng.choice([2000, 8000, 50_000]),
        sync_interval=rng.choice([0.001, 0.02, 5]),
    )
    for topic in "ab":
        if topic not in log.topics:
            log.create_topic(topic, SCHEMA)

    def write(number):
        mine, n = random.Random(seed * 10 + number), 0
        while True:
            mode = mine.choice(["sync", "async", "async", "async", "async", "async"])
            if mine.random() < 0.3:
                with log.transaction(wal_mode=mode) as transaction:
                    transaction.append("a", [(number, n, "both")])
                    transaction.append("b", [(number, n, "both" * mine.randrange(1, 1000))])
            else:
                count = mine.randrange(1, 4)
                rows = [(number, n, "x" * mine.randrange(300)) for _ in range(count)]
                log.append(mine.choice("ab"), rows, wal_mode=mode)
            n += 1

    for number in range(3):
        threading.Thread(target=write, args=(number,), daemon=True).start()
    time.sleep(rng.uniform(0.01, 0.15))  # the power fails at a moment that nothing announces
    writer_of(log).segments.lock.acquire()
    book.lock.acquire()
    ledger.write_bytes(pickle.dumps((book.sizes, book.names, log.durable_lsn, log.written_lsn)))
    os._exit(0)


def run(path, seed, ledger):
    pid = os.fork()
    if pid == 0:
        try:
            live(path, seed, ledger)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def pull_the_plug(path, rng, sizes, names):
    is_last = True
    for file in sorted(path.glob("*.seg"), reverse=True):
        stat = file.stat()
        safe = sizes.get(stat.st_ino, 0)
        if is_last and file.name not in names and rng.random() < 0.5:
            file.unlink()
            continue
        is_last = False
        if stat.st_size <= safe:
            continue
        data = bytearray(file.read_bytes())
        if rng.random() < 0.4:
            del data[rng.randrange(safe, len(data) + 1) :]
        else:
            for page in range(safe // PAGE * PAGE, len(data), PAGE):
                if rng.random() < 0.3:
                    start = max(page, safe)
                    data[start : page + PAGE] = bytes(len(data[start : page + PAGE]))
        file.write_bytes(data)


@pytest.mark.parametrize("lives", [1, 2], ids=["one run", "a crash, and another run"])
def test_what_was_durable_is_there(tmp_path, lives):
    cuts = both = 0
    for seed in range(effort(20, 100)):
        path, ledger = tmp_path / f"log{seed}", tmp_path / f"ledger{seed}"
        for number in range(lives):
            run(path, seed * 7 + number, ledger)
        sizes, names, durable, written = pickle.loads(ledger.read_bytes())
        pull_the_plug(path, random.Random(seed), sizes, names)
        with Log(path) as log:
            assert not log.recovery.damaged, seed
            cuts += bool(log.recovery.cut_bytes)
            found = {
                lsn: (batch.topic, row)
                for batch in log.read()
                for lsn, row in zip(batch.lsns, batch.rows, strict=True)
            }
            assert durable <= len(found) <= written, seed
            assert list(found) == list(range(1, len(found) + 1)), seed
            for lsn, (topic, row) in found.items():
                if topic == "a" and row[2] == "both":
                    assert found[lsn + 1][1][:2] == row[:2], "half a transaction"
                    both += 1
            assert log.append("a", [(9, 9, "new")], wal_mode="sync") == len(found) + 1
        with Log(path) as log:
            assert log.recovery.clean
            assert sum(map(len, log.read())) == len(found) + 1
    assert cuts > effort(2, 10)
    assert both
