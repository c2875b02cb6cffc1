"""Random DDL from eight sessions and four connections, killed again and again.

After each kill the catalog is consistent, and each view has what its query gives. For some seconds,
or ten minutes in ``make proof``; ``MILLSTREAM_SEED`` says which dice.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import millstream as ms
from millstream.engine.consistency import inconsistencies
from millstream.testing import TIMEOUT, engine_of

from ..effort import effort  # noqa: TID252
from ..seed import SEED  # noqa: TID252

MINUTES = effort(0.3, 10)
EXPECTED = {
    "InUseError",
    "ObjectExistsError",
    "ObjectNotFoundError",
    "SubscriptionEndedError",
    "SubscriptionExistsError",
    "ViewNotReadyError",  # of wait_for, on a busy machine
    "DuplicateKeyError",
    "SqlUnsupportedError",  # INSERT OR REPLACE into a source
    "SqlColumnError",
    "WrongObjectError",
}
"""What such a walk may be told; all else is a defect."""


class Walk:
    """The process that changes what exists, and the errors that it prints."""

    def __init__(self, path, seed):
        script = Path(__file__).with_name("ddl_walk.py")
        self.process = subprocess.Popen(
            [sys.executable, script, path, str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.errors = []
        self.reading = threading.Thread(target=self.read)
        try:
            assert self.process.stdout.readline() == "open\n"
        finally:
            self.reading.start()

    def read(self):
        for line in self.process.stdout:
            if line.endswith("\n"):  # else it was killed just there
                self.errors.append(json.loads(line))

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.reading.join()
        self.process.stdin.close()
        self.process.stdout.close()


def is_defect(name, text):
    if name == "WrongObjectError":
        first, _, second = text.split("\n")[0].partition(", not a ")
        return first.endswith(f" is a {second}")  # w is a view, not a view
    return name not in EXPECTED


def check(path):
    """Open the directory, and compare each view with its query; returns how many there are."""
    with ms.open(path) as db:
        assert not inconsistencies(engine_of(db))
        shown = [*db.query("SHOW VIEWS").to_pylist(), *db.query("SHOW STREAMS").to_pylist()]
        for each in shown:
            name = each["name"]
            db.wait_for(name, timeout=TIMEOUT)
            found = Counter(db.query(f"SELECT * FROM {name}").fetchall())
            columns = db.schema(name).names  # others may have been added to what it reads
            rows = db.query(each["query"].partition(" AS ")[2]).to_pylist()
            assert found == Counter(tuple(row[it] for it in columns) for row in rows), each
        return len(shown)


@pytest.mark.slow
@pytest.mark.timeout(60 * MINUTES + 300)
def test_the_catalog_is_consistent_after_each_kill(tmp_path):
    dice, errors, views, kills = random.Random(f"{SEED} ddl"), Counter(), 0, 0
    until = time.monotonic() + 60 * MINUTES
    while time.monotonic() < until:
        walk = Walk(tmp_path / "db", dice.random())
        try:
            time.sleep(dice.uniform(0.2, 4.0))
            assert walk.process.poll() is None
        finally:
            walk.kill()
        kills += 1
        for name, text, sql in walk.errors:
            assert not is_defect(name, text), f"{sql}: {name}: {text}"
            errors[name] += 1
        views += check(tmp_path / "db")
    found = dict(errors.most_common())
    sys.stdout.write(f"\n{kills} kills, {views} views compared, errors: {found}\n")
