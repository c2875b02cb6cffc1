"""Columns of a table's rows in Arrow, made when they are first asked for.

After a change of a few rows they are not made anew: each is taken from the column of the rows that
it was made of, and from the new rows. Rows are the same if they are the same tuple.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.model.schema import Schema
    from millstream.model.weighted_rows import Row

_FEW: Final = 1000
_SHARE: Final = 8
_MOST_CHANGES: Final = 4096


class _Base(NamedTuple):
    """Rows, and columns that were made of them."""

    rows: list[Row]
    arrays: dict[str, pa.Array]


class _Rows(NamedTuple):
    """Rows as those of a base and some more.

    Attributes:
        base: the base.
        added: the rows that are not in it.
        places: where each row is among those of the base and those added; None: the rows are those
            of the base.
    """

    base: _Base
    added: list[Row]
    places: pa.Array | None

    @classmethod
    def of(cls, rows: list[Row], base: _Base | None) -> _Rows:
        """Find rows in a base, if that has most of them; else they are a new base."""
        if base is not None:
            count = len(base.rows)
            known = dict(zip(map(id, base.rows), range(count), strict=True))
            places = np.fromiter(map(known.get, map(id, rows), repeat(-1)), np.int64, len(rows))
            new = np.flatnonzero(places < 0)
            others = len(new) + count - len(rows) + len(new)
            if others <= _FEW + count // _SHARE:
                places[new] = np.arange(count, count + len(new))
                return cls(base, [rows[place] for place in new.tolist()], pa.array(places))
        return cls(_Base(rows, {}), [], None)

    def column(self, name: str, schema: Schema) -> pa.Array:
        """A column of the rows."""
        rows, made = self.base
        if name not in made:
            made[name] = schema.column_to_arrow(name, rows)
        if self.places is None:
            return made[name]
        added = schema.column_to_arrow(name, self.added)
        return pa.concat_arrays([made[name], added]).take(self.places)


class TableColumns:
    """The columns of a table's rows at one moment, as far as they were asked for.

    Args:
        base: the base of an earlier moment.
        changes: how often the table has changed since columns were asked for.

    Attributes:
        arrays: the columns.
    """

    __slots__ = ("_base", "_changes", "_rows", "arrays")

    def __init__(self, base: _Base | None = None, changes: int = 0) -> None:
        self.arrays: dict[str, pa.Array] = {}
        self._base = base
        self._changes = changes
        self._rows: _Rows | None = None

    def after_change(self) -> TableColumns:
        """The columns after a change. Those that nobody has asked for in a long time are freed."""
        base = self._base if self._rows is None else self._rows.base
        if base is None:
            return TableColumns()
        changes = self._changes + 1 if self._rows is None else 1
        return TableColumns(base, changes) if changes < _MOST_CHANGES else TableColumns()

    def make(self, names: Iterable[str], rows: list[Row], schema: Schema) -> None:
        """Make the columns that are missing, given all rows of the moment."""
        if self._rows is None:
            self._rows = _Rows.of(rows, self._base)
        for name in names:
            if name not in self.arrays:
                self.arrays[name] = self._rows.column(name, schema)
