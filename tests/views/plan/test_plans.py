"""Plans: the Spark SQL of ``plans.sql``, word for word, and what plans say besides."""

from pathlib import Path

import pytest

from millstream.sql import as_query, parse
from millstream.sql.statements.statement import Select
from millstream.views.plan.plan import Window
from millstream.views.plan.planner import plan_query

from .logs import find

FIXTURE = Path(__file__).parent / "plans.sql"
MINUTE = 60_000_000


def planned(sql):
    [statement] = parse(sql)
    return plan_query(statement, find)


def blocks():
    for block in FIXTURE.read_text().split("\n\n")[1:]:
        ours, summary, sparks = block.strip("\n").rsplit("\n", 2)
        yield pytest.param(ours, summary.removeprefix("-- "), sparks, id=ours.split("\n")[0][:70])


@pytest.mark.parametrize(("ours", "summary", "sparks"), list(blocks()))
def test_golden(ours, summary, sparks):
    plan = planned(ours)
    assert ("retracts" if plan.retracts else "only grows") == summary
    assert plan.spark_sql == sparks


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ("TUMBLE(ts, INTERVAL '1 minute')", ("tumble", MINUTE, MINUTE, 0)),
        ("TUMBLE(ts, INTERVAL 1 MINUTE)", ("tumble", MINUTE, MINUTE, 0)),
        ("tumble(TS, INTERVAL '1' MINUTE '30' SECONDS)", ("tumble", 90_000_000, 90_000_000, 0)),
        ("TUMBLE(ts, INTERVAL '1 minute 30 seconds')", ("tumble", 90_000_000, 90_000_000, 0)),
        ("TUMBLE(ts, INTERVAL '1 hour', INTERVAL '90 minutes')", ("tumble", 60, 60, 30)),
        ("TUMBLE(ts, INTERVAL '1 hour', INTERVAL '-10 minutes')", ("tumble", 60, 60, 50)),
        ("TUMBLE(ts, INTERVAL '1 hour', -INTERVAL '10 minutes')", ("tumble", 60, 60, 50)),
        ("HOP(ts, INTERVAL '1 minute', INTERVAL '1 hour')", ("hop", 60, 1, 0)),
        (
            "HOP(ts, INTERVAL '4' MINUTE, INTERVAL '9' MINUTE, INTERVAL '5' MINUTE)",
            ("hop", 9, 4, 1),
        ),
        ("CUMULATE(ts, INTERVAL '1 minute', INTERVAL '1 hour')", ("cumulate", 60, 1, 0)),
        (
            "CUMULATE(ts, INTERVAL '1' MINUTE, INTERVAL '9' MINUTE, INTERVAL '5' MINUTE)",
            ("cumulate", 9, 1, 5),
        ),
        ("SESSION(ts, INTERVAL '5 minutes')", ("session", 5, 5, 0)),
    ],
)
def test_windows(window, expected):
    kind, *lengths = expected
    micros = [each * MINUTE if each < 1000 else each for each in lengths]
    plan = planned(f"SELECT count(*) AS n FROM trades GROUP BY {window}")
    assert plan.window == Window(kind, "TS" if "TS" in window else "ts", *micros)


def test_lateness_in_microseconds():
    sql = (
        "CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM trades "
        "GROUP BY HOP(ts, INTERVAL '1 minute', INTERVAL '2 minutes') "
        "ALLOW LATENESS INTERVAL '90 seconds'"
    )
    plan = planned(sql)
    assert plan.lateness == 90_000_000
    assert "UNIX_MICROS(`trades`.`_wm`) - 90000000" in plan.spark_sql


def test_fingerprints_do_not_see_how_a_query_is_written():
    counted = "SELECT symbol, COUNT(*) AS {name} FROM trades t WHERE qty > {least} GROUP BY symbol"
    one = planned(counted.format(name="n", least=1))
    two = planned(
        "select symbol,\n  COUNT(*) n -- all of them\nfrom TRADES t where qty>1 group by symbol "
        "emit changes"
    )
    assert one.fingerprint == two.fingerprint
    others = [counted.format(name="n", least=2), counted.format(name="m", least=1)]
    assert len({one.fingerprint, *(planned(each).fingerprint for each in others)}) == 3


def test_a_plain_select_can_be_a_view():
    [select] = parse("LIVE SELECT symbol, log10(qty) AS l FROM trades AS t WHERE t.price > 1")
    assert isinstance(select, Select)
    plan = plan_query(select, find)
    assert plan.spark_sql == ("SELECT symbol, LOG10(qty) AS l FROM `__log0` AS t WHERE t.price > 1")
    assert plan_query(as_query(select), find) == plan


def test_functions_are_called_as_they_were_written():
    calls = "log2(qty), date_format(ts, 'SSS'), space(qty), to_char(qty, '9'), my_own(qty, symbol)"
    plan = planned(f"SELECT symbol, array({calls}) AS a FROM trades GROUP BY ALL")
    for call in ("LOG2(qty)", "DATE_FORMAT(ts, 'SSS')", "SPACE(qty)", "MY_OWN(qty"):
        assert call in plan.spark_sql
