"""The writer: from the queue to the file to the disk.

Commits are numbered and queued (``queue``), drained from the queue to the file
(``segment_writer``), and synced. Three locks, taken in this order: ``_encode`` and the lock of the
segments, each one group at a time from the queue to the file, so that one thread may encode while
another one writes; the lock of the queue, held for a microsecond. A thread that waits for the disk
holds none of them (see ``group_commit``).

Async appends wake a background thread that drains the queue; sync appends drain it themselves, and
so does the dispatcher's thread with a few rows, once nothing else is to be done (``drain_few``).
When the queue is full, the appender drains it too: so appenders are slowed down, and memory is
bounded.

A full disk loses nothing that was taken: async rows stay in the queue and are written when there is
room again; the append that finds out raises, and its own rows are withdrawn. What makes room (that
a topic was dropped or trimmed) is written ahead of the queue, in the space of the ``Reserve``.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from millstream.errors import ClosedError, LogError, LogFailedError, LogFullError
from millstream.log.encoding import encode_entries
from millstream.log.frame import Encoded, Kind, Tail, tail_of
from millstream.log.group_commit import GroupCommit
from millstream.log.queue import CommitQueue, closed_error
from millstream.log.segment_writer import SegmentWriter
from millstream.log.topics import encode_json
from millstream.threads import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.log.queue import Entry
    from millstream.log.recovery import LogState
    from millstream.log.segment import SegmentRef
    from millstream.log.topics import Topic
    from millstream.model.clock import Clock

_EPOCHS: Final = 1 << 24
GROUP_BYTES: Final = 1 << 20
"""What is encoded and then written at once: as much as a core's cache holds in between."""


class LogWriter:
    """Brings the commits of a queue to the last segment of a log, and to the disk.

    Attributes:
        database: the identity of the database.
        origin: the same, and the number of this run: what tokens are made with.
        queue: the commits that wait to be written.
        segments: the files, and what there is to read in them.
        group_commit: waits for the disk, for many threads at once.
        durable_lsn: everything up to here is on the disk.
        dirty: set when something was written that no caller waits for.
        short: set when the disk was found full, or some of a full disk can be had back.
        failed: why nothing can be written any more, or None.
        late_errors: why rows that no caller waited for were not written.
    """

    def __init__(
        self, directory: Path, state: LogState, *, segment_bytes: int, clock: Clock
    ) -> None:
        end_lsn = state.seal.index.end_lsn
        # By chance, so that no run after a copy was restored has the number of one that is lost.
        epoch = state.seal.epochs.current + 1 + secrets.randbelow(_EPOCHS)
        epochs = state.seal.epochs.begin(epoch, end_lsn)
        order = threading.Lock()
        self.database = state.database
        self.origin = (state.database, epoch)
        self.durable_lsn = end_lsn - 1
        self.dirty = threading.Event()
        self.short = threading.Event()
        self.failed: LogFailedError | None = None
        self.late_errors: deque[LogError] = deque()
        self.segments = SegmentWriter(directory, state, epochs, segment_bytes=segment_bytes)
        self.group_commit = GroupCommit(order, self._sync)
        self.queue = CommitQueue(
            order,
            self.group_commit.arrived,
            next_lsn=end_lsn,
            last_time=state.last_time,
            origin=self.origin,
            clock=clock,
        )
        self._group_bytes = min(GROUP_BYTES, segment_bytes)
        self._encode = threading.Lock()
        self._encoded: Tail = self.segments.active.tail  # the last frame of what is in hand
        self._pid = os.getpid()
        self._begin_epoch(epoch)

    def _begin_epoch(self, epoch: int) -> None:
        self.queue.define(Kind.EPOCH, encode_json({"epoch": epoch}), waited_for=False)
        with contextlib.suppress(LogFullError):
            # A full log can still be read, and be made smaller; the epoch is first in the queue,
            # so it is written before any row.
            sequence = self.queue.sequence
            self.segments.reserve.take(lambda: self.group_commit.wait_for(sequence))
        self.short.clear()  # the caller that opens it may first say what retention has to keep

    # ---- whether it can go on

    @property
    def is_ours(self) -> bool:
        """Whether this process opened the log, and not one that it was forked from."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raise if the log takes nothing more."""
        if not self.is_ours:
            raise ClosedError(
                "this log was opened before a fork",
                hint="open it in one process only, after the fork",
            )
        if self.failed is not None:
            raise LogFailedError(self.failed.message, hint=self.failed.hint) from self.failed
        if self.queue.closed:
            raise closed_error()

    def fail(self, error: Exception) -> None:
        """Stop the log after an unforeseen error in the background; later calls raise it."""
        self.failed = LogFailedError(
            f"the log stopped: {type(error).__name__}: {error}",
            hint="open the log again; this is a bug in Millstream, please report it",
        )

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Around every change of the files: what went wrong decides what may still be done."""
        if self.segments.closed:
            raise closed_error()
        try:
            yield
        except LogFailedError as error:
            self.failed = error
            raise
        except LogError:
            if not self.queue.stalled:
                self.queue.stalled = True
                self.short.set()
            raise
        except BaseException:
            # Ctrl-C, say. What is in the file and what is in the queue may not agree any more.
            self.failed = LogFailedError(
                "a write to the log was interrupted halfway",
                hint="open the log again: it will find out how far it came",
            )
            raise

    # ---- from the queue to the file

    def drain(self, sequence: int | None = None) -> None:
        """Write the queue, at least up to an entry, or what is queued by now.

        Two threads that drain at once alternate: one encodes while the other one writes.
        """
        queue, segments = self.queue, self.segments
        if sequence is None:
            sequence = queue.sequence
        while queue.written < sequence:
            holds_lock = False
            try:
                with self._encode:
                    group = queue.peek(self._group_bytes)
                    # If the group in hand fails, this one is encoded again.
                    before = self._encoded if queue.in_hand else segments.active.tail
                    frames = encode_entries(group, self.durable_lsn, before)
                    # Taken before the next one may encode, so that groups stay in order.
                    holds_lock = segments.lock.acquire()
                    queue.in_hand = len(group)
                    self._encoded = tail_of(frames, before)
                if not group and not queue.entries:
                    return
                if group and queue.entries[0] is group[0]:  # else the group before it failed
                    self._write_group(group, frames)
            finally:
                if holds_lock:
                    queue.in_hand = 0
                    segments.lock.release()

    def drain_few(self) -> bool:
        """Write the queue in this thread if it is short and no other thread writes.

        Returns:
            False when it is left to the thread that writes: the queue is long, a new segment is
            due, a sync is under way, or the disk is full or has failed.
        """
        queue, segments = self.queue, self.segments
        if (
            self.failed is not None
            or queue.stalled
            or not queue.has_few
            or segments.is_roll_due
            or self.group_commit.is_syncing  # a write to a file that is synced may wait for that
        ):
            return False
        if not self._encode.acquire(blocking=False):
            return False
        try:
            if not segments.lock.acquire(blocking=False):
                return False
            try:
                self._write_few()
            finally:
                segments.lock.release()
        except LogError:
            return False
        finally:
            self._encode.release()
            if not self.dirty.is_set():
                self.dirty.set()
        return not queue.entries

    def _write_few(self) -> None:
        """Write the head of the queue, with both locks held: nothing else is in hand."""
        group, before = self.queue.peek(self._group_bytes), self.segments.active.tail
        if group:
            frames = encode_entries(group, self.durable_lsn, before)
            self._encoded = tail_of(frames, before)
            self._write_group(group, frames)

    def _write_group(self, group: list[Entry], frames: list[Encoded]) -> None:
        """Write frames, publish them, and take their entries out of the queue."""
        segments = self.segments
        with self._guarded():
            segments.write(frames, self.queue.last_time)
            lsn, topics = segments.written.lsn, segments.written.topics
            for entry in group:
                topics = entry.applied_to(topics)
                if entry.error is not None and not entry.waited_for:
                    self.late_errors.append(entry.error)
                if entry.parts:
                    lsn = entry.parts[-1].batch.lsn
            self.queue.done(group)
            segments.publish(segments.written.grown(segments.active.offset, lsn, topics))

    @uninterrupted
    def see_through(self, entry: Entry, *, sync: bool) -> None:
        """Write an entry now; with ``sync``, wait until it is on the disk.

        When this raises any LogError but LogFailedError, the entry is not in the queue any more.
        """
        while True:
            try:
                if sync:
                    self.group_commit.wait_for(entry.sequence)
                else:
                    self.drain()
                    self.dirty.set()
            except LogFailedError:
                raise
            except LogError:
                with self._encode, self.segments.lock:
                    if self.queue.withdraw(entry):
                        raise
            else:
                break
        if entry.error is not None:
            raise entry.error

    def write_ahead(self, entry: Entry) -> bool:
        """Write a definition before what is queued, into the reserve; False: not even that fits."""
        if entry.parts:
            raise AssertionError("rows are written in the order of their LSNs")
        segments = self.segments
        with self._encode, segments.lock, self._guarded(), segments.reserve.given_back():
            self.queue.withdraw_definitions(entry.topic)  # of a caller that was interrupted
            entry.first_lsn = segments.written.lsn + 1
            active = segments.active
            try:
                active.write(encode_entries([entry], self.durable_lsn, active.tail))
            except LogFullError:
                return False
            for segment in segments.unsynced():
                segment.sync()
            topics = entry.applied_to(segments.written.topics)
            segments.publish(replace(segments.written, offset=active.offset, topics=topics))
        self.short.set()
        return True

    def unwritten(self) -> tuple[int, list[Entry]]:
        """The last LSN that is written, and the entries that are not."""
        with self.segments.lock:
            return self.segments.written.lsn, self.queue.snapshot()

    # ---- to the disk

    def _sync(self, sequence: int) -> int:
        """Write up to an entry, and wait until that is on the disk; one thread at a time."""
        if self.failed is not None:
            self.check()
        self.drain(sequence)
        segments = self.segments
        with segments.lock:
            written, lsn = self.queue.written, segments.written.lsn
            unsynced = segments.unsynced()
        try:
            for segment in unsynced:
                segment.sync()
        except LogFailedError as error:
            self.failed = error
            raise
        if self.failed is not None:
            self.check()  # another thread's sync failed, and may have taken the error with it
        self.durable_lsn = lsn
        segments.release(unsynced[:-1])
        return written

    def sync_written(self) -> None:
        """Bring to the disk what is written; what is only queued may wait."""
        self.group_commit.wait_for(self.queue.written)

    def roll(self) -> None:
        """Begin a new segment now, so that retention may drop the one before."""
        with contextlib.suppress(LogFullError):
            self.drain()
        with self.segments.lock:
            if self.segments.active.index.extents:
                with self._guarded():
                    self.segments.roll_and_sync(self.queue.last_time)

    def finish(self) -> None:
        """Write and sync what was taken, seal the segment, close the files. Twice is fine."""
        if self.segments.closed:
            return
        try:
            self.group_commit.wait_for(self.queue.sequence)
            with self.segments.lock, self._guarded():
                self.segments.seal_for_good()
        except LogError as error:
            rows = sum(len(part.batch) for entry in self.queue.entries for part in entry.parts)
            raise error.with_lost(rows) from error
        finally:
            self.segments.close()
        if self.late_errors:
            raise self.late_errors.popleft()


class DefinitionWriter:
    """Writes definitions: what topics there are, and which is the first segment.

    Attributes:
        lock: a definition is looked up, changed and written under this lock.
    """

    def __init__(self, writer: LogWriter) -> None:
        self.lock = threading.RLock()
        self._writer = writer

    def define(self, topic: Topic, *, makes_room: bool = False) -> None:
        """Make a topic's new definition hold; it is on the disk when this returns.

        Args:
            topic: the topic.
            makes_room: on a full disk, write it ahead of all rows that wait, into the reserve.
        """
        writer, queue = self._writer, self._writer.queue
        writer.check()
        entry = queue.define(Kind.TOPIC, encode_json(topic.to_json()), topic=topic)
        try:
            writer.see_through(entry, sync=True)
        except LogFullError:
            if not (makes_room and writer.write_ahead(entry)):
                queue.dropped.discard(topic.id)
                raise
        except LogError:
            queue.dropped.discard(topic.id)
            raise

    def keep_from(self, segment: SegmentRef) -> None:
        """Segments before one are about to be removed; that is on the disk when this returns."""
        writer, first = self._writer, segment.ordinal
        writer.check()
        entry = writer.queue.define(Kind.FIRST, encode_json({"first": first}), first=first)
        try:
            writer.see_through(entry, sync=True)
        except LogFullError:
            if not writer.write_ahead(entry):
                raise

    def forget(self, topics: set[int]) -> None:
        """Topics were dropped, and no frame of theirs is left."""
        segments = self._writer.segments
        with segments.lock:
            queued = self._writer.queue.snapshot()
            topics -= {part.topic.id for entry in queued for part in entry.parts}
            left = segments.written.topics.without(topics)
            segments.publish(replace(segments.written, topics=left))
