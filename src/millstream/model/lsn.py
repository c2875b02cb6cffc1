"""The LSN: a row's place in the one total order of a database.

An LSN is a plain ``int``. Every row takes one, and so does every watermark that is pushed by
itself; the rows of one batch have consecutive ones. A position is the last LSN that was seen, so
"resume after position n" and "read from LSN n + 1" say the same.
"""

from typing import Final

NO_LSN: Final = 0
"""The position before the first row, and the LSN of a batch that is not in a log yet."""

FIRST_LSN: Final = 1
"""The LSN of the first row of a new database."""
