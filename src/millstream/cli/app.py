"""The commands, put together, and how their errors are shown."""

from __future__ import annotations

import signal
import sys

import typer

from millstream import __version__
from millstream.cli import bench, demo, doctor, keys, push, run, serve, sql, tail
from millstream.cli.help_text import flowing
from millstream.errors import Error

app = typer.Typer(
    name="millstream",
    help="A streaming database: push rows in, write SQL, have every change pushed out.",
    epilog="millstream COMMAND --help shows examples. docs/command-line.md has them all.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (
    sql.sql,
    run.run,
    serve.serve,
    tail.tail,
    push.push,
    demo.demo,
    bench.bench,
    doctor.doctor,
):
    app.command(_command.__name__, help=flowing(_command.__doc__ or ""))(_command)
app.add_typer(keys.app, name="keys")


def _version(shown: bool) -> None:
    if shown:
        typer.echo(f"millstream {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    _version: bool = typer.Option(
        False, "--version", help="Show the version.", callback=_version, is_eager=True
    ),
) -> None:
    pass


def main() -> None:
    """Run the command that the arguments name; an error of Millstream is one text, no traceback."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        app()
    except Error as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)


def _terminate(number: int, _: object) -> None:
    """SIGTERM closes the database, as the end of the program does."""
    sys.exit(128 + number)
