"""Results and changes as text: Rich tables, scrolling lines, JSON lines, CSV."""

from __future__ import annotations

import contextlib
import csv
import io
import sys
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from millstream.cli.formats import Format
from millstream.formats.json_output import to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from millstream import Change, ChangeBatch, Result, Schema
    from millstream.engine.context import CopyProgress

_WIDE: Final = 100_000
_NUMBERS: Final = frozenset(
    {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "REAL", "DOUBLE", "DECIMAL"}
)
_MARKS: Final = {"insert": ("+", "green"), "update": ("~", "yellow"), "delete": ("-", "red")}
_LEAST_WIDTH: Final = 10


def console(*, err: bool = False) -> Console:
    """A console for a terminal, or for a pipe, where nothing is cut to the width of a terminal."""
    file = sys.stderr if err else sys.stdout
    return Console(file=file, highlight=False, width=None if file.isatty() else _WIDE)


@contextlib.contextmanager
def copy_bar() -> Iterator[Callable[[CopyProgress], None]]:
    """A bar on standard error that shows the progress of a COPY; nothing without a terminal."""
    err = console(err=True)
    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[rows]}"))
    with Progress(
        *columns, TimeElapsedColumn(), console=err, transient=True, disable=not err.is_terminal
    ) as bar:
        task = bar.add_task("", total=1.0, rows="0 rows")

        def report(progress: CopyProgress) -> None:
            bar.update(task, completed=progress.done, rows=f"{progress.rows:,} rows")

        yield report


# ---- values


def cell(value: object) -> str:
    r"""A value as text, without characters that a terminal would obey.

    >>> cell(None), cell(True), cell("a\x1b[31mb"), cell(1.5)
    ('NULL', 'true', 'a\\x1b[31mb', '1.5')
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = value if isinstance(value, str) else str(value)
    return "".join(
        each if each.isprintable() or each == "\n" else ascii(each)[1:-1] for each in text
    )


def _csv_cell(value: object) -> object:
    if value is None or (isinstance(value, str | int | float) and not isinstance(value, bool)):
        return value
    text = to_json(value)
    return text[1:-1] if text.startswith('"') else text


def csv_line(values: Iterable[object]) -> str:
    """A line of CSV that ``millstream push`` reads back."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([_csv_cell(value) for value in values])
    return line.getvalue()


# ---- results


def print_result(out: Console, result: Result, form: Format) -> None:
    """The rows of a query, or the status of a statement."""
    if result.status or not result.columns:
        if form is Format.TABLE and result.status:
            out.print(Text(result.status))
        return
    if form is Format.TABLE:
        out.print(table_of(result.schema, result))
        out.print(Text(f"({len(result):,} {'row' if len(result) == 1 else 'rows'})", "dim"))
    elif form is Format.JSON:
        for row in result:
            out.out(to_json(dict(zip(result.columns, row, strict=True))))
    else:
        out.out(csv_line(result.columns))
        for row in result:
            out.out(csv_line(row))


def table_of(schema: Schema, rows: Iterable[Sequence[Any]]) -> Table:
    """A Rich table of rows; numbers are to the right."""
    table = Table(header_style="bold")
    for column in schema.columns:
        is_number = column.type.kind in _NUMBERS
        table.add_column(Text(cell(column.name)), justify="right" if is_number else "left")
    for row in rows:
        table.add_row(*(Text(cell(value), "dim" if value is None else "") for value in row))
    return table


# ---- changes


class ChangePrinter:
    """Prints the changes of a subscription, one line each.

    Args:
        out: where to.
        form: JSON objects with ``op``, ``lsn``, ``row`` and ``before``; CSV with ``_op`` and
            ``_lsn`` before the columns; or aligned columns with ``+``, ``~`` and ``-``.
        token_at: gives the resume token after an LSN, for each line; None: without tokens.
    """

    def __init__(
        self, out: Console, form: Format, token_at: Callable[[int], str] | None = None
    ) -> None:
        self._out = out
        self._form = form
        self._token_at = token_at
        self._widths: list[int] | None = None

    def print(self, batch: ChangeBatch, limit: int | None = None) -> int:
        """Print a batch, at most so many changes of it; returns how many."""
        if batch.gap is not None:
            count = "changes" if batch.gap.count is None else f"{batch.gap.count:,} changes"
            where = f"LSN {batch.gap.first_lsn} to {batch.gap.last_lsn}"
            console(err=True).print(Text(f"gap: {count} were not delivered, {where}", "yellow"))
        printed = 0
        for change in batch:
            if limit is not None and printed >= limit:
                break
            self._line(change, self._token_at(change.lsn) if self._token_at else None)
            printed += 1
        return printed

    def _line(self, change: Change, token: str | None) -> None:
        if self._form is Format.JSON:
            self._out.out(to_json(_object(change, token)))
        elif self._form is Format.CSV:
            if self._widths is None:
                self._widths = []
                extra = () if token is None else ("_token",)
                self._out.out(csv_line(("_op", "_lsn", *extra, *change.schema.names)))
            extra = () if token is None else (token,)
            self._out.out(csv_line((change.op, change.lsn, *extra, *change.row)))
        else:
            self._aligned(change, token)

    def _aligned(self, change: Change, token: str | None) -> None:
        cells = [cell(value).replace("\n", "\\n") for value in change.row]
        if self._widths is None:
            names = [cell(name) for name in change.schema.names]
            pairs = zip(names, cells, strict=True)
            self._widths = [max(len(a), len(b), _LEAST_WIDTH) for a, b in pairs]
            head = self._padded(names, change.schema)
            self._out.print(Text(f"  {'lsn':>{_LEAST_WIDTH}}  {head}", "bold"), soft_wrap=True)
        mark, color = _MARKS[change.op]
        line = f"{mark} {change.lsn:>{_LEAST_WIDTH}}  {self._padded(cells, change.schema)}"
        self._out.print(Text(line if token is None else f"{line}  {token}", color), soft_wrap=True)

    def _padded(self, cells: list[str], schema: Schema) -> str:
        return "  ".join(
            each.rjust(width) if column.type.kind in _NUMBERS else each.ljust(width)
            for each, width, column in zip(cells, self._widths or (), schema.columns, strict=True)
        ).rstrip()


def _object(change: Change, token: str | None) -> dict[str, Any]:
    names = change.schema.names
    made: dict[str, Any] = {"op": change.op, "lsn": change.lsn, "row": change.as_dict()}
    if change.before is not None and change.op == "update":
        made["before"] = dict(zip(names, change.before, strict=True))
    if token is not None:
        made["token"] = token
    return made
