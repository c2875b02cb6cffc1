"""Causes: the rows of sources and tables that led to a change of a view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import (
    InvalidOptionError,
    LsnNotKeptError,
    ObjectNotFoundError,
    WrongObjectError,
)
from millstream.model.change import Change
from millstream.sql.inputs import CLOCK
from millstream.subscriptions import ChangeEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.engine.context import Context
    from millstream.engine.engine import Engine
    from millstream.model.batch import ChangeBatch
    from millstream.views.running import RunningView

_STEPS: Final = (1 << 10, 1 << 16, 1 << 62)
"""How far back, in LSNs, the commit before one is looked for: first a little, then all the way."""


def rows(context: Context, change: Change | ChangeEvent | int) -> dict[str, list[Change]]:
    """By source or table, what led to a change."""
    context.check("see causes")
    lsn = change if type(change) is int else getattr(change, "lsn", None)
    if not isinstance(change, Change | ChangeEvent | int) or type(lsn) is not int or lsn < 1:
        raise InvalidOptionError(
            f"expected a change with an LSN, got {change!r}",
            hint="a change of a subscription or of the change bus, or its LSN",
        )
    engine = context.engine
    batch = _commit_at(engine, lsn)
    if batch.topic in engine.views and isinstance(change, Change | ChangeEvent):
        _check_is_change(change, batch.topic)
    led = _Ranges(engine)
    led.add_commit(batch)
    return {name: led.changes_of(name) for name in sorted(led.found)}


def _check_is_change(change: Change | ChangeEvent, view: str) -> None:
    if not change.cause:
        raise WrongObjectError(
            f"this is a row of a snapshot of {view}, not a change: many may have led to it",
            hint="subscribe with start='earliest' for the changes themselves",
        )


def _commit_at(engine: Engine, lsn: int) -> ChangeBatch:
    """What was committed at an LSN, to whichever log."""
    names = {*(each.name for each in engine.catalog), *(each.view.name for each in engine.views)}
    if lsn > engine.dispatcher.lsn:
        raise ObjectNotFoundError(
            f"there is no LSN {lsn:,} yet", hint=f"the newest is {engine.dispatcher.lsn:,}"
        )
    for batch in engine.relations.logged(tuple(sorted(names)), lsn, start=lsn):
        return batch
    raise LsnNotKeptError(
        f"the change at LSN {lsn:,} is not kept",
        oldest=lsn + 1,
        hint="the retention of its log, or DROP, has removed it",
    )


class _Ranges:
    """The LSNs of sources and tables that led to some commits of views.

    Attributes:
        found: by name, the first and the last LSN, without gaps.
    """

    def __init__(self, engine: Engine) -> None:
        self.found: dict[str, tuple[int, int]] = {}
        self._engine = engine

    def add_commit(self, batch: ChangeBatch) -> None:
        """Add what led to a commit of a view; of a source or table, the commit itself."""
        name, views = batch.topic, self._engine.views
        if name not in views:
            self._add(name, batch.lsn, batch.lsn)
            return
        running = views[name]
        since = self._since(running, batch)
        for each in running.planned.inputs:
            if each == CLOCK:  # it has no rows that somebody wrote
                continue
            if each in views:
                self._check_kept(each, since + 1, batch.cause)
                for commit in self._logged(each, since + 1, batch.cause):
                    self.add_commit(commit)
            else:
                self._add(each, since + 1, batch.cause)

    def _add(self, name: str, first: int, last: int) -> None:
        known = self.found.get(name, (first, last))
        self.found[name] = min(first, known[0]), max(last, known[1])

    def _since(self, running: RunningView, batch: ChangeBatch) -> int:
        """After which LSN the inputs of a view count in a commit of it, and not in those before."""
        for first, last, since in reversed(running.view.recent.copy()):
            if first <= batch.first_lsn <= last:
                return since
        for step in _STEPS:
            start = max(1, batch.first_lsn - step)
            causes = [
                each.cause
                for each in self._logged(running.view.name, start, batch.first_lsn - 1)
                if each.cause < batch.cause
            ]
            if causes:
                return causes[-1]
        self._check_kept(running.view.name, 1, batch.first_lsn)
        return max(0, running.planned.definition.begins - 1)

    def _logged(self, name: str, first: int, last: int) -> Iterator[ChangeBatch]:
        """What a log has from an LSN up to another one."""
        return self._engine.relations.logged((name,), last, start=first)

    def changes_of(self, name: str) -> list[Change]:
        """The changes of a source or table that were found.

        Raises:
            LsnNotKeptError: retention has removed some of them.
        """
        first, last = self.found[name]
        self._check_kept(name, first, last)
        return [
            change
            for batch in self._logged(name, max(1, first - 1), last)  # an update is two rows
            for change in batch
            if change.lsn >= first
        ]

    def _check_kept(self, name: str, first: int, last: int) -> None:
        """Raise if retention has removed some of what a log had from an LSN up to another one."""
        log = self._engine.log
        topic = log.topic(name)
        lost = log.lost(topic, first)
        if lost is not None and lost.first_lsn <= last:
            raise LsnNotKeptError(
                f"rows of {name} that led to the change, up to LSN {last:,}, are not kept",
                oldest=topic.low_lsn,
                hint=f"a longer retention of {name} keeps them",
            )
