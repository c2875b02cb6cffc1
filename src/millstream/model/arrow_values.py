"""From Arrow to Python: the canonical values that an Arrow array holds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.errors import RowError
from millstream.model.arrow_lists import map_entries
from millstream.model.clock import EPOCH
from millstream.model.readable import unreadable

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.model.types import SqlType

_DAY_ZERO = EPOCH.toordinal()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The placeholder, in a row, of a value that Python cannot hold.

    Pushes reject such values. A view may compute one, such as a DATE of the year 12000, and a log
    of an older version may contain one. The other values of the row, and the other rows of the
    batch, are delivered as usual.

    >>> from millstream.model.types import DATE
    >>> readable_values(DATE, pa.array([0, 4000000], pa.date32()))[1]
    <unreadable DATE: day 4000000 from 1970 is outside of the years 1 to 9999>

    Attributes:
        type: the SQL type.
        reason: why Python cannot hold the value.
        arrow: the value as an Arrow scalar.
    """

    type: str
    reason: str
    arrow: pa.Scalar

    def __repr__(self) -> str:
        # Values that differ must not look the same; the reason has all of a date, part of others.
        mark = "" if self.type in {"DATE", "TIMESTAMP"} else f" [{hash(self.arrow):x}]"
        return f"<unreadable {self.type}: {self.reason}{mark}>"


def column_values(name: str, of: SqlType, array: pa.Array) -> list[Any]:
    """Return the canonical Python values of an Arrow array, which is of exactly ``of.arrow``.

    >>> from millstream.model.types import BIGINT
    >>> column_values("n", BIGINT, pa.array([1, None]))
    [1, None]

    Raises:
        RowError: a value that Python cannot hold, such as the year 10000; it names the row.
    """
    try:
        return _values(of, array)
    except (OverflowError, ValueError) as error:  # ValueError: text that is not UTF-8
        row, reason = unreadable(of, array) or (0, str(error))
        raise RowError(
            f"row {row}, column {name!r}: Python cannot hold this {of.sql}: {reason}",
            row=row,
            column=name,
            hint="Read the rows as Arrow instead; all others can be read as Python, too.",
        ) from error


def readable_values(of: SqlType, array: pa.Array) -> list[Any]:
    """Return the values as ``column_values`` does, with ``Unreadable`` where it would raise."""
    try:
        return _values(of, array)
    except (OverflowError, ValueError) as error:
        size = len(array)
        if size == 1:
            _, reason = unreadable(of, array) or (0, str(error))
            return [Unreadable(of.sql, reason, array[0])]
        half = size // 2
        return readable_values(of, array.slice(0, half)) + readable_values(of, array.slice(half))


def _values(of: SqlType, array: pa.Array) -> list[Any]:
    read = _READERS.get(of.kind)
    values: list[Any] = read(of, array) if read else array.to_pylist()
    return values


# pyarrow's to_pylist makes dates and times one scalar at a time, and timestamps with another UTC
# than datetime's own; made from their ints they are right at once, and about ten times as fast.


def _dates(_of: SqlType, array: pa.Array) -> list[date | None]:
    days, make = array.view(pa.int32()).to_pylist(), date.fromordinal
    return [None if day is None else make(_DAY_ZERO + day) for day in days]


def _timestamps(_of: SqlType, array: pa.Array) -> list[datetime | None]:
    micros = array.view(pa.int64()).to_pylist()
    return [None if each is None else EPOCH + timedelta(0, 0, each) for each in micros]


def _intervals(_of: SqlType, array: pa.Array) -> list[timedelta | None]:
    micros = array.view(pa.int64()).to_pylist()
    return [None if each is None else timedelta(0, 0, each) for each in micros]


def _lists(of: SqlType, array: pa.Array) -> list[list[Any] | None]:
    elements = iter(_values(of.children[0], array.flatten()))
    lengths = array.value_lengths().to_pylist()
    return [None if length is None else list(islice(elements, length)) for length in lengths]


def _structs(of: SqlType, array: pa.Array) -> list[dict[str, Any] | None]:
    children = zip(of.children, array.flatten(), strict=True)
    rows = zip(*[_values(child, values) for child, values in children], strict=True)
    there = array.is_valid().to_pylist()
    pairs = zip(rows, there, strict=True)
    return [dict(zip(of.names, row, strict=True)) if valid else None for row, valid in pairs]


def _maps(of: SqlType, array: pa.Array) -> list[dict[Any, Any] | None]:
    entries = map_entries(array)
    keys, values = entries.flatten().flatten()
    pairs = zip(_values(of.children[0], keys), _values(of.children[1], values), strict=True)
    lengths = entries.value_lengths().to_pylist()
    maps = [None if length is None else dict(islice(pairs, length)) for length in lengths]
    if [length for length in lengths if length is not None] != [
        len(m) for m in maps if m is not None
    ]:
        raise ValueError("a MAP has a key twice")
    return maps


_READERS: dict[str, Callable[[SqlType, pa.Array], list[Any]]] = {
    "DATE": _dates,
    "TIMESTAMP": _timestamps,
    "INTERVAL": _intervals,
    "ARRAY": _lists,
    "STRUCT": _structs,
    "MAP": _maps,
}
