"""The saver: writes the rows of views and tables to the disk now and then.

Opening a database then reads those rows, and of the log only what came after them. They are written
when the log has grown by more than they are themselves, so that what is written in all stays within
a small multiple of the log, and at the end.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from millstream.errors import Error
from millstream.state.saved import Saved
from millstream.threads import thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from millstream.catalog import Definition
    from millstream.log import Log

MANY: Final = 100_000
"""So many changed rows, at least, make it worth to save them."""
SOME: Final = 5_000
"""The same at the end, when nobody waits for anything else."""

_logger = logging.getLogger("millstream.views")


class Kept(Protocol):
    """A view or a table.

    Attributes:
        written: how many rows its changes had that are not in what was saved, and those before.
        due: when so many were written it calls ``on_due``, once.
    """

    written: int
    due: int
    on_due: Callable[[], None]

    def __len__(self) -> int: ...

    def saved(self) -> Saved | None:
        """What it holds; None when that is the log itself."""


class Saver:
    """Saves what it is given, in threads that live as long as that takes.

    Args:
        log: what the rows are of.
        barrier: returns when all that was committed is in the log.
    """

    def __init__(self, log: Log, barrier: Callable[[], int]) -> None:
        self._log = log
        self._folder = log.path / "rows"
        self._barrier = barrier
        self._kept: dict[Path, tuple[Kept, int]] = {}  # and how much was written when it was saved
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        self._over = False

    def read(self, definition: Definition) -> Saved | None:
        """What was saved of a view or a table, if it is of this log's history."""
        path = self._path(definition)
        saved = Saved.read(path)
        try:
            if saved is None or self._log.resume(saved.token) is not None:
                return saved
        except Error:  # of another database
            pass
        path.unlink(missing_ok=True)
        return None

    def add(self, definition: Definition, kept: Kept) -> None:
        """Save it from now on."""
        path = self._path(definition)
        with self._lock:
            self._kept[path] = (kept, 0)
        kept.on_due = partial(self._begin, path)
        kept.due = _due(kept, 0)

    def remove(self, definition: Definition) -> None:
        """It was dropped."""
        path = self._path(definition)
        with self._lock:
            self._kept.pop(path, None)
            path.unlink(missing_ok=True)

    def remove_others(self, definitions: Iterable[Definition]) -> None:
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
            if kept.written - before >= max(least, share * len(kept)):
                self._save(path)

    def abandon(self) -> None:
        """Save nothing any more."""
        self._over = True

    def close(self) -> None:
        """Save what is worth it, and end. Before the log does."""
        if not self._over:
            self.save(SOME, 0.1)
        self._over = True
        with self._saving:  # one may be about it
            pass

    def _begin(self, path: Path) -> None:
        save = partial(self._save, path)
        thread("saver", save, lambda _: None).start()  # opening takes longer, no more

    def _save(self, path: Path) -> None:
        with self._saving:
            kept, _ = self._kept.get(path, (None, 0))
            if kept is None or self._over:
                return
            written = kept.written
            try:
                self._write(path, kept.saved())
            except Exception as error:  # noqa: BLE001 - the log has everything
                _logger.warning("rows could not be saved, opening will take longer: %s", error)
            with self._lock:
                if path in self._kept:
                    self._kept[path] = (kept, written)
                    kept.due = _due(kept, written)
                else:
                    path.unlink(missing_ok=True)  # dropped meanwhile

    def _write(self, path: Path, saved: Saved | None) -> None:
        if saved is not None:
            self._barrier()
            if self._log.sync():
                replace(saved, token=self._log.token(saved.lsn)).write(path)

    def _path(self, definition: Definition) -> Path:
        return self._folder / f"{definition.file_name}.rows"


def _due(kept: Kept, written: int) -> int:
    """How much must have been written until it is worth to be saved again."""
    return written + max(MANY, 2 * len(kept))
