"""Pieces of files, and the errors of files that cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.errors import FileAccessError, FileFormatError
from millstream.files.place import access_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.files.place import Place
    from millstream.model.batch import ChangeBatch

BROKEN: Final = (OSError, pa.ArrowException, EOFError)
"""What a file that cannot be read raises."""


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record of text that cannot be taken.

    Attributes:
        reason: why.
        payload: the record.
        line: where it begins, from 1.
    """

    reason: str
    payload: bytes
    line: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of a file.

    Attributes:
        batches: the rows, checked.
        offset: where to go on after them.
        done: how much of the file was read, from 0 to 1.
        bad: records that cannot be taken.
        line: of text, the line after the piece; else 0.
    """

    batches: Sequence[ChangeBatch]
    offset: int
    done: float
    bad: Sequence[BadRecord] = ()
    line: int = 0

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(map(len, self.batches))


def unreadable(place: Place, form: str, error: Exception) -> FileAccessError:
    """The error of a file that cannot be read as what it should be."""
    if isinstance(error, OSError) and not isinstance(error, pa.ArrowException) and error.errno:
        return access_error("read", place.path, error)
    why = str(error).partition(" Detail:")[0][:200]
    if not place.is_local and isinstance(error, OSError):  # the network, perhaps
        return FileAccessError(f"cannot read {place.path}: {why}", hint="it is tried again")
    return FileFormatError(
        f"{place.path} cannot be read as {form}: {why}",
        hint="the file is damaged or not complete, or has another format",
    )
