"""The two background threads of a log: one writes, one syncs and lets go of what is too old."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from millstream.errors import ClosedError, Error

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.log.writer import Writer

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
        writer: Writer,
        retain: Callable[[], object],
        *,
        sync_interval: float,
        retention_interval: float,
    ) -> None:
        self._writer = writer
        self._retain = retain
        self._sync_interval = sync_interval
        self._retention_interval = retention_interval
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for target, name in (
                (writer.write_in_background, "millstream-log-writer"),
                (self._keep, "millstream-log-keeper"),
            )
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Wait for the threads to end, once the writer is closing."""
        self._stopping.set()
        self._writer.dirty.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _keep(self) -> None:
        next_round = time.monotonic() + self._retention_interval
        while not self._stopping.is_set():
            self._writer.dirty.wait(max(0.0, next_round - time.monotonic()))
            try:
                if self._writer.dirty.is_set():
                    self._stopping.wait(self._sync_interval)
                    self._writer.dirty.clear()
                    self._writer.sync_in_background()
                if time.monotonic() >= next_round and not self._stopping.is_set():
                    next_round = time.monotonic() + self._retention_interval
                    self._retain()
            except ClosedError:
                return
            except Error as error:
                # Whoever appends or flushes next is told the same; here is nobody to raise it to.
                _logger.warning("in the background: %s", error.message)
