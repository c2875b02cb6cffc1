"""The text of types: what is written is read, aliases are understood, the rest is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import InvalidNameError, SchemaError
from millstream.model.types import parse_type

from .strategies import types


@given(types)
def test_the_text_of_a_type_names_it(each):
    assert parse_type(each.sql) == each
    assert parse_type(each.sql).arrow == each.arrow
    assert str(each) == each.sql


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("bool", "BOOLEAN"),
        ("Byte", "TINYINT"),
        ("short", "SMALLINT"),
        ("INT", "INTEGER"),
        ("long", "BIGINT"),
        ("float", "REAL"),
        (" double  precision ", "DOUBLE"),
        ("string", "VARCHAR"),
        ("text", "VARCHAR"),
        ("bytea", "BINARY"),
        ("varbinary", "BINARY"),
        ("blob", "BINARY"),
        ("decimal", "DECIMAL(38, 18)"),
        ("NUMERIC", "DECIMAL(38, 18)"),
        ("numeric(5)", "DECIMAL(5, 0)"),
        ("NUMERIC( 5 ,2 )", "DECIMAL(5, 2)"),
        ("timestamptz", "TIMESTAMP"),
        ("interval day to second", "INTERVAL"),
        ("array<array<int>>", "ARRAY<ARRAY<INTEGER>>"),
        ("map<string,array<int>>", "MAP<VARCHAR, ARRAY<INTEGER>>"),
        ("struct<a:int,`b c` : text>", 'STRUCT<a INTEGER, "b c" VARCHAR>'),
        ('struct<"a""b" int, date date>', 'STRUCT<"a""b" INTEGER, date DATE>'),
    ],
)
def test_aliases_and_spellings(text, sql):
    assert parse_type(text).sql == sql


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "unknown type the end at position 0"),
        ("FOO", "unknown type 'FOO' at position 0"),
        ("ARRAY<FOO>", "unknown type 'FOO' at position 6"),
        ("INT3", "unknown type 'INT3'"),
        ("ARRAY", "expected '<', got the end at position 5"),
        ("ARRAY<INT", "expected '>', got the end"),
        ("INT INT", "unexpected 'INT' at position 4"),
        ("INT NOT NULL", "unexpected 'NOT'"),
        ("ARRAY<INT NOT NULL>", "NOT NULL is not allowed"),
        ("STRUCT<a INT NOT NULL>", "NOT NULL is not allowed"),
        ("VARCHAR(10)", "VARCHAR takes no length"),
        ("ARRAY<VARBINARY(10)>", "VARBINARY takes no length"),
        ("TIMESTAMP(3)", "TIMESTAMP takes no parameter"),
        ("DECIMAL(0)", r"DECIMAL\(0, 0\) cannot be"),
        ("DECIMAL(39, 2)", "cannot be"),
        ("DECIMAL(3, 4)", "cannot be"),
        ("DECIMAL(x)", "expected a number, got 'x'"),
        ("DECIMAL(99999)", "expected a number"),
        ("DECIMAL(٣)", "expected a number"),
        ("STRUCT<>", "expected the name of a field, got '>'"),
        ("STRUCT<1 INT>", "name of a field, got '1'"),
        ('STRUCT<"" INT>', "name of a field"),
        ('STRUCT<"a INT>', "name of a field"),
        ("STRUCT<a INT, A INT>", "twice"),
        ("STRUCT<a INT, a TEXT>", "twice"),
        ("MAP<INT>", "expected ',', got '>'"),
        ("MAP<ARRAY<INT>, INT>", "cannot be the key of a MAP"),
        ("ARRAY<" * 40 + "INT" + ">" * 40, "levels deep"),
        ("ARRAY<" * 100_000, "levels deep"),
        ("INT;", "unexpected ';'"),
    ],
)
def test_text_that_names_no_type(text, reason):
    with pytest.raises(SchemaError, match=reason) as caught:
        parse_type(text)
    assert caught.value.hint


@given(st.text(st.sampled_from('ARYMPINTSUC<>(),:12 "`né\n')))
def test_no_text_breaks_the_parser(text):
    try:
        parsed = parse_type(text)
    except (SchemaError, InvalidNameError):
        return
    assert parse_type(parsed.sql) == parsed


def test_a_reserved_field_is_refused():
    with pytest.raises(InvalidNameError, match="_lsn"):
        parse_type("STRUCT<_lsn INT>")
