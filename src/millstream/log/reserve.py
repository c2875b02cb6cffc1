"""A little space that is kept for a full disk.

To make room, something has to be written first: that a topic was dropped or trimmed, the end of one
segment and the head of the next. The reserve is a file of some hundred kilobytes with nothing in
it. It is emptied for such a step, and filled again, as far as there is room, right after it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME: Final = "RESERVE"
SIZE: Final = 256 << 10
_STEP: Final = 32 << 10


class Reserve:
    """The file. Not safe for threads: the writer's lock is around it.

    Attributes:
        size: how much is kept at the moment.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME
        self.size = 0
        self.fill()

    def fill(self) -> None:
        """Keep as much as there is room for, at most ``SIZE``. Never raises."""
        with contextlib.suppress(OSError):  # no room, or no right to write: then there is none
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                self.size = os.fstat(fd).st_size
                while self.size < SIZE:
                    _allocate(fd, self.size, _STEP)
                    self.size += _STEP
            finally:
                os.close(fd)

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
