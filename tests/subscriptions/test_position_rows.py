"""The rows of the log of positions: whatever was written, they come to the positions."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import millstream as ms
from millstream.log import Log
from millstream.subscriptions.position_rows import (
    DurablePosition,
    PositionsRow,
    WholeRows,
    apply,
)
from millstream.testing import engine_of

KEYS = [(tenant, name) for tenant in (None, "x") for name in ("a", "b", "c")]
steps = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(["make", "ack", "drop"]))),
        st.booleans(),
    ),
    max_size=12,
)


def written(steps):
    """Rows as ``Positions`` writes them, each with what holds after it."""
    positions, stored, made, lsn = {}, {}, [], 0
    for changes, is_whole in steps:
        changed = set()
        for key, what in changes:
            lsn += 1
            if what == "make":
                positions[key] = DurablePosition(key[1], f"SELECT {lsn}", "s", key[0], lsn)
            elif what == "ack" and key in positions:
                positions[key] = replace(positions[key], lsn=lsn)
            elif what == "drop":
                positions.pop(key, None)
            changed.add(key)
        news = {key: positions.get(key) for key in changed}
        row = PositionsRow.whole(positions) if is_whole else PositionsRow.of_changes(news, stored)
        stored = dict(positions)
        made.append((row, stored))
    return made


@given(steps)
def test_rows_come_to_the_positions(steps):
    found = {}
    for row, expected in written(steps):
        assert apply(json.loads(row.text), found) == row.is_whole
        assert found == expected


@given(steps, st.data())
def test_any_whole_row_may_be_damaged(steps, data):
    made = written(steps)
    whole = [place for place, (row, _) in enumerate(made) if row.is_whole]
    if not whole:
        return
    lost = data.draw(st.sampled_from(whole))
    # The positions did not change with it, but it is not known that they were all said before.
    first, last = PositionsRow.of_changes(made[lost][1], {}), made[lost + 1 :]
    before = made[lost - 1][1] if lost else {}
    gone = {key: None for key in before if key not in made[lost][1]}
    found = dict(before)
    apply(json.loads(PositionsRow.of_changes({**gone, **first.positions}, before).text), found)
    for row, expected in last:
        apply(json.loads(row.text), found)
        assert found == expected


def test_what_is_written_grows_with_the_changes():
    """800 names, 20 acknowledgements of each: as changes, not all names each time."""
    whole, stored, total, size = WholeRows(), {}, 0, 0
    for step in range(800 * 21):
        key = (None, f"d{step % 800}")
        stored[key] = DurablePosition(key[1], "SELECT * FROM s", "s", None, step)
        row = PositionsRow.of_changes({key: stored[key]}, {} if step < 800 else stored)
        size += len(row.text)
        if whole.is_due(len(row.text)):
            row = PositionsRow.whole(stored)
        whole.add(step + 1, len(row.text), is_whole=row.is_whole)
        total += len(row.text)
    assert total < 2 * size
    assert whole.needed_lsn > 1


class TestCutAnywhere:
    @pytest.fixture
    def states(self, tmp_path):
        """A directory, and after each step the size of its segment and the positions."""
        path, states = tmp_path / "db", []
        with ms.open(path) as db:
            db.execute("CREATE SOURCE s (n BIGINT)")
            segment = max(path.glob("*.seg"))
            positions = engine_of(db).positions
            rng, readers = random.Random(5), {}
            for step in range(24):
                name = rng.choice("abc")
                if step == 12:
                    positions._whole.demand()
                if name in readers and rng.random() < 0.2:
                    readers.pop(name).cancel()
                    db.execute(f"DROP SUBSCRIPTION {name}")
                else:
                    if name not in readers:
                        readers[name] = db.subscribe("SELECT n FROM s", name=name)
                    db.insert("s", [(step,)])
                    batch = readers[name].recv(10)
                    while batch.lsn < db.lsn and (more := readers[name].try_recv()) is not None:
                        batch = more
                    readers[name].ack(batch)
                    positions.write()
                db.flush()
                states.append((segment.stat().st_size, positions.all()))
            shutil.copytree(path, tmp_path / "killed")
        return tmp_path / "killed", states

    def test_is_a_prefix(self, states, tmp_path):
        path, states = states
        rng = random.Random(7)
        sizes = [size for size, _ in states]
        near = [size + by for size in sizes for by in (-1, 0, 1) if size + by <= sizes[-1]]
        for cut in rng.sample(near, 12) + [rng.randrange(sizes[0], sizes[-1]) for _ in range(12)]:
            copy = tmp_path / "cut"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(path, copy)
            with max(copy.glob("*.seg")).open("r+b") as file:
                file.truncate(cut)
            if cut < sizes[0]:
                continue
            before = [found for size, found in states if size <= cut][-1]
            after = next((found for size, found in states if size > cut), before)
            with ms.open(copy) as db:
                # A step is a few commits: some of them may be there.
                assert engine_of(db).positions.all() in _between(before, after)


def _between(before, after):
    """The positions at either side of a step, which changes one subscription."""
    one, other = ({each.key: each for each in found} for found in (before, after))
    ways = [before, after]
    for key in one.keys() | other.keys():
        if key in other and key not in one:  # made, and not yet acknowledged
            made = [replace(other[key], lsn=lsn) for lsn in range(-1, other[key].lsn)]
            ways += [
                sorted([*before, each], key=lambda p: (p.name, p.tenant or "")) for each in made
            ]
    return ways


def test_watermarks_are_in_the_log(tmp_path):
    """They hold when no row of theirs is kept, and after a crash."""
    with Log(tmp_path / "log", segment_bytes=1 << 12) as log:
        log.create_topic("t", ms.Schema.of(n="BIGINT"))
        log.create_topic("u", ms.Schema.of(n="BIGINT"))
        log.append("t", [(0,)], watermark=77, wal_mode="sync")
        for n in range(100):
            log.append("u", [(n,)], watermark=n, wal_mode="sync")
        log.trim("t", log.lsn + 1)
        log.retain()
        assert len(list((tmp_path / "log").glob("*.seg"))) > 3
        shutil.copytree(tmp_path / "log", tmp_path / "killed")
    for path in ("log", "killed"):
        with Log(tmp_path / path) as log:
            assert (log.watermark("t"), log.watermark("u")) == (77, 99)
