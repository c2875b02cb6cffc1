"""A failure of a view is reported to its waiters and subscribers; the other views go on."""

from __future__ import annotations

import os
import threading
from collections import Counter

import pytest

import millstream as ms
from millstream.errors import (
    ObjectNotFoundError,
    SqlError,
    SubscriptionEndedError,
    ViewFailedError,
    ViewNotReadyError,
)
from millstream.testing import TIMEOUT, Mirror, engine_of, wait_until

from .observing import rows_of, runner_of, running, settle

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
        ("SELECT k, SUM(n) AS total FROM s GROUP BY k HAVING total", "boolean"),
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


def test_a_function_in_python(db, spark, source):
    """It is never silent: it works in micro-batches, and what it raises is reported."""

    def twice(n):
        if n == 13:
            raise ValueError("not thirteen")
        return n * 2

    spark.udf.register("twice", twice, "bigint")
    db.execute("CREATE MATERIALIZED VIEW lines AS SELECT k, twice(n) AS t FROM s")
    db.execute("CREATE MATERIALIZED VIEW groups AS SELECT k, SUM(twice(n)) AS t FROM s GROUP BY k")
    db.execute(f"CREATE MATERIALIZED VIEW good AS {GOOD}")
    subscriptions = {
        name: db.subscribe(f"SELECT * FROM {name}") for name in ("lines", "groups", "good")
    }
    for n in range(3):
        source.push(("a", n))
        settle(db, *subscriptions)
    assert rows_of(db, "lines") == Counter([("a", 0), ("a", 2), ("a", 4)])
    assert rows_of(db, "groups") == Counter([("a", 6)])
    assert shown(db, "groups")["state"] == "micro-batch"
    source.push_batch([("b", 1), ("b", 13)])
    for name in ("lines", "groups"):
        assert "not thirteen" in str(failed(db, name))
        assert "not thirteen" in shown(db, name)["error"]
        _, end = drain_to_the_error(subscriptions[name])
        assert isinstance(end, ViewFailedError)
    settle(db, "good")
    assert rows_of(db, "good") == Counter([("a", 3), ("b", 14)])
    for name in subscriptions:
        db.execute(f"DROP VIEW {name}")


def test_an_error_that_goes_away(db, spark, source, tmp_path):
    trouble = tmp_path / "trouble"
    trouble.touch()
    path = str(trouble)

    def fragile(n):
        if n > 2 and os.path.exists(path):
            raise ValueError("there is trouble")
        return n

    spark.udf.register("fragile", fragile, "bigint")
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT k, SUM(fragile(n)) AS t FROM s GROUP BY k")
    db.execute("CREATE MATERIALIZED VIEW w AS SELECT k, fragile(n) AS t FROM s")
    source.push_batch([("a", 1), ("b", 2)])
    settle(db, "v", "w")
    source.push_batch([("a", 3), ("c", 1)])
    for name in ("v", "w"):
        failed(db, name)
    trouble.unlink()
    source.push(("c", 5))
    for name in ("v", "w"):
        wait_until(lambda: running(db, name).progress.error is None, "the end of the error")
    settle(db, "v", "w")
    assert rows_of(db, "v") == Counter([("a", 4), ("b", 2), ("c", 6)])
    assert rows_of(db, "w") == Counter([("a", 1), ("b", 2), ("a", 3), ("c", 1), ("c", 5)])
    for name in ("v", "w"):
        assert shown(db, name)["error"] is None
        assert shown(db, name)["state"] == "micro-batch"
        with db.subscribe(f"SELECT * FROM {name}", start="earliest") as again:
            assert Mirror().follow(again).catch_up(db).rows == rows_of(db, name)


def test_a_function_that_is_registered_too_late(tmp_path, spark):
    """A view whose function is not there when its database is opened waits for it."""
    first, second = spark.newSession(), spark.newSession()
    first.udf.register("thrice", lambda n: n * 3, "bigint")
    with ms.open(tmp_path / "db", spark=first) as db:
        db.execute("CREATE SOURCE s (k VARCHAR, n BIGINT)")
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT k, SUM(thrice(n)) AS t FROM s GROUP BY k")
        db.source("s").push(("a", 1))
        settle(db, "v")
    with ms.open(tmp_path / "db", spark=second) as db:
        db.source("s").push(("a", 2))
        assert "thrice" in str(failed(db, "v")).lower()
        second.udf.register("thrice", lambda n: n * 3, "bigint")
        wait_until(lambda: running(db, "v").progress.error is None, "the end of the error")
        settle(db, "v")
        assert rows_of(db, "v") == Counter([("a", 9)])


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
