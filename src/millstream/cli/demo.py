"""``millstream demo``: a simulated market, live on Spark."""

from __future__ import annotations

from typing import Annotated

import typer


def demo(
    seconds: Annotated[float, typer.Option(min=0.5, help="How long it runs.")] = 30.0,
    keep: Annotated[bool, typer.Option("--keep", help="Go on until Ctrl-C.")] = False,
    http: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where the console is; port 0: any free one.")
    ] = "127.0.0.1:0",
) -> None:
    """Show a simulated market: prices per symbol and minute, on Spark, changed at each trade.

    It prints a table in the terminal, and the address of the console, which shows the same in a
    browser. It uses a temporary database, and ends by itself.

    Examples:
        millstream demo
        millstream demo --seconds 10
        millstream demo --keep
    """
    from millstream.cli.market import run_market  # noqa: PLC0415 - loads Arrow

    run_market(seconds, keep=keep, http=http)
