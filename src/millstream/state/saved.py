"""Saved rows: what a view or a table holds at an LSN, as bytes.

Bytes that are damaged or of other columns are ignored, and the log is read from its beginning, if
it still goes back to there. The format: a mark, the checksum of all that follows, the length of a
header, the header (JSON), and each part as an Arrow stream.
"""

from __future__ import annotations

import json
import struct
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import google_crc32c
import pyarrow as pa

from millstream.errors import LogCorruptError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NEVER: Final = sys.maxsize
"""A number of rows that is never reached."""

_MARK: Final = b"MSR1"
_HEAD = struct.Struct(">4sI")
_SIZE = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class SavedRows:
    """Rows at one moment.

    Attributes:
        lsn: everything up to this LSN of the log is in them.
        cause: of a view, the LSN up to which its inputs count in them.
        parts: the rows.
        token: the LSN with the epoch that it is of.
    """

    lsn: int
    cause: int
    parts: Mapping[str, pa.Table]
    token: str = ""

    def fits(self, shapes: Mapping[str, pa.Schema]) -> bool:
        """Whether these are exactly the parts and the columns that are expected."""
        return self.parts.keys() == shapes.keys() and all(
            self.parts[name].schema.equals(shape) for name, shape in shapes.items()
        )

    def encode(self) -> list[bytes | pa.Buffer]:
        """The rows as bytes, in pieces to be written one after the other."""
        streams = {name: _stream(table) for name, table in self.parts.items()}
        header = json.dumps(
            {
                "lsn": self.lsn,
                "cause": self.cause,
                "token": self.token,
                "parts": [[name, len(stream)] for name, stream in streams.items()],
            }
        ).encode()
        body = [_SIZE.pack(len(header)) + header, *streams.values()]
        check = 0
        for each in body:
            check = google_crc32c.extend(check, each)
        return [_HEAD.pack(_MARK, check), *body]

    @staticmethod
    def decode(data: bytes) -> SavedRows | None:
        """The rows that were encoded; None when the bytes are damaged."""
        buffer = pa.py_buffer(data)
        try:
            mark, check = _HEAD.unpack_from(buffer)
        except struct.error:
            return None
        body = buffer.slice(_HEAD.size)
        if mark != _MARK or google_crc32c.value(body) != check:
            return None
        (size,) = _SIZE.unpack_from(body)
        header = json.loads(body.slice(_SIZE.size, size).to_pybytes())
        parts, place = {}, _SIZE.size + size
        for name, length in header["parts"]:
            with pa.ipc.open_stream(body.slice(place, length)) as reader:
                parts[name] = reader.read_all()
            place += length
        return SavedRows(header["lsn"], header["cause"], parts, header["token"])


def rows_lost(name: str, directory: Path, first: int) -> LogCorruptError:
    """The error of rows whose log does not go back to its beginning, when none were saved.

    Args:
        name: the table or the view.
        directory: that of the log.
        first: the first LSN that is kept of it.
    """
    return LogCorruptError(
        f"the rows of {name} before LSN {first:,} are only in its saved rows, which are missing or "
        "damaged",
        segment=str(directory / "rows"),
        offset=0,
        next_lsn=first,
    )


def _stream(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
