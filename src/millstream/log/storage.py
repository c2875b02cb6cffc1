"""The rim to the operating system: writing, syncing, and its errors as ours."""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING

from millstream.errors import LogError, LogFullError, LogReadOnlyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    Buffers = Sequence[bytes | pa.Buffer]

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM}
_CALL_BUFFERS = 1024
_CALL_BYTES = 1 << 30


def write_all(fd: int, buffers: Buffers, offset: int) -> int:
    """Write the buffers one after the other from an offset on; returns the offset after them."""
    for part in _parts(buffers):
        size = sum(map(len, part))
        written = os.pwritev(fd, part, offset)
        if written < size:  # disks that run full make short writes: send the rest alone
            rest = memoryview(b"".join(bytes(buffer) for buffer in part))
            while written < size:
                written += os.pwrite(fd, rest[written:], offset + written)
        offset += size
    return offset


def _parts(buffers: Buffers) -> Iterator[Buffers]:
    """The buffers in as many parts as it takes calls: there are limits on their number and size."""
    start = size = 0
    for place, buffer in enumerate(buffers):
        size += len(buffer)
        if place > start and (size > _CALL_BYTES or place - start == _CALL_BUFFERS):
            yield buffers[start:place]
            start, size = place, len(buffer)
    if buffers:
        yield buffers[start:]


if sys.platform == "darwin":  # pragma: no cover - fsync there stops at the drive's own cache
    import fcntl

    def sync_data(fd: int) -> None:
        """Wait until what was written to the file is on the disk."""
        try:
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        except OSError:  # a file system, on a network say, that does not know it
            os.fsync(fd)
else:

    def sync_data(fd: int) -> None:
        """Wait until what was written to the file is on the disk."""
        os.fdatasync(fd)


def sync_directory(path: Path) -> None:
    """Wait until files that were created, renamed or removed in a directory are so on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_file(path: Path, buffers: Buffers, *, durable: bool = True) -> None:
    """Create or replace a file: it is there whole, or not at all.

    That holds when the process dies. With ``durable``, it is on the disk when this returns, and so
    it holds when the power goes, too.
    """
    temporary = path.with_suffix(".tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        write_all(fd, buffers, 0)
        if durable:
            sync_data(fd)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)
    temporary.rename(path)
    if durable:
        sync_directory(path.parent)


def translate(error: OSError, path: Path, doing: str) -> LogError:
    """The operating system's error as one of ours."""
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        return LogFullError(
            f"cannot {doing} {path}: {reason}",
            hint="free some space and go on: nothing that was acknowledged is lost",
        )
    if error.errno == errno.EROFS:
        return LogReadOnlyError(
            f"cannot {doing} {path}: {reason}",
            hint="mount the file system for writing, or open a copy elsewhere: nothing that was "
            "acknowledged is lost",
        )
    if error.errno in _FORBIDDEN:
        return LogReadOnlyError(
            f"cannot {doing} {path}: {reason}",
            hint="give this user the right to write there, or open a copy elsewhere",
        )
    return LogError(
        f"cannot {doing} {path}: {reason}",
        hint="nothing that was acknowledged is lost; once the cause is gone, go on",
    )
