"""Scenarios for connectors: the system outside, and the rows that must be here or there."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.testing.databases import TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

Row = tuple[Any, ...]

TABLE = "CREATE TABLE IF NOT EXISTS items (id BIGINT PRIMARY KEY, v VARCHAR)"
"""What a sink of a scenario reads, unless it says otherwise."""
ITEMS = "CREATE SOURCE IF NOT EXISTS items (id BIGINT, v VARCHAR)"
"""What a sink reads that takes new rows only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceScenario:
    """A source or a table that a connector feeds, and the system outside.

    Attributes:
        create: the statement that makes it.
        name: its name.
        produce: makes the records of some numbers outside; each number once in all, counted up.
        row: the row that the record of a number becomes.
        poison: makes one record outside that cannot be taken; None: there is none such.
        expected: the rows that there are after the first so many numbers, of a table whose rows
            also change and go; None: those of ``row``.
        restart: restarts the server outside; records that were made are still there. None: there is
            no server.
        imports: modules that a process must import to know the connector.
        timeout: how long rows may take, in seconds, before they are taken for lost.
    """

    create: str
    name: str
    produce: Callable[[range], None]
    row: Callable[[int], Row]
    poison: Callable[[], None] | None = None
    expected: Callable[[int], Iterable[Row]] | None = None
    restart: Callable[[], None] | None = None
    imports: tuple[str, ...] = ()
    timeout: float = TIMEOUT

    def rows(self, count: int) -> Iterable[Row]:
        """The rows that there are after the first so many numbers."""
        if self.expected is not None:
            return self.expected(count)
        return map(self.row, range(count))


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkScenario:
    """A sink FROM ``items``, which has the columns ``id`` and ``v``, and what it has stored.

    Attributes:
        create: the statement that makes it.
        name: its name.
        stored: reads what is outside: rows as ``(id, v)``, in any order.
        appends: it only appends: rows of the table are not changed, ``stored`` may repeat rows
            unless ``exactly_once``.
        exactly_once: whether it stores each row once, whatever is killed.
        input: the statement that makes ``items``: a table, or a source for a sink that needs one.
        restart: restarts the server outside; what was stored is still there. None: there is none.
        imports: modules that a process must import to know the connector.
        timeout: how long rows may take, in seconds, before they are taken for lost.
    """

    create: str
    name: str
    stored: Callable[[], list[Row]]
    appends: bool = False
    exactly_once: bool = True
    input: str = TABLE
    restart: Callable[[], None] | None = None
    imports: tuple[str, ...] = ()
    timeout: float = TIMEOUT

    def change(self, execute: Callable[[str], object], first: int, rows: int = 5) -> None:
        """Add rows from a number on; and change and delete some, if the sink can show it."""
        values = ", ".join(f"({n}, 'v{n}')" for n in range(first, first + rows))
        execute(f"INSERT INTO items VALUES {values}")  # noqa: S608
        if not self.appends:
            execute(f"UPDATE items SET v = 'changed' WHERE id = {first + 1}")  # noqa: S608
            execute(f"DELETE FROM items WHERE id = {first + 2}")  # noqa: S608

    def differs(self, items: Iterable[Row]) -> str:
        """How what is stored outside differs from the rows here; empty: it does not."""
        found = self.stored()
        return difference(found if self.exactly_once else set(found), items)


def replayed(changes: pa.Table) -> list[Row]:
    """What a changelog with ``_weight`` adds up to, of the columns ``id`` and ``v``.

    Raises:
        AssertionError: a row goes that is not there.
    """
    rows = Counter[Row]()
    columns = [changes[name].to_pylist() for name in ("id", "v", "_weight")]
    for *row, weight in zip(*columns, strict=True):
        rows[tuple(row)] += weight
    if min(rows.values(), default=0) < 0:
        raise AssertionError(f"rows go that are not there: {[r for r, n in rows.items() if n < 0]}")
    return list(rows.elements())


def difference(found: Iterable[Row], expected: Iterable[Row]) -> str:
    """Which rows are missing, and which are too many; empty: they are the same.

    >>> difference([(1,), (2,), (2,)], [(2,), (3,)])
    'missing: [(3,)]; too many: [(1,), (2,)]'
    """
    there, wanted = Counter(found), Counter(expected)
    if there == wanted:
        return ""
    missing, extra = list((wanted - there).elements()), list((there - wanted).elements())
    return f"missing: {missing[:5]}; too many: {extra[:5]}"
