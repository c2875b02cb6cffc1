"""The pace of a subscription: which batch is due, when to look again, how long to wait."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

from millstream.delivery.backpressure import MERGED_ROWS
from millstream.dispatch import forked
from millstream.errors import InvalidOptionError, ReceiveTimeoutError
from millstream.threads import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.delivery.inbox import Inbox
    from millstream.model.batch import ChangeBatch
    from millstream.subscriptions.options import SubscribeOptions


class PacedReader:
    """Takes batches from an inbox, never waiting, as options, demand and pauses allow.

    Args:
        inbox: where they come from.
        options: of these ``max_rows``, ``max_delay`` and ``demand``.

    Attributes:
        is_paused: nothing is handed over for now.
        pid: the process that may read.
    """

    __slots__ = ("_demand", "_demand_lock", "_inbox", "_options", "is_paused", "pid")

    def __init__(self, inbox: Inbox, options: SubscribeOptions) -> None:
        self.is_paused = False
        self.pid = os.getpid()
        self._inbox = inbox
        self._options = options
        self._demand = options.demand
        self._demand_lock = threading.Lock()

    def poll(self) -> ChangeBatch | None:
        """The next batch if there is one, if it is wanted, and if it is due.

        A signal that comes meanwhile loses nothing: the next call gives the batch.
        """
        if self.pid != os.getpid():
            raise forked()
        inbox = self._inbox
        if inbox.taken is None:
            if self.is_paused or self._demand == 0 or not inbox.may_have_news:
                return None
            if not self._take_only():
                self._take()
        taken = inbox.taken
        if taken is None:
            return None
        batch = taken[0]
        inbox.taken = None  # from here on there is no call until the reader has it
        return batch

    def _take_only(self) -> bool:
        """Take the one batch that waits; False when there is more to it than that."""
        if not self.is_unlimited():
            return False
        with self._demand_lock:
            return self._inbox.take_only()

    @uninterrupted
    def _take(self) -> None:
        """Take the next batch, if it is due."""
        inbox, options, limit = self._inbox, self._options, self._options.max_rows
        merge = MERGED_ROWS
        if options.max_delay is not None:
            if inbox.ready_in(limit, options.max_delay) != 0.0:
                return
            merge = limit or inbox.backlog.limit
        with self._demand_lock:
            demand = self._demand
            if inbox.taken is not None or demand == 0:
                return
            if demand is not None:
                limit = demand if limit is None else min(limit, demand)
            position = inbox.progress.position
            batch = inbox.take(limit, merge=merge)
            if batch is None:
                return
            if demand is not None:
                self._demand = max(0, demand - len(batch))
            inbox.taken = batch, position

    def wake_when_due(self, wake: Callable[[], None]) -> float | None:
        """Have a function called when it is worth polling again.

        Returns for how many seconds to wait for that: None, as long as it takes; 0, not at all.
        """
        inbox, options = self._inbox, self._options
        if self.is_paused or self._demand == 0:
            registered = inbox.wake_on_call(wake)
            if registered and not (self.is_paused or self._demand == 0):
                return 0.0  # resumed just now
            return None if registered else 0.0
        if options.max_delay is not None:
            delay = inbox.ready_in(options.max_rows, options.max_delay)
            if delay > 0.0:
                return delay if inbox.wake_on_offer(wake) else 0.0
        return None if inbox.wake_on_news(wake) else 0.0

    def is_unlimited(self) -> bool:
        """Whether batches may be handed over at once and as they were committed."""
        options = self._options
        return (
            self._demand is None
            and options.max_rows is None
            and options.max_delay is None
            and not self.is_paused
        )

    def request(self, rows: int) -> None:
        """Add to the demand, which limits from now on what is handed over."""
        with self._demand_lock:
            self._demand = (self._demand or 0) + rows

    @property
    def position(self) -> int:
        """Everything up to this LSN was handed over."""
        taken = self._inbox.taken
        return self._inbox.progress.position if taken is None else taken[1]

    def settled_lsn(self) -> int:
        """Everything up to this LSN was handed over, or is not in the result of the query."""
        inbox = self._inbox
        lsn = inbox.settled_lsn()
        if inbox.taken is not None:
            return self.position
        return inbox.progress.position if inbox.is_over else lsn


def deadline_of(timeout: float | None) -> float | None:
    """The moment at which a timeout is up; None: never.

    Raises:
        InvalidOptionError: it is no number of seconds.
    """
    if timeout is None:
        return None
    if type(timeout) is bool or not isinstance(timeout, (int, float)) or not timeout >= 0:
        raise InvalidOptionError(
            f"timeout is {timeout!r}",
            hint="a number of seconds, at least 0; or None, to wait without limit",
        )
    return None if timeout > threading.TIMEOUT_MAX else time.monotonic() + timeout


def timed_out(timeout: float | None) -> ReceiveTimeoutError:
    """The error for a wait in which nothing came."""
    return ReceiveTimeoutError(
        f"nothing was received within {timeout} seconds", hint="try_recv() gives None instead"
    )


def time_left(deadline: float | None, wait: float | None) -> float | None:
    """For how many seconds to sleep: until a deadline, at most for a wait. None: no limit."""
    if deadline is None:
        return wait
    left = max(0.0, deadline - time.monotonic())
    return left if wait is None else min(left, wait)
