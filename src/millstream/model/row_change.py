"""Changes of single rows of a table, by key, as another system reports them. Pure."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

Row = tuple[Any, ...]


class _Unchanged:
    """The type of ``UNCHANGED``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = _Unchanged()
"""A value of an upsert that was not sent because it did not change: keep the current value."""


class RowChange(NamedTuple):
    """A change of one row of a table. Create one with ``upsert``, ``delete`` or ``TRUNCATE``.

    Attributes:
        op: the operation.
        row: of an upsert, the new row; values may be ``UNCHANGED``.
        key: of a delete, the values of the key's columns, in the order of the key. Of an upsert
            whose row had another key before, the old key.
    """

    op: Literal["upsert", "delete", "truncate"]
    row: Row | None = None
    key: Row | None = None


def upsert(row: Row, old_key: Row | None = None) -> RowChange:
    """Insert a row, or replace the rows with the same key and with ``old_key``.

    >>> upsert((1, "Ada")).op
    'upsert'
    """
    return RowChange("upsert", row, old_key)


def delete(key: Row) -> RowChange:
    """Delete the row with this key, if it exists.

    >>> delete((1,)).key
    (1,)
    """
    return RowChange("delete", None, key)


TRUNCATE: Final = RowChange("truncate")
"""Delete all rows."""
