"""The five walks of CONTRIBUTING: which files a row, a statement or an opening really passes.

    python tools/walks.py       # the files, and how often a call crosses the border of a package
    python tools/walks.py -v    # every crossing, too

Each walk runs for real, on Spark where it needs Spark, while the calls between our functions are
recorded. A crossing is a call from a function of one package to a function of another; each pair
counts once. ``model``, ``errors`` and ``threads``, which everything stands on, do not count.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Self

import millstream as ms

ROOT = str(Path(ms.__file__).parent) + "/"
GROUND = {"model", "errors.py", "threads.py", "__init__.py"}
TIMEOUT = 120


class Walk:
    """Records the calls between functions of ours, in all threads, while it is entered."""

    current: Walk | None = None

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.crossings: dict[tuple[str, str, str, str], None] = {}

    def __enter__(self) -> Self:
        Walk.current = self
        return self

    def __exit__(self, *_: object) -> None:
        Walk.current = None

    def record(self, frame: Any) -> None:  # noqa: ANN401 - a frame
        """Note a call."""
        code = frame.f_code
        if not code.co_filename.startswith(ROOT):
            return
        file = code.co_filename[len(ROOT) :]
        self.files.setdefault(file)
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(ROOT):
            caller = caller.f_back
        if caller is None:
            return
        other = caller.f_code.co_filename[len(ROOT) :]
        packages = {package(other), package(file)}
        if len(packages) == 2 and not packages & GROUND:
            crossing = (other, caller.f_code.co_qualname, file, code.co_qualname)
            self.crossings.setdefault(crossing)

    def report(self, title: str) -> None:
        """Print what it has recorded."""
        files = [file for file in self.files if package(file) not in GROUND]
        packages = {package(file) for file in files}
        size = f"{len(files)} files, {len(packages)} packages"
        print(f"{title}: {len(self.crossings)} crossings; {size}")
        print("   " + " > ".join(files))
        if "-v" in sys.argv:
            for caller, function, file, called in self.crossings:
                print(f"      {caller} {function} -> {file} {called}")


def package(file: str) -> str:
    """The package of a file, or the file itself beside the packages."""
    return file.split("/", maxsplit=1)[0]


def on_event(frame: Any, event: str, _: object) -> None:  # noqa: ANN401 - a frame
    """What ``sys.setprofile`` calls."""
    if event == "call" and Walk.current is not None:
        Walk.current.record(frame)


def receive(subscription: ms.Subscription, is_last: Any) -> None:  # noqa: ANN401 - a predicate
    """Take batches until one is the last."""
    while not is_last(subscription.recv(timeout=TIMEOUT)):
        pass


def to_a_callback() -> Walk:
    """A row to a callback."""
    with ms.open() as db:
        db.execute("CREATE SOURCE s (n BIGINT, t VARCHAR)")
        done = threading.Event()
        db.subscribe_callback("SELECT n FROM s WHERE n > 0", lambda _batch: done.set())
        source = db.source("s")
        with Walk() as walk:
            source.push((1, "a"))
            done.wait(TIMEOUT)
            db.flush()
        return walk


def with_views() -> tuple[Walk, Walk, Walk]:
    """A row through a live view; an UPDATE through a join; CREATE VIEW."""
    with ms.open() as db:
        db.execute("CREATE SOURCE s (k BIGINT, n BIGINT)")
        db.execute("CREATE TABLE d (k BIGINT PRIMARY KEY, name VARCHAR)")
        db.execute("INSERT INTO d VALUES (1, 'one')")
        db.execute("CREATE MATERIALIZED VIEW first AS SELECT k, COUNT(*) AS c FROM s GROUP BY k")
        db.wait_for("first", timeout=TIMEOUT)  # Spark runs
        db.execute("DROP VIEW first")
        with Walk() as create:
            db.execute("CREATE MATERIALIZED VIEW sums AS SELECT k, SUM(n) AS t FROM s GROUP BY k")
        db.wait_for("sums", timeout=TIMEOUT)
        db.execute("CREATE MATERIALIZED VIEW j AS SELECT d.name, s.n FROM s JOIN d ON s.k = d.k")
        db.wait_for("j", timeout=TIMEOUT)
        sums = db.subscribe("SELECT * FROM sums")
        receive(sums, lambda batch: batch.kind == "snapshot")
        db.insert("s", [(1, 10)])
        receive(sums, len)
        with Walk() as live:
            db.insert("s", [(1, 20)])
            receive(sums, len)
        db.wait_for("j", timeout=TIMEOUT)
        joined = db.subscribe("SELECT * FROM j")
        with Walk() as update:
            db.execute("UPDATE d SET name = 'uno' WHERE k = 1")
            receive(joined, lambda batch: any("uno" in row for row in batch.rows))
        return live, update, create


KILLED = """
import os, sys, millstream as ms
db = ms.open(sys.argv[1])
db.execute("CREATE SOURCE s (k BIGINT, n BIGINT)")
db.execute("CREATE TABLE d (k BIGINT PRIMARY KEY, name VARCHAR)")
db.execute("INSERT INTO d VALUES (1, 'one')")
db.execute("CREATE MATERIALIZED VIEW sums AS SELECT k, SUM(n) AS total FROM s GROUP BY k")
db.insert("s", [(1, 10)])
db.wait_for("sums", timeout=120)
db.flush()
os.kill(os.getpid(), 9)
"""


def after_a_kill() -> Walk:
    """Opening after a kill."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/db"
        subprocess.run([sys.executable, "-c", KILLED, path], check=False)
        with Walk() as walk:
            db = ms.open(path)
        with db:
            db.wait_for("sums", timeout=TIMEOUT)
            rows = db.query("SELECT * FROM sums").fetchall()
            if rows != [(1, 10)]:
                raise SystemExit(f"recovered {rows}")
        return walk


def main() -> None:
    """Walk all five."""
    threading.setprofile(on_event)  # of threads that start from now on
    sys.setprofile(on_event)
    to_a_callback().report("a row to a callback")
    live, update, create = with_views()
    live.report("a row through a live view")
    update.report("an UPDATE through a join")
    create.report("CREATE VIEW")
    after_a_kill().report("opening after a kill")


if __name__ == "__main__":
    main()
