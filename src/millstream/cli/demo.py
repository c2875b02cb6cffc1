"""``millstream demo``: a simulated market, live on Spark."""

from __future__ import annotations

from typing import Annotated

import typer


def demo(
    seconds: Annotated[float, typer.Option(min=0.5, help="How long it runs.")] = 30.0,
) -> None:
    """Show a simulated market: prices per symbol and minute, on Spark, changed at each trade.

    It uses a temporary database, needs Java 17, and ends by itself.

    Examples:
        millstream demo
        millstream demo --seconds 10
    """
    from millstream.cli.market import run_market  # noqa: PLC0415 - loads Arrow

    run_market(seconds)
