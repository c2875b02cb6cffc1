"""One change as a person reads it, and the account of changes that were not delivered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from millstream.errors import ColumnNotFoundError
from millstream.model.shown import shown_values

if TYPE_CHECKING:
    from millstream.model.schema import Schema

Op = Literal["insert", "update", "delete"]


@dataclass(frozen=True, slots=True, repr=False)
class Change:
    """A row appeared, was replaced, or disappeared.

    >>> from millstream import ChangeBatch, Schema
    >>> schema = Schema.of(key=("id",), id="BIGINT NOT NULL", name="VARCHAR")
    >>> batch = ChangeBatch.from_rows(schema, [(1, "a"), (1, "b")], weights=[-1, 1])
    >>> change = next(iter(batch))
    >>> change.op, change.before, change.row, change["name"]
    ('update', (1, 'a'), (1, 'b'), 'b')

    Attributes:
        op: ``"insert"``, ``"update"`` or ``"delete"``.
        row: the row after the change; for a delete, the row that went away.
        before: the row before an update or a delete, else None.
        lsn: the place of the change in the order of the database.
        schema: the columns of ``row`` and ``before``.
    """

    op: Op
    row: tuple[Any, ...]
    before: tuple[Any, ...] | None
    lsn: int
    schema: Schema

    def __repr__(self) -> str:
        names = self.schema.names
        row = shown_values(names, self.row)
        if self.op == "update" and self.before is not None:
            pairs = zip(names, self.before, self.row, strict=True)
            changed = [(name, old) for name, old, new in pairs if old is not new and old != new]
            before = shown_values([name for name, _ in changed], [old for _, old in changed])
            row = f"{row} (before: {before})"
        return f"<Change {self.op} at LSN {self.lsn}: {row}>"

    def __getitem__(self, column: str) -> Any:  # noqa: ANN401 - a value of the user's
        """The value of a column in ``row``."""
        names = self.schema.names
        if column not in names:
            raise ColumnNotFoundError(
                f"there is no column {column!r}", hint=f"the columns are {', '.join(names)}"
            )
        return self.row[names.index(column)]

    def as_dict(self) -> dict[str, Any]:
        """``row`` as a dict from column name to value."""
        return dict(zip(self.schema.names, self.row, strict=True))


@dataclass(frozen=True, slots=True)
class Gap:
    """Changes that a reader was not given, reported instead of hidden.

    Attributes:
        first_lsn: where the gap begins.
        last_lsn: where it ends, inclusive.
        count: how many rows it is. Of rows that a policy has dropped, those that the query keeps;
            of rows that retention has taken, all that were committed in that range to what the
            reader reads, since nobody can know any more which of them its query would keep. None
            when it is not known: a crash has taken them, or they are gone for so long that where
            they were is not remembered.
    """

    first_lsn: int
    last_lsn: int
    count: int | None
