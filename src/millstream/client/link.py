"""The link: one WebSocket for all subscriptions of a client, made again whenever it breaks."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.sync.client import connect

from millstream.client.cuts import CutReader, RemoteCutInbox
from millstream.client.frames import parse_message
from millstream.client.http import bearer, delays
from millstream.client.inbox import ListenerInbox, RemoteInbox
from millstream.client.remote_errors import error_from
from millstream.errors import (
    ClosedError,
    DisconnectedError,
    Error,
    LimitError,
    QueryTimeoutError,
    RequestError,
    ServerError,
    SubscriptionExistsError,
)
from millstream.formats.json_output import to_json
from millstream.threads import thread

if TYPE_CHECKING:
    import pyarrow as pa
    from websockets.sync.client import ClientConnection

    from millstream.client.frames import FrameReader

_OPEN_SECONDS: Final = 5.0
_LASTING_SECONDS: Final = 2 * _OPEN_SECONDS
_REFUSED: Final = range(400, 500)
# What may pass when a subscription is opened again: the server starts, or has not noticed yet that
# the connection from before is gone.
_PASSING: Final = (ClosedError, LimitError, QueryTimeoutError, SubscriptionExistsError)


class _Broken(Exception):  # noqa: N818 - never leaves the module
    """The connection is to be made again."""


class Link:
    """The subscriptions of a client, and the connection that they are on.

    A thread of its own receives, from the first subscription on. When the connection breaks it
    makes another one, after longer and longer pauses, and opens each subscription there after the
    last frame that came.

    Args:
        url: of the server.
        key: an API key.
        timeout: for how many seconds ``open`` waits for the server.
    """

    def __init__(self, url: str, key: str | None, timeout: float) -> None:
        self._url = f"ws{url.removeprefix('http')}/v1/ws"
        self._key = key
        self._timeout = timeout
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()
        self._inboxes: dict[int, RemoteInbox] = {}
        self._forgotten: deque[int] = deque()
        self._acks: dict[int, _Ack] = {}
        self._socket: ClientConnection | None = None
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    # ---- for subscriptions

    def open(self, wanted: dict[str, Any], limit: int) -> RemoteInbox:
        """Open a subscription: a row that is pushed after this returns is seen.

        Raises:
            DisconnectedError: the server did not answer in time.
            Error: the server has refused it.
        """
        return self._opened(RemoteInbox(next(self._numbers), wanted, self.send, limit=limit))

    def open_cut(self, queries: list[str], wanted: dict[str, Any], limit: int) -> RemoteInbox:
        """Open a subscription to several queries; raises as ``open`` does."""
        return self._opened(
            RemoteCutInbox(
                next(self._numbers),
                {"queries": queries, **wanted},
                self.send,
                limit=limit,
                sql=", ".join(queries),
                frames=CutReader(queries),
            )
        )

    def open_changes(self, wanted: dict[str, Any], limit: int, frames: FrameReader) -> RemoteInbox:
        """Follow the change bus; raises as ``open`` does."""
        return self._opened(
            RemoteInbox(
                next(self._numbers),
                {"type": "changes", **wanted},
                self.send,
                limit=limit,
                sql=f"changes of {wanted.get('collection') or 'everything'}",
                frames=frames,
            )
        )

    def listen(self, channels: tuple[str, ...]) -> RemoteInbox:
        """Listen to channels; raises as ``open`` does."""
        return self._opened(ListenerInbox(next(self._numbers), channels, self.send))

    def _opened(self, inbox: RemoteInbox) -> RemoteInbox:
        is_answered = False
        try:
            self._add(inbox)
            is_answered = inbox.opened.wait(self._timeout)
        finally:
            if not is_answered:
                self.leave(inbox)
        if not is_answered:
            raise DisconnectedError(
                f"the server did not open the subscription within {self._timeout:g} seconds",
                hint="is it running? ms.connect(..., timeout=) waits longer",
            )
        if inbox.error is not None:
            raise inbox.error
        if not inbox.was_ready:
            raise ClosedError("the client was closed meanwhile", hint="ms.connect again")
        return inbox

    def leave(self, inbox: RemoteInbox) -> None:
        """End a subscription."""
        with self._lock:
            if self._inboxes.pop(inbox.number, None) is not None:
                used = {name for other in self._listeners() for name in other.channels}
                for message in inbox.closing():
                    if message.get("channel") not in used:
                        self.send(message)
        inbox.end()

    def forget(self, inbox: RemoteInbox) -> None:
        """End a subscription that was garbage collected. It takes no lock, as any may be held."""
        self._forgotten.append(inbox.number)

    def acknowledge(self, inbox: RemoteInbox, lsn: int) -> None:
        """Have the server save an LSN as acknowledged.

        Raises:
            DisconnectedError: it is not there at the moment, so nothing is known.
            Error: the server has refused it.
        """
        ack = _Ack()
        with self._lock:
            self._acks[inbox.number] = ack
            is_sent = self._socket is not None
            self.send({"type": "ack", "id": inbox.number, "token": lsn})
        is_answered = is_sent and ack.answered.wait(self._timeout)
        self._acks.pop(inbox.number, None)
        if not is_answered:
            raise DisconnectedError(
                "the server cannot be reached, and has not confirmed the acknowledgement",
                hint="acknowledge again; batches without an acknowledgement are delivered again",
            )
        if ack.error is not None:
            raise ack.error

    def send(self, message: dict[str, Any]) -> None:
        """Send a message, if there is a connection."""
        socket = self._socket
        if socket is not None:
            with contextlib.suppress(WebSocketException, OSError):  # the thread will notice
                socket.send(to_json(message))

    def close(self) -> None:
        """End all subscriptions, and the connection. Twice is fine."""
        self._closed.set()
        with self._lock:
            inboxes, self._inboxes = [*self._inboxes.values()], {}
            socket, running = self._socket, self._thread
        for inbox in inboxes:
            inbox.end()
        if socket is not None:
            socket.close()
        if running is not None and running is not threading.current_thread():
            running.join(_OPEN_SECONDS)

    def _add(self, inbox: RemoteInbox) -> None:
        with self._lock:
            if self._closed.is_set():
                raise ClosedError("the client is closed", hint="ms.connect again")
            self._inboxes[inbox.number] = inbox
            for message in inbox.opening():
                self.send(message)
            if self._thread is None:
                self._thread = thread("client", self._run, self._crashed)
                self._thread.start()

    # ---- the thread

    def _run(self) -> None:
        waits = delays()
        while self._has_work():
            began = time.monotonic()
            try:
                self._serve()
            except InvalidStatus as error:
                refusal = _refusal(error)
                if refusal is not None:
                    self._fail_all(refusal)
            except (WebSocketException, OSError, _Broken):
                pass
            finally:
                self._disconnected()
            if time.monotonic() - began > _LASTING_SECONDS:
                waits = delays()  # a server that refuses at once is not asked in a tight loop
            self._closed.wait(next(waits))

    def _has_work(self) -> bool:
        with self._lock:
            if self._inboxes and not self._closed.is_set():
                return True
            self._thread = None
            return False

    def _serve(self) -> None:
        """Connect, and take what comes until the connection breaks."""
        with connect(
            self._url,
            additional_headers=bearer(self._key),
            compression=None,
            max_size=None,
            open_timeout=_OPEN_SECONDS,
            close_timeout=1.0,
        ) as socket:
            with self._lock:
                self._socket = socket
                for inbox in self._inboxes.values():
                    for message in inbox.opening():
                        self.send(message)
            while not self._closed.is_set():
                self._take(*parse_message(socket.recv()))
                while self._forgotten:
                    forgotten = self._inboxes.get(self._forgotten.popleft())
                    if forgotten is not None:
                        self.leave(forgotten)

    def _disconnected(self) -> None:
        with self._lock:
            self._socket = None
            acks, self._acks = self._acks, {}
        for ack in acks.values():
            ack.answer(DisconnectedError("the connection broke before the answer came"))

    def _take(self, frame: dict[str, Any], rows: pa.RecordBatch | None) -> None:
        kind, number = frame["type"], frame.get("id")
        if kind == "notification":
            for listener in self._listeners():
                listener.notified(frame)
            return
        inbox = self._inboxes.get(number) if isinstance(number, int) else None
        if inbox is None:
            return  # it was ended meanwhile
        if kind == "ready":
            inbox.ready(frame)
        elif kind in {"ok", "error"} and self._is_ack(inbox, frame):
            pass
        elif kind == "error":
            self._refused(inbox, error_from(frame["error"], sql=inbox.sql))
        elif kind == "end":
            raise _Broken  # the server stops; another one will go on
        elif kind == "ok":
            if isinstance(inbox, ListenerInbox):
                inbox.confirmed()
        else:
            inbox.put(inbox.frames.read(frame, rows))

    def _listeners(self) -> list[ListenerInbox]:
        with self._lock:
            return [each for each in self._inboxes.values() if isinstance(each, ListenerInbox)]

    def _is_ack(self, inbox: RemoteInbox, frame: dict[str, Any]) -> bool:
        """Whether a frame answers an acknowledgement."""
        if frame["type"] == "ok" and frame.get("of") != "ack":
            return False
        ack = self._acks.pop(inbox.number, None)
        if ack is not None:
            ack.answer(error_from(frame["error"]) if frame["type"] == "error" else None)
        return ack is not None

    def _refused(self, inbox: RemoteInbox, error: Error) -> None:
        """End a subscription with the server's error, unless that passes."""
        if inbox.was_ready and not inbox.is_ready and isinstance(error, _PASSING):
            raise _Broken
        if inbox.is_ready and isinstance(error, RequestError):
            return  # a pause or a resume that has crossed its end
        with self._lock:
            self._inboxes.pop(inbox.number, None)
        inbox.end(error)

    def _fail_all(self, error: Error) -> None:
        with self._lock:
            inboxes, self._inboxes = [*self._inboxes.values()], {}
        for inbox in inboxes:
            inbox.end(error.again())

    def _crashed(self, error: Exception) -> None:
        with self._lock:
            self._thread = None
        self._fail_all(
            DisconnectedError(
                f"the client's thread ended: {type(error).__name__}: {error}",
                hint="subscribe again; this is a bug in Millstream, please report it",
            )
        )


class _Ack:
    """An acknowledgement that waits for its answer."""

    def __init__(self) -> None:
        self.answered = threading.Event()
        self.error: Error | None = None

    def answer(self, error: Error | None) -> None:
        self.error = error
        self.answered.set()


def _refusal(refused: InvalidStatus) -> Error | None:
    """Why the server has not let the client in; None if that passes."""
    if refused.response.status_code not in _REFUSED:
        return None
    try:
        found = error_from(json.loads(refused.response.body or b"")["error"])
    except (ValueError, KeyError, TypeError):
        return ServerError(f"the server refused the WebSocket: {refused}")
    return None if isinstance(found, LimitError) else found
