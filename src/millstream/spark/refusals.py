"""Why Spark refuses a query, in the words and with the hints of our own refusals."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from millstream.errors import SqlColumnError, SqlError, SqlTypeError, SqlUnsupportedError

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
]
