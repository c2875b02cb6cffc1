"""Plans: the Spark SQL of ``fixtures/plans.sql``, word for word, and what plans say besides."""

from pathlib import Path

import pytest

from millstream.model import Schema
from millstream.sql import Input, Lookup, Window, as_query, parse
from millstream.sql.statements.statement import Select
from millstream.sql.views.view import plan_view

from .logs import find

FIXTURE = Path(__file__).parents[1] / "fixtures" / "plans.sql"
MINUTE = 60_000_000


def planned(sql):
    [statement] = parse(sql)
    return plan_view(statement, find)


def blocks():
    for block in FIXTURE.read_text().split("\n\n")[1:]:
        ours, summary, sparks = block.strip("\n").rsplit("\n", 2)
        yield pytest.param(ours, summary.removeprefix("-- "), sparks, id=ours.split("\n")[0][:70])


@pytest.mark.parametrize(("ours", "summary", "sparks"), list(blocks()))
def test_golden(ours, summary, sparks):
    plan = planned(ours)
    keys = ", ".join(plan.keys) or "none"
    assert f"{plan.shape}, keys: {keys}, {'retracts' if plan.retracts else 'only grows'}" == summary
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
    assert plan.window == Window(kind, "ts", *micros, ("ts",))  # type: ignore[call-arg]


def test_a_union_has_a_time_column_of_each_log():
    union = "SELECT ts AS t FROM trades UNION ALL SELECT at FROM orders"
    plan = planned(f"SELECT count(*) AS n FROM ({union}) GROUP BY TUMBLE(t, INTERVAL '1 minute')")
    assert (plan.inputs, plan.window.columns) == (("trades", "orders"), ("ts", "at"))


def test_the_feed_is_read_once():
    union = " UNION ALL ".join(["SELECT symbol FROM trades", "SELECT symbol FROM orders"] * 3)
    plan = planned(f"WITH u AS ({union}) SELECT symbol, count(*) AS n FROM u GROUP BY symbol")
    assert plan.spark_sql.count("__feed") == 1
    assert plan.inputs == ("trades", "orders")


def test_lookups():
    plan = planned(
        "SELECT t.symbol, owner, k FROM trades t LEFT JOIN accounts a ON a.symbol = t.symbol "
        "JOIN people p ON (a.owner = p.name) AND p.k = t.symbol AND p.k <> 'x'",
    )
    assert plan.inputs == ("trades", "accounts", "people")
    assert plan.lookups == (
        Lookup(1, (((0, "symbol"), "symbol"),), outer=True),
        Lookup(2, (((1, "owner"), "name"), ((0, "symbol"), "k"))),
    )
    assert plan.retracts
    assert "`_2_k` <> 'x'" in plan.spark_sql


REVISED = "EMIT ON WINDOW CLOSE ALLOW LATENESS INTERVAL '1 minute'"
HOURLY = "SELECT count(*) AS n FROM {log} GROUP BY TUMBLE(ts, INTERVAL '1 hour')"
HOP = "SELECT count(*) AS n FROM {log} GROUP BY HOP(ts, INTERVAL '1 hour', INTERVAL '2 hours')"


@pytest.mark.parametrize(
    ("sql", "retracts"),
    [
        ("SELECT symbol FROM trades", False),
        ("SELECT id FROM accounts", True),
        ("SELECT t.symbol FROM trades t JOIN accounts a ON t.symbol = a.symbol", True),
        ("SELECT DISTINCT symbol FROM trades", False),
        ("SELECT DISTINCT owner FROM accounts", True),
        ("SELECT count(*) AS n FROM trades", True),
        (HOURLY.format(log="trades"), True),
        (HOURLY.format(log="trades") + " EMIT FINAL", False),
        (HOURLY.format(log="trades") + " EMIT ON WINDOW CLOSE", False),
        (HOURLY.format(log="changing") + " EMIT AFTER WATERMARK", True),
        (f"CREATE STREAM s AS {HOURLY.format(log='trades')} {REVISED}", True),
    ],
)
def test_whether_rows_may_disappear(sql, retracts):
    assert planned(sql).retracts is retracts


@pytest.mark.parametrize(
    ("sql", "frees"),
    [
        (HOURLY.format(log="trades"), True),
        (HOURLY.format(log="trades") + " EMIT FINAL", True),
        (HOP.format(log="trades"), True),
        (HOP.format(log="trades").replace("HOP", "CUMULATE"), True),
        ("SELECT count(*) AS n FROM trades GROUP BY SESSION(ts, INTERVAL '1 hour')", False),
        ("SELECT symbol, count(*) AS n FROM trades GROUP BY symbol", False),
        (HOURLY.format(log="(SELECT ts FROM trades UNION ALL SELECT at FROM orders)"), True),
        (HOURLY.format(log="(SELECT ts FROM trades UNION ALL SELECT at FROM plain)"), False),
        (HOURLY.format(log="(SELECT at AS ts FROM plain)"), False),
        (HOP.format(log="(SELECT at AS ts FROM plain)"), False),
        (HOURLY.format(log="changing"), False),
        (HOURLY.format(log="trades t JOIN accounts a ON t.symbol = a.symbol"), False),
        (HOP.format(log="trades t LEFT JOIN accounts a ON t.symbol = a.symbol"), False),
    ],
)
def test_whether_windows_that_have_closed_are_freed(sql, frees):
    plan = planned(sql)
    assert plan.frees is frees
    assert ("MS_CLOSES" in plan.spark_sql) is frees


def test_lateness_in_microseconds():
    sql = (
        "CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM trades "
        "GROUP BY HOP(ts, INTERVAL '1 minute', INTERVAL '2 minutes') "
        "ALLOW LATENESS INTERVAL '90 seconds'"
    )
    plan = planned(sql)
    assert plan.lateness == 90_000_000
    assert "UNIX_MICROS(`_wm`) - 90000000" in plan.spark_sql


def test_fingerprints_do_not_see_how_a_query_is_written():
    counted = (
        "SELECT symbol, COUNT(*) AS {name} FROM trades t WHERE t.qty > {least} GROUP BY t.symbol"
    )
    one = planned(counted.format(name="n", least=1))
    two = planned(
        "with x as (select * from TRADES)\n"
        "select SYMBOL, count(*) n from x where (qty > 1) group by 1 emit changes"
    )
    assert one.fingerprint == two.fingerprint
    others = [
        counted.format(name="n", least=2),
        counted.format(name="m", least=1),
        counted.format(name="n", least=1) + " EMIT EVERY 1 SECOND",
        counted.format(name="n", least=1) + " EMIT EVERY 2 SECONDS",
    ]
    assert len({one.fingerprint, *(planned(each).fingerprint for each in others)}) == 5


def test_a_plain_select_can_be_a_view():
    [select] = parse("LIVE SELECT symbol, log10(qty) AS l FROM trades AS t WHERE t.price > 1")
    assert isinstance(select, Select)
    plan = plan_view(select, find)
    assert plan.spark_sql == (
        "SELECT `symbol` AS `symbol`, LOG10(`qty`) AS `l`, `_lsn`, `_weight` FROM __feed "
        "WHERE (`price` > 1)"
    )
    assert plan_view(as_query(select), find) == plan


def test_functions_are_called_as_they_were_written():
    calls = "log2(qty), date_format(ts, 'SSS'), space(qty), to_char(qty, '9'), my_own(qty, symbol)"
    plan = planned(f"SELECT symbol, array({calls}) AS a FROM trades GROUP BY ALL")
    for call in ("LOG2(`qty`)", "DATE_FORMAT(`ts`, 'SSS')", "SPACE(`qty`)", "MY_OWN(`qty`"):
        assert call in plan.spark_sql


@pytest.mark.parametrize(
    ("aggregate", "live"),
    [
        *(("collect_list(v)", False), ("listagg(k, '-')", False), ("median(v)", False)),
        *(("collect_set(v)", True), ("max(v)", True), ("first(v)", True)),
    ],
)
def test_aggregates_whose_state_is_the_whole_group_are_not_live(aggregate, live):
    plan = planned(f"SELECT k, {aggregate} AS x FROM plain GROUP BY k")
    assert plan.live is live
    assert ("grows with its group" in plan.why) is not live


def test_parts_of_nested_columns_are_summed_over_rows_that_change():
    nested = Input(
        "nested",
        "table",
        Schema.of(
            key=("id",), id="INT", st="STRUCT<x INT, y DOUBLE>", xs="ARRAY<INT>", m="MAP<INT, REAL>"
        ),
        retracts=True,
    )
    [statement] = parse(
        "SELECT SUM(st.X) AS a, AVG(st.y) AS b, SUM(xs[0]) AS c, SUM(m[1]) AS d FROM nested"
    )
    plan = plan_view(statement, lambda _name: nested)
    assert plan.spark_sql.count("MS_SUM(") == 2, "of the floats"
