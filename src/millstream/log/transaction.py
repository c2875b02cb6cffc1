"""A transaction: rows for several topics that appear together, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from millstream.errors import ClosedError

if TYPE_CHECKING:
    from datetime import datetime
    from types import TracebackType

    from millstream.formats.batches import Rows
    from millstream.log.log import Log, WalMode
    from millstream.log.queue import Part


class Transaction:
    """Collects rows; they are committed at the end of its ``with`` block, in the order they came.

    When the block raises, nothing is committed.

    Attributes:
        lsn: the last LSN of the transaction, once it is committed.
    """

    def __init__(self, log: Log, wal_mode: WalMode | None) -> None:
        self._log = log
        self._wal_mode = wal_mode
        self._parts: list[Part] = []
        self._open = False
        self._over = False
        self.lsn = 0

    def append(self, topic: str, rows: Rows, *, watermark: int | datetime | None = None) -> None:
        """Add rows of a topic; checked now, committed at the end."""
        if not self._open:
            raise ClosedError(
                "the transaction is over" if self._over else "the transaction has not begun",
                hint="append within its block: with log.transaction() as transaction: ...",
            )
        self._parts += self._log.prepare(topic, rows, watermark=watermark)

    def __enter__(self) -> Self:
        if self._over or self._open:
            raise ClosedError("a transaction is used once", hint="begin another one")
        self._open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open, self._over = False, True
        if kind is None:
            self.lsn = self._log.commit(self._parts, wal_mode=self._wal_mode)
