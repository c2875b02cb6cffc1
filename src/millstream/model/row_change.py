"""Changes of single rows of a table, by key, as a system outside reports them. Pure."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

Row = tuple[Any, ...]


class _Unchanged:
    """The type of ``UNCHANGED``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = _Unchanged()
"""A value of an upsert that was not sent, as it did not change: the current row's stays."""


class RowChange(NamedTuple):
    """A change of one row of a table; make it with ``upsert``, ``delete`` or ``TRUNCATE``.

    Attributes:
        op: what is done.
        row: of an upsert, the new row; values may be ``UNCHANGED``.
        key: of a delete, the values of the key's columns in the order of the key; of an upsert
            whose row had another key before, that one.
    """

    op: Literal["upsert", "delete", "truncate"]
    row: Row | None = None
    key: Row | None = None


def upsert(row: Row, old_key: Row | None = None) -> RowChange:
    """A row is there from now on, in place of the one with its key, and of that with ``old_key``.

    >>> upsert((1, "Ada")).op
    'upsert'
    """
    return RowChange("upsert", row, old_key)


def delete(key: Row) -> RowChange:
    """The row with this key is there no more; when there is none, nothing changes.

    >>> delete((1,)).key
    (1,)
    """
    return RowChange("delete", None, key)


TRUNCATE: Final = RowChange("truncate")
"""All rows disappear."""
