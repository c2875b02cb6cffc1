"""Rows that were drained and that the log did not take, since the disk is full, say.

They wait here, in order, until the log takes rows again. Meanwhile the inlets that they came from
are not drained, so that no row overtakes another one of its source.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.dispatch.tasks import Batches, Commit
    from millstream.errors import LogError
    from millstream.sources.inlet import Inlet


class Held:
    """What waits for the log, and why.

    Attributes:
        error: why the log takes nothing; None when nothing is held.
        commits: the rows, one commit each, oldest first.
        postponed: commits of others that nobody waits for.
    """

    def __init__(self) -> None:
        self.error: LogError | None = None
        self.commits: deque[Batches] = deque()
        self.postponed: list[Commit] = []

    def __bool__(self) -> bool:
        return bool(self.commits or self.postponed)

    def forget(self, topic: str) -> None:
        """A topic was dropped: what waits for it is of no use to anybody."""
        left = ([each for each in commit if each[0] != topic] for commit in self.commits)
        self.commits = deque(commit for commit in left if commit)

    def rows(self) -> int:
        """How many rows wait."""
        return sum(len(batch) for commit in self.commits for _, batch in commit)


def not_refusable(batches: Batches, inlets: tuple[Inlet, ...]) -> Batches:
    """The batches of a cut that nobody waits for, and that must therefore not be lost.

    Those of sync sources are refused instead; but a watermark, which is a promise, is not.
    """
    waited_for = {inlet.name for inlet in inlets if inlet.sync}
    return [each for each in batches if each[0] not in waited_for or not len(each[1])]
