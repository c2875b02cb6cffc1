"""A simulated market: OHLC and VWAP per symbol and minute, on Spark, pushed at each trade.

    python examples/market_demo.py                30 seconds, then a summary
    python examples/market_demo.py --seconds 10

It is ``millstream demo``; the code is in ``millstream/cli/market.py``.
"""

from __future__ import annotations

import argparse

from millstream.cli.market import run_market

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    run_market(parser.parse_args().seconds)
