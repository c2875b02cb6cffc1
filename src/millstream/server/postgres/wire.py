"""``Wire``: what the messages of a client come from, and answers go to."""

from __future__ import annotations

from typing import Protocol


class Wire(Protocol):
    """What sends and receives messages.

    Attributes:
        process: the number that the client knows its connection by.
    """

    process: int

    def send(self, data: bytes) -> None:
        """Send, sooner or later."""

    async def drain(self) -> None:
        """Wait until the client has taken what was sent, but for a little."""

    async def receive(self) -> tuple[bytes, bytes]:
        """The next message."""

    def deliver(self, data: bytes) -> None:
        """Send what comes by itself, as soon as the client may have it."""

    def was_interrupted(self) -> bool:
        """Whether a CancelRequest was for what ran just now."""
