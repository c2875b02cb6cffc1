"""One thread that receives the small results of all live views of a database.

Ten views answer a push at the same time. With a thread for each of them they take the interpreter
from each other, again and again, and all are done late; one thread is done with the first while
the second waits. What is large or takes long goes back to the connection's own thread.
"""

from __future__ import annotations

import selectors
import socket
import threading
from typing import TYPE_CHECKING

from millstream.threads import thread

if TYPE_CHECKING:
    from collections.abc import Callable

    Ready = Callable[[], bool]


class _Stay:
    """A connection that is served here for a while."""

    __slots__ = ("conn", "error", "over", "ready")

    def __init__(self, conn: socket.socket, ready: Ready) -> None:
        self.conn = conn
        self.ready = ready
        self.over = threading.Event()
        self.error: BaseException | None = None


class Receiver:
    """Serves connections that were lent to it, in a thread that starts with the first."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._door, self._bell = socket.socketpair()
        self._selector.register(self._door, selectors.EVENT_READ)
        self._coming: list[_Stay] = []
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
        stay = _Stay(conn, ready)
        with self._lock:
            if self._closed:
                return
            self._coming.append(stay)
            if self._thread is None:
                # Should it crash, connections are served by their own threads, more slowly.
                self._thread = thread("receiver", self._run, lambda _: None)
                self._thread.start()
            self._bell.send(b"\0")
        stay.over.wait()
        if stay.error is not None:
            raise stay.error

    def close(self) -> None:
        """Serve nobody any more. Twice is fine."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._thread is not None:
                self._bell.send(b"\0")
                return
        self._end()

    def _run(self) -> None:
        try:
            while not self._closed:
                for key, _ in self._selector.select():
                    if key.data is not None:
                        self._serve(key.data)
                    else:
                        self._door.recv(4096)
                        self._admit()
        finally:
            self._end()

    def _admit(self) -> None:
        with self._lock:
            coming, self._coming = self._coming, []
        for stay in coming:
            try:
                self._selector.register(stay.conn, selectors.EVENT_READ, stay)
            except (OSError, ValueError) as error:  # it was closed meanwhile
                stay.error = error
                stay.over.set()

    def _serve(self, stay: _Stay) -> None:
        try:
            if stay.ready():
                return
        except BaseException as error:  # noqa: BLE001 - raised in the connection's own thread
            stay.error = error
        self._selector.unregister(stay.conn)
        stay.over.set()

    def _end(self) -> None:
        with self._lock:
            self._closed = True
            served = [key.data for key in self._selector.get_map().values() if key.data is not None]
            for stay in served + self._coming:
                stay.over.set()
            self._selector.close()
            self._door.close()
            self._bell.close()
