"""``LiveRows``: the rows of a result as a notebook shows them, kept up to date by its changes.

It does no I/O and is given the time, so it is the same in every notebook.
"""

from __future__ import annotations

from collections import deque
from itertools import count, islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from millstream.model.batch import ChangeBatch
    from millstream.model.change import Change
    from millstream.model.schema import Row, Schema

Shown = tuple[int, list[str | None]]
"""A number that is new when the row is, and its values as text."""

_RATE_SECONDS: Final = 3.0
_TEXT: Final = 200


class LiveRows:
    """A copy of a result, of which so many rows are shown.

    A result with a key is kept as a whole, in the order in which its rows came; the first rows are
    shown. Of one without, such as that of a source, which never ends, the newest rows are kept and
    shown, the newest first.

    >>> from millstream import ChangeBatch, Schema
    >>> schema = Schema.of(key=("id",), id="BIGINT NOT NULL", name="VARCHAR")
    >>> live = LiveRows(schema, limit=10)
    >>> live.apply(ChangeBatch.from_rows(schema, [(1, "Ada"), (2, None)]), now=0.0)
    >>> live.total, live.shown()
    (2, [(1, ['1', 'Ada']), (2, ['2', None])])

    Args:
        schema: the columns of the result.
        limit: how many rows are shown.

    Attributes:
        total: how many rows the result has; without a key, how many have come and not gone.
        lost: how many changes were not delivered, as far as that is known.
    """

    def __init__(self, schema: Schema, limit: int) -> None:
        self.total = 0
        self.lost = 0
        self._key = [schema.names.index(name) for name in schema.key]
        self._limit = limit
        self._by_key: dict[Row, tuple[int, Row]] = {}
        self._newest: deque[tuple[int, Row]] = deque(maxlen=limit)
        self._numbers = count(1)
        self._recent: deque[tuple[float, int]] = deque()

    def apply(self, batch: ChangeBatch, now: float) -> None:
        """Apply the changes of a batch, which came at a time in seconds."""
        if batch.gap is not None:
            self.lost += batch.gap.count or 0
            if batch.kind == "snapshot":  # it replaces what was there
                self.total = 0
                self._by_key.clear()
                self._newest.clear()
        changes = 0
        for changes, change in enumerate(batch, 1):  # noqa: B007 - counted: an update is one
            self.total += (change.op == "insert") - (change.op == "delete")
            if self._key:
                self._change_keyed(change)
            else:
                self._change_newest(change)
        if batch.kind == "changes":
            self._recent.append((now, changes))

    def _change_keyed(self, change: Change) -> None:
        key = tuple(_hashable(change.row[place]) for place in self._key)
        if change.op == "delete":
            self._by_key.pop(key, None)
        else:
            self._by_key[key] = (next(self._numbers), change.row)

    def _change_newest(self, change: Change) -> None:
        if change.before is not None:
            gone = next((each for each in self._newest if each[1] == change.before), None)
            if gone is not None:
                self._newest.remove(gone)
        if change.op != "delete":
            self._newest.append((next(self._numbers), change.row))

    def shown(self) -> list[Shown]:
        """The rows to show, at most ``limit``."""
        rows = islice(self._by_key.values(), self._limit) if self._key else reversed(self._newest)
        return [(number, [_text(value) for value in row]) for number, row in rows]

    def rate(self, now: float) -> float:
        """How many rows have changed a second, over the last few seconds."""
        while self._recent and self._recent[0][0] <= now - _RATE_SECONDS:
            self._recent.popleft()
        return sum(changes for _, changes in self._recent) / _RATE_SECONDS


def is_number(kind: pa.DataType) -> bool:
    """Whether values of a type stand at the right of their column."""
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _hashable(value: Any) -> Any:  # noqa: ANN401 - any value of a row
    return repr(value) if isinstance(value, list | dict) else value


def _text(value: object) -> str | None:
    """A value as text that fits a cell; None for NULL."""
    if value is None:
        return None
    text = str(value)
    return text if len(text) <= _TEXT else f"{text[: _TEXT - 1]}…"
