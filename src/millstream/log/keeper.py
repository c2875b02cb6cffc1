"""The background threads of a log: one writes, one syncs, one lets go of what is too old."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from millstream.errors import ClosedError, Error
from millstream.threads import thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.log.writer import LogWriter

_SHORTEST: Final = 0.1
"""Seconds between two rounds of retention on a disk that is full."""

_logger = logging.getLogger("millstream.log")


class Keeper:
    """Runs from construction until ``stop``.

    Args:
        writer: what is drained and synced.
        retain: one round of retention.
        sync_interval: for how long, in seconds, async rows may be written but not on the disk.
        retention_interval: seconds between two rounds of retention.
    """

    def __init__(
        self,
        writer: LogWriter,
        retain: Callable[[], object],
        *,
        sync_interval: float,
        retention_interval: float,
    ) -> None:
        self._writer = writer
        self._retain = retain
        self._sync_interval = sync_interval
        self._retention_interval = retention_interval
        self._shortest = min(retention_interval, _SHORTEST)
        self._stopping = threading.Event()
        self._threads = [
            thread(f"log-{name}", body, writer.fail)
            for name, body in (
                ("writer", writer.write_in_background),
                ("syncer", self._sync),
                ("retention", self._let_go),
            )
        ]
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        """Wait for the threads to end, once the writer is closing."""
        self._stopping.set()
        self._writer.dirty.set()
        self._writer.short.set()
        for each in self._threads:
            if each is not threading.current_thread():
                each.join()

    def is_here(self) -> bool:
        """Whether this is one of the threads."""
        return threading.current_thread() in self._threads

    def _sync(self) -> None:
        """Bring async rows to the disk, soon after they were written."""
        while not self._stopping.is_set():
            self._writer.dirty.wait()
            self._stopping.wait(self._sync_interval)
            self._writer.dirty.clear()
            try:
                self._writer.sync_in_background()
            except Error as error:
                # Kept by the writer: whoever appends or flushes next is told.
                _logger.warning("cannot sync: %s", error.message)

    def _let_go(self) -> None:
        """A round of retention now and then, and when the disk is full."""
        short = self._writer.short
        while not self._stopping.is_set():
            if short.wait(self._retention_interval) and self._stopping.wait(self._shortest):
                return
            short.clear()
            try:
                self._retain()
            except ClosedError:
                return
            except Error as error:
                _logger.warning("retention failed, and is tried again: %s", error.message)
            except Exception:
                # Nothing is lost by it but space; the next round tries again.
                _logger.exception("retention failed")
