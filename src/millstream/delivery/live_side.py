"""The live side of an inbox: what the dispatcher offers, and the readers that wait for it.

It is written by the dispatcher's thread and read by the reader's, hence the lock.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

from millstream.delivery.backpressure import DISCONNECT, Backlog, Policy
from millstream.errors import Error, SlowConsumerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.delivery.feed import LogFeed
    from millstream.model.batch import ChangeBatch


class Progress:
    """How far a reader has come.

    Attributes:
        position: everything up to this LSN was taken.
        delivered: how many rows were taken.
        lost: how many rows retention has removed before they could be taken.
    """

    __slots__ = ("delivered", "lost", "position")

    def __init__(self) -> None:
        self.position = 0
        self.delivered = 0
        self.lost = 0


class LiveSide:
    """Accepts the batches that the dispatcher offers; it is the dispatcher's ``Subscriber``.

    Args:
        feed: what is subscribed to.
        policy: what happens when the backlog is full.
        limit: how many rows the backlog holds.
        progress: counts what is handed over without waiting in the backlog.
        tenant: the tenant that reads; errors then leave out other tenants' data.

    Attributes:
        outlives_failures: whether it stays when the view that it reads fails.
        lock: guards all that follows.
        backlog: what was offered and not taken yet.
        held: what was offered before it is known from which LSN on offers count; None: it is known.
        spilled_at: offers are not accepted: from this LSN on the log has to be read. None: they
            are.
        offer_waiters: called, once each, at the next offer, by ``wake_up`` or at the end.
        call_waiters: called, once each, by ``wake_up`` or at the end.
        receiver: called with the next batch; set by a reader that waits with nothing before it.
        is_ended: offers are not accepted any more.
        is_discarded: what is left is not wanted any more.
        error: why it ended, or None.
        filled_at: when the oldest batch of the backlog began to wait.
    """

    __slots__ = (
        "_after",
        "_fan_out",
        "_feed",
        "_progress",
        "_tenant",
        "backlog",
        "call_waiters",
        "error",
        "filled_at",
        "held",
        "is_discarded",
        "is_ended",
        "lock",
        "offer_waiters",
        "outlives_failures",
        "receiver",
        "spilled_at",
    )

    def __init__(
        self, feed: LogFeed, policy: Policy, limit: int, progress: Progress, tenant: str | None
    ) -> None:
        self.outlives_failures = False
        self.lock = threading.Lock()
        self.backlog = Backlog(policy, limit)
        self.held: list[ChangeBatch] | None = []
        self.spilled_at: int | None = None
        self.receiver: Callable[[ChangeBatch | None], None] | None = None
        self.is_ended = False
        self.is_discarded = False
        self.error: Error | None = None
        self.filled_at = 0.0
        self._feed = feed
        self._fan_out = feed.dispatcher.fan_out
        self._progress = progress
        self._tenant = tenant
        self._after = 0  # a commit up to this LSN was read otherwise while it was being offered
        self.offer_waiters: tuple[Callable[[], None], ...] = ()
        self.call_waiters: tuple[Callable[[], None], ...] = ()

    # ---- offers

    def offer(self, batch: ChangeBatch) -> None:
        """Accept a batch, as the policy allows."""
        with self.lock:
            if self.is_ended or self.spilled_at is not None or batch.lsn <= self._after:
                return
            receiver = self.receiver
            if receiver is not None:
                self.receiver = None
                progress = self._progress
                progress.position = batch.lsn
                progress.delivered += len(batch)
                self._fan_out.handed.append((receiver, batch))
                return
            if self.held is not None:
                self.held.append(batch)
                return
            self._put(batch)
            if self.offer_waiters:
                self._fan_out.wakes += self.offer_waiters
                self.offer_waiters = ()

    def _put(self, batch: ChangeBatch) -> None:
        backlog = self.backlog
        if not backlog.rows:
            self.filled_at = time.monotonic()
        if backlog.put(batch):
            return
        if backlog.policy.kind != DISCONNECT:
            self.spilled_at = batch.first_lsn
            return
        self.is_ended = True
        self.error = SlowConsumerError(
            f"the reader is {backlog.rows:,} rows behind, and its policy is disconnect",
            token=self._feed.token(batch.first_lsn - 1),
            hint="subscribe again with start=error.token; nothing is lost",
        )

    def hold_offers(self, *, clear: bool = False) -> None:
        """Keep what is offered from now on until ``admit`` says from which LSN on it counts.

        Args:
            clear: remove what is in the backlog.
        """
        with self.lock:
            self.held = []
            self._after = 0
            self.spilled_at = None
            if clear:
                self.backlog.clear()

    def refuse_offers(self) -> None:
        """Accept no offers until ``hold_offers``: the rows that are read then count them."""
        with self.lock:
            self.held = []
            self._after = sys.maxsize

    def admit(self, lsn: int) -> None:
        """Accept offers after an LSN, those that were held included."""
        with self.lock:
            self._after = lsn
            held, self.held = self.held or [], None
            for batch in held:
                if batch.lsn > lsn and self.spilled_at is None:
                    self._put(batch)

    def spill(self, lsn: int) -> None:
        """Accept no offers: everything from an LSN on will be read from the log."""
        with self.lock:
            self.held = None
            self.spilled_at = lsn

    def take(self, max_rows: int | None, merge: int) -> ChangeBatch | None:
        """Remove and return the next batch of the backlog; None when it is empty."""
        with self.lock:
            batch = self.backlog.take(max_rows, merge=merge)
            if batch is not None and self.backlog.has_news:
                self.filled_at = time.monotonic()
            return batch

    # ---- the end

    def fail(self, error: Error) -> None:
        """End with an error, raised once what is there was taken."""
        self.end(error)

    def end(self, error: Error | None = None) -> None:
        """Accept no more offers; what is there can still be taken."""
        with self.lock:
            if not self.is_ended:
                self.is_ended = True
                if error is not None and self._tenant is not None:
                    error = error.for_tenants()
                self.error = error
        self.wake_up()

    def end_now(self, error: Error) -> None:
        """End with an error, at once: what only the log has cannot be read."""
        with self.lock:
            self.spilled_at = None
            self.is_ended = True
            if self.error is None and not self.is_discarded:
                self.error = error
        self.wake_up()

    # ---- waiting

    def wake_on_offer(self, wake: Callable[[], None]) -> bool:
        """Have a function called, once, at the next offer or ``wake_up``; False: it has ended."""
        with self.lock:
            if self.is_ended:
                return False
            self.offer_waiters = (*self.offer_waiters, wake)
        return True

    def wake_on_call(self, wake: Callable[[], None]) -> bool:
        """Have a function called, once, by ``wake_up`` and not at an offer; False: it has ended."""
        with self.lock:
            if self.is_ended:
                return False
            self.call_waiters = (*self.call_waiters, wake)
        return True

    def forget(self, wake: Callable[[], None]) -> None:
        """Do not call a function any more."""
        with self.lock:
            self.offer_waiters = tuple(w for w in self.offer_waiters if w is not wake)
            self.call_waiters = tuple(w for w in self.call_waiters if w is not wake)

    def wake_up(self) -> None:
        """Wake every reader that waits, so that it checks its state."""
        with self.lock:
            waiters = self.offer_waiters + self.call_waiters
            self.offer_waiters = self.call_waiters = ()
            receiver, self.receiver = self.receiver, None
        for wake in waiters:
            wake()
        if receiver is not None:
            receiver(None)
