"""Committing: batches get their places in the log, go to subscribers, and are added to the log.

When the log takes nothing, since the disk is full, say, the dispatcher does not wait for it.
Commits that a thread waits for are refused at once. Rows that no thread waits for are held, in
order, and tried again; meanwhile their inlets are not drained, so that no row overtakes another one
of its source.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final

from millstream.errors import (
    Error,
    LogError,
    LogFailedError,
    RowTooLargeError,
    TopicNotFoundError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.dispatch.cut import DrainedInlets
    from millstream.dispatch.route import FanOut
    from millstream.dispatch.tasks import Applied, Batches, Commit, Tasks
    from millstream.log import Log
    from millstream.log.queue import Part
    from millstream.sources.inlet import Inlet
    from millstream.threads import Completion


_MANY_ROWS: Final = 1024
"""To hand so many rows on may take longer than rows may wait."""

_OVERDUE: Final = 0.005
"""Seconds for which rows may wait for a quiet moment to be written to the log."""


class Committer:
    """Commits what the cycles of the dispatcher bring, one at a time.

    Attributes:
        failure: why nothing is committed any more, or None.
        lost: with how many rows the database was closed while the log took nothing, or None.
        unwritten: commits that subscribers have already, and the log has not yet.
        held: commits of pushed rows that the log did not take, oldest first.
        postponed: tasks that no thread waits for, and that are run again when the log takes rows.
    """

    def __init__(self, log: Log, inlets: DrainedInlets, tasks: Tasks, fan_out: FanOut) -> None:
        self.failure: Error | None = None
        self.lost: LogError | None = None
        self.unwritten: Sequence[Part] = ()
        self.held: deque[Batches] = deque()
        self.postponed: list[Commit] = []
        self._appender = log.appender
        self._inlets = inlets
        self._tasks = tasks
        self._fan_out = fan_out
        self._placed: Sequence[Part] = ()  # what was placed just now
        self._waits_since = 0.0  # since when rows wait to be written; 0.0: none do

    def commit(self, batches: Batches, completions: list[Completion]) -> None:
        """Commit batches of a cut, and complete the pushes in it that are waited for."""
        if self.unwritten:  # which must not wait for the fan-out of many rows
            self.add_to_log(write=sum(len(batch) for _, batch in batches) > _MANY_ROWS)
        # What is held was pushed before: nothing may be committed ahead of it.
        error = self._inlets.stalled or self._place(batches, sync=bool(completions))
        if error is None:
            self._fan_out.deliver(batches)
            self.unwritten, self._placed = self._placed, ()
        elif self.failure is None and isinstance(error, LogError):
            self._hold(_not_refusable(batches, self._inlets.every), error)
        for completion in completions:
            completion.settle(self._fan_out.lsn, error)

    def run(
        self,
        changes: Batches | Callable[[], Batches],
        applied: Applied | None = None,
        *,
        sync: bool = False,
        hand_on: bool = True,
    ) -> None:
        """Commit the changes of a task; what they are is as in ``Commit``.

        Without ``hand_on`` subscribers that sleep are woken later, by ``FanOut.hand_on``.

        Raises:
            Error: the log does not take them, or the task could not work them out.
        """
        try:
            batches = changes() if callable(changes) else changes
            if self._inlets.stalled is not None:
                raise self._inlets.stalled.again()
            self._placed = self._appender.place(batches, sync=sync)
        except LogFailedError as error:
            self.fail(error)
            raise
        if applied is not None:
            applied([batch for _, batch in batches])
        self._fan_out.deliver(batches, hand_on=hand_on)
        self.unwritten, self._placed = self._placed, ()

    def add_to_log(self, *, write: bool = True) -> None:
        """Add to the log what subscribers have already; before anything else is given an LSN.

        Args:
            write: wake the thread that writes; False: only if it is much, or overdue.
        """
        parts, self.unwritten = self.unwritten, ()
        if parts:
            self._appender.add(parts)
            if not self._waits_since:
                self._waits_since = time.monotonic()
        if self._waits_since and (write or self._appender.is_long or self.is_overdue):
            self._waits_since = 0.0
            self._appender.write_soon()

    def write_to_log(self) -> None:
        """Write to the log what subscribers have already: in this thread, if it is little."""
        self.add_to_log(write=False)
        if self._waits_since:
            self._waits_since = 0.0
            self._appender.write_few()

    @property
    def has_unwritten(self) -> bool:
        """Whether rows wait for a quiet moment to be written."""
        return bool(self.unwritten or self._waits_since)

    @property
    def is_overdue(self) -> bool:
        """Whether rows wait for too long to be written."""
        return self._waits_since > 0 and time.monotonic() - self._waits_since > _OVERDUE

    def _place(self, batches: Batches, *, sync: bool) -> Error | None:
        """Give batches their place in the log; returns why they have none."""
        try:
            self._placed = self._appender.place(batches, sync=sync)
        except LogFailedError as error:
            self.fail(error)
            return error
        except (LogError, TopicNotFoundError) as error:
            return error
        return None

    def fail(self, error: Error) -> None:
        """Commit nothing more: sources refuse pushes, and subscribers end, with this error."""
        self.failure = error
        self._inlets.close(error)
        self._fan_out.fail(error)

    # ---- while the log takes nothing

    def _hold(self, batches: Batches, error: LogError) -> None:
        """Keep rows that no thread waits for until the log takes them."""
        if batches:
            self.held.append(batches)
            if not isinstance(error, RowTooLargeError):
                self._inlets.stall(error)
            elif self._inlets.stalled is None:  # of another row of the cut, which is waited for
                self.retry()

    def retry(self) -> None:
        """Try again what the log did not take, in order."""
        self.add_to_log()
        while self.held and self.failure is None:
            error = self._place(self.held[0], sync=False)
            if isinstance(error, LogError):
                self._inlets.stall(error)
                return
            batches = self.held.popleft()
            if error is None:
                self._fan_out.deliver(batches)
                self.unwritten, self._placed = self._placed, ()
                self.add_to_log()
        if self._inlets.stalled is not None:
            self._inlets.stall(None)
        self._tasks.put_first(self.postponed)
        self.postponed.clear()

    def held_rows(self) -> int:
        """How many rows are held."""
        return sum(len(batch) for commit in self.held for _, batch in commit)

    def forget(self, topic: str) -> None:
        """Discard what is held for a topic that was dropped."""
        left = ([each for each in commit if each[0] != topic] for commit in self.held)
        self.held = deque(commit for commit in left if commit)

    def give_up(self) -> None:
        """At the end, when the log still takes nothing: count the rows that are lost."""
        error = self._inlets.stalled
        if error is None or self.failure is not None:
            return
        rows = self.held_rows() + self._inlets.discard()
        self.held.clear()
        self.lost = error.with_lost(rows)
        self.fail(self.lost)


def _not_refusable(batches: Batches, inlets: tuple[Inlet, ...]) -> Batches:
    """The batches of a cut that no thread waits for, and that must therefore not be lost.

    Those of sync sources are refused instead; but a watermark, which is a promise, is not.
    """
    waited_for = {inlet.name for inlet in inlets if inlet.sync}
    return [each for each in batches if each[0] not in waited_for or not len(each[1])]
