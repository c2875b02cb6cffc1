"""``Result``: the rows of a query, as tuples, dicts, Arrow or frames."""

from __future__ import annotations

import html
import sys
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.errors import InvalidOptionError, RowError, SchemaMismatchError
from millstream.model.arguments import check_path
from millstream.model.display import pandas_frame, polars_frame, public_names
from millstream.model.lsn import NO_LSN
from millstream.model.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike

    from millstream.model.schema import Row

_STATUS = Schema.of(status="VARCHAR")
_SHOWN_ROWS = 20
_SHOWN_WIDTH = 32
_NUMBERS = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "REAL", "DOUBLE", "DECIMAL"})


class Result:
    """The rows of a query or a SHOW, or the row count of a statement.

    You can read a result several times: by iterating, as Arrow, as a frame. Only ``fetchone``,
    ``fetchmany`` and ``fetchall`` continue where the last of them stopped. A result without rows is
    false, like an empty list.

    >>> from millstream import Schema
    >>> from millstream.model.result import Result
    >>> result = Result.of_rows(Schema.of(symbol="VARCHAR", price="DOUBLE"), [("AAPL", 187.25)])
    >>> result
    symbol   price
    ------  ------
    AAPL    187.25
    >>> list(result)
    [('AAPL', 187.25)]

    The result of a statement without rows is its status:

    >>> Result.of_status("INSERT 3", rowcount=3)
    INSERT 3

    Attributes:
        schema: the columns and their types.
        labels: what PostgreSQL calls the columns, as its clients see them: several may have one
            name. In ``schema`` a second ``id`` is ``id_1``.
        lsn: the LSN at which the rows were these; 0 when there is none.
        rowcount: the number of rows in it, or of those that the statement changed.
        status: what a statement that gives no rows has done, such as ``"CREATE TABLE"`` or
            ``"INSERT 3"``; empty when the result has rows to give.
        catching_up: the views whose rows did not count yet everything committed before: those read
            with ``stale_ok``, or with the rows that they had when the database was opened.
    """

    __slots__ = (
        "_batches",
        "_fetched",
        "_rows",
        "_show_all",
        "catching_up",
        "labels",
        "lsn",
        "rowcount",
        "schema",
        "status",
    )

    def __init__(
        self,
        schema: Schema,
        batches: Sequence[pa.RecordBatch],
        *,
        lsn: int = NO_LSN,
        catching_up: tuple[str, ...] = (),
    ) -> None:
        self.schema: Schema = schema
        self.labels: tuple[str, ...] = schema.names
        self.lsn: int = lsn
        self.catching_up: tuple[str, ...] = catching_up
        self._rows: list[Row] | None = None
        self._batches: list[pa.RecordBatch] | None = [schema.conform(each) for each in batches]
        self._fetched: Iterator[Row] | None = None
        self._show_all = False
        self.rowcount: int = len(self)
        self.status: str = ""

    @classmethod
    def of_rows(
        cls,
        schema: Schema,
        rows: Sequence[Row],
        *,
        lsn: int = NO_LSN,
        show_all: bool = False,
    ) -> Result:
        """A result of Python tuples, each checked against the schema.

        With ``show_all`` all of its rows and texts are shown, however long they are.
        """
        result = cls(schema, [], lsn=lsn)
        result._rows, result._batches = schema.check_rows(rows), None
        result._show_all = show_all
        result.rowcount = len(rows)
        return result

    @classmethod
    def of_status(cls, status: str, *, lsn: int = NO_LSN, rowcount: int = 0) -> Result:
        """The result of a statement that gives no rows."""
        result = cls.of_rows(_STATUS, [], lsn=lsn)
        result.status, result.rowcount = status, rowcount
        return result

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self.schema.names

    def __len__(self) -> int:
        if self._rows is not None:
            return len(self._rows)
        return sum(batch.num_rows for batch in self._batches or ())

    def __iter__(self) -> Iterator[Row]:
        """Yield all rows as tuples, also those that were fetched.

        Raises:
            RowError: Python cannot hold a value, such as a year beyond 9999 that a view has
                computed; ``to_arrow`` has the value.
        """
        if self._rows is not None:
            yield from self._rows
            return
        before = 0
        for batch in self._batches or ():
            # Batch by batch: the rows of a large result need not all be there at once.
            try:
                rows = self.schema.arrow_to_rows(batch)
            except RowError as error:
                raise error.at(before + error.row) from None
            yield from rows
            before += batch.num_rows

    # ---- one after another

    def fetchone(self) -> Row | None:
        """Return the next row, or None after the last."""
        return next(self._cursor(), None)

    def fetchmany(self, size: int = 1) -> list[Row]:
        """Return the next ``size`` rows, or fewer at the end.

        Raises:
            InvalidOptionError: the size is not an int, or is negative.
        """
        if type(size) is not int or not 0 <= size <= sys.maxsize:
            raise InvalidOptionError(
                f"{size!r} rows cannot be fetched", hint="Give a size of 0 or more."
            )
        return list(islice(self._cursor(), size))

    def fetchall(self) -> list[Row]:
        """Return all rows that were not fetched yet."""
        return list(self._cursor())

    def _cursor(self) -> Iterator[Row]:
        if self._fetched is None:
            self._fetched = iter(self)
        return self._fetched

    # ---- all at once

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table, without a copy if they are Arrow data already."""
        if self._batches is None:
            self._batches = [self.schema.rows_to_arrow(self._rows or [])]
        return pa.Table.from_batches(self._batches, schema=self.schema.arrow)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the result to pandas, polars, DuckDB or pyarrow, without a copy."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return the rows as dicts from column name to value."""
        names = self.schema.names
        return [dict(zip(names, row, strict=True)) for row in self]

    def to_pandas(self) -> Any:  # noqa: ANN401 - pandas need not be there
        """Return the rows as a pandas frame. Integer columns with NULLs become Int64 and the like.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        return pandas_frame(self.to_arrow())

    def to_polars(self) -> Any:  # noqa: ANN401 - polars need not be there
        """Return the rows as a polars frame.

        Raises:
            MissingExtraError: polars is not installed.
        """
        return polars_frame(self.to_arrow())

    def to_parquet(self, path: str | PathLike[str]) -> None:
        """Write the rows to a Parquet file on this machine.

        Raises:
            OSError: the file cannot be written.
        """
        file_path = check_path(path)
        from pyarrow import parquet  # noqa: PLC0415 - takes longer to import than all the rest

        with file_path.open("wb") as file:
            parquet.write_table(self.to_arrow(), file)

    arrow = to_arrow
    df = to_pandas
    pl = to_polars

    # ---- for people

    def __dir__(self) -> list[str]:
        return public_names(self, {"of_rows", "of_status"})

    def __repr__(self) -> str:
        if self.status:
            return self.status
        try:
            cells = self._cells()
        except SchemaMismatchError:  # a value that Python cannot hold; Arrow still does
            return f"<Result: {len(self)} rows ({self.schema.ddl})>"
        table = [self._headings(), *(line for row in cells for line in _lines(row))]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        table.insert(1, ["-" * width for width in widths])
        lines = [
            "  ".join(
                cell.rjust(width) if column.type.kind in _NUMBERS else cell.ljust(width)
                for cell, width, column in zip(row, widths, self.schema.columns, strict=True)
            ).rstrip()
            for row in table
        ]
        return "\n".join([*lines, *self._footer()])

    def _repr_html_(self) -> str:
        """What notebooks show."""
        if self.status:
            return f"<p>{html.escape(self.status)}</p>"
        try:
            cells = self._cells()
        except SchemaMismatchError:
            return f"<p>{html.escape(repr(self))}</p>"
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self._headings())
        body = "".join(f"<tr>{''.join(map(_html_cell, row))}</tr>" for row in cells)
        foot = "".join(f"<p>{html.escape(line)}</p>" for line in self._footer())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{foot}"

    def _headings(self) -> list[str]:
        return [_cut(name) for name in self.schema.names]

    def _cells(self) -> list[list[str]]:
        if self._rows is None:  # only what is shown is worth converting
            batches = self.to_arrow().slice(0, _SHOWN_ROWS).to_batches()
            rows = [row for batch in batches for row in self.schema.arrow_to_rows(batch)]
        else:
            rows = self._rows if self._show_all else self._rows[:_SHOWN_ROWS]
        text_of = _text if self._show_all else _shown
        return [list(map(text_of, row)) for row in rows]

    def _footer(self) -> list[str]:
        more = 0 if self._show_all else len(self) - _SHOWN_ROWS
        if more > 0:
            return [f"... {more} more {'row' if more == 1 else 'rows'}"]
        return [] if len(self) else ["(no rows)"]


def _shown(value: object) -> str:
    return _cut(_text(value))


def _text(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def _lines(row: list[str]) -> Iterator[list[str]]:
    """The lines that a row takes in a table: one for each line of its longest cell."""
    cells = [[_printable(line) for line in cell.splitlines()] or [""] for cell in row]
    for line in zip_longest(*cells, fillvalue=""):
        yield list(line)


def _html_cell(text: str) -> str:
    return f"<td>{'<br>'.join(html.escape(_printable(line)) for line in text.splitlines())}</td>"


def _cut(text: str) -> str:
    # Ends of lines and the like would break the table; cut first, as a text may be very long.
    text = _printable(text[: _SHOWN_WIDTH + 1])
    return text if len(text) <= _SHOWN_WIDTH else f"{text[: _SHOWN_WIDTH - 1]}…"


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
