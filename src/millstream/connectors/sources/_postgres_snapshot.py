"""All rows of a table of PostgreSQL as of the beginning of a new replication slot."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from millstream.connectors._postgres import connect, literal, names
from millstream.connectors.sources._postgres_slot import (
    CopyOut,
    create_slot,
    drop_slot,
    ensure_publication,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from millstream.connectors.sources._postgres_rows import RowMaker

CHUNK_BYTES: Final = 16 << 20
LOCK: Final = "SET lock_timeout = '10s'; BEGIN; LOCK TABLE {} IN ACCESS SHARE MODE"


class Chunk(NamedTuple):
    """Some rows.

    Attributes:
        rows: the rows.
        replaces: whether all rows of the table here go first.
        is_last: whether these were the last ones.
    """

    rows: pa.Table
    replaces: bool
    is_last: bool


class Snapshot:
    """Makes the slot, anew if it was there, and reads the rows from before it.

    The table is locked from before the slot until the last row, in the weakest mode: its columns
    stay, and neither TRUNCATE nor ALTER TABLE removes rows that the snapshot has.

    Args:
        settings: of the connector.
        slot: the slot that is made.
        publication: made if it is not there.
        table: the table's name, quoted.

    Attributes:
        lsn: where the slot begins.
        connection: sees the database as the snapshot does.
    """

    def __init__(
        self, settings: Mapping[str, Any], slot: str, publication: str, table: str
    ) -> None:
        self._table = table
        self._copy: CopyOut | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._replaces = False
        self._maker: RowMaker | None = None
        self.connection = connect(settings)
        with (
            self.closed_on_error(),
            connect(settings) as locked,
            connect(settings, replication=True) as maker,
        ):
            if not settings["publication"]:
                ensure_publication(locked, publication, table)
            drop_slot(locked, slot)
            for each in LOCK.format(table).split("; "):
                locked.execute(each)
            self.lsn, snapshot = create_slot(maker, slot)
            self.connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            self.connection.execute(f"SET TRANSACTION SNAPSHOT {literal(snapshot)}")
            self.connection.execute(f"LOCK TABLE {table} IN ACCESS SHARE MODE")
            locked.execute("ROLLBACK")

    def start(
        self, maker: RowMaker, columns: Sequence[str], *, is_partitioned: bool, replaces: bool
    ) -> None:
        """Begin to read some columns."""
        only = "" if is_partitioned else "ONLY "
        self._maker, self._replaces = maker, replaces
        self._copy = CopyOut(
            self.connection,
            f"COPY (SELECT {names(columns)} FROM {only}{self._table}) TO STDOUT (FORMAT csv)",
            "the rows of the table cannot be read",
        )

    def read(self, timeout: float, most: int) -> Chunk | None:
        """The next rows, at most so many; None when they have not come in ``timeout`` seconds."""
        copy, pieces = self._copy, self._pieces
        assert copy is not None
        end = time.monotonic() + timeout
        try:
            while len(pieces) < most and self._size < CHUNK_BYTES:
                piece = copy.piece(max(0.0, end - time.monotonic()))
                if piece is not None:
                    pieces.append(bytes(piece))
                    self._size += len(piece)
                elif time.monotonic() >= end:
                    return None
        except EOFError:
            return self._chunk(is_last=True)
        return self._chunk(is_last=False)

    def _chunk(self, *, is_last: bool) -> Chunk:
        assert self._maker is not None
        data, self._pieces, self._size = b"".join(self._pieces), [], 0
        replaces, self._replaces = self._replaces, False
        return Chunk(self._maker.batch(data), replaces, is_last)

    def close(self) -> None:
        """Close the connection."""
        if self._copy is not None:
            self._copy.close()
        self.connection.close()

    @contextlib.contextmanager
    def closed_on_error(self) -> Iterator[None]:
        """Close the connection if what follows fails."""
        try:
            yield
        except BaseException:
            self.close()
            raise
