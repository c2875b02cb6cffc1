"""Kills at random moments under load: nothing is lost, nothing comes twice, after each of them.

The process that is killed is a ``Child``. The one after it opens the same directory, and is asked
for the rows: what must be there is known from outside.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from millstream.testing.child import Child, ChildEndedError
from millstream.testing.databases import Background, wait_until
from millstream.testing.scenarios import difference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from millstream.testing.scenarios import Row, SinkScenario, SourceScenario

_MOST_SECONDS: Final = 0.5
"""A kill comes so long after the process is open, or after it has worked, at most."""
_RESTART_EVERY: Final = 10
"""The server outside is restarted before the first kill, and again after so many."""
_PIECE: Final = 10
_MOST_PIECES: Final = 300
"""What is made until a kill, by a writer that is quicker than any reader."""


def number_of_kills() -> int:
    """How many kills a check makes that is not told: ``MILLSTREAM_KILLS``, or two."""
    return int(os.environ.get("MILLSTREAM_KILLS", "2"))


def kill_source(scenario: SourceScenario, path: Path, made: int, kills: int) -> None:
    """Kill a process that reads, while records are made; compare after each kill.

    Args:
        scenario: what it reads.
        path: the directory of its database, which has the source.
        made: so many records were made before.
        kills: how many times.
    """
    if not kills:
        return
    select = f'SELECT * FROM "{scenario.name}"'  # noqa: S608 - the author's own name
    child = Child(path, scenario.imports)
    try:
        for kill in range(kills):
            if scenario.restart is not None and kill % _RESTART_EVERY == 0:
                made = _Load(scenario, made, scenario.restart).end()
                _expect_rows(child, scenario, select, made)
            before = child.execute(select)
            load = _Load(scenario, made)
            if kill % 2:  # while it reads; every other one may come before that
                _expect_others(child, scenario, select, before)
            time.sleep(_moment())
            child.kill()
            made = load.end()
            child = Child(path, scenario.imports)
            _expect_rows(child, scenario, select, made)
    finally:
        child.close()


class _Load:
    """Makes records outside, in a thread of its own, until it is ended.

    Args:
        scenario: how records are made.
        made: so many were made before.
        restart: what restarts the server: in the middle, and then it ends by itself.
    """

    def __init__(
        self, scenario: SourceScenario, made: int, restart: Callable[[], None] | None = None
    ) -> None:
        self._scenario = scenario
        self._restart = restart
        self._ending = threading.Event()
        self._work = Background(self._make, made)

    def _make(self, made: int) -> int:
        for piece in range(_MOST_PIECES if self._restart is None else 2 * _PIECE):
            if self._ending.is_set():
                break
            if self._restart is not None and piece == _PIECE:
                self._restart()
            self._scenario.produce(range(made, made + _PIECE))
            made += _PIECE
        return made

    def end(self) -> int:
        """Let it end; returns how many records were made in all."""
        if self._restart is None:
            self._ending.set()
        return self._work.result()


def kill_sink(scenario: SinkScenario, path: Path, first: int, kills: int) -> None:
    """Kill a process that changes rows and writes them outside; compare after each kill.

    Args:
        scenario: what it writes.
        path: the directory of its database, which has ``items`` and the sink.
        first: no id from here on was used.
        kills: how many times.
    """
    if not kills:
        return
    child = Child(path, scenario.imports)
    numbers = itertools.count(first, _PIECE)

    def change() -> None:
        scenario.change(child.execute, next(numbers), rows=_PIECE)

    try:
        for kill in range(kills):
            if scenario.restart is not None and kill % _RESTART_EVERY == 0:
                change()
                scenario.restart()
                change()
                _expect_stored(child, scenario)
            if kill % 2:  # while it writes; every other one may come before that
                before = scenario.stored()
                change()
                _expect_more(child, scenario, before)
            killer = threading.Timer(_moment(), child.send_kill)
            killer.start()
            with suppress(ChildEndedError):
                while True:
                    change()
            killer.join()
            child.kill()
            child = Child(path, scenario.imports)
            _expect_stored(child, scenario)
    finally:
        child.close()


def _moment() -> float:
    return random.uniform(0, _MOST_SECONDS)  # noqa: S311 - not a secret


def _expect_others(child: Child, scenario: SourceScenario, select: str, before: object) -> None:
    """Wait until the rows are not what they were."""
    wait_until(
        lambda: child.execute(select) != before,
        lambda: f"new rows: {_state(child)}",
        timeout=scenario.timeout,
    )


def _expect_rows(child: Child, scenario: SourceScenario, select: str, made: int) -> None:
    """Wait until the rows in a process are those of so many records."""
    expected = _texts(scenario.rows(made))

    def differs() -> str:
        return difference(_texts(child.execute(select)), expected)

    wait_until(
        lambda: not differs(),
        lambda: f"the rows of {made} records: {differs()}; {_state(child)}",
        timeout=scenario.timeout,
    )


def _expect_more(child: Child, scenario: SinkScenario, before: list[Row]) -> None:
    """Wait until what is outside is not what it was."""
    wait_until(
        lambda: scenario.stored() != before,
        lambda: f"a row is stored: {_state(child)}",
        timeout=scenario.timeout,
    )


def _expect_stored(child: Child, scenario: SinkScenario) -> None:
    """Wait until what is outside is what the process has."""

    def differs() -> str:
        return scenario.differs([tuple(row) for row in child.execute("SELECT id, v FROM items")])

    wait_until(
        lambda: not differs(),
        lambda: f"what is stored is what is here: {differs()}; {_state(child)}",
        timeout=scenario.timeout,
    )


def _texts(rows: Iterable[Row | list[Any]]) -> list[Row]:
    """Rows as a process answers with them: what JSON has not is text."""
    return [(json.dumps(row, default=str),) for row in rows]


def _state(child: Child) -> str:
    return str(child.execute("SHOW CONNECTORS"))
