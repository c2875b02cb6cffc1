"""Subscriptions whose batches become something else: events of the change bus, notifications."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from millstream.errors import ClosedError, ReceiveTimeoutError
from millstream.model.display import one_line, public_names
from millstream.subscriptions.base import deadline_of, time_left, timed_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.model.batch import ChangeBatch
    from millstream.subscriptions.base import SubscriptionBase, SubscriptionMetrics
    from millstream.subscriptions.stream import AsyncSubscription
    from millstream.subscriptions.subscription import Subscription


class Placed(Protocol):
    """Something with a place in the order of the database."""

    @property
    def lsn(self) -> int:
        """Its LSN."""


T = TypeVar("T", bound=Placed)


class Mapped(Generic[T]):
    """One thing after the other, made of the batches of a subscription.

    Attributes:
        subscription: where they come from; pause, resume and metrics are there.
    """

    subscription: SubscriptionBase

    def __init__(
        self, subscription: SubscriptionBase, convert: Callable[[ChangeBatch], Iterable[T]]
    ) -> None:
        self.subscription = subscription
        self._convert = convert
        self._batch: ChangeBatch | None = None  # nothing was made of it yet
        self._ready: deque[T] = deque()
        self._last_lsn = 0

    def try_recv(self) -> T | None:
        """The next one if it is there; None when there is none at the moment.

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
        """Those of the subscription."""
        return self.subscription.metrics

    @property
    def token(self) -> str:
        """The text to resume after the last one that was given."""
        if self._batch is not None:
            return self.subscription.token_at(self._batch.first_lsn - 1)
        if self._ready:  # there are more of its batch
            return self.subscription.token_at(self._last_lsn)
        return self.subscription.token

    def _unpack(self) -> bool:
        """Make what is to be given of the batch at hand; False when there is none.

        Interrupted, it is done again: nothing is lost.
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


class Events(Mapped[T]):
    """For a thread that waits."""

    subscription: Subscription

    def recv(self, timeout: float | None = None) -> T:
        """The next one; waits for it, at most so many seconds.

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


class AsyncEvents(Mapped[T]):
    """For a task that awaits."""

    subscription: AsyncSubscription

    async def recv(self, timeout: float | None = None) -> T:
        """The next one; waits for it, at most so many seconds.

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
