"""Queries as live views, held against plain Spark: rows a second, and whether they are exact.

Shared by ``nexmark.py`` and ``tpch.py``. Each query becomes a view over what is there already and
is timed until it has caught up; then its inputs change, and its rows are kept. When all have been
measured and the database is closed, plain Spark runs each query in batch over the same rows, in a
process of its own, and the rows are compared.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from millstream.errors import Error
from plain_spark import Job, Run, java_seconds, runs_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rich.status import Status

    from millstream import Database

GIVE_UP = 300
"""The seconds after which a view is given up, if nothing else is said."""


HEADINGS = (
    "query",
    "rows",
    "rows/s",
    "s",
    "plain Spark, s",
    "ratio",
    "Java's processor, s",
    "plain Spark's, s",
    "ratio",
    "exact",
)


@dataclass(slots=True)
class Measured:
    """A query that became a view.

    Attributes:
        name: the query's.
        rows: how many rows it had to read.
        seconds: from CREATE until it had caught up.
        processor: the processor time of Java in them, its compilers' included.
        job: the same for plain Spark; None: there are no rows to compare.
        error: why there are none.
        theirs: what plain Spark takes; None: it was not asked.
        exact: whether the rows are the same.
    """

    name: str
    rows: int
    seconds: float = math.nan
    processor: float = math.nan
    job: Job | None = None
    error: str = ""
    theirs: Run | None = None
    exact: bool = False

    @property
    def cells(self) -> tuple[str, ...]:
        """Its row of the table."""
        theirs = self.theirs
        if theirs is None:
            return self.name, f"{self.rows:,}", *[""] * 7, self.error
        return (
            self.name,
            f"{self.rows:,}",
            f"{self.rows / self.seconds:,.0f}",
            f"{self.seconds:.1f}",
            f"{theirs.seconds:.1f}",
            f"{theirs.seconds / self.seconds:.0%}",
            f"{self.processor:.1f}",
            f"{theirs.processor:.1f}",
            # A view that only filters and projects needs no Java.
            f"{theirs.processor / self.processor:.0%}" if self.processor else "",
            "yes" if self.exact else "NO",
        )


class Comparison:
    """Measures one query after the other, and prints their table.

    Args:
        db: the database with the inputs.
        folder: for files.
        status: what shows how far it is.
        change: changes the inputs a little.
        files: the Parquet files with what is in some inputs now.
        give_up: the seconds after which a view is given up.
    """

    def __init__(
        self,
        db: Database,
        folder: Path,
        status: Status,
        *,
        change: Callable[[], None],
        files: Callable[[list[str]], dict[str, list[str]]],
        give_up: float = GIVE_UP,
    ) -> None:
        self._db, self._folder, self._status = db, folder, status
        self._give_up = give_up
        self._change, self._files = change, files

    def warm_up(self) -> None:
        """Start Spark, and let it have run a view: only what comes after it is timed."""
        self._status.update("starting Spark")
        self._db.execute("CREATE SOURCE warm (k BIGINT, n BIGINT)")
        self._db.insert("warm", [(n % 7, n) for n in range(1000)])
        self._db.execute(
            "CREATE MATERIALIZED VIEW warmed AS SELECT a.k, SUM(b.n) AS total"
            " FROM warm a JOIN warm b ON a.n = b.n GROUP BY a.k"
        )
        self._db.wait_for("warmed", timeout=self._give_up)
        self._db.execute("DROP VIEW warmed; DROP SOURCE warm")

    def measure(self, name: str, sql: str, plain: str, inputs: dict[str, int]) -> Measured:
        """Create a view and let it catch up; then change its inputs, and keep its rows.

        Args:
            name: the query's.
            sql: its SELECT, as a view.
            plain: its SELECT in plain Spark.
            inputs: what it reads, and how many rows that has.
        """
        measured = Measured(name, sum(inputs.values()))
        self._status.update(f"{name}: catching up")
        began, used = time.perf_counter(), java_seconds()
        if self._catches_up(measured, f"CREATE MATERIALIZED VIEW {name} AS {sql}"):
            measured.seconds = time.perf_counter() - began
            measured.processor = java_seconds() - used
            self._status.update(f"{name}: changes")
            self._change()
            if self._catches_up(measured):
                rows = self._db.query(f"SELECT * FROM {name}").to_arrow()
                pq.write_table(rows, self._folder / f"{name}.parquet")
                files = self._files(list(inputs))
                measured.job = Job(plain, files, result=str(self._folder / f"{name}.spark"))
        self._db.execute(f"DROP VIEW IF EXISTS {name}")
        return measured

    def _catches_up(self, measured: Measured, statement: str = "") -> bool:
        """Run a statement, if there is one, and wait for the view; whether that went well."""
        try:
            if statement:
                self._db.execute(statement)
            self._db.wait_for(measured.name, timeout=self._give_up)
        except Error as error:
            measured.error = f"{type(error).__name__}: {error}"
        return not measured.error


def compare(measured: list[Measured], folder: Path, status: Status) -> None:
    """Let plain Spark answer the same queries, and compare the rows."""
    status.update("plain Spark")
    known = [each for each in measured if each.job is not None]
    runs = runs_of([each.job for each in known if each.job is not None])
    for each, run in zip(known, runs, strict=True):
        status.update(f"{each.name}: comparing")
        each.theirs = run
        each.exact = same(folder, each.name)


def same(folder: Path, name: str) -> bool:
    """Whether a view's rows are those of plain Spark, in whatever order, repeated ones included."""
    ours = f"SELECT * FROM '{folder}/{name}.parquet'"
    theirs = f"SELECT * FROM '{folder}/{name}.spark/*.parquet'"
    either = f"(({ours}) EXCEPT ALL ({theirs})) UNION ALL (({theirs}) EXCEPT ALL ({ours}))"
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT COUNT(*) FROM ({either})").fetchone()
        return found == (0,)


def show(measured: list[Measured], title: str) -> None:
    """Print the table."""
    table = Table(title=title)
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in {"query", "exact"} else "right")
    for each in measured:
        table.add_row(*each.cells)
    Console(width=140).print(table)
