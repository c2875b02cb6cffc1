"""Every query of ``refused_by_spark.sql`` is refused as it says there: class, place, hint."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream import errors
from millstream.errors import SqlError

FIXTURE = Path(__file__).parents[1] / "sql" / "fixtures" / "refused_by_spark.sql"
CREATE = "CREATE MATERIALIZED VIEW v AS "
SCHEMA = """
    CREATE SOURCE trades (symbol VARCHAR, price DOUBLE, qty BIGINT, ts TIMESTAMP,
        tags ARRAY<VARCHAR>, WATERMARK FOR ts AS ts);
    CREATE SOURCE orders (symbol VARCHAR, amount DECIMAL(10, 2), at TIMESTAMP);
    CREATE TABLE accounts (id INT PRIMARY KEY, symbol VARCHAR, owner VARCHAR,
        balance DECIMAL(12, 2), rate DOUBLE, small SMALLINT, active BOOLEAN);
"""


def blocks():
    return [each.rstrip("\n").split("\n") for each in FIXTURE.read_text().split("\n\n")[1:]]


def test_refused(db):
    db.execute(SCHEMA)
    assert len(blocks()) > 20
    for sql, caret, error, hint in blocks():
        with pytest.raises(SqlError) as caught:
            db.execute(CREATE + sql)
        found = caught.value
        kind, message = error.removeprefix("-- ").split(": ", 1)
        assert (type(found), found.message) == (getattr(errors, kind), message), sql
        assert found.hint == hint.removeprefix("-- hint: "), sql
        assert max(1, found.column - len(CREATE)) == len(caret), sql
    assert db.query("SHOW VIEWS").fetchall() == []
