"""Workers: a few threads that run what would hold up the event loop."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Generic, TypeVar

from millstream.errors import LimitError, QueryTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
_PENDING = 64
"""For each thread, so many calls may wait for one."""


class Call(Generic[T]):
    """A call in another thread, which can be ended early.

    Args:
        function: what is called.
        interrupt: ends the query that a thread runs, if it runs one that can be ended.
    """

    __slots__ = ("_function", "_interrupt", "_is_abandoned", "_lock", "_thread")

    def __init__(self, function: Callable[[], T], interrupt: Callable[[int], None]) -> None:
        self._function = function
        self._interrupt = interrupt
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._is_abandoned = False

    def __call__(self) -> T:
        """Call it, in this thread."""
        with self._lock:
            if self._is_abandoned:
                raise QueryTimeoutError("it had no thread before its time was up")
            self._thread = threading.get_ident()
        try:
            return self._function()
        finally:
            with self._lock:  # so that what the thread runs next is not interrupted
                self._thread = None

    def interrupt(self) -> None:
        """End its query, from any thread; what cannot be ended goes on, unheard."""
        with self._lock:
            if self._thread is not None:
                self._interrupt(self._thread)

    def abandon(self) -> None:
        """End its query; if no thread has it yet, none will."""
        self._is_abandoned = True
        self.interrupt()


def _no_interrupt(_: int) -> None:
    """For calls that run no queries."""


class Workers:
    """A bounded pool with a bounded queue.

    Args:
        name: of the threads.
        threads: how many.
        seconds: how long a call may take, with the time that it waits for a thread.
        interrupt: ends the query that a thread runs, if it runs one that can be ended.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        seconds: float,
        interrupt: Callable[[int], None] = _no_interrupt,
    ) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"millstream-{name}")
        self._seconds = seconds
        self._interrupt = interrupt
        self._limit = threads * _PENDING
        self.pending = 0

    async def run(self, function: Callable[[], T]) -> T:
        """The result of a function, called in another thread.

        A call that takes too long is not waited for any longer, and its query is interrupted. What
        cannot be interrupted keeps its thread until it ends, so such calls slow down others, and
        cost no more than the pool.

        Raises:
            LimitError: too many wait already.
            QueryTimeoutError: it took too long.
        """
        if self.pending >= self._limit:
            raise LimitError("the server has too much to do", hint="try again later")
        self.pending += 1
        loop = asyncio.get_running_loop()
        call = Call(function, self._interrupt)
        running = loop.run_in_executor(self._pool, call)
        running.add_done_callback(self._done)
        try:
            async with asyncio.timeout(self._seconds):
                return await asyncio.shield(running)
        except asyncio.CancelledError:
            call.interrupt()
            raise
        except TimeoutError as error:
            if running.done() and not running.cancelled():  # it has raised that itself
                raise
            call.abandon()
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
