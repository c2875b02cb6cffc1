"""Files of a database: only their owner may read them, whatever the umask is."""

from __future__ import annotations

import os
import stat

import pytest

import millstream as ms
from millstream.server.keys import Keys
from millstream.server.webhooks import Webhook, Webhooks
from millstream.testing import wait_until
from millstream.testing.child import Child


@pytest.fixture(autouse=True)
def _no_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def modes(path):
    """By path, the mode of what others than the owner may use."""
    found = {path, *path.rglob("*")}
    return {
        str(each): oct(stat.S_IMODE(each.stat().st_mode))
        for each in found
        if stat.S_IMODE(each.stat().st_mode) & 0o077
    }


def test_files_are_private(tmp_path):
    path = tmp_path / "deep" / "db"
    Keys(path).create("k")
    with ms.open(path, segment_bytes=1) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY); CREATE SOURCE s (n BIGINT)")
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT id FROM t WHERE id > 1")
        for _ in range(2):  # so many rows that those of the table are saved
            db.insert("t", {"id": range(60_000)}, replace=True)
        db.insert("s", [(1,)])
        db.flush()
        hooks = Webhooks(db, pause=lambda _: 0.001)
        hooks.add(Webhook("h", "SELECT n FROM s", "http://127.0.0.1:9/", "", attempts=1))
        db.insert("s", [(2,)])
        wait_until(lambda: hooks.shown(None)[0]["dead"] == 1)
        assert modes(path) == {}
        hooks.close()
    assert list(path.glob("rows/*.rows"))
    assert modes(path) == {}


def test_files_in_a_directory_that_was_there_are_private(tmp_path):
    path = tmp_path / "db"
    path.mkdir(mode=0o755)
    with ms.open(path) as db:
        db.execute("CREATE SOURCE s (n BIGINT)")
        db.insert("s", [(1,)])
        db.flush()
    assert modes(path) == {str(path): "0o755"}


@pytest.mark.slow
def test_files_of_spark_are_private(tmp_path):
    """In a process of its own: the Java of this one may be another database's."""
    path = tmp_path / "db"
    with Child(path) as child:
        child.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT)")
        child.execute("CREATE MATERIALIZED VIEW v AS SELECT k, COUNT(*) AS n FROM t GROUP BY k")
        child.execute("INSERT INTO t VALUES (1, 1), (2, 1)")
        assert child.execute("SELECT n FROM v") == [[2]]
        assert (path / "spark" / "spark.log").exists()
        assert modes(path) == {}
    assert modes(path) == {}
