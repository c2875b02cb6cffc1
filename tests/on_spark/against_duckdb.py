"""Live views of a database, compared with DuckDB's answers over the same rows.

``Proof`` changes rows in the database and in a model of it in Python. Each view, and what its
change stream adds up to, must be what DuckDB answers over the model.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from datetime import UTC, datetime

import duckdb
import pyarrow as pa

from millstream.testing import Mirror

from .observing import settle

_AS_SPARK = [
    "named_struct(x, a, y, b) AS struct_pack(x := a, y := b)",
    "array_repeat(a, n) AS list_value(a, a)",
    "array_max(l) AS list_max(l)",
]
"""Functions of Spark's, in forms that the queries have."""


_LISTS = re.compile(r"LISTAGG\(([\w.]+), ','\) WITHIN GROUP \(ORDER BY ([-\w.]+)( DESC)?\)")


def _list(found):
    """LISTAGG as DuckDB has it, with Spark's order of NULLs."""
    value, by, descending = found.groups()
    order = f"{by} DESC NULLS LAST" if descending else f"{by} NULLS FIRST"
    return f"STRING_AGG({value}, ',' ORDER BY {order}, {value})"


class Model:
    """Rows by relation, and DuckDB's answers over them.

    Args:
        schemas: the Arrow schema of each relation.

    Attributes:
        rows: the rows of each relation, which ``put`` replaces.
    """

    def __init__(self, schemas):
        self.rows = {name: [] for name in schemas}
        self._schemas = schemas
        self._duck = duckdb.connect(config={"threads": 1})
        for function in _AS_SPARK:
            self._duck.execute(f"CREATE MACRO {function}")
        self._timed = any(_is_time(each) for schema in schemas.values() for each in schema)
        for name in schemas:
            self.put(name, [])

    def put(self, name, rows):
        """Replace the rows of a relation."""
        self.rows[name] = rows
        schema = self._schemas[name]
        columns = zip(*rows, strict=True) if rows else [()] * len(schema)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        without_zones = [
            each.cast(pa.timestamp("us")) if _is_time(field) else each
            for each, field in zip(arrays, schema, strict=True)
        ]
        self._duck.register(name, pa.table(without_zones, schema.names))

    def view(self, name, sql):
        """Let others read a query under a name."""
        self._duck.execute(f"CREATE VIEW {name} AS {_LISTS.sub(_list, sql)}")

    def answer(self, sql):
        found = self._duck.execute(_LISTS.sub(_list, sql)).fetchall()
        return [tuple(map(_in_utc, row)) for row in found] if self._timed else found


def _is_time(field):
    return pa.types.is_timestamp(field.type)


def _in_utc(value):
    """DuckDB's times have no zone: with one, it would need an extension."""
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value


class Proof:
    """A database, a model of its rows, and views of both.

    Args:
        db: the database, which has the relations of the model.
        model: as it is now.
        keys: the columns that are the key of each table; what is not in it is a source.
        tolerance: how far apart numbers may be where types differ; 0: equal.
    """

    def __init__(self, db, model, keys, tolerance=0.0):
        self.db, self.model = db, model
        self._keys, self._tolerance = keys, tolerance
        self._views = {}
        self._mirrors = {}

    def view(self, name, sql, expected=None):
        """Make a view; DuckDB runs ``expected``, or the same SELECT."""
        self.db.execute(f"CREATE MATERIALIZED VIEW {name} AS {sql}")
        self._views[name] = expected or sql
        subscription = self.db.subscribe(f"SELECT * FROM {name}", start="earliest")
        self._mirrors[name] = Mirror(subscription)
        self.model.view(name, self._views[name])

    def reopened(self, db):
        """Go on with the same views after a restart."""
        self.db = db
        for name in self._views:
            self._mirrors[name] = Mirror(db.subscribe(f"SELECT * FROM {name}"))

    # ---- what happens, to both

    def insert(self, name, rows):
        """Rows into a source, or into a table, where they replace those of the same key."""
        key = self._key(name)
        replaced = set(map(key, rows)) if key else ()
        kept = [row for row in self.model.rows[name] if not key or key(row) not in replaced]
        self.db.insert(name, rows, replace=key is not None)
        self.model.put(name, [*kept, *rows])

    def update(self, name, changed, where):
        """UPDATE: columns by name with their new values, of the rows where other columns are so."""
        names = self._names(name)
        sets = ", ".join(f"{column} = ?" for column in changed)
        self.db.execute(
            f"UPDATE {name} SET {sets} WHERE {_condition(where)}",
            [*changed.values(), *where.values()],
        )
        self.model.put(
            name,
            [
                tuple(changed.get(n, v) for n, v in zip(names, row, strict=True))
                if _matches(names, row, where)
                else row
                for row in self.model.rows[name]
            ],
        )

    def delete(self, name, where):
        """DELETE the rows where columns are so; all, when none is given."""
        names = self._names(name)
        condition = f" WHERE {_condition(where)}" if where else ""
        self.db.execute(f"DELETE FROM {name}{condition}", list(where.values()))
        kept = [row for row in self.model.rows[name] if not _matches(names, row, where)]
        self.model.put(name, kept)

    def _names(self, name):
        return self.model._schemas[name].names

    def _key(self, name):
        if name not in self._keys:
            return None
        places = [self._names(name).index(column) for column in self._keys[name]]
        return lambda row: tuple(row[place] for place in places)

    # ---- what must be

    def check(self):
        """Every view, and what its changes add up to, is what DuckDB answers."""
        settle(self.db, *self._views)
        wrong = []
        for name, sql in self._views.items():
            expected = self.model.answer(sql)
            shown = self.db.query(f"SELECT * FROM {name}").fetchall()
            streamed = self._mirrors[name].catch_up(self.db).fetchall()
            for reader, found in [("the view", shown), ("its changes", streamed)]:
                if not same(found, expected, self._tolerance):
                    wrong.append(_difference(name, reader, found, expected, sql))
        assert not wrong, "\n".join(wrong)


def _condition(where):
    return " AND ".join(f"{column} = ?" for column in where)


def _matches(names, row, where):
    return all(row[names.index(column)] == value for column, value in where.items())


def same(found, expected, tolerance=0.0):
    """Whether two lists are the same bag of rows, numbers compared by value."""
    if _bag(found) == _bag(expected):
        return True
    if not tolerance or len(found) != len(expected):
        return False
    pairs = zip(sorted(found, key=_order), sorted(expected, key=_order), strict=True)
    return all(
        _close(a, b, tolerance) for left, right in pairs for a, b in zip(left, right, strict=True)
    )


def _bag(rows):
    """The order of additions shows in the last bits of floats, not in the first six places."""
    return Counter(
        tuple(round(v, 6) + 0.0 if isinstance(v, float) else v for v in row) for row in rows
    )


def _order(row):
    """First by what must be equal, then by numbers, which may be a little apart."""
    return [str(v) for v in row if not _is_number(v)], [
        round(float(v), 2) for v in row if _is_number(v)
    ]


def _close(a, b, tolerance):
    if _is_number(a) and _is_number(b):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=tolerance)
    return a == b


def _is_number(value):
    return hasattr(value, "__float__")


def _difference(name, reader, found, expected, sql):
    more, less = _bag(found) - _bag(expected), _bag(expected) - _bag(found)
    return (
        f"{name}: {reader} has {len(found)} rows, DuckDB {len(expected)}; too many: "
        f"{list(more.elements())[:5]}, missing: {list(less.elements())[:5]}\n  {sql}"
    )
