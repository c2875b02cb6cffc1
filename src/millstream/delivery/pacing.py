"""The pace of a reader: which batch of its inbox is due, and when to look again."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from millstream.delivery.backpressure import MERGED_ROWS
from millstream.dispatch import forked
from millstream.threads import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.delivery.inbox import Inbox
    from millstream.model.batch import ChangeBatch


class PacedReader:
    """Takes batches from an inbox, never waiting, as limits, demand and pauses allow.

    Args:
        inbox: where they come from.
        max_rows: at most so many rows in a batch.
        max_delay: wait so many seconds for ``max_rows`` rows.
        demand: initial credit in rows; more is delivered only as ``request`` asks.
        only_durable: hand over only what is on the disk, and wait for that.

    Attributes:
        is_paused: nothing is handed over for now.
        pid: the process that may read.
    """

    __slots__ = (
        "_demand",
        "_demand_lock",
        "_inbox",
        "_max_delay",
        "_max_rows",
        "_only_durable",
        "is_paused",
        "pid",
    )

    def __init__(
        self,
        inbox: Inbox,
        *,
        max_rows: int | None,
        max_delay: float | None,
        demand: int | None,
        only_durable: bool,
    ) -> None:
        self.is_paused = False
        self.pid = os.getpid()
        self._inbox = inbox
        self._max_rows = max_rows
        self._max_delay = max_delay
        self._demand = demand
        self._demand_lock = threading.Lock()
        self._only_durable = only_durable

    def poll(self) -> ChangeBatch | None:
        """The next batch if there is one, if it is wanted, and if it is due.

        A signal that comes meanwhile loses nothing: the next call gives the batch.

        Raises:
            LogError: the batch is to be on the disk, and cannot be written.
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
        if self._only_durable:
            inbox.feed.log.await_durable(batch.lsn)
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
        inbox, limit, max_delay = self._inbox, self._max_rows, self._max_delay
        merge = MERGED_ROWS
        if max_delay is not None:
            if inbox.ready_in(limit, max_delay) != 0.0:
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

    def poll_now(self) -> ChangeBatch | None:
        """As ``poll``, without the disk.

        Raises:
            BlockingIOError: the disk is needed: ``poll``, in a thread that may wait.
        """
        inbox = self._inbox
        if inbox.is_reading_log:
            raise BlockingIOError
        if not self._only_durable:
            return self.poll()
        if inbox.taken is not None or inbox.may_have_news:
            raise BlockingIOError
        return None

    def wake_when_due(self, wake: Callable[[], None]) -> float | None:
        """Have a function called when it is worth polling again.

        Returns for how many seconds to wait for that: None, as long as it takes; 0, not at all.
        """
        inbox, max_delay = self._inbox, self._max_delay
        if self.is_paused or self._demand == 0:
            registered = inbox.wake_on_call(wake)
            if registered and not (self.is_paused or self._demand == 0):
                return 0.0  # resumed just now
            return None if registered else 0.0
        if max_delay is not None:
            delay = inbox.ready_in(self._max_rows, max_delay)
            if delay > 0.0:
                return delay if inbox.wake_on_offer(wake) else 0.0
        return None if inbox.wake_on_news(wake) else 0.0

    def is_unlimited(self) -> bool:
        """Whether batches may be handed over at once and as they were committed."""
        return (
            self._demand is None
            and self._max_rows is None
            and self._max_delay is None
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
