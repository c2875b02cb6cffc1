"""Several queries in one subscription: what they change is given in cuts, each up to one LSN.

Each query has an inbox of its own. What has come is held until ``ViewCuts`` has found an LSN at
which all views among them are exact; then all that counts up to there is one cut.
"""

from __future__ import annotations

import contextlib
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, Self, cast

from millstream.delivery.backpressure import BLOCK, MERGED_ROWS, Policy
from millstream.delivery.feed import LogFeed
from millstream.delivery.inbox import Inbox
from millstream.errors import InvalidOptionError, InvalidTokenError
from millstream.model.cut import Cut
from millstream.subscriptions.stream import AsyncSubscription
from millstream.subscriptions.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.dispatch import Subscriber
    from millstream.errors import Error
    from millstream.model.batch import ChangeBatch
    from millstream.model.schema import Schema
    from millstream.subscriptions.options import SubscribeOptions
    from millstream.views.cuts import CutPoint, ViewCuts

_SEPARATOR: Final = "."
"""Between the tokens of the queries, in that of a cut; it is in none of them."""

_ALLOWED: Final = frozenset({"start", "buffer_rows"})


def check_options(options: SubscribeOptions) -> None:
    """Refuse what would give less than a cut, or split it.

    Raises:
        InvalidOptionError: an option that a subscription to several queries has not.
    """
    refused = [name for name in options.given() if name not in _ALLOWED]
    if refused:
        raise InvalidOptionError(
            f"a subscription to several queries has no {', '.join(refused)}",
            hint="a cut is given whole, and none is left out; subscribe to each query for that",
        )


def tokens_of(start: str, count: int) -> list[str]:
    """The tokens of several queries, of which that of a cut consists.

    Raises:
        InvalidTokenError: it is of another number of queries.
    """
    tokens = start.split(_SEPARATOR)
    if len(tokens) not in {1, count}:
        raise InvalidTokenError(
            f"the token is of {len(tokens)} queries, and these are {count}",
            hint="resume with the same queries, in the same order",
        )
    return tokens if len(tokens) == count else tokens * count


@dataclass(slots=True)
class CutPart:
    """One of the queries.

    Attributes:
        inbox: its batches.
        view: the view that it reads; None: a source or a table.
        held: what was taken from the inbox, and is in no cut yet, each with the LSN up to which it
            counts; of a view's changes that is their cause.
        position: everything up to this LSN of its log was in a cut.
    """

    inbox: Inbox
    view: str | None
    held: deque[tuple[int, ChangeBatch]] = field(default_factory=deque)
    position: int = 0

    def _hold(self) -> ChangeBatch | None:
        """Take the next batch from the inbox; None when there is none."""
        batch = self.inbox.take(merge=1)
        if batch is None:
            return None
        if batch.kind == "snapshot":  # that of what was only created is ahead of what readers see
            place = min(batch.lsn, self.inbox.feed.lsn())
        else:
            place = batch.lsn if self.view is None else batch.cause
        self.held.append((place, batch))
        return batch

    def newest(self, rows: int) -> int:
        """Take what waits in memory, about so many rows; returns up to which LSN it counts."""
        while rows > 0 and not self.inbox.is_reading_log:
            batch = self._hold()
            if batch is None:
                break
            rows -= len(batch)
        return max((place for place, _ in self.held), default=0)

    def take(self, point: CutPoint, offered: int) -> list[ChangeBatch] | None:
        """All that counts up to a cut, and was offered up to an LSN; None: not all is read yet.

        It is held until ``given``.
        """
        taken: list[ChangeBatch] = []
        while True:
            if len(taken) == len(self.held) and self._hold() is None:
                return taken if self.inbox.settled_lsn() >= offered else None
            place, batch = self.held[len(taken)]
            ready = self._before(place, batch, point)
            if ready is not None:
                taken.append(ready)
            if ready is not batch:
                return taken

    def _before(self, place: int, batch: ChangeBatch, point: CutPoint) -> ChangeBatch | None:
        """The rows of a batch up to a cut; None when there are none."""
        is_cause = self.view is not None and batch.kind == "changes"
        limit = point.causes[self.view] if is_cause and self.view is not None else point.lsn
        if place <= limit:
            return batch
        if is_cause or batch.first_lsn > limit:
            return None
        # A frame of the log may have several commits.
        count = sum(lsn <= limit for lsn in batch.lsns)
        return batch.slice(0, count) if count else None

    def given(self, batches: list[ChangeBatch]) -> None:
        """What ``take`` returned is in a cut."""
        for batch in batches:
            place, first = self.held.popleft()
            if len(batch) < len(first):
                self.held.appendleft((place, first.slice(len(batch))))
            self.position = max(self.position, batch.lsn)

    @property
    def has_news(self) -> bool:
        """Whether there is anything that is in no cut yet, or its end."""
        return bool(self.held) or self.inbox.may_have_news


class CutFeed(LogFeed):
    """In place of a log: no batches are offered, and a token is that of a cut."""

    __slots__ = ("tokens",)

    def __init__(self, other: LogFeed) -> None:
        super().__init__(other.log, other.dispatcher, other.plan)
        self.tokens: dict[int, str] = {}

    def join(self, subscriber: Subscriber) -> None:
        """Do nothing: each query has a feed of its own."""

    def leave(self, subscriber: Subscriber) -> None:
        """Do nothing."""

    def token(self, lsn: int) -> str:
        """The text to resume after one of the last two cuts."""
        if lsn not in self.tokens:
            raise InvalidOptionError(
                f"there is no token at LSN {lsn:,}",
                hint="cut.token is the token of a cut, subscription.token of the last one",
            )
        return self.tokens[lsn]


class CutInbox(Inbox):
    """The cuts of several queries, in order. It takes the place of the inbox of one query.

    Args:
        parts: by query, its inbox.
        cuts: finds where all views among them are exact.
        limit: how many rows of each wait in memory.
        tenant: the tenant that reads, or None.
    """

    __slots__ = ("_cuts", "_feed", "_has_begun", "_offered", "_parts", "_waiting")

    def __init__(
        self, parts: Mapping[str, CutPart], cuts: ViewCuts, limit: int, tenant: str | None
    ) -> None:
        self._feed = CutFeed(next(iter(parts.values())).inbox.feed)
        super().__init__(self._feed, Policy(BLOCK), limit, tenant=tenant)
        self._parts = parts
        self._cuts = cuts
        self._has_begun = False
        self._offered: int | None = None  # of the cut that was found: what may count in it
        cuts.on_found = self.live.wake_up
        self._waiting: dict[Callable[[], None], _Once] = {}
        self.forget = self._forget
        for part in parts.values():
            part.position = max(part.position, part.inbox.progress.position)
        self._feed.tokens[0] = self._token()

    @property
    def schemas(self) -> dict[str, Schema]:
        """The columns of each query's result, by the query's text."""
        return {query: part.inbox.feed.plan.schema for query, part in self._parts.items()}

    # ---- its end

    def end(self, error: Error | None = None) -> None:
        """Accept no more offers; a cut that is found already can still be taken."""
        for part in self._parts.values():
            part.inbox.end(error)
        super().end(error)

    def close(self) -> None:
        """Leave all feeds, and end. Twice is fine."""
        for part in self._parts.values():
            part.inbox.close()
        super().close()

    def discard(self) -> None:
        """End, and drop everything that was not taken."""
        for part in self._parts.values():
            part.inbox.discard()
        super().discard()

    @property
    def _ended(self) -> Inbox | None:
        """The first inbox that has ended: there will be no other cut."""
        return next((p.inbox for p in self._parts.values() if p.inbox.live.is_ended), None)

    @property
    def error(self) -> Error | None:
        """Why it ended; None when it has not, or was closed."""
        errors = (part.inbox.error for part in self._parts.values())
        return next((each for each in errors if each is not None), self.live.error)

    @property
    def is_over(self) -> bool:
        """Whether there will be no other cut."""
        ended = self._ended
        if self.live.is_discarded or ended is None:
            return self.live.is_discarded
        return self.error is not None or self._cuts.found is None

    # ---- what there is

    @property
    def may_have_news(self) -> bool:
        """Whether it is worth taking a cut."""
        if self._cuts.found is not None or self._ended is not None:
            return True
        return not self._cuts.is_searching and any(p.has_news for p in self._parts.values())

    @property
    def is_reading_log(self) -> bool:
        """Whether taking a cut may mean reading from the disk."""
        return any(part.inbox.is_reading_log for part in self._parts.values())

    def lag(self) -> tuple[int, int | None]:
        """How many rows wait, at most, and when the oldest of them was committed, if known."""
        rows, times = 0, list[int]()
        for part in self._parts.values():
            waiting, since = part.inbox.lag()
            rows += waiting + sum(len(batch) for _, batch in tuple(part.held))
            times += [] if since is None else [since]
        return rows, min(times, default=None)

    def settled_lsn(self) -> int:
        """Everything up to this LSN was taken."""
        return self.progress.position

    # ---- taking

    def take(self, max_rows: int | None = None, *, merge: int = MERGED_ROWS) -> ChangeBatch | None:
        """The next cut; None when there is none at the moment."""
        del max_rows, merge  # a cut is given whole
        with self._taking:
            while not self.is_over:
                if self._cuts.found is None and not self._search():
                    return None
                point = self._cuts.found
                if point is None:
                    return None
                cut = self._cut(point)
                if cut is None:
                    return None
                if any(cut.batches.values()):
                    # Its reader expects a Cut, and all in between pass it on.
                    return cast("ChangeBatch", cut)
            return None

    def take_only(self) -> bool:
        """False: a cut is never the only batch that waits."""
        return False

    def _search(self) -> bool:
        """Have a cut looked for, if there is anything to give; False: there is not."""
        if self._cuts.is_searching:
            return False
        newest = max(part.newest(self.backlog.limit) for part in self._parts.values())
        newest = max(newest, self.progress.position)
        if not any(part.has_news for part in self._parts.values()):
            return False
        self._offered = None
        self._cuts.search(newest if self._has_begun else None)
        self._has_begun = True
        return True

    def _cut(self, point: CutPoint) -> Cut | None:
        """All that counts up to a point; None when it is not all read yet."""
        if self._offered is None:
            self._offered = self.feed.offered_lsn()
        taken: dict[str, list[ChangeBatch]] = {}
        for query, part in self._parts.items():
            batches = part.take(point, self._offered)
            if batches is None:
                return None
            taken[query] = batches
        for query, batches in taken.items():
            self._parts[query].given(batches)
        self._cuts.take()
        token, kinds = self._token(), {b.kind for each in taken.values() for b in each}
        cut = Cut(
            point.lsn,
            {query: tuple(batches) for query, batches in taken.items()},
            "snapshot" if "snapshot" in kinds else "changes",
            token,
        )
        before = self.progress.position
        self._feed.tokens = {before: self._feed.tokens[before], point.lsn: token}
        self.progress.position = point.lsn
        self.progress.delivered += len(cut)
        return cut

    def _token(self) -> str:
        return _SEPARATOR.join(
            part.inbox.feed.token(part.position) for part in self._parts.values()
        )

    # ---- waiting

    def ready_in(self, max_rows: int | None, max_delay: float) -> float:
        """At once: a cut is not delayed."""
        del max_rows, max_delay
        return 0.0

    def hand_to(self, receiver: Callable[[ChangeBatch | None], None]) -> bool:
        """False: the dispatcher has no cuts."""
        del receiver
        return False

    def wake_on_news(self, wake: Callable[[], None]) -> bool:
        """Register a one-shot callback for the next change. Return False if one is pending."""
        once = self._waiting[wake] = _Once(wake)
        with self.live.lock:
            self.live.offer_waiters = (*self.live.offer_waiters, once)
        is_searching = self._cuts.is_searching
        for part in self._parts.values():
            inbox = part.inbox
            if not (inbox.wake_on_call if is_searching else inbox.wake_on_news)(once):
                break
        else:
            if not self.may_have_news:
                return True
        self._forget(wake)
        return False

    def _forget(self, wake: Callable[[], None]) -> None:
        self.live.forget(wake)
        once = self._waiting.pop(wake, None)
        if once is not None:
            self.live.forget(once)
            for part in self._parts.values():
                part.inbox.forget(once)


class _Once:
    """Calls a function the first time it is called: several inboxes wake one reader."""

    __slots__ = ("_calls",)

    def __init__(self, function: Callable[[], None]) -> None:
        self._calls = [function]

    def __call__(self) -> None:
        with contextlib.suppress(IndexError):
            self._calls.pop()()


class _HasSchemas(Protocol):
    @property
    def schemas(self) -> dict[str, Schema]:
        """The columns of each query's result, by the query's text."""


class CutSubscription(Subscription):
    """The changes of several queries, cut by cut. Create one with ``db.subscribe([a, b])``."""

    @property
    def schemas(self) -> dict[str, Schema]:
        """The columns of each query's result, by the query's text."""
        return cast("_HasSchemas", self._inbox).schemas

    def try_recv(self) -> Cut | None:  # type: ignore[override] # cuts take the place of batches
        """Return the next cut, or None if nothing is available.

        Raises:
            ClosedError: the subscription has ended.
        """
        return cast("Cut | None", super().try_recv())

    def recv(self, timeout: float | None = None) -> Cut:  # type: ignore[override] # as above
        """Wait for the next cut and return it; ``timeout`` is in seconds, None: no limit.

        Raises:
            TimeoutError: nothing arrived in time (a ReceiveTimeoutError).
            ClosedError: the subscription has ended.
            SubscriptionEndedError: a relation that it reads was dropped.
        """
        return cast("Cut", super().recv(timeout))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Cut:  # type: ignore[override] # as above
        return cast("Cut", super().__next__())


class AsyncCutSubscription(AsyncSubscription):
    """The changes of several queries, cut by cut, for ``async for``.

    Create one with ``db.subscribe_stream([a, b])``.
    """

    @property
    def schemas(self) -> dict[str, Schema]:
        """The columns of each query's result, by the query's text."""
        return cast("_HasSchemas", self._inbox).schemas

    def try_recv(self) -> Cut | None:  # type: ignore[override] # cuts take the place of batches
        """Return the next cut, or None if nothing is available."""
        return cast("Cut | None", super().try_recv())

    async def recv(self, timeout: float | None = None) -> Cut:  # type: ignore[override] # as above
        """Wait for the next cut and return it; ``timeout`` is in seconds, None: no limit."""
        return cast("Cut", await super().recv(timeout))

    async def __anext__(self) -> Cut:  # type: ignore[override] # as above
        return cast("Cut", await super().__anext__())
