"""``db.watch`` in JupyterLab, in a browser: the table changes, and its button stops it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import pytest

from millstream.testing import TIMEOUT

FIRST = """
import threading, time
import millstream as ms

db = ms.open()
db.execute("CREATE TABLE counts (name VARCHAR PRIMARY KEY, n BIGINT)")
db.execute("INSERT INTO counts VALUES ('<b>clicks</b>', 0), ('views', 0)")

def count():
    while True:
        db.execute("UPDATE counts SET n = n + 1 WHERE name = 'views'")
        time.sleep(0.05)

threading.Thread(target=count, daemon=True).start()
"""
SECOND = 'db.watch("SELECT name, n FROM counts")'
VIEWS = "document.querySelector('.ms-watch tbody').innerText.split('views')[1].trim()"


def notebook():
    cells = [
        {"cell_type": "code", "id": str(n), "metadata": {}, "outputs": [], "source": source}
        | {"execution_count": None}
        for n, source in enumerate((FIRST, SECOND))
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


@pytest.fixture
def lab(tmp_path):
    """The address of a JupyterLab with a notebook."""
    (tmp_path / "watch.ipynb").write_text(json.dumps(notebook()))
    folders = {
        f"JUPYTER_{kind}_DIR": str(tmp_path / kind) for kind in ("CONFIG", "DATA", "RUNTIME")
    }
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}"]
    options += ["--IdentityProvider.token=", f"--ServerApp.root_dir={tmp_path}"]
    with subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", *options],
        env=os.environ | folders | {"HOME": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        address = f"http://127.0.0.1:{port}/lab"
        said = []
        for line in server.stderr:
            said.append(line)
            if address in line:
                break
        else:
            pytest.fail("".join(said))
        yield address
        server.terminate()
        server.stderr.read()  # until its end, so that it never waits for us


@pytest.mark.slow
def test_the_table_is_live_in_a_notebook(lab, chromium):
    with chromium.new_page() as page:
        page.set_default_timeout(TIMEOUT * 1000)
        page.goto(f"{lab}/tree/watch.ipynb?reset")
        page.wait_for_function("document.querySelectorAll('.jp-CodeCell').length === 2")
        page.get_by_text("| Idle").wait_for()  # before, it would ask for a kernel
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        page.wait_for_selector(".ms-watch tbody tr")
        assert page.locator(".ms-watch th").all_inner_texts() == ["name", "n"]
        assert page.locator(".ms-watch tbody tr").first.inner_text() == "<b>clicks</b>\t0"
        before = page.evaluate(VIEWS)
        page.wait_for_function(f"{VIEWS} !== '{before}'")
        page.wait_for_function("/rows\\/s/.test(document.querySelector('.ms-facts').innerText)")
        page.locator(".ms-watch .ms-stop").click()
        page.wait_for_function("document.querySelector('.ms-state').innerText === 'stopped'")
