"""Numbers among the tokens: split and checked as Spark's lexer would.

sqlglot's tokenizer reads ``1e3-4`` as one number and ``0x1`` as bytes, and takes numbers of any
length; Spark reads the first as a subtraction and has no value for the others.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

from sqlglot import Token, TokenType

from millstream.errors import SqlSyntaxError
from millstream.model.types import MAX_PRECISION
from millstream.sql.positions import place_at

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_GLUED = re.compile(r"([0-9]+\.?[0-9]*[eE][0-9]+)([+-].+)", re.DOTALL)
_PARTS = re.compile(r"(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?(?:[eE](?P<power>[+-]?[0-9]+))?")
_LONGEST_POWER = 6
_WHOLE_SUFFIXES = {"L", "S", "Y"}


def numbers_apart(
    tokens: Sequence[Token], sql: str, tokenize: Callable[[str], list[Token]]
) -> list[Token]:
    """Return the tokens of a text, with each number a token that Spark reads as a number.

    Raises:
        SqlSyntaxError: something that looks like a number has no value, or too many digits.
    """
    made: list[Token] = []
    split = -1  # where the last number that was split begins; its suffix begins there, too
    for place, token in enumerate(tokens):
        source = sql[token.start : token.end + 1]
        glued = _GLUED.fullmatch(source) if token.token_type in _SPLIT else None
        if glued:
            split = token.start
            made += numbers_apart([_moved(t, split) for t in tokenize(glued[1])], sql, tokenize)
            rest = [_moved(t, split + glued.start(2)) for t in tokenize(glued[2])]
            made += numbers_apart(rest, sql, tokenize)
        elif token.start != split:
            _check(token, source, tokens[place + 2 : place + 3], sql)
            made.append(token)
    return made


_SPLIT = {TokenType.NUMBER, TokenType.VAR}


def _moved(token: Token, offset: int) -> Token:
    return Token(
        token.token_type,
        token.text,
        token.line,
        token.col,
        token.start + offset,
        token.end + offset,
        token.comments,
    )


def _check(token: Token, source: str, suffix: Sequence[Token], sql: str) -> None:
    if token.token_type is TokenType.HEX_STRING and source[:1] == "0":
        _refuse(token, sql, f"{_short(source)} is not a number", "Write bytes as X'1F', or digits.")
    if token.token_type is not TokenType.NUMBER:
        return
    parts = _PARTS.fullmatch(token.text)
    if parts is None:
        _refuse(token, sql, f"{_short(source)} is not a number", "Write 10, 1.5 or 1e3.")
    power = parts["power"]
    if power is not None and len(power) > _LONGEST_POWER:
        _refuse(token, sql, "the exponent is too large", "A DOUBLE goes up to 1.8e308.")
    is_suffixed = bool(suffix) and suffix[0].start == token.start
    if is_suffixed and suffix[0].text.upper() in _WHOLE_SUFFIXES and not token.text.isdecimal():
        _refuse(token, sql, f"{_short(source)} is not a whole number", "Leave the last letter out.")
    whole, part = parts["whole"].lstrip("0"), parts["part"] or ""
    if power is None and len(whole) + len(part) > MAX_PRECISION and not is_suffixed:
        message = f"{_short(source)} has more than {MAX_PRECISION} digits"
        _refuse(token, sql, message, "Write it with an exponent: 1e40.")
    if is_suffixed and len(token.text) > _LONGEST_SUFFIXED:
        _refuse(token, sql, f"{_short(source)} has too many digits", "Write it with an exponent.")


_LONGEST_SUFFIXED = 400


def _short(source: str) -> str:
    return source if len(source) <= 45 else f"{source[:40]}..."


def _refuse(token: Token, sql: str, message: str, hint: str) -> NoReturn:
    line, column = place_at(sql, token.start)
    raise SqlSyntaxError(message, sql=sql, line=line, column=column, hint=hint)
