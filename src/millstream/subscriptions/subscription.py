"""``Subscription``: the channel style. The reader's own thread asks, and waits if it must."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from millstream.errors import ClosedError
from millstream.subscriptions.reading import Reading, deadline_of, time_left

if TYPE_CHECKING:
    from millstream.model.batch import ChangeBatch


class Subscription(Reading):
    """Changes of a query's result, batch by batch. Get one with ``db.subscribe(sql)``.

    It is ready when you have it: a row pushed after ``subscribe`` returned is seen.

    >>> import millstream as ms
    >>> with ms.open() as db:
    ...     _ = db.execute("CREATE SOURCE trades (symbol VARCHAR, price DOUBLE)")
    ...     subscription = db.subscribe("SELECT symbol FROM trades WHERE price > 200")
    ...     db.insert("trades", [("AAPL", 187.2), ("MSFT", 402.1)])
    ...     [change.row for change in subscription.recv(timeout=10)]
    2
    [('MSFT',)]
    """

    def recv(self, timeout: float | None = None) -> ChangeBatch | None:
        """The next batch; waits for one. None when so many seconds have passed without one.

        Raises:
            ClosedError: the subscription is over.
            SlowConsumerError: it was too slow for its policy ``disconnect``.
            SubscriptionEndedError: what it reads was dropped.
        """
        deadline = deadline_of(timeout)
        while True:
            batch = self.poll()
            if batch is not None:
                return batch
            self.check()
            if time_left(deadline, None) == 0.0:
                return None
            self._sleep(deadline)

    def try_recv(self) -> ChangeBatch | None:
        """The next batch if there is one; None when there is none at the moment."""
        batch = self.poll()
        if batch is None:
            self.check()
        return batch

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ChangeBatch:
        try:
            batch = self.recv()
        except ClosedError:
            raise StopIteration from None
        if batch is None:
            raise AssertionError("without a timeout there is a batch or an error")
        return batch

    def _sleep(self, deadline: float | None) -> None:
        asleep = threading.Lock()
        asleep.acquire()
        wake = asleep.release
        try:
            left = time_left(deadline, self.poll_again(wake))
            if left != 0.0:
                asleep.acquire(timeout=-1 if left is None else left)
        finally:
            self._inbox.forget(wake)
