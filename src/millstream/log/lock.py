"""One process, one handle: a directory of the log is open only once."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from typing import TYPE_CHECKING

from millstream.errors import LogLockedError
from millstream.log.storage import translate

if TYPE_CHECKING:
    from pathlib import Path

# A POSIX lock goes away with its process however that ends, and is not passed on to a forked child;
# but it does not tell two handles of one process apart, so those are kept track of here.
_open_here: set[tuple[int, int]] = set()
_guard = threading.Lock()


class DirectoryLock:
    """Held from construction until ``release``.

    Raises:
        LogLockedError: somebody else has it; the message says who.
    """

    def __init__(self, directory: Path) -> None:
        path = directory / "LOCK"
        with _guard:
            if path.exists() and _identity(path.stat()) in _open_here:
                # Found before the file is opened: to close it again would drop the lock we hold.
                raise LogLockedError(
                    f"{directory} is already open in this process",
                    hint="use the handle that is open, or close it first",
                )
            try:
                self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise translate(error, path, "lock") from error
            self._take(directory)
            self._identity = _identity(os.fstat(self._fd))
            _open_here.add(self._identity)

    def _take(self, directory: Path) -> None:
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(self._fd, 100, 0).decode(errors="replace").strip()
            os.close(self._fd)
            raise LogLockedError(
                f"{directory} is open in another process ({owner or 'unknown'})",
                hint="a directory is open in one process at a time: stop the other one first",
            ) from error
        with contextlib.suppress(OSError):  # a full disk: the name is a courtesy, the lock stands
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"pid {os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let the next one in."""
        with _guard:
            _open_here.discard(self._identity)
            os.close(self._fd)


def _identity(stat: os.stat_result) -> tuple[int, int]:
    return stat.st_dev, stat.st_ino


os.register_at_fork(after_in_child=_open_here.clear)
