"""The functions that this process evaluates, and how many arguments each takes.

sqlglot reads many more names, other dialects' among them, as the same classes, and passes over
arguments that it does not expect; Spark has each name for one function. So names are looked at, not
classes: a name that is not here is refused.
"""

from __future__ import annotations

_MANY = 1 << 16
_COUNTS: dict[tuple[int, int], str] = {
    (1, 1): """ABS CHARACTER_LENGTH CHAR_LENGTH DAY DAYOFMONTH DAYOFWEEK DAYOFYEAR HOUR ISNAN
        ISNOTNULL ISNULL LCASE LEN LENGTH LOWER MINUTE MONTH QUARTER REVERSE SECOND SIGN SIGNUM SQRT
        UCASE UPPER WEEKDAY WEEKOFYEAR YEAR""",
    (1, 2): "BTRIM CEIL CEILING FLOOR LTRIM ROUND RTRIM TRIM",
    (2, 2): "CONTAINS DATE_TRUNC ENDSWITH IFNULL LEFT MOD NULLIF NVL STARTSWITH",
    (2, 3): "REPLACE SUBSTR SUBSTRING",
    (3, 3): "IF NVL2",
    (0, _MANY): "CONCAT",
    (1, _MANY): "COALESCE",
    (2, _MANY): "GREATEST LEAST",
}
_AGGREGATES: dict[tuple[int, int], str] = {
    (1, 1): """ARRAY_AGG AVG BIT_AND BIT_OR BIT_XOR BOOL_AND BOOL_OR COLLECT_LIST COLLECT_SET
        COUNT_IF EVERY MAX MEAN MIN SOME STD STDDEV STDDEV_POP STDDEV_SAMP SUM VARIANCE VAR_POP
        VAR_SAMP""",
    (1, 2): "ANY_VALUE FIRST FIRST_VALUE LAST LAST_VALUE",
    (2, 2): "MAX_BY MIN_BY",
    (1, _MANY): "COUNT",
}
AGGREGATES = {name: counts for counts, names in _AGGREGATES.items() for name in names.split()}
"""For each aggregate of ad-hoc queries, the least and the most arguments; views have more."""

COUNTS = {name: counts for counts, names in _COUNTS.items() for name in names.split()}
"""For each function, the least and the most arguments."""

SYNONYMS = frozenset(
    ("CEILING", "CHARACTER_LENGTH", "CHAR_LENGTH", "LCASE", "LEN", "SIGNUM", "SUBSTR", "UCASE")
)
"""Names that hints leave out."""


def counts_text(name: str) -> str:
    """Return how many arguments a function takes, in words.

    >>> counts_text("SUBSTR"), counts_text("ABS"), counts_text("GREATEST")
    ('2 or 3 arguments', '1 argument', '2 or more arguments')
    """
    least, most = COUNTS.get(name) or AGGREGATES[name]
    if most == _MANY:
        return f"{least} or more arguments"
    if least == most:
        return f"{least} argument{'' if least == 1 else 's'}"
    return f"{least} or {most} arguments"
