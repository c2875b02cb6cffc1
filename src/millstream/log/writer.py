"""The writer: one queue, one file.

Appends are numbered and queued, drained from the queue to the file, and synced. Three locks, taken
in this order: ``_encode`` and ``_write``, each one group at a time from the queue to the file, so
that one thread may encode while another one writes; ``_order``, the next LSN and the queue, held
for a microsecond. Who waits for the disk holds none of them (see ``group_commit``).

Async appends wake a background thread that drains the queue; sync appends drain it themselves. When
the queue is full, the appender drains it too: the pressure falls on who makes it.

A full disk loses nothing that was taken: async rows stay in the queue and are written when there is
room again; the append that finds out raises, and its own rows are withdrawn. What makes room (that
a topic was dropped or trimmed) is written ahead of the queue, in the space of the ``reserve``.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from millstream.errors import (
    ClosedError,
    LogError,
    LogFailedError,
    LogFullError,
    TopicNotFoundError,
)
from millstream.log.active import ActiveSegment
from millstream.log.encoding import encode_entries
from millstream.log.files import Written
from millstream.log.frame import Encoded, Kind, Tail, tail_of
from millstream.log.group_commit import GroupCommit
from millstream.log.queue import Entry, Part, held_bytes
from millstream.log.segment import Head, Identity, SegmentIndex, SegmentRef
from millstream.log.storage import RESERVE_SIZE, Reserve
from millstream.log.topics import Topic, encode_json
from millstream.threads import Waiters, uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from uuid import UUID

    from millstream.log.files import SegmentFile
    from millstream.log.recovery import State
    from millstream.model.clock import Clock

QUEUE_BYTES: Final = 64 << 20
"""What may wait in memory before appenders have to lend a hand."""

GROUP_BYTES: Final = 1 << 20
"""What is encoded and then written at once: as much as a core's cache holds in between."""

GROUP_ENTRIES: Final = 4096

RETRY: Final = 1.0
"""After how many seconds a full disk is tried again."""

UNSYNCED_SEGMENTS: Final = 8
"""How far the disk may be behind; recovery reads at most this much more than the last segment."""


class LogWriter:
    """Appends to the last segment of a log that was recovered.

    Attributes:
        database: the identity of the database.
        origin: the same, and the number of this run: what tokens are made with.
        written: what there is to read. Replaced as a whole, under the write lock.
        durable_lsn: everything up to here is on the disk.
        ddl: a definition is looked up, changed and written under this lock.
        dirty: set when something was written that nobody waits to be durable.
        short: set when the disk was found full, or some of a full disk can be had back.
    """

    def __init__(self, directory: Path, state: State, *, segment_bytes: int, clock: Clock) -> None:
        self.database = state.database
        self.ddl = threading.RLock()
        self.dirty = threading.Event()
        self.short = threading.Event()
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._group_bytes = min(GROUP_BYTES, segment_bytes)
        self._clock = clock
        self._pid = os.getpid()

        seal, index = state.seal, state.seal.index
        epoch = seal.epochs.current + 1
        epochs = seal.epochs.begin(epoch, index.end_lsn)
        self.origin = (state.database, epoch)
        self._active = ActiveSegment(directory, state.segments[-1], index, seal.end, state.number)
        self._reserve = Reserve(directory)
        self._unsynced: list[ActiveSegment] = []  # sealed, and not yet on the disk for sure
        self._next_lsn = index.end_lsn
        self._last_time = state.last_time
        self.durable_lsn = index.end_lsn - 1
        self.written = Written(
            state.segments, seal.end, self.durable_lsn, index, seal.topics, epochs
        )

        self._encode = threading.Lock()
        self._write = threading.Lock()
        self._order = threading.Lock()
        self._wake = threading.Condition(self._order)
        self._asleep = False
        self._queue: deque[Entry] = deque()
        self._queued = 0
        self._in_hand = 0  # how many at the head of the queue are being written
        self._encoded: Tail = self._active.tail  # the last frame of those
        self._sequence = self._written = 0
        self._group_commit = GroupCommit(self._order, self._sync)
        self._grown = Waiters()

        self._stalled = False
        self._failed: LogFailedError | None = None
        self._told_late: deque[LogError] = deque()
        self._dropped: set[int] = set()  # topics that take no more rows
        self._closed = False  # takes nothing more
        self._finished = False  # and the files are closed
        self._begin_epoch(epoch)

    # ---- taking rows

    @property
    def next_lsn(self) -> int:
        """The LSN that the next row will have."""
        return self._next_lsn

    def append(self, parts: Sequence[Part], *, sync: bool) -> int:
        """Put one commit at the end of the log; returns its last LSN. Its batches know theirs.

        With ``sync`` it is on the disk when this returns; without, it will be soon. When this
        raises any LogError but LogFailedError, nothing of it is in the log, nor will be.
        """
        self.check()
        with self._order:
            entry = self._place(parts, waited_for=sync)
            eager = self._queued > QUEUE_BYTES or self._stalled
        if sync or eager:
            self._see_through(entry, sync=sync)
        else:
            self.write_soon()
        return parts[-1].batch.lsn

    def make_room(self) -> None:
        """Have room for a commit, however large.

        Raises:
            LogError: the disk is full, or the log takes nothing more.
        """
        self.check()
        if self._queued > QUEUE_BYTES or self._stalled:
            self.drain()
            self.dirty.set()

    def enqueue(self, parts: Sequence[Part], committed_at: int) -> None:
        """Add a commit whose batches have their places already, and for which there is room."""
        with self._order:
            first = parts[0].batch.first_lsn
            if first != self._next_lsn:
                raise AssertionError(f"LSN {first} was given out, and {self._next_lsn} is next")
            self._last_time = committed_at
            nbytes = sum(held_bytes(part.batch) for part in parts)
            self._next_lsn = parts[-1].batch.lsn + 1
            self._enqueue(Entry(parts, first, nbytes=nbytes))

    @property
    def is_stalled(self) -> bool:
        """Whether the disk did not take what is first in the queue."""
        return self._stalled

    def unwritten(self) -> tuple[int, list[Entry]]:
        """The last LSN that is written, and the entries that are not."""
        with self._write, self._order:
            return self.written.lsn, list(self._queue)

    def begin(self) -> tuple[int, int, tuple[UUID, int]]:
        """The LSN, the time and the origin of the next commit, for which there is room.

        Raises:
            LogError: the disk is full, or the log takes nothing more.
        """
        if self._failed or self._closed or self._stalled or self._queued > QUEUE_BYTES:
            self.make_room()
        return self._next_lsn, max(self._last_time, self._clock()), self.origin

    def write_soon(self) -> None:
        """Wake the thread that writes, if it sleeps."""
        if self._asleep:
            with self._order:
                # In this order: whom a signal keeps from it leaves it to the next one.
                self._wake.notify()
                self._asleep = False

    def define(self, topic: Topic, *, makes_room: bool = False) -> None:
        """Make a topic's new definition hold; it is on the disk when this returns.

        Args:
            topic: the topic.
            makes_room: on a full disk, write it ahead of all rows that wait, into the reserve.
        """
        self.check()
        definition = encode_json(topic.to_json())
        with self._order:
            entry = Entry((), self._next_lsn, True, Kind.TOPIC, definition, topic)
            self._enqueue(entry)
            if topic.dropped:
                self._dropped.add(topic.id)
        try:
            self._see_through(entry, sync=True)
        except LogFullError:
            if not (makes_room and self._write_ahead(entry)):
                self._dropped.discard(topic.id)
                raise
        except LogError:
            self._dropped.discard(topic.id)
            raise

    def _write_ahead(self, entry: Entry) -> bool:
        """Write a definition before what is queued, into the reserve; False: not even that fits."""
        if entry.parts:
            raise AssertionError("rows are written in the order of their LSNs")
        topic = entry.topic
        with self._encode, self._write, self._careful(), self._reserve.given_back():
            with self._order:  # one whose writer was interrupted is out of date now
                for old in [e for e in self._queue if _redefines(e, topic)]:
                    self._queue.remove(old)
                    self._queued -= old.nbytes
            entry.first_lsn = self.written.lsn + 1
            try:
                self._active.write(encode_entries([entry], self.durable_lsn, self._active.tail))
            except LogFullError:
                return False
            self._sync_files()
            topics = entry.applied_to(self.written.topics)
            self._publish(replace(self.written, offset=self._active.offset, topics=topics))
        self.short.set()
        return True

    def _sync_files(self) -> None:
        """Wait for the disk, with the write lock held: nothing is written meanwhile."""
        for segment in (*self._unsynced, self._active):
            segment.sync()

    @contextlib.contextmanager
    def with_reserve(self) -> Iterator[None]:
        """Leave the space of the reserve to what is written meanwhile, and to nobody else here."""
        with self._write, self._reserve.given_back():
            yield

    def refill_reserve(self) -> None:
        """Make the reserve whole again, if there is room."""
        if self._reserve.size < RESERVE_SIZE:
            with self._write:
                self._reserve.fill()

    def flush(self) -> int:
        """Wait until everything taken so far is on the disk; returns the last LSN that is."""
        if not self.sync():
            raise self._told_late.popleft()
        return self.durable_lsn

    def sync(self) -> bool:
        """The same, but an error of rows that nobody waited for is left for who flushes: False."""
        self.check()
        self._group_commit.wait_for(self._sequence)
        return not self._told_late

    def check(self) -> None:
        """Raise if the log takes nothing more."""
        if not self.is_ours:
            raise ClosedError(
                "this log was opened before a fork",
                hint="open it in one process only, after the fork",
            )
        if self._failed is not None:
            raise LogFailedError(self._failed.message, hint=self._failed.hint) from self._failed
        if self._closed:
            raise _closed()

    def _place(self, parts: Sequence[Part], *, waited_for: bool) -> Entry:
        """Give a commit its LSNs and its time, and put it into the queue."""
        now = self._last_time = max(self._last_time, self._clock())
        first = lsn = self._next_lsn
        nbytes = 0
        for topic, _, batch in parts:
            if topic.id in self._dropped:
                raise TopicNotFoundError(f"the topic {topic.name!r} was dropped meanwhile")
            batch.put_at(topic.name, lsn, now, self.origin)
            lsn = batch.lsn + 1
            nbytes += held_bytes(batch)
        entry = Entry(parts, first, waited_for, nbytes=nbytes)
        # In this order: whoever is interrupted here leaves a hole, and not one LSN for two rows.
        self._next_lsn = lsn
        self._enqueue(entry)
        return entry

    def _enqueue(self, entry: Entry) -> None:
        if self._closed:
            raise _closed()
        self._sequence += 1
        entry.sequence, entry.committed_at = self._sequence, self._last_time
        self._queue.append(entry)
        self._queued += entry.nbytes
        self._group_commit.arrived(self._sequence)

    @uninterrupted
    def _see_through(self, entry: Entry, *, sync: bool) -> None:
        while True:
            try:
                if sync:
                    self._group_commit.wait_for(entry.sequence)
                else:
                    self.drain()
                    self.dirty.set()
            except LogFailedError:
                raise
            except LogError:
                if self._withdraw(entry):
                    raise
            else:
                break
        if entry.error is not None:
            raise entry.error

    def _withdraw(self, entry: Entry) -> bool:
        """Take an entry back out of the queue; False when it was written in the meantime."""
        with self._encode, self._write, self._order:
            if entry not in self._queue:
                return False
            self._queue.remove(entry)
            self._queued -= entry.nbytes
            return True

    # ---- writing

    def drain(self) -> None:
        """Write what is queued by now."""
        self._drain(self._sequence)

    def _drain(self, sequence: int) -> None:
        """Write the queue, at least up to an entry; what comes in meanwhile may wait.

        Two threads that drain at once take turns: one encodes while the other one writes.
        """
        while self._written < sequence:
            holds_write = False
            try:
                with self._encode:
                    group = self._peek()
                    # If the group in hand fails, this one is encoded again.
                    before = self._encoded if self._in_hand else self._active.tail
                    frames = encode_entries(group, self.durable_lsn, before)
                    # Taken before the next one may encode, so that groups stay in order.
                    holds_write = self._write.acquire()
                    self._in_hand = len(group)
                    self._encoded = tail_of(frames, before)
                if not group and not self._queue:
                    return
                if group and self._queue[0] is group[0]:  # else the group before it failed
                    self._write_group(group, frames)
            finally:
                if holds_write:
                    self._in_hand = 0
                    self._write.release()

    def _write_group(self, group: list[Entry], frames: list[Encoded]) -> None:
        with self._careful():
            if self._active.offset >= self._segment_bytes and self._active.index.extents:
                self._roll()
            self._active.write(frames)
            self._done(group)

    @contextlib.contextmanager
    def _careful(self) -> Iterator[None]:
        """Around every change of the files: what went wrong decides what may still be done."""
        if self._finished:
            raise _closed()
        try:
            yield
        except LogFailedError as error:
            self._failed = error
            raise
        except LogError:
            if not self._stalled:
                self._stalled = True
                self.short.set()
            raise
        except BaseException:
            # Ctrl-C, say. What is in the file and what is in the queue may not agree any more.
            self._failed = LogFailedError(
                "a write to the log was interrupted halfway",
                hint="open the log again: it will find out how far it came",
            )
            raise

    def _peek(self) -> list[Entry]:
        """The next entries to be written together; they stay in the queue until they are."""
        group, size = list[Entry](), 0
        with self._order:
            for entry in islice(self._queue, self._in_hand, None):
                group.append(entry)
                size += entry.nbytes
                if size >= self._group_bytes or len(group) == GROUP_ENTRIES:
                    break
        return group

    def _done(self, group: list[Entry]) -> None:
        """Publish what was just written, and take it out of the queue."""
        lsn, topics = self.written.lsn, self.written.topics
        for entry in group:
            topics = entry.applied_to(topics)
            if entry.error is not None and not entry.waited_for:
                self._told_late.append(entry.error)
            if entry.parts:
                lsn = entry.parts[-1].batch.lsn
        with self._order:
            for entry in group:
                self._queue.popleft()
                self._queued -= entry.nbytes
            self._in_hand = 0
        self._stalled = False
        self._written = group[-1].sequence
        self._publish(replace(self.written, offset=self._active.offset, lsn=lsn, topics=topics))

    def _publish(self, written: Written) -> None:
        self.written = written
        self._grown.wake()

    def roll(self) -> None:
        """Begin a new segment now, so that retention may drop the one before."""
        with contextlib.suppress(LogFullError):
            self._drain(self._sequence)
        with self._write:
            if self._active.index.extents:
                with self._careful():
                    old = self._active
                    self._at_any_rate(self._roll)
                    old.sync()
                    old.synced = True
                    self._active.sync()  # before that the old one is still to be marked

    def _at_any_rate(self, step: Callable[[], None]) -> None:
        """Take a step, on a full disk in the space of the reserve; with the write lock held."""
        try:
            step()
        except LogFullError:
            with self._reserve.given_back():
                step()

    def _roll(self) -> None:
        """Seal the segment and begin the next one. The disk catches up in the background."""
        old = self._active
        self._await_disk()
        topics, epochs = self.written.topics, self.written.epochs
        old.seal(epochs, topics, closed=False)
        ref = SegmentRef(old.ref.ordinal + 1, old.index.end_lsn)
        synced = min(s.ref.ordinal for s in (*self._unsynced, old) if not s.synced) - 1
        identity = Identity.new(self.database, ref, old.number)
        head = Head(identity, self._last_time, synced, epochs, topics)
        index = SegmentIndex(ref.base_lsn)
        try:
            new = ActiveSegment.create(self._directory, head, index, old)
        except LogError:
            old.truncate()
            raise
        self._unsynced.append(old)
        self._active = new
        segments = (*self.written.segments, ref)
        self._publish(replace(self.written, segments=segments, offset=new.offset, index=index))

    def _await_disk(self) -> None:
        """Wait for the disk when it is too far behind: recovery has to check what it has not."""
        behind = [segment for segment in self._unsynced if not segment.synced]
        if len(behind) >= UNSYNCED_SEGMENTS:
            behind[0].sync()
            behind[0].synced = True

    def _sync(self, sequence: int) -> int:
        """Write up to an entry, and wait until that is on the disk; one thread at a time."""
        if self._failed is not None:
            self.check()
        self._drain(sequence)
        with self._write:
            written, lsn = self._written, self.written.lsn
            sealed, active = tuple(self._unsynced), self._active
        try:
            for segment in (*sealed, active):
                segment.sync()
        except LogFailedError as error:
            self._failed = error
            raise
        if self._failed is not None:
            self.check()  # another thread's sync failed, and may have taken the error with it
        self.durable_lsn = lsn
        if sealed:
            with self._write:
                for segment in sealed:
                    self._unsynced.remove(segment)
                    segment.close()
        return written

    # ---- for readers

    def wait_beyond(self, written: Written, timeout: float | None) -> bool:
        """Sleep until more is written than that; False when the time is up or at close."""
        if not self.is_ours:
            self.check()
        self._grown.wait(lambda: self.written is not written or self._finished, timeout)
        return self.written is not written

    def extents_of(self, file: SegmentFile) -> dict[int, tuple[int, int]] | None:
        """How many rows of each topic a segment should have, and up to which LSN.

        None when it is not known: damage was met when they were counted.
        """
        with self._write:
            index = self.written.extent(file).index
            if index is None or index.partial:
                return None
            return {id_: (each.rows, each.last_lsn) for id_, each in index.extents.items()}

    # ---- for retention

    def settled(self) -> list[SegmentRef]:
        """The segments that are sealed and on the disk, oldest first: nobody writes to them."""
        with self._write:
            # One that is about to be marked as followed is still written to.
            busy = min(
                s.ref.ordinal - s.is_new for s in (*self._unsynced, self._active) if not s.synced
            )
            return [ref for ref in self.written.segments if ref.ordinal < busy]

    def forget(self, segment: SegmentRef) -> None:
        """A segment is about to be removed: send no more readers there."""
        with self._write:
            segments = tuple(ref for ref in self.written.segments if ref != segment)
            epochs = self.written.epochs.since(segments[0].base_lsn)
            self._publish(replace(self.written, segments=segments, epochs=epochs))

    def keep_from(self, segment: SegmentRef) -> None:
        """Segments before one are about to be removed; that is on the disk when this returns."""
        self.check()
        payload = encode_json({"first": segment.ordinal})
        with self._order:
            entry = Entry((), self._next_lsn, True, Kind.FIRST, payload, first=segment.ordinal)
            self._enqueue(entry)
        try:
            self._see_through(entry, sync=True)
        except LogFullError:
            if not self._write_ahead(entry):
                raise

    def forget_topics(self, ids: set[int]) -> None:
        """Topics were dropped, and no frame of theirs is left."""
        with self._write, self._order:
            ids -= {part.topic.id for entry in self._queue for part in entry.parts}
            self._publish(replace(self.written, topics=self.written.topics.without(ids)))

    # ---- in the background

    def write_in_background(self) -> None:
        """Drain the queue whenever async rows wait, until ``stop``; the body of a thread."""
        retry_at = 0.0
        while True:
            with self._order:
                while (not self._queue or self._stalled) and not self._closed:
                    # A reader that waits for rows wakes this thread more often than it may try.
                    left = max(0.0, retry_at - time.monotonic()) if self._stalled else None
                    if left == 0 and self._queue:
                        break  # there may be room again
                    self._asleep = True
                    self._wake.wait(left or None)
                self._asleep = False
                if self._closed:
                    return
            try:
                self.drain()
            except LogFailedError:
                return  # every later call raises it
            except LogError:
                retry_at = time.monotonic() + RETRY  # who appends or flushes is told meanwhile
                continue
            self.dirty.set()
            self.refill_reserve()

    def fail(self, error: Exception) -> None:
        """Something that nobody foresaw went wrong in the background: say so to all who come."""
        self._failed = LogFailedError(
            f"the log stopped: {type(error).__name__}: {error}",
            hint="open the log again; this is a bug in Millstream, please report it",
        )

    def sync_in_background(self) -> None:
        """Bring to the disk what is written; what is only queued may wait."""
        self._group_commit.wait_for(self._written)

    # ---- the end

    @property
    def is_ours(self) -> bool:
        """Whether this process opened the log, and not one that it was forked from."""
        return os.getpid() == self._pid

    def stop(self) -> None:
        """Take nothing more, and let the background threads end."""
        with self._order:
            self._closed = True
            self._wake.notify_all()

    def finish(self) -> None:
        """Write and sync what was taken, seal the segment, close the files. Twice is fine."""
        if self._finished:
            return
        try:
            self._group_commit.wait_for(self._sequence)
            with self._write, self._careful():
                self._at_any_rate(self._seal_for_good)
                self._active.sync()
                with contextlib.suppress(OSError):  # it is a help, no more
                    self._active.closed().write(self._directory)
        except LogError as error:
            rows = sum(len(part.batch) for entry in self._queue for part in entry.parts)
            raise error.with_lost(rows) from error
        finally:
            with self._write:
                self._finished = True
                for segment in (*self._unsynced, self._active):
                    segment.close()
            self._grown.wake()
        if self._told_late:
            raise self._told_late.popleft()

    def _begin_epoch(self, epoch: int) -> None:
        payload = encode_json({"epoch": epoch})
        with self._order:
            self._enqueue(Entry((), self._next_lsn, False, Kind.EPOCH, payload))
        with contextlib.suppress(LogFullError):
            # A full log can still be read, and be made smaller; the epoch is first in the queue,
            # so it is written before any row.
            self._at_any_rate(lambda: self._group_commit.wait_for(self._sequence))
        self.short.clear()  # whoever opens it may first say what retention has to keep

    def _seal_for_good(self) -> None:
        self._active.seal(self.written.epochs, self.written.topics, closed=True)


def _redefines(entry: Entry, topic: Topic | None) -> bool:
    return entry.topic is not None and topic is not None and entry.topic.id == topic.id


def _closed() -> ClosedError:
    return ClosedError("the log is closed", hint="open it again")
