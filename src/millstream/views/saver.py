"""The saver: writes the rows of views and tables to files now and then.

Opening a database then reads those rows, and of the log only what came after them. They are written
when the log has grown by more than they are themselves, so that what is written in all stays within
a small multiple of the log, and at the end. A file is written once everything up to its LSN is on
the disk.

Of append-only rows it is a copy of what the log says; one that is missing or damaged is ignored.
Else the log is kept from where the saved rows end, so these are needed: that of a table, of a view
whose rows change, and what a view stores beside its log. There are two files then, the newest and
the one before it, and a hold keeps the log from that one on: any one of them may be damaged.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from millstream.catalog import LEAST_HISTORY
from millstream.catalog.options import FOREVER
from millstream.errors import Error, TopicNotFoundError
from millstream.log import Retention
from millstream.log.storage import make_private, sync_directory, write_file
from millstream.model.lsn import FIRST_LSN
from millstream.state.saved import SavedRows
from millstream.threads import thread
from millstream.views.rows import STATE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from millstream.catalog import Definition
    from millstream.log import Hold, Log

MANY: Final = 100_000
"""So many changed rows, at least, make it worth to save them."""
SOME: Final = 5_000
"""So many make it worth at the end, when nothing else has to be done."""

HISTORY_SHARE: Final = 4
"""Changes are kept up to so many times the size of the saved rows, at least."""

_ONLY_HELD: Final = Retention(max_bytes=1)
"""Of what nobody reads but who opens it, nothing is kept that the saved rows stand for."""

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


@dataclass(slots=True)
class _Files:
    """What is known of the saved rows on which a log is based.

    Attributes:
        definition: the table or the view.
        hold: keeps the part of the log that the older one of its files needs.
        lsn: the LSN of the newest file that can be read; 0: there is none.
        is_older: that is the older of the two files.
    """

    definition: Definition
    hold: Hold
    lsn: int = 0
    is_older: bool = False


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
        self._bases: dict[Path, _Files] = {}
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        self._over = False

    def read(self, definition: Definition) -> SavedRows | None:
        """The saved rows of a view or a table, if they are of this log's history.

        From then on, its log is kept as far as it is needed with its saved rows.
        """
        path = self._path(definition)
        files = self.hold(definition)
        for each in (path, _older(path)):
            saved = read_rows(each)
            if saved is not None and self._is_true(saved):
                if files is not None:
                    files.lsn, files.is_older = saved.lsn, each != path
                return saved
        return None

    def _is_true(self, saved: SavedRows) -> bool:
        try:
            return self._log.resume(saved.token) is not None
        except Error:  # of another database
            return False

    def hold(self, definition: Definition) -> _Files | None:
        """Keep the log of a table or a view as far as its saved rows need it; None: all is kept."""
        path, stored = self._path(definition), self._stored(definition)
        with self._lock:
            if path not in self._bases and (definition.has_base or stored):
                hold = self._log.hold(definition.name, *stored, lsn=FIRST_LSN, kept=True)
                self._bases[path] = _Files(definition, hold)
            return self._bases.get(path)

    def _stored(self, definition: Definition) -> list[str]:
        """The topics of a view besides its own, which nobody reads but who opens it."""
        name = STATE + definition.name
        return [name] if definition.query and name in self._log.topics else []

    def add(self, definition: Definition, saveable: Saveable) -> None:
        """Save a view or a table from now on."""
        path = self._path(definition)
        self.hold(definition)
        with self._lock:
            self._saved[path] = (saveable, 0)
        saveable.on_due = partial(self._begin, path)
        saveable.due = _due(saveable, 0)

    def remove(self, definition: Definition) -> None:
        """Remove what was saved of a view or a table, and save it no more."""
        path = self._path(definition)
        with self._lock:
            self._saved.pop(path, None)
            files = self._bases.pop(path, None)
            if files is not None:
                files.hold.release()
            _unlink(path)

    def remove_others(self, definitions: Iterable[Definition]) -> None:
        """Remove what a crash has left of others than these, if all of them are known."""
        all_of_them = list(definitions)
        if any(each.broken for each in all_of_them):
            return
        paths = [self._path(each) for each in all_of_them]
        known = {*paths, *map(_older, paths)}
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

    def save_anew(self, definition: Definition, saveable: Saveable) -> None:
        """Remove what was saved of a table, and save its rows as they are now."""
        self.remove(definition)
        self.add(definition, saveable)
        self._save(self._path(definition))

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
            except Exception as error:  # noqa: BLE001 - the log has what is not saved
                _logger.warning("rows could not be saved, opening will take longer: %s", error)
            with self._lock:
                if path in self._saved:
                    self._saved[path] = (saveable, written)
                    saveable.due = _due(saveable, written)
                else:
                    _unlink(path)  # dropped meanwhile

    def _write(self, path: Path, saved: SavedRows | None) -> None:
        if saved is None:
            return
        self._barrier()
        if not self._log.sync():
            return
        files = self._bases.get(path)
        before = 0
        if files is not None and files.lsn:
            before = files.lsn if files.is_older or _keep_older(path) else 0
        write_rows(path, replace(saved, token=self._log.token(saved.lsn)))
        if files is not None:
            files.lsn, files.is_older = saved.lsn, False
            if before:
                files.hold.advance(before + 1)
            with contextlib.suppress(TopicNotFoundError):  # dropped meanwhile
                self._bound_history(files.definition, path.stat().st_size)

    def _bound_history(self, definition: Definition, size: int) -> None:
        """Have changes kept in proportion to the rows, unless it is said how much."""
        log = self._log
        if definition.bounds_history:
            wanted = max(LEAST_HISTORY, HISTORY_SHARE * size)
            known = log.topic(definition.name).retention.max_bytes
            if known is not None and not known <= wanted < 2 * known:
                log.set_retention(definition.name, Retention(max_bytes=wanted))
        for name in () if definition.options.retention == FOREVER else self._stored(definition):
            if log.topic(name).retention != _ONLY_HELD:
                log.set_retention(name, _ONLY_HELD)

    def _path(self, definition: Definition) -> Path:
        return self._folder / f"{definition.file_name}.rows"


def _older(path: Path) -> Path:
    """The file of the rows that were saved before those of another one."""
    return path.with_suffix(".before")


def _unlink(path: Path) -> None:
    for each in (path, _older(path)):
        each.unlink(missing_ok=True)


def _keep_older(path: Path) -> bool:
    """Keep a file as the older one, beside the one that is about to take its place.

    Returns:
        False if it is damaged: it is not worth to be kept, and the older one may be.
    """
    if read_rows(path) is None:
        return False
    older = _older(path)
    older.unlink(missing_ok=True)
    os.link(path, older)
    sync_directory(path.parent)
    return True


def _due(saveable: Saveable, written: int) -> int:
    """How much must have been written until it is worth to be saved again."""
    return written + max(MANY, 2 * len(saveable))


def write_rows(path: Path, saved: SavedRows) -> None:
    """Write rows to a file, which exists completely or not at all."""
    make_private(path.parent)
    write_file(path, saved.encode())


def read_rows(path: Path) -> SavedRows | None:
    """The rows of a file; None when it does not exist, or is damaged."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    return SavedRows.decode(data)
