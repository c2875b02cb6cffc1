"""A text of SQL as its statements: where each one ends, and whether the last is complete (pure)."""

from __future__ import annotations

import re
from typing import Final

_PIECE: Final = re.compile(
    r"""[rR]'[^']*(?:'|\Z)             # a raw string
      | '(?:[^'\\]|\\.|'')*(?:'|\Z)    # a string; what is not closed goes on to the end
      | "(?:[^"]|"")*(?:"|\Z) | `[^`]*(?:`|\Z)
      | --[^\n]* | /\*.*?(?:\*/|\Z)
      | ^[ \t]*\\[^\n]*                # a command of the shell, if nothing is before it
      | ;""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_COMMENT: Final = re.compile(r"--[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_SUBSCRIBE: Final = re.compile(r"\s*SUBSCRIBE\s+(?:TO\s+)?(.*)", re.DOTALL | re.IGNORECASE)
_LIVE: Final = re.compile(r"\s*LIVE\s+(SELECT\b.*)", re.DOTALL | re.IGNORECASE)
_NAME: Final = re.compile(r'\s*(\w+|"(?:[^"]|"")+")\s*')


def split(text: str) -> tuple[list[str], str]:
    r"""The statements of a text that end with a semicolon, and what follows the last of them.

    A line that begins with a backslash, and is not within a statement, is one, too. Each keeps its
    place: what is before it is blank, so that the line and the column in an error are those of the
    whole text.

    >>> split("SELECT ';';\nSELECT 2; SELECT")
    (["SELECT ';'", '           \nSELECT 2'], '\n          SELECT')
    >>> [each.strip() for each in split("\\d\nSELECT 1;\n\\d t;\n")[0]]
    ['\\d', 'SELECT 1', '\\d t']
    """
    found: list[str] = []
    begin = 0
    for piece in _PIECE.finditer(text):
        if piece[0] == ";":
            found.append(_blank(text[:begin]) + text[begin : piece.start()])
            begin = piece.end()
        elif piece[0].lstrip().startswith("\\") and is_empty(text[begin : piece.start()]):
            found.append(_blank(text[: piece.start()]) + piece[0].rstrip("; \t\r"))
            begin = piece.end()
    rest = _blank(text[:begin]) + text[begin:]
    return [each for each in found if not is_empty(each)], "" if is_empty(rest) else rest.rstrip()


def _blank(text: str) -> str:
    lines = text.split("\n")
    return "\n" * (len(lines) - 1) + " " * len(lines[-1])


def is_empty(text: str) -> bool:
    """Whether there is nothing but spaces and comments."""
    return not _COMMENT.sub("", text).strip()


def is_complete(text: str) -> bool:
    r"""Whether what was typed so far can be run: all of it ends with ``;``, or is a ``\`` command.

    >>> [is_complete(text) for text in ("SELECT 1", "SELECT 1;", "SELECT ';", r"\d")]
    [False, True, False, True]
    """
    return text.lstrip().startswith("\\") or not split(text)[1]


def is_copy(statement: str) -> bool:
    r"""Whether a statement is a COPY, which may take long.

    >>> is_copy("-- all\nCOPY t FROM 'x.csv'"), is_copy("SELECT 1")
    (True, False)
    """
    return _COMMENT.sub("", statement).lstrip()[:5].upper().rstrip() == "COPY"


def subscribed(statement: str) -> str | None:
    """The query of ``SUBSCRIBE [TO] name | SELECT`` or ``LIVE SELECT``; None for others.

    >>> subscribed("SUBSCRIBE TO trades"), subscribed("live select 1"), subscribed("SELECT 1")
    ('SELECT * FROM trades', 'select 1', None)
    """
    bare = _COMMENT.sub("", statement) if statement.lstrip()[:2] in {"--", "/*"} else statement
    live = _LIVE.fullmatch(bare)
    if live is not None:
        return live[1]
    found = _SUBSCRIBE.fullmatch(bare)
    if found is None:
        return None
    name = _NAME.fullmatch(found[1])
    query = f"SELECT * FROM {name[1]}" if name else found[1].strip()  # noqa: S608 - the user's own
    if query.startswith("(") and query.endswith(")"):
        query = query[1:-1]
    return query
