"""The Java aggregates against plain Python: rows that come and go, in any order and partition."""

import datetime
import decimal
import fractions
import json
import math
import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.slow
pytest.importorskip("pyspark")

few = settings(max_examples=8, suppress_health_check=list(HealthCheck))
"""An example is one Spark job over many groups."""


@pytest.fixture(scope="module")
def spark(spark_owner):
    return spark_owner.for_view()


def table(spark, rows, schema, partitions=3):
    """The rows as relation ``t``, spread so that partial results have to be merged."""
    spark.createDataFrame(rows, schema).repartition(partitions).createOrReplaceTempView("t")


def order(value):
    """A key that sorts as Spark does: NULL first, NaN last, text by its bytes."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (1, math.isnan(value), 0.0 if math.isnan(value) else value)
    if isinstance(value, str):
        return (1, value.encode())
    if isinstance(value, (tuple, list)):
        return (1, tuple(map(order, value)))
    return (1, value)


def plain(value):
    """The value such that equal is what SQL calls equal."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, (tuple, list)):
        return tuple(map(plain, value))
    return bytes(value) if isinstance(value, bytearray) else value


def decimals(precision, scale):
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda n: decimal.Decimal(n).scaleb(-scale, CONTEXT))


CONTEXT = decimal.Context(prec=50)
EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - TIMESTAMP_NTZ has no zone
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=4)
TEXTS |= st.text("\0\1\2a\uffff\U0001f600", max_size=4)
INTS = st.integers(-3, 3) | st.integers(-(2**31), 2**31 - 1)
DOUBLES = st.floats() | st.sampled_from([0.0, -0.0, 1.5, math.inf, -math.inf, math.nan])
TYPES = {
    "BOOLEAN": st.booleans(),
    "TINYINT": st.integers(-128, 127),
    "SMALLINT": st.integers(-(2**15), 2**15 - 1),
    "INT": INTS,
    "BIGINT": INTS | st.integers(-(2**63), 2**63 - 1),
    "FLOAT": st.floats(width=32) | st.sampled_from([0.0, -0.0]),
    "DOUBLE": DOUBLES,
    "DECIMAL(10,2)": decimals(10, 2),
    "DECIMAL(38,10)": decimals(38, 10),
    "STRING": TEXTS,
    "BINARY": st.binary(max_size=3),
    "DATE": st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1)),
    "TIMESTAMP_NTZ": st.timedeltas(*[datetime.timedelta(30_000 * n) for n in (-1, 1)]).map(
        lambda since: EPOCH + since
    ),
    "ARRAY<INT>": st.lists(st.none() | INTS, max_size=3),
    "STRUCT<a: DOUBLE, b: STRING>": st.tuples(st.none() | DOUBLES, st.none() | TEXTS),
}


@st.composite
def comings_and_goings(draw, values):
    """Groups of (value, ord, weight), shuffled, and what is left of each."""
    places = st.none() | st.integers(0, 3)
    entries = st.tuples(st.none() | values, places, st.booleans(), st.integers(1, 2))
    groups = draw(st.lists(st.lists(entries, max_size=8), min_size=10, max_size=30))
    rows, left = [], []
    for group, each in enumerate(groups):
        left.append(
            [(value, at) for value, at, gone, many in each if not gone for _ in range(many)]
        )
        for value, at, gone, many in each:
            rows.append((group, value, at, many))
            if gone:
                rows += [(group, value, at, -1)] * many
    return draw(st.permutations(rows)), left


def expected(left):
    values = sorted((value for value, _ in left if value is not None), key=order)
    placed = [entry for entry in left if entry[1] is not None]
    placed.sort(key=lambda entry: (entry[1], order(entry[0])))
    return (
        plain(values[0]) if values else None,
        plain(values[-1]) if values else None,
        len({plain(value) for value in values}),
        plain(placed[0][0]) if placed else None,
        plain(placed[-1][0]) if placed else None,
    )


@pytest.mark.parametrize("kind", TYPES)
@few
@given(data=st.data(), partitions=st.integers(1, 3))
def test_each_type_is_as_a_python_multiset(spark, kind, data, partitions):
    rows, left = data.draw(comings_and_goings(TYPES[kind]))
    table(spark, rows, f"k INT, x {kind}, ord INT, w INT", partitions)
    found = spark.sql(
        "SELECT k, ms_min(x, w), ms_max(x, w), ms_count_distinct(x, w), "
        "ms_first(x, ord, w), ms_last(x, ord, w) FROM t GROUP BY k"
    ).collect()
    for k, *results in found:
        assert tuple(map(plain, results)) == expected(left[k])
    assert {row[0] for row in found} == {row[0] for row in rows}


def test_zeros_in_a_struct_are_equal_whatever_their_sign(spark):
    rows = [(0, (0.0, None), 1), (0, (-0.0, ""), 1), (1, (-0.0, "b"), 1), (1, (0.0, "a"), 1)]
    table(spark, rows, "k INT, x STRUCT<a: DOUBLE, b: STRING>, w INT")
    found = spark.sql("SELECT k, ms_min(x, w), ms_max(x, w) FROM t GROUP BY k").collect()
    assert sorted(tuple(map(plain, row)) for row in found) == [
        (0, (0.0, None), (0.0, "")),
        (1, (0.0, "a"), (0.0, "b")),
    ]


@few
@given(data=st.data())
def test_sums_of_doubles_are_exact(spark, data):
    rows, left = data.draw(comings_and_goings(DOUBLES | st.floats(-1e6, 1e6)))
    table(spark, rows, "k INT, x DOUBLE, ord INT, w INT")
    found = dict(spark.sql("SELECT k, ms_sum(x, w) FROM t GROUP BY k").collect())
    assert found.keys() == {row[0] for row in rows}
    for k, total in found.items():
        assert plain(total) == plain(exact_sum([x for x, _ in left[k] if x is not None]))


def exact_sum(values):
    if not values:
        return None
    if not all(map(math.isfinite, values)):
        return sum(value for value in values if not math.isfinite(value))
    total = sum(map(fractions.Fraction, values))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def test_a_sum_forgets_what_was_huge(spark):
    rows = [(1e308, 1), (1e308, 1), (0.1, 1), (5e-324, 1), (1e308, -2)]
    rows += [(math.nan, 1), (math.nan, -1), (-math.inf, 3), (-math.inf, -3)]
    table(spark, rows, "x DOUBLE, w INT")
    assert spark.sql("SELECT ms_sum(x, w), ms_sum(float(1.5), 2) FROM t").first() == (0.1, 27.0)
    assert spark.sql("SELECT ms_sum(x, w) FROM t WHERE x = 5e-324").first() == (5e-324,)


def test_a_sum_is_rounded_once(spark):
    """A bit far below decides a tie: adding one after the other would lose it."""
    table(spark, [(1.0,), (2.0**-53,), (2.0**-120,)], "x DOUBLE")
    assert spark.sql("SELECT ms_sum(x, 1), ms_sum(-x, 1) FROM t").first() == (
        1.0 + 2.0**-52,
        -1.0 - 2.0**-52,
    )


def test_both_zeros_are_one_value(spark):
    table(spark, [(0.0, 1), (-0.0, 2), (-0.0, -1)], "x DOUBLE, w INT")
    counted = ", ".join(
        f"ms_count_distinct({x}, w)" for x in ("x", "struct(x, 1)", "array(x)", "float(x)")
    )
    assert spark.sql(f"SELECT {counted} FROM t").first() == (1, 1, 1, 1)
    # Yet the zero that has gone is not the one that is shown.
    table(spark, [(0.0, 1), (-0.0, 2), (-0.0, -2)], "x DOUBLE, w INT")
    assert math.copysign(1, spark.sql("SELECT ms_min(x, w) FROM t").first()[0]) == 1


@pytest.mark.parametrize("kind", TYPES)
def test_nothing_is_left(spark, kind):
    table(spark, [(None,)], f"x {kind}", 1)
    none = "SELECT ms_min(x, 1), ms_max(x, 1), ms_count_distinct(x, 1), ms_first(x, 1, 1) FROM t"
    assert spark.sql(none).first() == (None, None, 0, None)
    assert spark.sql(none + " WHERE false").first() == (None, None, 0, None)


def test_weights_of_any_size(spark):
    weights = [100, 100, -73, 10**12, -(10**12), -127, 2**62, -(2**62), 1]
    table(spark, [(7, weight) for weight in weights], "x INT, w BIGINT")
    assert spark.sql("SELECT ms_max(x, w), ms_count_distinct(x, w) FROM t").first() == (7, 1)
    table(spark, [(7, weight) for weight in weights[:-1]], "x INT, w BIGINT")
    assert spark.sql("SELECT ms_max(x, w), ms_count_distinct(x, w) FROM t").first() == (None, 0)


@pytest.mark.parametrize("weight", [1, 127, 128, 129, 300, 2**40])
def test_a_weight_below_zero_waits_for_the_other_partition(spark, weight):
    parts = [
        f"SELECT 7 AS x, {w}L AS w FROM range(1)" for w in (-weight, weight, -weight, weight + 1)
    ]
    query = "SELECT ms_max(x, w), ms_count_distinct(x, w) FROM ({})"
    assert spark.sql(query.format(" UNION ALL ".join(parts))).first() == (7, 1)
    assert spark.sql(query.format(" UNION ALL ".join(parts[:3]))).first() == (None, 0)


@pytest.mark.parametrize("text", [False, True])
def test_large_groups(spark, text):
    dice = random.Random(7)
    names = [f"{n:x}" if text else n for n in range(30_000)]
    gone = set(dice.sample(names, 20_000)) | {names[0], names[-1]}
    rows = [(name, 1) for name in names] + [(name, -1) for name in gone]
    dice.shuffle(rows)
    table(spark, rows, f"x {'STRING' if text else 'BIGINT'}, w INT", 4)
    left = sorted(set(names) - gone)
    found = spark.sql("SELECT ms_min(x, w), ms_max(x, w), ms_count_distinct(x, w) FROM t").first()
    assert found == (left[0], left[-1], len(left))


SPEC = "count;count:0;sum:0;min:0;max:0;first:1;last:1;sum:2;sum:3"


def sessions(rows, gap):
    """What ms_sessions should give for rows of (micros, lsn, int, text, double, decimal)."""
    runs = []
    for row in sorted(row for row in rows if row[0] is not None):
        if runs and row[0] - runs[-1][-1][0] <= gap:
            runs[-1].append(row)
        else:
            runs.append([row])
    return [session(run, gap) for run in runs]


def session(run, gap):
    ints = [row[2] for row in run if row[2] is not None]
    exact = [row[5] for row in run if row[5] is not None]
    return (
        EPOCH + datetime.timedelta(microseconds=run[0][0]),
        EPOCH + datetime.timedelta(microseconds=run[-1][0] + gap),
        len(run),
        len(ints),
        sum(ints) if ints else None,
        min(ints, default=None),
        max(ints, default=None),
        run[0][3],
        run[-1][3],
        exact_sum([row[4] for row in run if row[4] is not None]),
        sum(exact) if exact else None,
    )


SESSION_VALUES = st.tuples(
    st.none() | st.integers(-60, 60),
    st.none() | INTS,
    st.none() | TEXTS,
    st.none() | st.floats(-1e9, 1e9),
    st.none() | decimals(20, 3),
)


@few
@given(
    groups=st.lists(st.lists(SESSION_VALUES, max_size=12), min_size=10, max_size=30),
    gap=st.integers(1, 12),
    partitions=st.integers(1, 4),
    data=st.data(),
)
def test_sessions_are_as_sorted_rows_say(spark, groups, gap, partitions, data):
    numbered = [[(at, lsn, *values) for lsn, (at, *values) in enumerate(group)] for group in groups]
    rows = [(k, *row) for k, group in enumerate(numbered) for row in group]
    rows = [
        (k, None if at is None else EPOCH + datetime.timedelta(microseconds=at), *rest)
        for k, at, *rest in data.draw(st.permutations(rows))
    ]
    schema = "k INT, ts TIMESTAMP_NTZ, lsn BIGINT, a INT, b STRING, c DOUBLE, d DECIMAL(20,3)"
    table(spark, rows, schema, partitions)
    sql = f"SELECT k, ms_sessions(ts, lsn, {gap}, '{SPEC}', a, b, c, d) FROM t GROUP BY k"
    found = dict(spark.sql(sql).collect())
    assert found.keys() == {row[0] for row in rows}
    for k, result in found.items():
        assert list(map(tuple, result)) == sessions(numbered[k], gap)


def test_sessions_are_as_sparks_own(spark):
    dice = random.Random(5)
    starts = [dice.randrange(-500, 500) for _ in range(400)]
    table(spark, [(n % 3, n, at) for n, at in enumerate(starts)], "k INT, lsn BIGINT, s INT")
    stamped = "(SELECT k, lsn, s, timestamp_seconds(s) AS ts FROM t)"
    ours = spark.sql(
        f"SELECT k, inline(r) FROM (SELECT k, ms_sessions(ts, lsn, 2000000, "
        f"'count;sum:0;first:1', s, lsn) AS r FROM {stamped} GROUP BY k)"
    )
    theirs = spark.sql(
        f"SELECT k, session_window.start, session_window.end, count(*), sum(s), "
        f"min_by(lsn, struct(ts, lsn)) FROM {stamped} GROUP BY k, session_window(ts, '2 seconds')"
    )
    assert sorted(ours.collect()) == sorted(theirs.collect())
    types = spark.sql("SELECT sum(int(1)), sum(float(1)), sum(1.5BD), sum(bigint(1))").schema
    made = "ms_sessions(now(), 1, 1, 'sum:0;sum:1;sum:2;sum:3', int(1), float(1), 1.5BD, bigint(1))"
    given = spark.sql(f"SELECT {made} AS r").schema["r"].dataType.elementType
    assert [field.dataType for field in given][2:] == [field.dataType for field in types]


@pytest.mark.parametrize("value", [f"{2**63 - 1}", f"{'9' * 38}BD"])
def test_a_session_that_overflows_raises(spark, value):
    one = f"ms_sessions(timestamp'2024-01-01', id, 1, 'sum:0', IF(id < 2, {value}, -{value}))"
    kept = spark.sql(f"SELECT {one} AS r FROM range(3)").first()
    assert str(kept.r[0].a0) == value.removesuffix("BD")
    with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW"):
        spark.sql(f"SELECT {one} FROM range(2)").collect()


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("ms_min(map(1, 2), 1)", "cannot be ordered"),
        ("ms_first(1, map(1, 2), 1)", "cannot be ordered"),
        ("ms_count_distinct('a' COLLATE UTF8_LCASE, 1)", "cannot be ordered"),
        ("ms_max(1)", "takes 2 arguments"),
        ("ms_max(1, true)", "argument 2 must be bigint"),
        ("ms_sum(1, 1)", "takes DOUBLE or FLOAT"),
        ("ms_sessions(1, 1, 1, 'count')", "must be a TIMESTAMP"),
        ("ms_sessions(now(), 1, 0, 'count')", "longer than nothing"),
        ("ms_sessions(now(), 1, id, 'count')", "must be literals"),
        ("ms_sessions(now(), 1, 1, 'sum:1', 1)", "cannot read sum:1"),
        ("ms_sessions(now(), 1, 1, 'mean:0', 1)", "no aggregate mean"),
        ("ms_sessions(now(), 1, 1, 'sum:0', 'a')", "cannot be added"),
        ("ms_sessions(now(), 1, 1, 'max:0', map(1, 2))", "cannot be ordered"),
    ],
)
def test_what_cannot_be_is_refused_before_it_runs(spark, call, why):
    with pytest.raises(Exception, match=why):
        spark.sql(f"SELECT {call} FROM range(1)")


def test_several_in_one_query_with_filters(spark):
    found = spark.sql(
        "SELECT ms_min(id, 1), ms_max(id, 1), ms_max(id, 1) FILTER (WHERE id < 5), "
        "ms_max(id, 1) + ms_min(id, 1) FROM range(9) HAVING ms_max(id, 1) = 8"
    )
    assert found.collect() == [(0, 8, 4, 8)]


def test_the_state_outlives_the_query(spark, tmp_path):
    """Micro-batches in update mode; each step is a query of its own on the same checkpoint."""
    dice, left, seen = random.Random(3), {k: Counter() for k in range(4)}, {}
    (tmp_path / "in").mkdir()
    for step in range(4):
        rows = []
        for _ in range(60):
            k, x = dice.randrange(4), dice.randrange(40)
            weight = -1 if left[k][x] and dice.random() < 0.6 else 1
            left[k][x] += weight
            rows.append(json.dumps({"k": k, "x": x, "w": weight}))
        (tmp_path / "in" / f"{step}.json").write_text("\n".join(rows))
        run_step(spark, tmp_path, seen)
        for k, values in left.items():
            there = sorted((+values).elements())
            assert seen[k] == (
                there[0],
                there[-1],
                len(+values),
                sum(there) / 8,
                there[0],
                there[-1],
            )


def run_step(spark, folder, seen):
    def keep(batch, _):
        seen.update({k: tuple(results) for k, *results in batch.collect()})

    rows = spark.readStream.schema("k INT, x INT, w BIGINT").json(str(folder / "in"))
    rows.createOrReplaceTempView("streamed")
    view = spark.sql(
        "SELECT k, ms_min(x, w), ms_max(x, w), ms_count_distinct(x, w), ms_sum(x / 8D, w), "
        "ms_first(x, x, w), ms_last(x, x, w) FROM streamed GROUP BY k"
    )
    writer = view.writeStream.outputMode("update").foreachBatch(keep).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    assert query.awaitTermination(120)
