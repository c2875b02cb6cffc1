"""One process, one handle: a directory of the log is open only once."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from typing import TYPE_CHECKING
from weakref import WeakSet

from millstream.errors import LogLockedError
from millstream.log.storage import translate

if TYPE_CHECKING:
    from pathlib import Path

_NO_DIRECTORY_LOCKS = {errno.EBADF, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}
_held: WeakSet[DirectoryLock] = WeakSet()


class DirectoryLock:
    """Held from construction until ``release``, or until the process ends, however it ends.

    With flock, not with a POSIX record lock: that one is lost as soon as anything in the process,
    a backup say, opens and closes the file.

    Two locks: on the file ``LOCK``, which says who holds it, and on the directory itself, because a
    file can be deleted and made anew while it is locked.

    Attributes:
        inode: the device and the number of the directory.

    Raises:
        LogLockedError: another process, or another handle of this one, has the directory open.
    """

    def __init__(self, directory: Path) -> None:
        self._fds: list[int] = []
        path = directory / "LOCK"
        try:
            self._fds.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
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
        """Let the next one in. Releasing twice is fine."""
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
        hint="a directory is open in one process at a time: stop the other one first",
    )


def _let_go_in_child() -> None:
    """A forked child shares its parent's locks, and would keep them when the parent is gone."""
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_let_go_in_child)
