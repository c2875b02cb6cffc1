"""Every function that this process evaluates, held against Spark with random arguments.

Which functions those are is found by calling every name that the grammar or Spark knows: one that
is added later is tested, too, or is not among ``function_names.COUNTS`` and fails the first test.
``MILLSTREAM_SEED=random`` draws others than always, and a failure shows the seed (``seed.py``).
"""

from __future__ import annotations

import contextlib
import random
from datetime import datetime

import pyarrow as pa
import pytest

import millstream as ms
from millstream.model import Schema
from millstream.model.types import type_from_arrow
from millstream.sql import Input, parse
from millstream.sql.adhoc import plan_adhoc
from millstream.sql.function_names import AGGREGATES, COUNTS
from millstream.sql.spark_functions import SPARK_FUNCTIONS

from ..seed import SEED  # noqa: TID252 - tests have no name
from . import functions
from .functions import FAILS, FOR_VIEWS, FORMS, SCHEMA, plain

ROWS = 24
TRIES, MOST = 30, 8


@pytest.fixture(scope="module")
def names(spark_owner):
    return [row[0] for row in spark_owner.session.sql("SHOW FUNCTIONS").collect()]


@pytest.fixture(scope="module")
def drawn(names):
    """Rows, and calls with their values by both compiled forms."""
    dice = random.Random(SEED)
    data = functions.rows(ROWS, dice)
    batches = [SCHEMA.rows_to_arrow([row]) for row in data]
    cases = []
    for name, texts in functions.forms(COUNTS).items():
        for sql, node in functions.draw(name, texts, dice, TRIES, MOST):
            case, by_arrow = functions.evaluated(name, sql, node, data, batches)
            assert plain(case.values) == plain(by_arrow), f"{sql} in Arrow, seed {SEED}"
            cases.append(case)
    return data, cases


def test_every_name_that_is_admitted_is_tested(names):
    admitted = {name for name in functions.all_names(names) if functions.is_admitted(name)}
    # Its name is sqlglot's for the operator ~*, which Spark has not.
    assert admitted - {"NOT", "REGEXP_I_LIKE"} - set(AGGREGATES) == set(COUNTS)


def test_the_names_that_are_left_to_spark_are_those_of_spark(names):
    known = {name.upper() for name in names if name.isidentifier()}
    assert known == SPARK_FUNCTIONS


def test_every_function_is_drawn(drawn):
    """With each seed, each has arguments that it takes."""
    found = {case.name for case in drawn[1]}
    assert {*COUNTS, *FORMS} - found == FOR_VIEWS


class Plain:
    """Plain Spark: the values of expressions over some rows, errors among them."""

    def __init__(self, spark, data):
        self._session = spark.newSession()
        for name, value in {
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.subexpressionElimination.enabled": "false",
        }.items():
            self._session.conf.set(name, value)
        schema = SCHEMA.arrow.append(pa.field("_n", pa.int32()))
        batch = SCHEMA.rows_to_arrow(data)
        table = pa.table([*batch.columns, pa.array(range(len(data)), pa.int32())], schema=schema)
        self._rows = self._session.createDataFrame(table.cast(_nullable(schema)))
        self._java = self._session.sparkContext._jvm.org.apache.spark.sql

    def answers(self, sqls):
        """For each expression its type and its values; one that raises is FAILS."""
        tries = self._java.catalyst.expressions
        parser = self._session._jsparkSession.sessionState().sqlParser()
        items = [parser.parseExpression("_n")]
        for sql in sqls:
            read = parser.parseExpression
            items.append(tries.TryEval(read(sql)))
            items.append(tries.IsNull(tries.TryEval(tries.IsNull(read(sql)))))
        gateway = self._session.sparkContext._gateway
        columns = gateway.new_array(self._java.Column, len(items))
        for place, item in enumerate(items):
            columns[place] = self._java.classic.ExpressionUtils.column(item).alias(f"c{place}")
        made = type(self._rows)(self._rows._jdf.select(columns), self._session)
        table = made.toArrow().sort_by("c0")
        types = [each.dataType for each in made.schema]
        return [
            (types[2 * place + 1].simpleString(), _values(table, 2 * place + 1))
            for place in range(len(sqls))
        ]


def _nullable(schema):
    return pa.schema([field.with_nullable(True) for field in schema])


def _values(table, place):
    fails = table.column(place + 1).to_pylist()
    values = _readable(table.column(place))
    return tuple(FAILS if fail else value for fail, value in zip(fails, values, strict=True))


def _readable(column):
    """The values; those that Python cannot hold, such as the year 10000, are errors here."""
    made = []
    for value in column:
        try:
            made.append(_timeless(value.as_py()))
        except (OverflowError, ValueError):
            made.append(FAILS)
    return made


def _timeless(value):
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def by_halves(ask, cases):
    """What is asked for each case; a question for all at once is divided where it is refused."""
    try:
        return ask(cases)
    except Exception as error:
        if len(cases) == 1:
            return [error]
    half = len(cases) // 2
    return by_halves(ask, cases[:half]) + by_halves(ask, cases[half:])


def test_as_spark(spark, drawn):
    data, cases = drawn
    session = Plain(spark, data)
    wrong = []
    for start in range(0, len(cases), 40):
        part = cases[start : start + 40]
        found = by_halves(lambda some: session.answers([case.sql for case in some]), part)
        for case, answer in zip(part, found, strict=True):
            wrong += _difference(case, answer)
    assert not wrong, f"seed {SEED}:\n" + "\n".join(wrong)


def _difference(case, answer):
    if isinstance(answer, Exception):
        # Spark refuses a few conditions that are NULL, and have no type, where we do not.
        return [] if "NULL" in case.sql else [f"{case.sql}: Spark says {str(answer)[:200]}"]
    kind, values = answer
    ours = tuple(map(_timeless, case.values))
    if case.type.startswith("MAP"):
        values = tuple(dict(each) if isinstance(each, list) else each for each in values)
    wrong = [
        f"{case.sql}: {mine!r}, Spark has {theirs!r}"
        for mine, theirs in zip(ours, values, strict=True)
        if plain(mine) != plain(theirs)
    ][:1]
    same = _SPARKS.get(case.type, case.type.lower().replace(", ", ",")) == kind
    # Fields are written otherwise, and Spark's intervals know their units.
    if not same and "<" not in kind and not (case.type == "INTERVAL" and "interval" in kind):
        wrong.append(f"{case.sql} is {case.type}, Spark has {kind}")
    return wrong


_SPARKS = {"INTEGER": "int", "VARCHAR": "string", "REAL": "float"}


def test_duckdb_as_expressions(drawn):
    data, cases = drawn
    columns = ", ".join(f"{each.name} {each.type.sql}" for each in SCHEMA.columns)
    wrong = []
    with ms.open() as db:
        db.execute(f"CREATE TABLE t (n INT PRIMARY KEY, {columns})")
        db.insert("t", [(place, *row) for place, row in enumerate(data)])

        def ask(some, where=""):
            items = ", ".join(f"{case.sql} AS c{place}" for place, case in enumerate(some))
            rows = db.query(f"SELECT n, {items} FROM t {where} ORDER BY n").fetchall()
            return [[row[place + 1] for row in rows] for place in range(len(some))]

        succeeding = [case for case in cases if FAILS not in case.values]
        for start in range(0, len(succeeding), 40):
            part = succeeding[start : start + 40]
            for case, found in zip(part, by_halves(ask, part), strict=True):
                if isinstance(found, Exception) or plain(found) != plain(list(case.values)):
                    wrong.append(f"{case.sql}: {case.values}, DuckDB has {found}")
        for case in (case for case in cases if FAILS in case.values):
            good = [place for place, value in enumerate(case.values) if value is not FAILS]
            [found] = ask([case], f"WHERE n IN ({', '.join(map(str, good))})") if good else [[]]
            if plain(found) != plain([case.values[place] for place in good]):
                wrong.append(f"{case.sql}: {case.values}, DuckDB has {found} at {good}")
            bad = case.values.index(FAILS)
            with pytest.raises(ms.errors.ExpressionError):
                ask([case], f"WHERE n = {bad}")
    assert not wrong, f"seed {SEED}:\n" + "\n".join(wrong)


def test_every_aggregate_that_is_admitted_is_tested(names):
    admitted = set()
    source = Input("t", "source", Schema.of(i="INTEGER", s="VARCHAR", b="BOOLEAN"))
    for name in set(functions.all_names(names)) - set(COUNTS) - {"NOT"}:
        for args in ("", "i", "s", "b", "*", "s, i", "i, TRUE", "s, i, b"):
            with contextlib.suppress(ms.errors.SqlError):
                [query] = parse(f"SELECT {name}({args}) AS x FROM t GROUP BY i")
                plan_adhoc(query, lambda _: source)
                admitted.add(name)
    assert admitted == set(AGGREGATES)


def test_aggregates_as_spark(spark):
    dice = random.Random(SEED)
    # Few values of each kind, without those whose sums do not fit, or depend on the order.
    calm = {"d": [0.5, -0.0, 0.0, 2.0, float("nan")], "r": [1.5, -0.5, 0.0], "big": [1, -7, 2**40]}
    calm |= {name: functions.VALUES[name][:8] for name in ("wide", "tall", "part")}
    calm |= {"span": functions.VALUES["span"][:3]}
    data = [
        tuple(
            None if dice.random() < 0.15 else dice.choice(calm.get(name, functions.VALUES[name]))
            for name in SCHEMA.names
        )
        for _ in range(60)
    ]
    calls = [f"{name}({column})" for name in AGGREGATES for column in SCHEMA.names]
    calls += [f"{name}({c}, m)" for name in ("MAX_BY", "MIN_BY", "COUNT") for c in SCHEMA.names]
    others = set(AGGREGATES) - {"MAX_BY", "MIN_BY"}
    calls += [f"{name}({c}, {more})" for name in others for c in "is" for more in ("TRUE", "m")]
    calls += [f"{name}(DISTINCT {c})" for name in ("COUNT", "SUM", "MIN") for c in ("i", "s", "r")]
    calls += [f"{name}({c}) FILTER (WHERE b)" for name in ("SUM", "MAX") for c in ("i", "cents")]
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    wrong, held = [], 0
    with ms.open() as db:
        columns = ", ".join(f"{each.name} {each.type.sql}" for each in SCHEMA.columns)
        db.execute(f"CREATE SOURCE t (g INT, m INT, {columns})")
        db.insert("t", [(place % 4, place, *row) for place, row in enumerate(data)])
        table = db.query("SELECT * FROM t").to_arrow()
        frame = session.createDataFrame(table.cast(_nullable(table.schema)))
        frame.coalesce(1).createOrReplaceTempView("t")

        def ours(some):
            items = ", ".join(f"{sql} AS c{place}" for place, sql in enumerate(some))
            found = db.query(f"SELECT g, {items} FROM t GROUP BY g ORDER BY g").to_arrow()
            return [found.column(place + 1) for place in range(len(some))]

        def sparks(some):
            items = ", ".join(f"{sql} AS c{place}" for place, sql in enumerate(some))
            found = session.sql(f"SELECT g, {items} FROM t GROUP BY g ORDER BY g").toArrow()
            return [found.column(place + 1) for place in range(len(some))]

        admitted = []
        for sql in calls:
            answer = by_halves(ours, [sql])[0]
            if not isinstance(answer, ms.errors.SqlError):
                admitted.append((sql, answer))
        theirs = by_halves(sparks, [sql for sql, _ in admitted])
        for (sql, mine), other in zip(admitted, theirs, strict=True):
            held += 1
            wrong += _aggregate_difference(sql, mine, other)
    assert held > 150
    assert not wrong, f"seed {SEED}:\n" + "\n".join(wrong)


def _aggregate_difference(sql, mine, other):
    if isinstance(mine, Exception) or isinstance(other, Exception):
        both = isinstance(mine, Exception) and isinstance(other, Exception)
        return [] if both else [f"{sql}: {str(mine)[:200]}, Spark has {str(other)[:200]}"]
    pairs = list(zip(_readable(mine), _readable(other), strict=True))
    wrong = [
        f"{sql}: {a!r}, Spark has {b!r}" for a, b in pairs if _rounded(sql, a) != _rounded(sql, b)
    ]
    if _type_name(mine) != _type_name(other):
        wrong.append(f"{sql} is {_type_name(mine)}, Spark has {_type_name(other)}")
    return wrong


def _type_name(column):
    return type_from_arrow(column.type).sql


def _rounded(sql, value):
    """Deviations are added up in another order; sets have none."""
    if isinstance(value, float) and sql.startswith(("STD", "VAR")):
        return f"{value:.12g}"
    if isinstance(value, list) and "COLLECT_SET" in sql:
        return sorted(map(repr, value))
    if isinstance(value, float):
        return repr(value + 0.0)
    return plain(value)
