"""Sending and receiving what a socket takes or has at once, without letting go of the interpreter.

``socket.send`` and ``socket.recv`` release the interpreter lock around each call, also around one
that never waits. With twenty views a commit is twenty such calls: after each of them the thread
waits until others, which it has just woken, have had their turn. These calls keep the lock for the
ten microseconds that they take.
"""

from __future__ import annotations

import ctypes
import os
import socket
from typing import Final

_LIBRARY: Final = ctypes.PyDLL(None, use_errno=True)
_FLAGS: Final = socket.MSG_DONTWAIT | getattr(socket, "MSG_NOSIGNAL", 0)

_send = _LIBRARY.send
_send.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int)
_send.restype = ctypes.c_ssize_t
_recv = _LIBRARY.recv
_recv.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_recv.restype = ctypes.c_ssize_t


def send_at_once(conn: socket.socket, data: bytes) -> int:
    """Send what fits; returns how many bytes that were.

    Raises:
        BlockingIOError: nothing fits.
        OSError: the connection has ended.
    """
    sent: int = _send(conn.fileno(), data, len(data), _FLAGS)
    if sent < 0:
        raise _error()
    return sent


class ReceiveBuffer:
    """A buffer of some size for one thread at a time: to make one takes longer than to receive."""

    __slots__ = ("_buffer",)

    def __init__(self, size: int) -> None:
        self._buffer = ctypes.create_string_buffer(size)

    def receive_at_once(self, conn: socket.socket) -> bytes:
        """Receive what has arrived, up to the size; no bytes when the other side has ended.

        Raises:
            BlockingIOError: nothing has arrived.
            OSError: the connection has ended.
        """
        received: int = _recv(conn.fileno(), self._buffer, len(self._buffer), _FLAGS)
        if received < 0:
            raise _error()
        return ctypes.string_at(self._buffer, received)


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
