"""FOR SYSTEM_TIME AS OF: what Spark reads of it, what a view begins with, and what is refused."""

from __future__ import annotations

import pytest

from millstream.errors import SqlUnsupportedError
from millstream.model.schema import Column, Schema
from millstream.model.types import parse_type
from millstream.sql import Input, parse
from millstream.views.plan.planner import plan_query

COLUMNS = [("k", "BIGINT"), ("ts", "TIMESTAMP"), ("n", "BIGINT")]
SCHEMA = Schema(tuple(Column(name, parse_type(kind)) for name, kind in COLUMNS))
START = "CREATE MATERIALIZED VIEW v AS SELECT s.n FROM "
JOINED = "s JOIN t FOR SYSTEM_TIME AS OF s.ts ON s.k = t.k"
SECOND = "JOIN u FOR SYSTEM_TIME AS OF s.ts ON s.k = u.k"


def plan(text):
    inputs = {name: Input(name, "source", SCHEMA) for name in ("s", "s2")}
    for name in ("t", "u", "w"):
        inputs[name] = Input(name, "table", Schema(SCHEMA.columns, ("k",)), retracts=True)
    return plan_query(parse(START + text)[0], lambda name: inputs[name])


@pytest.mark.parametrize(
    "text",
    [
        "s LEFT JOIN t FOR SYSTEM_TIME AS OF s.ts AS r ON s.k = r.k",
        "s LEFT JOIN t FOR SYSTEM_TIME AS OF s.ts r ON (s.k = r.k)",
        "s LEFT OUTER JOIN t FOR SYSTEM_TIME AS OF PROCTIME() AS r ON s.k = r.k",
    ],
)
def test_it_is_marked(text):
    found = plan(text)
    assert found.spark_sql.split(" AS `s` ")[1] == (
        "LEFT ASOF JOIN `__log1` AS r MATCH_CONDITION (s.k >= r.k)"
        " ON (s.k = r.k) AND (FORMAT_STRING('system time', s.k) <> '')"
    )
    assert (found.temporal, found.retracting) == ((1,), ())


def test_further_conditions_filter_what_an_inner_join_gives():
    found = plan(f"{JOINED} AND s.n > t.n AND t.n <> 3 LEFT JOIN u ON s.n = u.n WHERE s.n < 9")
    assert found.spark_sql.endswith(" WHERE (s.n < 9) AND (s.n > t.n) AND (t.n <> 3)")


def test_a_view_begins_with_the_rows_of_the_other_tables():
    found = plan("s JOIN t FOR SYSTEM_TIME AS OF s.ts USING (k) JOIN u ON s.k = u.k")
    assert (found.inputs, found.temporal, found.retracting) == (("s", "t", "u"), (1,), (2,))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s JOIN s2 FOR SYSTEM_TIME AS OF s.ts ON s.k = s2.k", "s2 is none"),
        ("s JOIN t FOR SYSTEM_TIME AS OF s.ts ON s.n = t.n", "by the table's key"),
        ("s LEFT JOIN t FOR SYSTEM_TIME AS OF s.ts ON s.k = t.k AND s.n > t.n", "table's key"),
        (
            "s JOIN t FOR SYSTEM_TIME AS OF s.ts ON s.k = t.k AND s.n > t.n FULL JOIN u ON TRUE",
            "by the table's key",
        ),
        ("s JOIN t FOR SYSTEM_TIME AS OF s.ts ON t.k = 1 + t.n", "by the table's key"),
        ("s RIGHT JOIN t FOR SYSTEM_TIME AS OF s.ts ON s.k = t.k", "with JOIN and LEFT JOIN"),
        (
            "s JOIN t FOR SYSTEM_TIME AS OF TIMESTAMP '2026-01-01' ON s.k = t.k",
            "not supported here",
        ),
        ("t FOR SYSTEM_TIME AS OF TIMESTAMP '2026-01-01' AS s", "not supported here"),
        (f"{JOINED} JOIN u FOR SYSTEM_TIME AS OF s.ts USING (k)", "after another join"),
        (f"{JOINED} {SECOND} JOIN w ON s.k = w.k", "of two tables beside w"),
        (f"{JOINED} EMIT FINAL", "needs a window"),
    ],
)
def test_refused(text, message):
    with pytest.raises(SqlUnsupportedError, match=message) as caught:
        plan(text)
    assert caught.value.hint
