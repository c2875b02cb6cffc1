"""Binding: what is refused, where, and with what advice."""

import pytest

from millstream.errors import SqlColumnError, SqlError, SqlTypeError, SqlUnsupportedError
from millstream.model import Schema
from millstream.sql.expressions import bind
from millstream.sql.statements.parse import parse_expression

SCHEMA = Schema.of(
    {"order": "BIGINT", "unit price": "DOUBLE"},
    Price="DOUBLE",
    symbol="VARCHAR",
    n="INT",
    r="REAL",
    day="DATE",
    ts="TIMESTAMP",
    span="INTERVAL",
    wide="DECIMAL(38, 18)",
    st="STRUCT<part STRUCT<x INT>, y INT>",
    xs="ARRAY<INT>",
    kv="MAP<VARCHAR, INT>",
    fs="MAP<DOUBLE, INT>",
)


def bound(sql, schema=SCHEMA, alias=None):
    return bind(parse_expression(sql), schema, sql=sql, alias=alias)


@pytest.mark.parametrize(
    ("sql", "canonical"),
    [
        ("PRICE > 100.0 and SYMBOL = 'it''s'", "Price > 100.0D AND symbol = 'it''s'"),
        ('`order` = 1 OR "ORDER" = 2', '"order" = 1L OR "order" = 2L'),
        ("t.n = 1 AND T.N = 2", "n = 1 AND n = 2"),
        ("st.PART.X = 1", "((st.part).x) = 1"),
        ("t.st.y + 1", "(st.y) + 1"),
        ("n IN (2, 1, NULL, 2)", "n IN (1, 2, NULL)"),
        ("n IN (7)", "n = 7"),
        ("NOT n BETWEEN 1 AND 2", "NOT (n >= 1 AND n <= 2)"),
        ("100 < n", "n > 100"),
        ("n > 1.5", "n > 1"),
        ("n >= 1.0", "n >= 1"),
        ("ts >= '2026-01-31'", "ts >= TIMESTAMP '2026-01-31 00:00:00'"),
        ("n = 1 + 2 * 3", "n = 7"),
        ("(n = 1 OR n = 2) AND n = 3", "(n = 1 OR n = 2) AND n = 3"),
        ("symbol LIKE '{}%'", "symbol LIKE '{}%'"),
        ("- - n", "-(-n)"),
        ("NOT NOT (n = 1)", "NOT (NOT (n = 1))"),
        ("kv['a'] = 1", "(kv['a']) = 1"),
    ],
)
def test_canonical_text(sql, canonical):
    node = bound(sql, alias="t")
    assert node.sql == canonical
    assert bound(node.sql).sql == node.sql


@pytest.mark.parametrize(
    ("sql", "type_name"),
    [
        ("n + 1", "INTEGER"),
        ("n / 2", "DOUBLE"),
        ("n * 1.5", "DECIMAL(13, 1)"),
        ("r + 1.5", "DOUBLE"),
        ("r + r", "REAL"),
        ("COALESCE(n, 2.5)", "DECIMAL(11, 1)"),
        ("IF(n > 1, day, ts)", "TIMESTAMP"),
        ("CASE WHEN n > 1 THEN NULL ELSE n END", "INTEGER"),
        ("COALESCE(ts, '2026-01-01')", "TIMESTAMP"),
    ],
)
def test_types_are_those_of_spark(sql, type_name):
    assert bound(sql).type.sql == type_name


@pytest.mark.parametrize(
    ("sql", "error", "column", "message", "hint"),
    [
        ("n = 1 AND prise > 2", SqlColumnError, 11, "no column prise", "Did you mean Price?"),
        ("w.y = 1", SqlColumnError, 1, "no column w", "Available columns: order"),
        ("z.n = 1", SqlColumnError, 1, "no table or alias z", "called t here"),
        ("st.z = 1", SqlColumnError, 1, "no field z", "Available fields: part, y"),
        ("n.z = 1", SqlTypeError, 1, "has no fields", "Leave it out"),
        ("uper(symbol) = 'A'", SqlColumnError, 1, "no function UPER", "Did you mean UPPER?"),
        ("n = 1 AND symbol > 5", SqlTypeError, 11, "cannot compare VARCHAR with INTEGER", "CAST"),
        ("Price > 'five'", SqlTypeError, 1, "'five' is not a valid DOUBLE", "without quotes"),
        ("n = '1.5'", SqlTypeError, 1, "'1.5' is not a valid BIGINT", "without quotes"),
        ("ts > '2026-13-01'", SqlTypeError, 1, "is not a valid TIMESTAMP", "Write '2026-01-31'"),
        ("symbol + 1 = 2", SqlTypeError, 1, "no operator VARCHAR + INTEGER", "CAST"),
        ("ABS(symbol) = 1", SqlTypeError, 5, "expected a number", "CAST"),
        ("UPPER(n) = 'A'", SqlTypeError, 7, "expected VARCHAR", "CAST it AS VARCHAR"),
        ("YEAR(symbol) = 1", SqlTypeError, 6, "expected DATE or TIMESTAMP", "TIMESTAMP '...'"),
        ("n AND n = 1", SqlTypeError, 1, "expected a condition", "Compare"),
        ("xs = xs", SqlUnsupportedError, 1, "cannot be compared", "elements"),
        (
            "fs[1D] = 1",
            SqlTypeError,
            1,
            "cannot subscript MAP<DOUBLE, INTEGER>",
            "a MAP",
        ),
        ("symbol RLIKE 'a++'", SqlUnsupportedError, 1, "regular expression", "LIKE"),
        ("symbol LIKE symbol", SqlUnsupportedError, 1, "constant pattern", "STARTSWITH"),
        (r"symbol LIKE 'a\\b'", SqlUnsupportedError, 1, "does not stand before", "for the char"),
        ("symbol LIKE 'a!' ESCAPE '!'", SqlUnsupportedError, 1, "does not stand", "itself"),
        ("CAST(Price AS VARCHAR) = ''", SqlUnsupportedError, 1, "is not exact", "two steps"),
        ("CAST(symbol AS TIMESTAMP) = ts", SqlUnsupportedError, 1, "is not exact", "two steps"),
        ("CAST(`order` AS REAL) = 1", SqlUnsupportedError, 1, "is not exact", "two steps"),
        ("ROUND(r, 1) = 1", SqlUnsupportedError, 1, "is not exact", "DOUBLE"),
        (
            "n < 300Y",
            SqlUnsupportedError,
            5,
            "the number 300 is out of the range of TINYINT",
            "letters",
        ),
        (
            "1 < 1e39F",
            SqlUnsupportedError,
            5,
            "the number 1e39 is out of the range of REAL",
            "letters",
        ),
        ("n < 1e400", SqlUnsupportedError, 5, "the number 1e400 is too large", "DOUBLE"),
        ("ts < TRY_CAST('now' AS TIMESTAMP)", SqlTypeError, 6, "is not a valid TIMESTAMP", "Write"),
        ("ts < 'today'", SqlTypeError, 1, "is not a valid TIMESTAMP", "Write"),
        ("ROUND(Price, n) = 1", SqlUnsupportedError, 1, "constant number", "ROUND(x, 2)"),
        (
            "EXP(Price) = 1",
            SqlUnsupportedError,
            1,
            "EXP is not supported",
            "Java rounds",
        ),
        (
            "POWER(Price, 2) = 1",
            SqlUnsupportedError,
            1,
            "not supported",
            "Java rounds",
        ),
        ("ts > CURRENT_TIMESTAMP()", SqlUnsupportedError, 6, "not supported", "at any time"),
        ("ts + INTERVAL '1' MONTH > ts", SqlUnsupportedError, 6, "INTERVAL", "no fixed length"),
        ("day + INTERVAL '1' HOUR > day", SqlUnsupportedError, 1, "only days", "CAST the DATE"),
        ("Price DIV 2 = 1", SqlUnsupportedError, 1, "DIV is for integers", "BIGINT"),
        ("n IN (1, 1 / n)", SqlUnsupportedError, 1, "can fail", "OR"),
        ("DATE_TRUNC('DECADE', ts) = ts", SqlUnsupportedError, 1, "unit", "QUARTER"),
        ("EXTRACT(ERA FROM ts) = 1", SqlUnsupportedError, 1, "EXTRACT", "EXTRACT takes YEAR"),
        ("n < 12345678901234567890", SqlUnsupportedError, 1, "no integer", "Leave"),
        ("GREATEST(n) = 1", SqlTypeError, 1, "GREATEST takes 2 or more arguments", "Check"),
        ("LOWER() = 'a'", SqlTypeError, 1, "LOWER takes 1 argument", "Check"),
        ("n = LEFT(symbol, 1, 2)", SqlTypeError, 5, "LEFT takes 2 arguments", "Check"),
        ("IF(n = 1, 2) = 1", SqlTypeError, 1, "an argument is missing", "Write all arguments"),
        ("CONCAT_WS('-', symbol) = ''", SqlUnsupportedError, 1, "CONCAT_WS", "functions that run"),
        ("DAY_OF_WEEK(ts) = 1", SqlUnsupportedError, 1, "DAY_OF_WEEK", "functions that run"),
        ("DATE_TRUNC(DAY, ts) = ts", SqlTypeError, 1, "DATE_TRUNC takes 2", "a text"),
        ("GREATEST(ts, '2026-01-01') = ts", SqlTypeError, 1, "TIMESTAMP and VARCHAR", "CAST"),
        ("n IS 1", SqlError, None, "", ""),
        ("Price & 1 = 1", SqlTypeError, 1, "expected an integer, got DOUBLE", "BIGINT"),
        (
            "wide * 1.5 = wide + 12345678901234567890",
            SqlUnsupportedError,
            1,
            "cannot compare",
            "CAST",
        ),
    ],
)
def test_refusals_say_where_and_what_to_do(sql, error, column, message, hint):
    with pytest.raises(error) as caught:
        bound(sql, alias="t")
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.hint
    if column is not None:
        assert (caught.value.line, caught.value.column) == (1, column)


def test_no_columns_where_only_constants_may_be():
    with pytest.raises(SqlColumnError, match="only constants"):
        bound('"abc"', schema=None)


def test_long_chains_are_taken_and_deep_nests_refused():
    parts = [f"n = {each} + 1" for each in range(2000)]
    assert bound(" OR ".join(parts)).type.sql == "BOOLEAN"
    assert bound(" AND ".join(parts)).type.sql == "BOOLEAN"
    with pytest.raises(SqlUnsupportedError, match="nested too deep"):
        bound(" + ".join(["n"] * 100))
