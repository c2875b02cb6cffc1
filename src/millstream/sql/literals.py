"""Literals lifted out of a text, so that texts that differ only in them are one.

``UPDATE items SET price = 3 WHERE id = 7`` is ``UPDATE items SET price = ? WHERE id = ?`` with the
values 3 and 7. Only numbers and strings of the plainest forms are lifted. What else the text has
stays where it was, so anything unusual is in the text without literals, which ``is_plain`` refuses.
"""

from __future__ import annotations

import re
from typing import Final

_LONGEST: Final = 2000
_MOST_DIGITS: Final = 15  # as many as a float has in any case
_LITERAL: Final = re.compile(
    r"("
    r"'(?:[^'\\]|'')*'"  # a string without a backslash
    # A sign is part of a number where only a value can stand; no part of a name is a number.
    r"|(?:(?:(?<=[=(,])|(?<=[=(,] ))-)?(?<![\w.])(?:0|[1-9][0-9]{0,17})(?:\.[0-9]+)?(?![\w.])"
    r")"
)
_PLAIN: Final = re.compile(r"[A-Za-z0-9_ \t\n,=().*;?-]*")


def lift(sql: str) -> tuple[str, list[int | float | str]] | None:
    """A text with ``?`` in place of each literal, and their values; None if there is none to lift.

    >>> lift("SELECT v FROM t WHERE k = 7 AND name = 'O''Hara'")
    ('SELECT v FROM t WHERE k = ? AND name = ?', [7, "O'Hara"])
    """
    if len(sql) > _LONGEST:
        return None
    parts = _LITERAL.split(sql)
    values: list[int | float | str] = []
    for literal in parts[1::2]:
        if literal[0] == "'":
            values.append(literal[1:-1].replace("''", "'"))
        elif "." not in literal:
            values.append(int(literal))
        elif len(literal) <= _MOST_DIGITS and (value := float(literal)):
            values.append(value)
        else:  # more digits than a float may have; or a zero, which may have a sign
            return None
    return ("?".join(parts[::2]), values) if values else None


def is_plain(text: str) -> bool:
    """Whether a text without its literals has no quotes, comments or anything else unusual.

    Then each literal that was lifted was one, and not part of something else.
    """
    return _PLAIN.fullmatch(text) is not None and "--" not in text
