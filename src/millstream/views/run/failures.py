"""Failures of views: the row that one has failed on, the error of its readers, the next try.

A query that has no value for a row fails again on the same row. So it waits for a commit to what it
reads, and begins with what the changes come to: a row that was corrected or deleted is gone from
them.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from millstream.errors import Error, ViewFailedError
from millstream.model.display import shown_values
from millstream.spark.errors import AT_LSN, SparkError, spark_message
from millstream.views.run.inputs import FeedLogs

if TYPE_CHECKING:
    import threading

    from millstream.delivery.tail import LogTail
    from millstream.model.batch import ChangeBatch
    from millstream.views.run.live import LiveFeed

CORRECT = "UPDATE or DELETE the row, or a row that it is joined with: the view goes on by itself."
"""What to do about a row of a table without a value."""

REPLACE = (
    "A row of a source stays: CREATE OR REPLACE the view with a query that has a value for it, "
    "for instance with try_divide, try_cast or a WHERE."
)
"""What to do about a row of a source without a value."""

_NO_VALUE = re.compile(r"SQLSTATE: (2[12]\w{3}|P0001)\b")
"""Errors that come from values: data exceptions, subqueries of several rows, ``raise_error``."""


@dataclass(frozen=True, slots=True)
class FailedRow:
    """Where the row is that a query has no value for.

    Attributes:
        topic: the log.
        lsn: the LSN of the row.
        key: the values of its key columns; None: the log has no key.
        text: its key, or the row, in a few words.
    """

    topic: str
    lsn: int
    key: tuple[Any, ...] | None
    text: str

    @classmethod
    def of(cls, batch: ChangeBatch, place: int) -> Self:
        """The row at a place of a batch."""
        row, schema = batch.held_rows[place], batch.schema
        shown = schema.key or schema.names
        values = tuple(row[schema.names.index(name)] for name in shown)
        key = values if schema.key else None
        return cls(batch.topic, batch.lsns[place], key, shown_values(shown, values))


def view_failure(
    name: str, raised: BaseException, message: str, hint: str, row: FailedRow | None = None
) -> ViewFailedError:
    """The error that readers of a view get.

    Args:
        name: the view.
        raised: why it failed; an error of Millstream brings its own message and hint.
        message: what to say of any other.
        hint: what to do about any other.
        row: the row that it has failed on; None: not known.
    """
    if isinstance(raised, Error):
        message, hint = raised.message, raised.hint
    if row is None:
        return ViewFailedError(f"the view {name} failed: {message}", view=name, hint=hint)
    where = f"the row {row.text} of {row.topic} (LSN {row.lsn})"
    return ViewFailedError(
        f"the view {name} failed: {message.rstrip('.')}, for {where}",
        view=name,
        hint=hint,
        topic=row.topic,
        lsn=row.lsn,
        key=row.key,
    )


def has_no_value(raised: BaseException) -> bool:
    """Whether a Spark query has failed since it has no value for some row."""
    return isinstance(raised, SparkError) and _NO_VALUE.search(str(raised)) is not None


def lsn_of(text: str) -> int | None:
    """The LSN of the row that a dataflow has failed on; None: the error has none.

    >>> lsn_of("millstream: at LSN 12: [DIVIDE_BY_ZERO] Division by zero.")
    12
    """
    found = AT_LSN.search(text)
    return None if found is None else int(found[1])


def query_failure(
    name: str, raised: BaseException, row: FailedRow | None = None, *, retracts: bool = False
) -> ViewFailedError:
    """The error that readers of a view get when its Spark query has failed.

    Args:
        name: the view.
        raised: why it failed.
        row: the row that it has failed on; None: not known.
        retracts: whether it reads rows that may be corrected or deleted.
    """
    if isinstance(raised, ViewFailedError):
        return raised
    hint = (
        "it is tried again by itself; if the query cannot take such a row, drop it and write "
        "it so that it can, for instance with try_divide, try_cast or a WHERE"
    )
    if has_no_value(raised):
        hint = CORRECT if retracts else REPLACE
    return view_failure(
        name, raised, spark_message(str(raised)) or type(raised).__name__, hint, row
    )


_FEW: Final = 1000


class Progress(Protocol):
    """How far a view has come.

    Attributes:
        reached: everything up to this LSN was taken in.
    """

    reached: int

    def still_failed(self, lsn: int) -> None:
        """Nothing that the view reads was committed after its failure and up to an LSN."""


class Corrections:
    """Finds the row that one query has no value for, and waits for its correction.

    Args:
        live: what it reads.
        progress: how far its view has come.
        wakeup: set when the wait is to look around: at a commit, a probe, or the end.
        over: set at the end.
    """

    def __init__(
        self,
        live: LiveFeed,
        progress: Progress,
        *,
        wakeup: threading.Event,
        over: threading.Event,
    ) -> None:
        self._live = live
        self._progress = progress
        self._wakeup = wakeup
        self._over = over

    @property
    def tried_lsn(self) -> int:
        """The last attempt has failed on what there was up to this LSN."""
        return max(self._live.tried_lsn, self._progress.reached)

    def wait_for_commit(self, row: FailedRow | None, pause: float) -> None:
        """Wait for a commit to what the query reads.

        Args:
            row: the row that it has no value for; once that is retracted, there is no pause.
            pause: wait at least so many seconds, unless the row is retracted.
        """
        until = time.monotonic() + pause
        is_due = False
        tail = self._live.tail_after(self.tried_lsn)
        try:
            while not self._over.is_set():
                self._wakeup.clear()
                batch = tail.take()
                if batch is not None:
                    if row is not None and _retracts(batch, row):
                        return
                    is_due |= len(batch) > 0
                    continue
                left = until - time.monotonic()
                if is_due and left <= 0:
                    return
                if not is_due:
                    self._progress.still_failed(tail.settled())
                if self._is_quiet(tail):
                    self._wakeup.wait(left if is_due else None)
        except Error:  # retention has removed rows, say: the query itself reports that
            self._over.wait(pause)
        finally:
            tail.close()

    def _is_quiet(self, tail: LogTail) -> bool:
        return tail.notify(self._wakeup.set) and not self._over.is_set()

    # ---- the row

    def row_of(self, text: str) -> FailedRow | None:
        """The row that the query has no value for, by Spark's error; None: it is not known."""
        live, lsn = self._live, lsn_of(text)
        after = max(self._progress.reached, live.folded_lsn)
        if lsn is not None and lsn <= after:
            return None
        first, last = (after + 1, self.tried_lsn) if lsn is None else (lsn, lsn)
        found: FailedRow | None = None
        try:
            for _, batch in FeedLogs(live.inputs, live.log).read(first, last):
                for place, weight in enumerate(batch.weights if len(batch) <= _FEW else ()):
                    if weight > 0 and found is not None:
                        return None
                    if weight > 0:
                        found = FailedRow.of(batch, place)
                if len(batch) > _FEW:
                    return None
        except Error:
            return None
        return found


def _retracts(batch: ChangeBatch, row: FailedRow) -> bool:
    """Whether a batch may retract a row."""
    if batch.topic != row.topic or batch.is_insert_only:
        return False
    if len(batch) > _FEW:
        return True
    gone = (place for place, weight in enumerate(batch.weights) if weight < 0)
    return any(FailedRow.of(batch, place).text == row.text for place in gone)
