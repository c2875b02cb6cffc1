"""The commands, put together, and how their errors are shown."""

from __future__ import annotations

import sys

import typer

from millstream import __version__
from millstream.cli import keys, serve
from millstream.errors import Error

app = typer.Typer(
    name="millstream",
    help="A streaming database: push rows in, write SQL, have every change pushed out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("serve")(serve.serve)
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
    try:
        app()
    except Error as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
