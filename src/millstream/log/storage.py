"""The border to the operating system: writing and syncing files, the directory lock, the reserve.

The reserve is a little space that is kept for a full disk. To make room, something has to be
written first: that a topic was dropped or trimmed, the end of one segment and the head of the next.
The reserve is a file of some hundred kilobytes with nothing in it. It is emptied for such a step,
and filled again, as far as there is room, right after it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import sys
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from millstream.errors import LogError, LogFullError, LogLockedError, LogReadOnlyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    Buffers = Sequence[bytes | pa.Buffer]

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM}
_RESERVE_NAME: Final = "RESERVE"
RESERVE_SIZE: Final = 256 << 10
_RESERVE_STEP: Final = 32 << 10

_CALL_BUFFERS = 1024
_CALL_BYTES = 1 << 30
_NO_DIRECTORY_LOCKS = {errno.EBADF, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}

PRIVATE_FILE: Final = 0o600
"""The mode of files: they have rows, and names of what exists. A umask can only take from it."""
PRIVATE_DIRECTORY: Final = 0o700


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


def make_private(path: Path) -> None:
    """Make a directory, and those that it is in, for its owner only; one that is there is left."""
    for each in reversed([path, *path.parents]):
        if not each.is_dir():
            each.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)


def write_file(path: Path, buffers: Buffers, *, durable: bool = True) -> None:
    """Create or replace a file: it is there whole, or not at all.

    That holds when the process dies. With ``durable``, it is on the disk when this returns, and so
    it holds when the power goes, too.
    """
    temporary = path.with_suffix(".tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE)
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


# ---- one process, one handle: a directory of the log is open only once

_held: WeakSet[DirectoryLock] = WeakSet()


class DirectoryLock:
    """Held from construction until ``release``, or until the process ends, however it ends.

    With flock, not with a POSIX record lock: that one is lost as soon as anything in the process,
    a backup say, opens and closes the file.

    Two locks: on the file ``LOCK``, which names the process that holds it, and on the directory
    itself, because a file can be deleted and made anew while it is locked.

    Attributes:
        inode: the device and the number of the directory.

    Raises:
        LogLockedError: another process, or another handle of this one, has the directory open.
    """

    def __init__(self, directory: Path) -> None:
        self._fds: list[int] = []
        path = directory / "LOCK"
        try:
            self._fds.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE))
            self._fds.append(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        except OSError as error:
            self.release()
            raise translate(error, path, "lock") from error
        file, self.inode = self._fds[0], _inode(self._fds[1])
        try:
            for fd in self._fds:
                _flock(fd)
        except BlockingIOError as error:
            owner = os.pread(file, 100, 0).decode(errors="replace").strip()
            self.release()
            is_ours = any(each.inode == self.inode for each in list(_held) if each.is_held)
            raise _locked(directory, "" if is_ours else owner or "unknown") from error
        except OSError as error:
            self.release()
            raise translate(error, path, "lock") from error
        with contextlib.suppress(OSError):  # a full disk: the text is a courtesy, the lock stands
            os.ftruncate(file, 0)
            os.pwrite(file, f"pid {os.getpid()}\n".encode(), 0)
        _held.add(self)

    @property
    def is_held(self) -> bool:
        """Whether it was not released yet."""
        return bool(self._fds)

    def release(self) -> None:
        """Let the directory be opened again. Releasing twice is fine."""
        while self._fds:
            os.close(self._fds.pop())


def _flock(fd: int) -> None:
    """Lock a file or a directory; a directory on a network may be one that cannot be locked."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        is_directory = stat.S_ISDIR(os.fstat(fd).st_mode)
        if not (is_directory and error.errno in _NO_DIRECTORY_LOCKS):
            raise


def _inode(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def _locked(directory: Path, other: str) -> LogLockedError:
    if not other:
        return LogLockedError(
            f"{directory} is already open in this process",
            hint="use the handle that is open, or close it first",
        )
    return LogLockedError(
        f"{directory} is open in another process ({other})",
        hint="one process at a time opens a directory: stop the other one; or let it serve, with "
        "millstream serve, and call ms.connect(url) in all others",
    )


def _release_in_child() -> None:
    """A forked child shares its parent's locks, and would keep them when the parent is gone."""
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_release_in_child)


# ---- space for a full disk


class Reserve:
    """The file. Not safe for threads: the lock of the segments is around it.

    Attributes:
        size: how much is kept at the moment.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / _RESERVE_NAME
        self.size = 0
        self.fill()

    def fill(self) -> None:
        """Keep as much as there is room for, at most ``RESERVE_SIZE``. Never raises."""
        with contextlib.suppress(OSError):  # no room, or no right to write: then there is none
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
            try:
                self.size = os.fstat(fd).st_size
                while self.size < RESERVE_SIZE:
                    _allocate(fd, self.size, _RESERVE_STEP)
                    self.size += _RESERVE_STEP
            finally:
                os.close(fd)

    def take(self, step: Callable[[], None]) -> None:
        """Take a step; once more in the space of the reserve, if the disk is full."""
        try:
            step()
        except LogFullError:
            with self.given_back():
                step()

    @contextlib.contextmanager
    def given_back(self) -> Iterator[None]:
        """Leave its space to what is written meanwhile."""
        with contextlib.suppress(OSError):
            os.truncate(self._path, 0)
            self.size = 0
        try:
            yield
        finally:
            self.fill()


if sys.platform == "darwin":  # pragma: no cover - it has no fallocate

    def _allocate(fd: int, offset: int, size: int) -> None:
        os.pwrite(fd, os.urandom(size), offset)
else:

    def _allocate(fd: int, offset: int, size: int) -> None:
        os.posix_fallocate(fd, offset, size)
