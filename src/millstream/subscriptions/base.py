"""What all styles of subscription share: pace, lifecycle, acknowledgement, metrics.

``poll`` holds the logic and never waits; the styles (``subscription``, ``callback``, ``stream``)
only add their way of waiting.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Self

from millstream.delivery.backpressure import MERGED_ROWS
from millstream.dispatch import forked
from millstream.errors import (
    ClosedError,
    InvalidOptionError,
    InvalidTokenError,
    ReceiveTimeoutError,
)
from millstream.model.batch import ChangeBatch
from millstream.model.clock import system_clock
from millstream.model.display import one_line, public_names
from millstream.threads import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.delivery.inbox import Inbox
    from millstream.subscriptions.options import SubscribedQuery, SubscribeOptions

State = Literal["active", "paused", "cancelled", "completed", "failed"]

_INTERNAL: Final = frozenset({"check", "is_here", "poll", "poll_again", "start"})
_numbers: Final = itertools.count(1)


@dataclass(frozen=True, slots=True)
class SubscriptionMetrics:
    """What a subscription has done so far.

    Attributes:
        delivered: rows that were handed over.
        dropped: rows that its policy has dropped, or that retention has taken before it could read
            them; each was reported in a gap.
        conflated: rows that later changes have made needless.
        errors: how many times its callback has raised.
        lag_rows: rows that it has not been given yet; while it reads from the log, at most so many.
        lag_seconds: for how long the oldest of them has been committed.
        position: everything up to this LSN was handed over.
        acknowledged: for a durable one, everything up to this LSN is done with.
    """

    delivered: int
    dropped: int
    conflated: int
    errors: int
    lag_rows: int
    lag_seconds: float
    position: int
    acknowledged: int | None


class SubscriptionBase:
    """A subscription without a way of waiting.

    Attributes:
        id: a number, unique in the process.
        sql: the query.
        schema: the columns that it gives.
        target: the source or table that it reads; empty for all of them.
        name: the name of a durable one, else None.
        backpressure: its policy.
    """

    style = "channel"

    def __init__(
        self,
        inbox: Inbox,
        query: SubscribedQuery,
        options: SubscribeOptions,
        *,
        acknowledge: Callable[[int], None] | None = None,
        acknowledged: Callable[[], int] | None = None,
        leave: Callable[[Inbox], None],
        forgotten: Callable[[Inbox], None],
    ) -> None:
        self.id = next(_numbers)
        self.sql = query.sql
        self.schema = query.schema
        self.target = query.target
        self.name = options.name
        self.errors = 0
        self._inbox = inbox
        self._options = options
        self._demand = options.demand
        self._paused = False
        self._cancelled = False
        self._control = threading.Lock()
        self._pid = os.getpid()
        self._acknowledge = acknowledge
        self._acknowledged = acknowledged
        self._leaving = leave
        # Knows nothing of this object, so that one that was forgotten leaves the routes, too.
        self._finalizer = weakref.finalize(self, forgotten, inbox)
        self._finalizer.atexit = False  # the database ends it then, in peace

    # ---- what there is

    def poll(self) -> ChangeBatch | None:
        """The next batch if there is one, if it is wanted, and if it is time for it.

        A signal that comes meanwhile loses nothing: the next one who polls is given the batch.
        """
        if self._pid != os.getpid():
            raise forked()
        inbox = self._inbox
        if inbox.taken is None:
            if self._paused or self._demand == 0 or not inbox.may_have_news:
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
        if not self._may_be_handed():
            return False
        with self._control:
            return self._inbox.take_only()

    @uninterrupted
    def _take(self) -> None:
        """Take the next batch, if it is time for it."""
        pace, limit = self._options, self._options.max_rows
        merge = MERGED_ROWS
        if pace.max_delay is not None:
            if self._inbox.ready_in(pace.max_rows, pace.max_delay) != 0.0:
                return
            merge = limit or self._inbox.backlog.limit
        with self._control:
            demand = self._demand
            if self._inbox.taken is not None or demand == 0:
                return
            if demand is not None:
                limit = demand if limit is None else min(limit, demand)
            position = self._inbox.progress.position
            batch = self._inbox.take(limit, merge=merge)
            if batch is None:
                return
            if demand is not None:
                self._demand = max(0, demand - len(batch))
            self._inbox.taken = batch, position

    def try_recv(self) -> ChangeBatch | None:
        """The next batch if there is one; None when there is none at the moment.

        Raises:
            ClosedError: the subscription is over.
        """
        batch = self.poll()
        if batch is None:
            self.check()
        return batch

    def poll_again(self, wake: Callable[[], None]) -> float | None:
        """Have a function called when it is worth polling again.

        Returns for how many seconds to wait for that: None, as long as it takes; 0, not at all.
        """
        inbox, pace = self._inbox, self._options
        if self._paused or self._demand == 0:
            registered = inbox.live.wake_on_call(wake)
            if registered and not (self._paused or self._demand == 0):
                return 0.0  # resumed just now
            return None if registered else 0.0
        if pace.max_delay is not None:
            delay = inbox.ready_in(pace.max_rows, pace.max_delay)
            if delay > 0.0:
                return delay if inbox.live.wake_on_offer(wake) else 0.0
        return None if inbox.wake_on_news(wake) else 0.0

    def _may_be_handed(self) -> bool:
        """Whether batches may be handed over just as they come."""
        pace = self._options
        return (
            self._demand is None
            and pace.max_rows is None
            and pace.max_delay is None
            and not self._paused
        )

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self._inbox.taken is None and self._inbox.is_over

    def check(self) -> None:
        """Raise what ended the subscription, once all before it was handed over.

        Raises:
            ClosedError: it was cancelled, or the database closed.
            SlowConsumerError: it was too slow for its policy.
        """
        if not self.is_over:
            return
        self._leave()
        if self._inbox.live.error is not None:
            raise self._inbox.live.error.again()
        raise ClosedError("the subscription is over", hint="subscribe again; resume with its token")

    # ---- steering

    @uninterrupted
    def pause(self) -> None:
        """Hand over nothing until ``resume``; what comes meanwhile is kept, as the policy says."""
        self._paused = True
        self._inbox.live.wake_up()

    @uninterrupted
    def resume(self) -> None:
        """Go on after ``pause``."""
        self._paused = False
        self._inbox.live.wake_up()

    @uninterrupted
    def request(self, rows: int) -> None:
        """Ask for so many rows more; from the first call on, no more than asked for are given.

        The two rows of an update are never parted, and count as one if need be.
        """
        if type(rows) is not int or rows < 1:
            raise InvalidOptionError(f"request({rows!r})", hint="a number of rows, from 1 on")
        with self._control:
            self._demand = (self._demand or 0) + rows
        self._inbox.live.wake_up()

    @uninterrupted
    def cancel(self) -> None:
        """End the subscription now; what it has not handed over is let go. Twice is fine."""
        self._cancelled = True
        if self._pid != os.getpid():  # the locks are those of threads that are not here
            self._finalizer.detach()
            return
        self._leave()
        self._inbox.discard()
        self._inbox.taken = None

    close = cancel

    @uninterrupted
    def _leave(self) -> None:
        if self._finalizer.detach() is not None:
            self._leaving(self._inbox)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    # ---- where it is

    @property
    def state(self) -> State:
        """Whether it is active, paused, cancelled, completed or failed."""
        if self._cancelled:
            return "cancelled"
        if self.is_over:
            return "completed" if self._inbox.live.error is None else "failed"
        return "paused" if self._paused else "active"

    @property
    def backpressure(self) -> str:
        """Its policy."""
        return str(self._inbox.backlog.policy)

    @property
    def position(self) -> int:
        """Everything up to this LSN was handed over."""
        taken = self._inbox.taken
        return self._inbox.progress.position if taken is None else taken[1]

    @property
    def token(self) -> str:
        """The text from which another subscription goes on after what this one was given."""
        return self._inbox.feed.token(self.position)

    def token_at(self, lsn: int) -> str:
        """The text from which another subscription goes on after an LSN."""
        return self._inbox.feed.token(lsn)

    @uninterrupted
    def ack(self, batch: ChangeBatch | str | int | None = None) -> None:
        """Done with everything up to a batch, a token or an LSN, or with all that was handed over.

        A durable subscription goes on after it when it is opened the next time. To acknowledge
        less than before changes nothing.

        Raises:
            InvalidOptionError: the subscription has no name; or what is acknowledged is none of
                these, or was not handed over yet.
            InvalidTokenError: text that is no token of this database.
        """
        if self._acknowledge is None:
            raise InvalidOptionError(
                "only a durable subscription can acknowledge", hint="subscribe with name='...'"
            )
        lsn = None if batch is None else self._lsn_of(batch)
        settled = self._settled_lsn()
        if lsn is not None and lsn > settled:
            raise InvalidOptionError(
                f"LSN {lsn:,} was not handed over: the subscription is at LSN {settled:,}",
                hint="acknowledge a batch that this subscription gave; without one, all it gave",
            )
        self._acknowledge(settled if lsn is None else lsn)

    def _lsn_of(self, batch: ChangeBatch | str | int) -> int:
        """The LSN up to which something that was acknowledged goes."""
        if isinstance(batch, str):
            lsn = self._inbox.feed.log.resume(batch)
            if lsn is None:
                raise InvalidTokenError(
                    "the rows that this token has seen were lost in a crash",
                    hint="acknowledge what was handed over since",
                )
            return lsn
        if isinstance(batch, ChangeBatch) and batch.topic in {"", self.target}:
            return batch.lsn
        if type(batch) is int and batch >= 0:
            return batch
        raise InvalidOptionError(
            f"cannot acknowledge {batch!r}",
            hint="a batch that this subscription gave, its token, or its LSN",
        )

    def _settled_lsn(self) -> int:
        """Up to where everything was handed over, rows that the query does not keep included."""
        lsn = self._inbox.settled_lsn()
        if self._inbox.taken is not None:
            return self.position
        return self._inbox.progress.position if self._inbox.is_over else lsn

    @property
    def metrics(self) -> SubscriptionMetrics:
        """Counters, and how far it is behind."""
        inbox, backlog, taken = self._inbox, self._inbox.backlog, self._inbox.taken
        oldest = backlog.oldest
        rows = backlog.rows
        if inbox.is_reading_log:
            rows = max(0, inbox.feed.lsn() - inbox.progress.position)
        waited = 0.0 if oldest is None else (system_clock() - oldest.committed_at) / 1e6
        return SubscriptionMetrics(
            delivered=inbox.progress.delivered - (0 if taken is None else len(taken[0])),
            dropped=backlog.dropped + inbox.progress.lost,
            conflated=backlog.conflated,
            errors=self.errors,
            lag_rows=rows,
            lag_seconds=max(0.0, waited),
            position=self.position,
            acknowledged=None if self._acknowledged is None else self._acknowledged(),
        )

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"<{type(self).__name__}{name} {self.state}: {one_line(self.sql)}>"

    def __dir__(self) -> list[str]:
        return public_names(self, _INTERNAL)


def deadline_of(timeout: float | None) -> float | None:
    """The moment at which a timeout is up; None: never.

    Raises:
        InvalidOptionError: it is no number of seconds.
    """
    if timeout is None:
        return None
    if type(timeout) is bool or not isinstance(timeout, (int, float)) or not timeout >= 0:
        raise InvalidOptionError(
            f"timeout is {timeout!r}", hint="a number of seconds from 0 on, or None: wait"
        )
    return None if timeout > threading.TIMEOUT_MAX else time.monotonic() + timeout


def timed_out(timeout: float | None) -> ReceiveTimeoutError:
    """The error for a wait in which nothing came."""
    return ReceiveTimeoutError(
        f"nothing came within {timeout} seconds", hint="try_recv() gives None instead"
    )


def time_left(deadline: float | None, wait: float | None) -> float | None:
    """For how long to sleep: the shorter of what is left and of a wait. None: no end."""
    if deadline is None:
        return wait
    left = max(0.0, deadline - time.monotonic())
    return left if wait is None else min(left, wait)
