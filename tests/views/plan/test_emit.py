"""EMIT of dataflows: the columns that are added, and what is refused without Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millstream.errors import SqlColumnError, SqlUnsupportedError
from millstream.sql import parse
from millstream.views.plan.planner import plan_query

from .test_planner import INPUTS, VIEW

TIMED = {name: replace(INPUTS[name], event_time="ts") for name in ("s", "s2")}
MINUTE = "INTERVAL '1 minute'"
JOINED = "FROM s JOIN s2 ON s.k = s2.k"


def plan(query, inputs=TIMED):
    return plan_query(parse(VIEW + query)[0], lambda name: (INPUTS | inputs)[name.lower()])


def test_ticks_come_from_the_clock():
    found = plan(f"SELECT COUNT(*) AS n {JOINED} GROUP BY s.k EMIT EVERY 1 SECOND")
    assert found.inputs == ("s", "s2", "__clock")
    assert found.emit.every == 1_000_000
    assert found.added == ()
    assert 2 not in found.retracting


@pytest.mark.parametrize("emit", ["EMIT FINAL", "EMIT ON WINDOW CLOSE", "LATE DATA TO x"])
def test_windows_have_an_end(emit):
    group = f"GROUP BY s.k, TUMBLE(s.ts, {MINUTE})"
    found = plan(f"SELECT COUNT(*) AS n {JOINED} {group} {emit}")
    assert found.added == ("_end",)
    assert (found.window.kind, found.window.column) == ("tumble", "s.ts")
    assert found.retracts == (emit != "EMIT FINAL")
    assert "+ 60000000) AS `_end`" in found.spark_sql


def test_equal_windows_are_compared_by_their_start():
    start = "UNIX_MICROS({0}.ts) - PMOD(UNIX_MICROS({0}.ts), CAST(60000000 AS BIGINT))"
    on = f"TUMBLE(s.ts, {MINUTE}) = TUMBLE(s2.ts, {MINUTE})"
    sql = plan(f"SELECT s.k FROM s JOIN s2 ON {on}").spark_sql
    assert sql.endswith(f" ON {start.format('s')} = {start.format('s2')}")
    other = on.replace("1 minute", "2 minutes", 1)
    assert "STRUCT" in plan(f"SELECT s.k FROM s JOIN s2 ON {other}").spark_sql


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (f"SELECT s.k {JOINED} EMIT FINAL", "EMIT FINAL needs a window"),
        (f"SELECT s.k {JOINED} GROUP BY s.k ALLOW LATENESS {MINUTE}", "LATENESS needs a window"),
        (f"SELECT s.k {JOINED} EMIT EVERY 1 SECOND", "EMIT EVERY needs groups"),
        (
            f"SELECT DISTINCT s.k {JOINED} GROUP BY s.k, TUMBLE(s.ts, {MINUTE}) EMIT FINAL",
            "DISTINCT rows without their window",
        ),
        (
            f"SELECT SUM(COUNT(*)) OVER () AS n FROM s GROUP BY SESSION(ts, {MINUTE}) EMIT FINAL",
            "OVER beside SESSION",
        ),
        (f"SELECT 1 AS n {JOINED} GROUP BY CUMULATE(s.ts, {MINUTE}, {MINUTE}) EMIT FINAL", "CUM"),
        (f"SELECT 1 AS n {JOINED} GROUP BY CUBE(s.k), TUMBLE(s.ts, {MINUTE}) EMIT FINAL", "group"),
        (
            f"SELECT 1 AS n {JOINED} WHERE s.ts > NOW() GROUP BY TUMBLE(s.ts, {MINUTE}) EMIT FINAL",
            "EMIT CHANGES only",
        ),
    ],
)
def test_refused(query, message):
    with pytest.raises(SqlUnsupportedError, match=message) as caught:
        plan(query)
    assert caught.value.hint


def test_refused_without_event_time():
    query = f"SELECT 1 AS n {JOINED} GROUP BY TUMBLE(s.ts, {MINUTE}) EMIT FINAL"
    with pytest.raises(SqlUnsupportedError, match="over a column with a watermark"):
        plan(query, {})


def test_names_that_are_kept():
    with pytest.raises(SqlColumnError, match="the name _end is kept"):
        plan(f"SELECT s.k AS _end {JOINED} GROUP BY s.k, TUMBLE(s.ts, {MINUTE}) EMIT FINAL")
