"""The death of a thread of the database is reported to all that depend on it."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest

import millstream as ms
from millstream.testing import engine_of, inlet_of, wait_until


class BugError(Exception):
    """What nobody foresaw."""


def broken(*_, **__):
    raise BugError("no")


@pytest.fixture
def source(db):
    db.execute("CREATE SOURCE s (n BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts)")
    return db.source("s")


def test_of_a_callback(db, source, caplog):
    errors = []
    reader = db.subscribe_callback("SELECT n FROM s", lambda batch: None, on_error=errors.append)
    reader._next = broken
    db.insert("s", [(1, None)])
    wait_until(lambda: errors)
    assert isinstance(errors[0], ms.errors.SubscriptionEndedError)
    assert "BugError: no" in str(errors[0])
    assert reader.state == "failed"
    assert db.metrics()["subscribers"] == 0
    assert "millstream-callback" in caplog.text


def test_of_a_follower(db, source, monkeypatch, caplog):
    monkeypatch.setattr("millstream.views.follower.BadRows.split", broken)
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT n FROM s")
    with db.subscribe("SELECT n FROM v", start="now") as reader:
        db.insert("s", [(1, None)])
        with pytest.raises(ms.errors.ViewFailedError, match="BugError: no"):
            db.wait_for("v")
        with pytest.raises(ms.errors.ViewFailedError, match="BugError: no"):
            reader.recv(timeout=60)
    assert db.query("SHOW VIEWS").to_pylist()[0]["state"] == "failed"


def test_of_a_watch_over_idle_time(db, monkeypatch, caplog):
    monkeypatch.setattr("millstream.sources.event_time.IdleWatch._advance", broken)
    db.execute(
        "CREATE SOURCE i (ts TIMESTAMP, WATERMARK FOR ts AS ts) "
        "WITH (idle_timeout = '10 milliseconds')"
    )
    source = db.source("i")
    source.watermark(5)
    wait_until(lambda: inlet_of(source).closed is not None)
    with pytest.raises(ms.errors.ClosedError, match="BugError: no"):
        source.push((None,))


def test_of_the_dispatcher(tmp_path, monkeypatch, caplog):
    db = ms.open(tmp_path)
    db.execute("CREATE SOURCE s (n BIGINT)")
    reader = db.subscribe("SELECT n FROM s")
    monkeypatch.setattr(engine_of(db).dispatcher._loop, "_rest", broken)
    with pytest.raises(ms.errors.LogFailedError, match="BugError: no"):
        while True:
            db.flush()
    with pytest.raises(ms.errors.LogFailedError, match="BugError: no"):
        reader.recv(timeout=60)
    db.close()


@pytest.mark.parametrize(
    "name", ["segment_writer.SegmentWriter.refill_reserve", "writer.LogWriter.sync_written"]
)
def test_of_the_log(tmp_path, monkeypatch, caplog, name):
    monkeypatch.setattr(f"millstream.log.{name}", broken)
    db = ms.open(tmp_path)
    with pytest.raises(ms.errors.LogFailedError, match="BugError: no"):
        db.execute("CREATE SOURCE s (n BIGINT)")
        while True:
            db.insert("s", [(1,)])
            db.flush()
    with contextlib.suppress(ms.errors.LogFailedError):  # unless all was on the disk
        db.close()


FORGOTTEN = """
import millstream as ms, sys

def use():
    db = ms.open(sys.argv[1])
    db.execute("CREATE SOURCE s (n BIGINT)")
    db.subscribe_callback("SELECT n FROM s", lambda batch: db.lsn)
    db.insert("s", [(1,)])

use()
"""


@pytest.mark.slow
def test_a_forgotten_database_whose_callback_refers_to_it_is_closed_at_the_end(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-W", "always", "-c", FORGOTTEN, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "ResourceWarning" in ended.stderr
    with ms.Log(tmp_path) as log:
        assert log.recovery.clean
        assert [row for batch in log.read("s") for row in batch.rows] == [(1,)]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("max_delay", value) for value in (float("inf"), 1e300, float("nan"), -1, "1", True)),
        *(("max_rows", value) for value in (0, -1, 1.5, "1")),
        *(("buffer_rows", value) for value in (0, -1, 1.5)),
        *(("demand", value) for value in (-1, 1.5)),
    ],
)
def test_options_are_checked_at_the_door(db, source, option, value):
    for subscribe in (
        db.subscribe,
        db.subscribe_stream,
        lambda query, **options: db.subscribe_callback(query, print, **options),
    ):
        with pytest.raises(ms.errors.InvalidOptionError, match=option):
            subscribe("SELECT n FROM s", **{option: value})
    assert db.metrics()["subscribers"] == 0


@pytest.mark.parametrize("timeout", [float("nan"), -1, "1", True])
def test_timeouts_are_checked_at_the_door(db, source, timeout):
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT n FROM s")
    with pytest.raises(ms.errors.InvalidOptionError, match="timeout"):
        db.wait_for("v", timeout=timeout)
    with (
        db.subscribe("SELECT n FROM s") as reader,
        pytest.raises(ms.errors.InvalidOptionError, match="timeout"),
    ):
        reader.recv(timeout=timeout)


@pytest.mark.parametrize("lsn", [-1, 1.5, "1", True])
def test_an_lsn_to_wait_for_is_checked(db, source, lsn):
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT n FROM s")
    with pytest.raises(ms.errors.InvalidOptionError, match="lsn"):
        db.wait_for("v", lsn=lsn)


def test_a_timeout_without_end(db, source):
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT n FROM s")
    assert db.wait_for("v", timeout=float("inf")) == db.wait_for("v", timeout=1e300)


def test_a_view_that_begins_now_is_up_to_date_at_once(db, source):
    db.insert("s", [(1, None)])
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT n FROM s WITH (start = 'now')")
    db.wait_for("v", timeout=60)
    assert engine_of(db).views["v"].runner.state == "live"
    assert db.query("SELECT n FROM v").fetchall() == []
