"""What all styles of subscription share: lifecycle, position, acknowledgement, metrics.

The styles (``subscription``, ``callback``, ``stream``) only add their way of waiting.
"""

from __future__ import annotations

import itertools
import os
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Self

from millstream.delivery.pacing import PacedReader
from millstream.errors import (
    ClosedError,
    InvalidOptionError,
    InvalidTokenError,
    ReceiveTimeoutError,
)
from millstream.model.batch import ChangeBatch
from millstream.model.display import one_line, public_names
from millstream.threads import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.delivery.inbox import Inbox
    from millstream.log import Log
    from millstream.model.schema import Schema
    from millstream.subscriptions.options import SubscribedQuery, SubscribeOptions

State = Literal["active", "paused", "cancelled", "completed", "failed"]

_INTERNAL: Final = frozenset({"ack_mode", "awaits_snapshot", "check", "is_here", "start"})
_numbers: Final = itertools.count(1)


@dataclass(frozen=True, slots=True)
class SubscriptionMetrics:
    """Counters of a subscription, and its lag.

    Attributes:
        delivered: number of rows delivered.
        dropped: number of rows that the policy has dropped, or that retention has removed before
            they were read; each was reported in a gap.
        conflated: number of rows replaced by later changes of the same key.
        errors: number of exceptions raised by the callback.
        lag_rows: number of rows not delivered yet; an upper bound while reading from the log.
        lag_seconds: age of the oldest row not delivered yet.
        position: everything up to this LSN was delivered.
        acknowledged: of a durable subscription, everything up to this LSN was acknowledged.
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
    """The common part of all subscription styles, without a way of waiting.

    Its ``PacedReader`` decides which batch is due.

    Args:
        inbox: the pending batches.
        query: the query.
        options: the pace and the name.
        acknowledge: of a durable subscription, saves an LSN as acknowledged.
        acknowledged: of a durable subscription, returns the LSN acknowledged last.
        leave: called once, when the subscription ends.
        forgotten: called if the subscription is garbage collected before it has ended.

    Attributes:
        id: a number, unique in the process.
        sql: the query.
        schema: the columns of the query's result.
        target: the source, table or view that the query reads; empty: all of them.
        name: the name of a durable subscription, else None.
        tenant: the tenant whose rows are read, and who owns the name; None: all rows.
        backpressure: the policy for a slow reader.
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
        self.id: int = next(_numbers)
        self.sql: str = query.sql
        self.schema: Schema = query.schema
        self.target: str = query.target
        self.name: str | None = options.name
        self.tenant: str | None = query.tenant
        self.ack_mode = options.ack
        self.errors = 0
        self._inbox = inbox
        self._reader = PacedReader(
            inbox,
            max_rows=options.max_rows,
            max_delay=options.max_delay,
            demand=options.demand,
            only_durable=options.name is not None,
        )
        self._cancelled = False
        self._acknowledge = acknowledge
        self._acknowledged = acknowledged
        self._on_leave = leave
        # Has no reference to this object, so that a forgotten one leaves the routes as well.
        self._finalizer = weakref.finalize(self, forgotten, inbox)
        self._finalizer.atexit = False  # closing the database ends it in order

    def try_recv(self) -> ChangeBatch | None:
        """Return the next batch, or None if nothing is available.

        Raises:
            ClosedError: the subscription has ended.
        """
        batch = self._reader.poll()
        if batch is None:
            self.check()
            return None
        return self._own(batch)

    def _own(self, batch: ChangeBatch) -> ChangeBatch:
        """Return a batch that this subscription can acknowledge; others may share the batch."""
        if self._acknowledge is None:
            return batch
        return batch.acknowledged_by(self._acknowledge)

    # ---- lifecycle

    @uninterrupted
    def pause(self) -> None:
        """Stop delivery until ``resume``. Changes wait meanwhile, as the policy says."""
        self._reader.is_paused = True
        self._inbox.wake_up()

    @uninterrupted
    def resume(self) -> None:
        """Continue delivery after ``pause``."""
        self._reader.is_paused = False
        self._inbox.wake_up()

    @uninterrupted
    def request(self, rows: int) -> None:
        """Ask for ``rows`` more rows. From the first call on, only requested rows are delivered.

        The two rows of an update are never separated, and count as one if necessary.
        """
        if type(rows) is not int or rows < 1:
            raise InvalidOptionError(f"request({rows!r})", hint="an integer, at least 1")
        self._reader.request(rows)
        self._inbox.wake_up()

    @uninterrupted
    def cancel(self) -> None:
        """End the subscription, and discard undelivered changes. A second call does nothing."""
        self._cancelled = True
        if self._reader.pid != os.getpid():  # after a fork, absent threads may hold the locks
            self._finalizer.detach()
            return
        self._leave()
        self._inbox.discard()
        self._inbox.taken = None

    close = cancel

    @uninterrupted
    def _leave(self) -> None:
        if self._finalizer.detach() is not None:
            self._on_leave(self._inbox)

    @property
    def is_over(self) -> bool:
        """Whether the subscription has ended, and all of its changes were delivered."""
        return self._inbox.taken is None and self._inbox.is_over

    def check(self) -> None:
        """Raise the error that ended the subscription, once everything before it was delivered.

        Raises:
            ClosedError: the subscription was cancelled, or the database closed.
            SlowConsumerError: the reader was too slow for the policy ``disconnect``.
        """
        if not self.is_over:
            return
        self._leave()
        error = self._inbox.error
        if error is not None:
            raise error.again()
        raise ClosedError("the subscription is over", hint="subscribe again; resume with its token")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    # ---- what it is, and where

    @property
    def state(self) -> State:
        """``active``, ``paused``, ``cancelled``, ``completed`` or ``failed``."""
        if self._cancelled:
            return "cancelled"
        if self.is_over:
            return "completed" if self._inbox.error is None else "failed"
        return "paused" if self._reader.is_paused else "active"

    @property
    def backpressure(self) -> str:
        """The policy for a slow reader."""
        return str(self._inbox.backlog.policy)

    @property
    def position(self) -> int:
        """Everything up to this LSN was delivered."""
        return self._reader.position

    @property
    def settled(self) -> int:
        """Everything up to this LSN was delivered, or is not in the result of the query."""
        return self._reader.settled_lsn()

    @property
    def awaits_snapshot(self) -> bool:
        """Whether the snapshot still waits for the view to catch up."""
        return self._inbox.awaits_snapshot

    @property
    def token(self) -> str:
        """The token with which another subscription resumes after the last delivered batch."""
        return self._inbox.feed.token(self.position)

    def token_at(self, lsn: int) -> str:
        """Return the token with which another subscription resumes after an LSN."""
        return self._inbox.feed.token(lsn)

    @uninterrupted
    def ack(self, batch: ChangeBatch | str | int | None = None) -> None:
        """Acknowledge everything up to a batch, a token or an LSN; by default, all delivered.

        When the durable subscription is opened the next time, it resumes after that position.
        Acknowledging an earlier position than before has no effect.

        Raises:
            InvalidOptionError: the subscription has no name; or the argument is not a batch, a
                token or an LSN, or was not delivered yet.
            InvalidTokenError: the text is not a token of this database.
        """
        if self._acknowledge is None:
            raise InvalidOptionError(
                "only a durable subscription can acknowledge", hint="subscribe with name='...'"
            )
        lsn = None if batch is None else _lsn_of(batch, self.target, self._inbox.feed.log)
        settled = self._reader.settled_lsn()
        if lsn is not None and lsn > settled:
            raise InvalidOptionError(
                f"LSN {lsn:,} was not handed over: the subscription is at LSN {settled:,}",
                hint="acknowledge a batch that this subscription gave; without one, all it gave",
            )
        self._acknowledge(settled if lsn is None else lsn)

    @property
    def metrics(self) -> SubscriptionMetrics:
        """Counters, and the lag in rows and seconds."""
        inbox, backlog, taken = self._inbox, self._inbox.backlog, self._inbox.taken
        rows, since = inbox.lag()
        waited = 0.0 if since is None else (inbox.feed.log.clock() - since) / 1e6
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


def timed_out(timeout: float | None) -> ReceiveTimeoutError:
    """The error for a wait in which nothing came."""
    return ReceiveTimeoutError(
        f"nothing was received within {timeout} seconds", hint="try_recv() gives None instead"
    )


def _lsn_of(batch: ChangeBatch | str | int, target: str, log: Log) -> int:
    """The LSN that a batch of a target, a token or an LSN acknowledges."""
    if isinstance(batch, str):
        lsn = log.resume(batch)
        if lsn is None:
            raise InvalidTokenError(
                "the rows that this token has seen were lost in a crash",
                hint="acknowledge what was handed over since",
            )
        return lsn
    if isinstance(batch, ChangeBatch) and batch.topic in {"", target}:
        return batch.lsn
    if type(batch) is int and batch >= 0:
        return batch
    raise InvalidOptionError(
        f"cannot acknowledge {batch!r}",
        hint="a batch that this subscription gave, its token, or its LSN",
    )
