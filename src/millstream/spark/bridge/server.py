"""The server that Spark's tasks connect to: proof of a shared secret, then one role.

Every connection has a thread of its own, and belongs to one view's endpoint. What is said on it is
up to the endpoint; here are only texts and raw bytes. ``Wire.java`` is the other side. Off the
loopback address connections are encrypted.
"""

from __future__ import annotations

import contextlib
import ipaddress
import secrets
import socket
import threading
import time
from typing import TYPE_CHECKING, Final, Protocol

from millstream.errors import PipelineError
from millstream.spark.bridge.connection import (
    Connection,
    EncryptedConnection,
    SharedReceiver,
    end_socket,
)
from millstream.spark.bridge.security import admit, make_certificate
from millstream.threads import thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.spark.bridge.connection import Together

_SECRET_BYTES: Final = 32
_GREETING_SECONDS: Final = 10.0
_MAX_UNPROVEN: Final = 64
_RETRY_SECONDS: Final = 0.1


class Endpoint(Protocol):
    """Serves the connections of one view."""

    def serve(self, role: str, words: Sequence[str], wire: Connection) -> None:
        """Serve one connection until its end."""


class _Unproven:
    """The connections whose peer has not shown that it knows the secret: few at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, None] = {}

    def add(self, conn: socket.socket) -> None:
        """Add a connection; the oldest is ended when there are too many."""
        with self._lock:
            if len(self._connections) >= _MAX_UNPROVEN:
                self._end_oldest()
            self._connections[conn] = None

    def remove(self, conn: socket.socket) -> None:
        """Its peer has proven itself, or has closed it."""
        with self._lock:
            self._connections.pop(conn, None)

    def end_oldest(self) -> None:
        """End the one that has taken longest, if there is any."""
        with self._lock:
            self._end_oldest()

    def _end_oldest(self) -> None:
        oldest = next(iter(self._connections), None)
        if oldest is not None:
            del self._connections[oldest]
            end_socket(oldest)


class BridgeServer:
    """Listens for Spark's tasks.

    Args:
        host: the address to listen on, which tasks connect to.
        together: a block in which connections are served that have a few bytes at the same time.

    Attributes:
        host: that address.
        port: the port.
        secret: what a task must know.
        certificate: what it must find here, in DER; empty when connections are not encrypted.

    Raises:
        MissingExtraError: it is not the loopback address, and what encrypts is not installed.
    """

    def __init__(
        self, host: str = "127.0.0.1", together: Together = contextlib.nullcontext
    ) -> None:
        self.host = host
        self.secret = secrets.token_bytes(_SECRET_BYTES)
        made = None if is_loopback(host) else make_certificate()
        self.certificate = b"" if made is None else made.der
        self._context = None if made is None else made.context
        self._ends: dict[str, Endpoint] = {}
        self._open: set[Connection] = set()
        self._unproven = _Unproven()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._receiver = SharedReceiver(together)
        self._listener = socket.create_server((host, 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        # Without it no task gets through: Spark fails the queries, and views report that.
        thread("bridge", self._accept, lambda _error: self.close()).start()

    def add(self, feed: str, end: Endpoint) -> None:
        """Serve the connections of a view's feed by an endpoint."""
        self._ends[feed] = end

    def remove(self, feed: str) -> None:
        """Refuse its connections from now on."""
        self._ends.pop(feed, None)

    def close(self) -> None:
        """Listen no more, and end all connections."""
        self._closed.set()
        with contextlib.suppress(OSError):  # a thread in accept() would keep it open
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            left = list(self._open)
        for wire in left:
            wire.end()
        self._receiver.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                conn, _ = self._listener.accept()
            except OSError:  # it was closed, or this process has no file descriptor left
                self._unproven.end_oldest()
                self._closed.wait(_RETRY_SECONDS)
                continue
            self._unproven.add(conn)
            server = threading.Thread(
                target=self._serve, args=(conn,), name="millstream-bridge-task", daemon=True
            )
            try:
                server.start()
            except RuntimeError:  # there are too many threads; Spark tries again
                self._unproven.remove(conn)
                conn.close()

    def _serve(self, conn: socket.socket) -> None:
        deadline = time.monotonic() + _GREETING_SECONDS
        try:
            wire = self._connect(conn)
        except OSError:  # its encryption is not ours
            self._unproven.remove(conn)
            conn.close()
            return
        with self._lock:
            self._open.add(wire)
        try:
            wire.expect_by(deadline)
            if admit(self.secret, wire.read, wire.send):
                self._unproven.remove(conn)
                role, feed, *words = wire.receive_text().split("\t")
                wire.expect_by(None)
                end = self._ends.get(feed)
                if end is not None and not self._closed.is_set():
                    end.serve(role, words, wire)
        except (OSError, EOFError, ValueError, PipelineError):
            pass  # the task was stopped, or was none of ours
        finally:
            self._unproven.remove(conn)
            with self._lock:
                self._open.discard(wire)
            wire.close()
            conn.close()

    def _connect(self, conn: socket.socket) -> Connection:
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is None:
            return Connection(conn, self._receiver)
        conn.settimeout(_GREETING_SECONDS)
        # A duplicate: the raw one can still be ended, in the middle of the TLS handshake too.
        return EncryptedConnection(self._context.wrap_socket(conn.dup(), server_side=True))


def is_loopback(host: str) -> bool:
    """Whether all addresses of a host are this machine's own."""
    found = {info[4][0] for info in socket.getaddrinfo(host, None)}
    return all(ipaddress.ip_address(address).is_loopback for address in found)
