"""Messages speak SQL: whatever is refused, no name of a class of the parser is in them."""

import re

import pytest
from sqlglot import exp

from millstream.errors import Error
from millstream.model import Schema
from millstream.sql import Input, as_query, parse, plan_insert, plan_update, plan_where
from millstream.sql.adhoc import plan_adhoc
from millstream.sql.adhoc.aggregates import FUNCTIONS as AGGREGATES
from millstream.sql.dialect import MillstreamParser
from millstream.sql.expressions.functions import FUNCTIONS
from millstream.views.plan.planner import plan_query

TABLE = Schema.of(
    id="BIGINT",
    k="VARCHAR",
    n="BIGINT",
    ts="TIMESTAMP",
    a="ARRAY<BIGINT>",
    m="MAP<VARCHAR, BIGINT>",
    st="STRUCT<x BIGINT>",
    key=("id",),
)
INPUTS = {
    "s": Input("s", "source", TABLE, event_time="ts"),
    "t": Input("t", "table", TABLE, retracts=True),
}
# Names of one word, such as Select and Join, are words of SQL.
CLASSES = {
    name
    for name, of in vars(exp).items()
    if isinstance(of, type) and issubclass(of, exp.Expr) and len(re.findall("[A-Z]+", name)) > 1
}
NAMES = {name.upper() for name in CLASSES} - {*FUNCTIONS, *AGGREGATES}

EXPRESSIONS = [
    *("n ^ 1", "n & 1", "~n", "n << 2", "n DIV k", "k LIKE 'x' ESCAPE 'ab'", "k SIMILAR TO 'x'"),
    *("k RLIKE 'x'", "n IN (1, a)", "n BETWEEN SYMMETRIC 1 AND 2", "a[0]", "m['x']", "k || n"),
    *("CAST(n AS FOO)", "CASE WHEN n THEN 1 END", "INTERVAL 1 MONTH", "TIMESTAMP 'x'", "N'x'"),
    *("b'1'", "(SELECT 1)", "EXISTS (SELECT 1)", "ARRAY[1]", "{'a': 1}", "k:foo", "k -> 'x'"),
    *("n IS DISTINCT FROM 1", "NOT n", "n AND 1", "-k", "k COLLATE x", "ts AT TIME ZONE 'UTC'"),
    *("EXTRACT(EPOCH FROM ts)", "TRANSFORM(a, x -> x + 1)", "CURRENT_TIMESTAMP", "(1, 2)"),
    *("SUM(n) OVER (PARTITION BY k)", "SUM(n) FILTER (WHERE n > 1)", "COUNT(DISTINCT n, k)"),
    *(
        "s.*",
        "s.zz",
        "st.zz",
        "n.zz",
        "n = ANY (SELECT 1)",
        "n = ANY(a)",
        "DISTINCT n",
        "k IS JSON",
    ),
    *("n XOR 1", "NEXT VALUE FOR x", "TUMBLE(n, 1)", "HOP(ts)", "CONVERT(n, CHAR)", "GROUPING(n)"),
    *("TRIM(BOTH FROM k)", "OVERLAY(k PLACING 'x' FROM 1)", "POSITION('x' IN k)", "MAP(1)", "?"),
    *("LAG(n) IGNORE NULLS OVER (ORDER BY n)", "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY n)"),
]
QUERIES = [
    *("VALUES (1)", "SELECT * FROM VALUES (1)", "SELECT * FROM (VALUES (1)) AS x", "FROM s"),
    *("SELECT * FROM s TABLESAMPLE (1 PERCENT)", "SELECT * FROM range(5)", "SELECT TOP 1 k FROM s"),
    *("SELECT * FROM s PIVOT (SUM(n) FOR k IN ('a'))", "SELECT * FROM UNNEST(ARRAY(1))"),
    *("SELECT * FROM s, LATERAL (SELECT 1)", "SELECT * FROM s LATERAL VIEW EXPLODE(a) x AS y"),
    *("SELECT k FROM s GROUP BY CUBE (k)", "SELECT k FROM s GROUP BY GROUPING SETS ((k))"),
    *("SELECT k FROM s GROUP BY ROLLUP (k)", "SELECT k FROM s QUALIFY n > 1"),
    *("SELECT k FROM s WINDOW w AS (ORDER BY n)", "SELECT k FROM s FETCH FIRST 1 ROWS ONLY"),
    *("SELECT k FROM s LIMIT n", "SELECT k FROM s LIMIT 1 OFFSET k", "SELECT k INTO x FROM s"),
    *("SELECT k FROM s FOR UPDATE", "SELECT k FROM s NATURAL JOIN t", "SELECT k FROM s, t"),
    *("SELECT s.k FROM s ASOF JOIN t ON s.n = t.n", "SELECT s.k FROM s FULL JOIN t USING (q)"),
    *("SELECT k FROM s UNION SELECT n FROM t", "SELECT k FROM s UNION BY NAME SELECT n FROM t"),
    *("SELECT n FROM s EXCEPT ALL SELECT k FROM t", "SELECT n FROM s SORT BY n, a"),
    *("WITH RECURSIVE x AS (SELECT 1) SELECT * FROM x", "SELECT n FROM s CLUSTER BY n"),
    *("SELECT DISTINCT ON (n) n FROM s", "SELECT AS STRUCT n FROM s", "SELECT n FROM s FINAL"),
    *("SELECT n FROM s START WITH n CONNECT BY n", "SELECT n FROM s VERSION AS OF 1"),
    *("SELECT * EXCEPT (n) FROM s", "SELECT n FROM s |> WHERE n > 1", "SELECT n FROM s EMIT FINAL"),
    *("SELECT n FROM (s JOIN t ON s.n = t.n)", "SELECT n FROM s JOIN (SELECT 1) AS x ON TRUE"),
    *("SELECT n n n FROM s", "SELECT (n FROM s", "SELECT n FROM s WHERE", "SELECT CASE n FROM s"),
    *("WITH x AS SELECT 1 SELECT 1", "WITH x AS (DELETE FROM t) SELECT 1", "SELECT CAST(n) FROM s"),
]


def find(name):
    return INPUTS[name.lower()]


def run(sql):
    """Plan a statement in every way that there is."""
    for plan in (_once, _live, _changing):
        try:
            for statement in parse(sql):
                plan(statement)
        except Error as error:
            yield f"{error.message} {error.hint}"


def _once(statement):
    if type(statement).__name__ in {"Query", "Select"}:
        plan_adhoc(as_query(statement), find)


def _live(statement):
    if type(statement).__name__ in {"Query", "Select"}:
        plan_query(statement, find)


def _changing(statement):
    kind = type(statement).__name__
    if kind == "Update":
        plan_update(statement, TABLE)
    elif kind == "Delete":
        plan_where(statement.where, TABLE, statement.sql)
    elif kind == "Insert":
        plan_insert(statement, TABLE)


def check(sql):
    for message in run(sql):
        shown = message.replace(sql, "")
        words = set(re.findall(r"[A-Za-z_]+", shown))
        assert not words & CLASSES, (sql, message)
        leaked = words & NAMES - set(re.findall(r"[A-Z_]+", sql.upper()))
        assert not leaked, (sql, message)


@pytest.mark.parametrize("query", QUERIES)
def test_queries(query):
    check(query)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions(expression):
    check(f"SELECT {expression} AS x FROM s")
    check(f"SELECT n FROM s WHERE {expression}")
    check(f"SELECT {expression} AS x, COUNT(*) AS c FROM s GROUP BY {expression}")
    check(f"SELECT COUNT(*) AS c FROM s HAVING {expression}")
    check(f"SELECT n FROM s ORDER BY {expression}")
    check(f"SELECT s.n FROM s JOIN t ON {expression}")
    check(f"UPDATE t SET n = {expression}")
    check(f"DELETE FROM t WHERE {expression}")
    check(f"INSERT INTO t (id, n) VALUES (1, {expression})")


@pytest.mark.parametrize("arguments", ["", "n", "k, n", "n, k, n"])
def test_every_function_that_the_parser_knows(arguments):
    for name in sorted({*MillstreamParser.FUNCTIONS, *MillstreamParser.FUNCTION_PARSERS}):
        check(f"SELECT {name}({arguments}) AS x, COUNT(*) AS c FROM s")
