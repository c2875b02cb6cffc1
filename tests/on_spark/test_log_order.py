"""Aggregates by the order of the log, on a dataflow: whatever comes and goes beside it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import millstream as ms
from millstream.errors import SqlUnsupportedError

from .observing import settle

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
TUMBLE_START = "TUMBLE_START(ts, INTERVAL '1' MINUTE)"
ITEMS = (
    "FIRST(v) AS f, LAST(v) AS l, ANY_VALUE(v) AS a, FIRST(v) IGNORE NULLS AS n, "
    "LAST(v) FILTER (WHERE v > 2) AS w, COLLECT_LIST(v) AS c, LISTAGG(v, '-') AS g, "
    "MIN_BY(v, o) AS i, MAX_BY(v, o) AS m"
)
"""Aggregates of ``v``; ``o`` is the same for several rows."""


def expected(rows):
    """What they are of rows in order, each a value and what MIN_BY and MAX_BY go by."""
    values = [v for v, _ in rows]
    known = [v for v in values if v is not None]
    least, most = min(o for _, o in rows), max(o for _, o in rows)
    return (
        values[0],
        values[-1],
        values[0],
        known[0] if known else None,
        next((v for v in reversed(known) if v > 2), None),
        known,
        "-".join(map(str, known)) if known else None,
        next(v for v, o in rows if o == least),
        [v for v, o in rows if o == most][-1],
    )


def test_by_the_order_of_the_log_while_what_they_are_joined_with_changes(tmp_path, spark):
    path, pushed, on = tmp_path / "db", [], {"a": True, "b": True, "c": False}

    def push(db, *rows):
        for row in rows:
            db.source("s").push(row)
            pushed.append(row)

    def check(db):
        settle(db, "v", "counted")
        wanted = {}
        for k, v, o in pushed:
            if on[k]:
                wanted.setdefault(k, []).append((v, o))
        found = {row[0]: row[1:] for row in db.query("SELECT * FROM v").fetchall()}
        assert found == {k: expected(rows) for k, rows in wanted.items()}
        last = [row[1] for row in pushed if on[row[0]]][-1]
        assert db.query("SELECT l FROM counted").fetchall() == [(last,)]

    with ms.open(path, spark=spark) as db:
        db.execute(
            "CREATE SOURCE s (k VARCHAR, v INT, o INT); CREATE TABLE t (k VARCHAR PRIMARY KEY, "
            "shown BOOLEAN); INSERT INTO t VALUES ('a', TRUE), ('b', TRUE), ('c', FALSE)"
        )
        push(db, ("a", 3, 1), ("b", 9, 1), ("a", 1, 1), ("c", 5, 2), ("a", None, 0), ("b", 2, 1))
        db.flush()
        db.execute(
            f"CREATE MATERIALIZED VIEW v AS SELECT k, {ITEMS} FROM (SELECT * FROM s) x "
            "WHERE k IN (SELECT k FROM t WHERE shown) GROUP BY k; "
            "CREATE MATERIALIZED VIEW counted AS WITH x AS (SELECT v AS w, k FROM s), y (w, k) AS "
            "(SELECT * FROM x) SELECT LAST(w) AS l FROM y JOIN (SELECT k FROM t WHERE shown) z "
            "ON y.k = z.k"
        )
        check(db)
        lsn, then = db.lsn, db.query("SELECT * FROM v").fetchall()
        push(db, ("b", None, 3), ("a", 4, 1))
        check(db)
        for key in ("a", "c"):
            on[key] = not on[key]
            db.execute("UPDATE t SET shown = ? WHERE k = ?", [on[key], key])
        check(db)
        push(db, ("a", 0, 0), ("c", 1, 0))
        check(db)
        past = db.query(f"SELECT * FROM v AS OF {lsn}").fetchall()
        assert sorted(past, key=repr) == sorted(then, key=repr)
    with ms.open(path, spark=spark) as db:
        on["a"] = True  # its rows come back, and are where they were in the log
        db.execute("UPDATE t SET shown = TRUE WHERE k = 'a'")
        push(db, ("a", 7, 5), ("b", 8, 5))
        check(db)


def test_event_time_comes_first_and_a_tie_is_broken_by_the_log(db):
    db.execute(
        "CREATE SOURCE s (k INT, v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1 hour');"
        "CREATE SOURCE r (at TIMESTAMP, n INT, WATERMARK FOR at AS at - INTERVAL '1 hour');"
        "CREATE TABLE t (k INT PRIMARY KEY); INSERT INTO t VALUES (1);"
        "CREATE MATERIALIZED VIEW v AS SELECT FIRST(v) AS f, LAST(v) AS l FROM s "
        "WHERE k IN (SELECT k FROM t);"
        "CREATE MATERIALIZED VIEW u AS SELECT FIRST(x.v) AS f, LAST(x.v) AS l FROM "
        "(SELECT k, v FROM s UNION ALL SELECT 1, n FROM r) x WHERE x.k IN (SELECT k FROM t)"
    )
    at = [NOON + timedelta(seconds=each) for each in range(4)]
    db.source("s").push_batch([(1, 10, at[2]), (1, 11, at[1]), (1, 12, at[1]), (1, 13, at[2])])
    db.insert("r", [(at[0], 20), (at[3], 21)])
    settle(db, "v", "u")
    assert db.query("SELECT * FROM v").fetchall() == [(11, 13)]
    assert db.query("SELECT * FROM u").fetchall() == [(20, 21)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT LAST(id) AS l FROM t WHERE id IN (SELECT id FROM u)",
        "SELECT FIRST(s.v) AS f FROM s JOIN s2 ON s.v = s2.v",
        "SELECT FIRST(v) AS f FROM (SELECT DISTINCT v FROM s) x JOIN u ON x.v = u.id",
    ],
)
def test_rows_without_an_order(db, sql):
    db.execute(
        "CREATE SOURCE s (v INT); CREATE SOURCE s2 (v INT); CREATE TABLE t (id INT PRIMARY KEY); "
        "CREATE TABLE u (id INT PRIMARY KEY)"
    )
    create = f"CREATE MATERIALIZED VIEW v AS {sql}"
    with pytest.raises(SqlUnsupportedError, match="depends on the order of rows") as caught:
        db.execute(create)
    assert caught.value.column == 1 + create.index("LAST" if "LAST" in sql else "FIRST")
    name = "LAST" if "LAST" in sql else "FIRST"
    assert caught.value.hint == f"Write {name}(x ORDER BY y) with a column y to go by."


def test_distinct_aggregates_over_a_source(db):
    db.execute("CREATE SOURCE s (k INT, v INT, w INT)")
    items = "COUNT(DISTINCT v) AS a, MIN(DISTINCT v) AS b, MAX(DISTINCT w) AS c"
    db.execute(f"CREATE MATERIALIZED VIEW v AS SELECT k, {items} FROM s GROUP BY k")
    db.insert("s", [(1, 5, 7), (1, 5, 8), (1, 6, 8), (2, 9, 9)])
    settle(db, "v")
    assert sorted(db.query("SELECT * FROM v").fetchall()) == [(1, 2, 5, 8), (2, 1, 9, 9)]


def test_windows_of_rows_that_are_not_grouped(db):
    db.execute("CREATE SOURCE s (id INT, ts TIMESTAMP)")
    start = "TUMBLE_START(ts, INTERVAL '3' MINUTE)"
    db.execute(f"CREATE MATERIALIZED VIEW starts AS SELECT id, {start} AS w FROM s")
    inner = "SELECT id, HOP_START(ts, INTERVAL '15' MINUTE, INTERVAL '30' MINUTE) AS w FROM s"
    db.execute(f"CREATE MATERIALIZED VIEW v AS SELECT id FROM ({inner}) h")
    db.insert("s", [(1, NOON), (2, NOON + timedelta(minutes=5))])
    settle(db, "v", "starts")
    assert sorted(db.query("SELECT * FROM v").fetchall()) == [(1,), (1,), (2,), (2,)]
    starts = [(1, NOON), (2, NOON + timedelta(minutes=3))]
    assert sorted(db.query("SELECT * FROM starts").fetchall()) == starts


def test_a_window_that_is_selected_as_it_is_grouped(db):
    db.execute(
        "CREATE SOURCE s (k INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1 second')"
    )
    window = "TUMBLE(ts, INTERVAL '1 minute')"
    for name, key in (("by_text", window), ("by_name", "w"), ("by_place", "1")):
        db.execute(
            f"CREATE MATERIALIZED VIEW {name} AS SELECT {window} AS w, COUNT(*) AS n FROM s "
            f"GROUP BY {key}"
        )
    db.insert("s", [(1, NOON), (2, NOON + timedelta(seconds=59)), (3, NOON + timedelta(minutes=1))])
    for name in ("by_text", "by_name", "by_place"):
        settle(db, name)
        rows = db.query(f"SELECT * FROM {name}").fetchall()
        assert sorted((row[0]["start"], row[0]["end"], row[1]) for row in rows) == [
            (NOON, NOON + timedelta(minutes=1), 2),
            (NOON + timedelta(minutes=1), NOON + timedelta(minutes=2), 1),
        ]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        (
            "COUNT(DISTINCT *) AS a, COUNT(*) AS b, COUNT(DISTINCT x.*) AS c, FIRST(v) AS f",
            (1, 2, 1, 1),
        ),
        (
            "MAX(CONCAT_WS('-', *)) AS a, LAST(w) AS l",
            ("1-7", 7),
        ),
        ("SIZE(ARRAY(FIRST(v), LAST(v))) AS a, MAX(ARRAY(*)) AS b", (2, [1, 7])),
    ],
)
def test_a_star_in_a_call_stands_for_the_columns_of_the_log(db, items, expected):
    db.execute("CREATE SOURCE s (v INT, w INT); CREATE TABLE t (v INT PRIMARY KEY)")
    db.execute("INSERT INTO t VALUES (1)")
    db.execute(
        f"CREATE MATERIALIZED VIEW v AS SELECT {items} FROM s x WHERE v IN (SELECT v FROM t)"
    )
    db.insert("s", [(1, 7), (1, 7), (2, 8)])
    settle(db, "v")
    assert db.query("SELECT * FROM v").fetchall() == [expected]


def test_a_star_in_a_call_beside_windows(db):
    db.execute("CREATE SOURCE s (v INT, ts TIMESTAMP); CREATE TABLE t (v INT PRIMARY KEY)")
    db.execute("INSERT INTO t VALUES (1), (2)")
    hop = "HOP(ts, INTERVAL '1' MINUTE, INTERVAL '2' MINUTE)"
    db.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT COUNT(DISTINCT *) AS n FROM s "
        f"WHERE v IN (SELECT v FROM t) GROUP BY {hop}"
    )
    db.insert("s", [(1, NOON), (1, NOON), (2, NOON)])
    settle(db, "v")
    assert db.query("SELECT * FROM v").fetchall() == [(2,), (2,)]


GROWING = "CREATE SOURCE s (v INT, tags ARRAY<INT>); CREATE TABLE t (id INT PRIMARY KEY, n INT)"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT v FROM s UNION ALL SELECT v + 10 FROM s ORDER BY v LIMIT 2", [1, 2]),
        ("(SELECT v FROM s UNION ALL SELECT v + 10 FROM s) ORDER BY v DESC LIMIT 2", [12, 13]),
        ("(SELECT v FROM s) ORDER BY v LIMIT 2", [1, 2]),
        ("SELECT v FROM (SELECT v FROM s ORDER BY v LIMIT 1) x", [1]),
        ("SELECT MIN(v) AS v FROM s GROUP BY v > (SELECT MAX(n) FROM t)", [1, 3]),
        (
            "SELECT x AS v FROM s LATERAL VIEW EXPLODE(ARRAY((SELECT MAX(n) FROM t))) y AS x",
            [2] * 3,
        ),
    ],
)
def test_rows_that_go_again(db, sql, expected):
    db.execute(GROWING)
    db.execute("INSERT INTO t VALUES (1, 9)")
    db.execute(f"CREATE MATERIALIZED VIEW v AS {sql}")
    for each in (3, 2, 1):
        db.insert("s", [(each, [each])])
        db.flush()
    settle(db, "v")
    db.execute("UPDATE t SET n = 2")
    settle(db, "v")
    assert sorted(row[0] for row in db.query("SELECT * FROM v").fetchall()) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT {w} AS w, COUNT(*) AS n FROM s GROUP BY 1 ORDER BY n DESC LIMIT 1", [(NOON, 2)]),
        ("SELECT DISTINCT COUNT(*) AS n FROM s GROUP BY {w}", [(1,), (2,)]),
        (
            "SELECT COUNT(*) AS n, SUM(COUNT(*)) OVER (ORDER BY {w}) AS m FROM s GROUP BY {w}",
            [(1, 3), (1, 4), (2, 2)],
        ),
    ],
)
def test_rows_made_of_several_windows(db, sql, expected):
    db.execute("CREATE SOURCE s (v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts)")
    db.execute(f"CREATE MATERIALIZED VIEW v AS {sql.format(w=TUMBLE_START)}")
    for minute in (0, 0, 1, 2):
        db.insert("s", [(minute, NOON + timedelta(minutes=minute))])
        db.flush()
    settle(db, "v")
    assert sorted(db.query("SELECT * FROM v").fetchall()) == expected


def test_a_common_table_expression_that_goes_by_an_order_is_read_by_another(db):
    db.execute("CREATE SOURCE s (k INT, v INT); CREATE TABLE t (k INT PRIMARY KEY)")
    db.execute("INSERT INTO t VALUES (1), (2)")
    db.execute(
        "CREATE MATERIALIZED VIEW v AS WITH x AS (SELECT k, v FROM s "
        "WHERE k IN (SELECT k FROM t)), y AS (SELECT k, v, (SELECT FIRST(v) FROM x) AS f, "
        "(SELECT MODE(v) FROM x) AS m FROM x) "
        "SELECT k, LAST(v) AS l, MAX(f) AS f, LAST(m) AS m FROM y GROUP BY k"
    )
    db.insert("s", [(2, 9), (1, 4), (1, 5), (2, 4), (3, 1)])
    settle(db, "v")
    assert sorted(db.query("SELECT * FROM v").fetchall()) == [(1, 5, 9, 4), (2, 4, 9, 4)]
