"""The inbox: where a subscription's batches come together, from the log and from the dispatcher.

A subscriber reads in one of two ways. *Live*: the dispatcher offers batches to its backlog. *From
the log*: at the start, or because a lossless subscriber is so slow that its backlog is full; what
does not fit there is in the log anyway. Offers are not taken then, and cost next to nothing.

The border between the two is exact. The subscriber first lets offers in, and then reads the
dispatcher's LSN, which the dispatcher sets before it offers a commit. So everything after that LSN
will be offered, and everything up to it is in the log; a batch that came both ways is told apart by
its LSN.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from millstream.delivery.backpressure import (
    CONFLATE,
    DISCONNECT,
    MERGED_ROWS,
    SAMPLE,
    Backlog,
    Policy,
    merge_gaps,
    slice_end,
)
from millstream.errors import (
    ClosedError,
    Error,
    LsnNotKeptError,
    SlowConsumerError,
    SubscriptionEndedError,
    TopicNotFoundError,
)
from millstream.model.batch import ChangeBatch
from millstream.model.clock import system_clock
from millstream.model.lsn import FIRST_LSN

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.delivery.feed import LogFeed
    from millstream.delivery.replay import Replay
    from millstream.model.change import Gap

_LOG_PATIENCE: Final = 0.05
"""How long, in seconds, to wait for the log to write what was committed, before looking again."""


class Inbox:
    """One subscriber's batches, in LSN order, each once. Any thread may take, one at a time.

    Attributes:
        feed: what it subscribes to.
        backlog: what was offered and not taken yet.
        position: everything up to this LSN was taken.
        delivered: how many rows were taken.
        taken: what was taken and has not reached the reader yet, and the position before it.
        lost: how many rows retention has taken before they could be.
        error: why it ended, or None.
    """

    __slots__ = (
        "__weakref__",
        "_after",
        "_ahead",
        "_gap",
        "_held",
        "_is_discarded",
        "_is_over",
        "_lock",
        "_offered_at",
        "_replay",
        "_sleepers",
        "_snapshot_until",
        "_spilled_at",
        "_taker",
        "_taking",
        "_tenant",
        "_waiters",
        "backlog",
        "delivered",
        "error",
        "feed",
        "lost",
        "position",
        "taken",
    )

    def __init__(
        self, feed: LogFeed, policy: Policy, limit: int, *, tenant: str | None = None
    ) -> None:
        self.feed = feed
        self._tenant = tenant
        self.backlog = Backlog(policy, limit)
        self.position = 0
        self.delivered = 0
        self.lost = 0
        self.taken: tuple[ChangeBatch, int] | None = None
        self.error: Error | None = None
        self._lock = threading.Lock()
        self._taking = threading.RLock()
        self._waiters: tuple[Callable[[], None], ...] = ()
        self._sleepers: tuple[Callable[[], None], ...] = ()
        self._taker: Callable[[ChangeBatch | None], None] | None = None
        self._is_over = False
        self._is_discarded = False
        self._offered_at = 0.0
        self._held: list[ChangeBatch] | None = []  # until it is known where the offers begin
        self._after = 0  # offers up to here came otherwise: their commit was just being offered
        self._spilled_at: int | None = None  # from here on, the log has to be read
        self._replay: Replay | None = None
        self._snapshot_until = 0
        self._ahead: deque[ChangeBatch] = deque()  # to be taken before anything else
        self._gap: Gap | None = None  # to be told with the next batch

    # ---- the dispatcher's side

    def offer(self, batch: ChangeBatch) -> None:
        """Take a batch, as the policy allows."""
        with self._lock:
            if self._is_over or self._spilled_at is not None or batch.lsn <= self._after:
                return
            taker = self._taker
            if taker is not None:  # it waits for just this, with nothing before it
                self._taker = None
                self.position = batch.lsn
                self.delivered += len(batch)
                self.feed.dispatcher.fan_out.handed.append((taker, batch))
                return
            if self._held is not None:
                self._held.append(batch)
                return
            self._put(batch)
            if self._waiters:
                self.feed.dispatcher.fan_out.wakes += self._waiters
                self._waiters = ()

    def _put(self, batch: ChangeBatch) -> None:
        if not self.backlog.rows:
            self._offered_at = time.monotonic()
        if self.backlog.put(batch):
            return
        if self.backlog.policy.kind != DISCONNECT:
            self._spilled_at = batch.first_lsn
            return
        self._is_over = True
        self.error = SlowConsumerError(
            f"the reader is {self.backlog.rows:,} rows behind, and its policy is disconnect",
            token=self.feed.token(batch.first_lsn - 1),
            hint="subscribe again with start=error.token; nothing is lost",
        )

    def fail(self, error: Error) -> None:
        """End with an error, once what is there was taken."""
        self.end(error)

    def end(self, error: Error | None = None) -> None:
        """Take no more offers; what is there can still be taken."""
        with self._lock:
            if not self._is_over:
                self._is_over = True
                if error is not None and self._tenant is not None:
                    error = error.for_tenants()
                self.error = error
        self.wake_up()

    def discard(self) -> None:
        """End, and let go of everything at once."""
        self._is_discarded = True
        self.end()
        with self._lock:
            self.backlog.clear()
        with self._taking:
            self._ahead.clear()
            self._spilled_at = None
            self._stop_replay()

    # ---- where to begin

    def start_now(self) -> None:
        """Begin with what is committed from now on."""
        self.position = self.feed.lsn()
        self._admit(self.position)

    def start_at(self, lsn: int) -> None:
        """Begin with an LSN."""
        with self._lock:
            self._held = None
            self._spilled_at = lsn
        self.position = lsn - 1

    def start_earliest(self) -> None:
        """Begin with the oldest row that is kept."""
        first, gap = self.feed.kept_from(FIRST_LSN)
        self._miss(gap)
        self.start_at(first)

    def _miss(self, gap: Gap | None) -> None:
        """Retention has taken rows, which the next batch reports."""
        if gap is not None:
            self.lost += gap.count or 0
            self._gap = merge_gaps(self._gap, gap)

    def start_snapshot(self, gap: Gap | None = None, first: int | None = None) -> None:
        """Begin with the current rows and go on with what changes them.

        A log without current rows begins with all that is kept of it, or from an LSN on.
        """
        with self._lock:
            self._held = []
            self._spilled_at = None
            self.backlog.clear()
        self._gap = merge_gaps(self._gap, gap)
        snapshot = self.feed.snapshot()
        if snapshot is not None:
            batches, lsn = snapshot
            self._ahead.extend(batches)
            self._admit(lsn)
        else:
            self._snapshot_until = self.feed.lsn()
            self.start_at(self.feed.earliest() if first is None else first)

    def _admit(self, lsn: int) -> None:
        """Take offers from now on, those after an LSN."""
        with self._lock:
            self._after = lsn
            held, self._held = self._held or [], None
            for batch in held:
                if batch.lsn > lsn and self._spilled_at is None:
                    self._put(batch)

    # ---- the reader's side

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come, now or later."""
        return self._is_discarded or (
            self._is_over
            and self._spilled_at is None
            and self._replay is None
            and not self._ahead
            and self._gap is None
            and not self.backlog.has_news
        )

    @property
    def may_have_news(self) -> bool:
        """Whether it is worth taking a batch. Takes no lock."""
        return (
            self._is_over
            or self._spilled_at is not None
            or self._replay is not None
            or bool(self._ahead)
            or self._gap is not None
            or self.backlog.has_news
        )

    @property
    def has_more_ahead(self) -> bool:
        """Whether a part of a batch that was taken is still to come."""
        return bool(self._ahead)

    @property
    def is_reading_log(self) -> bool:
        """Whether taking a batch may mean reading from the disk."""
        return self._replay is not None or (
            self._spilled_at is not None and not self.backlog.has_news
        )

    def ready_in(self, max_rows: int | None, max_delay: float) -> float:
        """In how many seconds the backlog is worth taking: enough rows, or waited for enough.

        Negative: nobody knows, since nothing is there.
        """
        with self._lock:
            if self._is_over or self._ahead or self._gap or self.is_reading_log:
                return 0.0
            enough = self.backlog.limit if max_rows is None else max_rows
            if self.backlog.rows >= enough or self._spilled_at is not None:
                return 0.0
            if not self.backlog.has_news:
                return -1.0
            return max(0.0, self._offered_at + max_delay - time.monotonic())

    def take(self, max_rows: int | None = None, *, merge: int = MERGED_ROWS) -> ChangeBatch | None:
        """The next batch, of at most so many rows; None when there is none at the moment."""
        with self._taking:
            while True:
                batch = self._next(max_rows, merge)
                if batch is not None:
                    return self._delivered(batch, max_rows)
                if not self._read_on():
                    return self._gap_alone(max_rows)

    def _gap_alone(self, max_rows: int | None) -> ChangeBatch | None:
        """A gap that nothing follows is reported at once, by a batch without rows."""
        gap = self._gap
        if gap is None or self._is_discarded or self._replay is not None:
            return None
        log, plan = self.feed.log, self.feed.plan
        alone = ChangeBatch(
            plan.schema,
            [],
            None,
            None,
            topic=plan.target,
            first_lsn=gap.first_lsn,
            lsn=max(gap.last_lsn, self.position),
            kind="snapshot" if self._snapshot_until > gap.last_lsn else "changes",
            committed_at=system_clock(),
            origin=log.origin,
        )
        return self._delivered(alone, max_rows)

    def take_only(self) -> bool:
        """Put the only batch that waits aside, as taken; False when there is more to it than that.

        The main thread does this itself, for speed: all changes are made without a call in between,
        so that no signal can come among them.
        """
        backlog = self.backlog
        with self._taking, self._lock:
            batch = backlog.only
            if batch is None or self._is_reading_otherwise():
                return False
            position, rows, waiting = self.position, len(batch), backlog.batches
            lsn = max(position, batch.lsn)
            self.taken = batch, position
            self.position = lsn
            self.delivered += rows
            backlog.rows = 0
            del waiting[0]
            return True

    def _is_reading_otherwise(self) -> bool:
        """Whether something else than the backlog comes next, or goes with it."""
        return (
            self.taken is not None
            or self._is_over
            or self._spilled_at is not None
            or self._replay is not None
            or self._gap is not None
            or bool(self._ahead)
        )

    def _next(self, max_rows: int | None, merge: int) -> ChangeBatch | None:
        if self._ahead:
            return self._ahead.popleft()
        if self._replay is not None:
            return self._replayed()
        with self._lock:
            batch = self.backlog.take(max_rows, merge=merge)
            if batch is not None and self.backlog.has_news:
                self._offered_at = time.monotonic()
            return batch

    def _read_on(self) -> bool:
        """Turn to the log, or away from it; False when there is nothing to be done."""
        replay = self._replay
        if replay is None:
            with self._lock:
                first = self._spilled_at
                if first is None or self._is_discarded or self.backlog.has_news:
                    return False
            self._begin_replay(first)
        elif self._is_done(replay):
            self._stop_replay()
        elif replay.target is None:  # all that is written was read
            self._turn_to_live(replay)
        else:
            return False
        return True

    def _turn_to_live(self, replay: Replay) -> None:
        """Let offers in, and read no further than where they begin."""
        with self._lock:
            self._held = None if self._is_over else []
            self._spilled_at = None
        # Rows of a sync commit are in the log before they are offered: they may have been read.
        replay.target = lsn = max(self.feed.lsn(), replay.position)
        self._admit(lsn)

    def _is_done(self, replay: Replay) -> bool:
        try:
            return replay.is_over
        except LsnNotKeptError:
            self._heal(self.position + 1)
        except Error as error:
            self._broken(error)
        return self._replay is None

    def _begin_replay(self, first: int) -> None:
        try:
            self._replay = self.feed.replay(first, self._snapshot_until)
        except LsnNotKeptError:
            self._heal(first)
        except Error as error:
            self._broken(error)

    def _replayed(self) -> ChangeBatch | None:
        replay = self._replay
        if replay is None or self._is_discarded:
            self._stop_replay()
            return None
        try:
            return self._counted(replay.next(0.0 if replay.target is None else _LOG_PATIENCE))
        except LsnNotKeptError:
            self._heal(self.position + 1)
        except Error as error:
            self._broken(error)
        return None

    def _counted(self, batch: ChangeBatch | None) -> ChangeBatch | None:
        if batch is not None and batch.gap is not None:
            self.lost += batch.gap.count or 0
        return batch

    def _heal(self, first: int) -> None:
        """Rows from an LSN on are gone: report it, and begin anew."""
        if self._replay is not None:  # rows that the query does not keep were passed as well
            first = max(first, self._replay.position + 1)
        self._stop_replay()
        try:
            start, gap = self.feed.kept_from(first)
            if gap is None:  # none of them was of this log
                self.start_at(start)
            else:
                self._miss(gap)
                self.start_snapshot(first=start)
        except Error as error:
            self._broken(error)

    def _broken(self, error: Error) -> None:
        """What is only in the log cannot be read."""
        self._stop_replay()
        if isinstance(error, ClosedError):
            error = SubscriptionEndedError(
                f"the database was closed when the reader was at LSN {self.position:,}",
                hint="open it again, and subscribe with start=subscription.token",
            )
        elif isinstance(error, TopicNotFoundError):
            error = SubscriptionEndedError("what the subscription reads was dropped")
        with self._lock:
            self._spilled_at = None
            self._is_over = True
            if self.error is None and not self._is_discarded:
                self.error = error
        self.wake_up()

    def _stop_replay(self) -> None:
        if self._replay is not None:
            self._miss(self._replay.gap_before())
            self._replay.close()
            self._replay = None

    def _delivered(self, batch: ChangeBatch, max_rows: int | None) -> ChangeBatch:
        # Who has a part of a netted batch is at no LSN at all.
        if max_rows is not None and len(batch) > max_rows and self.backlog.policy.kind != CONFLATE:
            end = slice_end(batch, max_rows)
            if end < len(batch):
                self._ahead.appendleft(batch.slice(end))
                batch = batch.slice(0, end)
        if self._gap is not None:
            batch = batch.copy(gap=merge_gaps(self._gap, batch.gap))
            self._gap = None
        self.position = max(self.position, batch.lsn)
        self.delivered += len(batch)
        return batch

    # ---- waiting

    def hand_to(self, taker: Callable[[ChangeBatch | None], None]) -> bool:
        """Give the next batch to a function as soon as there is one, without detours.

        It is called once: with the batch, or with None when it should look around. False, and
        nothing happens, when it should look around right now.
        """
        with self._lock:
            if (
                self._is_over
                or self._held is not None
                or self._spilled_at is not None
                or self._replay is not None
                or self._ahead
                or self._gap is not None
                or self.backlog.has_news
                or self.backlog.policy.kind == SAMPLE
            ):
                return False
            self._taker = taker
        return True

    def wake_on_news(self, wake: Callable[[], None]) -> bool:
        """Have a function called, once, when there is news; False when there is some already."""
        with self._lock:
            if self._is_over or self._ahead or self._gap or self.backlog.has_news:
                return False
            if self.is_reading_log:
                return False
            self._waiters = (*self._waiters, wake)
        return True

    def wake_on_more(self, wake: Callable[[], None]) -> bool:
        """Have a function called, once, at the next offer; False when there will be none."""
        with self._lock:
            if self._is_over:
                return False
            self._waiters = (*self._waiters, wake)
        return True

    def wake_when_told(self, wake: Callable[[], None]) -> bool:
        """Have a function called, once, at the end or by ``wake_up``; offers do not disturb it."""
        with self._lock:
            if self._is_over:
                return False
            self._sleepers = (*self._sleepers, wake)
        return True

    def forget(self, wake: Callable[[], None]) -> None:
        """It need not be called any more."""
        with self._lock:
            self._waiters = tuple(each for each in self._waiters if each is not wake)
            self._sleepers = tuple(each for each in self._sleepers if each is not wake)

    def wake_up(self) -> None:
        """Wake whoever waits, so that it looks around."""
        with self._lock:
            waiters = self._waiters + self._sleepers
            self._waiters = self._sleepers = ()
            taker, self._taker = self._taker, None
        for wake in waiters:
            wake()
        if taker is not None:
            taker(None)
