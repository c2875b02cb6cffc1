"""Errors of views: why one failed, and why Spark refused one, each in a line."""

from __future__ import annotations

import re

from millstream.errors import (
    Error,
    SqlColumnError,
    SqlError,
    SqlUnsupportedError,
    ViewFailedError,
)
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
_NO_ROUTINE = re.compile(r"\[UNRESOLVED_ROUTINE\] Cannot resolve routine (`.+?`) on search path")
_MISUSED = re.compile(r'Cannot resolve "(\w+)\(')
_REFERENCE = "Spark SQL's functions: https://spark.apache.org/docs/latest/api/sql/"
_PART = re.compile(r"`((?:[^`]|``)*)`")


class SparkError(Exception):
    """What Spark says has failed, in its words."""


def view_failure(name: str, raised: BaseException, message: str, hint: str) -> ViewFailedError:
    """The error that readers of a view get.

    Args:
        name: the view.
        raised: why it failed; an error of Millstream brings its own message and hint.
        message: what to say of any other.
        hint: what to do about any other.
    """
    if isinstance(raised, Error):
        message, hint = raised.message, raised.hint
    return ViewFailedError(f"the view {name} failed: {message}", view=name, hint=hint)


def query_failure(name: str, raised: BaseException) -> ViewFailedError:
    """The error that readers of a view get when its Spark query has failed."""
    if isinstance(raised, ViewFailedError):
        return raised
    return view_failure(
        name,
        raised,
        spark_message(str(raised)) or type(raised).__name__,
        "it is tried again by itself; if the query cannot take such a row, drop it and write "
        "it so that it can, for instance with try_divide, try_cast or a WHERE",
    )


def sql_error(raised: BaseException, sql: str) -> Error:
    """The error of a CREATE VIEW whose query Spark refuses: the first line of what it says."""
    if isinstance(raised, Error):
        return raised
    text = str(raised).strip()
    missing, function = unresolved_column(text), unknown_function(text)
    if missing is not None:
        name, known = missing
        hint = did_you_mean(name, known, f"Available columns: {', '.join(known)}.")
        return SqlColumnError(f"there is no column {name}", sql=sql, hint=hint)
    if function is not None:
        return SqlColumnError(f"there is no function {function.upper()}", sql=sql)
    said = spark_message(text) or type(raised).__name__
    if _CONDITION.search(text):
        return SqlError(said, sql=sql, hint=_REFERENCE)
    kind = said.partition(":")[0].rpartition(".")[2]
    hint = f"Spark failed with {kind}: write it in another way, or as several views."
    return SqlUnsupportedError("Spark cannot plan this query", sql=sql, hint=hint)


def unknown_function(text: str) -> str | None:
    """The function that Spark does not find; None when it says something else.

    >>> unknown_function(
    ...     "[UNRESOLVED_ROUTINE] Cannot resolve routine `foobar` on search path [`system`]."
    ... )
    'foobar'
    """
    found = _NO_ROUTINE.search(text)
    return None if found is None else _plain(found[1])


def refused_function(text: str) -> str:
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
    text = _ADVICE.sub("", _STREAM_FAILED.sub("", _CALLING.sub("", text)))
    found = _CONDITION.search(text)
    if found is None:
        return text.strip().split("\n", 1)[0]
    if found[1] == "PYTHON_EXCEPTION":
        raised = _RAISED.findall(text)
        return raised[-1] if raised else "a Python function failed"
    return f"[{found[1]}] {' '.join(found[2].split())}"
