"""Workers: a few threads that run what would hold up the event loop."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from millstream.errors import LimitError, QueryTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
_AGAIN = 0.05
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


class Share:
    """What one key has of a pool.

    Attributes:
        pending: its calls that run or wait.
        threads: those that it may still take.
    """

    __slots__ = ("pending", "threads")

    def __init__(self, threads: int) -> None:
        self.pending = 0
        self.threads = asyncio.Semaphore(threads)


class Workers:
    """A bounded pool with a bounded queue, of which one key gets half at most.

    Args:
        name: of the threads.
        threads: how many.
        seconds: how long a call may take, with the time that it waits for a thread; None: as long
            as it takes.
        interrupt: ends the query that a thread runs, if it runs one that can be ended.
        most: how many calls may run or wait; None: 64 for each thread.

    Attributes:
        pending: how many run or wait.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        seconds: float | None,
        interrupt: Callable[[int], None] = _no_interrupt,
        most: int | None = None,
    ) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"millstream-{name}")
        self._seconds = seconds
        self._interrupt = interrupt
        self._limit = threads * _PENDING if most is None else most
        self._share_threads = max(1, threads // 2)
        self._shares: dict[str, Share] = {}
        self.pending = 0

    async def run(
        self, function: Callable[[], T], owner: str | None = None, seconds: float | None = None
    ) -> T:
        """The result of a function, called in another thread.

        A call that takes too long is not waited for any longer, and its query is interrupted. What
        cannot be interrupted keeps its thread until it ends. It slows down others of the same key,
        which has half of the threads at most, and costs no more than these.

        Args:
            function: what is called.
            owner: the key that it is for; None: of nobody in particular.
            seconds: how long it may take; None: what the pool allows.

        Raises:
            LimitError: too many wait already.
            QueryTimeoutError: it took too long.
        """
        share = self._entered(owner)
        limit = self._seconds if seconds is None else seconds
        call, running = Call(function, self._interrupt), None
        try:
            async with asyncio.timeout(limit):
                if share is not None:
                    await share.threads.acquire()
                running = asyncio.get_running_loop().run_in_executor(self._pool, call)
                running.add_done_callback(partial(self._done, owner, share))
                return await asyncio.shield(running)
        except asyncio.CancelledError:
            self._end(call, running)
            raise
        except TimeoutError as error:
            if running is not None and running.done() and not running.cancelled():
                raise  # it has raised that itself
            self._end(call, running)
            raise QueryTimeoutError(
                f"it took longer than {limit or 0.0:g} seconds",
                hint="ask for less, or start the server with a longer --query-timeout",
            ) from error
        finally:
            if running is None:
                self._left(owner, share)

    def _end(self, call: Call[T], running: asyncio.Future[T] | None) -> None:
        """End a call's query, until it has ended: it may be about to begin one."""
        call.abandon()
        if running is not None and not running.done():
            asyncio.get_running_loop().call_later(_AGAIN, self._end, call, running)

    def _entered(self, owner: str | None) -> Share | None:
        """Count one call more."""
        share = None
        if owner is not None:
            share = self._shares.get(owner) or Share(self._share_threads)
        if self.pending >= self._limit or (share is not None and share.pending >= self._limit // 2):
            raise LimitError("the server has too much to do", hint="try again later")
        self.pending += 1
        if share is not None and owner is not None:
            share.pending += 1
            self._shares[owner] = share
        return share

    def _done(self, owner: str | None, share: Share | None, call: asyncio.Future[T]) -> None:
        if share is not None:
            share.threads.release()
        self._left(owner, share)
        if not call.cancelled():
            call.exception()  # somebody has looked at it, even if nobody waits any more

    def _left(self, owner: str | None, share: Share | None) -> None:
        """Count one call less."""
        self.pending -= 1
        if share is not None and owner is not None:
            share.pending -= 1
            if not share.pending:
                self._shares.pop(owner, None)

    def close(self) -> None:
        """Start nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def wait_closed(self, seconds: float) -> None:
        """Start nothing more, and wait for what runs, at most so long."""
        self.close()
        ended = asyncio.get_running_loop().run_in_executor(None, self._pool.shutdown)
        await asyncio.wait([ended], timeout=seconds)
