from __future__ import annotations

import httpx
from rich.console import Console

from millstream.cli import market
from millstream.errors import MissingExtraError
from millstream.testing import TIMEOUT, database


def test_the_demo_serves_the_console_while_it_runs():
    with database("CREATE SOURCE s (n BIGINT)") as db:
        with market.served(db, "127.0.0.1:0") as said:
            address = said.removeprefix("console: ")
            assert "<title>Millstream</title>" in httpx.get(address, timeout=TIMEOUT).text
            found = httpx.get(f"{address}v1/catalog", timeout=TIMEOUT).json()
            assert [each["name"] for each in found["sources"]] == ["s"]
        db.insert("s", [(1,)])  # the database is open still


def test_the_demo_says_what_the_console_lacks(monkeypatch):
    def missing():
        raise MissingExtraError("uvicorn is not installed", hint="pip install 'millstream[server]'")

    monkeypatch.setattr(market, "server_module", missing)
    with database() as db, market.served(db, "127.0.0.1:0") as said:
        assert said == ("no console: uvicorn is not installed; pip install 'millstream[server]'")


class Interrupted:
    """A market during which somebody presses Ctrl-C."""

    @property
    def pushed(self):
        raise KeyboardInterrupt


def test_ctrl_c_ends_the_demo_in_order():
    view = "CREATE MATERIALIZED VIEW ohlc AS SELECT n FROM s WHERE n > 0"
    with database(f"CREATE SOURCE s (n BIGINT); {view}") as db:
        market.show(Console(), db, market.Meter(), Interrupted(), None)
