"""Open segment files, one descriptor each however many read them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from millstream.errors import LogCorruptError
from millstream.log.segment import SegmentFile, SegmentRef
from millstream.log.storage import translate

if TYPE_CHECKING:
    from pathlib import Path


class SegmentFiles:
    """Opens segments for reading and shares them; a file is closed when its last reader lets go."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: WeakValueDictionary[SegmentRef, SegmentFile] = WeakValueDictionary()
        self._lock = threading.Lock()

    def open(self, ref: SegmentRef) -> SegmentFile:
        """The segment's file.

        Raises:
            LogCorruptError: it is not there.
        """
        with self._lock:
            file = self._open.get(ref)
            if file is None:
                try:
                    file = SegmentFile(self._directory, ref)
                except FileNotFoundError as error:
                    raise LogCorruptError(
                        f"{self._directory / ref.name} is missing",
                        segment=ref.name,
                        offset=0,
                        next_lsn=None,
                        hint="restore this file from a backup",
                    ) from error
                except OSError as error:
                    raise translate(error, self._directory / ref.name, "read") from error
                self._open[ref] = file
            return file

    def forget(self, ref: SegmentRef) -> None:
        """Open the file anew next time: it was replaced. Who has it open reads on in the old."""
        with self._lock:
            self._open.pop(ref, None)
