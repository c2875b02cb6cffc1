"""The reader: the words of a statement, and the values and expressions among them."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, cast

from sqlglot import TokenType, exp

from millstream.errors import Error
from millstream.sql.durations import parse_duration
from millstream.sql.limits import check_expression
from millstream.sql.words import Words

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

_NUMBER = re.compile(r"[0-9]{1,300}(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?")
_DEEPER = {TokenType.LT: 1, TokenType.L_PAREN: 1, TokenType.GT: -1, TokenType.R_PAREN: -1}
_STRINGS = {TokenType.STRING, TokenType.RAW_STRING}

# What sqlglot lets through when a function has arguments that it did not think of: MAP(1).
_BROKEN = (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError)


class Reader(Words):
    """What reads a statement: words, names, values, expressions, and lists of them."""

    def string(self, what: str) -> str:
        """Read a string in single quotes."""
        token = self._curr
        if token.token_type not in _STRINGS:
            raise self.expected(what, hint="Write it in single quotes: '...'.")
        self._advance()
        return token.text

    def integer(self, what: str) -> int:
        """Read a whole number, zero or more."""
        text = self._curr.text
        if self._curr.token_type is not TokenType.NUMBER or not (
            text.isascii() and text.isdecimal()
        ):
            raise self.expected(what, hint=f"Write {what} as digits, such as 10.")
        if len(text) > 18:
            raise self.error("the number is too large", hint="Use at most 18 digits.")
        self._advance()
        return int(text)

    def constant(self) -> str | int | float | None:
        """Read a string or a number with its sign; None when there is neither."""
        if self._curr.token_type in _STRINGS:
            return self.string("a string")
        sign = self._curr if self._curr.token_type is TokenType.DASH else None
        number = self._next if sign else self._curr
        if number.token_type is not TokenType.NUMBER or not _NUMBER.fullmatch(number.text):
            return None
        text = "-" + number.text if sign else number.text
        value = int(text) if number.text.isdecimal() else float(text)
        if isinstance(value, float) and math.isinf(value):
            raise self.error("the number is too large", hint="Use at most 308 digits.")
        self._advance(2 if sign else 1)
        return value

    def option_key(self) -> str:
        """Read the key of an option, in small letters: ``a``, ``a.b``, ``"a"`` or ``'a'``."""
        parts = []
        while True:
            token = self._curr
            first = token.text[:1] if token else ""
            if not (first.isalpha() or first == "_"):
                raise self.expected("the name of an option", hint="Write WITH (name = value).")
            self._advance()
            parts.append(token.text.lower())
            if not self.skip("."):
                return ".".join(parts)

    def text_until(self, ends: Callable[[str, TokenType, int], bool]) -> str:
        """Read up to the token that ends something; its word, kind and depth in brackets say so.

        Returns the text with blanks for comments, so that offsets into it are offsets from here.
        """
        begin, depth, text = self.offset, 0, ""
        while not self.at_end and not ends(self.word, self._curr.token_type, depth):
            depth += _DEEPER.get(self._curr.token_type, 0)
            text = text.ljust(self._curr.start - begin)
            text += self.sql[self._curr.start : self._curr.end + 1]
            self._advance()
        return text

    def interval(self) -> timedelta:
        """Read ``INTERVAL '5 minutes'``, ``INTERVAL '5' MINUTE`` or ``INTERVAL 5 MINUTES``."""
        self.expect("INTERVAL")
        at, parts = self.offset, []
        while self._curr.token_type in {TokenType.STRING, TokenType.NUMBER}:
            quantity = self._curr
            self._advance()
            parts.append(quantity.text)
            alone = quantity.token_type is TokenType.NUMBER or _is_number(quantity.text)
            if alone and self._curr and self.word.isalpha():
                parts.append(self.identifier("unit"))
        if not parts:
            raise self.expected("the length of the interval", hint="Write INTERVAL '5 minutes'.")
        try:
            return parse_duration(" ".join(parts))
        except Error as error:
            raise self.located_error(error, at) from error

    # --- Expressions ------------------------------------------------------------------------------

    def operand(self, what: str) -> exp.Expression:
        """Read an expression without an alias, such as a condition."""
        return self._checked(self._parse_disjunction, what)

    def condition(self) -> exp.Expression:
        """Read what follows WHERE."""
        return self.operand("a condition")

    def item(self) -> exp.Expression:
        """Read what a SELECT may select: an expression, perhaps with an alias, or a star."""
        return self._checked(self._parse_expression, "what to select")

    def query(self) -> exp.Query:
        """Read a whole query of any shape, by sqlglot's grammar."""
        tree = self._read(self._parse_whole, "a query")
        if not isinstance(tree, exp.Query):
            raise self.expected("a query", hint="Write SELECT ... FROM ...")
        return tree

    def _parse_whole(self) -> exp.Expr | None:
        tree = self._parse_select(nested=True, parse_subquery_alias=False)
        return self._parse_query_modifiers(self._parse_set_operations(tree))

    def _checked(self, read: Callable[[], exp.Expr | None], what: str) -> exp.Expression:
        expression = self._read(read, what)
        if expression is None:
            raise self.expected(what, hint="Write an expression, such as price > 100 or NULL.")
        check_expression(expression, self.sql)
        return cast("exp.Expression", expression)

    def _read(self, read: Callable[[], exp.Expr | None], what: str) -> exp.Expr | None:
        at = self.offset
        try:
            return None if self.at_end else read()
        except _BROKEN as error:
            hint = "A function may have too few arguments, or arguments of the wrong kind."
            raise self.error(f"{what} cannot be read", hint=hint, at=at) from error


def _is_number(text: str) -> bool:
    return text.strip().lstrip("+-").replace(".", "", 1).isdecimal()
