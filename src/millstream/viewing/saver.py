"""The saver: writes the rows of views and tables to the disk now and then.

Opening a database then reads those rows, and of the log only what came after them. They are written
when the log has grown by more than they are themselves, so that what is written in all stays within
a small multiple of the log, and at the end.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from typing import TYPE_CHECKING, Final, Protocol

from millstream.errors import Error
from millstream.views.saved import Saved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from millstream.catalog import Definition

MANY: Final = 100_000
"""So many changed rows, at least, make it worth to save them."""
SOME: Final = 5_000
"""The same at the end, when nobody waits for anything else."""

_LOOK_SECONDS: Final = 5.0
_logger = logging.getLogger("millstream.views")


class Kept(Protocol):
    """A view or a table."""

    written: int

    def __len__(self) -> int: ...

    def saved(self) -> Saved | None:
        """What it holds; None when that is the log itself."""


class Saver:
    """Saves what it is given, in a thread of its own.

    Args:
        folder: where the files are.
        flush: returns when all that was committed is on the disk.
    """

    def __init__(self, folder: Path, flush: Callable[[], int]) -> None:
        self._folder = folder
        self._flush = flush
        self._kept: dict[Path, tuple[Kept, int]] = {}  # and how much was written when it was saved
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def read(self, definition: Definition) -> Saved | None:
        """What was saved of a view or a table."""
        return Saved.read(self._path(definition))

    def keep(self, definition: Definition, kept: Kept) -> None:
        """Save it from now on."""
        with self._lock:
            self._kept[self._path(definition)] = (kept, kept.written)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="millstream-saver", daemon=True
                )
                self._thread.start()

    def forget(self, definition: Definition) -> None:
        """It was dropped."""
        path = self._path(definition)
        with self._lock:
            self._kept.pop(path, None)
            path.unlink(missing_ok=True)

    def clear(self, definitions: Iterable[Definition]) -> None:
        """Remove what a crash has left of others than these."""
        known = {self._path(each) for each in definitions}
        for path in self._folder.iterdir() if self._folder.is_dir() else ():
            if path not in known:
                path.unlink(missing_ok=True)

    def save(self, least: int, share: float) -> None:
        """Save what has changed by so many rows, and by such a share of what it holds."""
        with self._lock:
            all_of_them = list(self._kept.items())
        for path, (kept, before) in all_of_them:
            written = kept.written
            if written - before < max(least, share * len(kept)):
                continue
            saved = kept.saved()
            if saved is not None:
                self._flush()  # without the lock: the dispatcher may be about to forget something
                saved.write(path)
            with self._lock:
                if path in self._kept:
                    self._kept[path] = (kept, written)
                else:
                    path.unlink(missing_ok=True)

    def close(self) -> None:
        """Save what is worth it, and end. Before the log does."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._try(SOME, 0.1)

    def _run(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            self._try(MANY, 2.0)

    def _try(self, least: int, share: float) -> None:
        try:
            self.save(least, share)
        except (Error, OSError) as error:  # the log has everything
            _logger.warning("rows could not be saved, opening will take longer: %s", error)

    def _path(self, definition: Definition) -> Path:
        safe = hashlib.sha256(definition.name.encode()).hexdigest()[:12]
        return self._folder / f"{safe}-{definition.born}.rows"
