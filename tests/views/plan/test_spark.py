"""What the planner writes gives, in Spark itself, what the query gives over the same rows."""

from collections import Counter
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.sql import parse
from millstream.views.plan.plan import dated_relation, log_relation
from millstream.views.plan.planner import plan_query

from .logs import LOGS, ROWS, at, find

pytestmark = pytest.mark.slow
pytest.importorskip("pyspark")

FIXTURE = Path(__file__).parent / "views.sql"


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
    return plan_query(statement, find)


def run(spark, plan, rows, *, watermark=None):
    for log, name in enumerate([] if plan.is_constant else plan.inputs):
        table = table_of(LOGS[name], rows[name])
        lsns = pa.array(range(len(rows[name])), pa.int64())
        marks = pa.array([watermark] * len(rows[name]), pa.timestamp("us", "UTC"))
        dated = table.append_column("_row_lsn", lsns).append_column("_wm", marks)
        for relation, data in ((log_relation(log), table), (dated_relation(log), dated)):
            # Spread and shuffled: the result must not depend on where rows are.
            spark.createDataFrame(data).repartition(3).createOrReplaceTempView(relation)
    return spark.sql(plan.spark_sql).toArrow().drop_columns(list(plan.added))


def plain(row):
    """A row whose values can be compared: NaN is itself, and a sum of floats is nearly one."""
    return tuple(float(f"{each:.12g}") if isinstance(each, float) else each for each in row)


def bag(table):
    return Counter(repr(plain(tuple(row.values()))) for row in table.to_pylist())


def pairs():
    for block in FIXTURE.read_text().split("\n\n")[1:]:
        ours, _, sparks = block.strip("\n").partition("\n--\n")
        yield pytest.param(ours, sparks or ours, id=ours.split("\n")[0][:70])


@pytest.mark.parametrize(("ours", "sparks"), list(pairs()))
def test_as_spark(spark, ours, sparks):
    plan = planned(ours)
    got = run(spark, plan, ROWS)
    wanted = spark.sql(
        sparks.replace('"', "`")
    ).toArrow()  # the dialect's quotes are the standard's
    assert bag(got) == bag(wanted)
    assert types_of(got.schema) == types_of(wanted.schema)
    assert [each.lower() for each in got.column_names] == [
        each.lower() for each in wanted.column_names
    ]


def types_of(schema):
    """The types of columns, whatever may be NULL."""
    return [str(field.type).replace(" not null", "") for field in schema]


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
    plan = plan_query(statement, find)
    row = ("a", 1.0, 1, begin + timedelta(seconds=30), [])
    # The watermark stands just at the end of the first window: that one has closed.
    watermark = begin + timedelta(minutes=1)
    table = run(spark, plan, {"trades": [row]}, watermark=watermark)
    minutes = {(row["e"] - begin) // timedelta(minutes=1) for row in table.to_pylist()}
    assert minutes == ends
