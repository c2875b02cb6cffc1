"""The registry: opens subscriptions, knows those that are open, and ends them."""

from __future__ import annotations

import reprlib
import threading
import time
import weakref
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from millstream.delivery.inbox import Inbox
from millstream.delivery.policy import CONFLATE, Policy
from millstream.errors import InvalidOptionError, SubscriptionExistsError
from millstream.model.change import Gap
from millstream.model.clock import from_datetime, system_clock
from millstream.model.names import check_name
from millstream.model.token import PREFIX
from millstream.subscriptions.callback import CallbackSubscription, InlineSubscription
from millstream.subscriptions.positions import Durable
from millstream.subscriptions.reading import Pace, Reading

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.delivery.feed import Feed
    from millstream.log import Log
    from millstream.model.schema import Schema
    from millstream.subscriptions.positions import Positions

R = TypeVar("R", bound=Reading)
Start = str | int | datetime | None

CLOSE_SECONDS: Final = 5.0
"""How long closing waits for callbacks that are under way."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a subscriber asks for.

    Attributes:
        sql: the query.
        schema: the columns that it gives.
        start: where to begin.
        backpressure: the policy for a reader that is too slow.
        buffer_rows: how many rows wait in memory for it.
        pace: how rows are handed over.
        name: makes it durable.
        target: the log that it reads.
        tenant: whose rows it is given.
        has_state: whether the log has current rows to begin with.
        born: tokens from before this LSN are of another log of that name.
        check_there: raises if what it reads was dropped since the query was planned.
    """

    sql: str
    schema: Schema
    start: Start = None
    backpressure: str = "block"
    buffer_rows: int = 65536
    pace: Pace = field(default_factory=Pace)
    name: str | None = None
    target: str = ""
    tenant: str | None = None
    has_state: bool = False
    born: int = 0
    check_there: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name(self.name, "subscription")
        if type(self.buffer_rows) is not int or self.buffer_rows < 1:
            raise InvalidOptionError(
                f"buffer_rows is {self.buffer_rows!r}", hint="a number of rows, from 1 on"
            )

    def policy(self) -> Policy:
        """The policy, if this query can have it."""
        policy = Policy.parse(self.backpressure)
        if policy.kind == CONFLATE and not self.schema.key:
            raise InvalidOptionError(
                "changes can only be conflated by key, and this query gives none",
                hint="select the primary key of a table, or use drop_oldest",
            )
        return policy


class Registry:
    """All subscriptions of a database.

    Args:
        log: for tokens and times.
        positions: of the durable ones.
    """

    def __init__(self, log: Log, positions: Positions) -> None:
        self._log = log
        self._positions = positions
        self._lock = threading.Lock()
        self._open: dict[Inbox, weakref.ref[Reading]] = {}
        self._callbacks: dict[Inbox, CallbackSubscription] = {}  # nobody else need keep them
        self._inline: list[InlineSubscription] = []
        self._names: dict[str, Inbox] = {}

    # ---- opening

    def open(self, style: type[R], feed: Feed, wish: Wish, **more: Any) -> R:  # noqa: ANN401
        """A subscription that is ready: what is pushed from now on is seen.

        Raises:
            SubscriptionExistsError: its name is in use, or belongs to another query.
            InvalidOptionError: an option that cannot be.
            InvalidTokenError: a start that is no token of this database.
        """
        inbox = Inbox(feed, wish.policy(), wish.buffer_rows, tenant=wish.tenant)
        if wish.name is not None:
            self._reserve(wish.name, inbox)
        feed.join(inbox)
        try:
            wish.check_there()
            self._begin(inbox, wish)
            reading = style(
                inbox,
                wish.pace,
                sql=wish.sql,
                schema=wish.schema,
                target=wish.target,
                leave=self._left,
                forgotten=self._forgotten,
                **self._durably(wish),
                **more,
            )
        except BaseException:
            self._left(inbox)
            raise
        with self._lock:
            self._open[inbox] = weakref.ref(reading)
            if isinstance(reading, CallbackSubscription):
                self._callbacks[inbox] = reading
        if isinstance(reading, CallbackSubscription):
            reading.start()
        return reading

    def add_inline(self, subscription: InlineSubscription) -> None:
        """One that is called by pushers."""
        with self._lock:
            self._inline = [each for each in self._inline if each.state == "active"]
            self._inline.append(subscription)

    def _reserve(self, name: str, inbox: Inbox) -> None:
        with self._lock:
            if name in self._names:
                raise SubscriptionExistsError(
                    f"the subscription {name!r} is open already",
                    hint="cancel the other one first; a durable subscription has one reader",
                )
            self._names[name] = inbox

    def _begin(self, inbox: Inbox, wish: Wish) -> None:
        name = wish.name
        if name is None:
            self._start(inbox, wish.start, wish)
            return
        new = name not in self._positions
        wanted = Durable(name, wish.sql, wish.target, wish.tenant, -1)
        if new:
            self._start(inbox, wish.start, wish)
            begins_with_state = inbox.has_more_ahead
            lsn = -1 if begins_with_state else inbox.position
            self._positions.open(Durable(name, wish.sql, wish.target, wish.tenant, lsn))
            return
        lsn = self._positions.open(wanted).lsn
        if lsn < 0:
            self._start(inbox, wish.start, wish)
        else:
            inbox.start_at(lsn + 1)

    def _start(self, inbox: Inbox, start: Start, wish: Wish) -> None:
        self._place(inbox, start, wish)
        if not inbox.has_more_ahead:
            # There is nothing of this log before it was made: a token says that it is not older.
            inbox.position = max(inbox.position, wish.born - 1)

    def _place(self, inbox: Inbox, start: Start, wish: Wish) -> None:
        if start is None:
            start = "snapshot" if wish.has_state else "now"
        if start == "now":
            inbox.start_now()
        elif start == "snapshot":
            inbox.start_snapshot()
        elif start == "earliest":
            inbox.start_earliest()
        elif isinstance(start, datetime):
            inbox.start_at(self._lsn_at(inbox, start))
        elif isinstance(start, str) and start.startswith(PREFIX):
            self._resume(inbox, start, wish)
        elif type(start) is int and 0 <= start <= inbox.feed.lsn() + 1:
            inbox.start_at(max(start, 1))
        else:
            raise InvalidOptionError(
                f"start cannot be {reprlib.repr(start)}",
                hint='"now", "earliest", "snapshot", the token of a batch, a datetime that has '
                f"passed, or an LSN from 0 to {inbox.feed.lsn() + 1}",
            )

    def _lsn_at(self, inbox: Inbox, start: datetime) -> int:
        if from_datetime(start) > system_clock():
            raise InvalidOptionError(f"start is {start}, which is in the future", hint='use "now"')
        inbox.feed.dispatcher.barrier()
        return inbox.feed.lsn_since(start)

    def _resume(self, inbox: Inbox, token: str, wish: Wish) -> None:
        lsn = self._log.resume(token)
        if lsn is None:  # it has seen what a crash has taken: begin anew
            feed = inbox.feed
            inbox.start_snapshot(Gap(feed.earliest(), max(feed.earliest(), feed.lsn()), None))
        elif lsn + 1 < wish.born:  # that log was dropped, and this one made
            inbox.start_snapshot(Gap(lsn + 1, max(lsn + 1, wish.born), None))
        elif lsn == 0 and wish.has_state:
            inbox.start_snapshot()
        else:
            inbox.start_at(lsn + 1)

    def _durably(self, wish: Wish) -> dict[str, Any]:
        name, positions = wish.name, self._positions
        if name is None:
            return {}
        return {
            "name": name,
            "acknowledge": lambda lsn: positions.acknowledge(name, lsn),
            "acknowledged": lambda: max(0, positions[name].lsn) if name in positions else 0,
        }

    # ---- ending

    def _forgotten(self, inbox: Inbox) -> None:
        """The collector found one that nobody has any more: the dispatcher's thread sees to it.

        This thread may hold any lock just now, so it takes none.
        """
        inbox.feed.dispatcher.soon(lambda: self._left(inbox))

    def _left(self, inbox: Inbox) -> None:
        """A subscription is over."""
        inbox.feed.leave(inbox)
        inbox.end()
        with self._lock:
            self._open.pop(inbox, None)
            self._callbacks.pop(inbox, None)
            for name in [name for name, used in self._names.items() if used is inbox]:
                del self._names[name]

    def is_open(self, name: str) -> bool:
        """Whether a durable subscription has a reader."""
        return name in self._names

    def all(self) -> list[Reading | InlineSubscription]:
        """The subscriptions that are open."""
        with self._lock:
            found = [reading() for reading in self._open.values()]
            inline = [each for each in self._inline if each.state == "active"]
        return [*(each for each in found if each is not None), *inline]

    def end_all(self) -> None:
        """The database closes: all subscriptions complete, once they are read to their end."""
        with self._lock:
            inboxes, callbacks = list(self._open), list(self._callbacks.values())
            inline, self._inline = self._inline, []
        for inbox in inboxes:
            inbox.end()
        for each in inline:
            each.finish(told=True)
        deadline = time.monotonic() + CLOSE_SECONDS
        for callback in callbacks:
            callback.join(max(0.0, deadline - time.monotonic()))
