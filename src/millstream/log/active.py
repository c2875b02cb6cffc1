"""The segment that is being written."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from millstream.errors import LogFailedError
from millstream.log.file_set import Closed
from millstream.log.files import mark_followed
from millstream.log.frame import NO_TAIL, tail_of
from millstream.log.segment import Head, Seal, SegmentRef
from millstream.log.storage import sync_data, sync_directory, translate, write_all, write_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from millstream.log.frame import Encoded, Tail
    from millstream.log.segment import SegmentIndex
    from millstream.log.topics import Epochs, Topics


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
        buffers = [buffer for frame in frames for buffer in frame.buffers if len(buffer)]
        end = self._append(buffers)
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
                    # From now on its loss would be noticed. It is in vain if retention has removed
                    # the one before in the meantime: then this one is the first.
                    with contextlib.suppress(FileNotFoundError):
                        mark_followed(self._before)
                self.is_new = False
        except OSError as error:
            # The kernel may have dropped the pages it could not write, and says so only once:
            # to ask again would be told that all is well.
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
