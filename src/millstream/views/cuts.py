"""Cuts: an LSN at which several views are all exact, so that they can be read together.

A view stops where its flushes end, which differs from view to view. A cut is first looked for where
the views are anyway: at the LSN that the newest change counts up to. If some view has passed that
in one step, they are all asked to stop at the newest LSN of the log, which none of them has passed.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from millstream.errors import WrongObjectError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.dispatch import Dispatcher
    from millstream.views.running import RunningView
    from millstream.views.views import Views


@dataclass(slots=True)
class CutPoint:
    """An LSN of sources and tables, and what it is for each view.

    Attributes:
        lsn: everything up to this LSN counts, and nothing after it.
        causes: by view, the cause of its last commit that counts, at most; of a view over a view
            that is an LSN of the other's log.
        pending: the views that have not got there yet.
    """

    lsn: int
    causes: dict[str, int] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)


class ViewCuts:
    """Looks for cuts of some views, one after the other.

    Args:
        views: those that run.
        names: the views that are read together.
        dispatcher: knows the newest LSN.

    Attributes:
        found: the cut that was found and not taken yet, or None.
        is_searching: whether one is looked for.
        on_found: called when one was found; by any thread, so it must not wait.
    """

    def __init__(self, views: Views, names: Iterable[str], dispatcher: Dispatcher) -> None:
        self.found: CutPoint | None = None
        self.is_searching = False
        self.on_found: Callable[[], None] = lambda: None
        self._dispatcher = dispatcher
        self._views: dict[str, RunningView] = {}
        self._over: dict[str, list[str]] = {}  # by view, those that read it
        self._first: list[str] = []  # those that read no other view
        self._point: CutPoint | None = None
        self._lock = threading.Lock()
        for name in names:
            self._add(views, name)

    def _add(self, views: Views, name: str) -> None:
        if name in self._views:
            return
        running = self._views[name] = views[name]
        inputs = running.planned.inputs
        lower = [each for each in inputs if each in views]
        if not lower:
            self._first.append(name)
            return
        if len(inputs) > 1:
            raise WrongObjectError(
                f"{name} reads the view {lower[0]} and others, so it is not of one LSN of them",
                hint=f"subscribe to {name} alone, or to what it reads",
            )
        self._over.setdefault(lower[0], []).append(name)
        self._add(views, lower[0])

    def search(self, lsn: int | None) -> None:
        """Look for a cut.

        Args:
            lsn: where to look first, an LSN of sources and tables; None: at the newest.
        """
        self.is_searching = True
        views = self._views.values()
        if lsn is not None and not self._over and all(each.may_stop_at(lsn) for each in views):
            self._stop_at(lsn)
        else:
            self._dispatcher.soon(self._stop)

    def take(self) -> CutPoint | None:
        """The cut that was found; another one can be searched for."""
        found, self.found = self.found, None
        return found

    def _stop(self) -> None:
        """Have all views stop at the newest LSN: in the dispatcher's thread, which adds none."""
        self._stop_at(self._dispatcher.lsn)

    def _stop_at(self, lsn: int) -> None:
        point = self._point = CutPoint(lsn, pending=set(self._views))
        if not point.pending:
            self._find(point)
        for name in self._first:
            point.causes[name] = lsn
            self._views[name].cut_at(lsn, partial(self._passed, point, name))

    def _passed(self, point: CutPoint, name: str, is_there: bool) -> None:
        """A view has passed its place, before it takes in anything else."""
        with self._lock:
            if point is not self._point:
                return
            if not is_there:
                self._point = None
            point.pending.discard(name)
            is_found = not point.pending
        if not is_there:
            self._dispatcher.soon(self._stop)
            return
        # Nothing of this view is committed meanwhile, so those over it cannot get further.
        # One that was only created, which no reader sees, has a later LSN than any.
        lsn = min(self._views[name].view.lsn, self._dispatcher.lsn)
        for each in self._over.get(name, ()):
            point.causes[each] = lsn
            self._views[each].cut_at(lsn, partial(self._passed, point, each), idle=True)
        if is_found:
            self._find(point)

    def _find(self, point: CutPoint) -> None:
        self.found = point
        self.is_searching = False
        self.on_found()
