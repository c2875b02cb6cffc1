"""Group commit: many threads wait for the disk, one of them syncs for all.

A thread that comes while no other one syncs is the leader: it writes and syncs everything that is
queued. Threads that come meanwhile are followers: they sleep, and are woken either because their
rows are durable or to lead themselves.

Threads that shared a sync come back within microseconds, one after the other, each with a new
commit. If the first of them led at once it would sync alone, and the others would wait for it and
then once more for themselves. So a leader first waits until as many commits are there as were the
last time, but never for longer than a sync takes, or a millisecond, and not at all when the last
sync was for one commit only.
"""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_NONE: Final = -1
_PATIENCE: Final = 0.001


class Follower:
    """A thread that sleeps until its entry is durable, or until it has to lead."""

    __slots__ = ("_asleep", "leads", "next", "sequence")

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self.leads = False
        self.next: Follower | None = None
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def sleep(self) -> None:
        """Wait to be woken; then wake the next follower.

        Threads that are woken all at once contend for the interpreter lock before they can do
        anything; woken one by one they get it in order. With eight threads that is a quarter more
        commits a second.
        """
        self._asleep.acquire()
        if self.next is not None:
            self.next.wake()

    def wake(self) -> None:
        """End the sleep."""
        self._asleep.release()


class GroupCommit:
    """Brings entries of a queue to the disk, in order, with as few syncs as possible.

    Args:
        order: the lock under which entries are numbered, and ``arrived`` is called.
        sync: brings everything up to an entry to the disk; returns the last entry that is on it.

    Attributes:
        durable: the number of the last entry that is on the disk.
        followers: the threads that sleep.
    """

    def __init__(self, order: threading.Lock, sync: Callable[[int], int]) -> None:
        self.durable = 0
        self._order = order
        self._sync = sync
        self._lock = threading.Lock()
        self._has_leader = False
        self.followers: list[Follower] = []
        self._newest = 0
        self._group_size = 1
        self._patience = 0.0
        self._expected = _NONE
        self._complete = threading.Lock()
        self._complete.acquire()

    @property
    def is_syncing(self) -> bool:
        """Whether a thread syncs, or is about to."""
        return self._has_leader

    def arrived(self, sequence: int) -> None:
        """An entry was queued. Call it with the order lock held."""
        self._newest = sequence
        if sequence == self._expected:
            self._complete.release()

    def wait_for(self, sequence: int) -> None:
        """Return when an entry is durable.

        Raises:
            LogError: what the sync raised that this caller led.
        """
        with self._lock:
            if self.durable >= sequence:
                return
            me = Follower(sequence)
            if self._has_leader:
                self.followers.append(me)
            else:
                self._has_leader = me.leads = True
        if not me.leads:
            try:
                me.sleep()
            except BaseException:
                self._abandon(me)
                raise
        if me.leads:
            try:
                self._lead(sequence)
            finally:
                self._hand_over()

    def _abandon(self, me: Follower) -> None:
        """Give up waiting, as after Ctrl-C: no other thread may depend on this one any more."""
        with self._lock:
            if me in self.followers:
                self.followers.remove(me)
                return
        me.sleep()  # its wake-up is under way: it may have to lead
        if me.leads:
            self._hand_over()

    def _lead(self, sequence: int) -> None:
        self._await_group()
        began = time.perf_counter()
        durable = self._sync(sequence)
        self._patience = min(time.perf_counter() - began, _PATIENCE)
        self._group_size = max(1, self._newest - self.durable)
        self.durable = durable

    def _await_group(self) -> None:
        """Wait a moment until as many commits are queued as the last sync had."""
        with self._order:
            expected = self.durable + self._group_size
            if self._newest >= expected:
                return
            self._expected = expected
        try:
            self._complete.acquire(timeout=self._patience)
        finally:
            with self._order:
                self._expected = _NONE
                self._complete.acquire(blocking=False)  # released after the timeout, perhaps

    def _hand_over(self) -> None:
        """Wake one follower to lead, and those whose entries are durable."""
        with self._lock:
            done = [each for each in self.followers if each.sequence <= self.durable]
            self.followers = [each for each in self.followers if each.sequence > self.durable]
            self._has_leader = bool(self.followers)
            if self._has_leader:
                leader = self.followers.pop(0)
                leader.leads = True
                done.insert(0, leader)
        for one, following in pairwise(done):
            one.next = following
        if done:
            done[0].wake()
