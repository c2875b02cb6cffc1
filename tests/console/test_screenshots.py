"""The pictures of docs/console.md; with ``MILLSTREAM_SCREENSHOTS=docs/images``, taken for it."""

from __future__ import annotations

import math
import os
import random
import threading
from pathlib import Path

import pytest
from playwright.sync_api import expect

FOR_DOCS = os.environ.get("MILLSTREAM_SCREENSHOTS")
POINTS = 100 if FOR_DOCS else 3
SYMBOLS = ("AAPL", "AMZN", "GOOG", "META", "MSFT", "NVDA", "TSLA")
SCHEMA = """
CREATE SOURCE trades (symbol VARCHAR, price DOUBLE, qty BIGINT, ts TIMESTAMP);
CREATE TABLE quotes (
  symbol VARCHAR PRIMARY KEY, bid DECIMAL(9, 2), ask DECIMAL(9, 2), trades BIGINT);
CREATE MATERIALIZED VIEW large_trades AS
  SELECT symbol, price, qty, price * qty AS value FROM trades WHERE qty >= 450;
CREATE MATERIALIZED VIEW whales AS SELECT * FROM large_trades WHERE value > 80000;
CREATE MATERIALIZED VIEW expensive AS SELECT symbol, bid FROM quotes WHERE bid > 200;
"""


class Market(threading.Thread):
    """Trades and quotes, faster and slower."""

    def __init__(self, db):
        super().__init__()
        self._db = db
        self._done = threading.Event()

    def run(self):
        rng = random.Random(7)
        prices = {symbol: rng.uniform(80, 400) for symbol in SYMBOLS}
        counts = dict.fromkeys(SYMBOLS, 0)
        step = 0
        while not self._done.wait(0.05):
            step += 1
            rows = []
            for _ in range(int(24 + 16 * math.sin(step / 150) + rng.uniform(0, 6))):
                symbol = rng.choice(SYMBOLS)
                prices[symbol] *= math.exp(rng.gauss(0, 0.0008))
                counts[symbol] += 1
                rows.append((symbol, round(prices[symbol], 2), rng.randint(1, 500), None))
            self._db.insert("trades", rows)
            symbol = SYMBOLS[step % len(SYMBOLS)]
            bid = round(prices[symbol], 2)
            self._db.execute(
                "INSERT OR REPLACE INTO quotes VALUES (?, CAST(? AS DECIMAL(9, 2)), "
                "CAST(? AS DECIMAL(9, 2)), ?)",
                [symbol, str(bid), str(round(bid + 0.02, 2)), counts[symbol]],
            )

    def stop(self):
        self._done.set()
        self.join()


@pytest.fixture
def market(served):
    served.db.execute(SCHEMA)
    market = Market(served.db)
    market.start()
    yield served
    market.stop()


@pytest.fixture
def take(tmp_path):
    folder = Path(FOR_DOCS or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)

    def take(page, name):
        path = folder / f"console-{name}.png"
        page.screenshot(path=path, animations="allow")
        assert path.stat().st_size > 10_000

    return take


def fill(page, sql):
    page.get_by_role("textbox", name="SQL").fill(sql)


def wait_for_charts(page):
    page.wait_for_function(
        "n => document.querySelector('.chart .line').getAttribute('d').split(/[ML]/).length > n",
        arg=POINTS,
        timeout=300_000,
    )


def test_screenshots(market, browse, take):
    size = {"width": 1280, "height": 860}
    page = browse(market.url, viewport=size, color_scheme="light")
    fill(page, "-- changes of a table, as they are committed\nLIVE SELECT * FROM quotes")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".live tr[data-op]")).to_have_count(len(SYMBOLS))
    wait_for_charts(page)
    page.locator('[data-relation="large_trades"] summary').click()
    take(page, "live")

    fill(
        page,
        "SELECT symbol, count(*) AS trades, sum(qty) AS volume,\n"
        "       round(avg(price), 2) AS price\nFROM trades\nGROUP BY symbol\nORDER BY volume DESC",
    )
    page.locator('[data-relation="large_trades"] summary').click()
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Run").click()
    expect(page.locator(".result tbody tr")).to_have_count(len(SYMBOLS))
    take(page, "light")
    page.emulate_media(color_scheme="dark")
    take(page, "dark")

    page.emulate_media(color_scheme="light")
    fill(page, "SELECT * FROM whales")
    page.get_by_role("button", name="Follow live").click()
    expect(page.locator(".live .pill")).to_have_text("live")
    page.get_by_role("tab", name="Topology").click()
    expect(page.locator(".label:not(.none)")).to_have_count(4)
    page.set_viewport_size({"width": 1280, "height": 660})
    take(page, "topology")
    page.set_viewport_size(size)

    page.get_by_role("tab", name="SQL").click()
    page.get_by_role("button", name="Stop").click()
    fill(page, "SELECT symbol, sum(qty) AS volume\nFROM trades\nGROUPE BY symbol")
    page.get_by_role("button", name="Run").click()
    expect(page.locator(".error")).to_be_visible()
    # A lot of 450 is there soon enough, and divides by zero.
    lots = "SELECT symbol, price * qty / (qty - 450) AS premium FROM trades"
    market.db.execute(f"CREATE MATERIALIZED VIEW premiums AS {lots}")
    expect(page.locator("#trouble")).to_be_visible()
    take(page, "error")


def test_screenshots_of_a_phone(market, browse, take):
    phone = {"width": 375, "height": 812}
    page = browse(
        market.url, viewport=phone, device_scale_factor=2, is_mobile=True, color_scheme="dark"
    )
    fill(page, "LIVE SELECT symbol, bid, trades FROM quotes")
    page.get_by_role("button", name="Run").click()
    expect(page.locator(".live tr[data-op]")).to_have_count(len(SYMBOLS))
    wait_for_charts(page)
    take(page, "phone")
