"""Names: which ones topics and columns may have, and how SQL text quotes them."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from millstream.errors import InvalidNameError

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_NAME_LENGTH = 255

RESERVED_COLUMNS = frozenset({"_lsn", "_op", "_weight"})
"""The columns that every log adds to the user's own."""

_MARKS = frozenset("_.-$")
_DIGITS = frozenset("0123456789")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

# What at least one of Spark (ANSI mode), PostgreSQL and the SQL standard keeps for itself. A quote
# too many does no harm; one too few is text that does not parse.
_KEYWORDS_TEXT = """
    all alter analyse analyze and any array as asc asymmetric authorization between binary both by
    case cast check collate collation column commit concurrently constraint create cross current
    current_catalog current_date current_role current_schema current_time current_timestamp
    current_user cursor declare default deferrable delete desc describe distinct do drop else emit
    end escape except exists explain external false fetch filter for foreign freeze from full
    function grant group having ilike in initially inner insert intersect interval into is isnull
    join key lateral leading left like limit local localtime localtimestamp map merge minus natural
    not notnull null of offset on only or order outer over overlaps partition placing primary range
    references returning revoke right rollback row rows select semi session_user set similar some
    start struct symmetric table tablesample then time to trailing true truncate union unique
    unknown update user using values variadic verbose view watermark when where window with within
"""
_KEYWORDS = frozenset(_KEYWORDS_TEXT.split())


def check_name(name: str, what: str = "topic") -> str:
    """Return ``name`` if a topic (or another ``what``) may have it.

    A name has 1 to 255 characters: letters of any script, the digits 0-9, ``_``, ``.``, ``-`` and
    ``$``. It begins with a letter or ``_``.

    >>> check_name("market.trades-v2")
    'market.trades-v2'

    Raises:
        InvalidNameError: it says what is wrong and suggests a name that would do.
    """
    if not isinstance(name, str):
        raise InvalidNameError(
            f"the name of a {what} must be a str, not {type(name).__name__}",
            hint=f"Give the {what} a name such as {what + '_1'!r}.",
        )
    problem = _problem_of(name)
    if problem:
        raise InvalidNameError(
            f"{_shown(name)} cannot be the name of a {what}: {problem}",
            hint="Names have letters, digits, '_', '.', '-' and '$'. "
            f"{_suggestion(name, what)!r} would do.",
        )
    return name


def check_column_name(name: str, what: str = "column") -> str:
    """Return ``name`` if a column (or a field of a STRUCT) may have it.

    A column may have any name of 1 to 255 characters without control characters, since SQL can
    quote it. ``_lsn``, ``_op`` and ``_weight``, in any case, are kept for the log.

    >>> check_column_name("unit price")
    'unit price'

    Raises:
        InvalidNameError: the name is empty, too long, reserved, or cannot be written down.
    """
    if not isinstance(name, str):
        raise InvalidNameError(
            f"the name of a {what} must be a str, not {type(name).__name__}",
            hint=f"Give the {what} a name such as 'price'.",
        )
    if not 0 < len(name) <= MAX_NAME_LENGTH:
        raise InvalidNameError(
            f"the name of a {what} has {len(name)} characters",
            hint=f"Use 1 to {MAX_NAME_LENGTH} characters.",
        )
    # Cc: control characters, NUL among them; Cs: lone surrogates, which UTF-8 cannot hold.
    if any(unicodedata.category(character) in {"Cc", "Cs"} for character in name):
        raise InvalidNameError(
            f"the name {_shown(name)} of a {what} has a control character or a lone surrogate",
            hint="Use characters that can be printed.",
        )
    # In any case, because to Spark SQL _LSN and _lsn are the same.
    if name.lower() in RESERVED_COLUMNS:
        raise InvalidNameError(
            f"{name!r} cannot be the name of a {what}: the log adds a column of that name itself",
            hint=f"Call it {name.lstrip('_')!r}.",
        )
    return name


def quote_name(name: str) -> str:
    """Return ``name`` as SQL text, in double quotes when it needs them.

    >>> print(quote_name("price"), quote_name("unit price"), quote_name("order"))
    price "unit price" "order"
    """
    if _PLAIN.fullmatch(name) and name.lower() not in _KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def unique_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return names of which no two are equal, whatever their case: a second ``id`` is ``id_1``.

    >>> unique_names(["id", "a", "ID", "id_1", "id"])
    ('id', 'a', 'ID_2', 'id_1', 'id_3')
    """
    written = {name.lower() for name in names}
    seen: set[str] = set()
    made = []
    for name in names:
        found, number = name, 0
        while found.lower() in seen or (number and found.lower() in written):
            number += 1
            found = f"{name}_{number}"
        seen.add(found.lower())
        made.append(found)
    return tuple(made)


def _problem_of(name: str) -> str:
    if not name:
        return "it is empty"
    if len(name) > MAX_NAME_LENGTH:
        return f"it has {len(name)} characters, and {MAX_NAME_LENGTH} are allowed"
    if not (name[0].isalpha() or name[0] == "_"):
        return f"it begins with {name[0]!r}, not with a letter or '_'"
    for place, character in enumerate(name):
        if not _allowed(character):
            return f"it has {character!r} at position {place}"
    return ""


def _allowed(character: str) -> bool:
    return character in _MARKS or character in _DIGITS or character.isalpha()


def _suggestion(name: str, what: str) -> str:
    # A letter and a combining accent become the one letter that is allowed.
    composed = unicodedata.normalize("NFC", name.strip())
    allowed = "".join(c if _allowed(c) else "_" for c in composed)
    if not allowed.strip("_.-$"):
        return f"{what}_1"
    begins_well = allowed[0].isalpha() or allowed[0] == "_"
    return (allowed if begins_well else f"_{allowed}")[:MAX_NAME_LENGTH]


def _shown(name: str) -> str:
    return repr(name if len(name) <= 60 else name[:57] + "...")


def quote_string(text: str) -> str:
    r"""Return a text as a string of SQL.

    >>> print(quote_string("it's"))
    'it''s'
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
