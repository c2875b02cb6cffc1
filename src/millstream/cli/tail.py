"""``millstream tail``: the changes of a query, a line each."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.formats import Format
from millstream.cli.place import Key, RequiredPlace, open_place, required
from millstream.errors import ClosedError, ReceiveTimeoutError

if TYPE_CHECKING:
    from millstream import Subscription
    from millstream.cli.output import ChangePrinter


def tail(  # noqa: PLR0917 - Typer makes options of them
    query: Annotated[str, typer.Argument(help="A SELECT, or the name of a source or view.")],
    place: RequiredPlace = None,
    form: Annotated[
        Format | None,
        typer.Option("--format", "-f", help="Default: a table on a terminal, else JSON."),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TOKEN|LSN|TIME",
            help="Where to start; also now, earliest, snapshot.",
        ),
    ] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Print resume tokens.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="End after n.")] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0.0, help="End after so many seconds without a change.")
    ] = None,
    key: Key = None,
) -> None:
    """Print the changes of a query as they happen, a line each, until Ctrl-C.

    A JSON line is an object with op (insert, update, delete), lsn, row, and before of an update.
    CSV has _op and _lsn before the columns. In a table + is an insert, ~ an update, - a delete.
    What could not be delivered is reported on standard error as a gap.

    With --tokens each line has a resume token; --from TOKEN goes on after that line.
    MILLSTREAM_DIR stands for the directory when none is given.

    Examples:
        millstream tail "SELECT * FROM trades WHERE price > 100" market.db
        millstream tail trades market.db --from earliest --limit 10 --format csv
        millstream tail ohlc http://127.0.0.1:8080 --tokens | jq .row
    """
    from millstream.cli.output import ChangePrinter, console  # noqa: PLC0415 - loads Arrow

    if form is None:
        form = Format.TABLE if sys.stdout.isatty() else Format.JSON
    with open_place(required(place), key) as database:
        sql = query if " " in query.strip() else f"SELECT * FROM {query}"  # noqa: S608
        with database.subscribe(sql, start=parse_start(start)) as subscription:
            token_at = subscription.token_at if tokens else None
            printer = ChangePrinter(console(), form, token_at)
            _follow(subscription, printer, limit, timeout)


def _follow(
    subscription: Subscription, printer: ChangePrinter, limit: int | None, timeout: float | None
) -> None:
    left = limit
    try:
        while left is None or left > 0:
            printed = printer.print(subscription.recv(timeout), left)
            sys.stdout.flush()
            left = None if left is None else left - printed
    except (KeyboardInterrupt, ReceiveTimeoutError, ClosedError):
        return


def parse_start(text: str | None) -> str | int | datetime | None:
    """Where to start: a word or a token as it is, an LSN, a time in ISO 8601.

    >>> parse_start("42"), parse_start("now"), parse_start("2026-01-31T00:00:00Z").year
    (42, 'now', 2026)
    """
    if text is None or (text.isascii() and text.isdigit()):
        return None if text is None else int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return text
