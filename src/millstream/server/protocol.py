"""Connections: uvicorn's, with a limit on how many, how long and how large a head may be.

A client that sends a byte now and then (slow loris), or that connects and sends nothing, is cut off
after a while. WebSockets take messages that are encoded already, for all who are sent the same.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

if TYPE_CHECKING:
    import asyncio

    from millstream.server.settings import Limits

_SHORT = 126
"""Lengths from here on are written in more bytes."""
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n"
    b"content-length: 0\r\n\r\n"
)
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
    b"content-length: 0\r\n\r\n"
)


class LimitedHttp(HttpToolsProtocol):
    """One connection. Make a class of it for some limits with ``limited``."""

    limits: Limits
    _timer: asyncio.TimerHandle | None = None
    _head = 0
    _in_head = True
    _is_refused = False

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401 - as uvicorn has it
        """Take a connection, or refuse it."""
        super().connection_made(transport)
        handle = transport.get_extra_info("socket")
        if handle is not None:
            with contextlib.suppress(OSError):  # it is gone already
                handle.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if len(self.connections) > self.limits.connections:
            self._is_refused = True
            transport.write(_BUSY)
            transport.close()
            return
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._head_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take some bytes."""
        if self._is_refused:
            return
        if self._in_head:
            self._head += len(data)
            before = self._head
            super().data_received(data)
            if self._in_head and before > self.limits.header_bytes:
                self._is_refused = True
                self.transport.write(_TOO_LARGE)
                self.transport.close()
            return
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """Start the request."""
        self._head_came()
        super().on_headers_complete()

    def on_message_begin(self) -> None:
        """Begin with the head of a request."""
        super().on_message_begin()
        if not self._in_head:
            self._wait_for_head()

    def handle_websocket_upgrade(self) -> None:
        """Become a WebSocket."""
        self._head_came()
        super().handle_websocket_upgrade()

    def _wait_for_head(self) -> None:
        self._in_head, self._head = True, 0
        self._timer = self.loop.call_later(self.limits.header_seconds, self._cut_off)

    def _head_came(self) -> None:
        self._in_head = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _cut_off(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort()


def limited(limits: Limits) -> type[LimitedHttp]:
    """The class of connections with some limits."""
    return type("LimitedHttp", (LimitedHttp,), {"limits": limits})


class SharedWebSocket(WebSocketsSansIOProtocol):
    """One WebSocket. What it is sent with a key ``encoded`` goes to the socket as it is.

    The message is then the same bytes for every client that gets it: a server does not mask, and
    nothing is compressed.
    """

    def handle_connect(self, event: Any) -> None:  # noqa: ANN401 - as uvicorn has it
        """Begin with the handshake; what serves it can write to it at once."""
        super().handle_connect(event)
        if self.response.status_code == HTTPStatus.SWITCHING_PROTOCOLS:
            self.scope["extensions"]["millstream.write"] = {"write": self.write_now}

    def write_now(self, data: bytes) -> bool:
        """Send a message that is encoded already; False when that has to wait, or is too late."""
        if self.disconnected or self.close_sent or not self.writable.is_set():
            return False
        self.transport.write(data)
        return True

    async def send(self, message: Any) -> None:  # noqa: ANN401 - as uvicorn has it
        """Send a message."""
        data = message.get("encoded")
        if data is None:
            await super().send(message)
            return
        if not self.writable.is_set():
            await self.writable.wait()
        if self.disconnected or self.close_sent:
            raise ClientDisconnected
        self.transport.write(data)


def encoded_message(payload: bytes, *, is_text: bool) -> bytes:
    r"""A message of a server as the bytes of RFC 6455: one frame, which is not masked.

    >>> encoded_message(b"hi", is_text=True)
    b'\x81\x02hi'
    """
    kind, length = 0x81 if is_text else 0x82, len(payload)
    if length < _SHORT:
        head = struct.pack(">BB", kind, length)
    elif length < 1 << 16:
        head = struct.pack(">BBH", kind, _SHORT, length)
    else:
        head = struct.pack(">BBQ", kind, _SHORT + 1, length)
    return head + payload
