"""Views on Spark that earlier versions wrote go on in this one. See docs/releasing.md."""

from __future__ import annotations

from datetime import UTC, datetime

import millstream as ms
from millstream.testing import Mirror, engine_of, wait_until

from ..kept import as_json, each_version, unpack  # noqa: TID252 - tests have no name
from .observing import settle

QUERIES = {
    "totals": "SELECT SUM(qty) FROM trades GROUP BY symbol",
    "overall": "SELECT COUNT(*), MIN(price) FROM trades",
    "busy": "SELECT symbol, SUM(qty) FROM trades GROUP BY symbol HAVING COUNT(*) > 5",
    "hours": "SELECT COUNT(*) FROM trades GROUP BY symbol, TUMBLE(ts, INTERVAL '1 hour')",
    "names": "SELECT DISTINCT symbol FROM trades",
}
LATER = datetime(2026, 1, 2, 12, 10, tzinfo=UTC)


@each_version
def test_every_row_is_there_and_views_go_on(version, tmp_path, spark):
    path, holds = unpack(version, "on-spark", tmp_path)
    with ms.open(path, spark=spark) as db:
        views_of = engine_of(db).views
        anew = set(views_of.outdated)
        waiting = {"minutes", "busy", "calls", "final"} & holds["rows"].keys()
        assert anew == waiting, "what waits before it is emitted"
        for name, rows in holds["rows"].items():  # before Spark has looked at them
            if name not in anew:
                found = db.query(f"SELECT * FROM {name}", stale_ok=True).fetchall()
                assert as_json(found) == rows, name
        wait_until(lambda: not views_of.outdated)
        views = [name for name in holds["rows"] if name not in {"trades", "companies"}]
        settle(db, *views)
        for name, rows in holds["rows"].items():
            assert as_json(db.query(f"SELECT * FROM {name}").fetchall()) == rows, name

        follower = Mirror(db.subscribe("SELECT * FROM volumes"))
        before = dict(db.query("SELECT symbol, volume FROM volumes").fetchall())
        minutes = db.query("SELECT * FROM minutes").fetchall()
        db.insert("trades", [("AAPL", 1000.0, 10_000, LATER)])
        db.insert("companies", [("ÅÄÖ", "Three letters")])
        settle(db, *views)
        after = follower.catch_up(db, "volumes").fetchall()
        assert dict(row[:2] for row in after) == before | {"AAPL": before["AAPL"] + 10_000}
        assert ("AAPL", 10_000, 1) in db.query("SELECT * FROM ranks").fetchall()
        named = db.query("SELECT COUNT(*) FROM named WHERE name = 'Three letters'").fetchall()
        assert named == db.query("SELECT COUNT(*) FROM trades WHERE symbol = 'ÅÄÖ'").fetchall()
        closed = db.query("SELECT * FROM minutes").fetchall()
        assert set(minutes) < set(closed)
        assert sum(row[2] for row in closed) == 60  # all that came before 12:10
        for name in set(views) & QUERIES.keys():
            wanted = db.query(QUERIES[name]).fetchall()
            assert as_json(db.query(f"SELECT * FROM {name}").fetchall()) == as_json(wanted), name
