"""A connection of one of Spark's tasks, and the thread that serves the quiet ones together.

Ten views answer a push at the same time. With a thread for each of them they take the interpreter
from each other, again and again, and all are done late; one thread is done with the first while
the second waits. So a connection that expects only a few bytes is lent to the ``SharedReceiver``;
what is large or takes long goes back to the connection's own thread.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Final

from millstream.errors import PipelineError
from millstream.threads import thread

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    Ready = Callable[[], bool]
    Together = Callable[[], contextlib.AbstractContextManager[None]]

_LENGTH = struct.Struct(">I")
_MAX_TEXT: Final = 1 << 24
_CHUNK: Final = 1 << 16
_MOST: Final = 1 << 20


class Connection:
    """One connection of a task.

    Args:
        conn: its socket.
        receiver: serves it while it is lent; None: its own thread does.
    """

    __slots__ = ("_at", "_data", "_deadline", "_receiver", "_socket")

    def __init__(self, conn: socket.socket, receiver: SharedReceiver | None = None) -> None:
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
            EOFError: the task has closed the connection.
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

    def read_now(self) -> bytes | None:
        """What there is, without waiting, up to some size; None when the task has closed it."""
        data, self._data = self._data[self._at :], b""
        self._at = 0
        try:
            new = self._socket.recv(_CHUNK, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return data
        if not new:
            self._data = data
            return None
        return data + new if data else new

    def unread(self, data: bytes) -> None:
        """Give back the end of what ``read_now`` gave: it is read again."""
        self._data = data

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
        """End it; reads and writes on either side fail."""
        end_socket(self._socket)

    def close(self) -> None:
        """End it and close its socket. Only by the thread that serves it."""
        self.end()
        self._socket.close()


class EncryptedConnection(Connection):
    """A connection under TLS, which cannot be read without waiting: its own thread serves it."""

    __slots__ = ()

    def lend(self, ready: Callable[[], bool]) -> None:
        """Return at once: its own thread goes on."""

    def send_now(self, data: bytes) -> bytes:
        """Send nothing; returns all of it."""
        return data


class _Loan:
    """A connection that the shared thread serves until ``over`` is set."""

    __slots__ = ("conn", "error", "over", "ready")

    def __init__(self, conn: socket.socket, ready: Ready) -> None:
        self.conn = conn
        self.ready = ready
        self.over = threading.Event()
        self.error: BaseException | None = None


class SharedReceiver:
    """Serves connections that were lent to it, in a thread that starts with the first.

    Args:
        together: a block in which those are served that have something at the same time.
    """

    def __init__(self, together: Together = contextlib.nullcontext) -> None:
        self._together = together
        self._selector = selectors.DefaultSelector()
        self._woken, self._wake = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._waiting: list[_Loan] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def serve(self, conn: socket.socket, ready: Ready) -> None:
        """Serve a connection; returns when its own thread should go on.

        Args:
            conn: the connection.
            ready: called when something has arrived. It must not wait. False: its own thread should
                go on. What it raises is raised here.
        """
        loan = _Loan(conn, ready)
        with self._lock:
            if self._closed:
                return
            self._waiting.append(loan)
            if self._thread is None:
                # Should it crash, connections are served by their own threads, more slowly.
                self._thread = thread("receiver", self._run, lambda _: None)
                self._thread.start()
            self._wake.send(b"\0")
        loan.over.wait()
        if loan.error is not None:
            raise loan.error

    def close(self) -> None:
        """Give every connection back to its own thread. Twice is fine."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._thread is not None:
                self._wake.send(b"\0")
                return
        self._end()

    def _run(self) -> None:
        try:
            while not self._closed:
                loans = [key.data for key, _ in self._selector.select()]
                if None in loans:
                    self._woken.recv(4096)
                    self._register()
                with self._together():
                    for loan in loans:
                        if loan is not None:
                            self._serve(loan)
        finally:
            self._end()

    def _register(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for loan in waiting:
            try:
                self._selector.register(loan.conn, selectors.EVENT_READ, loan)
            except (OSError, ValueError) as error:  # it was closed meanwhile
                loan.error = error
                loan.over.set()

    def _serve(self, loan: _Loan) -> None:
        try:
            if loan.ready():
                return
        except BaseException as error:  # noqa: BLE001 - raised in the connection's own thread
            loan.error = error
        self._selector.unregister(loan.conn)
        loan.over.set()

    def _end(self) -> None:
        with self._lock:
            self._closed = True
            served = [key.data for key in self._selector.get_map().values() if key.data is not None]
            for loan in served + self._waiting:
                loan.over.set()
            self._selector.close()
            self._woken.close()
            self._wake.close()


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def end_socket(conn: socket.socket) -> None:
    """End a connection; a thread that reads or writes on it gets an error."""
    with contextlib.suppress(OSError):
        # An encrypted one would first forget its keys, in the middle of another thread's read.
        socket.socket.shutdown(conn, socket.SHUT_RDWR)
