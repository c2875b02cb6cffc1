"""SQL through the front door: what exists, what is in it, and what is refused."""

from __future__ import annotations

import pytest

import millstream as ms
from millstream import errors

TRADES = (
    "CREATE SOURCE trades (symbol VARCHAR NOT NULL, price DOUBLE, qty BIGINT, ts TIMESTAMP, "
    "WATERMARK FOR ts AS ts - INTERVAL '1 second')"
)
USERS = "CREATE TABLE users (id BIGINT PRIMARY KEY, name VARCHAR, age INT)"


@pytest.fixture
def users(db):
    db.execute(USERS)
    db.execute("INSERT INTO users VALUES (1, 'Ada', 36), (2, 'Grace', 85), (3, NULL, NULL)")
    return db


# ---- what exists


def test_create_show_describe_drop(db):
    db.execute(TRADES)
    db.execute(USERS)
    (source,) = db.query("SHOW SOURCES").to_pylist()
    assert source["name"] == "trades"
    assert source["watermark"].startswith("ts - ")
    assert (source["backpressure"], source["wal_mode"]) == ("block", "async")
    (table,) = db.query("SHOW TABLES").to_pylist()
    assert (table["name"], table["primary_key"], table["rows"]) == ("users", "id", 0)
    described = db.query("DESCRIBE trades").to_pylist()
    assert [(c["column"], c["type"], c["nullable"]) for c in described] == [
        ("symbol", "VARCHAR", False),
        ("price", "DOUBLE", True),
        ("qty", "BIGINT", True),
        ("ts", "TIMESTAMP", True),
    ]
    assert [c["key"] for c in db.query("DESCRIBE users").to_pylist()] == [True, False, False]
    db.execute("DROP SOURCE trades; DROP TABLE users")
    assert not db.query("SHOW SOURCES")
    assert not db.query("SHOW TABLES")


def test_names_are_found_however_they_are_written(users):
    assert users.query("SELECT NAME FROM Users WHERE ID = 1").fetchall() == [("Ada",)]
    assert len(users.query("DESCRIBE USERS")) == 3
    users.execute("UPDATE USERS SET Age = 37 WHERE Name = 'Ada'")
    assert users.query("SELECT age FROM users WHERE id = 1").fetchall() == [(37,)]
    with pytest.raises(errors.ObjectExistsError):
        users.execute("CREATE SOURCE USERS (a BIGINT)")


def test_show_create_makes_the_same_again(db, tmp_path):
    db.execute(
        'CREATE SOURCE s ("odd name" VARCHAR NOT NULL, d DECIMAL(10, 2), ts TIMESTAMP, '
        "l ARRAY<BIGINT>, "
        "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH (buffer_size = 10, "
        "backpressure = 'reject', retention = '7 days', retention_bytes = '1 GB', "
        "tenant = 'odd name')"
    )
    db.execute(
        "CREATE TABLE t (a BIGINT, b VARCHAR, c DOUBLE, PRIMARY KEY (b, a)) "
        "WITH (wal_mode = 'sync')"
    )
    texts = {name: db.query(f"SHOW CREATE {name}").to_pylist()[0]["sql"] for name in ("s", "t")}
    with ms.open(tmp_path / "other") as other:
        for text in texts.values():
            other.execute(text)
        for name, text in texts.items():
            assert other.query(f"SHOW CREATE {name}").to_pylist()[0]["sql"] == text
            assert list(other.query(f"DESCRIBE {name}")) == list(db.query(f"DESCRIBE {name}"))
        mine, theirs = (d.query("SHOW SOURCES").to_pylist() for d in (db, other))
        assert mine == theirs


def test_if_exists_and_if_not_exists(db):
    db.execute("CREATE SOURCE IF NOT EXISTS s (a BIGINT)")
    db.execute("CREATE SOURCE IF NOT EXISTS s (a BIGINT, b BIGINT)")
    assert len(db.query("DESCRIBE s")) == 1
    db.execute("DROP SOURCE IF EXISTS nothing; DROP TABLE IF EXISTS nothing")
    db.execute("DROP SUBSCRIPTION IF EXISTS nothing; DROP VIEW IF EXISTS nothing")
    db.execute("ALTER SOURCE s ADD COLUMN IF NOT EXISTS a VARCHAR")
    assert len(db.query("DESCRIBE s")) == 1


def test_show_like(db):
    db.execute(
        "CREATE SOURCE abc (a BIGINT); CREATE SOURCE abd (a BIGINT); CREATE SOURCE x (a BIGINT)"
    )
    assert [s["name"] for s in db.query("SHOW SOURCES LIKE 'ab%'").to_pylist()] == ["abc", "abd"]
    assert [s["name"] for s in db.query("SHOW SOURCES LIKE 'AB_'").to_pylist()] == ["abc", "abd"]
    assert not db.query("SHOW SOURCES LIKE 'a'")


def test_a_dropped_name_can_be_used_again(db):
    db.execute("CREATE SOURCE s (a BIGINT)")
    db.insert("s", [(1,), (2,)])
    old = db.source("s")
    db.execute("DROP SOURCE s; CREATE SOURCE s (b VARCHAR)")
    assert db.query("SELECT * FROM s").fetchall() == []
    db.insert("s", [("new",)])
    assert db.query("SELECT b FROM s").fetchall() == [("new",)]
    with pytest.raises(errors.ClosedError):
        old.push((3,))


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("DROP SOURCE nothing", errors.ObjectNotFoundError),
        ("DROP SOURCE users", errors.WrongObjectError),
        ("DROP SUBSCRIPTION nothing", errors.SubscriptionNotFoundError),
        ("DROP VIEW nothing", errors.ObjectNotFoundError),
        ("ALTER SOURCE users ADD COLUMN x BIGINT", errors.WrongObjectError),
        ("CREATE TABLE users (id BIGINT PRIMARY KEY)", errors.ObjectExistsError),
        ("CREATE SOURCE __mine (id BIGINT)", errors.InvalidNameError),
        ("DESCRIBE user", errors.ObjectNotFoundError),
        ("SELECT * FROM user", errors.ObjectNotFoundError),
        ("INSERT INTO users VALUES (1, 'twice', 1)", errors.DuplicateKeyError),
        ("INSERT INTO users VALUES (4, 'a', 1), (4, 'b', 2)", errors.DuplicateKeyError),
        ("UPDATE users SET id = 2 WHERE id = 1", errors.DuplicateKeyError),
        ("UPDATE users SET id = 7", errors.DuplicateKeyError),
    ],
)
def test_refused_by_what_there_is(users, sql, error):
    before = list(users.query("SELECT * FROM users"))
    with pytest.raises(error) as caught:
        users.execute(sql)
    assert caught.value.code not in {"", "ERROR"}
    assert caught.value.hint or sql.startswith("DROP VIEW")
    assert list(users.query("SELECT * FROM users")) == before


# ---- refused by the text: the error has the place


@pytest.mark.parametrize(
    ("sql", "error", "line", "column"),
    [
        ("SELEC 1", errors.SqlSyntaxError, 1, 1),
        ("SELECT id\nFROM users\nWHERE agee > 3", errors.SqlColumnError, 3, 7),
        ("SELECT id,\n  nope FROM users", errors.SqlColumnError, 2, 3),
        ("SELECT id FROM users WHERE name > 3", errors.SqlTypeError, 1, 28),
        ("CREATE SOURCE s (a NOPE)", errors.SqlTypeError, 1, 20),
        ("CREATE TABLE t (a BIGINT)", errors.SqlError, 1, None),
        ("CREATE SOURCE s (a BIGINT) WITH (bufer_size = 1)", errors.SqlOptionError, 1, None),
        ("CREATE SOURCE s (a BIGINT) WITH (buffer_size = 0)", errors.SqlOptionError, 1, None),
        ("CREATE SOURCE s (a BIGINT) WITH (tenant = 'a')", errors.SqlOptionError, 1, None),
        (
            "CREATE SOURCE s (a BIGINT) WITH (wal_mode = 'sync', backpressure = 'drop_oldest')",
            errors.SqlOptionError,
            1,
            None,
        ),
        ("SELECT age, UUID() AS c FROM users ORDER BY age", errors.SqlUnsupportedError, 1, 13),
        ("SELECT * FROM users ORDER BY nope", errors.SqlColumnError, 1, 30),
        ("SELECT 1; SELEC 2", errors.SqlError, 1, None),
        ("INSERT INTO users VALUES ('x', 'y', 1)", errors.SqlTypeError, 1, 27),
        ("INSERT INTO users (id, nope) VALUES (9, 1)", errors.SqlColumnError, 1, 24),
        ("INSERT INTO users (id, id) VALUES (9, 1)", errors.SqlError, 1, 24),
        ("UPDATE users SET nope = 1", errors.SqlColumnError, 1, 18),
        ("UPDATE users SET age = 'x'", errors.SqlTypeError, 1, 24),
        ("DELETE FROM users WHERE nope = 1", errors.SqlColumnError, 1, 25),
    ],
)
def test_refused_by_the_text(users, sql, error, line, column):
    with pytest.raises(error) as caught:
        users.execute(sql)
    refused = caught.value
    assert isinstance(refused, errors.SqlError)
    assert refused.line == line
    assert refused.column == column or (column is None and refused.column >= 1)
    assert refused.hint
    assert refused.hint in str(refused)
    assert f"line {line}" in str(refused)


def test_nothing_of_a_text_that_cannot_be_read_was_run(db):
    with pytest.raises(errors.SqlSyntaxError) as caught:
        db.execute("CREATE SOURCE s (a BIGINT);\nCREATE SORCE t (a BIGINT)")
    assert caught.value.line == 2
    assert not db.query("SHOW SOURCES")


def test_statements_before_the_one_that_failed_stay_done(db):
    with pytest.raises(errors.ObjectNotFoundError):
        db.execute("CREATE SOURCE s (a BIGINT); DROP SOURCE t; CREATE SOURCE u (a BIGINT)")
    assert [s["name"] for s in db.query("SHOW SOURCES").to_pylist()] == ["s"]


def test_several_statements_give_what_the_last_one_gives(db):
    result = db.execute(
        "CREATE TABLE t (id BIGINT PRIMARY KEY); -- a; comment\n"
        "INSERT INTO t VALUES (1), (2), (3); SELECT id FROM t WHERE id > 1;"
    )
    assert sorted(result) == [(2,), (3,)]
    assert sorted(db.query("SELECT 'a;b' AS x FROM t; SELECT id FROM t")) == [(1,), (2,), (3,)]


def test_query_is_for_questions_only(users):
    for sql in ("INSERT INTO users VALUES (9, 'x', 1)", "SELECT * FROM users; DELETE FROM users"):
        with pytest.raises(errors.SqlUnsupportedError, match=r"db\.execute"):
            users.query(sql)
    assert len(users.query("SELECT * FROM users")) == 3


def test_an_empty_text(db):
    for text in ("", " ; ", "-- nothing"):
        for run in (db.execute, db.query):
            try:
                assert len(run(text)) == 0
            except errors.SqlError as error:
                assert error.hint


# ---- options


def test_options_hold(db):
    db.execute("CREATE SOURCE s (a BIGINT) WITH (buffer_size = 2, backpressure = 'reject')")
    (shown,) = db.query("SHOW SOURCES").to_pylist()
    assert (shown["buffer_size"], shown["backpressure"]) == (2, "reject")
    db.execute("CREATE SOURCE durable (a BIGINT) WITH (wal_mode = 'sync')")
    db.insert("durable", [(1,)])
    assert db.metrics()["durable_lsn"] >= db.lsn


# ---- rows


def test_select_filters_and_projects(users):
    rows = users.query("SELECT name, age + 1 AS next FROM users WHERE age > 30 AND name <> 'Ada'")
    assert rows.to_pylist() == [{"name": "Grace", "next": 86}]
    assert rows.schema.names == ("name", "next")
    assert users.query("SELECT * FROM users WHERE name IS NULL").fetchall() == [(3, None, None)]
    assert len(users.query("SELECT * FROM users LIMIT 2")) == 2
    assert len(users.query("SELECT * FROM users LIMIT 0")) == 0
    assert sorted(users.query("SELECT u.id FROM users AS u WHERE u.id IN (1, 3)")) == [(1,), (3,)]
    assert users.query("SELECT id FROM users WHERE id BETWEEN 2 AND 2").fetchall() == [(2,)]


def test_select_from_a_source_has_what_was_just_pushed(db):
    db.execute("CREATE SOURCE s (n BIGINT, t VARCHAR)")
    source = db.source("s")
    for n in range(1000):
        source.push((n, "even" if n % 2 == 0 else "odd"))
    result = db.query("SELECT n FROM s WHERE t = 'even'")
    assert [n for (n,) in result] == list(range(0, 1000, 2))
    assert result.to_arrow().num_rows == 500
    assert len(db.query("SELECT n FROM s LIMIT 7")) == 7
    assert result.lsn == db.lsn


def test_a_division_by_zero_is_an_error(db):
    db.execute("CREATE SOURCE s (n BIGINT)")
    db.insert("s", [(1,), (0,)])
    with pytest.raises(errors.Error) as caught:
        db.query("SELECT 10 / n AS x FROM s").fetchall()
    assert caught.value.code == "EXPRESSION"
    assert db.query("SELECT n FROM s").fetchall() == [(1,), (0,)]


def test_insert_update_delete_count(users):
    assert users.execute("INSERT INTO users (id, name) VALUES (4, 'Edsger')").rowcount == 1
    assert users.query("SELECT age FROM users WHERE id = 4").fetchall() == [(None,)]
    assert users.execute("UPDATE users SET age = age + 1 WHERE age > 30").rowcount == 2
    assert users.execute("UPDATE users SET age = 0 WHERE id = 99").rowcount == 0
    assert users.execute("DELETE FROM users WHERE age IS NULL").rowcount == 2
    assert sorted(users.query("SELECT * FROM users")) == [(1, "Ada", 37), (2, "Grace", 86)]
    assert users.execute("DELETE FROM users").rowcount == 2
    assert users.execute("DELETE FROM users").rowcount == 0


def test_insert_or_replace_and_or_ignore(users):
    users.execute("INSERT OR REPLACE INTO users VALUES (1, 'Augusta', 36), (5, 'new', 1)")
    users.execute("INSERT OR IGNORE INTO users VALUES (2, 'nobody', 0), (6, 'newer', 2)")
    names = dict(users.query("SELECT id, name FROM users"))
    assert names == {1: "Augusta", 2: "Grace", 3: None, 5: "new", 6: "newer"}


def test_keys_that_trade_places(users):
    users.execute("UPDATE users SET id = 3 - id WHERE id < 3")
    names = dict(users.query("SELECT id, name FROM users"))
    assert names == {1: "Grace", 2: "Ada", 3: None}
    users.execute("UPDATE users SET id = id + 1")
    assert dict(users.query("SELECT id, name FROM users")) == {2: "Grace", 3: "Ada", 4: None}


def test_insert_into_a_source(db):
    db.execute("CREATE SOURCE s (n BIGINT, t VARCHAR)")
    assert db.execute("INSERT INTO s (t, n) VALUES ('a', 1), ('b', 1 + 1)").rowcount == 2
    assert db.query("SELECT * FROM s").fetchall() == [(1, "a"), (2, "b")]
    for sql in ("UPDATE s SET n = 3", "DELETE FROM s"):
        with pytest.raises(errors.WrongObjectError) as caught:
            db.execute(sql)
        assert "TABLE" in caught.value.hint


def test_a_statement_is_all_or_nothing(users):
    for sql in (
        "INSERT INTO users VALUES (7, 'x', 1), (1, 'y', 2)",
        "INSERT INTO users VALUES (7, 'x', 1), (NULL, 'y', 2)",
        "UPDATE users SET age = 10 / (id - 2)",
        "UPDATE users SET id = NULL",
    ):
        with pytest.raises(errors.Error):
            users.execute(sql)
        assert len(users.query("SELECT * FROM users")) == 3
        assert users.query("SELECT age FROM users WHERE id = 1").fetchall() == [(36,)]


# ---- ALTER


def test_a_new_column_is_null_in_old_rows(users):
    users.execute("ALTER TABLE users ADD COLUMN mail VARCHAR")
    users.execute("UPDATE users SET mail = 'ada@example.org' WHERE id = 1")
    users.execute("INSERT INTO users VALUES (4, 'Edsger', 72, 'e@example.org')")
    mails = dict(users.query("SELECT id, mail FROM users"))
    assert mails == {1: "ada@example.org", 2: None, 3: None, 4: "e@example.org"}
    with pytest.raises(errors.Error):
        users.execute("ALTER TABLE users ADD COLUMN MAIL BIGINT")


def test_handles_and_subscriptions_live_through_alter(db, rows_of):
    db.execute("CREATE SOURCE s (a BIGINT, b VARCHAR)")
    source = db.source("s")
    some = db.subscribe("SELECT a, b FROM s")
    filtered = db.subscribe("SELECT a FROM s WHERE b = 'x'")
    source.push((1, "x"))
    assert db.query("SELECT * FROM s").fetchall() == [(1, "x")]
    db.execute("ALTER SOURCE s ADD COLUMN c DOUBLE")
    source.push((2, "x", 2.5))
    source.push({"a": 3, "b": "y"})
    db.insert("s", [(4, "x", None)])
    assert db.query("SELECT * FROM s").fetchall() == [
        (1, "x", None),
        (2, "x", 2.5),
        (3, "y", None),
        (4, "x", None),
    ]
    assert rows_of(some, 4) == [(1, "x"), (2, "x"), (3, "y"), (4, "x")]
    assert rows_of(filtered, 3) == [(1,), (2,), (4,)]
    replayed = db.subscribe("SELECT * FROM s", start="earliest")
    assert rows_of(replayed, 4) == [(1, "x", None), (2, "x", 2.5), (3, "y", None), (4, "x", None)]


def test_a_snapshot_after_alter(users, rows_of):
    before = users.subscribe("SELECT id, name FROM users")
    assert sorted(rows_of(before, 3)) == [(1, "Ada"), (2, "Grace"), (3, None)]
    users.execute("ALTER TABLE users ADD COLUMN mail VARCHAR")
    users.execute("INSERT INTO users VALUES (4, 'd', 1, 'm')")
    assert rows_of(before, 1) == [(4, "d")]
    after = users.subscribe("SELECT * FROM users")
    assert min(rows_of(after, 4)) == (1, "Ada", 36, None)


# ---- looking at it


def test_explain(users):
    text = users.explain("SELECT name FROM users WHERE id = 1 AND age > 3")
    assert "users" in text
    assert "index on id" in text
    assert "age" in text
    assert users.query("EXPLAIN SELECT name FROM users").columns == ("plan",)
    with pytest.raises(errors.ObjectNotFoundError):
        users.explain("SELECT * FROM nothing")


def test_show_changes(users):
    users.execute("UPDATE users SET age = 37 WHERE id = 1; DELETE FROM users WHERE id = 2")
    changes = users.query("SHOW CHANGES FOR users").to_pylist()
    assert [c["operation"] for c in changes] == ["INSERT", "INSERT", "INSERT", "UPDATE", "DELETE"]
    assert changes[3]["before"] == '{"id": 1, "name": "Ada", "age": 36}'
    assert changes[3]["after"] == '{"id": 1, "name": "Ada", "age": 37}'
    assert [c["lsn"] for c in changes] == sorted(c["lsn"] for c in changes)
    since = changes[3]["lsn"]
    assert [c["operation"] for c in users.query(f"SHOW CHANGES SINCE {since}").to_pylist()] == [
        "UPDATE",
        "DELETE",
    ]
    assert len(users.query("SHOW CHANGES FOR users LIMIT 2")) == 2
    assert len(users.query("SHOW CHANGES SINCE INTERVAL '1 hour' AGO")) == 5
    assert len(users.query("SHOW CHANGES SINCE '2001-01-01 00:00:00'")) == 5
    assert len(users.query(f"SHOW CHANGES SINCE {users.lsn + 1}")) == 0
    with pytest.raises(errors.ObjectNotFoundError):
        users.query("SHOW CHANGES FOR nothing")


def test_live_select(users, rows_of):
    with users.subscribe("LIVE SELECT id, name FROM users WHERE age > 50") as live:
        assert rows_of(live, 1) == [(2, "Grace")]
        users.execute("UPDATE users SET age = 51 WHERE id = 1")
        (change,) = live.recv(60)
        assert (change.op, change.row) == ("insert", (1, "Ada"))
        users.execute("DELETE FROM users WHERE id = 2")
        (change,) = live.recv(60)
        assert (change.op, change.row) == ("delete", (2, "Grace"))
    with pytest.raises(errors.SqlUnsupportedError):
        users.subscribe("LIVE SELECT * FROM users LIMIT 1")
    for run in (users.execute, users.query):
        with pytest.raises(errors.SqlUnsupportedError, match="is a subscription") as caught:
            run("SELECT id FROM users;\nLIVE SELECT id FROM users")
        assert caught.value.line == 2
        assert "db.subscribe" in caught.value.hint


def test_show_subscriptions(users):
    with users.subscribe("SELECT id FROM users", name="mine", backpressure="conflate"):
        (shown,) = users.query("SHOW SUBSCRIPTIONS").to_pylist()
        assert (shown["name"], shown["state"], shown["query"], shown["backpressure"]) == (
            "mine",
            "active",
            "SELECT id FROM users",
            "conflate",
        )
        with pytest.raises(errors.SubscriptionExistsError):
            users.execute("DROP SUBSCRIPTION mine")
    (shown,) = users.query("SHOW SUBSCRIPTIONS").to_pylist()
    assert (shown["name"], shown["state"]) == ("mine", "closed")
    users.execute("DROP SUBSCRIPTION mine")
    assert not users.query("SHOW SUBSCRIPTIONS")


@pytest.mark.parametrize("query", ["SELECT * FROM users", "SELECT COUNT(*) AS n FROM users"])
def test_live_select_is_no_query(users, query):
    with pytest.raises(errors.SqlUnsupportedError, match="LIVE SELECT is a subscription") as caught:
        users.query(f"LIVE {query}")
    assert "db.subscribe" in caught.value.hint


def test_listen_and_notify(db):
    db.execute("LISTEN orders; NOTIFY orders, 'one'; NOTIFY other, 'two'; NOTIFY orders")
    assert db.execute("SHOW CHANNELS").fetchall() == [("orders",)]
    assert db.query("SHOW CHANNELS").fetchall() == [("orders",)]
    got = db.notifies(60)
    assert [(n.channel, n.payload) for n in (next(got), next(got))] == [
        ("orders", "one"),
        ("orders", ""),
    ]
    db.execute("UNLISTEN *")
    assert list(db.notifies(60)) == []


def test_topology_and_metrics(users):
    with users.subscribe("SELECT id FROM users", name="mine"):
        drawn = users.topology()
        assert {"name": "users", "kind": "table"} in drawn["nodes"]
        assert {"from": "users", "to": "mine", "rows": 0} in drawn["edges"]
        counted = users.metrics()
        assert counted["subscribers"] == 1
        assert counted["subscriptions"][0]["name"] == "mine"
        assert counted["lsn"] == users.lsn


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("CREATE OR REPLACE MATERIALIZED VIEW b AS SELECT v FROM b", ms.errors.InUseError),
        ("CREATE OR REPLACE MATERIALIZED VIEW B AS SELECT v FROM c", ms.errors.InUseError),
        ("CREATE OR REPLACE MATERIALIZED VIEW c AS SELECT v FROM C", ms.errors.InUseError),
        pytest.param(
            "CREATE OR REPLACE MATERIALIZED VIEW b AS SELECT nope FROM s",
            ms.errors.SqlColumnError,
            marks=pytest.mark.slow,  # it starts Spark
        ),
        ("EXPLAIN CREATE OR REPLACE MATERIALIZED VIEW b AS SELECT v FROM b", ms.errors.InUseError),
    ],
)
def test_a_view_stays_when_its_replacement_cannot_be(db, sql, error):
    db.execute(
        "CREATE SOURCE s (v INT);"
        "CREATE MATERIALIZED VIEW b AS SELECT v FROM s WHERE v > 0;"
        "CREATE MATERIALIZED VIEW c AS SELECT v FROM b"
    )
    db.insert("s", [(1,), (-1,)])
    with pytest.raises(error):
        db.execute(sql)
    for name in ("b", "c"):
        db.wait_for(name, timeout=30)
        assert db.query(f"SELECT * FROM {name}").fetchall() == [(1,)]


def test_a_statement_without_rows_answers_with_its_status(db):
    answers = {
        "CREATE SOURCE s (n BIGINT)": "CREATE SOURCE",
        "CREATE SOURCE IF NOT EXISTS s (n BIGINT)": "CREATE SOURCE",
        "CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)": "CREATE TABLE",
        "CREATE MATERIALIZED VIEW v AS SELECT n FROM s": "CREATE MATERIALIZED VIEW",
        "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT n + 1 AS n FROM s": (
            "CREATE MATERIALIZED VIEW"
        ),
        "CREATE STREAM w AS SELECT n FROM s": "CREATE STREAM",
        "ALTER TABLE t ADD COLUMN m BIGINT": "ALTER TABLE",
        "INSERT INTO t (id, n) VALUES (1, 1), (2, 2), (3, 3)": "INSERT 3",
        "INSERT INTO s VALUES (1)": "INSERT 1",
        "UPDATE t SET n = 0 WHERE id > 1": "UPDATE 2",
        "DELETE FROM t WHERE id = 9": "DELETE 0",
        "LISTEN c": "LISTEN",
        "NOTIFY c, 'x'": "NOTIFY",
        "UNLISTEN *": "UNLISTEN",
        "DROP VIEW v": "DROP VIEW",
        "DROP STREAM w": "DROP STREAM",
        "DROP TABLE IF EXISTS nothing": "DROP TABLE",
    }
    for sql, status in answers.items():
        result = db.execute(sql)
        assert (result.status, repr(result), result.fetchall()) == (status, status, [])
        assert not result
    assert db.execute("SELECT * FROM t").status == ""


def test_explanations_are_not_cut_off(db):
    condition = " OR ".join(f"symbol = 'a symbol with a long name {n}'" for n in range(9))
    sql = f"SELECT symbol\nFROM trades\nWHERE {condition}"
    db.execute("CREATE SOURCE trades (symbol VARCHAR, a_column_with_a_rather_long_name DOUBLE)")
    db.execute(f"CREATE MATERIALIZED VIEW v AS {sql}")
    for statement in (f"EXPLAIN {sql}", "SHOW CREATE v", "DESCRIBE trades", "SHOW VIEWS"):
        shown = repr(db.query(statement))
        assert "…" not in shown
        for row in db.query(statement):
            for text in (each for each in row if isinstance(each, str)):
                assert all(line in shown for line in text.splitlines())
    assert "a symbol with a long name 8" in repr(db.query("SHOW CREATE v"))


@pytest.mark.parametrize(
    ("sql", "at"),
    [
        ("INSERT INTO t VALUES (1, 2), (3)", "(3)"),
        ("CREATE SOURCE u (a INT) WITH (bufer_size = 1)", "bufer_size"),
        ("CREATE SOURCE u (a INT) WITH (wal_mode = 'x')", "'x'"),
        ("SELECT n FROM t ORDER BY n EMIT CHANGES", "EMIT"),
        ("CREATE MATERIALIZED VIEW v AS SELECT n, RAND() AS r FROM t, s", "RAND"),
        ("CREATE MATERIALIZED VIEW v AS SELECT n FROM t CROSS JOIN s WHERE NOW() = 1", "NOW"),
        ("CREATE MATERIALIZED VIEW v AS SELECT n FROM t EMIT FINAL", "EMIT"),
    ],
)
def test_the_caret_points_at_what_is_refused(db, sql, at):
    db.execute("CREATE SOURCE s (n BIGINT); CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)")
    with pytest.raises(errors.SqlError) as caught:
        db.execute(sql)
    assert sql[caught.value.column - 1 :].startswith(at)


def test_an_assignment_that_overflows_changes_nothing(db):
    db.execute("CREATE TABLE prices (id BIGINT PRIMARY KEY, d DECIMAL(5, 2))")
    db.execute("INSERT INTO prices VALUES (1, 1.005), (2, 998.5), (3, NULL)")
    assert db.execute("UPDATE prices SET d = d + 1").rowcount == 3
    with pytest.raises(ms.errors.ExpressionError, match="out of the range"):
        db.execute("UPDATE prices SET d = d + 1")
    with pytest.raises(ms.errors.SqlTypeError, match="row 1, column d: 1000 is out of the range"):
        db.execute("INSERT INTO prices VALUES (4, 1), (5, 1000)")
    found = db.query("SELECT * FROM prices ORDER BY id").fetchall()
    assert [str(d) for _, d in found] == ["2.01", "999.50", "None"]
