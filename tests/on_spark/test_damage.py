"""A view on Spark over a damaged source fails by itself, and goes on once the damage is skipped."""

from __future__ import annotations

import pytest

import millstream as ms
from millstream.errors import ViewFailedError

pytestmark = pytest.mark.slow


def test_a_view_over_a_damaged_source(tmp_path):
    with ms.open(tmp_path) as db:
        for name in ("a", "b"):
            db.execute(f"CREATE SOURCE {name} (n BIGINT, text VARCHAR) WITH (wal_mode = 'sync')")
            for n in range(20):
                db.insert(name, [(n, f"{name}-row-{n:02d}")])
    (segment,) = tmp_path.glob("*.seg")
    raw = bytearray(segment.read_bytes())
    raw[raw.index(b"a-row-07")] ^= 1
    segment.write_bytes(raw)
    with ms.open(tmp_path) as db:
        for name in ("a", "b"):
            db.execute(f"CREATE MATERIALIZED VIEW of_{name} AS SELECT COUNT(*) AS n FROM {name}")
        db.wait_for(view="of_b", lsn=db.lsn, timeout=120)
        with pytest.raises(ViewFailedError, match="damaged"):
            db.wait_for(view="of_a", lsn=db.lsn, timeout=120)
        assert db.query("SELECT n FROM of_b").fetchall() == [(20,)]
        db.execute("ALTER SOURCE a SKIP DAMAGE")
        db.execute("CREATE OR REPLACE MATERIALIZED VIEW of_a AS SELECT COUNT(*) AS n FROM a")
        db.wait_for(view="of_a", lsn=db.lsn, timeout=120)
        assert db.query("SELECT n FROM of_a").fetchall() == [(19,)]
