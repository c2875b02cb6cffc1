"""``millstream push``: rows from standard input or a file into a source or a table."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from pathlib import Path  # noqa: TC003 - Typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.formats import InputFormat  # noqa: TC001 - Typer reads the annotations
from millstream.cli.place import Key, RequiredPlace, open_place, required

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import BinaryIO

    from rich.progress import Progress

    from millstream.cli.pushing import Pushed


def push(  # noqa: PLR0917 - Typer makes options of them
    source: Annotated[str, typer.Argument(help="A source or a table.")],
    place: RequiredPlace = None,
    file: Annotated[
        Path | None,
        typer.Argument(help="The rows; without, or -, standard input.", dir_okay=False),
    ] = None,
    form: Annotated[
        InputFormat | None,
        typer.Option("--format", "-f", help="Default: by the file's name, or its first bytes."),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Report rows that do not fit, and go on.")
    ] = False,
    key: Key = None,
) -> None:
    """Push rows from a file or standard input: JSON lines, CSV with a header, or Arrow IPC.

    Rows are taken in batches as they come, so a pipe that never ends is fine. A row that does not
    fit ends it with exit code 1: the error names the line, all lines before it are in the
    database, and nothing from it on. With --skip-bad each such row is reported on standard error,
    the others are pushed, and the exit code is 1 all the same.

    When it ends, what was pushed is on the disk. Progress and the summary are on standard error.

    Examples:
        millstream push trades market.db trades.csv
        tail -F app.log.json | millstream push events market.db
        millstream push trades market.db --format arrow < trades.arrows
    """
    from millstream.cli.pushing import push_stream  # noqa: PLC0415 - loads Arrow

    began = time.perf_counter()
    with open_place(required(place), key) as database, _opened(file) as stream:
        size = None if file is None or str(file) == "-" else file.stat().st_size
        with _progress() as progress:
            task = progress.add_task(source, total=size, rows="0 rows")

            def report(done: Pushed) -> None:
                progress.update(task, completed=done.bytes, rows=f"{done.rows:,} rows")

            name = "" if file is None else file.name
            try:
                done = push_stream(
                    database,
                    source,
                    stream,
                    form,
                    name_of_file=name,
                    skip_bad=skip_bad,
                    report=report,
                )
            finally:
                database.flush()
    _sum_up(source, done, time.perf_counter() - began)


def _opened(file: Path | None) -> AbstractContextManager[BinaryIO]:
    if file is None or str(file) == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return file.open("rb")
    except OSError as error:
        raise typer.BadParameter(f"cannot read {file}: {error.strerror}") from error


def _progress() -> Progress:
    from rich.progress import (  # noqa: PLC0415 - --help is quick
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TransferSpeedColumn,
    )

    from millstream.cli.output import console  # noqa: PLC0415 - loads Arrow

    columns: list[Any] = [TextColumn("{task.description}"), BarColumn()]
    columns += [TextColumn("{task.fields[rows]}"), TransferSpeedColumn(), TimeElapsedColumn()]
    return Progress(
        *columns, console=console(err=True), transient=True, disable=not sys.stderr.isatty()
    )


def _sum_up(source: str, done: Pushed, seconds: float) -> None:
    rate = done.rows / seconds if seconds else 0.0
    typer.echo(
        f"pushed {done.rows:,} {'row' if done.rows == 1 else 'rows'} to {source} "
        f"in {seconds:.2f} s ({rate:,.0f} rows/s)"
        + (f"; {done.skipped:,} were skipped" if done.skipped else ""),
        err=True,
    )
    if done.skipped:
        raise typer.Exit(1)
