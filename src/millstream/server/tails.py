"""Tails: the newest changes of a query, read and encoded once for all clients that follow it.

A tail is one subscription of the database. It hands each frame to its members, and keeps the last
ones, so that a client which has caught up with the log can step in without a gap and without an
overlap. A member that does not take its frames is removed: it goes on from the log, at its own
pace. All of this runs in the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from millstream.errors import ClosedError, Error, ReceiveTimeoutError
from millstream.server.frames import batch_frames, end_frame, error_frame, progress_frame

if TYPE_CHECKING:
    from collections.abc import Hashable

    from millstream.server.frames import Encoding, Frame
    from millstream.server.measures import Measures
    from millstream.server.pushes import Pushes
    from millstream.subscriptions import AsyncSubscription

HEARTBEAT: Final = 15.0
"""Seconds without a change after which clients are told how far they are."""

_PLACED: Final = ("changes", "progress")
"""What a client that has everything up to their LSN needs not."""

_KEPT_FRAMES: Final = 64
_KEPT_ROWS: Final = 16_384
_QUEUED_BYTES: Final = 4 << 20
_AT_ONCE: Final = 8
_MANY: Final = 128
_GIVES_WAY: Final = 0.003
"""Frames for many clients wait so many seconds for pushes that are to be answered."""


class Member:
    """One client of a tail: the frames that it has not taken yet.

    Args:
        position: it has everything up to this LSN.
        limit: how many rows wait for it, before it goes on from the log.
        hand_over: sends a frame to a client that waits for one, at once; False: it has to wait.

    Attributes:
        has_overflowed: whether it gets no more, since it was too slow.
    """

    __slots__ = (
        *("_frames", "_hand_over", "_limit", "_position", "_rows", "_size", "_waiter"),
        "has_overflowed",
    )

    def __init__(
        self, position: int, limit: int, hand_over: Callable[[Frame], bool] | None = None
    ) -> None:
        self.has_overflowed = False
        self._position = position
        self._limit = limit
        self._hand_over = hand_over
        self._frames: deque[Frame] = deque()
        self._rows = self._size = 0
        self._waiter: asyncio.Future[None] | None = None

    def offer(self, frame: Frame) -> bool:
        """Take a frame of the tail; False when there is no room for it."""
        if frame.lsn <= self._position and frame.type in _PLACED:
            return True
        if frame.batch is not None and frame.batch.first_lsn <= self._position:
            frame = frame.after(self._position)
        # Who waits has been sent all before: a task for each of a thousand clients costs more than
        # what it sends.
        if self._waiter is not None and self._hand_over is not None and self._hand_over(frame):
            return True
        rows, size = len(frame), frame.size
        if self._frames and (self._rows + rows > self._limit or self._size + size > _QUEUED_BYTES):
            self.has_overflowed = True
            return False
        self._frames.append(frame)
        self._rows += rows
        self._size += size
        self.wake()
        return True

    def wake(self) -> None:
        """Let the client look at what there is."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def take(self) -> Frame | None:
        """The next frame; None when it has overflowed and everything before was taken."""
        while not self._frames:
            if self.has_overflowed:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        frame = self._frames.popleft()
        self._rows -= len(frame)
        self._size = self._size - frame.size if self._frames else 0
        return frame


class Tail:
    """The newest changes of a query.

    Args:
        subscription: of the database, from now on.
        encoding: of its frames.
        measures: counts how long changes take.
        pushes: those under way, which come first.
        ended: called when it has no members, or its subscription is over.
    """

    def __init__(
        self,
        subscription: AsyncSubscription,
        encoding: Encoding,
        measures: Measures,
        pushes: Pushes,
        ended: Callable[[], None],
    ) -> None:
        self._subscription = subscription
        self._encoding = encoding
        self._measures = measures
        self._pushes = pushes
        self._ended = ended
        self._members: set[Member] = set()
        self._kept: deque[Frame] = deque()
        self._kept_rows = 0
        self._base = subscription.position  # what came after it is kept, or will come
        self._is_over = False
        self._task = asyncio.get_running_loop().create_task(self._pump())

    def join(self, member: Member, position: int) -> bool:
        """Let a client that has everything up to an LSN step in; False when that is too old."""
        if position < self._base or self._is_over:
            return False
        for frame in self._kept:
            member.offer(frame)
        self._members.add(member)
        return True

    def leave(self, member: Member | None) -> None:
        """Hand nothing more to a client; the tail ends with its last one. Twice is fine."""
        if member is not None:
            self._members.discard(member)
        if not self._members and not self._is_over:
            self.close()

    def close(self) -> None:
        """End it."""
        self._is_over = True
        self._task.cancel()
        self._subscription.cancel()
        self._ended()

    async def _pump(self) -> None:
        subscription = self._subscription
        try:
            while True:
                try:
                    batch = await subscription.recv(HEARTBEAT)
                except ReceiveTimeoutError:
                    await self._hand_out(progress_frame(subscription))
                    continue
                self._measures.delivered(batch.topic, batch.committed_at)
                for frame in batch_frames(batch):
                    frame.encode(self._encoding)
                    self._keep(frame)
                    await self._hand_out(frame)
        except ClosedError:
            await self._finish()
        except Error as error:
            await self._finish(error_frame(error))

    def _keep(self, frame: Frame) -> None:
        """Remember a frame for those who step in later; one without rows begins anew."""
        if frame.type != "changes":
            self._kept.clear()
            self._kept_rows = 0
            self._base = max(self._base, frame.lsn)
            return
        self._kept.append(frame)
        self._kept_rows += len(frame)
        while self._kept_rows > _KEPT_ROWS or len(self._kept) > _KEPT_FRAMES:
            oldest = self._kept.popleft()
            self._kept_rows -= len(oldest)
            self._base = max(self._base, oldest.lsn)

    async def _hand_out(self, frame: Frame) -> None:
        """Give a frame to all members, some at a time: in between, requests are answered."""
        members = tuple(self._members)  # who joins meanwhile gets it from what is kept
        left = _GIVES_WAY if len(members) >= _MANY else 0.0
        for start in range(0, len(members), _AT_ONCE):
            if start:
                await asyncio.sleep(0)
            left = await self._pushes.answered(left)
            for member in members[start : start + _AT_ONCE]:
                if not member.offer(frame):
                    member.wake()
                    self.leave(member)

    async def _finish(self, *last: Frame) -> None:
        subscription = self._subscription
        position = subscription.position
        self._is_over = True
        for frame in (*last, end_frame(subscription.token_at(position), position)):
            await self._hand_out(frame)
        self._ended()


def _close_unused(opening: asyncio.Future[Tail]) -> None:
    """Close a tail that nobody has stepped into by the time it is open."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().leave(None)


Subscribe = Callable[[], Awaitable["AsyncSubscription"]]


class Tails:
    """The tails that there are, each for one query of one tenant in one encoding."""

    def __init__(self, measures: Measures, pushes: Pushes) -> None:
        self._measures = measures
        self._pushes = pushes
        self._tails: dict[Hashable, asyncio.Future[Tail]] = {}

    def __len__(self) -> int:
        return len(self._tails)

    async def get(self, key: Hashable, encoding: Encoding, subscribe: Subscribe) -> Tail:
        """The tail of a query; opened if it is the first time."""
        key = (key, encoding)
        found = self._tails.get(key)
        if found is None:
            opening = self._opened(key, encoding, subscribe)
            found = self._tails[key] = asyncio.ensure_future(opening)
        try:
            return await asyncio.shield(found)
        except BaseException:
            if not found.done():  # this client has left while it was opened
                found.add_done_callback(_close_unused)
            elif found.cancelled() or found.exception() is not None:
                self._forget(key, found)
            else:
                _close_unused(found)
            raise

    async def _opened(self, key: Hashable, encoding: Encoding, subscribe: Subscribe) -> Tail:
        opening = self._tails.get(key)
        subscription = await subscribe()
        return Tail(
            subscription,
            encoding,
            self._measures,
            self._pushes,
            lambda: self._forget(key, opening),
        )

    def _forget(self, key: Hashable, opening: asyncio.Future[Tail] | None) -> None:
        if self._tails.get(key) is opening:
            self._tails.pop(key, None)

    def close(self) -> None:
        """End all of them."""
        for each in list(self._tails.values()):
            if each.done() and not each.cancelled() and each.exception() is None:
                each.result().close()
        self._tails.clear()
