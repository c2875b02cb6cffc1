"""Views on Spark, followed by a client of PostgreSQL's protocol."""

import pytest
from tests.server.postgres.conftest import Served


@pytest.fixture
def served(db):
    made = Served(db)
    yield made
    made.stop()


def test_a_view_and_a_query_are_followed(served):
    with served.connect() as client:
        client.execute("CREATE SOURCE trades (symbol TEXT, qty INT8)")
        client.execute(
            "CREATE MATERIALIZED VIEW totals AS "
            "SELECT symbol, SUM(qty) AS qty FROM trades GROUP BY symbol"
        )
        served.db.wait_for("totals", timeout=60)  # else the row may be in the snapshot
        client.execute("DECLARE v CURSOR FOR SUBSCRIBE totals")
        sql = "SUBSCRIBE SELECT symbol, COUNT(*) AS n FROM trades GROUP BY symbol"
        client.execute(f"DECLARE q CURSOR FOR {sql}")
        client.execute("INSERT INTO trades VALUES (%s, %s)", ["AAPL", 5])
        served.db.wait_for("totals", timeout=60)
        [row] = client.execute("FETCH ALL v WITH (timeout = '60s')").fetchall()
        assert row[1:3] + row[4:] == ("insert", 1, "AAPL", 5)
        [row] = client.execute("FETCH ALL q WITH (timeout = '60s')").fetchall()
        assert row[1:3] + row[4:] == ("insert", 1, "AAPL", 1)
        client.execute("INSERT INTO trades VALUES (%s, %s)", ["AAPL", 2])
        found = client.execute("FETCH ALL v WITH (timeout = '60s')").fetchall()
        assert [each[1:3] + each[4:] for each in found] == [
            ("update", -1, "AAPL", 5),
            ("update", 1, "AAPL", 7),
        ]
        assert client.execute("SELECT qty FROM totals").fetchall() == [(7,)]
        [row] = client.execute("SELECT matviewname, definition FROM pg_matviews").fetchall()
        assert row[0] == "totals"
        assert row[1].startswith("SELECT symbol")
