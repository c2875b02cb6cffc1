"""Errors of views: why one failed, and why Spark refused one, each in a line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from millstream.errors import (
    Error,
    SqlColumnError,
    SqlError,
    SqlUnsupportedError,
    ViewFailedError,
)
from millstream.model.display import shown_values
from millstream.spark.refusals import refusal_of
from millstream.sql.statements.cursor import did_you_mean

if TYPE_CHECKING:
    from millstream.model.batch import ChangeBatch

_CALLING = re.compile(r"^An error occurred while calling \S+\n: ")
_STREAM_FAILED = re.compile(r"\[STREAM_FAILED\].*?terminated with exception:\s*", re.DOTALL)
_ADVICE = re.compile(r" If necessary set \"spark[^.]*\.[^ ]* to \"?\w+\"? to bypass this error\.")
_RAISED = re.compile(r"^((?:\w+\.)*\w+(?:Error|Exception|Warning)\b.*)$", re.MULTILINE)
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]\s*(.+?)(?:\s+SQLSTATE:|\n|$)", re.DOTALL)

_UNRESOLVED = re.compile(
    r"\[UNRESOLVED_COLUMN\.[A-Z_]+\] .*? name (`.+?`) cannot be resolved\."
    r"(?: Did you mean one of the following\? \[(.*?)\])?"
)
_MISUSED = re.compile(r'Cannot resolve "(\w+)\(')
_REFERENCE = "Spark SQL's functions: https://spark.apache.org/docs/latest/api/sql/"
_PART = re.compile(r"`((?:[^`]|``)*)`")


CORRECT = "UPDATE or DELETE the row, or a row that it is joined with: the view goes on by itself."
"""What to do about a row of a table without a value."""

REPLACE = (
    "A row of a source stays: CREATE OR REPLACE the view with a query that has a value for it, "
    "for instance with try_divide, try_cast or a WHERE."
)
"""What to do about a row of a source without a value."""


_NO_VALUE = re.compile(r"SQLSTATE: (2[12]\w{3}|P0001)\b")
"""Errors that come from values: data exceptions, subqueries of several rows, ``raise_error``."""

_NO_ROOM = re.compile(r"\bjava\.lang\.OutOfMemoryError\b")
_TOO_LARGE = "Spark's Java has no room for what the query makes of some rows"

FULL_DISK = "No space left on device"
"""What the system says of a disk without room."""

_AT_LSN = re.compile(r"millstream: at LSN (\d+): ")


class SparkError(Exception):
    """What Spark says has failed, in its words."""


class FunctionRefused(Exception):  # noqa: N818 - a cause, which no one catches
    """The cause of an error of a query: a function that does not exist, or is not allowed.

    Attributes:
        name: what the query calls it; empty: not known.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"the function {name} is refused")
        self.name = name


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
    """The LSN of the row that a line of operators has failed on; None: the error has none.

    >>> lsn_of("millstream: at LSN 12: [DIVIDE_BY_ZERO] Division by zero.")
    12
    """
    found = _AT_LSN.search(text)
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


def sql_error(raised: BaseException, sql: str) -> Error:
    """The error of a CREATE VIEW whose query Spark refuses: the first line of what it says."""
    if isinstance(raised, Error):
        return raised
    text = str(raised).strip()
    missing = unresolved_column(text)
    if missing is not None:
        name, known = missing
        hint = did_you_mean(name, known, f"Available columns: {', '.join(known)}.")
        return SqlColumnError(f"there is no column {name}", sql=sql, hint=hint)
    refusal = refusal_of(text)
    if refusal is not None:
        return refusal.kind(refusal.message, sql=sql, hint=refusal.hint)
    said = spark_message(text) or type(raised).__name__
    if _CONDITION.search(text):
        return SqlError(said, sql=sql, hint=_REFERENCE)
    kind = said.partition(":")[0].rpartition(".")[2]
    hint = f"Spark failed with {kind}: write it in another way, or as several views."
    return SqlUnsupportedError("Spark cannot plan this query", sql=sql, hint=hint)


def misused_function(text: str) -> str:
    """The function whose arguments Spark refuses; empty when it says something else."""
    found = _MISUSED.search(text)
    return "" if found is None else found[1]


def unresolved_column(text: str) -> tuple[str, list[str]] | None:
    """The column that Spark does not find, and some that there are; None when it says another.

    >>> unresolved_column(
    ...     "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column or variable with name `t`.`nme` cannot be"
    ...     " resolved. Did you mean one of the following? [`t`.`name`, `k`]."
    ... )
    ('t.nme', ['t.name', 'k'])
    """
    found = _UNRESOLVED.search(text)
    if found is None:
        return None
    known = (found[2] or "").split(", ")
    return _plain(found[1]), [_plain(each) for each in known if each]


def _plain(name: str) -> str:
    """A name of Spark's without its quotes."""
    return ".".join(part.replace("``", "`") for part in _PART.findall(name))


def spark_message(text: str) -> str:
    """What Spark's error says, without its traces and its advice on settings."""
    text = _ADVICE.sub("", _STREAM_FAILED.sub("", _CALLING.sub("", _AT_LSN.sub("", text))))
    found = _CONDITION.search(text)
    if found is None:
        return _TOO_LARGE if _NO_ROOM.search(text) else text.strip().split("\n", 1)[0]
    if found[1] == "PYTHON_EXCEPTION":
        raised = _RAISED.findall(text)
        return raised[-1] if raised else "a Python function failed"
    return f"[{found[1]}] {' '.join(found[2].split())}"
