"""What the planner writes gives, in Spark itself, what the query gives over the same rows."""

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.sql import parse
from millstream.sql.views.view import plan_view

from .feeds import feed_table, plain, types_of, visible
from .logs import LOGS, ROWS, at, changes, find

pytestmark = pytest.mark.slow
pytest.importorskip("pyspark")

FIXTURE = Path(__file__).parents[1] / "fixtures" / "views.sql"


@pytest.fixture(scope="module")
def spark(spark_owner):
    session = spark_owner.for_view()
    # So few rows are not worth compiled plans; the interpreted ones mean the same.
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    for name, rows in ROWS.items():
        session.createDataFrame(table_of(LOGS[name], rows)).createOrReplaceTempView(name)
    return session


def table_of(log, rows):
    return pa.table(
        {
            column.name: pa.array([row[place] for row in rows], column.type.arrow)
            for place, column in enumerate(log.schema.columns)
        }
    )


def planned(sql):
    [statement] = parse(sql)
    return plan_view(statement, find)


def run(spark, plan, logs, *, watermark=None):
    feed = feed_table(plan, LOGS, logs, watermark)
    # Spread and shuffled: the result must not depend on where rows are.
    spark.createDataFrame(feed).repartition(3).createOrReplaceTempView("__feed")
    return spark.sql(plan.spark_sql).toArrow()


def expected(spark, sql):
    # The dialect's quotes are the standard's; Spark has backticks.
    table = spark.sql(sql.replace('"', "`")).toArrow()
    return table, [plain(tuple(row.values())) for row in table.to_pylist()]


def pairs():
    for block in FIXTURE.read_text().split("\n\n")[1:]:
        ours, _, sparks = block.strip("\n").partition("\n--\n")
        yield pytest.param(ours, sparks or ours, id=ours.split("\n")[0][:70])


@pytest.mark.parametrize(("ours", "sparks"), list(pairs()))
def test_as_spark(spark, ours, sparks):
    plan = planned(ours)
    table = run(spark, plan, {name: changes(name) for name in LOGS})
    wanted, rows = expected(spark, sparks)
    got = visible(plan, table)
    assert sorted(map(repr, got.elements())) == sorted(map(repr, rows))
    assert types_of(user_fields(plan, table)) == types_of(wanted.schema)
    assert [field.name for field in user_fields(plan, table)] == list(plan.columns)
    assert [name.lower() for name in plan.columns] == [each.lower() for each in wanted.column_names]


def user_fields(plan, table):
    schema = table.schema
    fields = schema.field("_rows").type.value_type.fields if plan.shape == "sets" else list(schema)
    return fields[: len(plan.columns)]


# --- Windows of which a row is late for some ------------------------------------------------------

LATE = [
    ("HOP", "(ts, INTERVAL '1 minute', INTERVAL '3 minutes')", timedelta(0), {2, 3}),
    ("HOP", "(ts, INTERVAL '1 minute', INTERVAL '3 minutes')", timedelta(minutes=1), {1, 2, 3}),
    ("CUMULATE", "(ts, INTERVAL '1 minute', INTERVAL '3 minutes')", timedelta(0), {2, 3}),
    (
        "CUMULATE",
        "(ts, INTERVAL '1 minute', INTERVAL '3 minutes')",
        timedelta(minutes=1),
        {1, 2, 3},
    ),
    ("TUMBLE", "(ts, INTERVAL '1 minute')", timedelta(0), {1}),
]


@pytest.mark.parametrize(("kind", "args", "lateness", "ends"), LATE)
def test_a_row_counts_in_the_windows_that_are_open(spark, kind, args, lateness, ends):
    begin = at("2026-01-01 00:00:00")
    [statement] = parse(
        f"CREATE MATERIALIZED VIEW v AS SELECT WINDOW_END AS e, count(*) AS n FROM trades "
        f"GROUP BY {kind}{args} ALLOW LATENESS INTERVAL '{lateness.seconds} seconds'"
    )
    plan = plan_view(statement, find)
    row = ("a", 1.0, 1, begin + timedelta(seconds=30), [])
    # The watermark stands just at the end of the first window: that one has closed.
    watermark = begin + timedelta(minutes=1)
    table = run(spark, plan, {"trades": [(row, 1)]}, watermark=watermark)
    minutes = {(row["e"] - begin) // timedelta(minutes=1) for row in table.to_pylist()}
    assert minutes == ends


# --- Any rows, any aggregates ---------------------------------------------------------------------

AGGREGATES = [
    "count(*)",
    "count({c})",
    "sum({n})",
    "avg({n})",
    "min({c})",
    "max({c})",
    "count(DISTINCT {c})",
    "count_if({c} IS NULL)",
    "min_by({c}, id)",
    "max_by({n}, id)",
    "bool_or({n} > 0)",
    "bool_and({n} > 0)",
]
FILTERS = [
    "",
    " FILTER (WHERE small > 0)",
    " FILTER (WHERE active)",
    " FILTER (WHERE owner IS NULL)",
]
rows = st.tuples(
    st.integers(0, 20),
    st.sampled_from([None, "a", "b", ""]),
    st.sampled_from([None, "x", "y"]),
    st.none() | st.integers(-999, 999).map(lambda n: Decimal(n).scaleb(-2)),
    st.none() | st.sampled_from([0.1, -0.1, 1e300, -1e300, float("inf"), float("nan"), -0.0, 3.5]),
    st.none() | st.integers(-5, 5),
    st.none() | st.booleans(),
)


@st.composite
def queries(draw):
    keys = draw(st.lists(st.sampled_from(["symbol", "owner", "active", "small % 2"]), unique=True))
    items = [f"{key} AS k{place}" for place, key in enumerate(keys)]
    for place in range(draw(st.integers(1, 6))):
        text = draw(st.sampled_from(AGGREGATES))
        text = text.format(
            c=draw(st.sampled_from(["symbol", "balance", "small", "rate"])),
            n=draw(st.sampled_from(["balance", "small", "small * 2", "id - small"])),
        )
        items.append(f"{text}{draw(st.sampled_from(FILTERS))} AS a{place}")
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    where = draw(st.sampled_from(["", " WHERE small IS NOT NULL", " WHERE rate > 0 OR active"]))
    having = draw(st.sampled_from(["", " HAVING count(*) > 1"]))
    return f"SELECT {', '.join(items)} FROM accounts{where}{group}{having}"


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(
    sql=queries(),
    kept=st.lists(rows, max_size=12, unique_by=lambda row: row[0]),
    gone=st.lists(rows, max_size=12),
    order=st.randoms(use_true_random=False),
)
def test_rows_that_came_and_went_leave_no_trace(spark, sql, kept, gone, order):
    log = [(row, 1) for row in [*kept, *gone]] + [(row, -1) for row in gone]
    order.shuffle(log)  # even when a row goes before it comes: weights add up in any order
    plan = planned(sql)
    table = run(spark, plan, {"accounts": log})
    name = "kept"
    spark.createDataFrame(table_of(LOGS["accounts"], kept)).createOrReplaceTempView(name)
    _, wanted = expected(spark, sql.replace("FROM accounts", f"FROM {name}"))
    assert sorted(map(repr, visible(plan, table).elements())) == sorted(map(repr, wanted))
