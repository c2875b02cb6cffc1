"""Failures of views: the row that one has failed on, and the error that its readers get."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from millstream.errors import Error, ViewFailedError
from millstream.model.display import shown_values
from millstream.spark.errors import AT_LSN, SparkError, spark_message

if TYPE_CHECKING:
    from millstream.model.batch import ChangeBatch

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
