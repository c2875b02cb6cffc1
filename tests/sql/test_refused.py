"""Every statement of ``fixtures/refused.sql`` is refused as it says there: class, place, hint."""

from pathlib import Path

import pytest

from millstream import errors
from millstream.errors import SqlError, SqlSyntaxError, SqlUnsupportedError
from millstream.masking import without_secrets
from millstream.sql import parse, parse_expression

FIXTURE = Path(__file__).parent / "fixtures" / "refused.sql"


def blocks():
    for block in FIXTURE.read_text().split("\n\n")[1:]:
        sql, caret, error, hint = block.rstrip("\n").split("\n")
        kind, message = error.removeprefix("-- ").split(": ", 1)
        hint = hint.removeprefix("-- hint: ")
        yield pytest.param(sql, len(caret), kind, message, hint, id=sql)


@pytest.mark.parametrize(("sql", "column", "kind", "message", "hint"), list(blocks()))
def test_refused(sql, column, kind, message, hint):
    with pytest.raises(SqlError) as caught:
        parse(sql)
    error = caught.value
    assert (type(error), error.message, error.hint) == (getattr(errors, kind), message, hint)
    assert (error.sql, error.line, error.column) == (without_secrets(sql), 1, column)


@pytest.mark.parametrize("sql", ["", "  ", ";", " ;; ", "-- nothing\n", "/* nothing */ ;"])
def test_no_statement(sql):
    with pytest.raises(SqlSyntaxError, match="there is no statement") as caught:
        parse(sql)
    assert (caught.value.line, caught.value.sql) == (0, sql)


@pytest.mark.parametrize(
    ("sql", "line", "column"),
    [
        ("SHOW TABLES;\n  SHOW SURCES", 2, 8),
        ("DELETE\r\n\tFROM\r\n t\r\n GROUP BY a", 4, 2),
        ("-- first\n/* and\nmore */ DELETE FROM t WHERE max(a) > 1", 3, 29),
        ("DELETE FROM t WHERE a = 'é\u2028x' ORDER BY u", 2, 4),
        ("SELECT a FROM t\nWHERE a >\n", 2, 10),
        ("CREATE SOURCE t (\n  a INT,\n  b ARRAY< /* of */ FOO>\n)", 3, 21),
        ("CREATE TABLE t (a INT,\n PRIMARY KEY (a,\n  b))", 3, 3),
        ("SELECT a FROM t WHERE\n 'x", 2, 2),
    ],
)
def test_places_in_many_lines(sql, line, column):
    with pytest.raises(SqlError) as caught:
        parse(sql)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert f"line {line}, column {column}: " in str(caught.value)


def test_one_bad_statement_refuses_the_whole_text():
    with pytest.raises(SqlUnsupportedError, match="CREATE VIEW"):
        parse("DROP SOURCE s; CREATE VIEW v AS SELECT 1")


@pytest.mark.parametrize("inner", ["(", "NOT ", "CASE WHEN ", "ARRAY(", "- "])
def test_deep_nesting_is_an_error_not_a_crash(inner):
    with pytest.raises(SqlSyntaxError, match="nested too deeply") as caught:
        parse("SELECT * FROM t WHERE " + inner * 20_000 + "a")
    assert caught.value.hint


@pytest.mark.parametrize("sql", ["", "a b", "a;", "(SELECT 1)", "count(*)", "a AS b", "a, b"])
def test_no_expression(sql):
    if sql == "a;":  # a semicolon ends, and does no harm
        assert parse_expression(sql).sql() == "a"
        return
    with pytest.raises(SqlError) as caught:
        parse_expression(sql)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("digits", "suffixes"), [("9", ["", "L", "D", "BD", ".5", "-1e3"]), ("0", ["L", "D", "BD"])]
)
def test_numbers_of_thousands_of_digits(digits, suffixes):
    for suffix in suffixes:
        with pytest.raises(SqlError, match="digits") as caught:
            parse(f"SELECT a FROM t WHERE a > {digits * 5000}{suffix}")
        assert (caught.value.line, caught.value.column) == (1, 27)


@pytest.mark.parametrize("number", ["0" * 5000, "0" * 5000 + ".5", "9" * 5000 + "e1"])
def test_numbers_of_thousands_of_digits_that_say_little(number):
    assert len(parse(f"SELECT a FROM t WHERE a > {number}")) == 1
