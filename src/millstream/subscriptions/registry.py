"""The registry: opens subscriptions, keeps track of those that are open, and ends them."""

from __future__ import annotations

import contextlib
import reprlib
import threading
import time
import weakref
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from millstream.delivery.backpressure import BLOCK, Policy
from millstream.delivery.inbox import Inbox
from millstream.errors import InvalidOptionError, LsnNotKeptError, SubscriptionExistsError
from millstream.model.change import Gap
from millstream.model.clock import from_datetime
from millstream.model.lsn import FIRST_LSN, PREFIX
from millstream.subscriptions.base import SubscriptionBase
from millstream.subscriptions.callback import CallbackSubscription, InlineSubscription
from millstream.subscriptions.cuts import CutInbox, CutPart, tokens_of
from millstream.subscriptions.position_rows import DurablePosition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from millstream.delivery.feed import LogFeed
    from millstream.log import Log
    from millstream.subscriptions.options import Start, SubscribedQuery, SubscribeOptions
    from millstream.subscriptions.position_rows import OwnedName
    from millstream.subscriptions.positions import Positions
    from millstream.views.cuts import ViewCuts

R = TypeVar("R", bound=SubscriptionBase)

CLOSE_SECONDS: Final = 5.0
"""How long closing waits for callbacks that are under way."""


class Registry:
    """All subscriptions of a database.

    Args:
        log: resolves tokens.
        positions: the positions of the durable ones.
    """

    def __init__(self, log: Log, positions: Positions) -> None:
        self._log = log
        self._positions = positions
        self._lock = threading.Lock()
        self._open: dict[Inbox, weakref.ref[SubscriptionBase]] = {}
        self._callbacks: dict[Inbox, CallbackSubscription] = {}  # kept alive here
        self._inline: list[InlineSubscription] = []
        self._names: dict[OwnedName, Inbox | None] = {}
        self._is_over = False  # the database closes

    # ---- opening

    def open(
        self,
        style: type[R],
        feed: LogFeed,
        query: SubscribedQuery,
        options: SubscribeOptions,
        **callbacks: Any,  # noqa: ANN401 - of the style
    ) -> R:
        """Open a subscription; a row that is pushed after this returns is delivered to it.

        Args:
            style: its class.
            feed: the log that it reads.
            query: its query.
            options: where it starts, its pace, its policy, its name.
            callbacks: further arguments of the class.

        Raises:
            SubscriptionExistsError: its name is in use, or belongs to another query.
            InvalidOptionError: an option has a value that it cannot have.
            InvalidTokenError: a start that is no token of this database.
        """
        inbox = Inbox(feed, options.policy(query.schema), options.buffer_rows, tenant=query.tenant)
        if options.name is not None:
            self._reserve((query.tenant, options.name), inbox)
        try:
            inbox.open()
            query.check_exists()
            self._begin(inbox, query, options)
            if options.name is not None:
                self._check_target((query.tenant, options.name), query)
        except BaseException:
            self._left(inbox)
            raise
        return self._opened(style, inbox, query, options, callbacks)

    def open_cut(
        self,
        style: type[R],
        feeds: Mapping[str, tuple[LogFeed, SubscribedQuery]],
        cuts: ViewCuts,
        options: SubscribeOptions,
        **callbacks: Any,  # noqa: ANN401 - of the style
    ) -> R:
        """Open a subscription to several queries, which is given cuts.

        Args:
            style: its class.
            feeds: of each query, the log that it reads.
            cuts: finds where all views among them are exact.
            options: where it starts, and how many rows of each query wait in memory.
            callbacks: further arguments of the class.
        """
        starts = [options.start] * len(feeds)
        if isinstance(options.start, str) and options.start.startswith(PREFIX):
            starts = [*tokens_of(options.start, len(feeds))]
        parts: dict[str, CutPart] = {}
        first = next(iter(feeds.values()))[1]
        try:
            for (text, (feed, query)), start in zip(feeds.items(), starts, strict=True):
                policy = Policy(BLOCK)
                inbox = Inbox(feed, policy, options.buffer_rows, tenant=query.tenant)
                view = query.target if query.is_view else None
                # Before it was created there was nothing: a token of that time is of another one.
                parts[text] = CutPart(inbox, view, position=query.born - 1)
                inbox.open()
                query.check_exists()
                # Rows of the past are no cut: each view has had its own place.
                self._start(inbox, start, replace(query, has_past=False))
        except BaseException:
            for part in parts.values():
                part.inbox.close()
            raise
        whole = replace(first, sql=", ".join(feeds), target="")
        inbox = CutInbox(parts, cuts, options.buffer_rows, first.tenant)
        return self._opened(style, inbox, whole, options, callbacks)

    def _opened(
        self,
        style: type[R],
        inbox: Inbox,
        query: SubscribedQuery,
        options: SubscribeOptions,
        callbacks: dict[str, Any],
    ) -> R:
        """The subscription to an inbox that has begun."""
        try:
            opened = style(
                inbox,
                query,
                options,
                leave=self._left,
                forgotten=self._forgotten,
                **self._acknowledging(query.tenant, options.name),
                **callbacks,
            )
        except BaseException:
            self._left(inbox)
            raise
        with self._lock:
            self._open[inbox] = weakref.ref(opened)
            is_over = self._is_over
            if isinstance(opened, CallbackSubscription):
                self._callbacks[inbox] = opened
        if is_over:  # opened while the others were ended
            inbox.end()
        if isinstance(opened, CallbackSubscription):
            opened.start()
        return opened

    def add_inline(self, subscription: InlineSubscription) -> None:
        """Keep track of a subscription that pushers call."""
        with self._lock:
            self._inline = [each for each in self._inline if each.state == "active"]
            self._inline.append(subscription)

    def _check_target(self, key: OwnedName, query: SubscribedQuery) -> None:
        """Drop a position that was made after its target was dropped, and with it all others."""
        if query.target not in self._log.topics and key in self._positions:
            self._positions.drop(key)
            query.check_exists()

    @contextlib.contextmanager
    def claimed(self, key: OwnedName) -> Iterator[None]:
        """Keep a name from being opened, while its position is dropped.

        Raises:
            SubscriptionExistsError: it is open.
        """
        self._reserve(key, None)
        try:
            yield
        finally:
            with self._lock:
                self._names.pop(key, None)

    def _reserve(self, key: OwnedName, inbox: Inbox | None) -> None:
        with self._lock:
            if key in self._names:
                raise SubscriptionExistsError(
                    f"the subscription {key[1]!r} is open already",
                    hint="cancel the other one first; a durable subscription has one reader",
                )
            self._names[key] = inbox

    def _begin(self, inbox: Inbox, query: SubscribedQuery, options: SubscribeOptions) -> None:
        """Place a reader: after what a durable one has acknowledged, else where it wants to be."""
        name, start = options.name, options.start
        if name is None:
            self._start(inbox, start, query)
            return
        durable = DurablePosition(name, query.sql, query.target, query.tenant, -1)
        if durable.key in self._positions:
            lsn = self._positions.open(durable).lsn
            if lsn < 0 or options.reset:
                self._start(inbox, start, query)
            elif query.is_view and lsn + 1 < query.born:  # acknowledged of one that was replaced
                inbox.start("snapshot", Gap(lsn + 1, query.born, None))
            else:
                inbox.start(lsn + 1)
            return
        self._start(inbox, start, query)
        begins_with_state = inbox.has_more_ahead
        lsn = -1 if begins_with_state else inbox.progress.position
        self._positions.open(replace(durable, lsn=lsn))

    def _start(self, inbox: Inbox, start: Start, query: SubscribedQuery) -> None:
        self._place(inbox, start, query)
        if not inbox.has_more_ahead:
            # The log has nothing from before it was created: a token of now is not older.
            inbox.progress.position = max(inbox.progress.position, query.born - 1)

    def _place(self, inbox: Inbox, start: Start, query: SubscribedQuery) -> None:
        if start is None:
            start = "snapshot" if query.has_state else "now"
        if start == "now":
            inbox.start("now")
        elif start == "snapshot":
            inbox.start("snapshot")
        elif start == "earliest":
            self._place_earliest(inbox, query)
        elif isinstance(start, datetime):
            self._place_at(inbox, start, query)
        elif isinstance(start, str) and start.startswith(PREFIX):
            self._resume(inbox, start, query)
        elif type(start) is int and 0 <= start <= inbox.feed.lsn() + 1:
            if query.has_past:
                inbox.start_past(min(start, inbox.feed.lsn()))
            else:
                inbox.start(max(start, 1))
        else:
            raise InvalidOptionError(
                f"invalid start: {reprlib.repr(start)}",
                hint='"now", "earliest", "snapshot", the token of a batch, a datetime in the '
                f"past, or an LSN from 0 to {inbox.feed.lsn() + 1}",
            )

    def _place_earliest(self, inbox: Inbox, query: SubscribedQuery) -> None:
        """Begin with all changes that are kept, on the rows that they begin with, if it has any."""
        first, gap = inbox.feed.kept_from(FIRST_LSN)
        if gap is None or not query.has_past:
            inbox.start("earliest")
            return
        try:
            inbox.start_past(first, gap)
        except LsnNotKeptError:  # retention was faster
            inbox.start("snapshot", gap)

    def _place_at(self, inbox: Inbox, start: datetime, query: SubscribedQuery) -> None:
        feed = inbox.feed
        if from_datetime(start) > feed.log.clock():
            raise InvalidOptionError(f"start is in the future: {start}", hint='use "now"')
        newest = feed.dispatcher.barrier()
        if query.has_past:  # with what was committed by then
            inbox.start_past(min(newest, feed.log.lsn_at(from_datetime(start) + 1) - 1))
        else:
            inbox.start(feed.lsn_since(start))

    def _resume(self, inbox: Inbox, token: str, query: SubscribedQuery) -> None:
        lsn = self._log.resume(token)
        if lsn is None:  # a crash has lost rows that this reader has seen: begin anew
            feed = inbox.feed
            inbox.start("snapshot", Gap(feed.earliest(), max(feed.earliest(), feed.lsn()), None))
        elif lsn + 1 < query.born:  # the token is for a log of this name that was dropped
            inbox.start("snapshot", Gap(lsn + 1, max(lsn + 1, query.born), None))
        elif lsn == 0 and query.has_state:
            inbox.start("snapshot")
        else:
            inbox.start(lsn + 1)

    def _acknowledging(self, tenant: str | None, name: str | None) -> dict[str, Any]:
        """The arguments with which a durable subscription acknowledges."""
        if name is None:
            return {}
        positions, key = self._positions, (tenant, name)
        return {
            "acknowledge": lambda lsn: positions.acknowledge(key, lsn),
            "acknowledged": lambda: max(0, positions[key].lsn) if key in positions else 0,
        }

    # ---- ending

    def _forgotten(self, inbox: Inbox) -> None:
        """End a subscription that was garbage collected, in the dispatcher's thread.

        The collecting thread may hold any lock at this moment, so this takes none.
        """
        inbox.feed.dispatcher.soon(lambda: self._left(inbox))

    def _left(self, inbox: Inbox) -> None:
        """Remove a subscription that has ended."""
        inbox.close()
        with self._lock:
            self._open.pop(inbox, None)
            self._callbacks.pop(inbox, None)
            for key in [key for key, used in self._names.items() if used is inbox]:
                del self._names[key]

    def is_open(self, key: OwnedName) -> bool:
        """Whether a durable subscription has a reader."""
        return key in self._names

    def all(self) -> list[SubscriptionBase | InlineSubscription]:
        """The subscriptions that are open."""
        with self._lock:
            found = [subscription() for subscription in self._open.values()]
            inline = [each for each in self._inline if each.state == "active"]
        return [*(each for each in found if each is not None), *inline]

    def end_all(self) -> None:
        """Complete all subscriptions, once read to their end: the database closes."""
        with self._lock:
            self._is_over = True
            inboxes, callbacks = list(self._open), list(self._callbacks.values())
            inline, self._inline = self._inline, []
        for inbox in inboxes:
            inbox.end()
        for each in inline:
            each.finish(complete=True)
        deadline = time.monotonic() + CLOSE_SECONDS
        for callback in callbacks:
            callback.join(max(0.0, deadline - time.monotonic()))
