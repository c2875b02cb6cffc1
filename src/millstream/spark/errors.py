"""Errors of Spark: what it says has failed or is refused, each in a line."""

from __future__ import annotations

import re

from millstream.errors import (
    Error,
    SqlColumnError,
    SqlError,
    SqlUnsupportedError,
)
from millstream.spark.refusals import refusal_of
from millstream.sql.statements.cursor import did_you_mean

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


_NO_ROOM = re.compile(r"\bjava\.lang\.OutOfMemoryError\b")
_TOO_LARGE = "Spark's Java has no room for what the query makes of some rows"

FULL_DISK = "No space left on device"
"""What the system says of a disk without room."""

AT_LSN = re.compile(r"millstream: at LSN (\d+): ")
"""How Java reports the LSN of the row that it has failed on."""


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
    text = _ADVICE.sub("", _STREAM_FAILED.sub("", _CALLING.sub("", AT_LSN.sub("", text))))
    found = _CONDITION.search(text)
    if found is None:
        return _TOO_LARGE if _NO_ROOM.search(text) else text.strip().split("\n", 1)[0]
    if found[1] == "PYTHON_EXCEPTION":
        raised = _RAISED.findall(text)
        return raised[-1] if raised else "a Python function failed"
    return f"[{found[1]}] {' '.join(found[2].split())}"
