"""LISTEN and NOTIFY: short messages on named channels, in the order of the database.

A notification is a row of a log of its own. So it comes after what was pushed before it, and a
listener is a subscription like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.delivery.backpressure import merge_gaps
from millstream.errors import ClosedError, ReceiveTimeoutError
from millstream.model.clock import to_datetime
from millstream.subscriptions.events import AsyncEvents, Events
from millstream.threads import deadline_of, time_left, uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from millstream.model.batch import ChangeBatch
    from millstream.model.change import Gap


@dataclass(frozen=True, slots=True)
class Notification:
    """A message on a channel.

    Attributes:
        channel: the channel.
        payload: the message; may be empty.
        lsn: its LSN in the order of the database.
        timestamp: when the message was sent.
        gap: the messages before this one that the listener did not receive, or None.
    """

    channel: str
    payload: str
    lsn: int
    timestamp: datetime
    gap: Gap | None = None


Listener = Events[Notification]
AsyncListener = AsyncEvents[Notification]


class NotificationMaker:
    """Converts batches to notifications, for one listener."""

    def __init__(self) -> None:
        self._gap: Gap | None = None  # to be reported with the next one

    def __call__(self, batch: ChangeBatch) -> Iterator[Notification]:
        """The notifications of a batch, the first with the gap before it."""
        self._gap = merge_gaps(self._gap, batch.gap)
        for row, lsn in zip(batch.held_rows, batch.lsns, strict=True):
            gap, self._gap = self._gap, None
            yield Notification(row[0], row[1], lsn, to_datetime(batch.commit_time(lsn)), gap)


class Channels:
    """The channels of a session that SQL's LISTEN has named, and their notifications.

    Args:
        listen: opens a listener to all channels.
    """

    def __init__(self, listen: Callable[[], Listener]) -> None:
        self._listen = listen
        self._listener: Listener | None = None
        self._names: frozenset[str] = frozenset()

    @property
    def names(self) -> tuple[str, ...]:
        """The channels that are listened to."""
        return tuple(sorted(self._names))

    @uninterrupted
    def listen(self, channel: str) -> None:
        """LISTEN; twice is fine."""
        self._names |= {channel}
        if self._listener is None:
            self._listener = self._listen()

    @uninterrupted
    def unlisten(self, channel: str | None) -> None:
        """UNLISTEN one channel, or all."""
        self._names = frozenset() if channel is None else self._names - {channel}
        if not self._names and self._listener is not None:
            self._listener.cancel()
            self._listener = None

    def notifies(self, timeout: float | None = None) -> Iterator[Notification]:
        """Yield the notifications on the channels, until none arrives for ``timeout`` seconds."""
        deadline = deadline_of(timeout)
        while self._listener is not None:
            try:
                found = self._listener.recv(time_left(deadline, None))
            except (ClosedError, ReceiveTimeoutError):
                return
            if found.channel in self._names:
                yield found
                deadline = deadline_of(timeout)
