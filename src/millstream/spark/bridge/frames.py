"""The frames of a feed, as ``Frames.java`` reads them.

A feed sends an Arrow schema first. Each frame after it is a header (its kind, the LSN up to which
everything has been sent, the size of a text) and the text; with rows, an Arrow record batch
follows, or a few rows as ``few_rows.py`` writes them. The text is the offset after the frame, empty
for rows of the past; of a failure, why. More rows follow those of the kind ``MORE`` for sure, and
what they lead to may wait for these. A mark has rows, too, or none; what they and all before
them lead to is sent back at once. Where results wait for a moment, of event time or of the clock, a
prefix says which one has passed with the frame.
"""

from __future__ import annotations

import struct
from typing import Final

HEADER: Final = struct.Struct(">BqI")

ROWS: Final = 1
MORE: Final = 2
END: Final = 3
FAILED: Final = 4
MARK: Final = 5
FEW: Final = 6
_PASSED: Final = 7
_PREFIX: Final = struct.Struct(">Bq")


def passed(moment: int | None) -> bytes:
    """The prefix of a frame that says which moment has passed with it; empty: it does not say."""
    return b"" if moment is None else _PREFIX.pack(_PASSED, moment)
