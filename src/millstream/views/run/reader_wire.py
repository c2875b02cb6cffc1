"""The connection of a live reader, or of those of all partitions of a view."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.model.batch import ChangeBatch
    from millstream.spark.bridge.connection import Connection


class ReaderWire:
    """The connection of the one reader of a view's query. ``PartitionWires`` is that of several.

    Args:
        wire: the connection.

    Attributes:
        marks_rows: whether a reader reports each frame of rows by itself, not with later ones.
        marks_progress: whether each reader must see how far the feed has come, without rows too.
    """

    marks_rows = marks_progress = False

    def __init__(self, wire: Connection) -> None:
        self._wire = wire

    def read(self, size: int) -> bytes:
        """Wait for bytes, or until the connection is closed."""
        return self._wire.read(size)

    def send(self, *data: bytes | pa.Buffer) -> None:
        """Send bytes, as they are, to each reader."""
        self._wire.send(*data)

    def send_mark(self, lsn: int, *data: bytes | pa.Buffer) -> None:
        """Send a frame that ends at an LSN, as it is, to each reader."""
        del lsn
        self._wire.send(*data)

    def send_rows(self, lsn: int, head: tuple[bytes, bytes], rows: pa.RecordBatch) -> None:
        """Send a frame of rows that ends at an LSN."""
        del lsn
        self._wire.send(*head, rows.serialize())

    def send_nothing(self, lsn: int, *data: bytes | pa.Buffer) -> None:
        """Send a frame without rows that ends at an LSN, to one reader."""
        del lsn
        self._wire.send(*data)

    # ---- a few rows at once, by the dispatcher's thread

    def take(self, log: int, batch: ChangeBatch) -> bool:
        """Get ready for a frame of a few rows of a log; False: it has to be sent otherwise."""
        del log, batch
        return True

    def send_now(self, frame: bytes) -> bytes:
        """Send as much of that frame as fits without waiting. Return the rest."""
        return self._wire.send_now(frame)

    def send_rest(self, rest: bytes) -> None:
        """Send the rest of that frame."""
        self._wire.send(rest)
