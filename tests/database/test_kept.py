"""This version opens what earlier versions wrote, and goes on from there. See docs/releasing.md."""

from __future__ import annotations

from decimal import Decimal

import millstream as ms
from millstream.server.keys import Keys
from millstream.testing import Mirror

from ..kept import VERSIONS, as_json, each_version, unpack  # noqa: TID252 - tests have no name


def test_a_released_version_has_kept_a_database():
    assert VERSIONS
    assert "dev" in ms.__version__ or ms.__version__ in VERSIONS, "run tools/keep_database.py"


@each_version
def test_every_row_is_there(version, tmp_path):
    path, holds = unpack(version, "plain", tmp_path)
    for _ in range(2):  # as it was left by a crash, and as this version has closed it
        with ms.open(path) as db:
            for name, rows in holds["rows"].items():
                assert as_json(db.query(f"SELECT * FROM {name}").fetchall()) == rows, name
            past = db.query(f"SELECT * FROM accounts AS OF {holds['past']['lsn']}").fetchall()
            assert as_json(past) == holds["past"]["accounts"]


@each_version
def test_it_goes_on(version, tmp_path):
    path, _ = unpack(version, "plain", tmp_path)
    with ms.open(path) as db:
        billing = Mirror(db.subscribe("SELECT * FROM accounts", name="billing"))
        # Its snapshot was acknowledged, which had these; what came after it was not delivered.
        billing.rows.update((n, f"owner {n}", Decimal(n * 10), None) for n in range(20))
        large = Mirror(db.subscribe("SELECT * FROM large"))
        db.insert("accounts", [(100, "new", Decimal(500), "a note")])
        db.execute("DELETE FROM accounts WHERE id = 0")
        db.insert("trades", [("NEW", 2.0, 60, None)])
        assert ("NEW", 120.0) in large.catch_up(db, "large").fetchall()
        assert (100, "new") in db.query("SELECT * FROM rich").fetchall()
        assert db.query("SELECT COUNT(*) FROM made").fetchall() == [(20,)]
        accounts = db.query("SELECT * FROM accounts").fetchall()
        assert sorted(billing.catch_up(db).fetchall()) == sorted(accounts)


@each_version
def test_its_keys_are_there(version, tmp_path):
    path, _ = unpack(version, "plain", tmp_path)
    keys = [(key.name, key.role, key.tenant) for key in Keys(path)]
    assert keys == [("dashboard", "read", "acme")]
