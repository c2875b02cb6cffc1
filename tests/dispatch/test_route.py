"""What each subscriber gets of a batch: by the index what each query by itself would give."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.dispatch import route
from millstream.dispatch.route import FanOut, Routes, select
from millstream.errors import ExpressionError, ViewFailedError
from millstream.model import ChangeBatch, Schema
from millstream.sql import parse, plan_select

SCHEMA = Schema.of(
    s="VARCHAR",
    n="BIGINT",
    i="INTEGER",
    b="BOOLEAN",
    d="DATE",
    t="TIMESTAMP",
    x="DECIMAL(5, 2)",
    f="DOUBLE",
    y="BINARY",
)
VALUES = {
    "s": (["a", "b", "ä", ""], lambda v: f"'{v}'"),
    "n": ([0, 1, -1, 2**40], str),
    "i": ([0, 1, 7], str),
    "b": ([True, False], str),
    "d": ([date(2024, 1, 1), date(2024, 1, 2)], lambda v: f"DATE '{v}'"),
    "t": (
        [datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 1, tzinfo=UTC)],
        lambda v: f"TIMESTAMP '{v:%Y-%m-%d %H:%M:%S}'",
    ),
    "x": ([Decimal("1.00"), Decimal("2.50")], str),
    "f": ([0.0, -0.0, 1.5, float("nan")], lambda v: "CAST('NaN' AS DOUBLE)" if v != v else repr(v)),  # noqa: PLR0124
    "y": ([b"a", b""], lambda v: f"X'{v.hex()}'"),
}

conditions = st.one_of(
    *(
        st.one_of(
            st.sampled_from(values).map(lambda v, c=c, text=text: f"{c} = {text(v)}"),
            st.lists(st.sampled_from(values), min_size=1, max_size=3).map(
                lambda vs, c=c, text=text: f"{c} IN ({', '.join(map(text, vs))})"
            ),
        )
        for c, (values, text) in VALUES.items()
        if c != "y"
    ),
    st.just("n > 0"),
    st.just("s IS NULL"),
)
queries = st.tuples(
    st.sampled_from(["*", "n, s", "n + 1 AS m", "s, d, t"]),
    st.lists(conditions, max_size=3).map(" AND ".join),
).map(lambda q: f"SELECT {q[0]} FROM src" + (f" WHERE {q[1]}" if q[1] else ""))
rows = st.lists(
    st.tuples(*(st.none() | st.sampled_from(values) for values, _ in VALUES.values())), max_size=12
)


def plan(sql, schema=SCHEMA):
    (statement,) = parse(sql)
    return plan_select(statement, schema)


def placed(content, weights=None, *, arrow=False, schema=SCHEMA):
    batch = ChangeBatch.from_rows(schema, content, weights=weights)
    if arrow:
        batch = ChangeBatch.from_arrow(schema, batch.arrow, weights=weights)
    return batch.placed("src", 100, committed_at=1, origin=None)


class Reader:
    def __init__(self, *, outlives_failures=False):
        self.got, self.error = [], None
        self.outlives_failures = outlives_failures

    def offer(self, batch):
        self.got.append(batch)

    def fail(self, error):
        self.error = error

    def content(self):
        return [
            (repr(row), weight, lsn)
            for batch in self.got
            for row, weight, lsn in zip(batch.rows, batch.weights, batch.lsns, strict=True)
        ]


@pytest.mark.slow
@given(st.lists(queries, min_size=1, max_size=8), rows, st.booleans(), st.data())
def test_the_index_agrees_with_plain_evaluation(sqls, content, arrow, data):
    weights = data.draw(
        st.none() | st.lists(st.sampled_from([1, -1]), min_size=len(content), max_size=len(content))
    )
    batch = placed(content, weights, arrow=arrow)
    routes, readers = Routes(), []
    for sql in sqls:
        reader = Reader()
        routes.add(plan(sql), reader)
        readers.append((sql, reader))
    routes.deliver(batch)
    for sql, reader in readers:
        one = plan(sql)
        # Plain: row by row, in the other form, by the whole predicate.
        places = [
            n for n, row in enumerate(content) if one.predicate is None or one.predicate.test(row)
        ]
        expected = []
        for n in places:
            row = content[n] if one.projection is None else one.projection.row(content[n])
            expected.append((repr(row), batch.weights[n], 100 + n))
        assert reader.content() == expected
        for got in reader.got:
            assert (got.first_lsn, got.lsn) == (batch.first_lsn, batch.lsn)
            assert got.schema == one.schema


@given(queries, rows.filter(bool))
def test_select_says_the_same_of_both_forms(sql, content):
    one = plan(sql)
    by_rows, by_arrow = (select(placed(content, arrow=arrow), one) for arrow in (False, True))
    if by_rows is None or by_arrow is None:
        assert by_rows is by_arrow is None
    else:
        assert repr(by_rows.rows) == repr(by_arrow.rows)
        assert list(by_rows.lsns) == list(by_arrow.lsns)
        assert by_arrow.is_arrow


@pytest.mark.parametrize("arrow", [False, True])
def test_what_keeps_nothing_of_weighted_rows_gets_nothing(arrow):
    """An UPDATE that is of no interest to a subscriber."""
    batch = placed([(None,) * 9, (None,) * 9], [-1, 1], arrow=arrow)
    assert select(batch, plan("SELECT * FROM src WHERE n > 5")) is None


class TestSharing:
    def test_equal_queries_are_evaluated_once(self):
        routes, readers = Routes(), [Reader() for _ in range(3)]
        for reader in readers:
            routes.add(plan("SELECT n FROM src WHERE n > 1"), reader)
        assert len(routes) == 1
        routes.deliver(placed([(None, n, *[None] * 7) for n in range(4)]))
        assert readers[0].got[0].rows == [(2,), (3,)]
        assert readers[0].got[0] is readers[1].got[0] is readers[2].got[0]

    def test_the_others_stay_when_one_leaves(self):
        routes, one, other = Routes(), Reader(), Reader()
        for sql in ("SELECT n FROM src", "SELECT n FROM src WHERE s = 'a'"):
            routes.add(plan(sql), one)
            routes.add(plan(sql), other)
            routes.remove(plan(sql), one)
        batch = placed([("a", 1, *[None] * 7)])
        routes.deliver(batch)
        assert (len(one.got), len(other.got)) == (0, 2)
        for sql in ("SELECT n FROM src", "SELECT n FROM src WHERE s = 'a'"):
            routes.remove(plan(sql), other)
            routes.remove(plan(sql), other)
        routes.deliver(batch)
        assert len(other.got) == 2
        assert len(routes) == 0
        assert routes.subscribers == []

    @pytest.mark.parametrize("arrow", [False, True])
    def test_routes_of_one_value_come_and_go(self, arrow):
        routes, readers = Routes(), {}
        for value in "abc":
            readers[value] = Reader()
            routes.add(plan(f"SELECT n FROM src WHERE s IN ('{value}', 'z')"), readers[value])
        batch = placed([(s, n, *[None] * 7) for n, s in enumerate("azbz")], arrow=arrow)
        routes.deliver(batch)
        assert [n for (n,) in readers["a"].got[0].rows] == [0, 1, 3]
        assert [n for (n,) in readers["b"].got[0].rows] == [1, 2, 3]
        assert [n for (n,) in readers["c"].got[0].rows] == [1, 3]
        routes.remove(plan("SELECT n FROM src WHERE s IN ('b', 'z')"), readers["b"])
        late = Reader()
        routes.add(plan("SELECT n FROM src WHERE s = 'b'"), late)
        routes.deliver(batch)
        assert len(readers["b"].got) == 1
        assert len(readers["a"].got) == 2
        assert late.got[0].rows == [(2,)]


class TestFailure:
    def test_a_query_without_a_value_ends_its_own_route_only(self):
        routes, bad, also_bad, good = Routes(), Reader(), Reader(), Reader()
        routes.add(plan("SELECT 10 / n AS q FROM src"), bad)
        routes.add(plan("SELECT 10 / n AS q FROM src WHERE s = 'a'"), also_bad)
        routes.add(plan("SELECT n FROM src"), good)
        routes.deliver(placed([("a", 0, *[None] * 7)]))
        assert isinstance(bad.error, ExpressionError)
        assert isinstance(also_bad.error, ExpressionError)
        assert (good.error, len(good.got)) == (None, 1)

    def test_a_view_that_fails_ends_its_subscriptions_and_not_the_views_over_it(self):
        fan_out, subscription = FanOut(0), Reader()
        over, filtered = Reader(outlives_failures=True), Reader()
        routes = fan_out.routes("src")
        for sql, each in [
            ("SELECT n FROM src", subscription),
            ("SELECT n FROM src", over),
            ("SELECT n FROM src WHERE s = 'a'", filtered),
        ]:
            routes.add(plan(sql), each)
        fan_out.fail_routes("src", ViewFailedError("it failed", view="src"))
        fan_out.fail_routes("another", ViewFailedError("it failed", view="another"))
        assert [type(each.error) for each in (subscription, filtered)] == [ViewFailedError] * 2
        routes.deliver(placed([("a", 5, *[None] * 7)]))
        assert over.error is None
        assert [len(each.got) for each in (subscription, over, filtered)] == [0, 1, 0]

    def test_a_subscriber_fails_and_the_others_go_on(self, db):
        db.execute("CREATE SOURCE src (n BIGINT)")
        bad = db.subscribe("SELECT 10 / n AS q FROM src")
        good = db.subscribe("SELECT n FROM src")
        db.insert("src", [(5,)])
        db.flush()
        db.insert("src", [(0,)])
        db.insert("src", [(1,)])
        db.flush()
        assert [row for batch in (good.recv(30),) for row in batch.rows] == [(5,), (0,), (1,)]
        assert bad.recv(30).rows == [(2.0,)]
        with pytest.raises(ExpressionError):
            bad.recv(30)
        assert bad.state == "failed"


# BUG in dispatch/route.py: ``_split_arrow`` gives nothing of a batch without rows.
@pytest.mark.parametrize("arrow", [False, True])
def test_a_lone_watermark_comes_to_all(arrow):
    """With an index or without: which of the two a query gets is no business of its reader."""
    batch = ChangeBatch.from_rows(SCHEMA, [], watermark=5)
    if arrow:
        batch = ChangeBatch.from_arrow(SCHEMA, batch.arrow, watermark=5)
    routes, plain, indexed = Routes(), Reader(), Reader()
    routes.add(plan("SELECT n FROM src WHERE n > 1"), plain)
    routes.add(plan("SELECT n FROM src WHERE n = 1"), indexed)
    routes.deliver(batch.placed("src", 1, committed_at=1, origin=None))
    assert [b.watermark for b in plain.got] == [5]
    assert [b.watermark for b in indexed.got] == [5]


def test_a_route_that_comes_while_the_index_is_made_is_in_it(monkeypatch):
    """Another thread subscribes just when the dispatcher lists the values that are asked for."""
    routes, late = Routes(), Reader()
    routes.add(plan("SELECT n FROM src WHERE s = 'a'"), Reader())
    batch = placed([("b", 1, *[None] * 7)], arrow=True)
    array, joined = pa.array, []

    def meanwhile(*args, **options):
        if not joined:
            joined.append(True)
            routes.add(plan("SELECT n FROM src WHERE s = 'b'"), late)
        return array(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(route.pa, "array", meanwhile)  # type: ignore[attr-defined]
        routes.deliver(batch)
    assert joined
    routes.deliver(batch)
    assert late.got
