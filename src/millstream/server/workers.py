"""Workers: a few threads that run what would hold up the event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from millstream.errors import LimitError, QueryTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
_PENDING = 64
"""For each thread, so many calls may wait for one."""


class Workers:
    """A bounded pool with a bounded queue.

    Args:
        name: of the threads.
        threads: how many.
        seconds: how long a call may take, with the time that it waits for a thread.
    """

    def __init__(self, name: str, threads: int, seconds: float) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"millstream-{name}")
        self._seconds = seconds
        self._limit = threads * _PENDING
        self.pending = 0

    async def run(self, function: Callable[[], T]) -> T:
        """The result of a function, called in another thread.

        A call that takes too long is not waited for any longer. It keeps its thread until it ends,
        so such calls slow down others, and cost no more than the pool.

        Raises:
            LimitError: too many wait already.
            QueryTimeoutError: it took too long.
        """
        if self.pending >= self._limit:
            raise LimitError("the server has too much to do", hint="try again later")
        self.pending += 1
        loop = asyncio.get_running_loop()
        call = loop.run_in_executor(self._pool, function)
        call.add_done_callback(self._done)
        try:
            async with asyncio.timeout(self._seconds):
                return await asyncio.shield(call)
        except TimeoutError as error:
            if call.done() and not call.cancelled():  # it has raised that itself
                raise
            raise QueryTimeoutError(
                f"it took longer than {self._seconds:g} seconds",
                hint="ask for less, or start the server with a longer --query-timeout",
            ) from error

    def _done(self, call: asyncio.Future[T]) -> None:
        self.pending -= 1
        if not call.cancelled():
            call.exception()  # somebody has looked at it, even if nobody waits any more

    def close(self) -> None:
        """Start nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)
