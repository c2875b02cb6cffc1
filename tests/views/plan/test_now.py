"""NOW() in WHERE: written as EXISTS over the clock's log, or refused."""

from __future__ import annotations

import pytest

from millstream.errors import SqlUnsupportedError

from .test_planner import plan


def clock_of(test):
    found = plan(f"SELECT k FROM s WHERE {test}")
    assert found.inputs == ("__clock", "s")
    assert found.retracting == (0,)
    before, _, condition = found.spark_sql.partition("FROM `__log0` AS `__clock` WHERE ")
    assert before == "SELECT k FROM `__log1` AS `s` WHERE EXISTS(SELECT 1 "
    return condition.replace("`__clock`.`__now`", "now").removesuffix(")")


@pytest.mark.parametrize(
    ("test", "written"),
    [
        ("ts > NOW() - INTERVAL '5 minutes'", "((now - INTERVAL '5' MINUTES) < ts)"),
        ("CURRENT_TIMESTAMP <= ts + INTERVAL '1' HOUR", "(now <= (ts + INTERVAL '1' HOUR))"),
        ("current_timestamp() > ts", "(now > ts)"),
        ("NOW() - ts < INTERVAL '1' HOUR", "(now < (ts + (INTERVAL '1' HOUR)))"),
        ("ts - NOW() < INTERVAL '1' HOUR", "(now > (ts - (INTERVAL '1' HOUR)))"),
        ("NOW() + (ts - ts) < ts", "(now < (ts - (ts - ts)))"),
        ("(ts - ts) + NOW() < ts", "(now < (ts - (ts - ts)))"),
        ("ts BETWEEN NOW() AND TIMESTAMP '2026-01-01'", None),
        ("ts > NOW() OR k = 1", "((now < ts) OR (k = 1))"),
        ("NOT (ts > NOW() AND k = 1)", "(NOT ((now < ts) AND (k = 1)))"),
        ("ts = NOW()", "((now <= ts) AND (now >= ts))"),
    ],
)
def test_written_as_a_comparison_with_the_clock(test, written):
    found = clock_of(test)
    if written is None:
        written = "(now <= ts) AND (ts <= CAST('2026-01-01' AS TIMESTAMP))"
    assert found == written


def test_other_conditions_stay():
    found = plan("SELECT k FROM s WHERE k > 1 AND (ts <= NOW() AND k < 9)")
    assert " WHERE (k > 1) AND (k < 9) AND EXISTS(" in found.spark_sql


def test_each_select_has_its_own():
    found = plan(
        "SELECT k FROM s WHERE ts > NOW() UNION ALL"
        " SELECT x.k FROM (SELECT k, ts FROM t WHERE ts < NOW()) AS x"
    )
    assert found.inputs == ("__clock", "s", "t")
    assert found.spark_sql.count("FROM `__log0`") == 2
    found = plan("SELECT k FROM s WHERE ts > NOW() AND k IN (SELECT k FROM t WHERE ts < NOW())")
    assert found.spark_sql.count("FROM `__log0`") == 2


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k FROM s WHERE NOW() > TIMESTAMP '2026-01-01'",
        "SELECT k FROM s WHERE date_trunc('hour', NOW()) < ts",
        "SELECT k FROM s WHERE ts > NOW() + NOW()",
        "SELECT k FROM s WHERE NOW() - NOW() < ts",
        "SELECT k FROM s WHERE NOW() > (SELECT MAX(ts) FROM t)",
        "SELECT k FROM s WHERE ts > NOW() OR CASE WHEN NOW() > ts THEN TRUE END",
        "SELECT s.k FROM s LEFT JOIN t ON s.k = t.k AND s.ts > NOW()",
        "SELECT k, NOW() AS n FROM s",
        "SELECT k FROM s GROUP BY k HAVING MAX(ts) > date_trunc('day', NOW())",
        "SELECT k FROM s WHERE ts > CURRENT_DATE",
        "SELECT 1 AS n FROM s WHERE ts > NOW() GROUP BY TUMBLE(ts, INTERVAL '1 day') EMIT FINAL",
    ],
)
def test_refused(query):
    with pytest.raises(SqlUnsupportedError, match=r"NOW|CURRENT_DATE") as caught:
        plan(query)
    assert caught.value.line == 1
    assert "ts > NOW() - INTERVAL '5 minutes'" in caught.value.hint
