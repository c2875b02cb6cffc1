"""Saved rows as bytes: decoded as they were encoded, or recognised as damaged."""

from __future__ import annotations

import pyarrow as pa

from millstream.state.saved import SavedRows

ROWS = pa.table({"k": pa.array([1, None], pa.int64()), "v": pa.array(["ä", "\0"])})
SAVED = SavedRows(7, 5, {"rows": ROWS, "pending": ROWS.slice(0, 0)}, "token")


def test_decoded_as_encoded():
    for saved in (SAVED, SavedRows(8, 0, {}, "")):
        assert SavedRows.decode(b"".join(saved.encode())) == saved


def test_damage_anywhere_is_noticed():
    data = b"".join(SAVED.encode())
    for place in range(len(data)):
        flipped = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        assert SavedRows.decode(flipped) is None
        assert SavedRows.decode(data[:place]) is None


def test_fits_what_has_the_same_parts_and_columns():
    assert SAVED.fits({"rows": ROWS.schema, "pending": ROWS.schema})
    assert not SAVED.fits({"rows": ROWS.schema})
    assert not SAVED.fits({"rows": ROWS.schema, "pending": ROWS.schema.remove(0)})
