"""The console, in a real Chromium."""

from __future__ import annotations

import re
import signal
import threading
from contextlib import contextmanager

import httpx
import pytest
from playwright.sync_api import expect

HOSTILE = "<img src=x onerror=\"window.pwned=1;alert('pwned')\"><script>window.pwned=1</script>"


def run(page, sql):
    """Type a statement and run it, with the keyboard."""
    page.get_by_role("textbox", name="SQL").fill(sql)
    page.keyboard.press("Control+Enter")


def follow(page, sql):
    page.get_by_role("textbox", name="SQL").fill(sql)
    page.keyboard.press("Control+Shift+Enter")
    card = page.locator(".live").first
    expect(card.locator(".pill")).to_have_text("live")
    return card


def relation(page, name):
    return page.locator(f'[data-relation="{name}"]')


def column(card, place):
    return card.locator(f"tbody tr:not([data-op=delete]) td:nth-child({place + 1})")


@contextmanager
def pushing(db, name):
    """Push numbers, on and on."""
    done = threading.Event()

    def push():
        while not done.wait(0.01):
            db.insert(name, [(n,) for n in range(100)])

    thread = threading.Thread(target=push)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_from_an_empty_database_to_a_live_view(served, browse):
    page = browse(served.url)
    expect(page.get_by_role("status")).to_have_text("connected")
    expect(page.get_by_text("Nothing here yet")).to_be_visible()
    page.get_by_role("button", name="Load an example").click()
    page.get_by_role("button", name="Run").click()
    card = page.locator(".live")
    expect(card.locator("tbody tr")).to_have_text(
        [re.compile("MSFT20100"), re.compile("AAPL18750")]
    )
    expect(page.get_by_text("Nothing here yet")).to_be_hidden()
    view = relation(page, "large")
    expect(view.locator(".size")).to_have_text("2 rows")
    expect(view.locator(".pill")).to_have_text("live")
    expect(relation(page, "trades").locator(".size")).to_have_text("3 in")
    served.db.insert("trades", [("NVDA", 900.0, 60), ("F", 11.0, 1)])
    expect(card.locator("tr[data-op=insert]").first).to_have_text("+NVDA54000")
    expect(view.locator(".size")).to_have_text("3 rows")  # the count is live, too


def test_changes_of_a_table_flash_as_what_they_are(served, browse):
    served.db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR, n BIGINT)")
    served.db.execute("INSERT INTO t VALUES (1, 'a', 10), (2, 'b', 20)")
    page = browse(served.url)
    card = follow(page, "LIVE SELECT * FROM t;")
    expect(card.locator("tbody tr")).to_have_count(2)
    assert card.locator("tr[data-op]").count() == 0  # rows of the snapshot are no changes
    served.db.execute("INSERT INTO t VALUES (3, 'c', 9007199254740993)")
    inserted = card.locator("tr[data-op=insert]")
    expect(inserted).to_have_text("+3c9007199254740993")  # exact beyond 2^53
    assert inserted.evaluate("row => getComputedStyle(row).animationName").startswith("insert")
    served.db.execute("UPDATE t SET n = 21 WHERE id = 2")
    updated = card.locator("tr[data-op=update]")
    expect(updated).to_have_text("~2b21")
    expect(updated.locator("[data-changed]")).to_have_text("21")  # the value that is another one
    page.evaluate(
        "window.left = []; new MutationObserver(() =>"
        "document.querySelectorAll('tr[data-op=delete]').forEach(e => left.push(e.textContent)))"
        ".observe(document.querySelector('.live tbody'), {attributes: true, subtree: true})"
    )
    served.db.execute("DELETE FROM t WHERE id = 1")
    page.wait_for_function("() => left.length > 0")
    assert page.evaluate("left[0]") == "\N{MINUS SIGN}1a10"
    expect(card.locator("tbody tr")).to_have_count(2)
    expect(card.locator(".summary")).to_contain_text("2 rows")
    card.get_by_role("button", name="Pause").click()
    expect(card.locator(".pill")).to_have_text("paused")
    served.db.execute("INSERT INTO t VALUES (4, 'd', 40)")
    card.get_by_role("button", name="Resume").click()
    expect(column(card, 1)).to_have_text(["2", "3", "4"])
    card.get_by_role("button", name="Stop").click()
    expect(page.locator(".live")).to_have_count(0)


@pytest.mark.crash
def test_a_connection_that_is_cut_heals_with_nothing_lost_or_doubled(process, browse):
    process.sql("CREATE SOURCE s (n BIGINT) WITH (wal_mode = 'sync')")
    page = browse(process.url)
    card = follow(page, "SELECT n FROM s")
    sent = 0
    for number in (signal.SIGKILL, signal.SIGTERM):
        for _ in range(5):
            process.push("s", {"n": sent})
            sent += 1
        expect(column(card, 1)).to_have_text([str(n) for n in reversed(range(sent))])
        process.kill(number)
        expect(page.get_by_role("status")).to_have_text("reconnecting …")
        expect(card.locator(".pill")).to_have_text("reconnecting …")
        process.start()
        process.push("s", {"n": sent})  # perhaps before the page is back
        sent += 1
        expect(page.get_by_role("status")).to_have_text("connected")
        expect(card.locator(".pill")).to_have_text("live")
    expect(column(card, 1)).to_have_text([str(n) for n in reversed(range(sent))])
    expect(card.locator(".summary")).to_contain_text(f"{sent} rows")


def test_with_the_keyboard_only(served, browse):
    served.db.execute("CREATE SOURCE s (n BIGINT)")
    served.db.execute("CREATE MATERIALIZED VIEW v AS SELECT n FROM s WHERE n > 0")
    page = browse(served.url)
    expect(relation(page, "v")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the SQL editor")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.type("SELECT * FROM s")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_label("Result", exact=True)).to_contain_text("No rows")
    page.keyboard.press("Tab")  # the editor does not keep the Tab key to itself
    expect(page.get_by_role("button", name="Run")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Follow live")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".live .pill")).to_have_text("live")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Alt+ArrowUp")
    expect(page.get_by_role("textbox", name="SQL")).to_have_value("SELECT * FROM s")
    page.keyboard.press("Shift+Tab")
    expect(page.get_by_role("tab", name="SQL")).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Topology")).to_be_focused()
    node = page.get_by_role("button", name="view v")
    expect(node).to_be_visible()
    node.focus()
    page.keyboard.press("Enter")
    expect(relation(page, "v").locator("summary")).to_be_focused()
    expect(relation(page, "v").locator("dl")).to_be_visible()
    unlabelled = "button, input, textarea, [role=region], [role=button]"
    names = page.locator(unlabelled).evaluate_all(
        "all => all.map(each => each.getAttribute('aria-label') || each.textContent.trim()"
        " || each.labels?.length)"
    )
    assert all(names)


def test_on_a_phone_nothing_is_wider_than_the_screen(served, browse):
    wide = ", ".join(f"a_rather_long_name_{n} VARCHAR" for n in range(12))
    served.db.execute(
        f"CREATE SOURCE a_source_with_a_name_that_is_longer_than_a_phone_is_wide ({wide})"
    )
    served.db.insert(
        "a_source_with_a_name_that_is_longer_than_a_phone_is_wide", [("x" * 300,) * 12]
    )
    page = browse(
        served.url, viewport={"width": 375, "height": 812}, has_touch=True, is_mobile=True
    )
    name = "a_source_with_a_name_that_is_longer_than_a_phone_is_wide"
    run(page, f"SELECT * FROM {name}")
    expect(page.locator(".result tbody tr")).to_have_count(1)
    follow(page, f"SELECT * FROM {name}")
    run(page, f"SELECT nope_{'x' * 80} FROM {name}")
    expect(page.locator(".error")).to_be_visible()
    relation(page, name).locator("summary").click()

    def width():
        return page.evaluate("document.scrollingElement.scrollWidth")

    assert width() == 375
    page.get_by_role("tab", name="Topology").click()
    expect(page.locator(".node").first).to_be_visible()
    assert width() == 375


def test_a_key_is_asked_for_and_stays_in_the_tab(serve, browse):
    with serve(auth=True) as served:
        served.db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        key = served.keys.create("reader", role="read")
        asked = []
        page = browse(served.url)
        page.on("request", lambda request: asked.append(request.url))
        dialog = page.get_by_role("dialog")
        expect(dialog).to_be_visible()
        dialog.get_by_label("API key").fill("msk_wrong")
        page.keyboard.press("Enter")
        expect(dialog.get_by_role("alert")).to_have_text("This key was not accepted.")
        dialog.get_by_label("API key").fill(key)
        page.keyboard.press("Enter")
        expect(page.get_by_role("status")).to_have_text("connected")
        expect(dialog).to_be_hidden()
        expect(relation(page, "t")).to_be_visible()
        card = follow(page, "SELECT * FROM t")
        served.db.execute("INSERT INTO t VALUES (7)")
        expect(column(card, 1)).to_have_text(["7"])
        run(page, "DROP TABLE t")
        expect(page.locator(".error")).to_contain_text("role 'read' cannot run DROP")
        page.reload()
        expect(page.get_by_role("status")).to_have_text("connected")
        assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
        assert not [url for url in asked if key in url or "msk_" in url]
        served.keys.revoke("reader")
        expect(dialog).to_be_visible()  # the connection ends within seconds


def test_what_is_in_the_database_is_text(served, browse):
    served.db.execute(
        f'CREATE TABLE t (id BIGINT PRIMARY KEY, "{HOSTILE.replace(chr(34), chr(34) * 2)}" VARCHAR)'
    )
    served.db.execute("INSERT INTO t VALUES (1, ?)", [HOSTILE])
    page = browse(served.url)
    run(page, "SELECT * FROM t")
    expect(page.locator(".result tbody td").last).to_have_text(HOSTILE)
    expect(page.locator(".result th").last).to_contain_text(HOSTILE)
    card = follow(page, "SELECT * FROM t")
    served.db.execute("UPDATE t SET id = 2")
    served.db.execute("INSERT INTO t VALUES (3, ?)", ["<svg onload=alert(1)>"])
    expect(card.locator("tr[data-op=insert] td").last).to_have_text("<svg onload=alert(1)>")
    relation(page, "t").locator("summary").click()
    expect(relation(page, "t").locator("dt").last).to_have_text(HOSTILE)
    run(page, f"SELECT '{HOSTILE.replace(chr(39), chr(39) * 2)}' FROM nowhere_{HOSTILE}")
    expect(page.locator(".error")).to_be_visible()
    page.get_by_role("tab", name="Topology").click()
    expect(page.locator(".node").first).to_be_visible()
    assert page.evaluate("window.pwned") is None
    assert page.locator("img[src=x], body script, svg[onload]").count() == 0


def test_the_page_may_do_nothing_but_call_its_server(served):
    cross = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    answer = httpx.get(served.url, headers=cross)
    assert answer.status_code == 200  # a link on another site leads here
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    for url in re.findall(r'(?:src|href)="([^"#]+)"', answer.text):
        assert url.startswith("/console/")
        assert httpx.get(served.url + url).status_code == 200
    module = httpx.get(f"{served.url}/v1/millstream.js")
    assert module.headers["content-type"].startswith("text/javascript")
    assert httpx.get(f"{served.url}/v1/catalog", headers=cross).status_code == 403
    assert httpx.get(f"{served.url}/console/nothing.js").status_code == 404


def test_the_topology_is_drawn_with_rows_per_second(served, browse):
    served.db.execute("CREATE SOURCE s (n BIGINT)")
    served.db.execute("CREATE MATERIALIZED VIEW v AS SELECT n FROM s WHERE n > 0")
    page = browse(served.url)
    follow(page, "SELECT * FROM v")
    page.get_by_role("tab", name="Topology").click()
    expect(page.locator(".node[data-kind=source]")).to_be_visible()
    expect(page.locator(".node[data-kind=view]")).to_be_visible()
    expect(page.locator(".node[data-kind=subscription]")).to_have_count(1)
    expect(page.locator(".edge")).to_have_count(2)
    left = page.locator(".node[data-kind=source]").bounding_box()
    right = page.locator(".node[data-kind=view]").bounding_box()
    assert left["x"] + left["width"] < right["x"]
    with pushing(served.db, "s"):
        expect(page.locator(".label:not(.none)")).to_have_count(2)
        expect(page.locator(".label").first).to_have_text(re.compile("[0-9]+ rows/s"))
        expect(page.locator(".chart .value").first).to_have_text(re.compile("[1-9].*/s"))


def test_an_error_says_where_it_is_and_what_to_do(served, browse):
    page = browse(served.url)
    run(page, "\n  SELEC 1")
    error = page.locator(".error")
    expect(error.locator(".pill")).to_have_text("SQL_SYNTAX")
    expect(error).to_contain_text("line 2, column 3")
    expect(error.locator("mark")).to_have_text("SELEC")
    expect(error.locator(".hint")).to_contain_text("Did you mean SELECT?")
    expect(page.locator("#sql-colours .marked")).to_have_text("SELEC")
    follow_text = "SELECT nope FROM nowhere"
    page.get_by_role("textbox", name="SQL").fill(follow_text)
    page.keyboard.press("Control+Shift+Enter")
    expect(error).to_contain_text("nowhere")
    expect(page.locator(".live")).to_have_count(0)
    run(page, "CREATE TABLE t (id BIGINT PRIMARY KEY)")
    expect(error).to_have_count(0)
    expect(page.locator("#sql-colours .marked")).to_have_count(0)


def test_a_view_that_has_failed_says_so_in_plain_words(served, browse):
    served.db.execute("CREATE SOURCE s (n BIGINT)")
    served.db.execute("CREATE MATERIALIZED VIEW v AS SELECT 10 / n AS share FROM s")
    page = browse(served.url)
    served.db.insert("s", [(5,), (0,)])
    expect(page.get_by_role("alert").first).to_have_text(
        "v: This view has stopped. Division by zero, for the row n=0 of s (LSN 6)."
    )
    expect(relation(page, "v").locator(".pill")).to_have_text("failed")
    expect(relation(page, "v").locator(".trouble")).to_be_visible()
    served.db.execute("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT n FROM s WHERE n <> 0")
    expect(relation(page, "v").locator(".trouble")).to_be_hidden()
    expect(page.locator("#trouble")).to_be_hidden()


def test_thousands_of_changes_do_not_stop_the_page(served, browse):
    served.db.execute("CREATE SOURCE s (n BIGINT, name VARCHAR)")
    page = browse(served.url)
    card = follow(page, "SELECT * FROM s")
    page.evaluate(
        "window.most = 0; new MutationObserver(() => most = Math.max(most,"
        "document.querySelectorAll('.live tr').length))"
        ".observe(document.querySelector('.live tbody'), {childList: true})"
    )
    for start in range(0, 20_000, 500):
        served.db.insert("s", [(n, f"row {n}") for n in range(start, start + 500)])
    expect(card).to_have_attribute("data-total", "20000")
    expect(card.locator(".summary")).to_contain_text("20,000 rows")
    expect(card.locator("tbody tr")).to_have_count(200)
    expect(card.locator("tbody tr").first).to_contain_text("row 19999")
    expect(card.locator(".note")).to_contain_text("200 most recently changed of 20,000 rows")
    run(page, "SELECT n FROM s")
    expect(page.locator(".result:not(.live) .note")).to_contain_text("first 1,000 of 20,000 rows")
    assert page.evaluate("most") <= 201  # with the head; not one was built that is not shown


def test_which_statements_are_followed(served, browse):
    page = browse(served.url)
    found = page.evaluate(
        """async () => {
          const { followed, split } = await import("/console/editor.js");
          return [
            "LIVE SELECT 1", "live\\nselect 1", "SUBSCRIBE TO t", "SUBSCRIBE SELECT 1 -- why",
            "/* ; */ LIVE SELECT ';'", "SELECT 1", "LIVE t", "SELECT 'LIVE SELECT 1'",
          ].map(followed).concat(Object.values(split("A ';'; B; ; -- C;")));
        }"""
    )
    assert found == [
        *("     SELECT 1", "    \nselect 1", "SELECT * FROM t", "          SELECT 1"),
        *("             SELECT ';'", None, None, None, "A ';';", "       B"),
    ]


@pytest.mark.parametrize("is_keyed", [True, False])
def test_live_rows_are_what_the_changes_add_up_to(served, browse, is_keyed):
    """Random changes, drawn now and then: what is shown is right, and all of it if it fits."""
    page = browse(served.url)
    wrong = page.evaluate(
        """async (isKeyed) => {
          const { LiveRows } = await import("/console/live_rows.js");
          let seed = 7;
          const dice = (n) => (seed = (seed * 48271) % 2147483647) % n;
          for (let round = 0; round < 300; round++) {
            const rows = new LiveRows({ cap: 5, kept: 50 });
            if (isKeyed) rows.ready([{ name: "k" }, { name: "v" }], ["k"]);
            const [truth, drawn] = [[], new Map()];
            for (let step = 0; step < 60; step++) {
              const changes = [];
              for (let n = dice(12); n > 0; n--) {
                const at = dice(truth.length + 1);
                const k = dice(9);
                if (at === truth.length && !(isKeyed && truth.some((row) => row[0] === k))) {
                  changes.push({ op: "insert", row: [k, dice(4)], before: null });
                  truth.push(changes.at(-1).row);
                } else if (at < truth.length && dice(2)) {
                  const [before] = truth.splice(at, 1);
                  changes.push({ op: "delete", row: before, before });
                } else if (at < truth.length) {
                  const before = truth[at];
                  truth[at] = [before[0], dice(4)];
                  changes.push({ op: "update", row: truth[at], before });
                }
              }
              rows.apply({ kind: "changes", changes, gap: null });
              if (dice(2)) continue;
              const { isCleared, evicted, changes: shown } = rows.take();
              if (isCleared) drawn.clear();
              for (const id of evicted) drawn.delete(id);
              for (const { id, op, row } of shown)
                op === "delete" ? drawn.delete(id) : drawn.set(id, row);
              const left = truth.map(String);
              for (const row of drawn.values()) {
                const place = left.indexOf(String(row));
                if (place < 0) return `${row} is shown, and not there: ${truth.join(" ")}`;
                left.splice(place, 1);
              }
              if (rows.total !== truth.length) return `${rows.total} for ${truth.length}`;
              const most = Math.min(5, truth.length);
              if (drawn.size !== most) return `${drawn.size} of ${truth.length}`;
            }
          }
        }""",
        is_keyed,
    )
    assert wrong is None


def test_light_and_dark(served, browse):
    light = browse(served.url, color_scheme="light")
    dark = browse(served.url, color_scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    lights, darks = light.evaluate(background), dark.evaluate(background)
    assert lights != darks
    dark.get_by_role("button", name="Switch between light and dark").click()
    assert dark.evaluate(background) == lights
    dark.reload()
    assert dark.evaluate(background) == lights  # the choice stays
