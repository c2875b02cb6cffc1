"""TPC-H's 22 queries as live views: exact after the load and after every change, against DuckDB.

The data is a sample of 4,500 rows. ``make proof`` runs all queries, also with their LIMIT.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ..effort import PROOF  # noqa: TID252
from ..seed import SEED  # noqa: TID252
from .against_duckdb import Model, Proof

DATA = Path(__file__).parents[1] / "data" / "tpch"
KEYS = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "supplier": ("s_suppkey",),
    "part": ("p_partkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "customer": ("c_custkey",),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}
TABLES = {name: pq.read_table(DATA / f"{name}.parquet") for name in KEYS}
_, *_TEXTS = re.split(r"-- q(\d+)\n", (DATA / "queries.sql").read_text())
QUERIES = dict(zip(_TEXTS[::2], _TEXTS[1::2], strict=True))
LIMITED = [number for number, text in QUERIES.items() if "LIMIT" in text]
CHOSEN = [*QUERIES] if PROOF else ["4", "9", "13", "16"]
STEPS = 30
MICRO = 2e-6
"""Spark rounds quotients and averages of decimals to six places; DuckDB makes doubles of them."""


class Sample:
    """A part of TPC-H's rows is in the tables, the others may yet come.

    Args:
        proof: whose tables they are.
        dice: all that is random.
        used: the tables that change.
    """

    def __init__(self, proof, dice, used):
        self._proof, self._dice, self._used = proof, dice, used
        self._absent = {name: rows_of(table) for name, table in TABLES.items()}

    def load(self, share):
        """Insert a share of what is absent, table by table."""
        for name, rows in self._absent.items():
            self._dice.shuffle(rows)
            some = rows[: int(len(rows) * share)]
            del rows[: len(some)]
            self._proof.insert(name, some)

    def step(self):
        """Rows come, go, or get other rows' values, one or several in a statement."""
        sizes = [TABLES[name].num_rows for name in self._used]
        name = self._dice.choices(self._used, [size**0.7 for size in sizes])[0]
        here, absent = self._proof.model.rows[name], self._absent[name]
        what = self._dice.random()
        if what < 0.3 and absent:
            self._proof.insert(name, [absent.pop() for _ in range(self._few(absent))])
        elif what < 0.5 and here:
            row = self._dice.choice(here)
            absent.insert(0, row)
            names = TABLES[name].schema.names
            key = {column: row[names.index(column)] for column in KEYS[name]}
            self._proof.delete(name, key)
        elif here:
            some = self._dice.sample(here, self._few(here))
            self._proof.insert(name, [self._mixed(name, row, here) for row in some])

    def _few(self, rows):
        """How many of them: few of a small table, without whose rows a query finds nothing."""
        return min(self._dice.choice([1, 3, 20, 60]), len(rows) // 10 + 1)

    def _mixed(self, name, row, rows):
        """The row with some values of another, but with its own key."""
        donor = self._dice.choice(rows)
        return tuple(
            old if column in KEYS[name] or self._dice.random() < 0.6 else new
            for column, old, new in zip(TABLES[name].schema.names, row, donor, strict=True)
        )


def rows_of(table):
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def ddl(name):
    columns = [f"{field.name} {sql_type(field.type)}" for field in TABLES[name].schema]
    return f"CREATE TABLE {name} ({', '.join(columns)}, PRIMARY KEY ({', '.join(KEYS[name])}))"


def sql_type(arrow):
    if pa.types.is_decimal(arrow):
        return f"DECIMAL({arrow.precision}, {arrow.scale})"
    return {"int32": "INT", "int64": "BIGINT", "string": "VARCHAR", "date32[day]": "DATE"}[
        str(arrow)
    ]


def prove(db, number, sql):
    dice = random.Random(f"{SEED}/{number}")
    proof = Proof(db, Model({name: each.schema for name, each in TABLES.items()}), KEYS, MICRO)
    for name in KEYS:
        db.execute(ddl(name))
    sample = Sample(proof, dice, [name for name in KEYS if re.search(rf"\b{name}\b", sql)])
    sample.load(0.4)
    proof.view("v", sql)
    proof.check()
    sample.load(0.8)
    proof.check()
    for _ in range(STEPS):
        sample.step()
        proof.check()


@pytest.mark.parametrize("number", CHOSEN)
def test_tpch(db, number):
    prove(db, number, re.sub(r"LIMIT \d+", "", QUERIES[number]))


@pytest.mark.parametrize("number", LIMITED if PROOF else LIMITED[:1])
def test_tpch_with_limit(db, number):
    prove(db, number, QUERIES[number])
