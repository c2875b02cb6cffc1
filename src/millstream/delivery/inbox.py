"""The inbox: one ordered sequence of batches, from the log and from the dispatcher.

A reader reads in one of two ways. *Live*: the dispatcher offers batches to its backlog
(``live_side``). *From the log*: at the start, or because a lossless reader is so slow that its
backlog is full; what does not fit there is in the log anyway (``log_side``). Offers are refused
meanwhile, which costs next to nothing. The inbox chooses which side the next batch comes from.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Literal

from millstream.delivery.backpressure import (
    CONFLATE,
    MERGED_ROWS,
    SAMPLE,
    Policy,
    merge_gaps,
    slice_end,
)
from millstream.delivery.live_side import LiveSide, Progress
from millstream.delivery.log_side import LogSide
from millstream.model.batch import ChangeBatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.delivery.feed import LogFeed
    from millstream.errors import Error
    from millstream.model.change import Gap


class Inbox:
    """One reader's batches, in LSN order, each once. Any thread may take, one at a time.

    ``open`` it and ``start`` it before taking. Nothing above this package names its two sides.

    Args:
        feed: what it subscribes to.
        policy: what happens when the reader is too slow.
        limit: how many rows wait in memory for it.
        tenant: the tenant that reads, or None.

    Attributes:
        feed: what it subscribes to.
        live: the live side, which joins the feed.
        log_side: the log side, which knows where to start.
        wake_up: wakes every reader that waits. A method of the live side, as are the next three:
            they are called at every wait, so there is no call in between.
        wake_on_offer: has a function called, once, at the next offer or ``wake_up``.
        wake_on_call: has a function called, once, by ``wake_up`` and not at an offer.
        forget: does not call a function any more.
        backlog: the live side's, what was offered and not taken yet.
        progress: how far the reader has come.
        taken: what was taken and has not reached the reader yet, and the position before it.
    """

    __slots__ = (
        "_taking",
        "backlog",
        "feed",
        "forget",
        "live",
        "log_side",
        "progress",
        "taken",
        "wake_on_call",
        "wake_on_offer",
        "wake_up",
    )

    def __init__(
        self, feed: LogFeed, policy: Policy, limit: int, *, tenant: str | None = None
    ) -> None:
        self.feed = feed
        self.progress = Progress()
        self.live = live = LiveSide(feed, policy, limit, self.progress, tenant)
        self.log_side = LogSide(feed, live, self.progress)
        self.backlog = live.backlog
        self.wake_up = live.wake_up
        self.wake_on_offer = live.wake_on_offer
        self.wake_on_call = live.wake_on_call
        self.forget = live.forget
        self.taken: tuple[ChangeBatch, int] | None = None
        self._taking = threading.RLock()

    # ---- from its beginning to its end

    def open(self) -> None:
        """Join the feed: what is committed from now on is held until ``start``."""
        self.feed.join(self.live)

    def start(
        self, start: Literal["now", "earliest", "snapshot"] | int, gap: Gap | None = None
    ) -> None:
        """Say where the reader begins.

        Args:
            start: with an LSN; ``now``, with what is committed from now on; ``earliest``, with the
                oldest row that is kept; ``snapshot``, with the current rows, then their changes.
                The rows of a view are waited for until they count what was committed before.
            gap: to be reported with the first batch of a snapshot.
        """
        if isinstance(start, int):
            self.log_side.start_at(start)
        elif start == "now":
            self.log_side.start_now()
        elif start == "earliest":
            self.log_side.start_earliest()
        else:
            self.log_side.start_when_ready(gap)

    def start_past(self, lsn: int, gap: Gap | None = None) -> None:
        """Have the reader begin with the rows that there were at an LSN, then their changes.

        Args:
            lsn: the LSN.
            gap: to be reported with the first batch.
        """
        self.log_side.start_past(lsn, gap)

    def end(self, error: Error | None = None) -> None:
        """Accept no more offers; what is there can still be taken, and then the error is raised."""
        self.live.end(error)

    def close(self) -> None:
        """Leave the feed, and end. Twice is fine."""
        self.feed.leave(self.live)
        self.live.end()

    def discard(self) -> None:
        """End, and drop everything that was not taken."""
        live, log = self.live, self.log_side
        live.is_discarded = True
        live.end()
        with live.lock:
            self.backlog.clear()
        with self._taking:
            log.ahead.clear()
            live.spilled_at = None
            log.stop()

    @property
    def error(self) -> Error | None:
        """Why it ended; None when it has not, or was closed."""
        return self.live.error

    # ---- what there is

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come, now or later."""
        live = self.live
        return live.is_discarded or (
            live.is_ended
            and live.spilled_at is None
            and self.log_side.is_idle
            and not self.backlog.has_news
        )

    @property
    def may_have_news(self) -> bool:
        """Whether it is worth taking a batch. Takes no lock."""
        live, log = self.live, self.log_side
        return (  # asked for every batch: log.is_idle is written out here, and in take_only
            live.is_ended
            or live.spilled_at is not None
            or log.replay is not None
            or bool(log.ahead)
            or log.gap is not None
            or log.is_snapshot_due
            or self.backlog.has_news
        )

    @property
    def awaits_snapshot(self) -> bool:
        """Whether the rows to begin with do not count yet what was committed before."""
        return self.log_side.awaits_snapshot

    @property
    def has_more_ahead(self) -> bool:
        """Whether the rows to begin with, or a part of a batch, are still to come."""
        return bool(self.log_side.ahead) or self.log_side.awaits_snapshot

    @property
    def is_reading_log(self) -> bool:
        """Whether taking a batch may mean reading from the disk."""
        return (
            self.log_side.replay is not None
            or self.log_side.is_snapshot_due
            or (self.live.spilled_at is not None and not self.backlog.has_news)
        )

    def lag(self) -> tuple[int, int | None]:
        """How many rows wait, at most, and when the oldest of them was committed, if known."""
        oldest, rows = self.backlog.oldest, self.backlog.rows
        if self.is_reading_log:
            rows = max(0, self.feed.lsn() - self.progress.position)
        return rows, None if oldest is None else oldest.committed_at

    def settled_lsn(self) -> int:
        """Everything up to this LSN was taken, or is not for this reader."""
        lsn = self.feed.offered_lsn()  # before looking at the backlog: later offers are after it
        if self.is_reading_log or self.backlog.has_news or self.has_more_ahead:
            return self.progress.position
        return max(lsn, self.progress.position)

    # ---- taking

    def take(self, max_rows: int | None = None, *, merge: int = MERGED_ROWS) -> ChangeBatch | None:
        """The next batch, of at most so many rows; None when there is none at the moment."""
        with self._taking:
            while True:
                batch = self._next(max_rows, merge)
                if batch is None and not self.log_side.advance():
                    batch = self._gap_alone()
                    if batch is None:
                        return None
                if batch is not None:
                    return self._delivered(batch, max_rows)

    def take_only(self) -> bool:
        """Put the only batch that waits aside, as taken; False when there is more to it than that.

        The main thread does this itself, for speed: all changes are made without a call in between,
        so that no signal can come among them.
        """
        live, log, backlog = self.live, self.log_side, self.backlog
        with self._taking, live.lock:
            batch = backlog.only
            if (
                batch is None
                or self.taken is not None
                or live.is_ended
                or live.spilled_at is not None
                or log.replay is not None
                or log.gap is not None
                or log.awaits_snapshot
                or log.ahead
            ):
                return False
            progress, waiting = self.progress, backlog.batches
            position, rows = progress.position, len(batch)
            lsn = max(position, batch.lsn)
            self.taken = batch, position
            progress.position = lsn
            progress.delivered += rows
            backlog.rows = 0
            del waiting[0]
            return True

    def _next(self, max_rows: int | None, merge: int) -> ChangeBatch | None:
        log = self.log_side
        if log.ahead:
            return log.ahead.popleft()
        if log.replay is not None:
            return log.next()
        return self.live.take(max_rows, merge)

    def _gap_alone(self) -> ChangeBatch | None:
        """A gap that nothing follows, as a batch without rows: it is reported at once."""
        log = self.log_side
        gap = log.gap
        if gap is None or self.live.is_discarded or log.replay is not None:
            return None
        plan = self.feed.plan
        return ChangeBatch(
            plan.schema,
            [],
            None,
            None,
            topic=plan.target,
            first_lsn=gap.first_lsn,
            lsn=max(gap.last_lsn, self.progress.position),
            kind="snapshot" if log.snapshot_until > gap.last_lsn else "changes",
            committed_at=self.feed.log.clock(),
            origin=self.feed.log.origin,
        )

    def _delivered(self, batch: ChangeBatch, max_rows: int | None) -> ChangeBatch:
        """A batch as the reader gets it: cut to ``max_rows``, with the gap before it, counted."""
        log, progress = self.log_side, self.progress
        # A part of a netted batch is at no LSN at all, so it is never cut.
        if max_rows is not None and len(batch) > max_rows and self.backlog.policy.kind != CONFLATE:
            end = slice_end(batch, max_rows)
            if end < len(batch):
                log.ahead.appendleft(batch.slice(end))
                batch = batch.slice(0, end)
        if log.gap is not None:
            batch = batch.copy(gap=merge_gaps(log.gap, batch.gap))
            log.gap = None
        progress.position = max(progress.position, batch.lsn)
        progress.delivered += len(batch)
        return batch

    # ---- waiting

    def ready_in(self, max_rows: int | None, max_delay: float) -> float:
        """In how many seconds the backlog has enough rows, or has waited for long enough.

        Negative: unknown, since it is empty.
        """
        live, log, backlog = self.live, self.log_side, self.backlog
        with live.lock:
            if live.is_ended or live.spilled_at is not None or not log.is_idle:
                return 0.0
            enough = backlog.limit if max_rows is None else max_rows
            if backlog.rows >= enough:
                return 0.0
            if not backlog.has_news:
                return -1.0
            return max(0.0, live.filled_at + max_delay - time.monotonic())

    def hand_to(self, receiver: Callable[[ChangeBatch | None], None]) -> bool:
        """Have the next batch given to a function, in the dispatcher's thread.

        It is called once: with the batch, or with None when the reader should check its state.
        Returns False, and it is not called, when the reader should do so right now.
        """
        live = self.live
        with live.lock:
            if (
                self.may_have_news
                or live.held is not None
                or self.backlog.policy.kind == SAMPLE  # counts rows in the backlog
            ):
                return False
            live.receiver = receiver
        return True

    def wake_on_news(self, wake: Callable[[], None]) -> bool:
        """Have a function called, once, when there is news; False when there is some already."""
        live = self.live
        with live.lock:
            if self.may_have_news:
                return False
            live.offer_waiters = (*live.offer_waiters, wake)
        return True
