from __future__ import annotations

import contextlib
import threading

import pytest

from millstream.errors import LogFullError
from millstream.log.group_commit import Follower, GroupCommit
from millstream.testing import wait_until


class Disk:
    """A queue of numbers and a disk that can be held up."""

    def __init__(self):
        self.order = threading.Lock()
        self.newest = 0
        self.syncs = 0
        self.go = threading.Event()
        self.go.set()
        self.busy = threading.Event()
        self.meanwhile = lambda: None  # called while it is busy with a sync
        self.error = None
        self.group = GroupCommit(self.order, self.sync)

    def sync(self, sequence):
        newest = self.newest
        self.busy.set()
        self.go.wait()
        self.meanwhile()
        self.syncs += 1
        if self.error is not None:
            raise self.error
        assert newest >= sequence
        return newest

    def commit(self):
        with self.order:
            self.newest += 1
            mine = self.newest
            self.group.arrived(mine)
        self.group.wait_for(mine)
        assert self.group.durable >= mine


def commit_in_threads(disk, commits):
    """Eight threads commit; during each sync all others come to wait."""
    at_work = [None] * 8
    disk.meanwhile = lambda: wait_until(lambda: len(disk.group.followers) >= len(at_work) - 1)

    def work():
        for _ in range(commits):
            with contextlib.suppress(KeyboardInterrupt):
                disk.commit()
        at_work.pop()

    threads = [threading.Thread(target=work) for _ in at_work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_one_thread_syncs_each_commit():
    disk = Disk()
    for _ in range(5):
        disk.commit()
    assert disk.syncs == 5


def test_threads_that_wait_meanwhile_share_the_next_sync():
    disk = Disk()
    disk.go.clear()
    threads = [threading.Thread(target=disk.commit) for _ in range(8)]
    threads[0].start()
    disk.busy.wait()
    for thread in threads[1:]:
        thread.start()
    wait_until(lambda: len(disk.group.followers) == 7)
    disk.go.set()
    for thread in threads:
        thread.join()
    assert disk.syncs == 2


def test_many_threads_share_many_syncs():
    disk = Disk()
    commit_in_threads(disk, 200)
    assert disk.group.durable == 1600
    assert disk.syncs <= 2 * 200  # no commit waits for more than two
    assert not disk.group.followers
    assert not disk.group._has_leader


def test_an_error_reaches_each_waiting_thread_and_the_next_try_works():
    disk = Disk()
    disk.error = LogFullError("full")
    disk.go.clear()
    failed = []

    def work():
        try:
            disk.commit()
        except LogFullError:
            failed.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    disk.busy.wait()
    disk.go.set()
    for thread in threads:
        thread.join()
    assert len(failed) == 4
    disk.error = None
    disk.commit()
    with pytest.raises(AssertionError):
        disk.group.wait_for(99)  # it was never queued


def test_a_thread_interrupted_while_it_waits_holds_no_other_up(monkeypatch):
    """As Ctrl-C does: the sleep raises, before or after the wake-up was under way."""
    disk = Disk()
    real_sleep, interrupted = Follower.sleep, []

    def sleep(me):
        first_time = me not in interrupted
        if first_time and me.sequence % 3 == 0:
            interrupted.append(me)
            if me.sequence % 2:
                wait_until(lambda: me not in disk.group.followers)
            raise KeyboardInterrupt
        real_sleep(me)

    monkeypatch.setattr(Follower, "sleep", sleep)
    commit_in_threads(disk, 100)
    disk.meanwhile = lambda: None
    assert interrupted
    assert not disk.group.followers
    assert not disk.group._has_leader
    disk.commit()
