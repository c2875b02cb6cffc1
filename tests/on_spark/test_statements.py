"""Statements about views: what goes with what, what is refused, what stays as it was."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import millstream as ms
from millstream.testing import TIMEOUT, engine_of
from millstream.views.on_spark import LateLog
from millstream.views.run import live
from millstream.views.run.checkpoint import offset_in

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def settled(db, *names):
    for name in names:
        db.wait_for(name, timeout=TIMEOUT)


def test_late_rows_streams_and_cascades(db):
    db.execute(
        "CREATE SOURCE t (k VARCHAR, ts TIMESTAMP, other TIMESTAMP, "
        "WATERMARK FOR ts AS ts - INTERVAL '1 second');"
        "CREATE TABLE d (k VARCHAR PRIMARY KEY, n VARCHAR);"
        "CREATE STREAM counted AS SELECT k, COUNT(*) AS n FROM t GROUP BY k;"
        "CREATE STREAM joined AS SELECT t.k, d.n FROM t JOIN d ON t.k = d.k;"
        "CREATE MATERIALIZED VIEW untimed AS SELECT COUNT(*) AS n FROM t "
        "GROUP BY TUMBLE(other, INTERVAL '1 minute');"
        "CREATE MATERIALIZED VIEW timed AS SELECT COUNT(*) AS n FROM t "
        "GROUP BY TUMBLE(ts, INTERVAL '1 minute') LATE DATA TO late"
    )
    for key, seconds in (("a", 0), ("b", 200), ("a", 5)):
        db.source("t").push((key, NOON + timedelta(seconds=seconds), NOON))
        db.flush()
    db.execute("INSERT INTO d VALUES ('a', 'x')")
    db.execute("UPDATE d SET n = 'y' WHERE k = 'a'")
    settled(db, "counted", "joined", "untimed", "timed")
    ask = lambda sql: sorted(db.query(sql).fetchall())  # noqa: E731
    assert ask("SELECT * FROM counted") == [("a", 2), ("b", 1)]
    assert ask("SELECT * FROM joined") == [("a", "y"), ("a", "y")]
    assert ask("SELECT * FROM untimed") == [(3,)]  # not the column that the watermark is of
    assert ask("SELECT * FROM timed") == [(1,), (1,)]
    assert ask("SELECT COUNT(*) AS n FROM late") == [(1,)]
    assert {each["name"] for each in db.query("SHOW STREAMS").to_pylist()} >= {"late", "counted"}
    with pytest.raises(ms.errors.WrongObjectError):
        db.wait_for("late")
    db.execute("CREATE MATERIALIZED VIEW of_late AS SELECT k, COUNT(*) AS n FROM late GROUP BY k")
    settled(db, "of_late")
    assert ask("SELECT * FROM of_late") == [("a", 1)]
    with pytest.raises(ms.errors.InUseError, match="counted"):
        db.execute("DROP SOURCE t")
    db.execute("DROP SOURCE t CASCADE")
    assert db.query("SHOW VIEWS").to_pylist() == db.query("SHOW STREAMS").to_pylist() == []


def test_wait_for_a_view_includes_its_late_rows(db, monkeypatch):
    append = LateLog.append

    def append_later(late_log, batch):
        """When rows of another view have come back from Spark: a wait_for that ignores late rows
        has returned too early by then."""
        for n in range(3):
            db.source("other").push((n,))
            settled(db, "back")
        append(late_log, batch)

    monkeypatch.setattr(LateLog, "append", append_later)
    db.execute(
        "CREATE SOURCE other (n BIGINT);"
        "CREATE MATERIALIZED VIEW back AS SELECT COUNT(*) AS n FROM other;"
        "CREATE SOURCE t (k BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts);"
        "CREATE MATERIALIZED VIEW m AS SELECT COUNT(*) AS n FROM t "
        "GROUP BY TUMBLE(ts, INTERVAL '1 minute') LATE DATA TO late"
    )
    source, hour = db.source("t"), timedelta(hours=1)
    source.push((0, NOON + hour))
    settled(db, "m", "back")
    for pushed in range(1, 6):
        source.push((pushed, NOON))
        settled(db, "m")
        assert db.query("SELECT COUNT(*) AS n FROM late").fetchall() == [(pushed,)]
    source.push_batch([(place, NOON) for place in range(500)])
    settled(db, "m")
    assert db.query("SELECT COUNT(*) AS n FROM late").fetchall() == [(505,)]


def test_late_results_of_a_view_that_was_replaced_go_nowhere(db):
    db.execute("CREATE SOURCE t (k VARCHAR, v BIGINT)")
    db.execute("CREATE MATERIALIZED VIEW m AS SELECT k, SUM(v) AS s FROM t GROUP BY k")
    db.source("t").push(("a", 1))
    settled(db, "m")
    old = engine_of(db).views["m"].view
    db.execute("CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT k, MAX(v) AS s FROM t GROUP BY k")
    settled(db, "m")
    values = {"s": [7, 7], "_lsn": [10**6] * 2, "_weight": [1, 1]}
    results = pa.RecordBatch.from_pydict({"k": ["a", "b"]} | values)
    lsn = db.lsn
    old.take([results], 10**6, None)
    assert db.lsn == lsn
    assert db.query("SELECT * FROM m").fetchall() == [("a", 1)]


def test_a_view_is_replaced_only_by_one_that_can_be(db):
    db.execute("CREATE SOURCE t (k VARCHAR, v BIGINT)")
    db.execute("CREATE MATERIALIZED VIEW m AS SELECT k, SUM(v) AS s FROM t GROUP BY k")
    db.insert("t", [("a", 1), ("a", 2)])
    settled(db, "m")
    with pytest.raises(ms.errors.SqlColumnError):
        db.execute("CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT nope FROM t GROUP BY nope")
    with pytest.raises(ms.errors.InUseError):
        db.execute("CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT k, s FROM m WHERE s > 0")
    windowed = "SELECT COUNT(*) AS n FROM timed GROUP BY TUMBLE(ts, INTERVAL '1 minute')"
    with pytest.raises(ms.errors.ObjectExistsError):
        db.execute(
            "CREATE SOURCE timed (ts TIMESTAMP, WATERMARK FOR ts AS ts);"
            f"CREATE OR REPLACE MATERIALIZED VIEW m AS {windowed} LATE DATA TO t"
        )
    assert db.query("SELECT * FROM m").fetchall() == [("a", 3)]
    db.execute("CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT k, MAX(v) AS s FROM t GROUP BY k")
    settled(db, "m")
    assert db.query("SELECT * FROM m").fetchall() == [("a", 2)]


def test_retention_is_refused_where_rows_are_read_again(db):
    db.execute("CREATE SOURCE t (k VARCHAR)")
    retention = "WITH (retention = '1 day')"
    with pytest.raises(ms.errors.SqlOptionError, match="retention"):
        db.execute(f"CREATE MATERIALIZED VIEW r AS SELECT k FROM t {retention}")
    # A stream keeps no rows, of groups neither.
    db.execute(f"CREATE STREAM r AS SELECT k, COUNT(*) AS n FROM t GROUP BY k {retention}")


def test_star_is_the_columns_at_creation(tmp_path, spark):
    names = ("plain", "passed", "computed")
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute(
            "CREATE SOURCE t (k VARCHAR, v BIGINT);"
            "CREATE MATERIALIZED VIEW plain AS SELECT * FROM t;"
            "CREATE STREAM passed AS SELECT * FROM t WHERE v > 0;"
            "CREATE MATERIALIZED VIEW computed AS SELECT *, log10(v) AS l FROM t"
        )
        db.insert("t", [("a", 1)])
        settled(db, *names)
        db.execute("ALTER SOURCE t ADD COLUMN note VARCHAR")
        db.insert("t", [("b", 10, "new")])
        settled(db, *names)
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.insert("t", [("c", 100, "newer")])
        settled(db, *names)
        two = [("a", 1), ("b", 10), ("c", 100)]
        assert db.query("SELECT * FROM plain").fetchall() == two
        assert db.query("SELECT * FROM passed").fetchall() == two
        computed = [("a", 1, 0.0), ("b", 10, 1.0), ("c", 100, 2.0)]
        assert db.query("SELECT * FROM computed").fetchall() == computed


def test_a_live_batch_ends_after_some_rows_and_the_next_one_goes_on(db, monkeypatch):
    monkeypatch.setattr(live, "LIVE_ROWS", 40)
    db.execute("CREATE SOURCE t (k BIGINT)")
    db.execute(
        "CREATE MATERIALIZED VIEW m AS SELECT k % 7 AS g, COUNT(*) AS n FROM t GROUP BY k % 7"
    )
    settled(db, "m")
    source, running = db.source("t"), engine_of(db).views["m"]
    for number in range(300):
        source.push((number,))
        if number % 25 == 0:
            settled(db, "m")
    settled(db, "m")
    rows = sorted(db.query("SELECT * FROM m").fetchall())
    assert rows == [(g, len(range(g, 300, 7))) for g in range(7)]
    assert running.runner.state == "live"
    place = offset_in(engine_of(db).views.storage.checkpoint_of(running.planned.definition))
    assert place is not None  # at least one checkpoint, although nothing was stopped


CLOCKS = [
    ("SELECT id, CAST('now' AS TIMESTAMP) AS n FROM t", 17),
    ("SELECT id, TIMESTAMP 'now' AS n FROM t", 22),
    ("SELECT id, DATE 'Tomorrow' AS n FROM t", 17),
    ("SELECT id, to_date('now') AS n FROM t", 20),
    ("SELECT id, to_timestamp('today UTC') AS n FROM t", 25),
    ("SELECT id, TRY_CAST(' NOW ' AS TIMESTAMP) AS n FROM t", 21),
    ("SELECT id FROM t WHERE ts > 'yesterday'", 29),
    ("SELECT id FROM t WHERE ts > CAST(CONCAT('to', 'day') AS DATE)", 1),
    ("SELECT ts < 'now' AS past, COUNT(*) AS n FROM t GROUP BY 1", 13),
    ("SELECT COUNT(*) AS n FROM t GROUP BY id HAVING MAX(ts) < 'now'", 58),
    ("SELECT id, date_format(curdate(), 'y') AS n FROM t", 24),
    ("SELECT id, COALESCE(ts, 'now') AS n FROM t", 25),
]


def test_a_view_cannot_read_the_clock(db):
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, ts TIMESTAMP, s VARCHAR)")
    for query, column in CLOCKS:
        with pytest.raises(ms.errors.SqlUnsupportedError, match="supported in a view") as caught:
            db.execute(f"CREATE MATERIALIZED VIEW v AS\n{query}")
        line = 1 if column == 1 else 2
        assert (caught.value.line, caught.value.column) == (line, column), query
        assert "function of its log" in caught.value.hint


def test_now_is_allowed_in_strings(db):
    db.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR);"
        "INSERT INTO t VALUES (1, 'now'), (2, 'today'), (3, NULL);"
        "CREATE MATERIALIZED VIEW v AS SELECT s = 'now' AS now, COUNT(*) AS n FROM t GROUP BY 1;"
        "CREATE MATERIALIZED VIEW w AS SELECT try_cast(s AS TIMESTAMP) AS x, 'today' AS y FROM t"
    )
    settled(db, "v")
    settled(db, "w")
    assert sorted(db.query("SELECT * FROM v").fetchall(), key=repr) == [
        (False, 1),
        (None, 1),
        (True, 1),
    ]
    # As in Spark, only texts of the query are read so, not those of a column.
    assert db.query("SELECT DISTINCT x, y FROM w").fetchall() == [(None, "today")]
