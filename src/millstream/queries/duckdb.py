"""Ad-hoc queries: DuckDB over the current rows, in this process.

Takes: a plan, and Arrow tables or readers of what it reads.
Gives: the result as an Arrow table, in the types of the plan's schema.
Never knows: SQL, logs, views; DuckDB sees no file, no network and no Python variable.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.errors import ClosedError, Error, ExpressionError, SqlUnsupportedError
from millstream.sql.adhoc.duckdb_types import duck_type, physical_schema, physical_type
from millstream.sql.expressions.runtime import overflow
from millstream.threads import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from millstream.sql.adhoc import AdhocPlan, Kernel

Rows = Any
"""An Arrow table, or a reader of record batches, which can be read once."""

_CONFIG = {
    "enable_external_access": False,
    "allow_community_extensions": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "python_enable_replacements": False,
}
_CLOSE_SECONDS = 60.0
_MARK = "\x1f"


class SealedDuckDB:
    """A DuckDB that reaches nothing outside, made when it is first needed.

    Any thread may run queries; each query has a cursor of its own.

    Args:
        statements: run when it is made.
        config: settings besides those that seal it.
    """

    def __init__(self, statements: Sequence[str], **config: Any) -> None:  # noqa: ANN401
        self._statements = (*statements, "SET lock_configuration = true")
        self._config = {**config, **_CONFIG}
        self._lock = threading.Lock()
        self._ended = threading.Condition(self._lock)
        self._database: Any = None
        self._closed = False
        self._running: dict[int, Any] = {}  # by the thread that runs it

    def interrupt(self, thread: int) -> None:
        """End the query that a thread runs, if it runs one, with an error."""
        cursor = self._running.get(thread)
        if cursor is not None:
            with contextlib.suppress(self._errors):  # it has just ended
                cursor.interrupt()

    def close(self, timeout: float = _CLOSE_SECONDS) -> None:
        """Close DuckDB, once the queries that run are finished; wait for them so many seconds."""
        with self._ended:
            self._closed = True
            database, self._database = self._database, None
            # DuckDB closes nothing that is in use; what is not closed here, its last query does.
            if self._ended.wait_for(lambda: not self._running, timeout) and database:
                database.close()

    @uninterrupted
    def _cursor(self, prepare: Callable[[Any], None] = lambda _: None) -> Any:  # noqa: ANN401
        with self._lock:
            if self._closed:
                raise ClosedError("the database is closed", hint="Open it again.")
            if self._database is None:
                self._database = self._connect()
            prepare(self._database)
            return self._database.cursor()

    def _connect(self) -> Any:  # noqa: ANN401 - of a module that is loaded late
        # Importing DuckDB takes longer than a program without such queries should wait.
        import duckdb  # noqa: PLC0415

        self._errors = duckdb.Error
        database = duckdb.connect(":memory:", config=self._config)
        for each in self._statements:
            database.execute(each)
        return database

    @uninterrupted
    def _end(self, thread: int, cursor: Any) -> None:  # noqa: ANN401
        cursor.close()
        with self._ended:
            self._running.pop(thread, None)
            self._ended.notify_all()


class AdhocRunner(SealedDuckDB):
    """Runs ad-hoc queries.

    Args:
        threads: how many threads one query uses. With one, sums of floats are added up in the order
            of the rows, so that a query gives the same digits each time.
    """

    def __init__(self, *, threads: int = 1) -> None:
        super().__init__(["SET TimeZone = 'UTC'"], threads=threads, preserve_insertion_order=True)
        self._registered: set[str] = set()

    def run(self, plan: AdhocPlan, relations: Mapping[str, Rows]) -> pa.Table:
        """Return the rows of a query.

        Args:
            plan: what ``plan_adhoc`` made.
            relations: by the names in ``plan.tables``, the rows of each, with the columns that
                ``plan.columns`` names at least. A reader is used up.

        Raises:
            ExpressionError: an expression has no value for some row.
            ClosedError: it was closed.
        """
        cursor = self._cursor(partial(self._register, plan.kernels))
        failures: list[BaseException] = []
        thread = threading.get_ident()
        try:
            self._running[thread] = cursor
            for name in plan.tables:
                once = plan.scans[name] == 1
                cursor.register(
                    name, _readable_by_duckdb(relations[name], plan.columns[name], once, failures)
                )
            made = cursor.sql(plan.sql).to_arrow_table()
        except self._errors as error:
            if failures:
                raise failures[0] from error
            raise _translated(error, plan) from error
        finally:
            self._end(thread, cursor)
        return _result(made, plan)

    def _register(self, kernels: Sequence[Kernel], database: Any) -> None:  # noqa: ANN401
        for kernel in kernels:
            if kernel.name not in self._registered:
                _register(database, kernel)
                self._registered.add(kernel.name)


def _register(database: Any, kernel: Kernel) -> None:  # noqa: ANN401
    takes = [each.arrow for each in kernel.takes]
    gives = physical_type(kernel.gives.arrow)

    def run(*columns: pa.ChunkedArray) -> pa.Array:
        arrays = [each.combine_chunks().cast(of) for each, of in zip(columns, takes, strict=True)]
        try:
            return kernel.run(arrays).cast(gives)
        except Error as error:
            # DuckDB keeps nothing of an exception but its text.
            raise ValueError(f"{_MARK}{error.message}{_MARK}{error.hint}{_MARK}") from error

    # DuckDB counts the parameters of a function by its signature.
    names = (f"c{place}" for place in range(len(takes)))
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in names]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    database.create_function(
        kernel.name,
        run,
        [duck_type(each) for each in kernel.takes],
        duck_type(kernel.gives),
        type="arrow",
        null_handling="special",
        side_effects=kernel.volatile,
    )


# --- Rows in and out ------------------------------------------------------------------------------


def _readable_by_duckdb(
    rows: Rows, names: Sequence[str], once: bool, failures: list[BaseException]
) -> Rows:
    """Return rows as DuckDB takes them: of the columns that are needed, in their physical types."""
    if isinstance(rows, pa.RecordBatchReader) and not once:
        rows = rows.read_all()
    # DuckDB counts rows by their columns, so one must stay.
    names = names or rows.schema.names[:1]
    schema = physical_schema(pa.schema([rows.schema.field(name) for name in names]))
    if not isinstance(rows, pa.RecordBatchReader):
        return rows.select(names).cast(schema)

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for batch in rows:
                yield batch.select(names).cast(schema)
        except BaseException as error:
            failures.append(error)
            raise

    return pa.RecordBatchReader.from_batches(schema, batches())


def _result(made: pa.Table, plan: AdhocPlan) -> pa.Table:
    arrow = plan.schema.arrow
    # By way of the physical types: DuckDB names the element of a list otherwise than we do.
    physical = made.rename_columns(plan.schema.names).cast(physical_schema(arrow))
    columns = [
        _logical(column, field.type) for column, field in zip(physical.columns, arrow, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=arrow)


def _logical(column: pa.ChunkedArray, of: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == of else column.cast(of)


# --- Errors ---------------------------------------------------------------------------------------


def _translated(error: Exception, plan: AdhocPlan) -> Error:
    """Millstream's error for one of DuckDB's."""
    text = str(error)
    if text.count(_MARK) >= 3:
        _, message, hint, _ = text.split(_MARK, 3)
        return ExpressionError(message, hint=hint)
    make = _KINDS.get(type(error).__name__)
    if make is not None:
        return make(text)
    return SqlUnsupportedError(
        f"the query cannot be answered: {text.splitlines()[0]}",
        hint=f"Write it in another way; the query was: {plan.sql}",
    )


def _invalid(text: str) -> ExpressionError:
    if "More than one row returned by a subquery" in text:
        return ExpressionError(
            "a subquery that stands for one value has several rows",
            hint="Aggregate in it, or add LIMIT 1.",
        )
    return ExpressionError(text.splitlines()[0], hint="Check the values that it names.")


_KINDS: dict[str, Callable[[str], Error]] = {
    "OutOfRangeException": lambda _text: overflow(),
    "ConversionException": lambda _text: overflow(),
    "InvalidInputException": _invalid,
}
