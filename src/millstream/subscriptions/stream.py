"""``AsyncSubscription``: the async style. The event loop is free while the stream waits."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Self

from millstream.errors import ClosedError
from millstream.subscriptions.base import SubscriptionBase, timed_out
from millstream.threads import deadline_of, time_left

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from millstream.model.batch import ChangeBatch


class _Readers:
    """Threads that read from the disk for the streams of all event loops; started when needed."""

    def __init__(self) -> None:
        self.renew()
        os.register_at_fork(after_in_child=self.renew)  # where there are none of the threads

    def renew(self) -> None:
        self.pool = ThreadPoolExecutor(max_workers=16, thread_name_prefix="millstream-read")


_readers: Final = _Readers()


class AsyncSubscription(SubscriptionBase):
    """The changes of a query's result, for ``async for``: ``db.subscribe_stream(sql)``.

    One task at a time may read the stream. A task that is cancelled while it waits loses nothing:
    the next call returns the batch.

    >>> import asyncio, millstream as ms
    >>> async def main(db):
    ...     async with db.subscribe_stream("SELECT * FROM trades") as subscription:
    ...         db.insert("trades", [("AAPL", 187.2)])
    ...         async for batch in subscription:
    ...             return batch.rows
    >>> with ms.open() as db:
    ...     _ = db.execute("CREATE SOURCE trades (symbol VARCHAR, price DOUBLE)")
    ...     asyncio.run(main(db))
    [('AAPL', 187.2)]
    """

    style = "stream"
    _from_disk: Future[ChangeBatch | None] | None = None

    async def recv(self, timeout: float | None = None) -> ChangeBatch:
        """Wait for the next batch and return it; ``timeout`` is in seconds, None: no limit.

        Raises:
            TimeoutError: nothing arrived in time (a ReceiveTimeoutError).
            ClosedError: the subscription has ended.
        """
        deadline = deadline_of(timeout)
        while True:
            batch = await self._poll()
            if batch is not None:
                return self._own(batch)
            self.check()
            if time_left(deadline, None) == 0.0:
                raise timed_out(timeout)
            await self._sleep(deadline)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChangeBatch:
        try:
            return await self.recv()
        except ClosedError:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """End the subscription, as ``cancel`` does."""
        self.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()

    async def _poll(self) -> ChangeBatch | None:
        """The next batch, if it is due; what the disk is needed for, in another thread."""
        pending = self._from_disk
        if pending is None:
            try:
                return self._reader.poll_now()
            except BlockingIOError:
                pending = self._from_disk = _readers.pool.submit(self._reader.poll)
        # Shielded: if this task is cancelled, the next call finds what was read, even if it runs in
        # another event loop.
        batch = await asyncio.shield(asyncio.wrap_future(pending))
        self._from_disk = None
        return batch

    async def _sleep(self, deadline: float | None) -> None:
        loop = asyncio.get_running_loop()
        news = asyncio.Event()

        def wake() -> None:
            _call_in(loop, news.set)

        try:
            left = time_left(deadline, self._reader.wake_when_due(wake))
            if left != 0.0:
                async with asyncio.timeout(left):
                    await news.wait()
        except TimeoutError:
            pass
        finally:
            self._inbox.forget(wake)


def _call_in(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    """Call a function in an event loop, unless that is closed."""
    try:
        loop.call_soon_threadsafe(function)
    except RuntimeError:
        if not loop.is_closed():
            raise
