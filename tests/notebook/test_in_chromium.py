"""The widget's JavaScript in a browser, on a page with a stand-in for a notebook's model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import millstream as ms
import millstream.notebook
from millstream.testing import wait_until

FOLDER = Path(millstream.notebook.__file__).parent
PAGE = """
<!doctype html><title>notebook</title><style>{css}</style><div id="cell"></div>
<script type="module">
  const state = {{columns: [], rows: [], status: {{}}, sql: ""}}, handlers = {{}};
  window.sent = [];
  window.model = {{
    get: (name) => state[name],
    on: (event, call) => (handlers[event] ??= []).push(call),
    off: (event, call) => (handlers[event] = handlers[event].filter((each) => each !== call)),
    send: (content) => window.sent.push(content),
    handlers,
    update(changed) {{
      Object.assign(state, changed);
      const events = Object.keys(changed).map((name) => handlers[`change:${{name}}`] ?? []);
      for (const call of events.flat()) call();
    }},
  }};
  window.start = async (first) => {{
    Object.assign(state, first);
    const url = URL.createObjectURL(new Blob([{js}], {{type: "text/javascript"}}));
    const widget = (await import(url)).default;
    window.stop = widget.render({{model: window.model, el: document.getElementById("cell")}});
  }};
</script>
"""
TRAITS = ("sql", "columns", "rows", "status")


@pytest.fixture
def page(chromium):
    page, errors = chromium.new_page(), []
    page.on("pageerror", lambda error: errors.append(error))  # noqa: PLW0108 - it needs a function
    css, js = ((FOLDER / f"live_table.{end}").read_text() for end in ("css", "js"))
    page.set_content(PAGE.format(css=css, js=json.dumps(js)))
    page.wait_for_function("window.start !== undefined")
    yield page
    assert errors == []
    page.close()


def state(table):
    return {name: getattr(table, name) for name in TRAITS}


def cells(page):
    return [row.split("\t") for row in page.locator("tbody").inner_text().split("\n") if row]


@pytest.mark.slow
def test_rows_change_flash_and_are_text(page):
    hostile = "<img src=x onerror=\"document.title = 'broken'\">"
    with ms.open() as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR)")
        db.execute("INSERT INTO t VALUES (1, 'Ada'), (2, NULL)")
        table = db.watch("SELECT * FROM t")
        wait_until(lambda: len(table.rows) == 2, "the snapshot is there")
        page.evaluate("first => window.start(first)", state(table))
        assert page.locator("th").all_inner_texts() == ["id", "name"]
        assert cells(page) == [["1", "Ada"], ["2", "NULL"]]
        assert page.locator("tr.ms-new").count() == 0

        db.execute("UPDATE t SET name = ? WHERE id = 2", [hostile])
        wait_until(lambda: table.rows[1][2] == hostile, "the change is there")
        page.evaluate("changed => window.model.update(changed)", state(table))
        assert cells(page) == [["1", "Ada"], ["2", hostile]]
        assert page.locator("tr.ms-new").all_inner_texts() == [f"2\t{hostile}"]
        assert page.locator("tbody img").count() == 0
        assert page.title() == "notebook"
        table.stop()


@pytest.mark.slow
def test_the_status_the_button_and_the_end(page):
    status = {"state": "live", "error": "", "total": 1234, "lost": 0, "rate": 56.5}
    status |= {"lag_rows": 0, "lag_ms": 0.0}
    columns = [{"name": "n", "type": "BIGINT", "number": True}]
    first = {"sql": "SELECT n FROM s", "columns": columns, "rows": [[1, "7"]], "status": status}
    page.evaluate("first => window.start(first)", first)
    facts = page.locator(".ms-facts")
    assert facts.inner_text() == "1 of 1,234 rows · 56.5 rows/s · up to date"
    update = "status => window.model.update({status})"
    page.evaluate(update, status | {"lag_ms": 12.5, "lost": 3})
    assert facts.inner_text().endswith("12.5 ms behind · 3 changes not delivered")
    page.evaluate(update, status | {"lag_rows": 99})
    assert facts.inner_text().endswith("99 rows behind")

    page.get_by_role("button", name="Stop").click()
    assert page.evaluate("window.sent") == [{"type": "stop"}]
    page.evaluate(update, status | {"state": "failed", "error": "no more\n  hint: <b>"})
    assert page.locator(".ms-error").inner_text() == "no more\n  hint: <b>"
    assert not page.get_by_role("button").is_visible()
    page.evaluate("window.stop()")
    assert page.evaluate("Object.values(window.model.handlers).flat().length") == 0
