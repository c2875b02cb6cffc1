"""The position of ``postgres-cdc``: an LSN, and what the table looked like there. Pure."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.connectors.sources._pgoutput import lsn_number, lsn_text

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Position:
    """Where the connector is; kept as JSON with every delivery.

    Attributes:
        lsn: all transactions that end up to here are in; 0 while there is a snapshot.
        oid: the table's number.
        width: how many columns PostgreSQL sends.
        shape: a checksum of them, to notice changes that happened meanwhile.
        skipped: the names of columns that CREATE left out.
    """

    lsn: int
    oid: int
    width: int
    shape: int
    skipped: tuple[str, ...] = ()

    def to_json(self) -> list[Any]:
        """What is kept."""
        return [lsn_text(self.lsn), self.oid, self.width, self.shape, *self.skipped]

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> Position:
        """What ``to_json`` has made."""
        lsn, oid, width, shape, *skipped = value
        return cls(lsn_number(lsn), oid, width, shape, tuple(skipped))


def checksum(columns: Sequence[tuple[str, int, int]]) -> int:
    """A checksum of names, types and parameters of columns."""
    return zlib.crc32(repr(list(columns)).encode())


class SnapshotNeeded(Exception):  # noqa: N818 - a turn that reading takes
    """The table was changed in a way that the stream does not show: its rows are read again."""
