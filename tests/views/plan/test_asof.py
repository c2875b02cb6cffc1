"""ASOF joins: what Spark reads of them, and which are refused."""

from __future__ import annotations

import pytest

from millstream.errors import SqlUnsupportedError
from millstream.model.schema import Column, Schema
from millstream.model.types import parse_type
from millstream.sql import Input, parse
from millstream.views.plan.planner import plan_query

COLUMNS = [("k", "BIGINT"), ("ts", "TIMESTAMP"), ("n", "BIGINT")]
SCHEMA = Schema(tuple(Column(name, parse_type(kind)) for name, kind in COLUMNS))
START = "CREATE MATERIALIZED VIEW v AS SELECT a.n FROM "
BACKWARD = "ASOF JOIN `__log1` AS b MATCH_CONDITION (a.ts >= b.ts) ON (a.k = b.k)"


def joined(text, start=START):
    """The Spark SQL of a view, from its join on."""
    inputs = {name: Input(name, "source", SCHEMA) for name in ("s", "q", "u")}
    sql = plan_query(parse(start + text)[0], lambda name: inputs[name]).spark_sql
    return sql.split("`__log0` AS a ", 1)[-1]


@pytest.mark.parametrize(
    "text",
    [
        "s a ASOF JOIN q b ON a.k = b.k AND a.ts >= b.ts",
        "s a ASOF INNER JOIN q b ON a.ts >= b.ts AND (a.k = b.k)",
        "s a INNER ASOF JOIN q b MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k",
        "s AS a ASOF JOIN q AS b MATCH_CONDITION (a.ts >= b.ts) ON (a.k = b.k)",
    ],
)
def test_each_spelling(text):
    assert joined(text) == BACKWARD


@pytest.mark.parametrize(
    "text",
    [
        "s a ASOF LEFT JOIN q b ON a.k = b.k AND a.ts >= b.ts",
        "s a LEFT ASOF JOIN q b ON a.k = b.k AND a.ts >= b.ts",
        "s a LEFT OUTER ASOF JOIN q b MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k",
    ],
)
def test_left(text):
    assert joined(text) == f"LEFT {BACKWARD}"


@pytest.mark.parametrize(
    ("match", "bound"),
    [
        ("a.ts >= b.ts", "a.ts - b.ts <= INTERVAL '5' SECOND"),
        ("a.ts >= b.ts", "INTERVAL '5' SECOND > a.ts - b.ts"),
        ("a.ts > b.ts", "a.ts <= b.ts + INTERVAL '5' SECOND"),
        ("b.ts <= a.ts", "b.ts >= a.ts - INTERVAL '5' SECOND"),
        ("a.ts <= b.ts", "b.ts - a.ts <= INTERVAL '5' SECOND"),
        ("a.ts < b.ts", "b.ts < a.ts + INTERVAL '5' SECOND"),
        ("a.n >= b.n", "a.N - b.n <= 5"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_tolerance(match, bound, first):
    both = f"{match} AND {bound}" if first else f"{bound} AND {match}"
    expected = f"MATCH_CONDITION {match} ON a.k = b.k AND {bound}"
    for text in (
        f"s a ASOF JOIN q b MATCH_CONDITION ({both}) ON a.k = b.k",
        f"s a ASOF JOIN q b ON a.k = b.k AND {both}",
    ):
        found = joined(text).split(" AS b ")[1]
        assert found.replace("(", "").replace(")", "") == expected


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("MATCH_CONDITION (NEAREST(a.ts, b.ts)) ON a.k = b.k", ""),
        (
            "MATCH_CONDITION (NEAREST(a.ts, b.ts)) TOLERANCE INTERVAL '1' MINUTE ON a.k = b.k",
            " AND (ABS(a.ts - b.ts) <= (INTERVAL '1' MINUTE))",
        ),
        (
            "MATCH_CONDITION (NEAREST(a.n, b.n) AND ABS(a.n - b.n) <= 3) ON a.k = b.k",
            " AND (ABS(a.n - b.n) <= 3)",
        ),
    ],
)
def test_nearest(text, bound):
    time = "a.n" if "a.n" in text else "a.ts"
    marker = f" AND (FORMAT_STRING('nearest', {time}) <> '')"
    found = joined(f"s a ASOF JOIN q b {text}")
    assert found.endswith(f"({time} >= b{time[1:]}) ON (a.k = b.k){bound}{marker}")


def test_using_has_the_columns_of_the_left_side():
    sql = joined("s a ASOF JOIN q b USING (k, ts) WHERE ts > b.ts", f"{START[:29]} SELECT * FROM ")
    assert sql == (
        "ASOF JOIN `__log1` AS b MATCH_CONDITION (`a`.`ts` >= `b`.`ts`)"
        " ON (`a`.`k` = `b`.`k`) WHERE `a`.ts > b.ts"
    )


@pytest.mark.parametrize(
    ("text", "message", "at"),
    [
        ("s a ASOF JOIN q b ON a.k = b.k", "needs an inequality", "ASOF"),
        ("s a ASOF JOIN q b", "needs an inequality", "ASOF"),
        ("s a ASOF RIGHT JOIN q b ON a.ts >= b.ts", "ASOF RIGHT JOIN is not supported", "ASOF"),
        ("s a FULL ASOF JOIN q b ON a.ts >= b.ts", "ASOF FULL JOIN is not supported", "FULL"),
        ("s a ASOF SEMI JOIN q b ON a.ts >= b.ts", "ASOF SEMI JOIN is not supported", "ASOF"),
        ("s a ASOF JOIN q b ON a.ts >= b.ts AND a.n > b.n", "takes one inequality", "a.n > b.n"),
        ("s a ASOF JOIN q b ON a.ts >= b.ts AND b.n > 5", "takes one inequality", "b.n > 5"),
        ("s a ASOF JOIN q b ON a.ts >= b.ts AND b.ts - a.ts < 5", "one inequality", "b.ts - a"),
        ("s a ASOF JOIN q b ON a.ts >= b.ts AND a.n <> b.n", "this condition", "a.n <> b.n"),
        ("s a ASOF JOIN q b ON a.ts >= b.ts OR a.n = b.n", "this condition", "a.ts >= b.ts OR"),
        (
            "s a ASOF JOIN q b MATCH_CONDITION (NEAREST(a.ts)) ON a.k = b.k",
            "NEAREST takes two times",
            "NEAREST",
        ),
        ("s a ASOF JOIN q b ON a.ts >= b.ts EMIT FINAL", "needs a window", "EMIT FINAL"),
        ("s a JOIN u ON a.k = u.k ASOF JOIN q b USING (k, ts)", "after another join", "ASOF"),
    ],
)
def test_refused(text, message, at):
    with pytest.raises(SqlUnsupportedError, match=message) as caught:
        joined(text)
    assert caught.value.hint
    assert (START + text)[caught.value.column - 1 :].startswith(at)


def test_words_that_are_names_elsewhere():
    sql = joined("s a WHERE n > 1 GROUP BY a.n HAVING COUNT(*) > 1")
    assert "MATCH_CONDITION" not in sql
    plain = "CREATE MATERIALIZED VIEW v AS SELECT nearest.tolerance FROM (SELECT n AS tolerance"
    assert parse(f"{plain} FROM s) AS nearest")
