"""Processes that are really killed, hundreds of times, at every step and at any moment.

What was acknowledged is there afterwards, in order, once; what was under way is there whole or not
at all. The children are forked, so that a kill costs milliseconds.
"""

from __future__ import annotations

import os
import random
import select
import shutil
import signal
import struct
import threading
import time

import pytest

from millstream.log import Log, Retention
from millstream.model import Schema

from ..effort import effort  # noqa: TID252 - tests have no name
from ..forking import in_a_small_process  # noqa: TID252

pytestmark = pytest.mark.crash

SCHEMA = Schema.of(n="BIGINT NOT NULL", s="VARCHAR")
STEPS = ("open", "pwritev", "pwrite", "fdatasync", "fsync", "ftruncate", "rename", "unlink")
STEPS = tuple(name for name in STEPS if hasattr(os, name))


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class Bomb:
    """Kills the process at the n-th call that touches the disk: before, within or after it.

    Calls that leave the files as another kill does are not counted: a file that is only opened;
    within anything but a write of several parts; after a sync, which is before the next call.
    """

    def __init__(self, countdown, moment):
        self.countdown = countdown
        self.moment = moment
        for name in STEPS:
            setattr(os, name, self.armed(name, getattr(os, name)))

    def counts(self, name, args):
        if self.moment == "within":
            return name == "pwritev"
        if name == "open":
            return bool(args[1] & (os.O_CREAT | os.O_TRUNC))
        return self.moment == "before" or name not in {"fsync", "fdatasync"}

    def armed(self, name, call):
        def step(*args, **options):
            self.countdown -= self.counts(name, args)
            if self.countdown == 0:
                if self.moment == "within":
                    fd, buffers, offset = args
                    data = b"".join(map(bytes, buffers))
                    real_pwrite(fd, data[: len(data) // 2 + 3], offset)
                elif self.moment == "after":
                    call(*args, **options)
                die()
            return call(*args, **options)

        return step


real_pwrite = os.pwrite


def run_and_die(path, work, countdown, moment):
    """Run some work in a child with a bomb: how many steps it said were done, whether it died."""
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            Bomb(countdown, moment)
            work(path, lambda: os.write(send, b"."))
            os._exit(0)
        except BaseException:
            os._exit(1)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        done = len(pipe.read())
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in {0, -signal.SIGKILL}, "the child failed"
    return done, code != 0


# Each step is one commit: (what to do, what it adds to t, what it adds to u)
def _steps():
    yield lambda log: log.create_topic("t", SCHEMA), [], []
    yield lambda log: log.create_topic("u", SCHEMA), [], []
    for n in range(6):
        rows = [(n, "x" * 100)]
        yield lambda log, rows=rows: log.append("t", rows, wal_mode="sync"), rows, []
    pair = [(10, "both"), (11, "both")], [(12, "both")]

    def transaction(log):
        with log.transaction(wal_mode="sync") as both:
            both.append("t", pair[0][:1])
            both.append("u", pair[1])
            both.append("t", pair[0][1:])

    yield transaction, *pair

    def append_and_flush(log):
        log.append("t", [(20, "flushed"), (21, "flushed")])
        log.flush()

    yield append_and_flush, [(20, "flushed"), (21, "flushed")], []
    yield lambda log: log.add_column("u", "more", "DOUBLE"), [], []
    yield lambda log: log.append("u", [(30, "wide", 1.5)], wal_mode="sync"), [], [(30, "wide")]
    yield lambda log: log.append("u", [], watermark=7, wal_mode="sync"), [], []
    for n in range(40, 44):
        rows = [(n, "y" * 200)]
        yield lambda log, rows=rows: log.append("u", [(*rows[0], None)], wal_mode="sync"), [], rows


def work_and_close(path, done):
    with Log(path, segment_bytes=1500) as log:
        for act, _, _ in _steps():
            act(log)
            done()


def content(log, topic):
    if topic not in log.topics:
        return []
    return [row[:2] for batch in log.read(topic) for row in batch.rows]


@pytest.mark.parametrize("moment", ["before", "within", "after"])
@in_a_small_process
def test_killed_at_each_step(tmp_path, moment):
    steps = list(_steps())
    countdown, died = 0, True
    while died:
        countdown += 1
        path = tmp_path / str(countdown)
        done, died = run_and_die(path, work_and_close, countdown, moment)
        states = [
            tuple([row for step in steps[:count] for row in step[part]] for part in (1, 2))
            for count in (done, min(done + 1, len(steps)))
        ]
        with Log(path) as log:
            found = content(log, "t"), content(log, "u")
            assert found in states, (countdown, done)
            assert not log.recovery.damaged
            assert not list(log.verify())
            # And it goes on as if nothing had been.
            if "t" in log.topics:
                log.append("t", [(99, "after")], wal_mode="sync")
        with Log(path) as log:
            assert log.recovery.clean
            if "t" in log.topics:
                assert content(log, "t") == [*found[0], (99, "after")]
    assert countdown > 40


def trim_and_close(path, done):
    with Log(path, segment_bytes=1500) as log:
        log.set_retention("loud", Retention(max_bytes=3000))
        done()
        log.retain()
        done()


@pytest.mark.parametrize("moment", ["before", "within", "after"])
@in_a_small_process
def test_killed_at_each_step_of_retention(tmp_path, moment):
    with Log(tmp_path / "filled", segment_bytes=1500) as log:
        log.create_topic("loud", SCHEMA)
        log.create_topic("kept", SCHEMA)
        for n in range(20):
            log.append("loud", [(n, "x" * 150)], wal_mode="sync")
            if n > 5:
                log.append("kept", [(n, "k")], wal_mode="sync")
    loud = [(n, "x" * 150) for n in range(20)]
    kept = [(n, "k") for n in range(6, 20)]
    countdown, died, left = 0, True, []
    while died:
        countdown += 1
        path = shutil.copytree(tmp_path / "filled", tmp_path / str(countdown))
        done, died = run_and_die(path, trim_and_close, countdown, moment)
        with Log(path) as log:
            assert content(log, "kept") == kept, countdown
            found = content(log, "loud")
            assert found == loud[-len(found) :], countdown
            left.append((done, len(found)))
            assert not list(log.verify())
            log.set_retention("loud", Retention(max_bytes=0))
            log.retain()
            assert content(log, "kept") == kept
    assert countdown > 15
    counts = [count for _, count in left]
    assert counts == sorted(counts, reverse=True), "what one step has removed, the next brings back"
    assert counts[0] == len(loud) > counts[-1] > 0
    assert {count for done, count in left if done == 2} == {counts[-1]}


ACK = struct.Struct("<II")


def hammer(path, run, send):
    """Four threads that append as fast as they can; each reports what was acknowledged."""
    log = Log(path, segment_bytes=20_000, sync_interval=0.001)
    if "t" not in log.topics:
        log.create_topic("t", Schema.of(run="BIGINT", thread="BIGINT", n="BIGINT"))

    def work(thread):
        n = 0
        while True:
            if thread == 0:  # one at a time, each durable
                log.append("t", [(run, 0, n)], wal_mode="sync")
                n += 1
            elif thread == 1:  # several as one transaction
                with log.transaction(wal_mode="sync") as transaction:
                    for i in range(3):
                        transaction.append("t", [(run, 1, n + i)])
                n += 3
            else:  # many without waiting, then a flush
                for _ in range(20):
                    log.append("t", [(run, thread, n)])
                    n += 1
                log.flush()
            os.write(send, ACK.pack(thread, n))

    for thread in range(1, 4):
        threading.Thread(target=work, args=(thread,), daemon=True).start()
    work(0)


def killed_at_a_random_moment(path, run, rng):
    """How many rows of each thread were acknowledged as durable before the kill."""
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(receive)
            hammer(path, run, send)
        finally:
            os._exit(1)
    os.close(send)
    acknowledged, data = [0] * 4, b""
    first = select.select([receive], [], [], 60)[0]
    assert first, "the child did nothing"
    deadline = time.monotonic() + rng.random() * 0.03
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            os.kill(pid, signal.SIGKILL)
            left = 60
            deadline = time.monotonic() + left
        if select.select([receive], [], [], left)[0]:
            chunk = os.read(receive, 1 << 16)
            if not chunk:
                break
            data += chunk
    os.close(receive)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    for thread, n in ACK.iter_unpack(data[: len(data) // ACK.size * ACK.size]):
        acknowledged[thread] = n
    return acknowledged


@in_a_small_process
def test_killed_at_random_moments_many_times(tmp_path):
    """One directory, many kills: every run's rows stay, in order, once."""
    rng = random.Random(11)
    kills, acknowledged_rows, cuts = effort(60, 200), 0, 0
    total: dict[tuple[int, int], int] = {}
    lsn = 1
    for run in range(kills):
        acknowledged = killed_at_a_random_moment(tmp_path, run, rng)
        acknowledged_rows += sum(acknowledged)
        with Log(tmp_path) as log:
            cuts += bool(log.recovery.cut_bytes)
            found: list[list[int]] = [[], [], [], []]
            for batch in log.read("t", start=lsn):
                assert batch.first_lsn == lsn
                lsn = batch.lsn + 1
                for row_run, thread, n in batch.rows:
                    assert row_run == run
                    found[thread].append(n)
            assert log.lsn == lsn - 1
        for thread in range(4):
            assert found[thread] == list(range(len(found[thread])))
            assert len(found[thread]) >= acknowledged[thread]
            total[run, thread] = len(found[thread])
        assert len(found[1]) % 3 == 0, "half a transaction"
    with Log(tmp_path) as log:
        counts: dict[tuple[int, int], int] = {}
        for batch in log.read("t"):
            for run, thread, n in batch.rows:
                assert n == counts.get((run, thread), 0)
                counts[run, thread] = n + 1
        assert counts == {key: count for key, count in total.items() if count}
        assert not list(log.verify())
    assert acknowledged_rows > kills
    print(f"{kills} kills, {acknowledged_rows} rows acknowledged, {lsn - 1} kept, {cuts} torn ends")  # noqa: T201
