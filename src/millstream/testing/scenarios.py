"""Scenarios for connectors: another system, and the rows that it and the database must have."""

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
    """A source or a table that a connector writes to, and the system that it reads.

    Attributes:
        create: the statement that creates the source or table.
        name: its name.
        produce: creates the records of a range of numbers in the other system. Each number is
            used once, in ascending order.
        row: returns the row that the record of a number becomes.
        poison: creates a record that cannot be stored; None: there is no such record.
        expected: returns the rows after the first ``count`` numbers, for a table whose rows also
            change and disappear; None: the rows of ``row``.
        restart: restarts the other server, which keeps its records; None: there is no server.
        imports: modules that a process must import to know the connector.
        timeout: seconds after which missing rows count as lost.
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
        """Return the expected rows after the first ``count`` numbers."""
        if self.expected is not None:
            return self.expected(count)
        return map(self.row, range(count))


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkScenario:
    """A sink FROM ``items``, which has the columns ``id`` and ``v``, and the rows it has stored.

    Attributes:
        create: the statement that creates the sink.
        name: its name.
        stored: reads the rows in the other system, as ``(id, v)``, in any order.
        appends: whether the sink only appends. Then the test changes no rows, and ``stored`` may
            repeat rows unless ``exactly_once``.
        exactly_once: whether the sink stores each row once, whatever is killed.
        input: the statement that creates ``items``: a table, or a source if the sink needs one.
        restart: restarts the other server, which keeps its rows; None: there is no server.
        imports: modules that a process must import to know the connector.
        timeout: seconds after which missing rows count as lost.
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
        """Add rows from a number on; update and delete some, unless the sink only appends."""
        values = ", ".join(f"({n}, 'v{n}')" for n in range(first, first + rows))
        execute(f"INSERT INTO items VALUES {values}")  # noqa: S608
        if not self.appends:
            execute(f"UPDATE items SET v = 'changed' WHERE id = {first + 1}")  # noqa: S608
            execute(f"DELETE FROM items WHERE id = {first + 2}")  # noqa: S608

    def differs(self, items: Iterable[Row]) -> str:
        """Describe how the stored rows differ from the rows of ``items``; empty: they do not."""
        found = self.stored()
        return difference(found if self.exactly_once else set(found), items)


def replayed(changes: pa.Table) -> list[Row]:
    """Return the rows that a changelog with ``_weight`` adds up to, as ``(id, v)``.

    Raises:
        AssertionError: the changelog deletes a row that does not exist.
    """
    rows = Counter[Row]()
    columns = [changes[name].to_pylist() for name in ("id", "v", "_weight")]
    for *row, weight in zip(*columns, strict=True):
        rows[tuple(row)] += weight
    if min(rows.values(), default=0) < 0:
        raise AssertionError(f"rows go that are not there: {[r for r, n in rows.items() if n < 0]}")
    return list(rows.elements())


def difference(found: Iterable[Row], expected: Iterable[Row]) -> str:
    """Describe which rows are missing, and which are too many; empty: they are equal.

    >>> difference([(1,), (2,), (2,)], [(2,), (3,)])
    'missing: [(3,)]; too many: [(1,), (2,)]'
    """
    there, wanted = Counter(found), Counter(expected)
    if there == wanted:
        return ""
    missing, extra = list((wanted - there).elements()), list((there - wanted).elements())
    return f"missing: {missing[:5]}; too many: {extra[:5]}"
