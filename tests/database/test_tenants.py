"""Tenants: each sees exactly its own rows, by every way out, and writes only its own."""

from __future__ import annotations

import contextlib
import json
import traceback
import uuid

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import millstream as ms
from millstream import errors

pytestmark = pytest.mark.slow

TENANTS = ["a", "b", "", "A", "a'b", "ä😀", "a\x00b", "%"]
SOURCE = "CREATE SOURCE s (who VARCHAR NOT NULL, n BIGINT) WITH (tenant = 'who')"
TABLE = (
    "CREATE TABLE t (id BIGINT, who VARCHAR NOT NULL, n BIGINT, PRIMARY KEY (who, id)) "
    "WITH (tenant = 'who')"
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with ms.open(tmp_path_factory.mktemp("tenants") / "db") as db:
        yield db


def all_of(subscription, make=lambda batch: batch.rows):
    """All that it gives of what is committed by now."""
    rows = []
    while True:
        try:
            rows += make(subscription.recv(0.01))
        except TimeoutError:
            if not subscription.metrics.lag_rows:
                return rows


pushes = st.lists(
    st.tuples(
        st.sampled_from(["row", "batch", "arrow"]),
        st.lists(st.tuples(st.sampled_from(TENANTS), st.integers(0, 5)), min_size=1, max_size=6),
    ),
    max_size=8,
)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(pushes, st.sampled_from(TENANTS), st.integers(0, 5))
def test_a_tenant_sees_exactly_its_rows_of_a_source(shared, data, tenant, least):
    db, name = shared, f"s{uuid.uuid4().hex}"
    db.execute(SOURCE.replace("SOURCE s", f"SOURCE {name}"))
    sql = f"SELECT who, n FROM {name} WHERE n >= {least}"
    live, everybody = db.subscribe(sql, tenant=tenant), db.subscribe(sql)
    one, bus = db.changes(name, tenant, include="after"), db.changes(tenant=tenant, include="after")
    called, inline = [], []
    callback = db.subscribe_callback(sql, lambda b: called.extend(b.rows), tenant=tenant)
    within = db.subscribe_callback(sql, lambda b: inline.extend(b.rows), tenant=tenant, inline=True)
    source = db.source(name)
    for way, rows in data:
        if way == "row":
            for row in rows:
                source.push(row)
        elif way == "batch":
            source.push_batch(rows)
        else:
            who, n = zip(*rows, strict=True)
            db.insert(name, {"who": who, "n": n})
    db.flush()
    pushed = [row for _, rows in data for row in rows]
    mine = [row for row in pushed if row[0] == tenant]
    wanted = [row for row in mine if row[1] >= least]
    assert all_of(live) == wanted
    assert all_of(everybody) == [row for row in pushed if row[1] >= least]
    for start in ("earliest", "snapshot", 0):
        with db.subscribe(sql, tenant=tenant, start=start) as replayed:
            assert all_of(replayed) == wanted
    assert db.query(sql, tenant=tenant).fetchall() == wanted
    shown = db.query(f"SHOW CHANGES FOR {name}", tenant=tenant).to_pylist()
    assert [tuple(json.loads(c["after"]).values()) for c in shown] == mine
    everything = db.query("SHOW CHANGES", tenant=tenant).to_pylist()
    assert [c for c in everything if c["collection"] == name] == shown
    assert all(json.loads(c["after"])["who"] == tenant for c in everything)
    for events in (one, bus):
        got = [events.recv(60) for _ in mine]
        assert [(e.after["who"], e.after["n"]) for e in got] == mine
        assert {e.tenant for e in got} <= {tenant}
        assert events.try_recv() is None
    assert inline == wanted
    while len(called) < len(wanted):
        db.flush()
    assert called == wanted
    callback.join(0)
    for each in (live, everybody, one, bus, callback, within):
        each.cancel()
    db.execute(f"DROP SOURCE {name}")


changes = st.lists(
    st.tuples(
        st.sampled_from(["insert", "update", "move", "delete"]),
        st.integers(0, 6),
        st.sampled_from(TENANTS[:4]),
        st.integers(0, 5),
    ),
    max_size=15,
)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(changes, st.sampled_from(TENANTS[:4]))
def test_a_tenants_copy_of_a_table_is_exact(shared, data, tenant):
    """Also when rows move from one tenant to another: they appear, and disappear."""
    db, name = shared, f"t{uuid.uuid4().hex}"
    db.execute(TABLE.replace("TABLE t", f"TABLE {name}"))
    sql = f"SELECT * FROM {name}"
    copies = {}
    early = db.subscribe(sql, tenant=tenant)
    conflated = db.subscribe(sql, tenant=tenant, backpressure="conflate")
    for kind, key, who, n in data:
        if kind == "insert":
            db.insert(name, [(key, who, n)], replace=True)
        elif kind == "update":
            db.execute(f"UPDATE {name} SET n = {n} WHERE id >= {key}")
        elif kind == "move":
            with contextlib.suppress(errors.DuplicateKeyError):  # two of them would be one
                db.execute(f"UPDATE {name} SET who = '{who}' WHERE id = {key}")
        else:
            db.execute(f"DELETE FROM {name} WHERE id = {key}")
    late = db.subscribe(sql, tenant=tenant)
    replayed = db.subscribe(sql, tenant=tenant, start="earliest")
    expected = sorted(row for row in db.query(sql) if row[1] == tenant)
    assert sorted(db.query(sql, tenant=tenant)) == expected
    for subscription in (early, conflated, late, replayed):
        copy = copies.setdefault(subscription, {})

        def weighted(batch):
            return list(zip(batch.rows, batch.weights, strict=True))

        for row, weight in all_of(subscription, weighted):
            assert row[1] == tenant
            copy[row] = copy.get(row, 0) + weight
        assert sorted(row for row, weight in copy.items() if weight) == expected
        assert set(copy.values()) <= {0, 1}
        subscription.cancel()
    for change in db.query(f"SHOW CHANGES FOR {name}", tenant=tenant).to_pylist():
        for image in (change["before"], change["after"]):
            assert image is None or json.loads(image)["who"] == tenant
    db.execute(f"DROP TABLE {name}")


@pytest.fixture
def two(db):
    db.execute(f"{SOURCE}; {TABLE}; CREATE SOURCE open (n BIGINT)")
    db.insert("t", [(1, "a", 1), (2, "b", 2)])
    return db


def test_what_a_tenant_may_not_write(two):
    calls = [
        lambda: two.insert("s", [("a", 1), ("b", 1)], tenant="a"),
        lambda: two.insert("t", [(3, "b", 1)], tenant="a"),
        lambda: two.insert_json("s", '{"who": "b", "n": 1}', tenant="a"),
        lambda: two.insert_csv("s", "who,n\nb,1\n", tenant="a"),
        lambda: two.execute("INSERT INTO s VALUES ('b', 1)", tenant="a"),
        lambda: two.execute("INSERT INTO t VALUES (3, 'b', 1)", tenant="a"),
        lambda: two.execute("UPDATE t SET who = 'b'", tenant="a"),
        lambda: two.execute("UPDATE t SET who = 'b' WHERE id = 1", tenant="a"),
    ]
    for call in calls:
        with pytest.raises(errors.TenantError) as caught:
            call()
        assert caught.value.code == "TENANT"
        assert caught.value.hint
    assert not two.query("SELECT * FROM s")
    assert sorted(two.query("SELECT * FROM t")) == [(1, "a", 1), (2, "b", 2)]


@pytest.mark.parametrize(
    ("write", "own"),
    [
        ("INSERT INTO t VALUES (2, 'a', 66)", [(1, "a", 1), (2, "a", 66)]),
        ("INSERT OR REPLACE INTO t VALUES (2, 'a', 66)", [(1, "a", 1), (2, "a", 66)]),
        ("INSERT OR IGNORE INTO t VALUES (2, 'a', 66)", [(1, "a", 1), (2, "a", 66)]),
        ("UPDATE t SET id = 2", [(2, "a", 1)]),
    ],
)
def test_a_tenant_neither_takes_nor_learns_the_key_of_another(two, write, own):
    """Whatever keys another one has, a tenant's statement does the same."""
    two.execute(write, tenant="a")
    assert sorted(two.query("SELECT * FROM t", tenant="a")) == own
    assert two.query("SELECT * FROM t", tenant="b").fetchall() == [(2, "b", 2)]
    two.insert("t", [(2, "a", 67)], replace=True, tenant="a")
    assert two.query("SELECT * FROM t", tenant="b").fetchall() == [(2, "b", 2)]


def test_a_tenant_learns_of_its_own_key_that_is_taken(two):
    with pytest.raises(errors.DuplicateKeyError) as caught:
        two.insert("t", [(1, "a", 5)], tenant="a")
    assert caught.value.key == ("a", 1)


def test_the_key_of_a_table_with_tenants_has_the_tenant(db):
    with pytest.raises(errors.SqlOptionError) as caught:
        db.execute(
            "CREATE TABLE t (id BIGINT, day DATE, who VARCHAR NOT NULL, PRIMARY KEY (id, day)) "
            "WITH (tenant = 'who')"
        )
    assert "write PRIMARY KEY (who, id, day)" in caught.value.hint
    assert caught.value.line == 1
    db.execute("CREATE TABLE t (who VARCHAR PRIMARY KEY, n BIGINT) WITH (tenant = 'who')")


def test_changes_touch_only_a_tenants_own(two):
    assert two.execute("UPDATE t SET n = 9", tenant="a").rowcount == 1
    assert two.execute("UPDATE t SET n = 8 WHERE id = 2", tenant="a").rowcount == 0
    assert two.execute("DELETE FROM t WHERE who = 'b'", tenant="a").rowcount == 0
    assert two.execute("UPDATE t SET n = CAST(10 / (n - 2) AS BIGINT)", tenant="a").rowcount == 1
    assert sorted(two.query("SELECT id, who FROM t")) == [(1, "a"), (2, "b")]
    assert two.execute("DELETE FROM t", tenant="a").rowcount == 1
    assert two.query("SELECT * FROM t").fetchall() == [(2, "b", 2)]
    two.execute("INSERT OR IGNORE INTO t VALUES (2, 'a', 1), (4, 'a', 1)", tenant="a")
    assert sorted(two.query("SELECT id, who FROM t")) == [(2, "a"), (2, "b"), (4, "a")]


def test_a_query_of_a_tenant_cannot_look_elsewhere(two):
    """Neither an OR nor an error on another's row gets around the tenant."""
    sql = "SELECT id FROM t WHERE who = 'b' OR 1 = 1"
    assert two.query(sql, tenant="a").fetchall() == [(1,)]
    assert two.subscribe(sql, tenant="a").recv(60).rows == [(1,)]
    fails_on_b = "SELECT 10 / (n - 2) AS x FROM t"
    assert len(two.query(fails_on_b, tenant="a")) == 1
    watching = two.subscribe(fails_on_b, tenant="a")
    assert len(watching.recv(60)) == 1
    two.execute("INSERT INTO t VALUES (5, 'b', 2); INSERT INTO t VALUES (6, 'a', 3)")
    assert len(watching.recv(60)) == 1
    two.subscribe("LIVE SELECT * FROM t", tenant="a").cancel()


def test_refused_without_a_tenant_column(two):
    calls = [
        lambda: two.query("SELECT * FROM open", tenant="a"),
        lambda: two.query("EXPLAIN SELECT * FROM open", tenant="a"),
        lambda: two.subscribe("SELECT * FROM open", tenant="a"),
        lambda: two.subscribe_stream("SELECT * FROM open", tenant="a"),
        lambda: two.subscribe_callback("SELECT * FROM open", print, tenant="a"),
        lambda: two.subscribe_callback("SELECT * FROM open", print, tenant="a", inline=True),
        lambda: two.insert("open", [(1,)], tenant="a"),
        lambda: two.execute("INSERT INTO open VALUES (1)", tenant="a"),
        lambda: two.changes("open", "a"),
        lambda: two.query("SHOW CHANGES FOR open", tenant="a"),
        lambda: two.query("SELECT * FROM s", tenant=7),
    ]
    for call in calls:
        with pytest.raises(errors.TenantError):
            call()
    two.insert("open", [(1,)])
    assert two.metrics()["subscribers"] == 0
    with two.changes(tenant="a") as bus:
        two.insert("open", [(2,)])
        two.insert("s", [("a", 1)])
        event = bus.recv(60)
        assert (event.collection, event.tenant) == ("s", "a")


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE t",
        "CREATE SOURCE x (a BIGINT)",
        "ALTER TABLE t ADD COLUMN x BIGINT",
        "SHOW SUBSCRIPTIONS",
        "SHOW CREATE t",
        "LISTEN x",
        "UNLISTEN *",
        "SHOW CHANNELS",
    ],
)
def test_what_is_not_for_tenants(two, sql):
    with pytest.raises(errors.TenantError) as caught:
        two.execute(sql, tenant="a")
    assert caught.value.hint


def test_notifications(two):
    mine, other, all_of_them = (
        two.listen("c", tenant="a"),
        two.listen("c", tenant="b"),
        two.listen("c"),
    )
    two.notify("c", "for a", tenant="a")
    two.execute("NOTIFY c, 'for b'", tenant="b")
    two.notify("c", "for nobody")
    two.flush()
    assert [mine.recv(60).payload, mine.try_recv()] == ["for a", None]
    assert [other.recv(60).payload, other.try_recv()] == ["for b", None]
    assert [all_of_them.recv(60).payload for _ in range(3)] == ["for a", "for b", "for nobody"]


def test_each_tenant_has_durable_names_of_its_own(two):
    readers = {
        tenant: two.subscribe("SELECT * FROM s", name="mine", tenant=tenant)
        for tenant in ("a", "b", None)
    }
    two.insert("s", [("a", 1), ("b", 2)])
    for reader in readers.values():
        reader.ack(reader.recv(60))
    with pytest.raises(errors.SubscriptionExistsError, match="open already"):
        two.subscribe("SELECT * FROM s", name="mine", tenant="a")
    for reader in readers.values():
        reader.cancel()
    two.insert("s", [("a", 3), ("b", 4)])
    with two.subscribe("SELECT * FROM s", name="mine", tenant="b") as reader:
        assert reader.recv(60).rows == [("b", 4)]
    with pytest.raises(errors.SubscriptionExistsError, match="another query"):
        two.subscribe("SELECT n FROM s", name="mine", tenant="a")
    shown = two.query("SHOW SUBSCRIPTIONS").to_pylist()
    assert {(each["name"], each["tenant"]) for each in shown} == {
        ("mine", "a"),
        ("mine", "b"),
        ("mine", None),
    }


def test_durable_names_of_tenants_survive_a_restart(tmp_path):
    with ms.open(tmp_path) as db:
        db.execute("CREATE SOURCE s (org VARCHAR NOT NULL, n BIGINT) WITH (tenant = 'org')")
        for tenant in ("a", "b"):
            db.subscribe("SELECT n FROM s", name="mine", tenant=tenant).cancel()
        db.insert("s", [("a", 1), ("b", 2)])
        with db.subscribe("SELECT n FROM s", name="mine", tenant="a") as reader:
            reader.ack(reader.recv(60))
    with ms.open(tmp_path) as db:
        db.insert("s", [("a", 3)])
        for tenant, rows in (("a", [(3,)]), ("b", [(2,)])):
            with db.subscribe("SELECT n FROM s", name="mine", tenant=tenant) as reader:
                assert reader.recv(60).rows == rows


def test_a_tenant_drops_durable_subscriptions_of_its_own(two):
    for tenant in ("a", "b"):
        two.subscribe("SELECT * FROM s", name="mine", tenant=tenant).cancel()
    two.subscribe("SELECT * FROM s", name="other", tenant="b").cancel()
    with two.session(tenant="a") as a:
        with pytest.raises(errors.SubscriptionNotFoundError) as missing:
            a.execute("DROP SUBSCRIPTION other")
        assert missing.value.hint == "available: mine"
        with pytest.raises(errors.TenantError):
            a.execute("DROP SOURCE s")
    with pytest.raises(errors.InvalidOptionError, match="2 tenants"):
        two.execute("DROP SUBSCRIPTION mine")
    two.execute("DROP SUBSCRIPTION mine", tenant="a")
    left = [(each["name"], each["tenant"]) for each in two.query("SHOW SUBSCRIPTIONS").to_pylist()]
    assert left == [("mine", "b"), ("other", "b")]
    two.execute("DROP SUBSCRIPTION mine")  # only one tenant uses the name
    two.execute("DROP SUBSCRIPTION other", tenant="b")
    assert not two.query("SHOW SUBSCRIPTIONS").fetchall()


def test_a_token_of_another_tenant_opens_nothing(two):
    all_rows = two.subscribe("SELECT * FROM s")
    two.insert("s", [("b", 1), ("a", 1), ("b", 2), ("a", 2)])
    token = all_rows.recv(60).token
    two.insert("s", [("b", 3), ("a", 3)])
    with two.subscribe("SELECT * FROM s", tenant="a", start=token) as mine:
        assert mine.recv(60).rows == [("a", 3)]


ROWS = {
    "s": [("a", 1), ("b", 2), ("a", 3), ("b", 40), ("A", 500), ("", 6000)],
    "t": [(1, "a", 1), (2, "b", 2), (3, "a", 3), (4, "b", 3), (5, "A", 1)],
}
ANY_SELECT = [
    "SELECT COUNT(*) AS c, SUM(n) AS n, MIN(who) AS w FROM s",
    "SELECT who, SUM(n) AS n FROM s GROUP BY who ORDER BY who",
    "SELECT n FROM s ORDER BY n DESC LIMIT 2",
    "SELECT DISTINCT who FROM S",
    'SELECT x."n" FROM "s" AS x ORDER BY 1',
    "SELECT s.n, t.id FROM s JOIN t ON s.n = t.n ORDER BY 1, 2",
    "SELECT s.n, t.id FROM s LEFT JOIN t ON s.n = t.n ORDER BY 1, 2",
    "SELECT s.n, t.id FROM s RIGHT JOIN t ON s.n = t.n ORDER BY 1, 2",
    "SELECT s.n, t.id FROM s FULL JOIN t ON s.n = t.n ORDER BY 1, 2",
    "SELECT one.id, two.id AS other FROM t AS one, t AS two WHERE one.n = two.n ORDER BY 1, 2",
    "SELECT n FROM s WHERE n IN (SELECT n FROM t) ORDER BY n",
    "SELECT n FROM s WHERE n NOT IN (SELECT n FROM t WHERE n IS NOT NULL) ORDER BY n",
    "SELECT n FROM s WHERE EXISTS (SELECT 1 FROM t WHERE t.n = s.n) ORDER BY n",
    "SELECT n, (SELECT COUNT(*) FROM t WHERE t.n = s.n) AS c FROM s ORDER BY n",
    "SELECT (SELECT MAX(n) FROM s) AS m",
    "SELECT * FROM (SELECT * FROM (SELECT n FROM s) AS a) AS b ORDER BY n",
    "WITH s AS (SELECT id AS n FROM t) SELECT n FROM s ORDER BY n",
    "WITH c AS (SELECT n FROM s), d AS (SELECT n + 1 AS n FROM c) SELECT SUM(n) AS n FROM d",
    "SELECT n FROM s UNION SELECT n FROM t ORDER BY 1",
    "SELECT n FROM s UNION ALL SELECT id FROM t ORDER BY 1",
    "SELECT n FROM s EXCEPT SELECT n FROM t ORDER BY 1",
    "SELECT n FROM s INTERSECT SELECT n FROM t ORDER BY 1",
    "SELECT n, SUM(n) OVER (ORDER BY n) AS r FROM s ORDER BY n",
    "SELECT n FROM s SEMI JOIN t ON s.n = t.n ORDER BY n",
    "SELECT who FROM s WHERE who = 'b' OR 1 = 1 ORDER BY n",
    "SELECT SUM(10 / (n - 2)) AS x FROM s",  # fails for b, and for nobody else
    "SELECT who, n FROM v ORDER BY n",
    "SELECT s.n FROM s JOIN v ON s.n = v.n ORDER BY s.n",
]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    """A database with rows of everybody, and one with the rows of each tenant alone."""
    opened = {}
    for tenant in (None, "a", "b", "A", "", "nobody"):
        db = opened[tenant] = ms.open(tmp_path_factory.mktemp("world") / "db")
        db.execute(f"{SOURCE}; {TABLE}; CREATE SOURCE open (n BIGINT)")
        db.execute(
            "CREATE MATERIALIZED VIEW v WITH (tenant = 'who') AS SELECT who, n FROM s WHERE n > 1"
        )
        for name, rows in ROWS.items():
            place = 0 if name == "s" else 1
            db.insert(name, [row for row in rows if tenant in (None, row[place])])  # type: ignore[attr-defined]
        db.insert("open", [(1,), (2,)])
        db.wait_for("v", timeout=60)
    yield opened
    for db in opened.values():
        db.close()


def answer(db, sql, tenant):
    try:
        result = db.query(sql, tenant=tenant)
    except errors.ExpressionError as error:
        return str(error)
    return result.schema, result.fetchall()


@pytest.mark.parametrize("sql", ANY_SELECT)
def test_any_select_of_a_tenant_is_as_if_there_were_no_other(worlds, sql):
    for tenant, alone in worlds.items():
        if tenant is not None:
            assert answer(worlds[None], sql, tenant) == answer(alone, sql, None)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) AS n FROM open",
        "SELECT s.n FROM s JOIN open ON s.n = open.n",
        "SELECT n FROM s WHERE n IN (SELECT n FROM OPEN)",
        'SELECT (SELECT MAX(n) FROM "open") AS m FROM s',
        "WITH c AS (SELECT n FROM open) SELECT n FROM c",
        "WITH c AS (SELECT n FROM open) SELECT n FROM s",
        "SELECT n FROM s UNION ALL SELECT n FROM open",
        "SELECT n FROM s EXCEPT SELECT n FROM (SELECT n FROM open) AS x",
        "DESCRIBE open",
        "EXPLAIN SELECT COUNT(*) AS n FROM open",
        "EXPLAIN SELECT s.n FROM s JOIN open ON s.n = open.n",
    ],
)
def test_a_relation_without_a_tenant_column_has_no_place_in_a_tenants_query(worlds, sql):
    with pytest.raises(errors.TenantError, match="open has no tenant column") as caught:
        worlds[None].query(sql, tenant="a")
    assert "tenant = 'column'" in caught.value.hint


def test_errors_name_nothing_that_a_tenant_may_not_see(worlds):
    for sql in ("SELECT * FROM opne", "SELECT COUNT(*) AS n FROM opne", "DESCRIBE opne"):
        with pytest.raises(errors.ObjectNotFoundError) as caught:
            worlds[None].query(sql, tenant="a")
        assert "open" not in str(caught.value)
        assert caught.value.hint == "available to tenants: s, t, v"


# ---- sessions


@pytest.fixture
def acme(two):
    """A session of tenant a, beside rows of b in everything that there is."""
    two.execute("CREATE MATERIALIZED VIEW v AS SELECT who, n FROM s WITH (tenant = 'who')")
    two.insert("s", [("a", 1), ("b", 666), ("a", 3)])
    two.wait_for("v", timeout=60)
    with two.session(tenant="a") as session:
        yield session


def test_every_way_to_read_in_a_session(two, acme):
    def events(batch):
        return [tuple(event.after.values()) for event in batch]

    called, inline = [], []
    readers = [
        acme.subscribe("SELECT * FROM s", start="earliest"),
        acme.subscribe("LIVE SELECT * FROM s"),
        acme.subscribe("SELECT * FROM v"),
        acme.subscribe("SELECT n FROM t WHERE id = ?", [2]),
    ]
    callback = acme.subscribe_callback("SELECT * FROM s", lambda batch: called.extend(batch.rows))
    within = acme.subscribe_callback(
        "SELECT * FROM s", lambda batch: inline.extend(batch.rows), inline=True
    )
    bus, one = acme.changes(include="after"), acme.changes("s", include="after")
    two.insert("s", [("b", 667), ("a", 5)])
    two.execute("INSERT INTO t VALUES (9, 'b', 667); UPDATE t SET n = 668 WHERE id = 2")
    two.flush()
    two.wait_for("v", timeout=60)
    mine = [("a", 1), ("a", 3), ("a", 5)]
    assert [all_of(each) for each in readers] == [mine, mine[2:], mine, []]
    assert events([one.recv(60)]) == mine[2:]
    assert events([bus.recv(60), bus.recv(60)]) == mine[2:] * 2  # of s, and of v
    assert (bus.try_recv(), one.try_recv()) == (None, None)
    while not called:
        two.flush()
    assert called == inline == mine[2:]
    for each in (*readers, callback, within, bus, one):
        each.cancel()
    answers = [
        acme.query("SELECT * FROM s").fetchall(),
        acme.sql("SELECT who, n FROM v ORDER BY n").fetchall(),
        acme.execute("SELECT who, n FROM s WHERE n IN (SELECT n FROM v) ORDER BY n").fetchall(),
    ]
    assert answers == [mine] * 3
    assert acme.query("SELECT COUNT(*) AS c, SUM(n) AS n FROM t").fetchall() == [(1, 1)]
    for sql in ("SHOW CHANGES", "SHOW CHANGES FOR t", "EXPLAIN SELECT * FROM s ORDER BY n"):
        assert '"n": 66' not in repr(acme.query(sql).fetchall())
    assert "66" not in acme.explain("SELECT n FROM s WHERE n > 1")
    assert acme.wait_for("v", timeout=60) == two.lsn


def test_a_session_lists_what_its_tenant_may_read(acme):
    assert acme.query("SHOW SOURCES").fetchall() == [("s", "who VARCHAR NOT NULL, n BIGINT", "who")]
    assert [row[0] for row in acme.query("SHOW TABLES")] == ["t"]
    assert [row[0] for row in acme.query("SHOW VIEWS LIKE 'v%'")] == ["v"]
    assert [row[0] for row in acme.query("DESCRIBE v")] == ["who", "n"]


def test_what_a_session_may_write(two, acme):
    assert acme.execute("INSERT INTO s VALUES ('a', 7)").status == "INSERT 1"
    assert acme.execute("UPDATE t SET n = 7").rowcount == 1
    assert acme.insert("s", [("a", 8)]) == acme.insert_json("s", '{"who": "a", "n": 9}') == 1
    assert acme.insert_csv("s", "who,n\na,10\n") == 1
    with acme.source("s") as source, acme.writer("s") as writer:
        source.push(("a", 11))
        source.clone().push({"who": "a", "n": 12})
        assert source.try_push(("a", 13))
        source.push_batch([("a", 14)])
        source.push_arrow(pa.record_batch({"who": ["a"], "n": [15]}))
        writer.write(("a", 16))
    two.flush()
    written = [n for who, n in two.query("SELECT * FROM s") if who == "a"]
    assert written == [1, 3, *range(7, 17)]


def test_what_a_session_may_not_write(two, acme):
    source = acme.source("s")
    two.flush()
    before = [two.query(f"SELECT * FROM {name}").fetchall() for name in ("s", "t")]
    refused = [
        lambda: source.push(("b", 1)),
        lambda: source.push({"who": "b", "n": 1}),
        lambda: source.try_push(("b", 1)),
        lambda: source.clone().push(("b", 1)),
        lambda: source.push_batch([("a", 1), ("b", 1)]),
        lambda: source.push_arrow(pa.record_batch({"who": ["a", "b"], "n": [1, 1]})),
        lambda: source.push_arrow(pa.table({"who": ["b"], "n": [1]})),
        lambda: source.watermark(0),
        lambda: acme.source("open"),
        lambda: acme.insert("s", [("b", 1)]),
        lambda: acme.insert("s", {"who": ["b"], "n": [1]}),
        lambda: acme.insert_csv("s", "who,n\nb,1\n"),
        lambda: acme.execute("INSERT INTO s VALUES ('b', 1)"),
        lambda: acme.execute("INSERT INTO open VALUES (1)"),
        lambda: acme.execute("UPDATE t SET who = 'b'"),
        lambda: acme.execute("DELETE FROM open"),
        lambda: acme.query("SELECT * FROM s", tenant="b"),
        lambda: acme.subscribe("SELECT * FROM s", tenant="b"),
        lambda: acme.changes("s", "b"),
        lambda: acme.notify("c", "x", tenant="b"),
        lambda: acme.changes("open"),
        lambda: acme.wait_for("open"),
        lambda: two.session(tenant=7),
    ]
    for call in refused:
        with pytest.raises(errors.TenantError) as caught:
            call()
        assert caught.value.hint
        assert "666" not in str(caught.value)
    two.flush()
    assert [two.query(f"SELECT * FROM {name}").fetchall() for name in ("s", "t")] == before


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE x (id BIGINT PRIMARY KEY)",
        "CREATE MATERIALIZED VIEW x AS SELECT n FROM s",
        "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT n FROM s",
        "EXPLAIN CREATE MATERIALIZED VIEW x AS SELECT n FROM open",
        "ALTER TABLE t ADD COLUMN x BIGINT",
        "DROP VIEW v",
        "DROP SOURCE s CASCADE",
        "SHOW SUBSCRIPTIONS",
        "SHOW CREATE v",
    ],
)
def test_what_a_session_may_not_run(acme, sql):
    with pytest.raises(errors.TenantError, match="a tenant cannot run"):
        acme.execute(sql)
    assert [row[0] for row in acme.query("SHOW VIEWS")] == ["v"]


def test_channels_of_a_session(two, acme):
    other = two.session(tenant="b")
    assert acme.execute("LISTEN c").status == "LISTEN"
    other.execute("LISTEN c; LISTEN d")
    two.notify("c", "for nobody")
    other.notify("c", "for b")
    acme.execute("NOTIFY c, 'for a'")
    two.flush()
    assert [each.payload for each in acme.notifies(0.1)] == ["for a"]
    assert [each.payload for each in other.notifies(0.1)] == ["for b"]
    assert acme.execute("SHOW CHANNELS").fetchall() == [("c",)]
    acme.execute("UNLISTEN *")
    assert acme.execute("SHOW CHANNELS").fetchall() == []
    with acme.listen("c") as listener:
        two.notify("c", "for b", tenant="b")
        acme.notify("c", "mine")
        assert listener.recv(60).payload == "mine"


def test_a_session_that_is_closed(two):
    session = two.session(tenant="a")
    reader = session.subscribe("SELECT * FROM s")
    session.execute("LISTEN c")
    assert repr(session) == "<Session of 'a' open>"
    session.close()
    session.close()
    assert repr(session) == "<Session of 'a' closed>"
    for call in (session.query, session.execute, session.subscribe):
        with pytest.raises(errors.ClosedError, match="session is closed"):
            call("SELECT * FROM s")
    two.insert("s", [("a", 1)])
    assert reader.recv(60).rows == [("a", 1)]
    reader.cancel()
    assert two.metrics()["subscribers"] == 0
    after = two.session(tenant="a")
    two.close()
    with pytest.raises(errors.ClosedError, match="database is closed"):
        after.query("SELECT * FROM s")


def test_a_view_that_fails_on_a_row_of_another_shows_no_value_of_it(two):
    two.execute(
        "CREATE SOURCE texts (who VARCHAR NOT NULL, x VARCHAR) WITH (tenant = 'who');"
        "CREATE MATERIALIZED VIEW numbers AS SELECT who, CAST(x AS BIGINT) AS x FROM texts "
        "WITH (tenant = 'who')"
    )
    acme = two.session(tenant="a")
    reader, bus = acme.subscribe("SELECT * FROM numbers"), acme.changes("numbers")
    two.insert("texts", [("b", "a secret")])
    with pytest.raises(errors.ViewFailedError, match="a secret"):
        two.wait_for("numbers", timeout=60)
    calls = [
        lambda: acme.query("SELECT * FROM numbers"),
        lambda: acme.query("SELECT COUNT(*) AS n FROM numbers"),
        lambda: acme.query("SELECT n FROM s WHERE n IN (SELECT x FROM numbers)"),
        lambda: acme.subscribe("SELECT * FROM numbers"),
        lambda: acme.wait_for("numbers", timeout=60),
        lambda: [reader.recv(60) for _ in range(2)],
        lambda: bus.recv(60),
    ]
    for call in calls:
        with pytest.raises(errors.ViewFailedError, match="the view numbers failed") as caught:
            call()
        shown = "".join(traceback.format_exception(caught.value))
        assert "secret" not in shown
        assert caught.value.view == "numbers"


@pytest.mark.parametrize(
    "name", ["__notifications", "__catalog", "__positions", "__query_0", "__pending_v", "__state_v"]
)
def test_what_the_database_keeps_for_itself_is_not_for_queries(acme, name):
    acme.notify("c", "x")
    for sql in (f"SELECT * FROM {name}", f"SELECT COUNT(*) AS n FROM {name}", f"DESCRIBE {name}"):
        with pytest.raises(errors.ObjectNotFoundError):
            acme.query(sql)
    for call in (acme.changes, acme.source):
        with pytest.raises(errors.ObjectNotFoundError):
            call(name)
