"""For all tests: what is slow the first time only is done before any of them is timed.

And one Spark, started by the first test that needs it; a Chromium for those that look at pages.
Several processes of pytest-xdist share the tests out (``sharing.py``).
"""

from __future__ import annotations

import gc
import os
import shutil
import signal

import pyarrow as pa
import pytest

from millstream.spark.session import Spark

from .effort import ASKS
from .seed import SEED, load_profile
from .sharing import Sharing, choose_place, processes

choose_place()
# A shell has what it runs in the background ignore Ctrl-C; tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)
pa.array([0])  # imports pandas
# Each Java of the tests lives for seconds or minutes: compiling it well takes longer than it saves.
# Compiled so, its code would have 48 MB, which the views of many tests fill: it is thrown out, and
# compiled again.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m")
# Each change of a view is compared with its rows: one that retracts a row that is not there fails.
os.environ["MILLSTREAM_CHECK_ROWS"] = "1"
load_profile()
pytest_plugins = ["tests.plain_rules"]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Spare the garbage collector the modules and the tests: there are millions, and all stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items):
    """Mark the tests that have a long form, and those that need a browser."""
    for item in items:
        if isinstance(item, pytest.Function) and ASKS & vars(item.module).keys():
            item.add_marker(pytest.mark.proof)
        if "chromium" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


def pytest_xdist_make_scheduler(config, log):
    return Sharing(config, log)


def pytest_xdist_auto_num_workers():
    return processes()


def pytest_report_header():
    return f"MILLSTREAM_SEED={SEED}"


@pytest.fixture(scope="session")
def spark_owner(tmp_path_factory):
    """Databases that start a Spark of their own use this one, too: a process has one."""
    owner = Spark(tmp_path_factory.mktemp("spark"))
    assert owner.session is not None
    yield owner
    owner.stop()


@pytest.fixture(scope="module")
def chromium():
    """A Chromium for the tests of a module: its event loop must not outlive them."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - of the extras' tests only

    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert found, "there is no Chromium: make browser"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found,
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
        )
        yield browser
        browser.close()
