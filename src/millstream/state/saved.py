"""Rows on the disk: what a view or a table holds at an LSN, so that opening is not reading history.

A copy of what the log says, never more: it is written once everything up to its LSN is on the disk.
One that is missing, damaged or of other columns is passed over, and the log is read from its
beginning. The file: a mark, the check sum of all that follows, the length of a header, the header
(JSON), and each part as a stream of Arrow.
"""

from __future__ import annotations

import json
import struct
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import google_crc32c
import pyarrow as pa

from millstream.log.storage import write_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NEVER: Final = sys.maxsize
"""What is never due."""

_MARK: Final = b"MSR1"
_HEAD = struct.Struct(">4sI")
_SIZE = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Saved:
    """Rows at one moment.

    Attributes:
        lsn: everything up to this LSN of the log is in them.
        cause: of a view, the LSN up to which its inputs count in them.
        parts: the rows.
        token: the same LSN, with the history that it is of.
    """

    lsn: int
    cause: int
    parts: Mapping[str, pa.Table]
    token: str = ""

    def fits(self, shapes: Mapping[str, pa.Schema]) -> bool:
        """Whether these are the parts that are wanted, with the columns that are."""
        return self.parts.keys() == shapes.keys() and all(
            self.parts[name].schema.equals(shape) for name, shape in shapes.items()
        )

    def write(self, path: Path) -> None:
        """Write them to a file, which is there whole or not at all."""
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
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, [_HEAD.pack(_MARK, check), *body])

    @staticmethod
    def read(path: Path) -> Saved | None:
        """What was written; None when it is not there, or not what was written."""
        try:
            data = pa.py_buffer(path.read_bytes())
            mark, check = _HEAD.unpack_from(data)
        except (OSError, struct.error):
            return None
        body = data.slice(_HEAD.size)
        if mark != _MARK or google_crc32c.value(body) != check:
            return None
        (size,) = _SIZE.unpack_from(body)
        header = json.loads(body.slice(_SIZE.size, size).to_pybytes())
        parts, place = {}, _SIZE.size + size
        for name, length in header["parts"]:
            with pa.ipc.open_stream(body.slice(place, length)) as reader:
                parts[name] = reader.read_all()
            place += length
        return Saved(header["lsn"], header["cause"], parts, header["token"])


def _stream(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
