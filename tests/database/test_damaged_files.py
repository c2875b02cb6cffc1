"""Random damage to the files of a database: it opens or says why not; every lost row is reported.

A directory with sources, tables, a durable subscription and small segments is closed or killed,
then bits are flipped, files cut, blocks zeroed, files removed, exchanged, copied or put back.
"""

from __future__ import annotations

import os
import random
import shutil
import signal

import pytest

import millstream as ms
from millstream.errors import Error, LogCorruptError
from millstream.testing import engine_of

pytestmark = pytest.mark.slow

ROWS = 160
SEEDS = 12
SOURCES = ("a", "b")
TABLES = ("t", "u")


def fill(path, backup, *, kill):
    """Everything is acknowledged before it ends; half way through, a copy is made."""
    db = ms.open(path, segment_bytes=6000)
    for name in SOURCES:
        db.execute(f"CREATE SOURCE {name} (n BIGINT, text VARCHAR) WITH (wal_mode = 'sync')")
    for name in TABLES:
        db.execute(f"CREATE TABLE {name} (n BIGINT PRIMARY KEY, text VARCHAR)")
    sub = db.subscribe("SELECT n FROM a", name="mine")
    for n in range(ROWS):
        for name in SOURCES:
            db.insert(name, [(n, f"{name}-{n}")])
        if n % 10 == 0:
            for name in TABLES:
                db.execute(f"INSERT INTO {name} VALUES ({n}, '{name}-{n}')")
            sub.ack(sub.recv(timeout=10))
        if n == ROWS // 2:
            db.flush()
            shutil.copytree(path, backup)
    db.flush()
    if kill:
        os.kill(os.getpid(), signal.SIGKILL)
    sub.cancel()
    db.close()


@pytest.fixture(scope="module", params=["closed", "killed"])
def undamaged(request, tmp_path_factory):
    """A directory, an older copy of it, and whether it was closed."""
    folder = tmp_path_factory.mktemp("undamaged")
    pid = os.fork()
    if pid == 0:
        try:
            fill(folder / "db", folder / "backup", kill=request.param == "killed")
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == (0 if request.param == "closed" else -signal.SIGKILL)
    assert len(list((folder / "db").glob("*.seg"))) > 10
    return folder / "db", folder / "backup", request.param == "closed"


def rewritten(path, change):
    raw = bytearray(path.read_bytes())
    change(raw)
    path.write_bytes(raw)


def flip(rng, files, _):
    """One bit, here and there."""
    for path in rng.choices(files, k=rng.randint(1, 3)):
        place = rng.randrange(max(1, path.stat().st_size))
        rewritten(path, lambda raw: raw.__setitem__(place, raw[place] ^ 1 << rng.randrange(8)))


def cut(rng, files, _):
    """The end of a file."""
    path = rng.choice(files)
    os.truncate(path, rng.randrange(path.stat().st_size))


def zero(rng, files, _):
    """A block of a file."""
    path = rng.choice(files)
    size = rng.choice([64, 512, 4096])
    place = rng.randrange(path.stat().st_size) // size * size
    length = min(size, path.stat().st_size - place)
    rewritten(path, lambda raw: raw.__setitem__(slice(place, place + length), bytes(length)))


def remove(rng, files, _):
    for path in rng.sample(files, rng.randint(1, 2)):
        path.unlink()


def exchange(rng, files, _):
    one, other = rng.sample(files, 2)
    data = one.read_bytes()
    shutil.copy(other, one)
    other.write_bytes(data)


def copy(rng, files, _):
    """One file over another, or under a name of its own."""
    one, other = rng.sample(files, 2)
    if rng.random() < 0.5:
        other = other.with_name(f"{rng.randrange(60):010d}-{rng.randrange(900):020d}.seg")
    shutil.copy(one, other)


def put_back(rng, files, backup):
    """A file as it was in an older copy."""
    there = [each for each in files if (backup / each.name).exists()]
    older = [each for each in there if (backup / each.name).read_bytes() != each.read_bytes()]
    path = rng.choice(older)
    shutil.copy(backup / path.name, path)


WAYS = (flip, cut, zero, remove, exchange, copy, put_back)


def runs(db, name):
    """What can be read of a source: stretches without an error between, and the last error."""
    found, start = [[]], "earliest"
    while True:
        try:
            with engine_of(db).log.read(name, start=start) as reader:
                for batch in reader:
                    found[-1] += [row[0] for row in batch.rows]
        except LogCorruptError as error:
            assert error.hint
            assert error.next_lsn is not None
            found.append([])
            start = error.next_lsn
        else:
            return found


def check_source(db, name, *, may_be_cut):
    """Each stretch is one of the rows that were pushed, and what is between was reported."""
    found = runs(db, name)
    flat = [n for run in found for n in run]
    assert flat == sorted(set(flat)), "invented, doubled or out of order"
    for run in found:
        assert run == list(range(run[0], run[0] + len(run))) if run else True, "lost unsaid"
    if found[0]:
        assert found[0][0] == 0, "lost unsaid"
    if len(found) == 1 and not may_be_cut:
        assert flat == list(range(ROWS)), "lost unsaid"


def check_table(db, name, *, may_be_cut):
    wanted = {(n, f"{name}-{n}") for n in range(0, ROWS, 10)}
    try:
        found = set(db.query(f"SELECT * FROM {name}").fetchall())
    except LogCorruptError as error:
        assert "SKIP DAMAGE" in error.hint
        return
    assert found <= wanted
    assert found == wanted or may_be_cut


def check(db, *, may_be_cut):
    cut = may_be_cut and not engine_of(db).log.recovery.clean
    for name in SOURCES:
        check_source(db, name, may_be_cut=cut)
    for name in TABLES:
        check_table(db, name, may_be_cut=cut)
    db.query("SHOW SOURCES"), db.query("SHOW TABLES"), db.query("SHOW SUBSCRIPTIONS")
    lsn = db.lsn
    db.insert("a", [(-1, "new")])
    db.flush()
    with engine_of(db).log.read("a", start=lsn + 1) as reader:
        assert [row for batch in reader for row in batch.rows] == [(-1, "new")]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_random_damage(undamaged, way, tmp_path):
    original, backup, was_closed = undamaged
    opened = refused = 0
    for seed in range(SEEDS):
        rng = random.Random(f"{way.__name__} {seed}")
        path = shutil.copytree(original, tmp_path / "db")
        files = sorted(path.glob("*.seg"))
        if way is flip:
            files += [each for each in path.rglob("*") if each.is_file() and each.stat().st_size]
        way(rng, files, backup)
        # After a crash a last segment that was cut looks like what the crash has left of it.
        may_be_cut = not was_closed
        try:
            with ms.open(path) as db:
                check(db, may_be_cut=may_be_cut)
            opened += 1
        except Error as error:
            assert error.hint, repr(error)
            refused += 1
            with pytest.raises(Error):  # and so it stays
                ms.open(path)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        finally:
            shutil.rmtree(path)
    print(f"{way.__name__}: {opened} opened, {refused} refused")  # noqa: T201
    if way is flip:
        assert opened > refused
