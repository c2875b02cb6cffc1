"""Errors of Spark: what it says has failed or is refused, in our own words and hints."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from millstream.errors import Error, SqlColumnError, SqlError, SqlTypeError, SqlUnsupportedError
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


_IN_PARTS = "Leave out those that it does not take, or add those that are missing."
_KINDS: Final = {"STRING": "VARCHAR", "INT": "INTEGER"}


class Refusal(NamedTuple):
    """What Spark's error says.

    Attributes:
        kind: the class of our error.
        message: what is wrong.
        hint: what to write instead.
        column: the column that it is about, empty if none.
        function: the function that it is about, empty if none.
    """

    kind: type[SqlError]
    message: str
    hint: str
    column: str = ""
    function: str = ""


def refusal_of(text: str) -> Refusal | None:
    """What an error of Spark's says; None of one that has no words of ours.

    >>> refusal_of('[MISSING_AGGREGATION] The non-aggregating expression "qty" is').message
    'qty is not the same for all rows of a group'
    """
    for pattern, kind, message, hint in _WORDS:
        found = pattern.search(text)
        if found is not None:
            parts = {name: value or "" for name, value in found.groupdict().items()}
            parts |= {"upper": parts.get("function", "").upper()}
            if "type" in parts:
                parts["type"] = _KINDS.get(parts["type"], parts["type"])
            column, function = parts.get("column", ""), parts.get("function", "")
            return Refusal(
                kind, message.format(**parts), hint.format(**parts), column, function.lower()
            )
    return None


def _words(
    pattern: str, kind: type[SqlError], message: str, hint: str
) -> tuple[re.Pattern[str], type[SqlError], str, str]:
    return re.compile(pattern, re.DOTALL), kind, message, hint


_WORDS: Final = [
    _words(
        r'^.*\[MISSING_AGGREGATION\] The non-aggregating expression "(?P<column>[^"]+)"',
        SqlColumnError,
        "{column} is not the same for all rows of a group",
        "Add it to GROUP BY, or aggregate it: MAX({column}), FIRST({column}).",
    ),
    _words(
        r"\[AMBIGUOUS_REFERENCE\] Reference `(?P<table>\w+)`\.`(?P<column>\w+)` is ambiguous",
        SqlColumnError,
        "{table} is twice in FROM",
        "Give one of them another name: JOIN {table} AS other.",
    ),
    _words(
        r"\[AMBIGUOUS_REFERENCE\] Reference `(?P<column>[^`]+)` is ambiguous, "
        r"could be: \[`(?P<table>[^`]+)`",
        SqlColumnError,
        "{column} may be a column of several tables",
        "Write {table}.{column}.",
    ),
    _words(
        r"\[INVALID_WHERE_CONDITION\]",
        SqlUnsupportedError,
        "aggregates, OVER and generators cannot stand in WHERE",
        "Write it in HAVING, in QUALIFY, or in a query around this one.",
    ),
    _words(
        r"\[NESTED_AGGREGATE_FUNCTION\]",
        SqlUnsupportedError,
        "an aggregate of an aggregate is not supported",
        "Aggregate in a subquery after FROM, and aggregate over that.",
    ),
    _words(
        r"\[GROUP_BY_AGGREGATE\]",
        SqlUnsupportedError,
        "a key of GROUP BY cannot be an aggregate",
        "Leave it out of GROUP BY; aggregates are computed for each group.",
    ),
    _words(
        r"\[GROUP_BY_POS_OUT_OF_RANGE\] GROUP BY position (?P<place>\d+) .*\[1, (?P<count>\d+)\]",
        SqlColumnError,
        "there is no column {place} to group by",
        "There are {count} columns; count from 1.",
    ),
    _words(
        r"\[NUM_COLUMNS_MISMATCH\] (?P<what>\w+) .* first input has (?P<one>\d+) columns? and the "
        r"\w+ input has (?P<two>\d+)",
        SqlColumnError,
        "the parts of {what} have {one} and {two} columns",
        "Select as many columns in each part; NULL where there is none.",
    ),
    _words(
        r"\[WRONG_NUM_ARGS[.\w]*\] The `(?P<function>\w+)` requires .*actual number is (?P<n>\d+)",
        SqlUnsupportedError,
        "{upper} with {n} arguments is not supported",
        _IN_PARTS,
    ),
    _words(
        r"\[UNRESOLVED_USING_COLUMN_FOR_JOIN\] USING column `(?P<column>[^`]+)`",
        SqlColumnError,
        "USING ({column}) is not a column of both sides",
        "Write ON with the columns of both sides: ON a.x = b.y.",
    ),
    _words(
        r'\[WINDOW_FUNCTION_WITHOUT_OVER_CLAUSE\] Window function "(?P<function>\w+)\(',
        SqlUnsupportedError,
        "{upper} needs OVER",
        "Write {upper}(...) OVER (PARTITION BY ... ORDER BY ...).",
    ),
    _words(
        r"\[UNSUPPORTED_GROUPING_EXPRESSION\]",
        SqlUnsupportedError,
        "GROUPING needs several groupings",
        "Write GROUP BY ROLLUP (...), CUBE (...) or GROUPING SETS (...).",
    ),
    _words(
        r"\[UNSUPPORTED_GENERATOR\.NESTED_IN_EXPRESSIONS\]",
        SqlUnsupportedError,
        "a generator is not supported within an expression",
        "Write it alone in the SELECT, in a subquery, or as LATERAL VIEW.",
    ),
    _words(
        r'\[DATATYPE_MISMATCH\.[A-Z_]+\] Cannot resolve "unix_micros\((?P<column>[^"]+)\)".*'
        r'has the type "(?P<type>[^"]+)"',
        SqlTypeError,
        "a window is over a TIMESTAMP, and this is {type}",
        "Write TUMBLE(ts, INTERVAL '1 minute').",
    ),
    _words(
        r"\[MISSING_GROUP_BY\]",
        SqlColumnError,
        "a column stands beside an aggregate, and there is no GROUP BY",
        "Add GROUP BY with the column, or aggregate the column, too.",
    ),
    _words(
        r"\[ORDER_BY_POS_OUT_OF_RANGE\] ORDER BY position (?P<place>\d+) .*\[1, (?P<count>\d+)\]",
        SqlColumnError,
        "there is no column {place} to order by",
        "There are {count} columns; count from 1.",
    ),
    _words(
        r"\[INVALID_SUBQUERY_EXPRESSION\.SCALAR_SUBQUERY_RETURN_MORE_THAN_ONE_OUTPUT_COLUMN\]"
        r".* but got (?P<count>\d+)",
        SqlColumnError,
        "a subquery as a value has {count} columns",
        "Select one column in it.",
    ),
    _words(
        r'\[DATATYPE_MISMATCH[.A-Z_]*\] Cannot resolve "(?P<what>(?P<function>\w*)[^"]*)" due to '
        r"data type mismatch: (?P<why>.+?)\.?(?:\s+SQLSTATE|\n|$)",
        SqlTypeError,
        "the types in {what} do not fit: {why}",
        "CAST one of them to the type of the other.",
    ),
]
