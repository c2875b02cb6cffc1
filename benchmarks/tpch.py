"""TPC-H's 22 queries as live views: rows a second to catch up, and whether they are exact.

    python benchmarks/tpch.py                 scale 0.1: 600,000 lineitems; about ten minutes
    python benchmarks/tpch.py --scale 0.01
    python benchmarks/tpch.py --only q1,q9

The tables are drawn by ``tpch_rows.py``. Each view is timed until it has caught up; then some
hundred rows of the tables are inserted, updated and deleted; then its rows are compared with those
of a plain Spark batch.
"""

from __future__ import annotations

import argparse
import random
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

import millstream as ms
from live_queries import Comparison, compare, show
from tpch_rows import KEYS, Rows

if TYPE_CHECKING:
    from millstream import Database

SCALE = 0.1
CHUNK = 50_000
ABSENT = 0.02
"""The share of rows that are inserted only later."""
STEPS = 12
_, *_TEXTS = re.split(r"-- (q\d+)\n", Path(__file__).with_suffix(".sql").read_text())
QUERIES = dict(zip(_TEXTS[::2], _TEXTS[1::2], strict=True))
FIXED = ("region", "nation")
SQL_TYPES = {"int32": "INT", "int64": "BIGINT", "string": "VARCHAR", "date32[day]": "DATE"}


class Warehouse:
    """The tables, and the files with the same rows.

    Args:
        db: the database.
        folder: for the files.
        scale: TPC-H's.
    """

    def __init__(self, db: Database, folder: Path, scale: float) -> None:
        self._db, self._folder = db, folder
        self._dice = random.Random(3)
        self._tables = Rows(scale).tables()
        self._absent: dict[str, list[dict[str, Any]]] = {}
        self._files: dict[str, str] = {}
        self._snapshots = 0
        for name, table in self._tables.items():
            types = [f"{each.name} {_sql_type(each.type)}" for each in table.schema]
            key = f"PRIMARY KEY ({', '.join(KEYS[name])})"
            db.execute(f"CREATE TABLE {name} ({', '.join(types)}, {key})")

    def load(self, name: str) -> None:
        """Insert a table's rows, but for some that may come later."""
        table, later = self._tables[name], self._later(name)
        self._absent[name] = table.slice(0, later).to_pylist()
        for batch in table.slice(later).to_batches(max_chunksize=CHUNK):
            self._db.insert(name, batch)

    def _later(self, name: str) -> int:
        """How many rows of a table come later: its first ones."""
        return 0 if name in FIXED else int(self._tables[name].num_rows * ABSENT)

    @property
    def names(self) -> list[str]:
        """All tables, in an order in which what is referred to comes first."""
        return list(self._tables)

    def rows(self, name: str) -> int:
        """How many rows a table has now."""
        [(count,)] = self._db.query(f"SELECT COUNT(*) AS n FROM {name}").fetchall()
        return int(count)

    def change(self) -> None:
        """Rows of all tables come, go, or get other rows' values; several in a statement."""
        for name in self.names:
            if name not in FIXED:
                for _ in range(STEPS if name in {"lineitem", "orders"} else STEPS // 4):
                    self._step(name)
                self._files.pop(name, None)

    def _step(self, name: str) -> None:
        """One insert, one update by key of several rows, one delete."""
        dice, absent, table = self._dice, self._absent[name], self._tables[name]
        dice.shuffle(absent)
        if absent:
            self._db.insert(name, [absent.pop() for _ in range(dice.randint(1, 20)) if absent])
        places = dice.sample(range(self._later(name), table.num_rows), 20)
        here = [table.slice(place, 1).to_pylist()[0] for place in places]
        given = [self._mixed(name, row, dice.choice(here)) for row in here]
        self._db.insert(name, given, replace=True)
        gone = here[0]
        test = " AND ".join(f"{column} = ?" for column in KEYS[name])
        self._db.execute(f"DELETE FROM {name} WHERE {test}", [gone[key] for key in KEYS[name]])

    def _mixed(self, name: str, row: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        """A row with some values of another one, but with its own key."""
        return {
            column: old if column in KEYS[name] or self._dice.random() < 0.6 else other[column]
            for column, old in row.items()
        }

    def files(self, names: list[str]) -> dict[str, list[str]]:
        """The files with the rows that some tables have now."""
        return {name: [self._file(name)] for name in names}

    def _file(self, name: str) -> str:
        if name not in self._files:
            self._snapshots += 1
            self._files[name] = f"{self._folder}/{name}{self._snapshots}.parquet"
            pq.write_table(self._db.query(f"SELECT * FROM {name}").to_arrow(), self._files[name])
        return self._files[name]


def _sql_type(arrow: pa.DataType) -> str:
    if pa.types.is_decimal(arrow):
        return f"DECIMAL({arrow.precision}, {arrow.scale})"
    return SQL_TYPES[str(arrow)]


def main() -> None:
    """Run the queries, and print their table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=SCALE)
    parser.add_argument("--only", default=",".join(QUERIES))
    given = parser.parse_args()
    measured = []
    with tempfile.TemporaryDirectory() as path, Console(stderr=True).status("drawing") as status:
        folder = Path(path)
        with ms.open(folder / "db") as db:
            warehouse = Warehouse(db, folder, given.scale)
            for name in warehouse.names:
                status.update(f"loading {name}")
                warehouse.load(name)
            comparison = Comparison(
                db, folder, status, change=warehouse.change, files=warehouse.files
            )
            comparison.warm_up()
            for query in given.only.split(","):
                sql = QUERIES[query]
                read = [name for name in warehouse.names if re.search(rf"\b{name}\b", sql)]
                inputs = {name: warehouse.rows(name) for name in read}
                measured.append(comparison.measure(query, sql, sql, inputs))
        compare(measured, folder, status)
    show(measured, f"TPC-H, scale {given.scale}")


if __name__ == "__main__":
    main()
