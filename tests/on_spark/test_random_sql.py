"""Any SELECT as a live view: random queries and random changes, against DuckDB after each step.

``MILLSTREAM_LINE_FORMS`` says of which forms (``over,top``) queries are drawn; a failure names the
round, which ``MILLSTREAM_SEED`` and ``-k`` repeat, and the query, which then belongs into ``KEPT``.
"""

from __future__ import annotations

import os
import random
from decimal import Decimal

import pyarrow as pa
import pytest

from ..effort import effort  # noqa: TID252
from ..seed import SEED  # noqa: TID252
from .against_duckdb import Model, Proof
from .view_queries import FORMS, RELATIONS, TYPES, Generator

AT_ONCE = 4
STEPS = 25
QUERIES = effort(8, 2000)
CHOSEN = os.environ.get("MILLSTREAM_LINE_FORMS", ",".join(FORMS)).split(",")
ARROW = {"int": pa.int32(), "str": pa.string(), "dec": pa.decimal128(8, 2), "bool": pa.bool_()}
SCHEMAS = {
    name: pa.schema([(column, ARROW[kind]) for column, kind in columns.items()])
    for name, columns in RELATIONS.items()
}
KEYS = {name: ("id",) for name, columns in RELATIONS.items() if "id" in columns}
VALUES: dict[str, list] = {
    "int": [None, -1, 0, 1, 1, 2, 3],
    "str": [None, "", "a", "a", "b", "ü"],
    "dec": [None, *map(Decimal, ("-1.25", "0.00", "0.50", "0.50", "2.75"))],
    "bool": [None, True, False],
}


def random_rows(dice, name, count):
    """Rows of a relation, with few values: many are equal, and many NULL."""
    ids = iter(dice.sample(range(16), count)) if name in KEYS else None
    return [
        tuple(
            next(ids) if c == "id" else dice.choice(VALUES[k]) for c, k in RELATIONS[name].items()
        )
        for _ in range(count)
    ]


class Changes:
    """Does things to the tables and the source of a proof, at random.

    Attributes:
        done: what it did, for the message of a failure.
    """

    def __init__(self, proof, dice):
        self.done = []
        self._proof, self._dice = proof, dice

    def step(self):
        """One statement or push, of one row or of several."""
        name = self._dice.choice(list(RELATIONS))
        draw = self._dice.choices(
            [self._insert, self._update, self._delete, self._empty], [10, 5, 4, 0.5]
        )[0]
        (draw if name in KEYS else self._insert)(name)

    def _insert(self, name):
        rows = random_rows(self._dice, name, self._dice.choice([1, 1, 2, 5]))
        self._did("insert", name, rows)

    def _update(self, name):
        columns = dict(RELATIONS[name])
        del columns["id"]
        changed = self._dice.sample(list(columns), self._dice.randint(1, 2))
        values = {column: self._dice.choice(VALUES[columns[column]]) for column in changed}
        self._did("update", name, values, self._where(name))

    def _delete(self, name):
        self._did("delete", name, self._where(name))

    def _empty(self, name):
        self._did("delete", name, {})

    def _where(self, name):
        """One row by its key, or those with a value in a column."""
        if self._dice.random() < 0.5:
            return {"id": self._dice.randrange(16)}
        column = self._dice.choice([each for each in RELATIONS[name] if each != "id"])
        found = [each for each in VALUES[RELATIONS[name][column]] if each is not None]
        return {column: self._dice.choice(found)}

    def _did(self, what, *args):
        self.done.append((what, *args))
        getattr(self._proof, what)(*args)


@pytest.fixture
def proof(db):
    for name, columns in RELATIONS.items():
        kind = "TABLE" if name in KEYS else "SOURCE"
        key = {"id": " PRIMARY KEY"} if name in KEYS else {}
        text = ", ".join(
            f"{column} {TYPES[k]}{key.get(column, '')}" for column, k in columns.items()
        )
        db.execute(f"CREATE {kind} {name} ({text})")
    return Proof(db, Model(SCHEMAS), KEYS)


def prove(proof, queries, dice):
    """Views made before and after there are rows are exact after every step, also without rows."""
    changes, later = Changes(proof, dice), len(queries) // 2
    try:
        for name, query in list(queries.items())[:later]:
            proof.view(name, query)
        proof.check()
        for number in range(STEPS):
            for _ in range(dice.choice([1, 1, 1, 4])):
                changes.step()
            proof.check()
            if number == STEPS // 3:
                for name, query in list(queries.items())[later:]:
                    proof.view(name, query)
                proof.check()
        for name in KEYS:
            proof.delete(name, {})
        proof.check()
    except BaseException as error:
        steps = "\n  ".join(map(str, changes.done))
        error.add_note(f"after these {len(changes.done)} steps:\n  {steps}")
        raise


@pytest.mark.parametrize("number", range(-(-QUERIES // AT_ONCE)))
def test_random_queries(proof, number, request):
    if number % 2:
        request.getfixturevalue("little_memory")
    dice = random.Random(f"{SEED}/{number}")
    queries, views = {}, {}
    for place in range(number * AT_ONCE, min(QUERIES, (number + 1) * AT_ONCE)):
        name, generator = f"v{place}", Generator(dice, views)
        # So that all forms are among the few queries of a normal run.
        query = generator.query(CHOSEN[place % len(CHOSEN)], depth=3)
        while not any(f" {each} x" in query.sql for each in [*RELATIONS, *views]):
            query = generator.query(depth=3)  # one of constants only is no view
        queries[name] = query.sql
        if query.columns and dice.random() < 0.3:
            views[name] = query.columns  # others may read this one
    prove(proof, queries, dice)


KEPT = {
    "subquery_over_limit": """SELECT q.a, (SELECT COUNT(b) FROM e) AS n FROM (
        SELECT a FROM t ORDER BY a NULLS FIRST LIMIT 3) q""",
    "limit_over_limits": """SELECT x.c, (SELECT COUNT(*) FROM u WHERE u.a > x.c) AS n FROM (
        SELECT y.c FROM (SELECT z.c FROM (SELECT a AS c FROM t) z
        ORDER BY z.c DESC NULLS LAST LIMIT 10) y
        ORDER BY y.c NULLS FIRST LIMIT 10) x ORDER BY x.c DESC NULLS LAST LIMIT 3""",
    "alias_like_a_column": """SELECT x.b AS a, x.a AS b FROM t x
        QUALIFY ROW_NUMBER() OVER (ORDER BY x.a DESC, x.b DESC, x.id) > 2""",
    "not_in_null": "SELECT a FROM t WHERE a NOT IN (SELECT b FROM w)",
    "count_of_none": "SELECT t.id, (SELECT COUNT(*) FROM u WHERE u.a = t.a) AS n FROM t",
    "distincts": """SELECT s, COUNT(DISTINCT a) AS x, SUM(DISTINCT b) AS y, COUNT(b) FILTER (WHERE
        a > 0) AS z FROM e GROUP BY s""",
    "max_of_sums": """SELECT MAX(x) AS m, COUNT(*) AS n FROM (SELECT t.s, SUM(u.d) AS x FROM t LEFT
        JOIN u ON t.a = u.a GROUP BY t.s) g""",
}
"""What went wrong once, and what easily does."""


def test_kept_queries(proof):
    prove(proof, KEPT, random.Random(SEED))


def test_kept_queries_with_little_memory(proof, little_memory):
    prove(proof, KEPT, random.Random(SEED))
