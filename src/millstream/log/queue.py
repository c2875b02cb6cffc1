"""Commits on their way into the log: what they hold, and the queue that gives them their LSNs."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.errors import ClosedError, TopicNotFoundError
from millstream.log.frame import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from millstream.errors import LogError
    from millstream.log.topics import Topic, Topics
    from millstream.model.batch import ChangeBatch
    from millstream.model.clock import Clock

QUEUE_BYTES: Final = 64 << 20
"""What may wait in memory before appenders have to write themselves."""

GROUP_ENTRIES: Final = 4096
"""How many entries are encoded and written at once, at most."""

_ROW_ESTIMATE: Final = 64

FEW_BYTES: Final = 1 << 16
_FEW_ROWS: Final = 64
"""What a thread that has just handed rows on writes itself, rather than wake another thread."""


class Part(NamedTuple):
    """The rows, or the lone watermark, that a commit adds to one topic."""

    topic: Topic
    version: int
    batch: ChangeBatch


def held_bytes(batch: ChangeBatch) -> int:
    """About how much memory a batch keeps from being freed."""
    if batch.is_arrow:
        return int(batch.arrow.get_total_buffer_size())
    rows = batch.held_rows
    if not rows:
        return _ROW_ESTIMATE
    # The first row and the last stand for all: to look at each would cost more than the append.
    text = 0
    for value in rows[0] if len(rows) == 1 else rows[0] + rows[-1]:
        if type(value) is str or type(value) is bytes:
            text += len(value)
    return (_ROW_ESTIMATE + text) * len(rows)


@dataclass(slots=True, eq=False)
class Entry:
    """One commit in the queue: parts, which appear together, or a definition.

    Attributes:
        parts: what it adds to topics.
        first_lsn: the first LSN it takes, or the next one when it takes none.
        waited_for: a caller waits for it, and will be given its error.
        kind: ROWS for parts; TOPIC, EPOCH or FIRST for a definition.
        payload: the definition.
        topic: the topic that holds from here on, for TOPIC.
        first: the first segment that has to be there from here on, for FIRST.
        committed_at: when the log took it.
        sequence: its place among all entries, definitions included.
        nbytes: about how much memory it holds.
        error: why it will never be written, or None.
    """

    parts: Sequence[Part]
    first_lsn: int
    waited_for: bool = False
    kind: Kind = Kind.ROWS
    payload: bytes = b""
    topic: Topic | None = None
    first: int = 0
    committed_at: int = 0
    sequence: int = 0
    nbytes: int = 0
    error: LogError | None = None

    def applied_to(self, topics: Topics) -> Topics:
        """The topics once it is written."""
        if self.topic is not None:
            return topics.with_topic(self.topic)
        return topics.with_first(self.first) if self.first else topics


class CommitQueue:
    """Numbers commits and keeps them, in order, until they are written.

    Its lock, ``order``, is held for a microsecond at a time. Entries leave the queue under the
    lock of the file, too: see ``writer``.

    Args:
        order: the lock.
        arrived: called with the number of each new entry, under the lock.
        next_lsn: the LSN that the next row will have.
        last_time: the time of the last commit.
        origin: the database and the number of this run.
        clock: the time, in microseconds since 1970 UTC.

    Attributes:
        entries: what waits, oldest first.
        next_lsn: the LSN that the next row will have.
        last_time: the time of the newest commit.
        nbytes: about how much memory the entries hold.
        sequence: the number of the newest entry.
        written: the number of the newest entry that was written.
        in_hand: how many entries at the head are being written.
        stalled: the disk did not take what is first in the queue.
        closed: it takes nothing more.
        dropped: the topics that take no more rows.
    """

    def __init__(
        self,
        order: threading.Lock,
        arrived: Callable[[int], None],
        *,
        next_lsn: int,
        last_time: int,
        origin: tuple[UUID, int],
        clock: Clock,
    ) -> None:
        self.entries: deque[Entry] = deque()
        self.next_lsn = next_lsn
        self.last_time = last_time
        self.nbytes = 0
        self.sequence = self.written = 0
        self.in_hand = 0
        self.stalled = False
        self.closed = False
        self.dropped: set[int] = set()
        self._order = order
        self._arrived = arrived
        self._origin = origin
        self._clock = clock
        self._wake = threading.Condition(order)
        self._asleep = False

    @property
    def has_few(self) -> bool:
        """Whether what waits is little, and surely so: ``nbytes`` of rows is an estimate."""
        if self.nbytes > FEW_BYTES:
            return False
        held = [part.batch for entry in list(self.entries) for part in entry.parts]
        estimated = [batch for batch in held if not batch.is_arrow]
        return sum(map(len, estimated)) <= _FEW_ROWS and not any(
            batch.schema.is_nested for batch in estimated
        )

    # ---- in

    def place(self, parts: Sequence[Part], *, waited_for: bool) -> Entry:
        """Give a commit its LSNs and its time, and add it.

        Raises:
            TopicNotFoundError: a topic of it was dropped.
            ClosedError: the queue takes nothing more.
        """
        with self._order:
            now = self.last_time = max(self.last_time, self._clock())
            first = lsn = self.next_lsn
            nbytes = 0
            for topic, _, batch in parts:
                if topic.id in self.dropped:
                    raise TopicNotFoundError(f"the topic {topic.name!r} was dropped meanwhile")
                batch.put_at(topic.name, lsn, now, self._origin)
                lsn = batch.lsn + 1
                nbytes += held_bytes(batch)
            entry = Entry(parts, first, waited_for, nbytes=nbytes)
            # In this order: an interrupt here leaves a hole, and not one LSN for two rows.
            self.next_lsn = lsn
            self._add(entry)
            return entry

    def next_place(self) -> tuple[int, int, tuple[UUID, int]]:
        """The LSN, the time and the origin that a commit would have now."""
        return self.next_lsn, max(self.last_time, self._clock()), self._origin

    def add(self, parts: Sequence[Part], committed_at: int) -> None:
        """Add a commit whose batches were given their places by ``next_place``."""
        with self._order:
            first = parts[0].batch.first_lsn
            if first != self.next_lsn:
                raise AssertionError(f"LSN {first} was given out, and {self.next_lsn} is next")
            self.last_time = committed_at
            nbytes = 0
            for part in parts:
                nbytes += held_bytes(part.batch)
            self.next_lsn = parts[-1].batch.lsn + 1
            self._add(Entry(parts, first, nbytes=nbytes))

    def define(
        self,
        kind: Kind,
        payload: bytes,
        *,
        topic: Topic | None = None,
        first: int = 0,
        waited_for: bool = True,
    ) -> Entry:
        """Add a definition; a topic that it drops takes no more rows."""
        with self._order:
            entry = Entry((), self.next_lsn, waited_for, kind, payload, topic, first)
            self._add(entry)
            if topic is not None and topic.dropped:
                self.dropped.add(topic.id)
            return entry

    def _add(self, entry: Entry) -> None:
        if self.closed:
            raise closed_error()
        self.sequence += 1
        entry.sequence, entry.committed_at = self.sequence, self.last_time
        self.entries.append(entry)
        self.nbytes += entry.nbytes
        self._arrived(self.sequence)

    # ---- out

    def peek(self, most_bytes: int) -> list[Entry]:
        """The next entries to be written together; they stay in the queue until they are."""
        group, size = list[Entry](), 0
        with self._order:
            for entry in islice(self.entries, self.in_hand, None):
                group.append(entry)
                size += entry.nbytes
                if size >= most_bytes or len(group) == GROUP_ENTRIES:
                    break
        return group

    def done(self, group: Sequence[Entry]) -> None:
        """Take entries off the head of the queue: they are written."""
        with self._order:
            for entry in group:
                self.entries.popleft()
                self.nbytes -= entry.nbytes
            self.in_hand = 0
        self.stalled = False
        self.written = group[-1].sequence

    def withdraw(self, entry: Entry) -> bool:
        """Take an entry back out of the queue; False when it is not there any more."""
        with self._order:
            if entry not in self.entries:
                return False
            self._remove(entry)
            return True

    def withdraw_definitions(self, topic: Topic | None) -> None:
        """Take back what is queued as the definition of a topic: it is out of date."""
        with self._order:
            for entry in [e for e in self.entries if _defines(e, topic)]:
                self._remove(entry)

    def _remove(self, entry: Entry) -> None:
        self.entries.remove(entry)
        self.nbytes -= entry.nbytes

    def snapshot(self) -> list[Entry]:
        """What waits at this moment, oldest first."""
        with self._order:
            return list(self.entries)

    # ---- the thread that writes

    def wake(self) -> None:
        """Wake the thread in ``wait``, if it sleeps."""
        if self._asleep:
            with self._order:
                # In this order: interrupted in between, it leaves the wake-up to the next call.
                self._wake.notify()
                self._asleep = False

    def wait(self, retry_at: float) -> bool:
        """Sleep until there is something to write; False once the queue is closed.

        While the queue is stalled, that is not before ``retry_at``, by the monotonic clock.
        """
        with self._order:
            while (not self.entries or self.stalled) and not self.closed:
                # A reader that waits for rows wakes this thread more often than it may try.
                left = max(0.0, retry_at - time.monotonic()) if self.stalled else None
                if left == 0 and self.entries:
                    break  # there may be room again
                self._asleep = True
                self._wake.wait(left or None)
            self._asleep = False
            return not self.closed

    def close(self) -> None:
        """Take nothing more, and let the thread that writes end."""
        with self._order:
            self.closed = True
            self._wake.notify_all()


def _defines(entry: Entry, topic: Topic | None) -> bool:
    return entry.topic is not None and topic is not None and entry.topic.id == topic.id


def closed_error() -> ClosedError:
    """The error for a log that takes nothing more."""
    return ClosedError("the log is closed", hint="open it again")
