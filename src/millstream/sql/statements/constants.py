"""Calls whose value is the session's, not a row's: ``NOW()``, ``CURRENT_USER``, ``VERSION()``.

A statement that runs once takes their values when it is read, as it takes those of parameters. A
view and a subscription go on: there ``NOW()`` moves, and stays what it is.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, Protocol

from sqlglot import Token, TokenType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sql.statements.parameters import Constant, Parameters

CLOCKS: Final = frozenset(
    {"now", "current_timestamp", "localtimestamp", "current_date", "curdate"}
    | {"transaction_timestamp", "statement_timestamp", "clock_timestamp"}
)
"""Calls that give the time."""

_BARE: Final = frozenset({"current_timestamp", "localtimestamp", "current_date", "current_user"})
_BARE_ALONE: Final = frozenset(
    {"session_user", "user", "current_role", "current_catalog", "current_schema"}
)
"""Words that name columns, too: without FROM there is no column."""

_ONCE: Final = frozenset({"SELECT", "WITH", "(", "VALUES", "INSERT", "UPDATE", "DELETE"})
_NO_VALUE: Final = frozenset({"AS", "FROM", "JOIN", "INTO", "UPDATE", "TABLE", "."})
_STRINGS: Final = frozenset({TokenType.STRING, TokenType.RAW_STRING})
_WORDS: Final = {"TRUE": True, "FALSE": False, "NULL": None}


class Functions(Protocol):
    """The functions of a session."""

    @property
    def names(self) -> frozenset[str]:
        """Their names, in small letters."""

    def call(self, name: str, args: Sequence[object]) -> Constant | None:
        """The value of a call; None if the function does not take these arguments."""


def with_constants(
    tokens: list[Token], parameters: Parameters, functions: Functions
) -> list[Token]:
    """Return the tokens of a statement with one token, a parameter's, in place of each call.

    Args:
        tokens: those of the statement.
        parameters: they are given the values.
        functions: what may be called.
    """
    words = [_word(each) for each in tokens]
    if words[0] not in _ONCE:
        return tokens
    is_past = ("AS", "OF") in pairwise(words)
    may_be_bare = _BARE if "FROM" in words or words[0] != "SELECT" else _BARE | _BARE_ALONE
    place = _first(words)
    made = tokens[:place]
    while place < len(tokens):
        name, schema = words[place].lower(), _schema_before(words, place)
        found, end = None, place + 1
        if name in functions.names and schema >= 0 and not (is_past and name in CLOCKS):
            args, after = _arguments(tokens, words, end, parameters)
            if args is not None:
                found, end = functions.call(name, args), after
            elif name in may_be_bare and words[end : end + 1] not in (["."], ["("]):
                found = functions.call(name, ())
        if found is None:
            made.append(tokens[place])
            place += 1
            continue
        first = tokens[place - schema]
        del made[len(made) - schema :]
        made.append(_parameter(first, tokens[end - 1]))
        parameters.set_constant(first.start, found)
        place = end
    return made


def _word(token: Token) -> str:
    """A token in capitals; empty when it is in quotes."""
    is_quoted = token.token_type is TokenType.IDENTIFIER or token.token_type in _STRINGS
    return "" if is_quoted else token.text.upper()


def _first(words: Sequence[str]) -> int:
    """Where values may stand: not among the columns that an INSERT names."""
    if words[0] == "INSERT" and "VALUES" in words:
        return words.index("VALUES")
    return 0


def _schema_before(words: Sequence[str], place: int) -> int:
    """How many tokens before a name are ``pg_catalog.``; -1 if no value can stand there."""
    if place == 0 or words[place - 1] not in _NO_VALUE:
        return 0
    if words[place - 1] != ".":
        return -1
    return 2 if place > 1 and words[place - 2] == "PG_CATALOG" else -1


def _arguments(
    tokens: Sequence[Token], words: Sequence[str], place: int, parameters: Parameters
) -> tuple[list[object] | None, int]:
    """The arguments in the parentheses at a place, if all are constants, and the place after."""
    args: list[object] = []
    if words[place : place + 1] != ["("]:
        return None, place
    place += 1
    while place < len(tokens) and words[place] != ")":
        token, word = tokens[place], words[place]
        if token.token_type in _STRINGS:
            args.append(token.text)
        elif token.token_type is TokenType.NUMBER:
            args.append(int(token.text) if token.text.isdecimal() else float(token.text))
        elif word in _WORDS:
            args.append(_WORDS[word])
        elif token.token_type is TokenType.PLACEHOLDER:
            args.append(parameters.value("", token.start))
        else:
            return None, place
        place += 1
        if words[place : place + 1] == [","]:
            place += 1
        elif words[place : place + 1] != [")"]:
            return None, place
    return args, place + 1


def _parameter(first: Token, last: Token) -> Token:
    return Token(
        TokenType.PLACEHOLDER, "?", first.line, first.col, first.start, last.end, first.comments
    )
