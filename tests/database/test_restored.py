"""A database that is set back to an older copy: tokens of the runs that are lost are not taken."""

import shutil

import millstream as ms
from millstream.testing import TIMEOUT, Mirror


def test_tokens_of_a_lost_run(tmp_path):
    with ms.open(tmp_path / "db") as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)")
        db.insert("t", [(1, "kept")])
        old = next(iter(db.subscribe("SELECT * FROM t"))).token
    shutil.copytree(tmp_path / "db", tmp_path / "copy")
    with ms.open(tmp_path / "db") as db:
        db.insert("t", [(2, "lost"), (3, "lost")])
        db.flush()
        subscription = db.subscribe("SELECT * FROM t")
        lost = Mirror(subscription)
        lost.catch_up(db)
        token = subscription.token
    shutil.rmtree(tmp_path / "db")
    shutil.copytree(tmp_path / "copy", tmp_path / "db")
    with ms.open(tmp_path / "db") as db:
        db.insert("t", [(4, "new"), (5, "new"), (6, "new")])
        db.flush()
        batch = db.subscribe("SELECT * FROM t", start=token).recv(TIMEOUT)
        assert batch.kind == "snapshot"
        assert sorted(row[0] for row in batch.rows) == [1, 4, 5, 6]
        batch = db.subscribe("SELECT * FROM t", start=old).recv(TIMEOUT)
        assert (batch.kind, [row[0] for row in batch.rows]) == ("changes", [4, 5, 6])
