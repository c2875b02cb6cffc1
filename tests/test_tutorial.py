"""The tutorial is followed to its end: its programs run, and its page is opened in a browser."""

from __future__ import annotations

import http.server
import json
import re
import shlex
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

import millstream as ms
from millstream.testing import wait_until

from .effort import effort

PAGE = (Path(__file__).parent.parent / "docs" / "tutorial.md").read_text()
FILES = dict(re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', PAGE, re.DOTALL | re.MULTILINE))
SECONDS = 60


def command(start):
    """The words of a command of the page, by how it begins; a quoted one may have several lines."""
    text, *more = PAGE[PAGE.index(f"$ {start}") + 2 :].split("\n")
    while text.count('"') % 2:
        text += "\n" + more.pop(0)
    return shlex.split(text)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        """Nothing."""


class Tutorial:
    """A folder with the files of the page, at addresses that are free."""

    def __init__(self, folder, site):
        self.folder = folder
        self.site = f"127.0.0.1:{site}"
        self.server = "127.0.0.1:0"

    def text(self, text):
        return text.replace("127.0.0.1:8080", self.server).replace("127.0.0.1:8000", self.site)

    def write(self, name, text):
        (self.folder / name).write_text(self.text(text))

    def run(self, start):
        """What a command of the page prints."""
        words = [self.text(word) for word in command(start)]
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=2 * SECONDS,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def serve(self, end=subprocess.Popen.terminate):
        words = [self.text(word) for word in command("millstream serve")]
        running = subprocess.Popen(
            [sys.executable, "-m", *words], cwd=self.folder, stdout=subprocess.PIPE, text=True
        )
        with running:
            try:
                said = running.stdout.readline()
                self.server = said.split("//")[-1].strip()
                assert said == f"millstream serves market.db at http://{self.server}\n"
                yield
            finally:
                end(running)

    @contextmanager
    def market(self):
        self.write("market.py", FILES["market.py"])
        with subprocess.Popen([sys.executable, "market.py"], cwd=self.folder) as running:
            try:
                yield running
            finally:
                running.kill()


@pytest.fixture
def tutorial(tmp_path):
    serve = partial(Quiet, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        yield Tutorial(tmp_path, site.server_port)
        site.shutdown()
        thread.join()


@pytest.fixture
def page(chromium):
    page = chromium.new_page()
    page.set_default_timeout(SECONDS * 1000)
    yield page
    page.close()


def all_symbols(tutorial):
    with ms.connect(f"http://{tutorial.server}", timeout=SECONDS) as db:
        wait_until(lambda: db.query("SHOW TABLES LIKE 'prices'").fetchall(), "market.py runs")
        query = "SELECT COUNT(*) AS n FROM prices"
        wait_until(lambda: db.query(query).fetchall() == [(4,)], "each symbol has a price")


@pytest.mark.slow
def test_trades_are_pushed_and_followed(tutorial):
    with tutorial.serve(), tutorial.market():
        all_symbols(tutorial)
        lines = [json.loads(line) for line in tutorial.run("millstream tail").splitlines()]
        assert [line["op"] for line in lines] == ["insert", "insert"]
        assert all(line["row"]["qty"] > 50 for line in lines)
        shown = tutorial.run('millstream sql http://127.0.0.1:8080 -c "SELECT')
        assert re.findall(r"AAPL|GOOG|MSFT|NVDA|symbol|price|day|4 rows", shown) == [
            *("symbol", "price", "day", "AAPL", "GOOG", "MSFT", "NVDA", "4 rows")
        ]


def changes(page, table):
    """Wait until a table of the dashboard shows something else."""
    before = page.locator(table).inner_text()
    page.wait_for_function(
        "([table, before]) => document.querySelector(table).innerText !== before",
        arg=[table, before],
    )


@pytest.mark.slow
@pytest.mark.parametrize("end", [subprocess.Popen.terminate, subprocess.Popen.kill])
def test_the_market_goes_on_after_the_server_has_ended(tutorial, end):
    with ExitStack() as running:
        with tutorial.serve(end):
            market = running.enter_context(tutorial.market())
            all_symbols(tutorial)
        for _ in range(effort(1, 3)):
            with tutorial.serve(end), ms.connect(f"http://{tutorial.server}") as db:
                before = db.query("SELECT COUNT(*) AS n FROM trades").fetchall()
                wait_until(
                    lambda before=before, db=db: (
                        db.query("SELECT COUNT(*) AS n FROM trades").fetchall() > before
                    ),
                    "market.py pushes",
                )
            assert market.poll() is None


@pytest.mark.slow
def test_the_dashboard_is_live_and_heals(tutorial, page):
    with ExitStack() as running:
        with tutorial.serve():
            running.enter_context(tutorial.market())
            all_symbols(tutorial)
            tutorial.write("dashboard.html", FILES["dashboard.html"])
            page.goto(f"http://{tutorial.site}/dashboard.html")
            page.wait_for_function("document.querySelectorAll('#prices tr').length === 5")
            assert page.locator("#prices th").all_inner_texts() == ["symbol", "price", "day"]
            assert page.locator("#state").inner_text() == "live"
            changes(page, "#prices")
            page.wait_for_selector("#large td")
        page.wait_for_function("document.querySelector('#state').innerText === 'reconnecting'")
        with tutorial.serve():
            page.wait_for_function("document.querySelector('#state').innerText === 'live'")
            changes(page, "#prices")
            assert page.locator("#prices tr").count() == 5


@pytest.mark.slow
def test_the_view_is_on_the_dashboard(tutorial, page):
    with tutorial.serve(), tutorial.market():
        all_symbols(tutorial)
        said = tutorial.run('millstream sql http://127.0.0.1:8080 -c "\n')
        assert said == "CREATE MATERIALIZED VIEW\n"
        text = FILES["dashboard.html"]
        text = text.replace("<script>", FILES["dashboard.html: before the script"] + "<script>")
        more = FILES["dashboard.html: at the end of the script"]
        tutorial.write("dashboard.html", text.replace("</script>", more + "</script>"))
        page.goto(f"http://{tutorial.site}/dashboard.html")
        page.wait_for_function("document.querySelectorAll('#volumes tr').length === 5")
        changes(page, "#volumes")
