"""One process, one handle: a directory of the log is open only once."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING
from weakref import WeakSet

from millstream.errors import LogLockedError
from millstream.log.storage import translate

if TYPE_CHECKING:
    from pathlib import Path

_held: WeakSet[DirectoryLock] = WeakSet()


class DirectoryLock:
    """Held from construction until ``release``, or until the process ends, however it ends.

    With flock, not with a POSIX record lock: that one is lost as soon as anything in the process,
    a backup say, opens and closes the file.

    Raises:
        LogLockedError: somebody else has it; the message says who.
    """

    def __init__(self, directory: Path) -> None:
        path = directory / "LOCK"
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise translate(error, path, "lock") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(self._fd, 100, 0).decode(errors="replace").strip()
            os.close(self._fd)
            raise _locked(directory, owner) from error
        with contextlib.suppress(OSError):  # a full disk: the name is a courtesy, the lock stands
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"pid {os.getpid()}\n".encode(), 0)
        _held.add(self)

    def release(self) -> None:
        """Let the next one in. Releasing twice is fine."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _locked(directory: Path, owner: str) -> LogLockedError:
    if owner == f"pid {os.getpid()}":
        return LogLockedError(
            f"{directory} is already open in this process",
            hint="use the handle that is open, or close it first",
        )
    return LogLockedError(
        f"{directory} is open in another process ({owner or 'unknown'})",
        hint="a directory is open in one process at a time: stop the other one first",
    )


def _let_go_in_child() -> None:
    """A forked child shares its parent's locks, and would keep them when the parent is gone."""
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_let_go_in_child)
