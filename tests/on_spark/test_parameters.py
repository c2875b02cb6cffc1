"""A parameter in a query that Spark keeps: as exact as the literal, and shared like it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

VALUES = {
    "i": -(2**63),
    "d": 0.1,
    "m": Decimal("-1.50"),
    "t": "it's \\ ? 🦆",
    "b": b"\x00\xff",
    "day": date(2026, 1, 2),
    "ts": datetime(2026, 1, 2, 12, 0, 0, 1, tzinfo=UTC),
    "flag": True,
}


def test_values_of_every_type_in_a_shared_query(db):
    db.execute(
        "CREATE SOURCE s (i BIGINT, d DOUBLE, m DECIMAL(10, 2), t VARCHAR, b BINARY, day DATE, "
        "ts TIMESTAMP, flag BOOLEAN)"
    )
    db.insert("s", [VALUES, VALUES, {"i": 1, "t": "its"}])
    where = " AND ".join(f"{name} = :{name}" for name in VALUES)
    sql = (
        f"SELECT count(*) AS n, max(ts + :late) AS late FROM s WHERE {where} AND t IN (:several) "
        "AND NOT isnan(d + :nan - :nan - 1) OR i = :one"
    )
    more = {"late": timedelta(seconds=1.5), "several": ["x", VALUES["t"]], "nan": 0.5, "one": 10}
    subscription = db.subscribe(sql, VALUES | more)
    written = db.subscribe(subscription.sql)
    for each in (subscription, written):
        assert each.recv(timeout=90).rows == [(2, VALUES["ts"] + timedelta(seconds=1.5))]
    # One view answers both.
    assert subscription.target == written.target
    assert db.query(sql, VALUES | more).fetchall() == [(2, VALUES["ts"] + timedelta(seconds=1.5))]
