"""A disk that is full: a connector waits, says so, and goes on with every row once."""

import itertools

import pytest

import millstream as ms
from millstream.dispatch import loop
from millstream.log import lifecycle
from millstream.testing import wait_until

from ..disks import mounted  # noqa: TID252 - tests have no name
from . import samples


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Try a full disk again at once."""
    monkeypatch.setattr(loop, "_RETRY", 0.01)
    monkeypatch.setattr(lifecycle, "RETRY", 0.01)


def test_it_waits_for_room_and_loses_nothing(tmp_path):
    lines = tmp_path / "lines"
    lines.touch()
    payload = "x" * 500
    with (
        mounted(tmp_path / "disk", "4m") as disk,
        ms.open(disk.path / "db", segment_bytes=1 << 18) as db,
    ):
        db.execute(
            "CREATE SOURCE k (id BIGINT, v VARCHAR) WITH (connector = "
            f"'{samples.Lines.name}', path = '{lines}', retry_delay = '10 ms', "
            "retry_max_delay = '10 ms', retry_limit = 1000000)"
        )

        def error():
            return db.metrics()["connectors"]["k"]["error"]

        file = lines.open("a", buffering=1)
        added = itertools.count()

        def add(count):
            file.writelines(f'[{n}, "{payload}"]\n' for n in itertools.islice(added, count))

        def is_reported():
            add(1)  # what was read before the disk was found to be full is only written later
            return "No space left" in (error() or "")

        disk.fill()
        with file:
            add(700)
            wait_until(is_reported, "an error")
            add(700)
        rows = next(added)
        disk.free()
        wait_until(lambda: len(db.query("SELECT id FROM k")) == rows, "all rows")
        assert db.query("SELECT COUNT(DISTINCT id) FROM k").fetchall() == [(rows,)]
        wait_until(lambda: error() is None, "no error")
