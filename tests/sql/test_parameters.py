"""A parameter gives what the literal gives, in whatever grammar reads it."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import StrEnum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import (
    Error,
    InvalidOptionError,
    SqlError,
    SqlParameterError,
    SqlUnsupportedError,
)
from millstream.model import Schema
from millstream.sql import parse, plan_insert, plan_select
from millstream.sql.expressions.bind import bind
from millstream.views.plan.query_text import read_tree

from ..model.strategies import SCALAR_VALUES  # noqa: TID252 - tests are no package that has a name
from ..sharing import plain_repr  # noqa: TID252

NOON = datetime(2026, 1, 2, 12, 0, 0, 6, tzinfo=UTC)
SCHEMA = Schema.of(a="BIGINT", b="VARCHAR")


class Colour(StrEnum):
    RED = "red"


def plain(sql, parameters=None):
    [select] = parse(sql, parameters)
    return select


def value_of(value):
    select = plain("SELECT ? AS v FROM t", [value])
    return bind(select.items[0].this, None, sql=select.sql)


@pytest.mark.parametrize(
    ("value", "kind", "canonical"),
    [
        (None, "NULL", None),
        (True, "BOOLEAN", True),
        (np.True_, "BOOLEAN", True),
        (7, "INTEGER", 7),
        (-7, "INTEGER", -7),
        (np.int64(2**40), "BIGINT", 2**40),
        (-(2**63), "BIGINT", -(2**63)),
        (2**63, "DECIMAL(19, 0)", Decimal(2**63)),
        (1.5, "DOUBLE", 1.5),
        (1e300, "DOUBLE", 1e300),
        (5e-324, "DOUBLE", 5e-324),
        (np.float32(0.5), "DOUBLE", 0.5),
        (float("inf"), "DOUBLE", float("inf")),
        (float("-inf"), "DOUBLE", float("-inf")),
        (Decimal("1.50"), "DECIMAL(3, 2)", Decimal("1.50")),
        (Decimal(7), "DECIMAL(1, 0)", Decimal(7)),
        (Decimal("-1E+5"), "DECIMAL(6, 0)", Decimal(-100000)),
        (Decimal("0.001"), "DECIMAL(3, 3)", Decimal("0.001")),
        ("", "VARCHAR", ""),
        ('it\'s \\ "a" \n ? :x -- /* \0 é 🦆', "VARCHAR", 'it\'s \\ "a" \n ? :x -- /* \0 é 🦆'),
        (Colour.RED, "VARCHAR", "red"),
        (b"\x00'\xff", "BINARY", b"\x00'\xff"),
        (bytearray(), "BINARY", b""),
        (date(1, 1, 1), "DATE", date(1, 1, 1)),
        (NOON.replace(tzinfo=None), "TIMESTAMP", NOON),
        (
            datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=2))),
            "TIMESTAMP",
            datetime(2026, 1, 1, 22, tzinfo=UTC),
        ),
        (timedelta(days=-3), "INTERVAL", timedelta(days=-3)),
        (timedelta(microseconds=-1), "INTERVAL", timedelta(microseconds=-1)),
    ],
)
def test_values_of_every_type(value, kind, canonical):
    node = value_of(value)
    assert (node.type.sql, node.value) == (kind, canonical)


def test_nan_and_a_zero_below_zero():
    assert np.isnan(value_of(float("nan")).value)
    assert np.signbit(value_of(-0.0).value)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        time(12),
        Decimal("NaN"),
        Decimal("1e-40"),
        10**38,
        "\ud800",
        1j,
        timedelta.max,
        len,
    ],
    ids=plain_repr,
)
def test_values_of_no_type(value):
    with pytest.raises(SqlParameterError, match="line 2, column 3"):
        parse("SELECT a FROM t WHERE a =\n  ?", [value])


scalars = st.one_of(
    st.none(),
    st.integers(-(10**37), 10**37),
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-1000, max_value=1000),
    st.floats(),
    *SCALAR_VALUES.values(),
)


@pytest.mark.slow
@given(value=scalars, name=st.sampled_from(["x", "select", "Ä", "_1"]))
def test_the_text_with_the_value_reads_as_the_same(value, name):
    """Of every grammar: the in-process one, the one for other queries, and the one for Spark."""
    for sql in (
        "SELECT a + {0} AS b FROM t WHERE {0} = a AND b IN ({0})",
        "SELECT count(*) FROM t WHERE {0} < a GROUP BY {0} HAVING sum(a) > {0}",
    ):
        by_place = plain(sql.format("?"), [value] * 3)
        by_name = plain(sql.format(f":{name}"), {name: value})
        written = plain(by_place.text)
        assert by_place.text == by_name.text == written.text
        assert by_place == by_name == written
        assert read_tree(by_place) == read_tree(by_name) == read_tree(written)


def test_a_parameter_is_found_through_the_index_of_equality():
    written = plan_select(plain("SELECT * FROM t WHERE b = 'x' AND a > 5"), SCHEMA)
    given_now = plan_select(plain("SELECT * FROM t WHERE b = ? AND a > ?", ["x", 5]), SCHEMA)
    assert given_now.equality == written.equality == (1, frozenset(["x"]))
    assert given_now.fingerprint == written.fingerprint


def test_a_list_in_in():
    for sql in ("a IN (?)", "a IN ?", "a IN (?, 3)"):
        plan = plan_select(plain(f"SELECT * FROM t WHERE {sql}", [[1, 2, 3]]), SCHEMA)
        assert plan.equality == (0, frozenset([1, 2, 3]))
    for empty in ([], (), set()):
        assert plain("SELECT * FROM t WHERE a IN (?)", [empty]) == plain(
            "SELECT * FROM t WHERE FALSE"
        )
    for sql in ("a = ?", "? IS NULL", "a + ? > 1"):
        with pytest.raises(SqlUnsupportedError, match=r"IN \(\?\)"):
            parse(f"SELECT * FROM t WHERE {sql}", [[1]])
    with pytest.raises(SqlParameterError, match="object has no SQL type"):
        parse("SELECT * FROM t WHERE a IN (?)", [[object()]])


def test_lists_and_dicts_are_values_of_an_insert():
    schema = Schema.of(a="ARRAY<INT>", m="MAP<VARCHAR, INT>", s="STRUCT<x INT, y VARCHAR>")
    [insert] = parse("INSERT INTO t VALUES (?, ?, ?)", [(1, None), {"k": 2}, {"y": "it's"}])
    assert plan_insert(insert, schema) == [([1, None], {"k": 2}, {"x": None, "y": "it's"})]
    [insert] = parse("INSERT INTO t (a) VALUES (?)", [["x"]])
    with pytest.raises(Error, match="line 1, column 27: row 0, column a: expected INTEGER"):
        plan_insert(insert, schema)


def test_where_our_own_grammar_takes_a_value():
    assert plain("SELECT a FROM t LIMIT ?", [3]).limit == 3
    assert plain("SHOW TABLES LIKE :like", {"like": "x%"}).like == "x%"
    assert plain("NOTIFY c, ?", ["it's"]).payload == "it's"
    changes = plain("SHOW CHANGES SINCE ? LIMIT ?", [5, 6])
    assert (changes.since, changes.limit) == (5, 6)
    now = datetime.now(UTC)
    assert plain("SHOW CHANGES SINCE ?", [now]).since == now
    for wrong in (-1, "3", True, 1.0, None, 10**18):
        with pytest.raises(SqlParameterError, match="column 23: the number of rows is"):
            parse("SELECT a FROM t LIMIT ?", [wrong])


def test_a_cast_follows_a_parameter():
    expected = plain("SELECT CAST(-3 AS VARCHAR) AS v FROM t").items
    assert plain("SELECT ?::VARCHAR AS v FROM t", [-3]).items == expected
    assert plain("SELECT :x::VARCHAR AS v FROM t", {"x": -3}).items == expected
    parse("SELECT a FROM t WHERE a = ?::BIGINT AND a < ? :: INT", ["1", "2"])


def test_several_statements_share_the_values():
    one, two = parse("INSERT INTO t VALUES (?, ?); DELETE FROM t WHERE a = ?", [1, "?", 2])
    assert plan_insert(one, SCHEMA) == [(1, "?")]
    assert two == plain("DELETE FROM t WHERE a = 2")
    assert (one.text, two.text) == ("INSERT INTO t VALUES (1, '?')", "DELETE FROM t WHERE a = 2")
    for sql in ("SELECT :x AS b FROM t; SELECT :y AS b FROM t", "SELECT :x + :y + :x AS a FROM t"):
        parse(sql, {"x": 1, "y": 2})


def test_marks_that_are_none():
    """In strings, names and comments, and where a colon means something else."""
    for sql in (
        "SELECT '?' AS a, ':x' AS b FROM t -- ? :x",
        'SELECT "?" AS a, ":x" AS b FROM t /* ? */',
        "SELECT a::INT AS a, CAST(b AS STRUCT<x: INT>) AS b FROM t",
    ):
        parse(sql)
        with pytest.raises(SqlParameterError, match="got 1 value for 0 parameters"):
            parse(sql, [1])


@pytest.mark.parametrize(
    ("sql", "given_now", "place", "message"),
    [
        ("a = ? AND b = ?", [1], 37, "got 1 value for 2 parameters"),
        ("a = ?", [1, 2], 27, "got 2 values for 1 parameter"),
        ("a = ?", [], 27, "got 0 values for 1 parameter"),
        ("a = ?", None, 27, "the parameter \\? has no value"),
        ("a = 1", [1], 1, "got 1 value for 0 parameters"),
        ("a = :x", None, 27, "the parameter :x has no value"),
        ("a = :x", {}, 27, "the parameter :x has no value"),
        ("a = :id", {"idd": 1}, 27, "the parameter :id has no value"),
        ("a = :x", {"x": 1, "y": 1}, 1, "the text has no parameter :y"),
        ("a = :x", [], 27, ":x takes its value from a dict, not from a list"),
        ("a = ?", {"x": 1}, 27, "\\? takes its value from a list, not from a dict"),
        ("a = ? AND b = :x", [1], 37, ":x takes its value from a dict, not from a list"),
        ("a = :x AND b = ?", {"x": 1}, 38, "\\? takes its value from a list"),
    ],
)
def test_wrong_counts_and_names(sql, given_now, place, message):
    with pytest.raises(SqlParameterError, match=f"line 1, column {place}: {message}"):
        parse(f"SELECT a FROM t WHERE {sql}", given_now)


@pytest.mark.parametrize("given_now", ["x", b"x", 5, {1, 2}, object(), iter([1])], ids=plain_repr)
def test_neither_a_list_nor_a_dict(given_now):
    with pytest.raises(InvalidOptionError, match="expected a list or a dict"):
        parse("SELECT a FROM t WHERE a = ?", given_now)


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE MATERIALIZED VIEW v AS SELECT a FROM t WHERE a = ?",
        "CREATE STREAM v AS SELECT count(*) FROM t WHERE a = ?",
        "EXPLAIN CREATE STREAM v AS SELECT a FROM t WHERE a = ?",
        "CREATE SOURCE s (a INT) WITH (buffer_size = ?)",
        "DROP TABLE ?",
        "SELECT * FROM ?",
        "SELECT count(*) FROM t JOIN ? USING (a)",
        "SELECT a AS ? FROM t",
        "UPDATE t SET ? = 1",
    ],
)
def test_a_parameter_is_a_value_and_no_name_and_is_never_stored(sql):
    with pytest.raises(SqlError) as caught:
        parse(sql, [5])
    assert caught.value.column == sql.index("?") + 1
