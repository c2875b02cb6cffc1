"""A harness for authors of connectors: deliver, restart, fail in the middle, poison, kill.

Say in a scenario how records are made outside and which rows they become, and run the checks. Each
is a function; ``check_source`` and ``check_sink`` run them all, on a directory that they are given.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.errors import ConnectorError
from millstream.testing.child import Child
from millstream.testing.databases import TIMEOUT, database, engine_of, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from millstream.database import Database

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceScenario:
    """A source or a table that a connector feeds, and the system outside.

    Attributes:
        create: the statement that makes it.
        name: its name.
        produce: makes the records of some numbers outside; each number once in all, counted up.
        row: the row that the record of a number becomes.
        poison: makes one record outside that cannot be taken; None: there is none such.
        imports: modules that a process must import to know the connector.
        timeout: how long rows may take, in seconds, before they are taken for lost.
    """

    create: str
    name: str
    produce: Callable[[range], None]
    row: Callable[[int], Row]
    poison: Callable[[], None] | None = None
    imports: tuple[str, ...] = ()
    timeout: float = TIMEOUT


def check_source(scenario: SourceScenario, path: Path, *, kills: int = 3) -> None:
    """Run all checks of a source connector, in one directory, one after the other.

    Raises:
        AssertionError: a row is missing, or there twice.
    """
    with database(scenario.create, path=path) as db:
        scenario.produce(range(100))
        expect_rows(db, scenario, 100)
        fail_commits(db, scenario, range(100, 120))
    scenario.produce(range(120, 150))  # while nobody reads
    with database(path=path) as db:
        expect_rows(db, scenario, 150)
        if scenario.poison is not None:
            check_poison(db, scenario, range(150, 160))
    made = 150 if scenario.poison is None else 160
    check_kills(scenario, path, made, kills)


def expect_rows(db: Database, scenario: SourceScenario, count: int) -> None:
    """Wait until the rows of the first so many numbers are there, each once."""
    expected = Counter(scenario.row(number) for number in range(count))
    query = f'SELECT * FROM "{scenario.name}"'  # noqa: S608 - the author's own name

    def found() -> Counter[Row]:
        return Counter(db.query(query).fetchall())

    wait_until(
        lambda: found().total() >= count,
        lambda: f"{found().total()} of {count} rows: {_state(db, scenario.name)}",
        timeout=scenario.timeout,
    )
    _equal(found(), expected)


def _equal(found: Counter[Row], expected: Counter[Row]) -> None:
    if found != expected:
        missing, extra = expected - found, found - expected
        raise AssertionError(
            f"missing: {list(missing.elements())[:5]}; too many: {list(extra.elements())[:5]}"
        )


def _state(db: Database, name: str) -> str:
    shown = {each["name"]: each for each in db.query("SHOW CONNECTORS").to_pylist()}
    each = shown.get(name, {})
    return f"{each.get('state')}, {each.get('error')}"


def fail_commits(db: Database, scenario: SourceScenario, numbers: range) -> None:
    """Fail just before a commit, and just after one: the reader is opened again, nothing is lost.

    Args:
        db: the database.
        scenario: what feeds it.
        numbers: records to make meanwhile; those before them are there.
    """
    middle = numbers[len(numbers) // 2]
    for before, part in ((True, range(numbers[0], middle)), (False, range(middle, numbers.stop))):
        with _failing_once(db, scenario.name, before=before) as failed:
            scenario.produce(part)
            wait_until(lambda: bool(failed), "a commit", timeout=scenario.timeout)
        expect_rows(db, scenario, part.stop)


@contextlib.contextmanager
def _failing_once(db: Database, name: str, *, before: bool) -> Iterator[list[int]]:
    """Let the next commit of a connector fail, before it is made or after it."""
    log: Any = engine_of(db).connections[name].work._log  # type: ignore[union-attr] # noqa: SLF001
    failed: list[int] = []
    real = log.commit

    def commit(delivery: object, check: object) -> object:
        if not failed:
            failed.append(1)
            if not before:
                real(delivery, check)
            raise ConnectorError("a failure that a test makes")
        return real(delivery, check)

    log.commit = commit
    try:
        yield failed
    finally:
        log.commit = real


def check_poison(db: Database, scenario: SourceScenario, numbers: range) -> None:
    """A record that cannot be taken is among the dead letters, and costs no other record."""
    if scenario.poison is None:
        raise ValueError("the scenario has no poison")
    half = numbers[len(numbers) // 2]
    letters = f'SELECT COUNT(*) FROM "{scenario.name}_dead_letters"'  # noqa: S608
    before = db.query(letters).fetchall()[0][0]
    scenario.produce(range(numbers[0], half))
    scenario.poison()
    scenario.produce(range(half, numbers.stop))
    expect_rows(db, scenario, numbers.stop)
    wait_until(
        lambda: db.query(letters).fetchall()[0][0] == before + 1,
        "one dead letter",
        timeout=scenario.timeout,
    )


def check_kills(scenario: SourceScenario, path: Path, made: int, kills: int) -> None:
    """Kill a process that reads, again and again: nothing is lost, nothing comes twice."""
    for _ in range(kills):
        child = Child(path, scenario.imports)
        scenario.produce(range(made, made + 50))
        count = f'SELECT COUNT(*) FROM "{scenario.name}"'  # noqa: S608
        some = made + 10
        wait_until(
            lambda: child.execute(count)[0][0] >= some,  # noqa: B023
            f"{some} rows",
            timeout=scenario.timeout,
        )
        child.kill()
        made += 50
    with database(path=path) as db:
        expect_rows(db, scenario, made)


# ---- sinks


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkScenario:
    """A sink FROM the table ``items (id BIGINT PRIMARY KEY, v VARCHAR)``, and what it has stored.

    Attributes:
        create: the statement that makes it.
        name: its name.
        stored: reads what is outside: rows as ``(id, v)``, in any order.
        appends: it only appends: rows of the table are not changed, ``stored`` may repeat rows
            unless ``exactly_once``.
        exactly_once: whether it stores each row once, whatever is killed.
        imports: modules that a process must import to know the connector.
        timeout: how long rows may take, in seconds, before they are taken for lost.
    """

    create: str
    name: str
    stored: Callable[[], list[Row]]
    appends: bool = False
    exactly_once: bool = True
    imports: tuple[str, ...] = ()
    timeout: float = TIMEOUT


TABLE = "CREATE TABLE IF NOT EXISTS items (id BIGINT PRIMARY KEY, v VARCHAR)"
"""What a sink of a scenario reads."""


def check_sink(scenario: SinkScenario, path: Path, *, kills: int = 3) -> None:
    """Run all checks of a sink connector, in one directory, one after the other.

    Raises:
        AssertionError: what is outside is not what the table has.
    """
    with database(TABLE, "INSERT INTO items VALUES (1, 'a'), (2, 'b')", path=path) as db:
        db.execute(scenario.create)
        expect_stored(db, scenario)
        _change(db.execute, scenario, 10)
        expect_stored(db, scenario)
        with _failing_ack(db, scenario.name) as failed:
            _change(db.execute, scenario, 20)
            wait_until(lambda: bool(failed), "an acknowledgement", timeout=scenario.timeout)
        _change(db.execute, scenario, 30)
        expect_stored(db, scenario)
        db.execute(f'ALTER SINK "{scenario.name}" PAUSE')
        _change(db.execute, scenario, 40)
    with database(path=path) as db:
        db.execute(f'ALTER SINK "{scenario.name}" RESUME')
        expect_stored(db, scenario)
    for kill in range(kills):
        child = Child(path, scenario.imports)
        for step in range(5):
            _change(child.execute, scenario, 100 * (kill + 1) + 10 * step)
        child.kill()
    with database(path=path) as db:
        expect_stored(db, scenario)


def _change(execute: Callable[[str], object], scenario: SinkScenario, first: int) -> None:
    """Add rows from a number on; and change and delete some, if the sink can show it."""
    rows = ", ".join(f"({first + n}, 'v{first + n}')" for n in range(5))
    execute(f"INSERT INTO items VALUES {rows}")  # noqa: S608
    if not scenario.appends:
        execute(f"UPDATE items SET v = 'changed' WHERE id = {first + 1}")  # noqa: S608
        execute(f"DELETE FROM items WHERE id = {first + 2}")  # noqa: S608


def expect_stored(db: Database, scenario: SinkScenario) -> None:
    """Wait until what is outside is what the table has."""

    def differs() -> str:
        expected = Counter(db.query("SELECT * FROM items").fetchall())
        found = Counter(scenario.stored())
        if not scenario.exactly_once:
            found = Counter(dict.fromkeys(found, 1))
        missing, extra = expected - found, found - expected
        if not missing and not extra:
            return ""
        return f"missing: {list(missing.elements())[:5]}; too many: {list(extra.elements())[:5]}"

    wait_until(
        lambda: not differs(),
        lambda: f"what is stored is the table: {differs()}; {_state(db, scenario.name)}",
        timeout=scenario.timeout,
    )


@contextlib.contextmanager
def _failing_ack(db: Database, name: str) -> Iterator[list[int]]:
    """Let the next acknowledgement fail: what was written is given to the sink again."""
    work: Any = engine_of(db).connections[name].work
    failed: list[int] = []
    real = work._stored  # noqa: SLF001

    def stored(feed: object, writer: object, is_stored: object) -> object:
        if is_stored and work._held is not None and not failed:  # noqa: SLF001
            failed.append(1)
            raise ConnectorError("a failure that a test makes")
        return real(feed, writer, is_stored)

    work._stored = stored  # noqa: SLF001
    try:
        yield failed
    finally:
        work._stored = real  # noqa: SLF001
