"""``Subscription``: the channel style. The consumer's own thread receives, and waits."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from millstream.errors import ClosedError
from millstream.subscriptions.base import SubscriptionBase, timed_out
from millstream.threads import deadline_of, time_left

if TYPE_CHECKING:
    from millstream.model.batch import ChangeBatch


class Subscription(SubscriptionBase):
    """The changes of a query's result, batch by batch. Create one with ``db.subscribe(sql)``.

    The subscription is active when ``subscribe`` returns: every row pushed afterwards is delivered.

    >>> import millstream as ms
    >>> with ms.open() as db:
    ...     _ = db.execute("CREATE SOURCE trades (symbol VARCHAR, price DOUBLE)")
    ...     subscription = db.subscribe("SELECT symbol FROM trades WHERE price > 200")
    ...     db.insert("trades", [("AAPL", 187.2), ("MSFT", 402.1)])
    ...     [change.row for change in subscription.recv(timeout=10)]
    2
    [('MSFT',)]
    """

    def recv(self, timeout: float | None = None) -> ChangeBatch:
        """Wait for the next batch and return it; ``timeout`` is in seconds, None: no limit.

        Raises:
            TimeoutError: nothing arrived in time (a ReceiveTimeoutError).
            ClosedError: the subscription has ended.
            SlowConsumerError: the reader was too slow for the policy ``disconnect``.
            SubscriptionEndedError: the relation that it reads was dropped.
        """
        deadline = deadline_of(timeout)
        while True:
            batch = self._reader.poll()
            if batch is not None:
                return self._own(batch)
            self.check()
            if time_left(deadline, None) == 0.0:
                raise timed_out(timeout)
            self._sleep(deadline)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ChangeBatch:
        try:
            return self.recv()
        except ClosedError:
            raise StopIteration from None

    def _sleep(self, deadline: float | None) -> None:
        asleep = threading.Lock()
        asleep.acquire()
        wake = asleep.release
        try:
            left = time_left(deadline, self._reader.wake_when_due(wake))
            if left != 0.0:
                asleep.acquire(timeout=-1 if left is None else left)
        finally:
            self._inbox.forget(wake)
