"""``millstream bench``: what this machine reaches, in a minute."""

from __future__ import annotations

from typing import Annotated

import typer


def bench(
    rows: Annotated[int, typer.Option(min=1000, help="How many rows are pushed.")] = 200_000,
    spark: Annotated[bool, typer.Option(help="Also a window on Spark; needs Java.")] = True,
) -> None:
    """Measure this machine: pushing rows, a filter, a windowed SUM on Spark.

    It uses a temporary database. The figures are of one run, and of this machine while it does
    whatever else it does.

    Examples:
        millstream bench
        millstream bench --rows 1000000 --no-spark
    """
    from millstream.cli.measuring import measure  # noqa: PLC0415 - loads Arrow

    measure(rows, spark=spark)
