"""Pushes: requests that add rows. Frames for many clients wait for them, so they are short.

A push wakes the clients that follow what it adds to. Writing to a thousand of them takes longer
than the push itself, which would be answered somewhere in between.
"""

from __future__ import annotations

import asyncio
from typing import Self


class Pushes:
    """How many pushes are under way, from the request's head to the end of its answer.

    Used by the event loop only: ``with pushes: ...`` around each.
    """

    def __init__(self) -> None:
        self._count = 0
        self._waiters: list[asyncio.Future[None]] = []

    def __enter__(self) -> Self:
        self._count += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if not self._count:
            waiters, self._waiters = self._waiters, []
            for each in waiters:
                _set(each)

    async def answered(self, seconds: float) -> float:
        """Wait until none is under way, at most so long; the seconds that are left then."""
        if not self._count or seconds <= 0:
            return seconds
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiters.append(waiter)
        began = loop.time()
        timer = loop.call_later(seconds, _set, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            if waiter in self._waiters:
                self._waiters.remove(waiter)
        return seconds - (loop.time() - began)


def _set(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
