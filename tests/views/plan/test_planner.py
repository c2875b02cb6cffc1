"""Which queries are dataflows, and what Spark reads of them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from millstream.errors import SqlUnsupportedError
from millstream.model.schema import Column, Schema
from millstream.model.types import parse_type
from millstream.sql import Input, parse
from millstream.views.plan.plan import SortKey
from millstream.views.plan.planner import plan_query

SCHEMA = Schema(tuple(Column(n, parse_type(t)) for n, t in [("k", "BIGINT"), ("ts", "TIMESTAMP")]))
SOURCE = Input("s", "source", SCHEMA)
TABLE = Input("t", "table", Schema(SCHEMA.columns, ("k",)), retracts=True)
VIEW = "CREATE MATERIALIZED VIEW v AS "


def view(name, query):
    """A view that other views may read through."""
    statement = parse(f"CREATE MATERIALIZED VIEW {name} AS {query}")[0]
    return Input(name, "view", SCHEMA, retracts=True, view=statement)


INPUTS = {
    "s": SOURCE,
    "s2": replace(SOURCE, name="s2"),
    "t": TABLE,
    "a": view("a", "SELECT k, MAX(ts) AS ts FROM s GROUP BY k"),
    "b": view("b", "SELECT k, ts FROM a WHERE k > 1"),
}


def plan(query):
    return plan_query(parse(VIEW + query)[0], lambda name: INPUTS[name.lower()])


def test_a_view_beside_others_is_read_through():
    found = plan("SELECT x.k FROM a x JOIN b ON x.k = b.k")
    assert (found.inputs, found.through, found.widths) == (("s",), ("a", "b"), (2,))
    assert "`__log0` AS `s`" in found.spark_sql


def test_a_view_alone_is_read_by_its_log():
    found = plan("SELECT x.k FROM a x JOIN a y ON x.k = y.k")
    assert (found.inputs, found.through) == (("a",), ())


def test_a_name_of_the_query_does_not_hold_in_a_view():
    found = plan(
        "WITH s AS (SELECT 1 AS k) SELECT a.k FROM a JOIN s ON a.k = s.k JOIN t ON t.k = a.k"
    )
    assert found.inputs == ("s", "t")
    assert "JOIN s ON" in found.spark_sql


def test_columns_without_a_name():
    found = plan("SELECT COUNT(*), MAX(s.k) + 1, s.k FROM s JOIN t ON s.k = t.k GROUP BY s.k")
    assert found.spark_sql.startswith("SELECT COUNT(*) AS `_c0`, MAX(s.k) + 1 AS `_c1`, s.k FROM")


def test_common_tables_stay_where_they_are():
    found = plan(
        "WITH x AS (SELECT k FROM s) SELECT x.k FROM x JOIN"
        " (WITH x AS (SELECT k FROM t) SELECT k FROM x) y ON x.k = y.k"
    )
    assert (
        "JOIN (WITH x AS (SELECT k FROM `__log1` AS `t`) SELECT k FROM x) AS y" in found.spark_sql
    )


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT k, (SELECT n FROM t WHERE t.k = s.k) AS x FROM s", True),
        ("SELECT k, (SELECT n + 1 AS m FROM t x WHERE n > 0 AND (s.k = x.k)) AS x FROM s", True),
        ("SELECT k, (SELECT n FROM t WHERE t.k = 5) AS x FROM s", True),
        ("SELECT k, (SELECT n FROM t WHERE t.k = t.n) AS x FROM s", False),
        ("SELECT k, (SELECT n FROM t WHERE t.n = s.k) AS x FROM s", False),
        ("SELECT k, (SELECT n FROM t WHERE t.k = s.k OR t.n = 1) AS x FROM s", False),
        ("SELECT k, (SELECT n FROM t, s y WHERE t.k = s.k) AS x FROM s", False),
        ("SELECT k FROM s WHERE k IN (SELECT n FROM t WHERE t.k = s.k)", False),
        ("SELECT s.k FROM s, (SELECT n FROM t WHERE t.k = 5) x", False),
    ],
)
def test_lookups_by_key_are_aggregates(query, found):
    assert ("MAX(" in plan(query).spark_sql) is found


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT k FROM s WHERE k = ANY (SELECT k FROM t)", "WHERE k IN (SELECT k FROM"),
        ("SELECT k FROM s WHERE k <> ALL (SELECT k FROM t)", "WHERE NOT k IN (SELECT k FROM"),
        ("SELECT k IN (SELECT k FROM t) AS x FROM s", "SELECT CASE WHEN k IN (SELECT"),
        ("SELECT CASE WHEN k IN (SELECT k FROM t) THEN 1 END AS x FROM s", "SELECT CASE WHEN k IN"),
    ],
)
def test_tests_of_subqueries(query, found):
    sql = plan(query).spark_sql
    assert found in sql
    assert sql.count("CASE") <= 1


def test_windows():
    found = plan(
        "SELECT HOP_START(s.ts) AS b, window_end, COUNT(*) AS n FROM s JOIN t ON s.k = t.k "
        "GROUP BY HOP(s.ts, INTERVAL '10 seconds', INTERVAL '1 minute')"
    )
    assert found.spark_sql.startswith(
        "SELECT TIMESTAMP_MICROS(`_e0` - 60000000) AS b, TIMESTAMP_MICROS(`_e0`) AS `window_end`"
    )
    assert found.spark_sql.endswith(" AS `_e0` GROUP BY `_e0`")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT s.k, RAND() AS r FROM s JOIN t ON s.k = t.k", "RAND is not supported in a view"),
        ("SELECT s.k, NOW() AS n FROM s, t", "NOW is not supported in a view"),
        ("SELECT COUNT(*) AS n FROM s FULL JOIN t ON s.k = t.k EMIT FINAL", "needs a window"),
        ("SELECT s.k FROM s FULL JOIN t ON s.k = t.k EMIT EVERY 1 SECOND", "needs groups"),
        ("WITH RECURSIVE r AS (SELECT k FROM s UNION ALL SELECT k FROM r) SELECT k FROM r", "REC"),
        ("SELECT k FROM s UNION ALL BY NAME SELECT k FROM t", "UNION BY NAME"),
        ("SELECT k FROM s WHERE k >= ALL (SELECT k FROM t)", "= ANY and <> ALL only"),
        ("SELECT SESSION(ts, INTERVAL '1 day') AS s, k FROM t JOIN t u ON t.k = u.k", "SESSION"),
    ],
)
def test_refused(query, message):
    with pytest.raises(SqlUnsupportedError, match=message) as caught:
        plan(query)
    assert caught.value.line == 1
    assert caught.value.hint


def test_a_lateral_view_before_a_join_is_a_subquery():
    found = plan(
        "SELECT x.e, s.k FROM s LATERAL VIEW explode(array(k, 1)) x AS e FULL JOIN t ON x.e = t.k"
        " WHERE EXISTS (SELECT x.k FROM s2 x)"
    )
    assert found.spark_sql == (
        "SELECT `s`.e, s.k FROM (SELECT * FROM `__log0` AS `s`"
        " LATERAL VIEW EXPLODE(ARRAY(k, 1)) x AS e) AS `s` FULL JOIN `__log1` AS `t` ON `s`.e = t.k"
        " WHERE EXISTS(SELECT x.k FROM `__log2` AS x)"
    )


@pytest.mark.parametrize(
    ("query", "message", "column"),
    [
        (
            "SELECT e FROM s JOIN s2 LATERAL VIEW explode(array(s.k)) x AS e JOIN t",
            "LATERAL VIEW between two joins",
            68,
        ),
        (
            "SELECT s.* FROM s LATERAL VIEW explode(array(k)) x AS e JOIN t",
            "s.* beside LATERAL VIEW and a join is not supported",
            38,
        ),
    ],
)
def test_lateral_views_that_are_refused(query, message, column):
    with pytest.raises(SqlUnsupportedError, match=re.escape(message)) as caught:
        plan(query)
    assert caught.value.column == column


def ascending(column):
    return SortKey(column, descending=False, nulls_first=True)


def descending(column):
    return SortKey(column, descending=True, nulls_first=False)


@pytest.mark.parametrize(
    ("query", "order"),
    [
        ("SELECT k FROM s", ()),
        ("SELECT k FROM s ORDER BY k", (ascending("k"),)),
        ("SELECT k AS n FROM s ORDER BY s.k DESC", (descending("n"),)),
        ("SELECT (k) FROM s ORDER BY s.k", (ascending("k"),)),
        ("SELECT k, COUNT(*) FROM s GROUP BY k ORDER BY COUNT(*)", (ascending(1),)),
        ("SELECT k, substr(k, 1) FROM s ORDER BY substr(k, 1), k", (ascending(1), ascending("k"))),
        ("SELECT k AS n, ts AS k FROM s ORDER BY k", (ascending("k"),)),
        (
            "SELECT ts, MAX(k) AS n FROM s GROUP BY ts ORDER BY 2 DESC NULLS FIRST, ts NULLS LAST",
            (replace(descending(1), nulls_first=True), replace(ascending("ts"), nulls_first=False)),
        ),
        ("SELECT COUNT(*) AS n FROM s GROUP BY ts ORDER BY COUNT(*)", (ascending("n"),)),
        ("SELECT * FROM s JOIN t ON s.k = t.k ORDER BY ts", (ascending("ts"),)),
        ("SELECT k FROM s UNION SELECT k FROM t ORDER BY k", (ascending("k"),)),
        ("SELECT k FROM s ORDER BY ts LIMIT 3", ()),
        ("SELECT k FROM s ORDER BY k LIMIT 3", (ascending("k"),)),
    ],
)
def test_the_order_of_its_rows(query, order):
    assert plan(query).order == order


@pytest.mark.parametrize(
    ("query", "order", "sql"),
    [
        (
            "SELECT k FROM s ORDER BY k, ts + 1",
            (ascending("k"), ascending("_o0")),
            "SELECT k, ts + 1 AS `_o0` FROM",
        ),
        (
            "SELECT DISTINCT k FROM s ORDER BY k || 'x'",
            (ascending("_o0"),),
            "SELECT *, k || 'x' AS `_o0` FROM (SELECT DISTINCT k",
        ),
        ("SELECT COUNT(*) AS n FROM s ORDER BY MAX(k)", (), "SELECT COUNT(*) AS n FROM"),
    ],
)
def test_an_order_by_what_is_not_selected_has_hidden_columns(query, order, sql):
    made = plan(query)
    assert made.order == order
    assert made.added == tuple(each.column for each in order if each.column != "k")
    assert made.spark_sql.startswith(sql)


def test_an_order_of_groups_by_all_is_refused():
    with pytest.raises(SqlUnsupportedError, match="ordered by its columns") as caught:
        plan("SELECT k FROM s GROUP BY ALL ORDER BY ts")
    assert caught.value.column == len(VIEW) + len("SELECT k FROM s GROUP BY ALL ORDER BY ") + 1
