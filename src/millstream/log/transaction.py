"""A transaction: rows for several topics that appear together, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from millstream.errors import ClosedError

if TYPE_CHECKING:
    from types import TracebackType

    from millstream.log.log import Log, Rows, WalMode
    from millstream.log.topics import Topic
    from millstream.model.batch import ChangeBatch


class Transaction:
    """Collects rows; they are committed at the end of its ``with`` block, in the order they came.

    When the block raises, nothing is committed.

    Attributes:
        lsn: the last LSN of the transaction, once it is committed.
    """

    def __init__(self, log: Log, wal_mode: WalMode | None) -> None:
        self._log = log
        self._wal_mode = wal_mode
        self._parts: list[tuple[Topic, int, ChangeBatch]] = []
        self._done = False
        self.lsn = 0

    def append(self, topic: str, rows: Rows, *, watermark: int | None = None) -> None:
        """Add rows of a topic; checked now, committed at the end."""
        if self._done:
            raise ClosedError("the transaction is over", hint="begin another one")
        self._parts += self._log.prepare(topic, rows, watermark=watermark)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done = True
        if kind is None:
            self.lsn = self._log.commit(self._parts, wal_mode=self._wal_mode)
