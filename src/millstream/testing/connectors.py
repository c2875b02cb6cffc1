"""A test harness for connectors: deliver, restart, fail around a commit, poison, kill.

A scenario defines how records are created in the other system, and which rows they become. Each
check is a function; ``check_source`` and ``check_sink`` run all of them, in a given directory.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from millstream.errors import ConnectorError
from millstream.testing.databases import database, engine_of, wait_until
from millstream.testing.kills import kill_sink, kill_source, number_of_kills
from millstream.testing.scenarios import (
    ITEMS,
    TABLE,
    SinkScenario,
    SourceScenario,
    difference,
    replayed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.database import Database

__all__ = [
    "ITEMS",
    "TABLE",
    "SinkScenario",
    "SourceScenario",
    "check_poison",
    "check_sink",
    "check_source",
    "expect_rows",
    "expect_stored",
    "fail_commits",
    "replayed",
]


def check_source(scenario: SourceScenario, path: Path, *, kills: int | None = None) -> None:
    """Run all checks of a source connector, in one directory, one after the other.

    Args:
        scenario: the connector, and the other system.
        path: the directory of the database.
        kills: how many times to kill a process; None: ``MILLSTREAM_KILLS``, or twice.

    Raises:
        AssertionError: a row is missing or duplicate.
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
    kill_source(
        scenario,
        path,
        150 if scenario.poison is None else 160,
        number_of_kills() if kills is None else kills,
    )


def expect_rows(db: Database, scenario: SourceScenario, count: int) -> None:
    """Wait until the rows of the first so many numbers are there, each once."""
    expected = list(scenario.rows(count))
    query = f'SELECT * FROM "{scenario.name}"'  # noqa: S608 - the author's own name

    def differs() -> str:
        return difference(db.query(query).fetchall(), expected)

    wait_until(
        lambda: not differs(),
        lambda: f"the rows of {count} records: {differs()}; {_state(db, scenario.name)}",
        timeout=scenario.timeout,
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


# ---- sinks


def check_sink(scenario: SinkScenario, path: Path, *, kills: int | None = None) -> None:
    """Run all checks of a sink connector, in one directory, one after the other.

    Args:
        scenario: the connector, and the other system.
        path: the directory of the database.
        kills: how many times to kill a process; None: ``MILLSTREAM_KILLS``, or twice.

    Raises:
        AssertionError: the stored rows differ from those of the table.
    """
    with database(scenario.input, "INSERT INTO items VALUES (1, 'a'), (2, 'b')", path=path) as db:
        db.execute(scenario.create)
        expect_stored(db, scenario)
        scenario.change(db.execute, 10)
        expect_stored(db, scenario)
        with _failing_ack(db, scenario.name) as failed:
            scenario.change(db.execute, 20)
            wait_until(lambda: bool(failed), "an acknowledgement", timeout=scenario.timeout)
        scenario.change(db.execute, 30)
        expect_stored(db, scenario)
        db.execute(f'ALTER SINK "{scenario.name}" PAUSE')
        scenario.change(db.execute, 40)
    with database(path=path) as db:
        db.execute(f'ALTER SINK "{scenario.name}" RESUME')
        expect_stored(db, scenario)
    kill_sink(scenario, path, 100, number_of_kills() if kills is None else kills)


def expect_stored(db: Database, scenario: SinkScenario) -> None:
    """Wait until what is outside is what the table has."""

    def differs() -> str:
        return scenario.differs(db.query("SELECT id, v FROM items").fetchall())

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
