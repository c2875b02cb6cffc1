"""A failure of a view is reported to its waiters and subscribers; the other views go on."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

import millstream as ms
from millstream.errors import (
    ObjectNotFoundError,
    SqlError,
    SqlUnsupportedError,
    SubscriptionEndedError,
    ViewFailedError,
    ViewNotReadyError,
)
from millstream.testing import TIMEOUT, Mirror, engine_of, wait_until

from .observing import rows_of, runner_of, settle

GOOD = "SELECT k, SUM(n) AS total FROM s GROUP BY k"
BAD = "SELECT k, SUM(100 / n) AS total FROM s GROUP BY k"


@pytest.fixture
def source(db):
    db.execute("CREATE SOURCE s (k VARCHAR, n BIGINT)")
    return db.source("s")


def shown(db, view):
    """A view's row in SHOW VIEWS."""
    return next(each for each in db.query("SHOW VIEWS").to_pylist() if each["name"] == view)


def failed(db, view):
    """Wait until a view has failed so often that it is reported."""
    with pytest.raises(ViewFailedError) as caught:
        db.wait_for(view, lsn=db.flush(), timeout=TIMEOUT)
    assert caught.value.view == view
    assert caught.value.hint
    return caught.value


def drain_to_the_error(subscription):
    """What a subscription was given before it ended, and what ended it."""
    batches = []
    while True:
        try:
            batches.append(subscription.recv(timeout=TIMEOUT))
        except TimeoutError:
            raise
        except ms.Error as error:
            return batches, error


def bridge_threads():
    return [each for each in threading.enumerate() if each.name == "millstream-bridge-task"]


@pytest.mark.parametrize(
    ("select", "says"),
    [
        ("SELECT k, SUM(m) AS total FROM s GROUP BY k", "m"),
        ("SELECT k, SUM(n) AS total FROM missing GROUP BY k", "missing"),
        ("SELECT SUM(ARRAY(n)) AS total FROM s", "sum"),
        ("SELECT k, COUNT(*) AS c FROM s WHERE k + ARRAY(1) GROUP BY k", "k"),
        ("SELECT no_such_function(k) AS a, COUNT(*) AS c FROM s GROUP BY 1", "no_such_function"),
        ("SELECT k, COUNT(*) AS c FROM s WHERE n GROUP BY k", "boolean"),
        ("SELECT n, COUNT(*) AS c FROM s GROUP BY k", "n"),
    ],
)
def test_refused_at_create(db, source, select, says):
    sql = f"CREATE MATERIALIZED VIEW v AS\n  {select}"
    with pytest.raises((SqlError, ObjectNotFoundError)) as refused:
        db.execute(sql)
    assert says in str(refused.value).lower()
    assert refused.value.hint or isinstance(refused.value, ObjectNotFoundError)
    assert "sqlstate" not in str(refused.value).lower()
    assert "\tat " not in str(refused.value)
    assert db.query("SHOW VIEWS").fetchall() == []
    assert "v" not in {each["name"] for each in db.topology()["nodes"]}


def test_one_row_that_cannot_be_divided(db, source):
    """On Spark with groups, on Spark without, and in this process."""
    queries = {
        "good": GOOD,
        "bad": BAD,
        "bad_line": "SELECT md5(k) AS m, 100 / n AS q FROM s",
        "bad_here": "SELECT k, 100 / n AS q FROM s",
        "over_bad": "SELECT COUNT(*) AS c FROM bad",
    }
    for name, select in queries.items():
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {select}")
    subscriptions = {name: db.subscribe(f"SELECT * FROM {name}") for name in queries}
    source.push_batch([("a", 1), ("b", 4)])
    settle(db, *queries)
    source.push(("b", 0))
    source.push(("a", 10))
    for name in ("bad", "bad_line", "bad_here"):
        error = failed(db, name)
        assert "by zero" in str(error).lower(), error
        assert "\n\tat" not in str(error)
        batches, end = drain_to_the_error(subscriptions[name])
        assert isinstance(end, ViewFailedError)
        assert end.view == name
        assert sum(len(batch) for batch in batches) == 2
        row = shown(db, name)
        assert "by zero" in (row["error"] or "").lower()
        assert row["state"] == "failed"
        for ask in (db.query, db.subscribe):
            with pytest.raises(ViewFailedError):
                ask(f"SELECT * FROM {name}")
    source.push(("c", 1))
    settle(db, "good")
    with pytest.raises(ViewFailedError, match="the view bad failed"):
        db.wait_for("over_bad", timeout=TIMEOUT)
    assert rows_of(db, "good") == Counter([("a", 11), ("b", 4), ("c", 1)])
    assert rows_of(db, "over_bad") == Counter([(2,)])
    assert shown(db, "good")["error"] is None
    mirror = Mirror(key_columns=1)
    assert mirror.follow(subscriptions["good"]).catch_up(db).rows == rows_of(db, "good")

    for name in ("over_bad", "bad", "bad_line", "bad_here"):
        db.execute(f"DROP VIEW {name}")
    assert [each["name"] for each in db.query("SHOW VIEWS").to_pylist()] == ["good"]
    assert set(engine_of(db).log.topics) & set(queries) == {"good"}
    db.execute(
        "CREATE MATERIALIZED VIEW bad AS SELECT k, SUM(try_divide(100, n)) AS t FROM s GROUP BY k"
    )
    settle(db, "bad")
    assert rows_of(db, "bad") == Counter([("a", 110.0), ("b", 25.0), ("c", 100.0)])
    # Of each of the two that are left: the driver's questions, the reader, the sink.
    wait_until(lambda: len(bridge_threads()) <= 6, "the end of the dropped views' threads")


def test_opened_again_with_a_view_that_fails(tmp_path, spark):
    for number in range(2):
        with ms.open(tmp_path / "db", spark=spark) as db:
            if number == 0:
                db.execute("CREATE SOURCE s (k VARCHAR, n BIGINT)")
                db.execute(f"CREATE MATERIALIZED VIEW good AS {GOOD}")
                db.execute(f"CREATE MATERIALIZED VIEW bad AS {BAD}")
                db.source("s").push_batch([("a", 1), ("a", 0)])
            db.source("s").push(("a", 5))
            failed(db, "bad")
            settle(db, "good")
            assert rows_of(db, "good") == Counter([("a", 6 + 5 * number)])
            if number == 1:
                db.execute("DROP VIEW bad")


def test_a_subscription_to_a_query_that_fails(db, source):
    db.execute(f"CREATE MATERIALIZED VIEW good AS {GOOD}")
    source.push(("a", 1))
    with db.subscribe(BAD) as subscription:
        assert subscription.recv(timeout=TIMEOUT).rows == [("a", 100.0)]
        source.push(("a", 0))
        batches, end = drain_to_the_error(subscription)
        assert (batches, type(end)) == ([], ViewFailedError)
    with pytest.raises(ViewFailedError):
        db.subscribe(BAD)
    wait_until(lambda: [each.view.name for each in engine_of(db).views] == ["good"])
    source.push(("a", 2))
    settle(db, "good")
    assert rows_of(db, "good") == Counter([("a", 3)])


def test_a_subscription_to_a_query_over_a_view_that_has_failed(db, source):
    """A hidden view over it would show what was there before, without a word."""
    db.execute("CREATE MATERIALIZED VIEW parts AS SELECT k, 100 / n AS part FROM s")
    source.push(("a", 0))
    failed(db, "parts")
    with pytest.raises(ViewFailedError) as caught:
        db.subscribe("SELECT SUM(part) AS total FROM parts")
    assert caught.value.view == "parts"
    wait_until(lambda: [each.view.name for each in engine_of(db).views] == ["parts"])


@pytest.mark.parametrize(
    "select",
    [
        "SELECT k, twice(n) AS t FROM s",
        "SELECT k, SUM(twice(n)) AS t FROM s GROUP BY k",
        "SELECT k, COUNT(*) AS c FROM s WHERE twice(n) > 2 GROUP BY k",
    ],
)
def test_a_function_in_python(db, spark, source, select):
    """A view has none, of whatever kind; there is Spark's own instead."""
    spark.udf.register("twice", lambda n: n * 2, "bigint")
    for create in (f"CREATE MATERIALIZED VIEW v AS {select}", f"CREATE STREAM v AS {select}"):
        with pytest.raises(SqlUnsupportedError, match="a Python function is not") as refused:
            db.execute(create)
        assert "call it on the rows" in refused.value.hint
    assert db.query("SHOW VIEWS").fetchall() == []


# ---- rows of tables, which can be corrected

CORRECTIONS = {
    "update": "UPDATE t SET x = 4, v = '4' WHERE id = 2",
    "delete": "DELETE FROM t WHERE id = 2",
}
OVER_TABLES = {
    "by_key": "SELECT 100 DIV x AS g, COUNT(*) AS n FROM t GROUP BY 100 DIV x",
    "sums": "SELECT id % 2 AS g, SUM(100 DIV x) AS n FROM t GROUP BY id % 2",
    "over_sums": "SELECT id % 2 AS g, 100 DIV SUM(x) AS n FROM t GROUP BY id % 2",
    "casts": "SELECT CAST(v AS INT) AS g, COUNT(*) AS n FROM t GROUP BY CAST(v AS INT)",
    "large": "SELECT SUM(CASE WHEN x = 0 THEN 9223372036854775807 ELSE x END) AS n FROM t",
    "joined": "SELECT t.id, 100 DIV (t.x * u.y) AS n FROM t JOIN u ON t.id = u.id",
    "with_source": "SELECT t.id, SUM(s.n DIV t.x) AS n FROM t JOIN s ON s.k = t.v GROUP BY t.id",
    "subquery": "SELECT u.id, (SELECT x FROM t WHERE x <> 5) AS n FROM u",
}
NAMES = tuple(OVER_TABLES)


def with_tables(db):
    """Tables and a source, views over them, and a view over one of these."""
    db.execute(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, x BIGINT, v VARCHAR);"
        "CREATE TABLE u (id BIGINT PRIMARY KEY, y BIGINT);"
        "CREATE SOURCE s (k VARCHAR, n BIGINT)"
    )
    for name, select in OVER_TABLES.items():
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {select}")
    db.execute("CREATE MATERIALIZED VIEW hashed AS SELECT id, md5(CAST(1 DIV x AS STRING)) FROM t")
    db.execute("CREATE MATERIALIZED VIEW over_it AS SELECT SUM(n) AS n FROM sums GROUP BY g")
    db.insert("u", [(1, 1), (2, 2)])
    db.insert("t", [(1, 5, "5"), (3, 1, "1")])
    db.source("s").push_batch([("5", 10), ("4", 20)])
    settle(db, *NAMES, "over_it", "hashed")


def bad_row(db):
    """A row for which no view has a value; the LSN of it."""
    db.insert("t", [(2, 0, "bad")])
    lsn = db.flush()
    db.source("s").push(("bad", 1))
    return lsn


def expected(db):
    return {name: Counter(db.query(sql).fetchall()) for name, sql in OVER_TABLES.items()}


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_a_correction_of_the_row_corrects_the_views(db, correction):
    with_tables(db)
    subscriptions = {name: db.subscribe(f"SELECT * FROM {name}") for name in NAMES}
    outer = db.subscribe("SELECT * FROM over_it")
    lsn = bad_row(db)
    errors = {name: failed(db, name) for name in (*NAMES, "hashed")}
    for name, error in errors.items():
        found = (error.topic, error.key, error.lsn)
        assert found in {("t", (2,), lsn), ("s", None, lsn + 1), (None, None, None)}, name
        assert "UPDATE or DELETE" in error.hint, name
    assert {errors[name].lsn for name in ("by_key", "sums", "casts", "joined")} == {lsn}
    for name, each in subscriptions.items():
        _, end = drain_to_the_error(each)
        assert (type(end), end.view) == (ViewFailedError, name)
        assert shown(db, name)["state"] == "failed"
    before = {name: shown(db, name)["restarts"] for name in NAMES}
    db.insert("u", [(9, 9)])  # the others see nothing of it
    with pytest.raises(ViewFailedError):
        db.wait_for("sums", timeout=TIMEOUT)
    assert shown(db, "sums")["restarts"] == before["sums"]

    db.execute(CORRECTIONS[correction])
    if correction == "delete":  # of x, other than 5, that leaves one
        db.execute("UPDATE t SET x = 2 WHERE id = 3")
    else:
        db.execute("DELETE FROM t WHERE id = 3")
    settle(db, *NAMES, "hashed", "over_it")
    found = {name: rows_of(db, name) for name in NAMES}
    assert found == expected(db)
    assert rows_of(db, "over_it") == Counter((n,) for _, n in found["sums"])
    mirror = Mirror()
    assert mirror.follow(outer).catch_up(db).rows == rows_of(db, "over_it")  # it has stayed open
    for name in NAMES:
        wait_until(lambda: shown(db, name)["error"] is None, "the end of the error")
        assert shown(db, name)["state"] == "live"
        assert shown(db, name)["restarts"] > 0
        with db.subscribe(f"SELECT * FROM {name}", start="earliest") as again:
            assert Mirror().follow(again).catch_up(db).rows == found[name]


@pytest.mark.parametrize("when", ["before it is closed", "after it was opened"])
def test_a_correction_and_an_opening(tmp_path, spark, when):
    with ms.open(tmp_path / "db", spark=spark) as db:
        with_tables(db)
        bad_row(db)
        failed(db, "sums")
        if when == "before it is closed":
            db.execute(CORRECTIONS["delete"])
    for number in range(2):  # and once more, over what was committed then
        with ms.open(tmp_path / "db", spark=spark) as db:
            if when == "after it was opened" and number == 0:
                failed(db, "sums")
                db.execute(CORRECTIONS["delete"])
            db.execute("UPDATE t SET x = x + 1 WHERE id = 3")
            settle(db, *NAMES, "over_it")
            assert {name: rows_of(db, name) for name in NAMES} == expected(db)


def test_a_view_in_parts_goes_on(db):
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, x BIGINT)")
    db.execute(
        "CREATE MATERIALIZED VIEW v WITH (partitions = 2) AS "
        "SELECT k, SUM(100 DIV x) AS n FROM t GROUP BY k"
    )
    db.insert("t", [(n, n % 5, 10) for n in range(20)])
    settle(db, "v")
    subscription = db.subscribe("SELECT * FROM v")
    db.insert("t", [(50, 1, 0), (51, 2, 1)])
    assert failed(db, "v").key == (50,)
    _, end = drain_to_the_error(subscription)
    assert end.key == (50,)
    db.execute("UPDATE t SET x = 5 WHERE x = 0; UPDATE t SET x = 20 WHERE id < 10")
    settle(db, "v")
    query = "SELECT k, SUM(100 DIV x) AS n FROM t GROUP BY k"
    assert rows_of(db, "v") == Counter(db.query(query).fetchall())


def test_a_row_of_a_source_stays(db, source):
    db.execute("CREATE TABLE t (k VARCHAR PRIMARY KEY, x BIGINT)")
    db.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT t.x, 1 DIV s.n AS q FROM s JOIN t ON t.k = s.k"
    )
    db.execute(f"CREATE MATERIALIZED VIEW bad AS {BAD}")
    source.push(("a", 0))
    assert "A row of a source stays" in failed(db, "bad").hint
    db.insert("t", [("a", 1)])
    error = failed(db, "v")
    db.execute("DELETE FROM t")  # with what the row met it is gone from the view
    settle(db, "v")
    assert error.view == "v"


def test_dropped_while_it_is_read(db, source):
    db.execute(f"CREATE MATERIALIZED VIEW v AS {GOOD}")
    source.push(("a", 1))
    settle(db, "v")
    subscription = db.subscribe("SELECT * FROM v")
    db.execute("DROP VIEW v")
    batches, end = drain_to_the_error(subscription)
    assert [batch.rows for batch in batches] == [[("a", 1)]]
    assert isinstance(end, SubscriptionEndedError)
    with pytest.raises(ObjectNotFoundError):
        db.wait_for("v")


def test_wait_for_says_what_it_waits_for(db, source):
    db.execute(f"CREATE MATERIALIZED VIEW v AS {GOOD}")
    source.push(("a", 1))
    settle(db, "v")
    with pytest.raises(ViewNotReadyError, match="v is at LSN"):
        db.wait_for("v", lsn=db.lsn + 1000, timeout=0.01)
    assert runner_of(db, "v").restarts == 0
