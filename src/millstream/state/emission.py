"""EMIT: when a view's results are emitted: at each change, when a window closes, at ticks, or once.

Pure: watermarks and times are arguments, in microseconds since 1970 UTC. All modes are one: of the
pending results, those whose window ends at a limit or before are due, and the modes differ in
the limit. A session that a late row makes longer stays as it was emitted until it closes again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import InvalidOptionError, SchemaError
from millstream.model.result_rows import as_arrow
from millstream.model.schema import Column, Schema
from millstream.model.types import BOOLEAN
from millstream.state.result_reader import SHOWN, ResultReader
from millstream.state.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from millstream.model.batch import ChangeBatch
    from millstream.model.result_rows import Results
    from millstream.state.keys import Mask
    from millstream.state.rows import Diff

Mode = Literal["changes", "close", "every", "final"]

END = "_end"
"""The column with the end of a group's window."""

_ALWAYS = (1 << 63) - 1
_NEVER = -(1 << 63)


class Release:
    """What some results and the time change: in the rows that are shown, and in pending output.

    Attributes:
        lsn: up to where results count in it.
        visible: changes of the rows that are shown; None when there are none.
        pending: changes of the pending output; None when there are none.
        earliest: the earliest end of a pending window.
        next_tick: the next tick, of EMIT EVERY.
    """

    __slots__ = ("earliest", "lsn", "next_tick", "pending", "visible")

    def __init__(
        self,
        lsn: int,
        *,
        visible: Diff | None = None,
        pending: Diff | None = None,
        earliest: int = _NEVER,
        next_tick: int | None = None,
    ) -> None:
        self.lsn = lsn
        self.visible = visible
        self.pending = pending
        self.earliest = earliest
        self.next_tick = next_tick

    @property
    def changes(self) -> ChangeBatch | None:
        """The changes of the user's columns that are shown."""
        return self.visible.changes if self.visible else None

    @property
    def stored(self) -> ChangeBatch | None:
        """The changes of all stored columns: to be committed, for ``Emission.visible`` to load."""
        return self.visible.stored if self.visible else None

    @property
    def stored_pending(self) -> ChangeBatch | None:
        """The changes of the pending output: to be committed, for ``Emission.load_pending``."""
        return self.pending.stored if self.pending else None


class Emission:
    """Pending output, and the rows that are shown.

    As of ``Rows``, one release at a time is computed, and applied or discarded before the next.
    After a restart, load ``visible`` and the pending rows and set ``lsn``.

    Args:
        mode: "changes": at once. "close": when the watermark has passed the window's end, and
            again when a late row changes it. "final": when it has passed the end and the lateness,
            never again. "every": at each tick.
        visible: the rows that are shown; they have ``_end`` if the mode needs windows.
        keys: the columns that identify a row.
        lateness: for how long after a window's end late rows count.
        every: from one tick to the next; ticks are multiples of it.

    Raises:
        SchemaError: the mode needs windows, and the rows do not have ``_end``.
        InvalidOptionError: ticks for a mode without, or none for "every".

    Attributes:
        lsn: up to where results were applied; older ones are a replay and change nothing.
        pending: the pending results.
    """

    def __init__(
        self,
        mode: Mode,
        visible: Rows,
        keys: Sequence[str],
        *,
        lateness: int = 0,
        every: int | None = None,
    ) -> None:
        if mode in ("close", "final") and END not in visible.stored_schema.names:
            raise SchemaError(
                f"EMIT {mode} needs {END}, which the view does not store",
                hint="Store it as a hidden column.",
            )
        if (mode == "every") != (every is not None):
            raise InvalidOptionError("ticks are for EMIT EVERY", hint="Give both or neither.")
        self.mode = mode
        self.visible = visible
        stored = visible.stored_schema
        shown = Column(SHOWN, BOOLEAN)
        self.pending = Rows(Schema((*stored.columns, shown), stored.key), keys)
        self.lsn = 0
        self._lateness = lateness
        self._every = every
        self._next_tick: int | None = None
        self._earliest = _ALWAYS  # no pending window ends before
        self._reader = ResultReader(stored)
        self._nothing = stored.rows_to_arrow([])

    def take(self, batch: Results, *, lsn: int, watermark: int | None, now: int) -> Release:
        """What new results of some groups change.

        Args:
            batch: the stored columns of the visible rows and, perhaps, ``_shown``.
            lsn: up to where they count.
            watermark: the event time that has passed by then; None if unknown.
            now: the time.
        """
        if lsn < self.lsn:
            return Release(self.lsn, earliest=self._earliest, next_tick=self._next_tick)
        if self.mode == "changes":
            return Release(lsn, visible=self.visible.diff(batch))
        limit, next_tick = self._limit(watermark, now)
        moved = self._with_shown(as_arrow(batch))
        due = self._due(moved, limit)
        earliest = self._earliest
        if limit >= earliest and limit != _NEVER:
            matured, earliest = self._due_pending(limit)
            moved = pa.concat_batches([*matured, moved])  # of a group in both, the last counts
            due = np.concatenate([np.ones(moved.num_rows - len(due), np.bool_), due])
        earliest = min(earliest, self._first_end(moved, ~due))
        release = Release(lsn, earliest=earliest, next_tick=next_tick)
        if moved.num_rows:
            release.pending = self.pending.diff(moved, keep=~due)
        if due.any():
            released = moved.filter(pa.array(due))
            release.visible = self.visible.diff(released, revise=self.mode != "final")
        return release

    def advance(self, *, watermark: int | None, now: int) -> Release | None:
        """What of the pending output is due; None when nothing is."""
        if self.mode == "changes" or not len(self.pending):
            return None
        limit, _ = self._limit(watermark, now)
        if limit < self._earliest or limit == _NEVER:
            return None
        return self.take(self._nothing, lsn=self.lsn, watermark=watermark, now=now)

    def apply(self, release: Release) -> None:
        """Apply the last release."""
        if release.pending is not None:
            self.pending.apply(release.pending)
        if release.visible is not None:
            self.visible.apply(release.visible)
        self.lsn = release.lsn
        self._earliest, self._next_tick = release.earliest, release.next_tick

    def load_pending(self, batch: ChangeBatch) -> None:
        """Apply changes of the pending output that were committed before, in order."""
        self.pending.load(batch)
        self._earliest = _NEVER  # it is looked up when it matters

    def _limit(self, watermark: int | None, now: int) -> tuple[int, int | None]:
        """The end up to which windows are due, and the next tick after that."""
        if self._every is not None:
            after = (now // self._every + 1) * self._every
            tick = self._next_tick
            # A tick at which nothing was pending is over: later results wait for the next. Pending
            # results without a tick have been loaded, and have waited for long enough.
            passed = len(self.pending) > 0 and (tick is None or now >= tick)
            return (_ALWAYS if passed else _NEVER), after
        if watermark is None:
            return _NEVER, None
        return watermark - (self._lateness if self.mode == "final" else 0), None

    def _due(self, batch: pa.RecordBatch, limit: int) -> Mask:
        if limit in (_ALWAYS, _NEVER):
            return np.full(batch.num_rows, limit == _ALWAYS, np.bool_)
        due: Mask = _ends(batch) <= limit
        return due

    def _due_pending(self, limit: int) -> tuple[list[pa.RecordBatch], int]:
        """The pending results that are due, and the earliest end of the others."""
        matured, earliest = [], _ALWAYS
        for part in self.pending.snapshot(stored=True).to_batches():
            due = self._due(part, limit)
            matured.append(part.filter(pa.array(due)))
            earliest = min(earliest, self._first_end(part, ~due))
        return matured, earliest

    def _first_end(self, batch: pa.RecordBatch, pending: Mask) -> int:
        """The earliest end of some results; without windows, any tick may be the one."""
        if self._every is not None:
            return _NEVER
        return int(_ends(batch)[pending].min(initial=_ALWAYS))

    def _with_shown(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """New results in the columns of pending ones."""
        shown = self._reader.shown(batch)
        if shown is None:
            shown = np.ones(batch.num_rows, np.bool_)
        arrays = [*self._reader.arrow(batch).columns, pa.array(shown)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.pending.schema.arrow)


def _ends(batch: pa.RecordBatch) -> NDArray[np.int64]:
    """When windows end; one that has no end never does."""
    ends = pc.fill_null(batch.column(END).view(pa.int64()), _ALWAYS)
    return ends.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
