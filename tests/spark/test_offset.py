"""Offsets: what stands in Spark's checkpoint is read back as it was."""

from hypothesis import given
from hypothesis import strategies as st

from millstream.spark.offset import Offset

LSNS = st.integers(0, 2**63 - 1)
MARKS = st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=4).map(tuple)


@given(LSNS, MARKS, st.integers(0, 2**40))
def test_text_and_back(lsn, marks, late):
    offset = Offset(lsn, marks, late)
    assert Offset.of(offset.json) == offset


@given(LSNS, MARKS, st.integers(0, 2**40))
def test_fits_the_lines_that_it_is_sent_in(lsn, marks, late):
    """Parts of a batch are told line by line, with a tab in each."""
    assert not set(Offset(lsn, marks, late).json) & set("\t\n\x1f")
