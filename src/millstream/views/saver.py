"""The saver: writes the rows of views and tables to files now and then.

Opening a database then reads those rows, and of the log only what came after them. They are written
when the log has grown by more than they are themselves, so that what is written in all stays within
a small multiple of the log, and at the end. A file is a copy of what the log says: it is written
once everything up to its LSN is on the disk, and one that is missing or damaged is ignored.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from millstream.errors import Error
from millstream.log.storage import write_file
from millstream.state.saved import SavedRows
from millstream.threads import thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from millstream.catalog import Definition
    from millstream.log import Log

MANY: Final = 100_000
"""So many changed rows, at least, make it worth to save them."""
SOME: Final = 5_000
"""So many make it worth at the end, when nothing else has to be done."""

_logger = logging.getLogger("millstream.views")


class Saveable(Protocol):
    """A view or a table.

    Attributes:
        written: how many rows its changes had since it was opened, and how many of its log were
            read then besides its saved rows.
        due: when so many were written it calls ``on_due``, once.
    """

    written: int
    due: int
    on_due: Callable[[], None]

    def __len__(self) -> int: ...

    def saved(self) -> SavedRows | None:
        """Its current rows; None when the log itself has them, and no others."""


class Saver:
    """Saves views and tables, in threads that live as long as that takes.

    Args:
        log: where their changes are.
        barrier: returns when all that was committed is in the log.
    """

    def __init__(self, log: Log, barrier: Callable[[], int]) -> None:
        self._log = log
        self._folder = log.path / "rows"
        self._barrier = barrier
        # What is saved, and how much it had written when it was saved last.
        self._saved: dict[Path, tuple[Saveable, int]] = {}
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        self._over = False

    def read(self, definition: Definition) -> SavedRows | None:
        """The saved rows of a view or a table, if they are of this log's history."""
        path = self._path(definition)
        saved = read_rows(path)
        try:
            if saved is None or self._log.resume(saved.token) is not None:
                return saved
        except Error:  # of another database
            pass
        path.unlink(missing_ok=True)
        return None

    def add(self, definition: Definition, saveable: Saveable) -> None:
        """Save a view or a table from now on."""
        path = self._path(definition)
        with self._lock:
            self._saved[path] = (saveable, 0)
        saveable.on_due = partial(self._begin, path)
        saveable.due = _due(saveable, 0)

    def remove(self, definition: Definition) -> None:
        """Remove what was saved of a view or a table, and save it no more."""
        path = self._path(definition)
        with self._lock:
            self._saved.pop(path, None)
            path.unlink(missing_ok=True)

    def remove_others(self, definitions: Iterable[Definition]) -> None:
        """Remove what a crash has left of others than these."""
        known = {self._path(each) for each in definitions}
        for path in self._folder.iterdir() if self._folder.is_dir() else ():
            if path not in known:
                path.unlink(missing_ok=True)

    def save(self, least: int, share: float) -> None:
        """Save what has changed by so many rows, and by such a share of its rows."""
        with self._lock:
            all_of_them = list(self._saved.items())
        for path, (saveable, before) in all_of_them:
            if saveable.written - before >= max(least, share * len(saveable)):
                self._save(path)

    def abandon(self) -> None:
        """Save nothing any more."""
        self._over = True

    def close(self) -> None:
        """Save what is worth it, and end. The log is still open."""
        if not self._over:
            self.save(SOME, 0.1)
        self._over = True
        with self._saving:  # a thread may be saving
            pass

    def _begin(self, path: Path) -> None:
        save = partial(self._save, path)
        thread("saver", save, lambda _: None).start()  # if it fails, opening takes longer

    def _save(self, path: Path) -> None:
        with self._saving:
            saveable, _ = self._saved.get(path, (None, 0))
            if saveable is None or self._over:
                return
            written = saveable.written
            try:
                self._write(path, saveable.saved())
            except Exception as error:  # noqa: BLE001 - the log has everything
                _logger.warning("rows could not be saved, opening will take longer: %s", error)
            with self._lock:
                if path in self._saved:
                    self._saved[path] = (saveable, written)
                    saveable.due = _due(saveable, written)
                else:
                    path.unlink(missing_ok=True)  # dropped meanwhile

    def _write(self, path: Path, saved: SavedRows | None) -> None:
        if saved is not None:
            self._barrier()
            if self._log.sync():
                write_rows(path, replace(saved, token=self._log.token(saved.lsn)))

    def _path(self, definition: Definition) -> Path:
        return self._folder / f"{definition.file_name}.rows"


def _due(saveable: Saveable, written: int) -> int:
    """How much must have been written until it is worth to be saved again."""
    return written + max(MANY, 2 * len(saveable))


def write_rows(path: Path, saved: SavedRows) -> None:
    """Write rows to a file, which exists completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, saved.encode())


def read_rows(path: Path) -> SavedRows | None:
    """The rows of a file; None when it does not exist, or is damaged."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    return SavedRows.decode(data)
