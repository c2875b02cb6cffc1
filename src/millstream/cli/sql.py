"""``millstream sql``: a shell, or statements from the command line or standard input."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.formats import Format
from millstream.cli.place import Key, Place, open_place
from millstream.cli.statements import split

if TYPE_CHECKING:
    from millstream.cli.shell import Runner


def sql(
    place: Place = None,
    command: Annotated[
        list[str] | None,
        typer.Option("--command", "-c", metavar="SQL", help="Run this; may be repeated."),
    ] = None,
    form: Annotated[Format | None, typer.Option("--format", "-f", help="Of the results.")] = None,
    key: Key = None,
) -> None:
    r"""Run SQL: in a shell, from -c, or from standard input.

    In the shell a statement ends with a semicolon and may have several lines. Tab completes
    keywords, functions, names and columns; the arrows go through the history. SUBSCRIBE and
    LIVE SELECT scroll until Ctrl-C. \d lists what there is, \d NAME shows its columns, \? helps,
    \q leaves.

    With -c or standard input it ends at the first error, with exit code 1.

    Examples:
        millstream sql
        millstream sql market.db
        millstream sql market.db -c "SELECT symbol, price FROM trades" --format csv
        millstream sql market.db < schema.sql
    """
    runner: Runner
    shell = import_module("millstream.cli.shell")  # Arrow, Rich and the terminal, only when needed
    with open_place(place, key) as database:
        runner = shell.Runner(database, form or Format.TABLE)
        if command is None and sys.stdin.isatty():
            shell.Shell(runner, place).run()
            return
        text = sys.stdin.read() if command is None else ";\n".join(command)
        statements, rest = split(text)
        for each in [*statements, *([rest] if rest else [])]:
            if each.strip() == r"\q":
                break
            runner.run(each)
