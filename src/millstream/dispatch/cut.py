"""A cut: what every inlet holds at one moment, drained, and merged or parted into handy batches.

``list(map(len, ...))`` is a single step of the interpreter, so a cut never has a push without those
that came before it, even when one thread pushes to several sources. What a cut holds becomes one
commit, except for a bulk load, which becomes several.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.model.batch import ChangeBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.errors import Error, LogError
    from millstream.sources.inlet import Inlet
    from millstream.threads import Completion

_MERGED_ROWS: Final = 1 << 14
"""Small batches are merged up to this many rows: one commit, one filter, one delivery for all."""

_COMMIT_ROWS: Final = 1 << 17
"""A bulk load is committed in pieces of about this many rows."""

_ITEMS: Final = attrgetter("items")
_DROPS: Final = attrgetter("drops")


class DrainedInlets:
    """The inlets that a dispatcher drains, in the order of a commit.

    Args:
        tasks: the buffer of tasks, which is cut together with those of the inlets.

    Attributes:
        every: all inlets.
        current: for the next cut: the inlets to drain, the buffers to measure (tasks first), and
            whether producers may remove items from one. One assignment, so that they always match.
        stalled: why the log takes nothing, or None. Then only inlets whose producers wait for the
            disk are drained: their rows are refused, all others stay where they are.
    """

    def __init__(self, tasks: list[Any]) -> None:
        self._tasks = tasks
        self._lock = threading.Lock()
        self.stalled: LogError | None = None
        self.every: tuple[Inlet, ...] = ()
        self.current: tuple[tuple[Inlet, ...], tuple[list[Any], ...], bool]
        self._set(())

    def add(self, inlet: Inlet) -> None:
        """Drain one more."""
        with self._lock:
            # Those of the database's own come last in a commit: a NOTIFY after what was pushed.
            place = bisect_right(self.every, _is_own(inlet), key=_is_own)
            self._set((*self.every[:place], inlet, *self.every[place:]))
        inlet.stall(self.stalled)

    def remove(self, inlet: Inlet) -> None:
        """Drain one no more. Called by the dispatcher's thread."""
        with self._lock:
            self._set(tuple(each for each in self.every if each is not inlet))

    def stall(self, error: LogError | None) -> None:
        """The log takes nothing, for this reason; None: it takes rows again."""
        was, self.stalled = self.stalled, error
        if (was is None) != (error is None):
            with self._lock:
                self._set(self.every)
        for inlet in self.every:
            inlet.stall(error)

    def close(self, error: Error, *, abandon: bool = True) -> None:
        """Refuse pushes; with ``abandon``, also those that wait to be committed."""
        for inlet in self.every:
            inlet.close(error)
            if abandon:
                inlet.abandon()

    def discard(self) -> int:
        """Drain everything for nothing; returns how many rows that were."""
        drained = [inlet.drain(len(inlet.items))[0] for inlet in self.every]
        return sum(len(batch) for batches in drained for batch in batches)

    def _set(self, inlets: tuple[Inlet, ...]) -> None:
        self.every = inlets
        if self.stalled is not None:
            inlets = tuple(each for each in inlets if each.sync)
        buffers: tuple[list[Any], ...] = (self._tasks, *map(_ITEMS, inlets))
        self.current = (inlets, buffers, any(map(_DROPS, inlets)))


def _is_own(inlet: Inlet) -> bool:
    """Whether an inlet is the database's own."""
    return inlet.name.startswith("__")


def exact_cut(
    inlets: tuple[Inlet, ...], buffers: tuple[list[Any], ...]
) -> tuple[list[int], list[int]]:
    """How many items each buffer holds at one moment, and how many were removed by then."""
    while True:
        removed = [inlet.removed for inlet in inlets]
        sizes = list(map(len, buffers))
        if removed == [inlet.removed for inlet in inlets]:
            return sizes, removed


def drained(
    inlet: Inlet, size: int, removed: int, completions: list[Completion]
) -> list[tuple[str, ChangeBatch]]:
    """The items of an inlet that a cut holds, as batches; adds to ``completions`` what waits."""
    found, waiting = inlet.drain(size, removed)
    completions += waiting
    batches = []
    for batch in found if len(found) == 1 else merged(found):
        if inlet.event_time.has_column or batch.watermark is not None:
            inlet.event_time.observe(batch)
        if len(batch) or batch.watermark is not None:
            batches.append((inlet.name, batch))
    return batches


def commits(batches: list[tuple[str, ChangeBatch]]) -> Iterator[list[tuple[str, ChangeBatch]]]:
    """The commits of a cut: one for all of it, or, of one source alone, one for some rows each.

    While one commit is written, the next one is filtered.
    """
    if batches[0][0] != batches[-1][0]:
        yield batches
        return
    commit: list[tuple[str, ChangeBatch]] = []
    rows = 0
    for each in batches:
        commit.append(each)
        rows += len(each[1])
        if rows >= _COMMIT_ROWS:
            yield commit
            commit, rows = [], 0
    yield commit


def merged(batches: list[ChangeBatch]) -> list[ChangeBatch]:
    """Merge small neighbours that are insert-only, in one form, with no watermark between them."""
    if len(batches) < 2:
        return batches
    done: list[ChangeBatch] = []
    run: list[ChangeBatch] = []
    rows = 0
    for batch in batches:
        rows += len(batch)
        if run and not (rows <= _MERGED_ROWS and _may_merge(run[-1], batch)):
            done.append(_merge(run))
            run, rows = [], len(batch)
        run.append(batch)
    done.append(_merge(run))
    return done


def _may_merge(one: ChangeBatch, other: ChangeBatch) -> bool:
    return (
        one.is_arrow == other.is_arrow
        and one.watermark is None
        and other.watermark is None
        and one.schema is other.schema
        and one.is_insert_only
        and other.is_insert_only
    )


def _merge(run: list[ChangeBatch]) -> ChangeBatch:
    if len(run) == 1:
        return run[0]
    schema = run[0].schema
    if run[0].is_arrow:
        return ChangeBatch(schema, None, pa.concat_batches([b.arrow for b in run]), None)
    return ChangeBatch(schema, [row for batch in run for row in batch.held_rows], None, None)
