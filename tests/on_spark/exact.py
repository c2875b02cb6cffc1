"""A database and, beside it, plain Spark over the same rows: views must show what Spark answers."""

from __future__ import annotations

import math
from collections import Counter
from contextlib import contextmanager

import pyarrow as pa

import millstream as ms
from millstream.model import Schema
from millstream.model.types import type_from_arrow
from millstream.spark.internals import empty_frame
from millstream.testing import TIMEOUT, engine_of, wait_until
from millstream.views.run.columns import columns_json

from .observing import is_on_spark

_MARK = Schema.of(at="TIMESTAMP")
_OWN = ("_op", "_weight", "_lsn")


def plain_session(spark):
    """A session for plain queries, in batch, with session functions and time zone as views have."""
    session = spark.newSession()
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        # So few rows are not worth compiled plans; the interpreted ones mean the same.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    for name, value in settings.items():
        session.conf.set(name, value)
    return session


class Plain:
    """Plain Spark, in batch: what a SELECT gives over some rows."""

    def __init__(self, spark):
        self._session = plain_session(spark)

    def give(self, name, schema, rows, marks=None):
        """Let queries read rows under a name.

        ``_n`` is the place of each, ``_wm`` the watermark that held before it was pushed.
        """
        columns = [
            pa.array([row[place] for row in rows], column.type.arrow)
            for place, column in enumerate(schema.columns)
        ]
        columns += [
            pa.array(range(len(rows)), pa.int64()),
            pa.array([None] * len(rows) if marks is None else marks, pa.timestamp("us", "UTC")),
        ]
        table = pa.table(columns, names=[*schema.names, "_n", "_wm"])
        if rows:
            frame = self._session.createDataFrame(table)
        else:
            frame = empty_frame(self._session, columns_json(table.schema))
        frame.createOrReplaceTempView(name)

    def answer(self, sql):
        """The answer, as an Arrow table."""
        return self._session.sql(sql).toArrow()


class Copy:
    """What a subscriber knows: the snapshot, and every change since, added up.

    Attributes:
        rows: the bag of rows.
        ops: how many rows were delivered as what; an update counts as two.
        token: where to resume.
    """

    def __init__(self, subscription):
        self.rows = Counter()
        self.ops = Counter()
        self.token = None
        self._subscription = subscription

    def follow(self, subscription):
        """Read on from another subscription, which resumes at ``token``."""
        self._subscription = subscription

    def drain(self, last):
        """Take in all that comes up to an LSN."""
        while self._subscription.position < last:
            self._take(self._subscription.recv(timeout=TIMEOUT))
        return self.rows

    def _take(self, batch):
        assert batch.gap is None
        for row in batch.to_arrow().to_pylist():
            self.rows[plain(tuple(v for n, v in row.items() if n not in _OWN))] += row["_weight"]
            self.ops[row["_op"]] += batch.kind == "changes"
        self.token = batch.token
        assert min(self.rows.values(), default=0) >= 0, "a row went that was not there"
        self.rows = +self.rows


class Twin:
    """One database, and plain Spark over the rows that were pushed to it."""

    def __init__(self, db, spark):
        self.db = db
        self.spark = Plain(spark)
        self._user = spark
        self.pushed = {}
        self.watermark = {}
        self._delays = {}
        self._marks = {}
        self._schemas = {}
        self._sources = {}
        self._tables = {}
        self._expected = {}
        self.copies = {}

    # ---- what there is

    def source(self, name, columns, event_time=None, delay=None):
        """CREATE SOURCE; with event time, what is pushed is committed push by push."""
        mark = ""
        if event_time is not None:
            seconds = f"{delay.total_seconds():.0f}"
            mark = f", WATERMARK FOR {event_time} AS {event_time} - INTERVAL '{seconds} seconds'"
        self.db.execute(f"CREATE SOURCE {name} ({columns}{mark})")
        self.watermark[name], self._marks[name] = None, []
        self._delays[name] = (event_time, delay)
        self._schemas[name] = engine_of(self.db).catalog[name].schema
        self._sources[name] = self.db.source(name)
        self.pushed[name] = []

    def table(self, name, columns):
        """CREATE TABLE."""
        self.db.execute(f"CREATE TABLE {name} ({columns})")
        self._tables[name] = engine_of(self.db).catalog[name].schema

    def view(self, name, select, expected=None, *, tail="", kind="MATERIALIZED VIEW", options=""):
        """Make a view and subscribe to it; plain Spark runs ``expected``, or the same SELECT."""
        self.db.execute(f"CREATE {kind} {name} {options} AS {select} {tail}")
        self._expected[name] = expected or select
        start = "earliest" if kind == "STREAM" else None
        self.copies[name] = Copy(self.db.subscribe(f"SELECT * FROM {name}", start=start))

    def views(self, **views):
        """Some views: a SELECT each, or a pair of ours and Spark's."""
        for name, each in views.items():
            self.view(name, *([each] if isinstance(each, str) else each))

    def runner(self, name):
        return engine_of(self.db).views[name].runner

    def emitted_lsn(self, name):
        """The LSN of the last change that a view has emitted."""
        view = engine_of(self.db).views[name].view
        return view.lsn if view.changes else 0

    @property
    def runners(self):
        found = {name: self.runner(name) for name in self._expected}
        return {name: each for name, each in found.items() if is_on_spark(each)}

    # ---- what happens

    def push(self, name, rows, how="batch"):
        """Rows into a source: one by one, as a batch, as Arrow."""
        source, schema = self._sources[name], self._schemas[name]
        if how == "single":
            for row in rows:
                source.push(row)
                self._pushed(name, [row])
            return
        if how == "batch":
            source.push_batch(rows)
        else:
            source.push_arrow(schema.rows_to_arrow(schema.check_rows(rows)))
        self._pushed(name, rows)

    def _pushed(self, name, rows):
        self.pushed[name] += rows
        self._marks[name] += [self.watermark[name]] * len(rows)
        column, delay = self._delays[name]
        if column is not None:
            self.db.flush()  # else pushes may be committed together, and none be late
            place = self._schemas[name].names.index(column)
            times = [row[place] - delay for row in rows if row[place] is not None]
            self._advance(name, times)

    def promise(self, name, moment):
        """An explicit watermark."""
        self._sources[name].watermark(moment)
        self.db.flush()
        self._advance(name, [moment])

    def _advance(self, name, times):
        known = [] if self.watermark[name] is None else [self.watermark[name]]
        self.watermark[name] = max([*known, *times], default=None)

    def settle(self, *names):
        """Wait until views have taken in all that has happened, those that read views, too."""
        for _ in range(2):  # what a view commits, one over it has to take in
            lsn = self.db.flush()
            for name in names or self._expected:
                self.db.wait_for(name, lsn=lsn, timeout=TIMEOUT)
        self.db.flush()

    def await_live(self):
        """Wait until the queries of all views run."""
        runners = self.runners.values()
        wait_until(lambda: all(each.state == "live" for each in runners), "the live queries")

    @contextmanager
    def opened_again(self):
        """The database closed and opened again, for some time; its subscribers resume."""
        self.check()
        path = self.db.path
        self.db.close()
        with ms.open(path, spark=self._user) as self.db:
            self._sources = {name: self.db.source(name) for name in self._sources}
            for name, copy in self.copies.items():
                copy.follow(self.db.subscribe(f"SELECT * FROM {name}", start=copy.token))
            yield self.db

    # ---- what is

    def check(self, *names):
        """All rows are what plain Spark answers: those of the view, those of its subscriber."""
        self.settle()
        for name, schema in self._schemas.items():
            self.spark.give(name, schema, self.pushed[name], self._marks[name])
            self.spark.give(f"{name}_mark", _MARK, [(self.watermark[name],)])
        for name, schema in self._tables.items():
            self.spark.give(name, schema, self.db.query(f"SELECT * FROM {name}").fetchall())
        wrong = []
        for name in names or self._expected:
            wrong += self._differences(name)
        assert not wrong, "\n".join(wrong)

    def _differences(self, name):
        wanted = self.spark.answer(self._expected[name])
        expected = bag(wanted)
        copy = self.copies[name].drain(self.emitted_lsn(name))
        wrong = [] if copy == expected else [difference(name, "the subscriber", copy, expected)]
        if engine_of(self.db).catalog[name].kind == "view":
            shown = self.db.query(f"SELECT * FROM {name}").to_arrow()
            if bag(shown) != expected:
                wrong.append(difference(name, "the view", bag(shown), expected))
            if types(shown) != types(wanted):
                wrong.append(f"{name}: types {types(shown)}, Spark has {types(wanted)}")
        return wrong


def difference(name, reader, found, expected):
    more = sorted(map(repr, (found - expected).elements()))[:5]
    less = sorted(map(repr, (expected - found).elements()))[:5]
    return f"{name}: {reader} has {more}, Spark has {less} ({len(found)} / {len(expected)} rows)"


def bag(table):
    """Rows as a bag."""
    return Counter(plain(tuple(row.values())) for row in table.to_pylist())


def types(table):
    """Names and types of columns, whether values may be NULL or not."""
    return [(each.name.lower(), type_from_arrow(each.type).sql) for each in table.schema]


def plain(value):
    """The value such that equal is what SQL calls equal, and hashable."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, list | tuple):
        return tuple(map(plain, value))
    if isinstance(value, dict):
        return tuple((name, plain(each)) for name, each in value.items())
    return value
