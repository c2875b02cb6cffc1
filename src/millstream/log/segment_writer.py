"""Writing segments: the one that is open for writing, and how the next one takes its place.

A segment that is full is sealed, and the next one begun, without waiting for the disk: sealed
segments that are not yet on the disk for sure are synced with the next sync.
"""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from millstream.errors import LogError, LogFailedError
from millstream.log.file_set import Closed
from millstream.log.files import Written, mark_followed
from millstream.log.frame import NO_TAIL, tail_of
from millstream.log.segment import Head, Identity, Seal, SegmentIndex, SegmentRef
from millstream.log.storage import (
    RESERVE_SIZE,
    Reserve,
    sync_data,
    sync_directory,
    translate,
    write_all,
    write_file,
)
from millstream.threads import Waiters

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from millstream.log.files import SegmentFile
    from millstream.log.frame import Encoded, Tail
    from millstream.log.recovery import LogState
    from millstream.log.topics import Epochs, Topics

UNSYNCED_SEGMENTS: Final = 8
"""How far the disk may be behind; recovery reads at most this much more than the last segment."""


class ActiveSegment:
    """A segment open for writing. Not safe for threads: the writer's lock is around it.

    Attributes:
        ref: its name.
        offset: where its whole frames end.
        index: what was written to it.
        number: the random number that the next segment knows it by.
        tail: its last frame, or the last one before it.
        is_new: it may not be on the disk at all yet.
        synced: everything in it is on the disk; set once it is sealed.
    """

    def __init__(
        self, directory: Path, ref: SegmentRef, index: SegmentIndex, offset: int, number: int
    ) -> None:
        self.ref = ref
        self.index = index
        self.offset = offset
        self.number = number
        self.tail: Tail = NO_TAIL
        self.synced = False
        self.is_new = False
        self._before: Path | None = None
        self._path = directory / ref.name
        try:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        except OSError as error:
            raise translate(error, self._path, "write to") from error

    @classmethod
    def create(
        cls, directory: Path, head: Head, index: SegmentIndex, before: ActiveSegment
    ) -> ActiveSegment:
        """Begin a new segment, with its head. It is on the disk once its first rows have to be.

        To wait for that here would hold up all writers: a file system puts a new file on the disk
        only after everything that was written to others before.
        """
        ref, buffers = head.identity.ref, head.encode()
        try:
            write_file(directory / ref.name, buffers, durable=False)
        except OSError as error:
            raise translate(error, directory / ref.name, "create") from error
        segment = cls(directory, ref, index, sum(map(len, buffers)), head.identity.id)
        segment.is_new = True
        segment.tail = before.tail
        segment._before = before._path
        return segment

    def write(self, frames: Sequence[Encoded]) -> None:
        """Append frames: all of them, or none."""
        end = self._append([buffer for frame in frames for buffer in frame.buffers])
        offset = self.offset
        for encoded in frames:
            if encoded.frame.span:
                self.index.add(encoded.frame, offset)
            offset += encoded.frame.size
        self.tail = tail_of(frames, self.tail)
        self.offset = end

    def seal(self, epochs: Epochs, topics: Topics, *, closed: bool) -> None:
        """Append the seal. ``truncate`` takes it off again."""
        self._append(Seal.of(self.index, self.offset, epochs, topics, closed=closed).encode())

    def closed(self) -> Closed:
        """The note of how it is left."""
        size = os.fstat(self._fd).st_size
        return Closed(self.ref.ordinal, self.number, size, self.index.end_lsn)

    def truncate(self) -> None:
        """Take off what stands after the last frame, if anything does."""
        try:
            if os.fstat(self._fd).st_size > self.offset:
                os.ftruncate(self._fd, self.offset)
        except OSError as error:
            raise LogFailedError(
                f"cannot take back an unfinished write to {self._path}: {error.strerror}",
                hint="open the database anew: it will cut the unfinished write",
            ) from error

    def sync(self) -> None:
        """Wait until everything written so far is on the disk."""
        try:
            sync_data(self._fd)
            if self.is_new:
                sync_directory(self._path.parent)
                if self._before is not None:
                    # From now on its loss would be noticed. There is nothing to mark if retention
                    # has removed the one before in the meantime: then this one is the first.
                    with contextlib.suppress(FileNotFoundError):
                        mark_followed(self._before)
                self.is_new = False
        except OSError as error:
            # The kernel may have dropped the pages it could not write, and says so only once:
            # a second sync would report success.
            raise LogFailedError(
                f"the disk did not keep {self._path}: {error.strerror}",
                hint="see the system's log for the disk; reopen to see what is left",
            ) from error

    def close(self) -> None:
        """Close the file, as it is. Closing twice is fine."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _append(self, buffers: Sequence[bytes | pa.Buffer]) -> int:
        try:
            return write_all(self._fd, buffers, self.offset)
        except OSError as error:
            self.truncate()
            raise translate(error, self._path, "write to") from error


class SegmentWriter:
    """The segments of an open log: writes the last one, and publishes what readers may see.

    All but ``wait_beyond`` is called with ``lock`` held, if nothing else is said.

    Args:
        directory: where they are.
        state: the log as it was recovered.
        epochs: the runs of the database, this one included.
        segment_bytes: a new segment is begun when the last one has this size.

    Attributes:
        lock: one thread at a time changes the files.
        active: the segment that is being written.
        written: what there is to read. Replaced as a whole, under the lock.
        reserve: space for what has to be written to a full disk.
        closed: the files are closed.
    """

    def __init__(
        self, directory: Path, state: LogState, epochs: Epochs, *, segment_bytes: int
    ) -> None:
        seal, index = state.seal, state.seal.index
        self.lock = threading.Lock()
        self.active = ActiveSegment(directory, state.segments[-1], index, seal.end, state.number)
        self.written = Written(
            state.segments, seal.end, index.end_lsn - 1, index, seal.topics, epochs
        )
        self.reserve = Reserve(directory)
        self.closed = False
        self._directory = directory
        self._database = state.database
        self._segment_bytes = segment_bytes
        self._unsynced: list[ActiveSegment] = []  # sealed, and not yet on the disk for sure
        self._grown = Waiters()

    @property
    def is_roll_due(self) -> bool:
        """Whether the next write begins a new segment."""
        return self.active.offset >= self._segment_bytes and bool(self.active.index.extents)

    def write(self, frames: Sequence[Encoded], time: int) -> None:
        """Append frames, all of them or none; to a new segment when the last one is full."""
        if self.is_roll_due:
            self.roll(time)
        self.active.write(frames)

    # ---- what readers see

    def publish(self, written: Written) -> None:
        """Show readers what is written now, and wake those that wait for it."""
        self.written = written
        self._grown.wake()

    def wait_beyond(self, written: Written, timeout: float | None) -> bool:
        """Sleep until more is written than that; False when the time is up or at close."""
        self._grown.wait(lambda: self.written is not written or self.closed, timeout)
        return self.written is not written

    def extents_of(self, file: SegmentFile) -> dict[int, tuple[int, int]] | None:
        """How many rows of each topic a segment should have, and up to which LSN; takes the lock.

        None when it is not known: damage was met when they were counted.
        """
        with self.lock:
            index = self.written.extent(file).index
            if index is None or index.partial:
                return None
            return {id_: (each.rows, each.last_lsn) for id_, each in index.extents.items()}

    # ---- rotation

    def roll(self, time: int) -> None:
        """Seal the segment and begin the next one. The disk catches up in the background."""
        old = self.active
        self._await_disk()
        topics, epochs = self.written.topics, self.written.epochs
        old.seal(epochs, topics, closed=False)
        ref = SegmentRef(old.ref.ordinal + 1, old.index.end_lsn)
        synced = min(s.ref.ordinal for s in (*self._unsynced, old) if not s.synced) - 1
        identity = Identity.new(self._database, ref, old.number)
        known = old.index.watermarks
        marks = None if known is None else {t: known[t] for t in known if t in topics.by_id}
        head = Head(identity, time, synced, epochs, topics, marks)
        index = SegmentIndex(ref.base_lsn, marks)
        try:
            new = ActiveSegment.create(self._directory, head, index, old)
        except LogError:
            old.truncate()
            raise
        self._unsynced.append(old)
        self.active = new
        segments = (*self.written.segments, ref)
        self.publish(replace(self.written, segments=segments, offset=new.offset, index=index))

    def roll_and_sync(self, time: int) -> None:
        """Begin a new segment, on a full disk in the space of the reserve; wait for the disk."""
        old = self.active
        self.reserve.take(lambda: self.roll(time))
        old.sync()
        old.synced = True
        self.active.sync()  # before that the old one is still to be marked

    def refill_reserve(self) -> None:
        """Make the reserve whole again, if there is room; takes the lock."""
        if self.reserve.size < RESERVE_SIZE:
            with self.lock:
                self.reserve.fill()

    def _await_disk(self) -> None:
        """Wait for the disk when it is too far behind: recovery has to check what it has not."""
        behind = [segment for segment in self._unsynced if not segment.synced]
        if len(behind) >= UNSYNCED_SEGMENTS:
            behind[0].sync()
            behind[0].synced = True

    # ---- the disk

    def unsynced(self) -> tuple[ActiveSegment, ...]:
        """The segments to be synced, oldest first; the last one is being written."""
        return (*self._unsynced, self.active)

    def release(self, sealed: Sequence[ActiveSegment]) -> None:
        """Close sealed segments that were synced; takes the lock."""
        if sealed:
            with self.lock:
                for segment in sealed:
                    self._unsynced.remove(segment)
                    segment.close()

    def settled(self) -> list[SegmentRef]:
        """The segments that are sealed and on the disk, oldest first; takes the lock."""
        with self.lock:
            # One that is about to be marked as followed is still written to.
            busy = min(s.ref.ordinal - s.is_new for s in self.unsynced() if not s.synced)
            return [ref for ref in self.written.segments if ref.ordinal < busy]

    def forget(self, segment: SegmentRef) -> None:
        """Send no more readers to a segment, which is about to be removed; takes the lock."""
        with self.lock:
            segments = tuple(ref for ref in self.written.segments if ref != segment)
            epochs = self.written.epochs.since(segments[0].base_lsn)
            self.publish(replace(self.written, segments=segments, epochs=epochs))

    def seal_for_good(self) -> None:
        """Seal the last segment and sync it, and note how the log is left."""
        self.reserve.take(
            lambda: self.active.seal(self.written.epochs, self.written.topics, closed=True)
        )
        self.active.sync()
        with contextlib.suppress(OSError):  # the log can be opened without the note
            self.active.closed().write(self._directory)

    def close(self) -> None:
        """Close the files, as they are, and wake readers that wait; takes the lock."""
        with self.lock:
            self.closed = True
            for segment in self.unsynced():
                segment.close()
        self._grown.wake()
