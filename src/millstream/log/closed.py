"""The note of a clean close: how the last segment was left.

The last segment says by itself that the log was closed. But one that was cut short afterwards, or
an older copy of it, looks like one that a crash has left; this note tells them apart. It is written
last of all, and removed when the log is opened again, before anything else is changed. Without it
nothing is wrong.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from millstream.log.storage import sync_directory, write_file
from millstream.log.topics import encode_json

if TYPE_CHECKING:
    from pathlib import Path

_NAME: Final = "CLOSED"


@dataclass(frozen=True, slots=True)
class Closed:
    """How the log was left.

    Attributes:
        ordinal: the last segment.
        number: the random number that is its own.
        size: how many bytes it has.
        end_lsn: the first LSN after it.
    """

    ordinal: int
    number: int
    size: int
    end_lsn: int

    def write(self, directory: Path) -> None:
        """Write the note; it is on the disk when this returns."""
        write_file(directory / _NAME, [encode_json(asdict(self))])

    @classmethod
    def read(cls, directory: Path) -> Closed | None:
        """The note; None when there is none, or it is damaged."""
        try:
            return cls(**json.loads((directory / _NAME).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None


def remove_note(directory: Path) -> None:
    """The log is open again."""
    if (directory / _NAME).exists():
        (directory / _NAME).unlink()
        sync_directory(directory)
