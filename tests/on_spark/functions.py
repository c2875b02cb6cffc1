"""Calls of every function that the in-process engine admits, drawn at random, and their values."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from millstream.errors import ExpressionError, SqlError, SqlSyntaxError
from millstream.model import Column, Schema
from millstream.sql.dialect import MillstreamParser
from millstream.sql.expressions import Projection, bind
from millstream.sql.statements.parse import parse_expression

SCHEMA = Schema.of(
    tiny="TINYINT",
    small="SMALLINT",
    i="INTEGER",
    big="BIGINT",
    r="REAL",
    d="DOUBLE",
    cents="DECIMAL(10, 2)",
    wide="DECIMAL(38, 18)",
    tall="DECIMAL(38, 0)",
    part="DECIMAL(38, 38)",
    s="VARCHAR",
    u="VARCHAR",
    b="BOOLEAN",
    y="BINARY",
    day="DATE",
    ts="TIMESTAMP",
    span="INTERVAL",
    st="STRUCT<a INT, x DOUBLE>",
    xs="ARRAY<INT>",
    kv="MAP<VARCHAR, BIGINT>",
)


def _whole(bits):
    high = 2 ** (bits - 1) - 1
    return [0, 1, -1, 2, 3, 7, 10, -15, 100, high, high - 1, -high, -high - 1]


def _exact(precision, scale):
    most = 10**precision - 1
    units = [0, 1, -1, 5, 15, -15, 25, 100, 250, -375, most, -most, most // 7]
    return [Decimal(f"{unit}e-{scale}") for unit in units]


_DOUBLES = [
    *(0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 2.675, 1e300, -1e300, 5e-324, 2.0**63, -(2.0**63)),
    *(math.nan, math.inf, -math.inf, 2.0**53 + 2, 1e16, 0.1, 1e-7, 127.9, -128.9, 1e22, 3.5),
]
_TEXTS = [
    *(
        "",
        " ",
        "a",
        "A",
        "ab",
        "aB%",
        "a_b",
        "  pad ",
        "é",
        "e\u0301",
        "😀",
        "ß",
        "İ",
        "ΑΣ",
        "a\nb",
    ),
    *("\\", "12", " -7 ", "1.5", "true", "NaN", "1e2", "aab", "%", "\x00", "abab", "now", "today"),
    *("2024-3", " +2024-3-9 x", "02024-03-09T", "2024-03-09x", "1-1-1", "epoch"),
    *("2024-02-29", "2024-02-30", "ǅ", "ﬁ", "\u00a0x\u2003", "t", "no", "infinity", "0x1", "+3"),
]
_TIMES = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1, 1, 3, 5, tzinfo=UTC),
    datetime(1582, 10, 10, 1, 1, 1, tzinfo=UTC),
    datetime(1900, 2, 28, 23, 59, 59, 1, UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2020, 12, 31, 0, 0, 1, tzinfo=UTC),
    datetime(2024, 2, 29, tzinfo=UTC),
    datetime(2026, 5, 17, 12, 30, 45, 123456, UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
]
_LONGEST = timedelta(days=106751991)
VALUES = {
    "tiny": _whole(8),
    "small": _whole(16),
    "i": _whole(32),
    "big": [*_whole(64), 2**53 + 1],
    "r": [0.0, -0.0, 1.5, -2.5, math.nan, math.inf, 3.4028234663852886e38, 1.100000023841858],
    "d": _DOUBLES,
    "cents": _exact(10, 2),
    "wide": _exact(38, 18),
    "tall": _exact(38, 0),
    "part": _exact(38, 38),
    "s": _TEXTS,
    "u": _TEXTS,
    "b": [True, False],
    "y": [b"", b"\x00", b"a", b"ab", b"\xff\xfe"],
    "day": [each.date() for each in _TIMES],
    "ts": _TIMES,
    "span": [timedelta(0), timedelta(days=1), timedelta(microseconds=-1), _LONGEST, -_LONGEST],
    "st": [{"a": 1, "x": None}, {"a": None, "x": math.nan}, {"a": -(2**31), "x": 0.5}],
    "xs": [[], [1], [None, 2], [3, 4, 5]],
    "kv": [{}, {"a": 1}, {"a": None}, {"b": 2, "a": 2**63 - 1}],
}
LITERALS = (
    *("NULL", "TRUE", "FALSE", "0", "1", "-1", "2", "3", "7L", "1.5", "-0.5", "1e2", "2.5D", "3Y"),
    *("''", "' '", "'a'", "'ab'", "'A'", "'%'", "'é'", "'_'", "'12'", "'x\\\\'"),
    *("'d.M.yy'", "'EEEE h:mm a'", "'yyyy-MM-dd HH:mm:ss.SSSSSS'", "'D MMM''s'"),
    *("'YEAR'", "'QUARTER'", "'MONTH'", "'WEEK'", "'DAY'", "'HOUR'", "'second'", "'MM'", "'dd'"),
    *("DATE '2024-02-29'", "TIMESTAMP '2026-05-17 12:30:45.5'", "INTERVAL '90' SECOND", "X'61'"),
    *("'2024-02-29'", "'now'", "'today'", "'epoch'", "YEAR", "MONTH", "DAY", "HOUR"),
)
_TYPES = (
    *(
        "TINYINT",
        "SMALLINT",
        "INT",
        "BIGINT",
        "FLOAT",
        "DOUBLE",
        "DECIMAL(10, 2)",
        "DECIMAL(38, 18)",
    ),
    *("STRING", "BOOLEAN", "BINARY", "DATE", "TIMESTAMP", "DECIMAL(5, 0)"),
)
_UNITS = (
    *("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DOW", "DOY", "DAYOFWEEK", "HOUR", "MINUTE"),
    *("SECOND", "YEAROFWEEK", "DAYOFWEEK_ISO", "DOW_ISO", "MILLISECOND"),
)
FORMS = {
    **{f"a {op} b": f"{{0}} {op} {{1}}" for op in ("+", "-", "*", "/", "%", "DIV", "||", "&", "|")},
    **{f"a {op} b": f"{{0}} {op} {{1}}" for op in ("=", "<>", "<", "<=", ">", ">=", "<=>", "^")},
    **{f"a {op} b": f"{{0}} {op} {{1}}" for op in ("<<", ">>", ">>>")},
    **{f"CAST AS {of}": f"CAST({{0}} AS {of})" for of in _TYPES},
    **{f"TRY_CAST AS {of}": f"TRY_CAST({{0}} AS {of})" for of in _TYPES},
    **{f":: {of}": f"{{0}}::{of}" for of in ("INT", "STRING", "DATE")},
    **{f"EXTRACT {unit}": f"EXTRACT({unit} FROM {{0}})" for unit in _UNITS},
    "- a": "-{0}",
    "NOT a": "NOT {0}",
    "~ a": "~{0}",
    "a AND b": "{0} AND {1}",
    "a OR b": "{0} OR {1}",
    "a IS NULL": "{0} IS NULL",
    "a IS NOT NULL": "{0} IS NOT NULL",
    "a IS TRUE": "{0} IS TRUE",
    "a IS NOT FALSE": "{0} IS NOT FALSE",
    "a IS DISTINCT FROM b": "{0} IS DISTINCT FROM {1}",
    "a IN (b, c)": "{0} IN ({1}, {2})",
    "a NOT IN (b, c)": "{0} NOT IN ({1}, {2})",
    "a BETWEEN b AND c": "{0} BETWEEN {1} AND {2}",
    "a LIKE b": "{0} LIKE {1}",
    "a NOT ILIKE b": "{0} NOT ILIKE {1}",
    "a LIKE b ESCAPE": "{0} LIKE {1} ESCAPE '/'",
    "a RLIKE b": "{0} RLIKE {1}",
    "CASE WHEN": "CASE WHEN {0} THEN {1} ELSE {2} END",
    "CASE a WHEN": "CASE {0} WHEN {1} THEN {2} END",
    "TRIM BOTH": "TRIM(BOTH {1} FROM {0})",
    "TRIM LEADING": "TRIM(LEADING {1} FROM {0})",
    "TRIM TRAILING": "TRIM(TRAILING {1} FROM {0})",
    "TRIM FROM": "TRIM({1} FROM {0})",
    "SUBSTRING FROM": "SUBSTRING({0} FROM {1})",
    "SUBSTRING FROM FOR": "SUBSTRING({0} FROM {1} FOR {2})",
    "POSITION IN": "POSITION({0} IN {1})",
    "OVERLAY": "OVERLAY({0} PLACING {1} FROM {2})",
    "a[b]": "{0}[{1}]",
    "a.a": "{0}.a",
}
"""What has no name before a parenthesis: operators, and functions with words between arguments."""
FOR_VIEWS = {
    *(f"EXTRACT {unit}" for unit in _UNITS[-4:]),
    *("POSITION IN", "OVERLAY"),
}
"""Those of them that only views know."""
_MOST = 4
_MOST_TRIES = 5000
"""So often arguments are drawn for a function that has none yet: some take few combinations."""
CALLS = {
    "ADD_MONTHS": ["{0}, i", "{0}, small", "{0}, tiny"],
    "DATE_ADD": ["{0}, i", "{0}, small", "day, {0}"],
    "DATE_FORMAT": ["{0}, 'yyyy-MM-dd HH:mm:ss.SSSSSS'", "{0}, 'EEE, d. MMMM yy h:m a'"],
    "DATE_FROM_UNIX_DATE": ["small", "i", "tiny"],
    "DATE_SUB": ["{0}, i", "{0}, small", "ts, {0}"],
    "DATEPART": ["'SECOND', {0}", "'DOW', {0}"],
    "DATE_PART": ["'SECOND', {0}", "'QUARTER', {0}", "'week', {0}"],
    "TRANSLATE": ["{0}, 'aé', 'x'", "{0}, 'a😀a', 'xyz'"],
    "DATEDIFF": ["{0}, day", "ts, {0}"],
    "DATE_DIFF": ["{0}, day", "ts, {0}"],
    "MAKE_DATE": ["{0}, tiny, tiny", "2024, tiny, {0}", "small, 2, 29"],
    "REGEXP": ["{0}, '^[ab]+$'", "{0}, 'a.|\\\\d'"],
    "REGEXP_COUNT": ["{0}, 'a'", "{0}, '[^a-z]'"],
    "REGEXP_EXTRACT": ["{0}, '(.)(b)?', 2", "{0}, '\\\\w+', 0", "{0}, '(?i)(A|é)'"],
    "REGEXP_EXTRACT_ALL": ["{0}, '(.)(b)?', 2", "{0}, '\\\\w', 0"],
    "REGEXP_LIKE": ["{0}, '^.$'", "{0}, '\\\\s'"],
    "REGEXP_REPLACE": ["{0}, '(a|\\\\d)+', 'x'", "{0}, '(.)b', '$1$1'"],
    "REGEXP_SUBSTR": ["{0}, '[a-z]+'", "{0}, '\\\\W'"],
    "RIGHT": ["{0}, i", "{0}, 1"],
    "RLIKE": ["{0}, '^(a|b)*$'", "{0}, '(?i)a.b'"],
    "SPLIT": ["{0}, 'a'", "{0}, '[ab]', 2", "{0}, '\\\\s+'"],
    "SPLIT_PART": ["{0}, u, i", "s, {0}, small", "{0}, 'a', 2", "s, u, {0}"],
    "TRUNC": ["{0}, 'YEAR'", "{0}, 'quarter'", "{0}, 'MM'", "{0}, 'WEEK'"],
}
"""Arguments of functions that chance does not find."""


@dataclass(frozen=True)
class Case:
    """A call: its text, its type, and its value for each row, or FAILS."""

    name: str
    sql: str
    type: str
    values: tuple


class Fails:
    """Stands for an error in place of a value."""

    def __repr__(self):
        return "FAILS"


FAILS = Fails()


def rows(count, dice):
    """Rows, the first all NULL, the others with one in ten values NULL."""
    pools = [VALUES[name] for name in SCHEMA.names]
    drawn = [
        tuple(None if dice.random() < 0.1 else dice.choice(pool) for pool in pools)
        for _ in range(count - 1)
    ]
    return [(None,) * len(pools), *drawn]


def all_names(more=()):
    """Every name that the grammar knows as a function, and those of Spark."""
    parser = MillstreamParser
    known = {*parser.FUNCTIONS, *parser.FUNCTION_PARSERS, *parser.NO_PAREN_FUNCTION_PARSERS}
    return sorted({each.upper() for each in (*known, *more) if each.replace("_", "").isalnum()})


def forms(names):
    """The texts of calls by name, with places for arguments; and all other forms."""
    made = {
        name: [
            *(
                f"{name}({', '.join(f'{{{n}}}' for n in range(count))})"
                for count in range(_MOST + 1)
            ),
            *(f"{name}({arguments})" for arguments in CALLS.get(name, ())),
        ]
        for name in names
    }
    return {**made, **{name: [form] for name, form in FORMS.items()}}


def bound(sql):
    """The node of a text, or None if it is refused."""
    try:
        return bind(parse_expression(sql), SCHEMA, sql=sql)
    except SqlError:
        return None


def is_admitted(name):
    """Whether calls of a name are refused for their arguments, if at all, not for the name."""
    for args in ((), ("s",), ("s", "u"), ("s", "u", "i"), ("s", "u", "s", "u")):
        sql = f"{name}({', '.join(args)})"
        try:
            bind(parse_expression(sql), SCHEMA, sql=sql)
        except SqlSyntaxError:
            continue
        except SqlError as error:
            if _BY_NAME.search(error.message):
                continue
        return True
    return False


_BY_NAME = re.compile(
    "the function .* is not supported|there is no function|is not supported here|an aggregate"
    "|are not supported$|^CURRENT_|a subquery|only fields|is not supported$"
)


ATOMS = (*SCHEMA.names, *LITERALS)


def draw(name, texts, dice, tries, most):
    """Some calls of a function that are admitted, each with other types of arguments."""
    found = {}

    def admit(text, args):
        sql = text.format(*args)
        node = None if sql in found else bound(sql)
        if node is not None and node.type.kind != "NULL":
            found[sql] = node

    for text in texts:
        places = text.count("{")
        pool = [(each,) for each in ATOMS] if places == 1 else []
        for turn in pool or [None] * tries:
            admit(text, turn or _arguments(places, dice))
    for _ in range(0 if name in FOR_VIEWS else _MOST_TRIES):
        if found:
            break
        text = dice.choice(texts)
        admit(text, _arguments(text.count("{"), dice))
    chosen = list(found.items())
    dice.shuffle(chosen)
    return chosen[:most]


def _arguments(places, dice):
    """Arguments of which several are of one type: most functions want that."""
    if not places:
        return []
    first = dice.choice(ATOMS)
    args = [first]
    for _ in range(places - 1):
        same = dice.random() < 0.4
        args.append(_like(first, dice) if same else dice.choice(ATOMS))
    return args


_FAMILIES = (
    ("s", "u", "'a'", "'ab'", "'é'", "''", "'%'"),
    ("tiny", "small", "i", "big", "0", "1", "-1", "2", "3"),
    ("r", "d", "cents", "wide", "tall", "part", "i", "1.5", "1e2"),
    ("day", "ts", "'2024-02-29'", "DATE '2024-02-29'"),
    ("b", "TRUE", "FALSE", "NULL"),
    *((f"'{unit}'", "ts", "day") for unit in ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR")),
)


def _like(first, dice):
    family = next((each for each in _FAMILIES if first in each), (first, "NULL"))
    return dice.choice(family)


def outcome(function):
    """What a function gives, or FAILS."""
    try:
        return function()
    except ExpressionError:
        return FAILS


def evaluated(name, sql, node, data, batches):
    """The call with its values, which both compiled forms must agree on."""
    schema = Schema((Column("x", node.type, nullable=True),))
    made = Projection([node], schema)
    by_row = tuple(outcome(lambda row=row: made.rows([row])[0][0]) for row in data)
    by_arrow = tuple(
        outcome(lambda batch=batch: schema.arrow_to_rows(made.arrow(batch))[0][0])
        for batch in batches
    )
    return Case(name, sql, node.type.sql, by_row), by_arrow


def plain(value):
    """The value such that equal values, and no others, are equal: NaN is, 0.0 and -0.0 are not."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, Decimal):
        return str(value)
    return value
