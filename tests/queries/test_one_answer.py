"""A SELECT has one answer: with and without FROM, compiled, in DuckDB, and over the wire.

Each function is compared with Spark in ``tests/on_spark/test_functions.py``.
"""

from __future__ import annotations

import random

import pytest
from tests.effort import effort
from tests.on_spark import functions
from tests.on_spark.functions import FAILS, SCHEMA, plain
from tests.queries.selects import drawn_selects
from tests.seed import SEED
from tests.server.postgres.conftest import Served

import millstream as ms
from millstream.engine.ways import way_of
from millstream.errors import ExpressionError, SqlError
from millstream.sql import parse

ROWS, MOST = 8, effort(2, 40)


@pytest.fixture(scope="module")
def selects():
    dice = random.Random(SEED)
    data = functions.rows(ROWS, dice)
    return data, list(drawn_selects(data, dice, MOST))


@pytest.fixture(scope="module")
def db(selects):
    columns = ", ".join(f"{each.name} {each.type.sql}" for each in SCHEMA.columns)
    with ms.open() as made:
        made.execute(f"CREATE TABLE one (n INT PRIMARY KEY, {columns})")
        made.insert("one", [(place, *row) for place, row in enumerate(selects[0])])
        yield made


def answer(db, sql):
    """The type and the value of the first row; None: it is no query for this process."""
    [query] = parse(sql)
    try:
        way = way_of(db.context, query)
    except SqlError:
        return None
    if way.by == "a Spark batch":
        return None
    try:
        value = way.answer(None).fetchone()[0]
    except ExpressionError:
        value = FAILS
    return way.schema().columns[0].type.sql, plain(value)


def test_with_and_without_from(db, selects):
    wrong, taken = [], 0
    for place, with_from, constant in selects[1]:
        row = f"FROM one WHERE n = {place}"
        found = {
            "compiled": answer(db, f"SELECT {with_from} AS x {row}"),
            "DuckDB": answer(db, f"SELECT x FROM (SELECT {with_from} AS x {row}) AS q"),
            "without FROM": answer(db, f"SELECT {constant} AS x"),
            "without FROM, DuckDB": answer(db, f"SELECT {constant} AS x LIMIT 1"),
        }
        given = {name: each for name, each in found.items() if each is not None}
        taken += len(given) == len(found)
        if len({repr(each) for each in given.values()}) > 1:
            wrong.append(f"{with_from} | {constant}: {given}")
    assert not wrong, f"seed {SEED}:\n" + "\n".join(wrong)
    assert taken > len(selects[1]) / 2


def test_over_the_wire(db, selects):
    served, wrong = Served(db), []
    try:
        with served.connect() as client:
            for _, _, constant in selects[1][:: effort(5, 1)]:
                sql = f"SELECT {constant} AS x".replace("\\\\", "\\").replace("%", "%%")
                own = answer(db, f"SELECT {constant} AS x")
                if own is None or own[1] is FAILS or own[0] not in _SAME:
                    continue
                [(value,)] = client.execute(sql, []).fetchall()
                if plain(value) != own[1]:
                    wrong.append(f"{sql}: {own}, over the wire {value!r}")
    finally:
        served.stop()
    assert not wrong, f"seed {SEED}:\n" + "\n".join(wrong)


_SAME = {"BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "DOUBLE", "VARCHAR", "DATE"}
"""Types whose values psycopg gives as we do, whatever they are."""
