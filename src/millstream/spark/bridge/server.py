"""The server that Spark's tasks connect to: proof of a shared secret, then one role.

Every connection has a thread of its own, and belongs to one view's endpoint. What is said on it is
up to the endpoint; here are only texts and raw bytes. ``java/millstream/bridge/Wire.java`` is the
other side. Off the loopback address connections are encrypted.
"""

from __future__ import annotations

import contextlib
import ipaddress
import secrets
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Final, Protocol

from millstream.errors import PipelineError
from millstream.spark.bridge.certificate import make_certificate
from millstream.spark.bridge.handshake import admit
from millstream.spark.bridge.receiver import Receiver
from millstream.threads import thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

_LENGTH = struct.Struct(">I")
_SECRET_BYTES: Final = 32
_GREETING_SECONDS: Final = 10.0
_MAX_UNPROVEN: Final = 64
_RETRY_SECONDS: Final = 0.1
_MAX_TEXT: Final = 1 << 24
_CHUNK: Final = 1 << 16
_MOST: Final = 1 << 20


class Endpoint(Protocol):
    """Who serves the connections of one view."""

    def serve(self, role: str, words: Sequence[str], wire: Connection) -> None:
        """Serve one connection until its end."""


class Connection:
    """One connection of a task.

    Args:
        conn: its socket.
        receiver: who serves it when it is lent.
    """

    __slots__ = ("_at", "_data", "_deadline", "_receiver", "_socket")

    def __init__(self, conn: socket.socket, receiver: Receiver | None = None) -> None:
        self._socket = conn
        self._receiver = receiver
        self._deadline: float | None = None
        self._data = b""  # has arrived, and was read up to here
        self._at = 0

    def expect_by(self, deadline: float | None) -> None:
        """Let reads and writes fail after a moment of the monotonic clock; None: let them wait."""
        self._deadline = deadline
        self._socket.settimeout(None if deadline is None else _left(deadline))

    def read(self, size: int) -> bytes:
        """So many bytes.

        Raises:
            EOFError: the task has gone.
        """
        at = self._at
        if len(self._data) - at < size:
            return self._read_on(size)
        self._at = at + size
        return self._data[at : self._at]

    def _read_on(self, size: int) -> bytes:
        parts, missing = [self._data[self._at :]], size - self.arrived
        self._data, self._at = b"", 0
        while missing > 0:
            if self._deadline is not None:
                self._socket.settimeout(_left(self._deadline))
            part = self._socket.recv(max(_CHUNK, min(missing, _MOST)))
            if not part:
                raise EOFError
            parts.append(part)
            missing -= len(part)
        if missing < 0:
            self._data, self._at = part, len(part) + missing
            parts[-1] = part[:missing]
        return b"".join(parts)

    @property
    def arrived(self) -> int:
        """How many bytes were received and not read."""
        return len(self._data) - self._at

    def peek(self, size: int) -> bytes:
        """As many of those, without reading them."""
        return self._data[self._at : self._at + size]

    def receive_now(self) -> bool:
        """Receive what there is, without waiting; False when the task has gone."""
        try:
            data = self._socket.recv(_CHUNK, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        self._data = self._data[self._at :] + data
        self._at = 0
        return bool(data)

    def lend(self, ready: Callable[[], bool]) -> None:
        """Have it served by the thread of all small connections, until ``ready`` returns False."""
        if self._receiver is not None:
            self._receiver.serve(self._socket, ready)

    def receive_text(self) -> str:
        """A text with its length before it."""
        (size,) = _LENGTH.unpack(self.read(4))
        if size > _MAX_TEXT:
            raise PipelineError("a text on the bridge is too long")
        return self.read(size).decode()

    def receive_message(self) -> bytes:
        """Bytes with their length before them."""
        (size,) = _LENGTH.unpack(self.read(4))
        return self.read(size)

    def send_text(self, text: str) -> None:
        """A text with its length before it."""
        data = text.encode()
        self._socket.sendall(_LENGTH.pack(len(data)) + data)

    def send(self, *parts: bytes | pa.Buffer) -> None:
        """Bytes, as they are. Large ones are not copied."""
        if sum(map(len, parts)) <= 1 << 14:
            self._socket.sendall(b"".join(parts))
            return
        for part in parts:
            self._socket.sendall(part)

    def send_now(self, data: bytes) -> bytes:
        """As much as fits without waiting; returns the rest."""
        try:
            sent = self._socket.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            sent = 0
        return data[sent:]

    def end(self) -> None:
        """End it; whoever reads or writes on either side hears of it."""
        _end(self._socket)

    def close(self) -> None:
        """End it, and let go of it. Only by the thread that serves it."""
        self.end()
        self._socket.close()


class EncryptedConnection(Connection):
    """One that is encrypted: nothing can be asked of it without waiting, so its thread does all."""

    __slots__ = ()

    def lend(self, ready: Callable[[], bool]) -> None:
        """Leave it to its own thread."""

    def send_now(self, data: bytes) -> bytes:
        """Nothing is sent without waiting; returns all of it."""
        return data


class _Unproven:
    """The connections whose peer has not shown that it knows the secret: few at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, None] = {}

    def add(self, conn: socket.socket) -> None:
        """One more; the oldest must go when there are too many."""
        with self._lock:
            if len(self._connections) >= _MAX_UNPROVEN:
                self._end_oldest()
            self._connections[conn] = None

    def remove(self, conn: socket.socket) -> None:
        """It has proven itself, or has gone."""
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
            _end(oldest)


class BridgeServer:
    """Listens for Spark's tasks.

    Args:
        host: the address to listen on, which tasks connect to.

    Attributes:
        host: that address.
        port: the port.
        secret: what a task must know.
        certificate: what it must find here, in DER; empty when connections are not encrypted.

    Raises:
        PipelineError: it is not the loopback address, and what encrypts is not installed.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.host = host
        self.secret = secrets.token_bytes(_SECRET_BYTES)
        made = None if _is_loopback(host) else make_certificate()
        self.certificate = b"" if made is None else made.der
        self._context = None if made is None else made.context
        self._ends: dict[str, Endpoint] = {}
        self._open: set[Connection] = set()
        self._unproven = _Unproven()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._receiver = Receiver()
        self._listener = socket.create_server((host, 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        # Without it no task gets through; refused, Spark fails the queries, and views say so.
        thread("bridge", self._accept, lambda _error: self.close()).start()

    def add(self, feed: str, end: Endpoint) -> None:
        """Serve a view."""
        self._ends[feed] = end

    def remove(self, feed: str) -> None:
        """Serve it no more."""
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


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _end(conn: socket.socket) -> None:
    with contextlib.suppress(OSError):
        # An encrypted one would first forget its keys, in the middle of another thread's read.
        socket.socket.shutdown(conn, socket.SHUT_RDWR)


def _is_loopback(host: str) -> bool:
    """Whether all addresses of a host are this machine's own."""
    found = {info[4][0] for info in socket.getaddrinfo(host, None)}
    return all(ipaddress.ip_address(address).is_loopback for address in found)
