"""LISTEN: the notifications of one connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from millstream.errors import Error
from millstream.server.postgres import codec

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.subscriptions import AsyncListener


class ClientChannels:
    """The channels that a client listens to.

    Args:
        deliver: sends a message when the client may have one.
        process: the number of the connection, which its own notifications come from.

    Attributes:
        names: of the channels.
    """

    def __init__(self, deliver: Callable[[bytes], None], process: int) -> None:
        self.names: set[str] = set()
        self._deliver = deliver
        self._process = process
        self._listener: AsyncListener | None = None
        self._task: asyncio.Task[None] | None = None
        self._own: dict[tuple[str, str], asyncio.Event] = {}

    @property
    def is_open(self) -> bool:
        """Whether it has a listener."""
        return self._listener is not None

    def start(self, listener: AsyncListener) -> None:
        """Read a listener to all channels, from now on."""
        self._listener = listener
        self._task = asyncio.get_running_loop().create_task(self._read(listener))

    def unlisten(self, name: str | None) -> None:
        """UNLISTEN one, or all."""
        self.names = set() if name is None else self.names - {name}
        if not self.names:
            self.close()

    def close(self) -> None:
        """Listen no more."""
        if self._listener is not None:
            self._listener.cancel()
            self._listener = None
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def expect(self, channel: str, payload: str) -> asyncio.Event | None:
        """What is set when an own notification was sent to this client; None: it never is."""
        if channel not in self.names:
            return None
        return self._own.setdefault((channel, payload), asyncio.Event())

    async def _read(self, listener: AsyncListener) -> None:
        try:
            async for each in listener:
                own = self._own.pop((each.channel, each.payload), None)
                if each.channel in self.names:
                    process = 0 if own is None else self._process
                    self._deliver(codec.notification(process, each.channel, each.payload))
                if own is not None:
                    own.set()
        except Error:  # the database closes
            return
