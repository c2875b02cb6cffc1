"""Joins with tables in the feed: whatever comes first, what was sent adds up to the join."""

import math
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.model import ChangeBatch, Schema
from millstream.spark import lookup_join
from millstream.spark.lookup_join import LookupJoin
from millstream.sql.views.plan import Lookup

MAIN = Schema.of(k="BIGINT", n="BIGINT")
USERS = Schema.of(key=("id",), id="BIGINT NOT NULL", city="BIGINT")
CITIES = Schema.of(key=("id",), id="BIGINT NOT NULL", name="VARCHAR")
ON_MAIN = Lookup(1, (((0, "k"), "id"),))
ON_USERS = Lookup(2, (((1, "city"), "id"),))


class Play:
    """A main log and tables, changed step by step; what the join sends, added up."""

    def __init__(self, lookups, schemas):
        self.schemas = schemas
        self.lookups = lookups
        self.logs = []  # (log, batch), in LSN order
        self.tables = [{} for _ in schemas]
        self.main = Counter()
        self.sent = Counter()
        self.placed = Counter()  # with the LSN of the main log's row
        self.lsn = 0
        self.join = self.made()

    def made(self, until=None):
        """The join as it is at a place."""
        join = LookupJoin(self.lookups, self.schemas, self.history)
        for log, batch in self.logs[:until]:
            if log:
                join.load(log, batch)
        return join

    def history(self, lsn):
        return [batch for log, batch in self.logs if log == 0 and batch.lsn < lsn]

    def give(self, log, rows, weights):
        batch = ChangeBatch(
            self.schemas[log],
            rows,
            None,
            ChangeBatch.from_rows(self.schemas[log], rows, weights=weights)._weights,
        )
        batch.topic = f"log {log}"
        batch.first_lsn, batch.lsn = self.lsn + 1, self.lsn + len(rows)
        self.lsn = batch.lsn
        made = self.join.join(log, batch)
        self.logs.append((log, batch))
        if made is not None:
            assert made.schema.names == self.join.schema.names
            assert all(batch.first_lsn <= lsn <= batch.lsn for lsn in made.lsns)
            for (*row, row_lsn), weight in zip(made.rows, made.weights, strict=True):
                self.sent[tuple(row)] += weight
                self.placed[(*row, row_lsn)] += weight

    def push(self, *rows, weights=None):
        weights = weights or [1] * len(rows)
        self.give(0, list(rows), weights)
        for row, weight in zip(rows, weights, strict=True):
            self.main[row] += weight

    def put(self, log, row):
        """INSERT OR REPLACE."""
        old = self.tables[log].get(row[0])
        self.tables[log][row[0]] = row
        rows = [row] if old is None else [old, row]
        if old != row:
            self.give(log, rows, [1] if old is None else [-1, 1])

    def remove(self, log, key):
        old = self.tables[log].pop(key, None)
        if old is not None:
            self.give(log, [old], [-1])

    def joined(self):
        """The join of what there is now, by nested loops."""
        places = {0: 0}
        width = len(self.schemas[0].columns)
        found = [(row, weight) for row, weight in self.main.items() if weight]
        for lookup in self.lookups:
            places[lookup.table] = width
            width += len(self.schemas[lookup.table].columns)
            found = [pair for each in found for pair in self.matches(lookup, places, *each)]
        return Counter(dict(found))

    def matches(self, lookup, places, row, weight):
        matched = False
        for other in self.tables[lookup.table].values():
            if all(self.equal(lookup, places, (row, other), pair) for pair in lookup.on):
                matched = True
                yield row + other, weight
        if lookup.outer and not matched:
            yield row + (None,) * len(self.schemas[lookup.table].columns), weight

    def equal(self, lookup, places, rows, pair):
        (row, other), ((log, name), right) = rows, pair
        mine = row[places[log] + self.schemas[log].names.index(name)]
        theirs = other[self.schemas[lookup.table].names.index(right)]
        return mine is not None and mine == theirs

    def check(self):
        self.sent = Counter({row: weight for row, weight in self.sent.items() if weight})
        assert self.sent == self.joined()
        if all(batch.is_insert_only for log, batch in self.logs if log == 0):
            # A row is taken back under the LSN that it came with.
            assert min(self.placed.values(), default=0) >= 0
            places = {
                lsn: row
                for log, batch in self.logs
                if log == 0
                for lsn, row in zip(batch.lsns, batch.rows, strict=True)
            }
            for (*row, lsn), weight in self.placed.items():
                assert weight == 0 or tuple(row[: len(places[lsn])]) == places[lsn]


NUMBERS = st.none() | st.integers(0, 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=3)),
        st.tuples(st.just("take back"), st.integers(0, 20)),
        st.tuples(st.just("user"), st.integers(0, 3), NUMBERS),
        st.tuples(st.just("no user"), st.integers(0, 3)),
        st.tuples(st.just("city"), st.integers(0, 3), st.sampled_from(["x", "y", None])),
        st.tuples(st.just("no city"), st.integers(0, 3)),
        st.tuples(st.just("anew")),
    ),
    max_size=25,
)


@pytest.fixture(params=[0, 16], ids=["in Arrow", "row by row"], autouse=True)
def few(request, monkeypatch):
    """Both ways to join a few rows."""
    monkeypatch.setattr(lookup_join, "_FEW", request.param)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS, st.booleans(), st.booleans(), st.booleans())
def test_adds_up_to_the_join(steps, outer, outer_too, chained):
    second = ON_USERS if chained else Lookup(2, (((0, "n"), "id"),))
    lookups = (
        Lookup(1, ON_MAIN.on, outer),
        Lookup(2, second.on, outer_too),
    )
    play = Play(lookups, (MAIN, USERS, CITIES))
    for what, *more in steps:
        if what == "push":
            play.push(*more[0])
        elif what == "take back":
            there = sorted(play.main.elements(), key=repr)
            if there:
                play.push(there[more[0] % len(there)], weights=[-1])
        elif what == "user":
            play.put(1, tuple(more))
        elif what == "no user":
            play.remove(1, more[0])
        elif what == "city":
            play.put(2, tuple(more))
        elif what == "no city":
            play.remove(2, more[0])
        else:  # another gear, another process: the tables are read again
            play.join = play.made()
        play.check()


def test_two_columns_must_be_equal():
    schema = Schema.of(key=("a", "b"), a="BIGINT NOT NULL", b="BIGINT NOT NULL")
    play = Play((Lookup(1, (((0, "k"), "a"), ((0, "n"), "b"))),), (MAIN, schema))
    play.give(1, [(1, 2), (1, 3)], [1, 1])
    play.tables[1] = {1: (1, 2), 2: (1, 3)}
    play.push((1, 2), (1, 4), (2, 2), (None, 2))
    play.check()
    assert play.sent == Counter([(1, 2, 1, 2)])


def test_a_table_that_is_not_keyed_by_what_it_is_joined_on():
    """Several rows of it fit one row of the log."""
    play = Play((Lookup(1, (((0, "k"), "city"),)),), (MAIN, USERS))
    play.push((7, 1))
    play.put(1, (1, 7))
    play.put(1, (2, 7))
    play.check()
    assert play.sent == Counter([(7, 1, 1, 7), (7, 1, 2, 7)])
    play.put(1, (1, 8))
    play.check()
    assert play.sent == Counter([(7, 1, 2, 7)])


def test_not_a_number_fits_not_a_number():
    """As Spark has it; and a row that has one can be taken out again."""
    main, table = Schema.of(x="DOUBLE"), Schema.of(key=("id",), id="DOUBLE NOT NULL", y="DOUBLE")

    def nan():
        return float("nan")

    join = LookupJoin((Lookup(1, (((0, "x"), "id"),)),), (main, table), lambda lsn: [])
    join.load(1, ChangeBatch.from_rows(table, [(nan(), nan())]))
    made = join.join(0, ChangeBatch.from_rows(main, [(nan(),), (1.0,)]))
    assert made is not None, "NaN = NaN in Spark's SQL"
    assert [all(map(math.isnan, row[:-1])) for row in made.rows] == [True]
    join.load(1, ChangeBatch.from_rows(table, [(nan(), nan())], weights=[-1]))
    assert join.join(0, ChangeBatch.from_rows(main, [(nan(),)])) is None


@pytest.mark.parametrize("wide", ["main", "table"])
def test_a_column_that_was_added_meanwhile(wide):
    """ALTER ... ADD COLUMN while the view runs: rows are wider, columns where they were."""
    play = Play((ON_MAIN,), (MAIN, USERS))
    main, users = MAIN, USERS
    if wide == "main":
        main = Schema.of(k="BIGINT", n="BIGINT", note="VARCHAR")
    else:
        users = Schema.of(key=("id",), id="BIGINT NOT NULL", city="BIGINT", note="VARCHAR")

    def widened(row, schema):
        return row + (None,) * (len(schema.columns) - len(row))

    user = ChangeBatch.from_rows(users, [widened((1, 5), users)])
    play.join.load(1, user)
    made = play.join.join(0, ChangeBatch.from_rows(main, [widened((1, 2), main)]))
    assert made.rows == [(1, 2, 1, 5, 0)]
    wanted = {"_0_k": 1, "_0_n": 2, "_1_id": 1, "_1_city": 5, "_row_lsn": 0}
    assert made.arrow.to_pylist() == [wanted]


def test_nothing_to_say():
    play = Play((ON_MAIN,), (MAIN, USERS))
    assert play.join.join(0, ChangeBatch.from_rows(MAIN, [(1, 1)])) is None
    assert play.join.join(1, ChangeBatch.from_rows(USERS, [(1, 1)])) is None
