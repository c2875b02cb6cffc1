"""Subscriptions that give one item at a time: events of the change bus, or notifications."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from millstream.errors import ClosedError, ReceiveTimeoutError
from millstream.model.display import one_line, public_names
from millstream.subscriptions.base import timed_out
from millstream.threads import deadline_of, time_left

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.model.batch import ChangeBatch
    from millstream.subscriptions.base import SubscriptionBase, SubscriptionMetrics
    from millstream.subscriptions.stream import AsyncSubscription
    from millstream.subscriptions.subscription import Subscription


class HasLsn(Protocol):
    """An item with a place in the order of commits."""

    @property
    def lsn(self) -> int:
        """Its LSN."""


T = TypeVar("T", bound=HasLsn)


class EventsBase(Generic[T]):
    """Converts the batches of a subscription to items, and gives them one by one.

    Args:
        subscription: where the batches come from.
        convert: makes the items of a batch.

    Attributes:
        subscription: where the batches come from; it has pause and resume.
    """

    subscription: SubscriptionBase

    def __init__(
        self, subscription: SubscriptionBase, convert: Callable[[ChangeBatch], Iterable[T]]
    ) -> None:
        self.subscription = subscription
        self._convert = convert
        self._batch: ChangeBatch | None = None  # received and not converted yet
        self._ready: deque[T] = deque()
        self._last_lsn = 0

    def try_recv(self) -> T | None:
        """The next item if there is one; None when there is none at the moment.

        Raises:
            ClosedError: the subscription is over.
        """
        while not self._ready:
            if self._batch is None:
                self._batch = self.subscription.try_recv()
            if not self._unpack():
                return None
        return self._next()

    def cancel(self) -> None:
        """End it. Twice is fine."""
        self.subscription.cancel()

    close = cancel

    def __repr__(self) -> str:
        of, name = self.subscription, type(self).__name__
        return f"<{name} {of.state}: {one_line(of.sql)}>"

    def __dir__(self) -> list[str]:
        return public_names(self)

    @property
    def metrics(self) -> SubscriptionMetrics:
        """The metrics of the subscription."""
        return self.subscription.metrics

    @property
    def token(self) -> str:
        """The text to resume after the last item that was given."""
        if self._batch is not None:
            return self.subscription.token_at(self._batch.first_lsn - 1)
        if self._ready:  # the batch has more items
            return self.subscription.token_at(self._last_lsn)
        return self.subscription.token

    def _unpack(self) -> bool:
        """Convert the batch at hand; False when there is none.

        If a signal interrupts it, the next call does it again: nothing is lost.
        """
        if self._batch is None:
            return False
        ready = deque(self._convert(self._batch))
        self._ready, self._batch = ready, None
        return True

    def _next(self) -> T:
        event = self._ready[0]
        self._last_lsn = event.lsn
        del self._ready[0]  # from here on there is no call until the reader has it
        return event


class Events(EventsBase[T]):
    """Items for a thread that waits: iterate, or ``recv(timeout=)``."""

    subscription: Subscription

    def recv(self, timeout: float | None = None) -> T:
        """The next item; waits for one, at most so many seconds.

        Raises:
            TimeoutError: none came in time; more exactly, ReceiveTimeoutError.
            ClosedError: the subscription is over.
        """
        deadline = deadline_of(timeout)
        while not self._ready:
            try:
                if self._batch is None:
                    self._batch = self.subscription.recv(time_left(deadline, None))
            except ReceiveTimeoutError:
                raise timed_out(timeout) from None
            self._unpack()
        return self._next()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        try:
            return self.recv()
        except ClosedError:
            raise StopIteration from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()


class AsyncEvents(EventsBase[T]):
    """Items for a task: ``async for``, or ``await recv(timeout=)``."""

    subscription: AsyncSubscription

    async def recv(self, timeout: float | None = None) -> T:
        """The next item; waits for one, at most so many seconds.

        Raises:
            TimeoutError: none came in time; more exactly, ReceiveTimeoutError.
            ClosedError: the subscription is over.
        """
        deadline = deadline_of(timeout)
        while not self._ready:
            try:
                if self._batch is None:
                    self._batch = await self.subscription.recv(time_left(deadline, None))
            except ReceiveTimeoutError:
                raise timed_out(timeout) from None
            self._unpack()
        return self._next()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            return await self.recv()
        except ClosedError:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()
