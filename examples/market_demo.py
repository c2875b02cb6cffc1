"""A simulated market: OHLC and VWAP per symbol and minute, on Spark, pushed at each trade.

    python examples/market_demo.py                30 seconds, then a summary
    python examples/market_demo.py --seconds 10
    python examples/market_demo.py --keep         until Ctrl-C

It prints the address of the console, which shows the same in a browser.
It is ``millstream demo``; the code is in ``millstream/cli/market.py``.
"""

from __future__ import annotations

import argparse

from millstream.cli.market import run_market

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--keep", action="store_true")
    chosen = parser.parse_args()
    run_market(chosen.seconds, keep=chosen.keep)
