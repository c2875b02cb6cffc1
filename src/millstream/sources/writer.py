"""``Writer``: takes rows one by one, and pushes them in batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from millstream.errors import InvalidOptionError
from millstream.model.display import public_names

if TYPE_CHECKING:
    from datetime import datetime

    from millstream.model.schema import Schema
    from millstream.sources.source import Source


class Writer:
    """Gathers rows and pushes them as batches. Get one with ``db.writer(name)``.

    >>> import millstream as ms
    >>> with ms.open() as db:
    ...     _ = db.execute("CREATE SOURCE trades (symbol VARCHAR, price DOUBLE)")
    ...     with db.writer("trades", batch_rows=100) as writer:
    ...         for n in range(250):
    ...             writer.write({"symbol": "AAPL", "price": float(n)})
    ...     len(db.query("SELECT * FROM trades"))
    250
    """

    def __init__(self, source: Source, batch_rows: int = 1024) -> None:
        if type(batch_rows) is not int or batch_rows < 1:
            raise InvalidOptionError(f"batch_rows is {batch_rows!r}", hint="a number from 1 on")
        self._source = source
        self._batch_rows = batch_rows
        self._rows: list[Any] = []

    @property
    def schema(self) -> Schema:
        """The columns."""
        return self._source.schema

    @property
    def pending(self) -> int:
        """Rows that were written and not pushed yet."""
        return len(self._rows)

    def write(self, row: Any) -> None:  # noqa: ANN401 - any shape of a row
        """Add a row; checked when its batch is pushed."""
        self._rows.append(row)
        if len(self._rows) >= self._batch_rows:
            self.push()

    def insert(self, rows: Any) -> None:  # noqa: ANN401 - any shape of rows
        """Add one row (a dict) or several (a list)."""
        try:
            several = iter([rows] if isinstance(rows, dict) else rows)
        except TypeError as error:
            raise InvalidOptionError(
                f"expected a dict or a list of rows, got {type(rows).__name__}",
                hint="for one row, use write(row)",
            ) from error
        for row in several:
            self.write(row)

    def watermark(self, timestamp: datetime | int) -> None:
        """Promise that no older row is still to come, after those that were written."""
        self.push()
        self._source.watermark(timestamp)

    def push(self) -> None:
        """Push what was gathered. When a row does not fit, nothing is pushed and nothing lost."""
        if self._rows:
            self._source.push_batch(self._rows)
            self._rows = []

    def discard(self) -> list[Any]:
        """Let go of what was gathered, when a row in it does not fit; returns it."""
        rows, self._rows = self._rows, []
        return rows

    def flush(self) -> int:
        """Push, and wait until it is on the disk; returns the newest LSN."""
        self.push()
        return self._source.flush()

    def close(self) -> None:
        """Push what is left."""
        try:
            self.push()
        finally:
            self._source.close()

    def __repr__(self) -> str:
        return f"<Writer {self._source.name}: {self.pending} of {self._batch_rows} rows pending>"

    def __dir__(self) -> list[str]:
        return public_names(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._source.close()
