"""The changes that INSERT, UPDATE and DELETE make to a table.

They are computed by the thread that runs the statement, with ``table.changing`` held, so that no
other statement changes the table; they are committed and applied by the dispatcher's thread. So a
statement sees all that was committed before it, and readers see a commit entirely or not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa

from millstream.errors import DuplicateKeyError, RowError, SchemaMismatchError, TenantError
from millstream.model.batch import ChangeBatch
from millstream.model.row_change import UNCHANGED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millstream.catalog.tenants import OwnRows
    from millstream.model.row_change import RowChange
    from millstream.model.schema import Schema
    from millstream.model.weighted_rows import Row
    from millstream.sql import Predicate, Projection
    from millstream.tables.table import Table
    from millstream.tables.table_rows import Key

Conflict = Literal["error", "replace", "ignore"]
_FEW: Final = 100


class Changes:
    """The weighted rows that a statement changes, and how many rows it matched."""

    __slots__ = ("count", "rows", "weights")

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.weights: list[int] = []
        self.count = 0

    def replace(self, old: Row | None, new: Row | None) -> None:
        """A row is replaced, or appears (no old one), or disappears (no new one)."""
        self.count += 1
        if old == new:
            return
        for row, weight in ((old, -1), (new, 1)):
            if row is not None:
                self.rows.append(row)
                self.weights.append(weight)

    def move(self, moved: Sequence[tuple[Row, Row]]) -> None:
        """Rows get other keys; all old ones are removed first: their keys may be used again."""
        self.count += len(moved)
        self.rows += [*(old for old, _ in moved), *(new for _, new in moved)]
        self.weights += [-1] * len(moved) + [1] * len(moved)

    def batch(self, schema: Schema) -> ChangeBatch | None:
        """The changes, to be committed; None when nothing changes."""
        if not self.rows:
            return None
        weights = None if min(self.weights) > 0 else pa.array(self.weights, pa.int64())
        return ChangeBatch(schema, self.rows, None, weights)


def insert(
    table: Table, rows: Iterable[Row], conflict: Conflict = "error", own: OwnRows | None = None
) -> Changes:
    """The changes that add rows.

    Args:
        table: the table.
        rows: the new rows, checked.
        conflict: what to do about a key that exists.
        own: the rows of the tenant that inserts; None: of everyone.

    Raises:
        DuplicateKeyError: a row with that key exists.
        TenantError: a row of another tenant would be replaced.
    """
    changes = Changes()
    new: dict[Key, Row] = {}
    given = [_widened(table, row) for row in rows]
    if len(given) > _FEW:
        table.rows.all()  # to look up many among saved rows takes longer than to wait for them
    for row in given:
        key = table.key_of(row)
        taken = key in new or key in table.rows
        if taken and conflict == "error":
            raise _duplicate(table, key)
        if not taken or conflict == "replace":
            new[key] = row
    for key, row in new.items():
        changes.replace(table.rows.get(key), row)
    if own is not None and len(own.places(changes.rows)) < len(changes.rows):
        raise TenantError("a row of another tenant has that key", hint="insert it with another key")
    return changes


def update(
    table: Table, predicate: Predicate | None, projection: Projection, own: OwnRows | None = None
) -> Changes:
    """The changes that replace rows.

    Args:
        table: the table.
        predicate: selects the rows; None: all.
        projection: makes the new row of an old one.
        own: the rows of the tenant that updates, others are not read; None: of everyone.

    Raises:
        DuplicateKeyError: two rows would have one key.
        RowError: a value that does not fit.
        TenantError: a new row would be another tenant's.
    """
    old = _selected(table, predicate, own)
    made = projection.rows(old)
    if own is not None:
        own.check(made)
    new = _checked(table, [_widened(table, row) for row in made])
    left = {table.key_of(row) for row in old}
    taken: set[Key] = set()
    moved: list[tuple[Row, Row]] = []
    changes = Changes()
    for before, after in zip(old, new, strict=True):
        key = table.key_of(after)
        if key in taken or (key in table.rows and key not in left):
            raise _duplicate(table, key)
        taken.add(key)
        if key == table.key_of(before):
            changes.replace(before, after)
        else:
            moved.append((before, after))
    changes.move(moved)
    return changes


def delete(table: Table, predicate: Predicate | None, own: OwnRows | None = None) -> Changes:
    """The changes that remove the rows that a predicate selects; arguments as in ``update``."""
    changes = Changes()
    for row in _selected(table, predicate, own):
        changes.replace(row, None)
    return changes


def update_row(table: Table, key: Key, values: Mapping[int, Any]) -> Changes:
    """The changes that give the row of a key other values, which fit, outside of its key."""
    changes = Changes()
    old = table.rows.get(key)
    if old is not None:
        changes.replace(old, tuple([values.get(place, held) for place, held in enumerate(old)]))
    return changes


def delete_row(table: Table, key: Key) -> Changes:
    """The changes that remove the row of a key."""
    changes = Changes()
    old = table.rows.get(key)
    if old is not None:
        changes.replace(old, None)
    return changes


def replay(table: Table, made: Sequence[RowChange]) -> Changes:
    """The changes that a transaction of another system makes: of each key, from before to after.

    Raises:
        RowError: a row that does not fit.
        SchemaMismatchError: a value was not sent, and there is no row that has it.
    """
    if len(made) > _FEW:
        table.rows.all()
    after: dict[Key, Row | None] = {}
    sent = [_widened(table, row) for _, row, _ in made if row is not None and UNCHANGED not in row]
    given = [key for _, _, key in made if key is not None]
    rows = iter(_checked(table, sent))
    keys = iter(table.key_schema.check_rows(given) if given else ())
    for op, row, old in made:
        key = None if old is None else next(keys)
        if op == "truncate":
            after = dict.fromkeys(table.rows.all())
            continue
        if row is not None:
            new = _filled(table, after, row, key) if UNCHANGED in row else next(rows)
        if key is not None:
            after[key] = None
        if row is not None:
            after[table.key_of(new)] = new
    changes = Changes()
    for key, new_row in after.items():
        changes.replace(table.rows.get(key), new_row)
    return changes


def _filled(table: Table, after: Mapping[Key, Row | None], row: Row, old_key: Key | None) -> Row:
    """A row with the values that were not sent, from the row before it."""
    key = table.key_of(row) if old_key is None else old_key
    before = after[key] if key in after else table.rows.get(key)
    if before is None:
        raise SchemaMismatchError(
            f"{table.name}: a value of the row with the key {key!r} was not sent, and there is no "
            "such row",
            hint="DROP the table and CREATE it again, for a new snapshot",
        )
    row = _widened(table, row)
    filled = [
        held if value is UNCHANGED else value for value, held in zip(row, before, strict=True)
    ]
    return _checked(table, [tuple(filled)])[0]


def _selected(table: Table, predicate: Predicate | None, own: OwnRows | None) -> list[Row]:
    rows = table.candidates(predicate)
    if own is not None:  # the predicate must not be evaluated on rows of other tenants
        rows = [rows[place] for place in own.places(rows)]
    return rows if predicate is None else [rows[place] for place in predicate.places(rows)]


def _checked(table: Table, rows: list[Row]) -> list[Row]:
    try:
        return table.schema.check_rows(rows)
    except RowError as error:
        raise RowError(
            f"{table.name}: {error.message}", row=error.row, column=error.column, hint=error.hint
        ) from error


def _widened(table: Table, row: Row) -> Row:
    """A row that was computed before the last ALTER, with NULL in the columns that it lacks."""
    missing = len(table.schema.columns) - len(row)
    return row + (None,) * missing if missing else row


def _duplicate(table: Table, key: Key) -> DuplicateKeyError:
    shown = ", ".join(f"{n} = {v!r}" for n, v in zip(table.schema.key, key, strict=True))
    return DuplicateKeyError(
        f"{table.name} has a row with {shown} already",
        key=key,
        table=table.name,
        columns=table.schema.key,
        hint="UPDATE it, or write INSERT OR REPLACE or INSERT OR IGNORE",
    )
