"""Where a view is, read from Spark's checkpoint as a crash may have left it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.views.run.checkpoint import (
    Offset,
    forget_beyond,
    move,
    offset_in,
    offset_within,
    roll_back,
)


@pytest.fixture
def write(tmp_path):
    """write(offsets=[...], commits=[...]): files as Spark names them, with the LSN 10 x number."""

    def writing(offsets=(), commits=()):
        for folder, numbers in (("offsets", offsets), ("commits", commits)):
            (tmp_path / folder).mkdir(exist_ok=True)
            for number in numbers:
                offset = Offset(10 * number, (None, number), number).json
                text = f"v1\n{{}}\n{offset}" if folder == "offsets" else "v1\n{}"
                (tmp_path / folder / str(number)).write_text(text)
        return tmp_path

    return writing


def test_nothing_yet(tmp_path, write):
    assert offset_in(tmp_path / "not there") is None
    assert offset_in(write()) is None


def test_the_last_that_was_committed(write):
    assert offset_in(write([0, 1, 2, 9, 10], [0, 1, 2, 9, 10])) == Offset(100, (None, 10), 10)


def test_a_batch_that_was_begun_only(write):
    assert offset_in(write([0, 1], [0])) == Offset(0, (None, 0), 0)
    assert offset_in(write([2], [])) == Offset(0, (None, 0), 0)


def test_the_first_batch_was_begun_only(write):
    assert offset_in(write([0], [])) is None


def test_old_ones_are_gone(write):
    """Spark keeps some of each, not the same numbers."""
    assert offset_in(write([7, 8, 9], [5, 6, 7, 8])) == Offset(80, (None, 8), 8)


def test_what_else_lies_there(write):
    folder = write([3], [3])
    (folder / "offsets" / ".3.crc").write_bytes(b"\0\1")
    (folder / "offsets" / ".4.5f1c.tmp").write_text("v1\n{}\n")
    (folder / "commits" / ".4.crc").touch()
    (folder / "metadata").write_text("{}")
    assert offset_in(folder) == Offset(30, (None, 3), 3)


def test_half_a_file(write):
    """A reader skips it: the complete one before it counts."""
    folder = write([3, 4], [3, 4])
    (folder / "offsets" / "4").write_text("v1\n{}")
    assert offset_in(folder) == Offset(30, (None, 3), 3)


def test_a_batch_of_rows_that_the_log_has_lost_is_forgotten(write):
    """It was begun, and power was lost before its rows were on the disk."""
    folder = write([5, 6, 7], [5, 6])
    (folder / "offsets" / ".7.crc").touch()
    forget_beyond(folder, 70)
    assert (folder / "offsets" / "7").exists(), "the log has all of it"
    forget_beyond(folder, 69)
    assert sorted(each.name for each in (folder / "offsets").iterdir()) == ["5", "6"]
    assert offset_in(folder) == Offset(60, (None, 6), 6)
    forget_beyond(folder, 0)
    assert offset_in(folder) == Offset(60, (None, 6), 6), "what was committed stays"
    forget_beyond(folder / "not there", 0)


def test_a_checkpoint_that_is_ahead_of_the_log_is_removed(write):
    folder = write([5, 6, 7], [5, 6])
    assert offset_within(folder, 60) == Offset(60, (None, 6), 6)
    assert offset_within(folder, 59) is None
    assert not folder.exists()


@pytest.fixture
def schemas():
    """schemas(checkpoint, "/old/db/views/v"): where Spark has noted schemas; two operators."""

    def writing(checkpoint, path):
        for number in (0, 1):
            noted = checkpoint / "state" / str(number) / "_metadata" / "v2" / "0"
            noted.parent.mkdir(parents=True, exist_ok=True)
            place = f"file:{path}/state/{number}/_stateSchema/default/0_5f1c"
            stores = [{"storeName": "default", "stateSchemaFilePaths": [place]}]
            noted.write_text("v2\n" + json.dumps({"operatorInfo": {}, "stateStoreInfo": stores}))
            noted.with_name(".0.crc").write_text("of what Spark wrote")
        return checkpoint

    return writing


def noted_in(checkpoint):
    found = sorted(checkpoint.glob("**/_metadata/v2/0"))
    texts = [json.loads(each.read_text().split("\n")[1]) for each in found]
    return [text["stateStoreInfo"][0]["stateSchemaFilePaths"] for text in texts]


def test_a_directory_with_another_path(write, schemas):
    """A database that was renamed, or restored elsewhere."""
    folder = schemas(write([1], [1]), '/old "db"/_stateSchema/views/v')
    assert offset_within(folder, 10) is not None
    paths = [f"{folder}/state/{each}/_stateSchema/default/0_5f1c" for each in (0, 1)]
    assert noted_in(folder) == [[f"file:{each}"] for each in paths]
    assert not list(folder.glob("**/.0.crc"))


def test_a_directory_that_stayed(write, schemas):
    folder = schemas(write([1], [1]), write())
    before = {each: each.read_bytes() for each in folder.glob("**/v2/*")}
    offset_within(folder, 10)
    assert {each: each.read_bytes() for each in folder.glob("**/v2/*")} == before


def test_a_checkpoint_that_moves(tmp_path, schemas):
    folder = schemas(tmp_path / "hidden" / "part0", f"{tmp_path}/hidden/part0").parent
    move(folder, tmp_path / "shown")
    for number, paths in enumerate(noted_in(tmp_path / "shown")):
        operator = f"{tmp_path}/shown/part0/state/{number}"
        assert paths == [f"file:{operator}/_stateSchema/default/0_5f1c"]


@pytest.mark.parametrize("text", ["", "v2\n{", 'v2\n{"stateStoreInfo": [1]}', "v2\n[]"])
def test_damaged_notes_are_left_to_spark(write, schemas, text):
    folder = schemas(write([1], [1]), "/old/v")
    noted = next(folder.glob("**/v2/0"))
    noted.write_text(text)
    assert offset_within(folder, 10) is not None
    assert noted.read_text() == text


# ---- offsets

LSNS = st.integers(0, 2**63 - 1)
MARKS = st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=4).map(tuple)


@given(LSNS, MARKS, st.integers(0, 2**40))
def test_text_and_back(lsn, marks, late):
    offset = Offset(lsn, marks, late)
    assert Offset.of(offset.json) == offset


@given(LSNS, MARKS, st.integers(0, 2**40))
def test_fits_the_lines_that_it_is_sent_in(lsn, marks, late):
    """Parts of a batch are sent line by line, with a tab in each."""
    assert not set(Offset(lsn, marks, late).json) & set("\t\n\x1f")


def test_roll_back(write):
    folder = write([0, 1, 2, 3], [0, 1, 2])
    roll_back(folder, 20)
    assert offset_in(folder) == Offset(20, (None, 2), 2)
    assert sorted(each.name for each in (folder / "offsets").iterdir()) == ["0", "1", "2"]
    roll_back(folder, 10)
    assert offset_in(folder) == Offset(10, (None, 1), 1)
    assert sorted(each.name for each in (folder / "commits").iterdir()) == ["0", "1"]
    roll_back(folder, -1)
    assert offset_in(folder) is None
