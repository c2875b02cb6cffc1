"""The functions that this process evaluates, and how many arguments each takes.

sqlglot reads many more names, other dialects' among them, as the same classes, and passes over
arguments that it does not expect; Spark has each name for one function. So names are looked at, not
classes: a name that is not here is refused.
"""

from __future__ import annotations

_MANY = 1 << 16
_COUNTS: dict[tuple[int, int], str] = {
    (1, 1): """ABS BIT_COUNT CHARACTER_LENGTH CHAR_LENGTH DATE_FROM_UNIX_DATE DAY DAYOFMONTH
        DAYOFWEEK DAYOFYEAR HOUR ISNAN ISNOTNULL ISNULL LAST_DAY LCASE LEN LENGTH LOWER MINUTE MONTH
        QUARTER REVERSE SECOND SIGN SIGNUM SQRT TIMESTAMP_MICROS TIMESTAMP_MILLIS TIMESTAMP_SECONDS
        TO_DATE UCASE UNIX_DATE UNIX_MICROS UNIX_MILLIS UNIX_SECONDS UPPER WEEKDAY WEEKOFYEAR
        YEAR""",
    (1, 2): "BTRIM CEIL CEILING FLOOR LTRIM ROUND RTRIM TRIM",
    (2, 2): """ADD_MONTHS CONTAINS DATEDIFF DATEPART DATE_ADD DATE_DIFF DATE_FORMAT DATE_PART
        DATE_SUB DATE_TRUNC
        ENDSWITH IFNULL INSTR LEFT MOD NULLIF NVL PMOD REGEXP REGEXP_COUNT REGEXP_LIKE REGEXP_SUBSTR
        RIGHT RLIKE SHIFTLEFT SHIFTRIGHT SHIFTRIGHTUNSIGNED STARTSWITH TRUNC""",
    (2, 3): "REGEXP_EXTRACT REGEXP_EXTRACT_ALL REPLACE SPLIT SUBSTR SUBSTRING",
    (3, 3): "IF MAKE_DATE NVL2 REGEXP_REPLACE SPLIT_PART TRANSLATE",
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

_SYNONYMS_TEXT = """
    CEILING CHARACTER_LENGTH CHAR_LENGTH DATEPART DATE_DIFF LCASE LEN REGEXP RLIKE SIGNUM SUBSTR
    UCASE
"""
SYNONYMS = frozenset(_SYNONYMS_TEXT.split())
"""Names that hints leave out."""

_AS_WRITTEN_TEXT = """
    ADD_MONTHS BIT_COUNT DATEDIFF DATEPART DATE_ADD DATE_DIFF DATE_FORMAT DATE_FROM_UNIX_DATE
    DATE_PART DATE_SUB INSTR LAST_DAY MAKE_DATE PMOD REGEXP REGEXP_COUNT REGEXP_EXTRACT
    REGEXP_EXTRACT_ALL REGEXP_LIKE REGEXP_REPLACE REGEXP_SUBSTR RIGHT RLIKE SHIFTLEFT SHIFTRIGHT
    SHIFTRIGHTUNSIGNED SPLIT SPLIT_PART TIMESTAMP_MICROS TIMESTAMP_MILLIS TIMESTAMP_SECONDS TO_DATE
    TRANSLATE TRUNC UNIX_DATE UNIX_MICROS UNIX_MILLIS UNIX_SECONDS
"""
AS_WRITTEN = frozenset(_AS_WRITTEN_TEXT.split())
"""Names that are read as a call with its arguments, not as a class of sqlglot's."""

_JAVA_ROUNDED_TEXT = """
    ACOS ACOSH ASIN ASINH ATAN ATAN2 ATANH CBRT COS COSH COT CSC EXP EXPM1 HYPOT LN LOG LOG10 LOG1P
    LOG2 POW POWER SEC SIN SINH TAN TANH
"""
JAVA_ROUNDED = frozenset(_JAVA_ROUNDED_TEXT.split())
"""Functions whose last digit is that of Java's own algorithms, which nothing here has."""


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
