"""Turns: many wait for the disk, one syncs for all of them. This is group commit.

Who comes while nobody syncs takes the lead: it writes and syncs everything that is queued. Who
comes meanwhile sleeps, and is woken either because its rows are durable or to take the lead itself.

Those who shared a sync come back within microseconds, one after the other, each with a new commit.
If the first of them led at once it would sync alone, and the others would wait for it and then once
more for themselves. So a leader first waits until as many are there as were the last time, but
never for longer than a sync takes, or a millisecond, and not at all when nobody shares.
"""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_NOBODY: Final = -1
_PATIENCE: Final = 0.001


class Turn:
    """One sleep: until what was waited for is durable, or until it is one's turn to lead."""

    __slots__ = ("_asleep", "leads", "next", "sequence")

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self.leads = False
        self.next: Turn | None = None
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def sleep(self) -> None:
        """Wait to be woken; then wake the next one.

        Threads that are woken all at once fight for the interpreter before they can do anything;
        one by one they get it in turn. With eight of them that is a quarter more commits a second.
        """
        self._asleep.acquire()
        if self.next is not None:
            self.next.wake()

    def wake(self) -> None:
        """End the sleep."""
        self._asleep.release()


class Turns:
    """Brings entries of a queue to the disk, in order, as few syncs as can be.

    Args:
        order: the lock under which entries are numbered, and ``arrived`` is called.
        sync: brings everything up to an entry to the disk, and says how far it came.

    Attributes:
        durable: the number of the last entry that is on the disk.
    """

    def __init__(self, order: threading.Lock, sync: Callable[[int], int]) -> None:
        self.durable = 0
        self._order = order
        self._sync = sync
        self._lock = threading.Lock()
        self._led = False
        self._waiting: list[Turn] = []
        self._newest = 0
        self._company = 1
        self._patience = 0.0
        self._expected = _NOBODY
        self._complete = threading.Lock()
        self._complete.acquire()

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
            turn = Turn(sequence)
            if self._led:
                self._waiting.append(turn)
            else:
                self._led = turn.leads = True
        if not turn.leads:
            try:
                turn.sleep()
            except BaseException:
                self._abandon(turn)
                raise
        if turn.leads:
            try:
                self._lead(sequence)
            finally:
                self._pass_on()

    def _abandon(self, turn: Turn) -> None:
        """The sleep was interrupted, as by Ctrl-C; nobody else may depend on it from now on."""
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return
        turn.sleep()  # its wake-up is under way: take it, and with it what it asks for
        if turn.leads:
            self._pass_on()

    def _lead(self, sequence: int) -> None:
        self._gather()
        began = time.perf_counter()
        durable = self._sync(sequence)
        self._patience = min(time.perf_counter() - began, _PATIENCE)
        self._company = max(1, self._newest - self.durable)
        self.durable = durable

    def _gather(self) -> None:
        with self._order:
            expected = self.durable + self._company
            if self._newest >= expected:
                return
            self._expected = expected
        try:
            self._complete.acquire(timeout=self._patience)
        finally:
            with self._order:
                self._expected = _NOBODY
                self._complete.acquire(blocking=False)  # released after the timeout, perhaps

    def _pass_on(self) -> None:
        """Wake one of the others to lead, and whoever is done."""
        with self._lock:
            done = [turn for turn in self._waiting if turn.sequence <= self.durable]
            self._waiting = [turn for turn in self._waiting if turn.sequence > self.durable]
            self._led = bool(self._waiting)
            if self._led:
                leader = self._waiting.pop(0)
                leader.leads = True
                done.insert(0, leader)
        for turn, following in pairwise(done):
            turn.next = following
        if done:
            done[0].wake()
