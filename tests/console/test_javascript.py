"""``/v1/millstream.js``, as other pages use it."""

from __future__ import annotations

import signal

import pytest
from playwright.sync_api import Error

NO_SOCKETS = """
window.WebSocket = class { constructor() { setTimeout(() => this.onclose?.(), 0) } close() {} };
WebSocket.OPEN = 1;
"""
CONNECT = """
const { connect } = await import("/v1/millstream.js");
const db = await connect(location.origin);
"""
BOTH = pytest.mark.parametrize("init", ["", NO_SOCKETS], ids=["WebSocket", "SSE"])


def call(page, code):
    return page.evaluate(f"async () => {{ {CONNECT} try {{ {code} }} finally {{ db.close() }} }}")


def test_statements_and_rows(served, browse):
    page = browse(served.url)
    assert call(
        page,
        """
        await db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR)");
        const large = { id: 2n ** 60n + 1n, name: null };
        const { rows } = await db.push("t", [{ id: 1, name: "a" }, large]);
        const found = await db.query("SELECT * FROM t WHERE name IS NULL OR id = ?", [1]);
        return [rows, found.map(({ id, name }) => [String(id), name])];
        """,
    ) == [2, [["1", "a"], [str(2**60 + 1), None]]]


def test_an_error_has_what_the_server_says(served, browse):
    page = browse(served.url)
    assert call(
        page,
        """
        try { await db.execute("SELEC 1") }
        catch (error) {
          return ["name", "code", "message", "hint", "line", "column"].map((each) => error[each]);
        }
        """,
    ) == [
        "MillstreamError",
        "SQL_SYNTAX",
        "expected a statement, got 'SELEC'",
        "Did you mean SELECT?",
        1,
        1,
    ]
    with pytest.raises(Error, match="nowhere"):
        call(page, "for await (const batch of db.subscribe('SELECT * FROM nowhere')) return 1")


@BOTH
def test_a_subscription_begins_with_a_snapshot_and_resumes_by_token(served, browse, init):
    served.db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)")
    served.db.execute("INSERT INTO t VALUES (1, 10)")
    page = browse(served.url, init=init)
    found = call(
        page,
        """
        const said = [];
        let token;
        for await (const { kind, changes, token: last } of db.subscribe("SELECT * FROM t")) {
          for (const { op, row, before } of changes) said.push([kind, op, row, before]);
          token = last;
          if (said.length === 1) await db.execute("UPDATE t SET n = 11 WHERE id = 1");
          if (said.length === 2) break;
        }
        await db.push("t", { id: 2, n: 20 });
        const options = { params: { n: 0 }, start: token };
        const next = db.subscribe("SELECT * FROM t WHERE n > :n", options);
        for await (const { kind, changes } of next) {
          for (const { op, row, before } of changes) said.push([kind, op, row, before]);
          return said;
        }
        """,
    )
    assert found == [
        ["snapshot", "insert", [1, 10], None],
        ["changes", "update", [1, 11], [1, 10]],
        ["changes", "insert", [2, 20], None],
    ]


@BOTH
def test_a_reader_that_waits_holds_back_the_server_and_not_the_page(served, browse, init):
    served.db.execute("CREATE SOURCE s (n BIGINT)")
    served.db.insert("s", [(n,) for n in range(30_000)])
    page = browse(served.url, init=init)
    assert call(
        page,
        """
        const numbers = [];
        const all = db.subscribe("SELECT n FROM s", { start: "earliest", bufferRows: 1000 });
        for await (const { changes } of all) {
          for (const { row } of changes) numbers.push(row[0]);
          await new Promise((done) => setTimeout(done, 1));
          if (numbers.length >= 30_000) break;
        }
        return [numbers.length, numbers.every((n, i) => n === i)];
        """,
    ) == [30_000, True]


@pytest.mark.crash
@BOTH
def test_a_killed_server_costs_nothing(process, browse, init):
    process.sql("CREATE SOURCE s (n BIGINT) WITH (wal_mode = 'sync')")
    page = browse(process.url, init=init)
    page.evaluate(
        f"""async () => {{ {CONNECT}
        window.db = db; window.numbers = []; window.states = [];
        db.addEventListener("state", () => states.push(db.state));
        const onBatch = ({{ kind, changes }}) => {{
          if (kind === "reset") states.push(kind); // rows of a sync source are safe when seen
          numbers.push(...changes.map(({{ row }}) => row[0]));
        }};
        const got = db.subscribe("SELECT n FROM s", {{ onBatch }});
        await got.opened;
        const until = async (call) => {{ for (;;) try {{ return await call() }} catch {{ }} }};
        const found = (n) => db.query(`SELECT n FROM s WHERE n = ${{n}}`);
        const isThere = async (n) => (await found(n)).length > 0;
        window.pushing = (async () => {{ for (let n = 0; n < 60; n++) {{
          let added = false; // one that was given up may have been added: looked up, as it says
          while (!added)
            added = await db.push("s", {{ n }}).then(() => true, () => until(() => isThere(n)));
        }} }})();
        }}"""
    )
    for count, number in ((15, signal.SIGKILL), (40, signal.SIGTERM)):
        page.wait_for_function(f"() => numbers.length >= {count}")
        process.kill(number)
        process.start()
    page.evaluate("pushing")
    page.wait_for_function("() => numbers.at(-1) === 59")
    assert page.evaluate("numbers") == list(range(60))
    assert "away" in page.evaluate("states")
    assert "reset" not in page.evaluate("states")
    page.evaluate("db.close()")


def test_messages(served, browse):
    page = browse(served.url)
    assert (
        call(
            page,
            """
        const heard = new Promise((done) => db.listen("news", (payload) => done(payload)));
        while (db.state !== "open") await new Promise((done) => setTimeout(done, 5));
        const again = setInterval(() => db.notify("news", "hello").catch(() => {}), 20);
        try { return await heard } finally { clearInterval(again) }
        """,
        )
        == "hello"
    )


@pytest.mark.crash
def test_a_durable_subscription_goes_on_after_what_was_acknowledged(process, browse):
    process.sql("CREATE SOURCE s (n BIGINT) WITH (wal_mode = 'sync')")
    page = browse(process.url)
    page.evaluate(
        f"""async () => {{ {CONNECT}
        window.db = db; window.numbers = [];
        const onBatch = ({{ changes }}) => numbers.push(...changes.map(({{ row }}) => row[0]));
        window.follow = async () => {{
          window.sub = db.subscribe("SELECT n FROM s", {{ name: "d", onBatch }});
          await sub.opened;
        }};
        await follow();
        await db.push("s", {{ n: 1 }});
        }}"""
    )
    page.wait_for_function("() => numbers.length === 1")
    page.evaluate("sub.ack()")
    page.evaluate("db.push('s', { n: 2 })")
    page.wait_for_function("() => numbers.length === 2")
    process.kill(signal.SIGKILL)
    process.start()
    page.evaluate("db.push('s', { n: 3 })")
    page.wait_for_function("() => numbers.at(-1) === 3")
    assert page.evaluate("numbers") == [1, 2, 3]  # 2 is not given twice, though it comes again
    page.evaluate("async () => { sub.close(); numbers.length = 0; await follow() }")
    page.wait_for_function("() => numbers.length === 2")
    assert page.evaluate("numbers") == [2, 3]
    with pytest.raises(Error, match="INVALID_OPTION"):
        page.evaluate(
            """async () => {
            const other = db.subscribe("SELECT n FROM s");
            await other.opened;
            await other.ack().catch((error) => { throw new Error(error.code) });
            }"""
        )
    page.evaluate("db.close()")
