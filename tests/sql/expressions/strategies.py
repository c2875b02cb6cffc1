"""What the tests of expressions draw: SQL text of a wanted kind, and rows to evaluate it on."""

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from hypothesis import strategies as st

from millstream.model import Schema

SCHEMA = Schema.of(
    tiny="TINYINT",
    small="SMALLINT",
    i="INTEGER",
    n="INTEGER NOT NULL",
    big="BIGINT",
    r="REAL",
    d="DOUBLE",
    e="DOUBLE NOT NULL",
    cents="DECIMAL(10, 2)",
    wide="DECIMAL(38, 18)",
    s="VARCHAR",
    u="VARCHAR NOT NULL",
    b="BOOLEAN",
    c="BOOLEAN NOT NULL",
    y="BINARY",
    day="DATE",
    ts="TIMESTAMP",
    span="INTERVAL",
    st="STRUCT<a INT, x DOUBLE>",
    xs="ARRAY<INT>",
    kv="MAP<VARCHAR, BIGINT>",
)


HIGH = {bits: 2 ** (bits - 1) - 1 for bits in (8, 16, 32, 64)}


def integers(bits):
    high = HIGH[bits]
    return [0, 1, -1, 2, 3, 7, 10, -15, high, high - 1, -high, -high - 1, high // 3]


DOUBLES = [
    *(0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 2.675, 1e300, -1e300, 5e-324, 2.0**63, -(2.0**63)),
    *(math.nan, math.inf, -math.inf, 9007199254740993.0, 1e16, 100.0, 0.1, 1e-7, 127.9, -128.9),
]
TEXTS = [
    *("", " ", "a", "A", "ab", "aB%", "a_b", "  pad ", "é", "😀", "ß", "İ", "ΑΣ", "a\nb", "\\"),
    *(
        "2024-2-29 x",
        " 2024-03",
        "12",
        " -7 ",
        "1.5",
        "true",
        "NaN",
        "1e2",
        "aab",
        "%",
        "\x00",
        "abab",
    ),
]


def decimals(precision, scale):
    most = 10**precision - 1
    units = [0, 1, -1, 5, 15, 100, 250, -375, most, -most, most // 7]
    return [Decimal(f"{unit}e-{scale}") for unit in units]


TIMES = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1, 1, 3, 5, tzinfo=UTC),
    datetime(1582, 10, 10, 1, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2024, 2, 29, tzinfo=UTC),
    datetime(2026, 5, 17, 12, 30, 45, 123456, UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
]
LONGEST = timedelta(days=106751991)
SPANS = [timedelta(0), timedelta(days=1), timedelta(microseconds=-1), LONGEST, -LONGEST]

VALUES = {
    "tiny": integers(8),
    "small": integers(16),
    "i": integers(32),
    "n": integers(32),
    "big": [*integers(64), 2**53 + 1],
    "r": [0.0, -0.0, 1.5, math.nan, math.inf, 3.4028234663852886e38, 1.100000023841858],
    "d": DOUBLES,
    "e": DOUBLES,
    "cents": decimals(10, 2),
    "wide": decimals(38, 18),
    "s": TEXTS,
    "u": TEXTS,
    "b": [True, False],
    "c": [True, False],
    "y": [b"", b"\x00", b"a", b"\xff"],
    "day": [when.date() for when in TIMES],
    "ts": TIMES,
    "span": SPANS,
    "st": [{"a": 1, "x": None}, {"a": None, "x": math.nan}, {"a": -(2**31), "x": 0.5}],
    "xs": [[], [1], [None, 2], [3, 4, 5]],
    "kv": [{}, {"a": 1}, {"a": None}, {"b": 2, "a": 2**63 - 1}],
}


def a_row(random):
    """One row: mostly plain values that fail nowhere, so that whole batches have values, too."""
    calm = random.random() < 0.5
    values = []
    for column in SCHEMA.columns:
        pool = VALUES[column.name]
        if column.nullable and random.random() < 0.2:
            values.append(None)
        else:
            values.append(random.choice(pool[:5] if calm else pool))
    return tuple(values)


row = st.randoms(use_true_random=False).map(a_row)
rows = st.lists(row, max_size=6)


# --- Text -----------------------------------------------------------------------------------------

LEAVES = {
    "int": [
        *("tiny", "small", "i", "n", "big", "st.a", "kv['a']"),
        *("0", "1", "-1", "2", "7", "100L", "2147483647", "CAST(3 AS TINYINT)"),
    ],
    "double": ["r", "d", "e", "st.x", "0D", "1.5D", "-1e300", "CAST('NaN' AS DOUBLE)", "2D"],
    "decimal": ["cents", "wide", "0.0", "1.50", "-3.75", "12345678901234567890"],
    "text": ["s", "u", "''", "'a'", "'é'", "'12'", "' a '"],
    "bool": ["b", "c", "TRUE", "FALSE", "CAST(NULL AS BOOLEAN)"],
    "date": ["day", "DATE '2024-02-29'", "DATE '9999-12-31'"],
    "time": ["ts", "TIMESTAMP '2026-05-17 12:30:45.5'"],
    "span": ["span", "INTERVAL '1' DAY", "INTERVAL '90' SECOND", "INTERVAL '-1.5' SECOND"],
}

# Each form is a text with the kinds of its operands in braces.
FORMS = {
    "int": [
        *("({int} + {int})", "({int} - {int})", "({int} * {int})", "({int} % {int})"),
        *("({int} DIV {int})", "-({int})", "ABS({int})", "LENGTH({text})", "CEIL({double})"),
        *("FLOOR({double})", "FLOOR({int})", "ROUND({int})", "ROUND({int}, -1)", "YEAR({time})"),
        *("MONTH({date})", "DAY({time})", "HOUR({time})", "MINUTE({time})", "SECOND({time})"),
        *("QUARTER({date})", "DAYOFWEEK({date})", "WEEKDAY({time})", "DAYOFYEAR({date})"),
        *("WEEKOFYEAR({date})", "CAST({double} AS INT)", "CAST({double} AS BIGINT)"),
        *("CAST({int} AS TINYINT)", "CAST({bool} AS INT)", "CAST({decimal} AS INT)"),
        *("TRY_CAST({text} AS INT)", "CAST({text} AS BIGINT)", "TRY_CAST({int} AS SMALLINT)"),
        *("({int} & {int})", "({int} | {int})", "({int} ^ {int})", "~{int}", "BIT_COUNT({int})"),
        *(
            "({int} << i)",
            "({int} >> n)",
            "({int} >>> i)",
            "SHIFTLEFT({int}, tiny)",
            "INSTR({text}, {text})",
        ),
        *("xs[{int}]", "xs[0]", "LENGTH(y)", "MOD({int}, {int})", "TRY_CAST({double} AS TINYINT)"),
    ],
    "double": [
        *(
            "({double} + {double})",
            "({double} - {int})",
            "({double} * {decimal})",
            "({int} / {int})",
        ),
        *("({double} / {double})", "({double} % {double})", "-({double})", "ABS({double})"),
        *("SQRT({double})", "SIGN({double})", "SIGN({int})", "ROUND({double}, 2)", "(r * r)"),
        *("(r + r)", "(r - CAST({double} AS REAL))", "CAST({int} AS DOUBLE)", "(r % r)"),
        *("CAST({decimal} AS DOUBLE)", "CAST({double} AS REAL)", "TRY_CAST({text} AS DOUBLE)"),
        *(
            "ROUND({double})",
            "ROUND({double}, -1)",
            "CAST({bool} AS DOUBLE)",
            "CAST(small AS REAL)",
        ),
    ],
    "decimal": [
        *("({decimal} + {decimal})", "({decimal} - {int})", "({decimal} * {decimal})"),
        *("({decimal} / {decimal})", "({decimal} % {decimal})", "-({decimal})", "ABS({decimal})"),
        *("EXTRACT(SECOND FROM {time})", "DATE_PART('SECOND', {date})"),
        *("CEIL({decimal})", "FLOOR({decimal})", "ROUND({decimal}, 1)", "(cents * {int})"),
        *("CAST({int} AS DECIMAL(38, 2))", "CAST({decimal} AS DECIMAL(20, 3))"),
        *(
            "CAST({double} AS DECIMAL(20, 5))",
            "TRY_CAST({text} AS DECIMAL(5, 1))",
            "(cents + cents)",
        ),
    ],
    "text": [
        *("UPPER({text})", "LOWER({text})", "TRIM({text})", "LTRIM({text})", "RTRIM({text})"),
        *("TRIM(BOTH 'ab' FROM {text})", "SUBSTRING({text}, 2, 1)", "SUBSTRING({text}, -2)"),
        *(
            "DATE_FORMAT({time}, 'EEE, d MMM yyyy HH:mm:ss.SSS a')",
            "DATE_FORMAT(day, 'yyMMdd DDD')",
        ),
        *("REGEXP_EXTRACT({text}, '([a-c]+)(.)?', 2)", "REGEXP_REPLACE({text}, '(a|é)', '<$1>')"),
        "TRANSLATE({text}, 'aé', 'x')",
        *("REGEXP_SUBSTR({text}, '\\\\w+$')", "SPLIT({text}, '[ab]')[0]"),
        *("REGEXP_EXTRACT_ALL({text}, 'a.', 0)[0]", "SPLIT({text}, 'a', 2)[1]"),
        *("SPLIT({text}, 'a')[small]", "SPLIT({text}, '\\\\.')[0]", "SPLIT({text}, 'a', 1)[i]"),
        *("RIGHT({text}, 1)", "RIGHT({text}, i)", "SPLIT_PART({text}, {text}, small)"),
        *("SUBSTRING({text}, {int}, 2)", "SUBSTRING({text}, 0, 2)", "({text} || {text})"),
        *("CONCAT({text}, {int}, {bool})", "REPLACE({text}, 'a', 'xy')", "LEFT({text}, 2)"),
        *("REPLACE({text}, {text}, {text})", "REVERSE({text})", "CAST({int} AS VARCHAR)"),
        *("CAST({bool} AS VARCHAR)", "CAST({decimal} AS VARCHAR)", "CAST({date} AS VARCHAR)"),
        *("CAST({time} AS VARCHAR)",),
    ],
    "bool": [
        *("({text} RLIKE '^[a-z]+$')", "({text} NOT RLIKE '(?i)a.|\\\\s')"),
        *("({bool} AND {bool})", "({bool} OR {bool})", "(NOT {bool})", "({bool} IS NULL)"),
        *("({bool} IS TRUE)", "({bool} IS NOT FALSE)", "({int} IS NOT NULL)", "ISNAN({double})"),
        *("({int} IN (1, 2, 7))", "({int} NOT IN (1, NULL))", "({text} IN ('a', '', 'é'))"),
        *("({double} IN (0, 1.5, CAST('NaN' AS DOUBLE)))", "({decimal} IN (1.5, 0, -3.75))"),
        *("({int} BETWEEN -1 AND 10)", "({double} BETWEEN {double} AND 100)", "(i IN (n, 1))"),
        *("({text} LIKE 'a%')", "({text} LIKE '%b')", "({text} LIKE '%a%')", "({text} LIKE '_')"),
        *("({text} NOT LIKE 'a\\\\_b%')", "({text} LIKE '%a%b%')", "({text} ILIKE 'A_%')"),
        *("({text} LIKE '!%%' ESCAPE '!')", "({text} LIKE '_\n_')", "({text} LIKE 'a')"),
        *("STARTSWITH({text}, 'a')", "ENDSWITH({text}, {text})", "CONTAINS({text}, {text})"),
        *("({int} > 1.5)", "({int} <= -0.5)", "({int} = 2.5)", "(1.5 < {int})", "(tiny < 1000)"),
        *("CAST({int} AS BOOLEAN)", "TRY_CAST({text} AS BOOLEAN)", "(y = X'00')", "(y < X'61')"),
        *("({date} < {time})", "({time} >= '2026-05-17')", "({date} = '2024-02-29')"),
        *("(day IN ('2024-02-29', '1970-01-01'))", "({time} BETWEEN '0001-01-01' AND {time})"),
    ],
    "date": [
        "CAST({time} AS DATE)",
        "({date} + 1)",
        "({date} - INTERVAL '2' DAY)",
        "({date} + tiny)",
        *("DATE_ADD({time}, i)", "DATE_SUB({date}, 1)", "ADD_MONTHS({date}, small)"),
        *("LAST_DAY({date})", "TRUNC({date}, 'QUARTER')", "TRUNC({time}, 'WEEK')"),
        *("MAKE_DATE(small, tiny, tiny)", "DATE_FROM_UNIX_DATE(small)", "TO_DATE({text})"),
        *("CAST(s AS DATE)", "TRY_CAST(u AS DATE)"),
    ],
    "time": [
        *("({time} + {span})", "({time} - {span})", "CAST({date} AS TIMESTAMP)"),
        *(
            f"DATE_TRUNC('{unit}', {{time}})"
            for unit in ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY")
        ),
        *(f"DATE_TRUNC('{unit}', {{time}})" for unit in ("HOUR", "SECOND", "MILLISECOND")),
        "DATE_TRUNC('MINUTE', {date})",
        *("TIMESTAMP_SECONDS({int})", "TIMESTAMP_MILLIS({int})", "TIMESTAMP_MICROS({int})"),
    ],
    "span": [
        "({span} + {span})",
        "({span} - {span})",
        "-({span})",
        "({time} - {time})",
        "({date} - {date})",
    ],
}
for kind in LEAVES:
    hole = "{" + kind + "}"
    FORMS[kind] += [
        f"COALESCE({hole}, {hole})",
        f"CASE WHEN {{bool}} THEN {hole} WHEN {{bool}} THEN {hole} ELSE {hole} END",
        f"IF({{bool}}, {hole}, NULL)",
        f"NULLIF({hole}, {hole})",
        f"GREATEST({hole}, {hole}, {hole})",
        f"LEAST({hole}, {hole})",
    ]
    for symbol in ("=", "<>", "<", "<=", ">", ">=", "<=>"):
        FORMS["bool"].append(f"({hole} {symbol} {hole})")
    FORMS["bool"].append(f"({hole} IS DISTINCT FROM {hole})")
FORMS["bool"] += ["(span IN (INTERVAL '1' DAY, INTERVAL '0' DAY))", "(y IN (X'00', X'61'))"]
FORMS["bool"] += ["(b IN (TRUE, NULL))", "(ts NOT IN ('1970-01-01', '2024-02-29'))"]
FORMS["bool"] += ["({int} < {double})", "({decimal} >= {int})", "({decimal} = {double})"]
FORMS["bool"] += ["({double} > 100.0)", "({double} <= 0)", "({double} <> 2.5)", "(r > 1.1)"]


@st.composite
def expression(draw, kind, depth=2):
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return draw(st.sampled_from(LEAVES[kind]))
    form = draw(st.sampled_from(FORMS[kind]))
    while "{" in form:
        start, end = form.index("{"), form.index("}")
        inner = draw(expression(form[start + 1 : end], depth - 1))
        form = form[:start] + inner.replace("{", "\0").replace("}", "\1") + form[end + 1 :]
    return form.replace("\0", "{").replace("\1", "}")


kinds = st.sampled_from(sorted(LEAVES))
anything = kinds.flatmap(expression)
conditions = expression("bool", 3)
