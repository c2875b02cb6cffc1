"""The inbox of a subscription to a server: batches that have come and were not taken yet.

It has the methods of ``delivery.Inbox`` that subscriptions use, so that these are the same classes
with a server as with a database in this process.
"""

from __future__ import annotations

import sys
import threading
import time
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.client.frames import FrameReader
from millstream.delivery.backpressure import Policy, slice_end
from millstream.delivery.live_side import Progress
from millstream.errors import SlowConsumerError
from millstream.model.batch import ChangeBatch
from millstream.model.lsn import ResumeToken
from millstream.model.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.errors import Error

NOTIFICATION: Final = Schema.of(channel="VARCHAR NOT NULL", payload="VARCHAR NOT NULL")
_MESSAGES: Final = 65_536


@dataclass(slots=True)
class _Backlog:
    policy: Policy
    limit: int
    dropped: int = 0
    conflated: int = 0


class _Positions:
    """What a subscription asks its feed and its log for: tokens, times, what is on the disk."""

    def __init__(self, token: Callable[[int], str]) -> None:
        self.token = token
        self.log = self

    def resume(self, token: str) -> int:
        """The LSN of a token."""
        return ResumeToken.parse(token).lsn

    def clock(self) -> int:
        """Now, in microseconds since 1970."""
        return time.time_ns() // 1000

    def await_durable(self, lsn: int) -> None:
        """Return at once: the server sends durable subscriptions only what is on its disk."""


class RemoteInbox:
    """One reader's batches, in LSN order, each once.

    Args:
        number: its id on the connection.
        wanted: the fields of its ``subscribe`` message, or of another with its ``type``.
        send: sends a message to the server, if it is there.
        limit: when so many rows wait, the server is asked to pause.
        sql: what it is called; None: its query.
        frames: turns what the server sends into batches; None: those of one query.

    Attributes:
        frames: turns what the server sends into batches.
        is_ready: whether the server has opened it, on this connection.
        was_ready: whether the server has opened it at any time.
        error: why it has ended.
    """

    has_more_ahead = is_reading_log = awaits_snapshot = False

    def __init__(
        self,
        number: int,
        wanted: dict[str, Any],
        send: Callable[[dict[str, Any]], None],
        *,
        limit: int,
        sql: str | None = None,
        frames: FrameReader | None = None,
    ) -> None:
        self.number = number
        self.sql: str = sql or wanted["sql"]
        self._wanted = wanted
        self._send = send
        is_durable = wanted.get("name") is not None
        self.frames = FrameReader(drops_repeated=is_durable) if frames is None else frames
        self.feed = _Positions(self.token)
        self.backlog = _Backlog(Policy.parse(wanted.get("backpressure", "block")), limit)
        self.progress = Progress()
        self.taken: tuple[ChangeBatch, int] | None = None
        self.error: Error | None = None
        self.is_ready = self.was_ready = False
        self.opened = threading.Event()
        self._lock = threading.Lock()
        self._batches: deque[ChangeBatch] = deque()
        self._rows = 0
        self._holds_server = False
        self._is_ended = self._is_discarded = False
        self._offer_waiters: list[Callable[[], None]] = []
        self._call_waiters: list[Callable[[], None]] = []

    # ---- from the connection

    def opening(self) -> list[dict[str, Any]]:
        """The messages that open it on a new connection, after all that has come before."""
        self.is_ready = self._holds_server = False
        self.frames.connected()
        message = {"type": "subscribe", "id": self.number, **self._wanted}
        token, start = self.frames.token, self._wanted.get("start")
        # A place in the past is named by the start until something of it has come.
        if token and (self.frames.has_begun or start in {None, "now", "snapshot"}):
            message["start"] = token
        return [message]

    def closing(self) -> list[dict[str, Any]]:
        """The messages that end it."""
        return [{"type": "unsubscribe", "id": self.number}]

    def ready(self, frame: dict[str, Any]) -> None:
        """The server has opened it."""
        self.frames.ready(frame)
        if not self.was_ready:
            self.progress.position = self.frames.lsn
        self.is_ready = self.was_ready = True
        self.opened.set()

    def put(self, batches: list[ChangeBatch]) -> None:
        """Take what has come; asks the server to pause when it is too much."""
        with self._lock:
            if self._is_ended:
                return
            self._batches.extend(batches)
            self._rows += sum(map(len, batches))
            holds = self._rows >= self.backlog.limit and not self._holds_server
            self._holds_server |= holds
            waiters, self._offer_waiters = self._offer_waiters, []
        if holds:
            self._send({"type": "pause", "id": self.number})
        for wake in waiters:
            wake()

    def end(self, error: Error | None = None) -> None:
        """Nothing more will come; what is there can still be taken."""
        with self._lock:
            if not self._is_ended:
                self._is_ended, self.error = True, error
        self.opened.set()
        self.wake_up()

    # ---- what there is

    def token(self, lsn: int) -> str:
        """The text to resume after an LSN."""
        origins = self.frames.origins
        if not origins:  # of a listener, which cannot resume
            return ""
        place = bisect_right(origins, lsn, key=lambda each: each[0])
        _, database, epoch = origins[max(0, place - 1)]
        return str(ResumeToken(database, epoch, lsn))

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come, now or later."""
        return self._is_discarded or (self._is_ended and not self._batches)

    @property
    def may_have_news(self) -> bool:
        """Whether it is worth taking a batch."""
        return self._is_ended or bool(self._batches)

    def lag(self) -> tuple[int, int | None]:
        """How many rows wait here, and when the oldest of them was committed, if known."""
        with self._lock:
            since = self._batches[0].committed_at if self._batches else 0
        return self._rows, since or None

    def settled_lsn(self) -> int:
        """Everything up to this LSN was taken, or is not for this reader."""
        received = self.frames.lsn if self.frames.has_begun else 0
        if self._batches:
            return self.progress.position
        return max(received, self.progress.position)

    # ---- taking

    def take_only(self) -> bool:
        """There is always more to it."""
        return False

    def take(self, max_rows: int | None = None, *, merge: int = 0) -> ChangeBatch | None:  # noqa: ARG002 - as Inbox has it
        """The next batch, of at most so many rows; None when there is none at the moment."""
        with self._lock:
            if not self._batches:
                return None
            batch = self._batches.popleft()
            end = len(batch) if max_rows is None else slice_end(batch, max_rows)
            if end < len(batch):
                self._batches.appendleft(batch.slice(end))
                batch = batch.slice(0, end)
            self._rows -= len(batch)
            resumes = self._holds_server and 2 * self._rows <= self.backlog.limit
            if resumes:
                self._holds_server = False
            self.progress.position = max(self.progress.position, batch.lsn)
            self.progress.delivered += len(batch)
            self.progress.lost += self._lost(batch)
        if resumes:
            self._send({"type": "resume", "id": self.number})
        return batch

    def _lost(self, batch: ChangeBatch) -> int:
        """How many rows were lost before a batch."""
        return 0 if batch.gap is None else batch.gap.count or 0

    def discard(self) -> None:
        """End, and drop everything that was not taken."""
        with self._lock:
            self._is_discarded = True
            self._batches.clear()
            self._rows = 0
        self.end()

    # ---- waiting

    def hand_to(self, _: Callable[[ChangeBatch | None], None]) -> bool:
        """The reader takes batches itself."""
        return False

    def wake_on_news(self, wake: Callable[[], None]) -> bool:
        """Have a function called, once, when there is news; False when there is some already."""
        with self._lock:
            if self.may_have_news:
                return False
            self._offer_waiters.append(wake)
        return True

    def wake_on_call(self, wake: Callable[[], None]) -> bool:
        """Have a function called, once, by ``wake_up`` only; False: it has ended."""
        with self._lock:
            if self._is_ended:
                return False
            self._call_waiters.append(wake)
        return True

    def forget(self, wake: Callable[[], None]) -> None:
        """Do not call a function any more."""
        with self._lock:
            self._offer_waiters = [each for each in self._offer_waiters if each is not wake]
            self._call_waiters = [each for each in self._call_waiters if each is not wake]

    def wake_up(self) -> None:
        """Wake every reader that waits, so that it checks its state."""
        with self._lock:
            waiters = self._offer_waiters + self._call_waiters
            self._offer_waiters, self._call_waiters = [], []
        for wake in waiters:
            wake()


class ListenerInbox(RemoteInbox):
    """The messages on some channels. Those that are sent while the server is away do not come.

    Args:
        number: its id on the connection.
        channels: which.
        send: sends a message to the server, if it is there.
    """

    def __init__(
        self, number: int, channels: tuple[str, ...], send: Callable[[dict[str, Any]], None]
    ) -> None:
        wanted = {"sql": f"LISTEN {', '.join(channels)}", "backpressure": "block"}
        super().__init__(number, wanted, send, limit=sys.maxsize)  # a channel has no pause
        self.frames.schema = NOTIFICATION
        self.channels = channels
        self._confirmed = 0

    def opening(self) -> list[dict[str, Any]]:
        """The messages that open it on a new connection."""
        self.is_ready, self._confirmed = False, 0
        return [
            {"type": "listen", "id": self.number, "channel": channel} for channel in self.channels
        ]

    def closing(self) -> list[dict[str, Any]]:
        """The messages that end it; without channels that others listen to."""
        return [
            {"type": "unlisten", "id": self.number, "channel": channel} for channel in self.channels
        ]

    def confirmed(self) -> None:
        """The server listens on one channel more."""
        self._confirmed += 1
        if self._confirmed >= len(self.channels):
            self.is_ready = self.was_ready = True
            self.opened.set()

    def notified(self, frame: dict[str, Any]) -> None:
        """Take a message, if it is on one of its channels."""
        if frame["channel"] not in self.channels:
            return
        row, lsn = (frame["channel"], frame["payload"]), frame["lsn"]
        now = self.feed.clock()
        batch = ChangeBatch(
            NOTIFICATION, [row], None, None, first_lsn=lsn, lsn=lsn, committed_at=now
        )
        self.put([batch])
        if self._rows > _MESSAGES:
            error = SlowConsumerError(
                f"more than {_MESSAGES:,} messages wait to be read",
                token="",
                hint="read messages faster, or in a thread of their own",
            )
            self.end(error)
