"""``millstream run``: a pipeline from a file of SQL, which stays up."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from pathlib import Path  # noqa: TC003 - Typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from millstream.cli.formats import Format
from millstream.cli.place import open_place
from millstream.cli.serve import served
from millstream.cli.statements import split, subscribed
from millstream.errors import InvalidOptionError, ViewFailedError
from millstream.server.settings import Settings, parse_address

if TYPE_CHECKING:
    from millstream import Database

_LOOK_SECONDS: Final = 0.5


def run(  # noqa: PLR0917 - Typer makes options of them
    file: Annotated[Path, typer.Argument(help="The SQL.", exists=True, dir_okay=False)],
    directory: Annotated[
        str | None, typer.Argument(metavar="[DIR]", help="The database; without, a temporary one.")
    ] = None,
    status: Annotated[
        float, typer.Option(min=0.1, help="Seconds between status lines, without a terminal.")
    ] = 10.0,
    http: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Also serve it, as millstream serve.")
    ] = None,
    pg: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="And over PostgreSQL's protocol.")
    ] = None,
    auth: Annotated[bool, typer.Option("--auth", help="Ask for keys: millstream keys.")] = False,
) -> None:
    """Run a file of SQL and stay up: sources, tables, views, subscriptions.

    The statements run in their order. Results of queries are printed; SUBSCRIBE and LIVE SELECT
    print their changes as JSON lines from then on. Write IF NOT EXISTS, so that the file can be
    run again on its directory.

    The status is on standard error: rows pushed, rows/s, and how far views are behind. Ctrl-C or
    SIGTERM stops it and closes the database: exit code 0. A statement that is refused, or a view
    that fails, ends it with exit code 1. With --http it is served once its statements have run.

    Examples:
        millstream run app.sql market.db
        millstream run app.sql market.db --http 127.0.0.1:8080 --pg 127.0.0.1:5432
        millstream run app.sql market.db --status 60 >> changes.jsonl
    """
    stop = threading.Event()
    failures: list[BaseException] = []
    settings = _settings(http, pg, auth=auth)
    statements, rest = split(file.read_text(encoding="utf-8"))
    with open_place(directory) as database:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, lambda *_: stop.set())
        pipeline = _Pipeline(database, stop, failures)
        for statement in [*statements, *([rest] if rest else [])]:
            if stop.is_set():
                return
            pipeline.start(statement)
        with _served(pipeline, settings) as addresses:
            at = f" at {addresses}" if addresses else ""
            typer.echo(f"running {file} on {database.path}{at}; Ctrl-C stops it", err=True)
            _stay_up(database, stop, status)
    if failures:
        raise failures[0]
    typer.echo("stopped", err=True)


def _settings(http: str | None, pg: str | None, *, auth: bool) -> Settings | None:
    """How it is served; None: it is not."""
    if http is None and (pg is not None or auth):
        raise InvalidOptionError("--pg and --auth need --http", hint="--http 127.0.0.1:8080")
    if http is None:
        return None
    postgres = None if pg is None else parse_address(pg)
    return Settings(http=parse_address(http), postgres=postgres, auth=auth)


def _served(
    pipeline: _Pipeline, settings: Settings | None
) -> contextlib.AbstractContextManager[str]:
    if settings is None:
        return contextlib.nullcontext("")
    return served(pipeline.database, settings, pipeline.fail)


class _Pipeline:
    """Runs the statements of the file; those that subscribe go on in the background."""

    def __init__(
        self, database: Database, stop: threading.Event, failures: list[BaseException]
    ) -> None:
        from millstream.cli.shell import Runner  # noqa: PLC0415 - loads Arrow

        self.database = database
        self._runner = Runner(database, Format.TABLE)
        self._stop = stop
        self._failures = failures

    def start(self, statement: str) -> None:
        """Run a statement; changes of one that subscribes are printed from now on."""
        from millstream.cli.output import ChangePrinter  # noqa: PLC0415 - loads Arrow

        query = subscribed(statement)
        if query is None:
            self._runner.run(statement)
            sys.stdout.flush()
            return
        printer = ChangePrinter(self._runner.out, Format.JSON)

        def show(batch: Any) -> None:  # noqa: ANN401 - a ChangeBatch
            printer.print(batch)
            sys.stdout.flush()

        self.database.subscribe_callback(query, show, on_error=self.fail)

    def fail(self, error: BaseException) -> None:
        """Stop everything, and end with an error."""
        self._failures.append(error)
        self._stop.set()


def _stay_up(database: Database, stop: threading.Event, every: float) -> None:
    """Show the status until it is stopped.

    Raises:
        ViewFailedError: a view cannot go on.
    """
    from millstream.cli.output import console  # noqa: PLC0415 - loads Arrow

    err = console(err=True)
    rows, then = _pushed(database), time.monotonic()
    with err.status("starting") if err.is_terminal else contextlib.nullcontext() as line:
        while not stop.wait(_LOOK_SECONDS if line is not None else every):
            _check_views(database)
            now, before = time.monotonic(), rows
            rows = _pushed(database)
            text = status_text(database.metrics(), rows, (rows - before) / (now - then))
            then = now
            if line is not None:
                line.update(text)
            else:
                typer.echo(text, err=True)


def status_text(metrics: dict[str, Any], rows: int, rate: float) -> str:
    """The status in one line.

    >>> status_text({"lsn": 12, "subscribers": 1, "views": {"v": {"lag_rows": 3}}}, 12, 4.0)
    '12 rows in, 4 rows/s; LSN 12; 1 views, 3 rows behind; 1 subscriptions'
    """
    views = metrics["views"]
    lag = max((each["lag_rows"] for each in views.values()), default=0)
    return (
        f"{rows:,} rows in, {rate:,.0f} rows/s; LSN {metrics['lsn']:,}; "
        f"{len(views)} views, {lag:,} rows behind; {metrics['subscribers']} subscriptions"
    )


def _pushed(database: Database) -> int:
    return sum(each["pushed"] for each in database.metrics()["sources"].values())


def _check_views(database: Database) -> None:
    for name, view in database.metrics()["views"].items():
        if view["state"] == "failed":
            shown = {
                each["name"]: each["error"] for each in database.query("SHOW VIEWS").to_pylist()
            }
            raise ViewFailedError(f"the view {name} failed: {shown.get(name)}", view=name)
