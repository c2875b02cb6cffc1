"""The cursor: one statement's tokens from left to right, with errors that know their places."""

from __future__ import annotations

import dataclasses
import difflib
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from sqlglot import Token, TokenType

from millstream.errors import Error, InvalidNameError, SqlError, SqlSyntaxError, SqlUnsupportedError
from millstream.model.names import check_name, quote_name
from millstream.sql.dialect import Millstream, MillstreamParser
from millstream.sql.positions import place_at
from millstream.sql.refusals import CLAUSES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from millstream.sql.statements.parameters import Parameters
    from millstream.sql.statements.statement import Statement

_S = TypeVar("_S", bound="Statement")
_T = TypeVar("_T")

PUBLIC = "public"
"""The schema that every relation is in; it may stand before its name, and is left out."""

_WORD_LIKE = {TokenType.VAR, *MillstreamParser.ID_VAR_TOKENS}


def nearest(word: str, choices: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return the choice that looks most like a word, or the empty string.

    >>> nearest("SELCT", ["INSERT", "SELECT"])
    'SELECT'
    """
    return next(iter(difflib.get_close_matches(word, list(choices), n=1, cutoff=cutoff)), "")


def did_you_mean(word: str, choices: Iterable[str], otherwise: str = "") -> str:
    """Return a hint with the nearest choice, or another one when none is near.

    >>> did_you_mean("SELCT", ["INSERT", "SELECT"])
    'Did you mean SELECT?'
    """
    near = nearest(word, choices)
    return f"Did you mean {near}?" if near else otherwise


class TokenCursor(MillstreamParser):
    """A place in a statement's tokens; each method reads its own part and stands after it.

    It is sqlglot's parser, so that expressions are read by its grammar, with plain methods in
    front, one for each thing that a statement may begin with or expect, so that the grammar of our
    statements is ours alone.
    """

    def __init__(self, sql: str, tokens: list[Token], parameters: Parameters) -> None:
        super().__init__(dialect=Millstream)
        self.sql = sql
        self.parameters = parameters
        self._hides_tokens = False
        self._chunks = [tokens]
        self._advance_chunk()

    # --- Where we are -----------------------------------------------------------------------------

    @property
    def offset(self) -> int:
        """Where the next token begins; after the last token, where the statement ends."""
        if self._curr:
            return self._curr.start
        return self._prev.end + 1 if self._prev else 0

    @property
    def place(self) -> tuple[int, int]:
        """Line and column of the next token."""
        return place_at(self.sql, self.offset)

    def place_of(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset."""
        return place_at(self.sql, offset)

    @property
    def word(self) -> str:
        """The next token in capitals; empty at the end and before what is in quotes."""
        return self._curr.text.upper() if self._curr and self._is_bare(self._curr) else ""

    @property
    def word_after(self) -> str:
        """The token after the next one, likewise."""
        return self._next.text.upper() if self._next and self._is_bare(self._next) else ""

    @property
    def word_before(self) -> str:
        """The token before the next one, likewise."""
        return self._prev.text.upper() if self._prev and self._is_bare(self._prev) else ""

    @property
    def offset_before(self) -> int:
        """Where the token before the next one begins."""
        return self._prev.start if self._prev else 0

    @property
    def is_last(self) -> bool:
        """Whether at most one token is left."""
        return not self._next

    @property
    def at_end(self) -> bool:
        """Whether all tokens are read."""
        return not self._curr

    def _is_bare(self, token: Token) -> bool:
        # Tokens of two words, such as GROUP BY, are bare too, but may have more blanks in the text.
        return token.token_type is not TokenType.IDENTIFIER and self.sql[token.start] not in "'\"`"

    @property
    def tokens_left(self) -> list[Token]:
        """The tokens from the next one on."""
        return self._tokens[self._index :]

    def pass_over(self, count: int) -> None:
        """Stand as many tokens further on."""
        self._advance(count)

    # --- Words ------------------------------------------------------------------------------------

    def skip(self, *words: str) -> bool:
        """Read these words if they come next, and say whether they did."""
        return self._match_text_seq(*words)

    def skip_any(self, *words: str) -> str:
        """Read the next word if it is one of these, and return it; else the empty string."""
        word = self.word
        if word not in words:
            return ""
        self._advance()
        return word

    def expect(self, *words: str, hint: str = "") -> None:
        """Read these words, which must come next."""
        for word in words:
            if not self.skip(word):
                what = word if word.isalpha() else repr(word)
                raise self.expected(what, hint=hint or f"Write {what} here.")

    def end(self) -> None:
        """Check that nothing is left, and say what it is if there is."""
        if self.at_end:
            return
        self.check_clause()
        raise self.error(
            f"unexpected {self._shown()}",
            hint="The statement could end before it; separate statements with ';'.",
        )

    def check_clause(self) -> None:
        """Refuse the next token if it begins a clause that is not supported."""
        clause = CLAUSES.get(self.word.split(" ")[0]) if self.word else None
        if clause:
            raise self.unsupported(f"{clause[0]} is not supported here", hint=clause[1])

    # --- Names ------------------------------------------------------------------------------------

    def identifier(self, what: str) -> str:
        """Read a name, bare or quoted, and return it as written."""
        token = self._curr
        if not token or not self._is_name(token):
            raise self._no_name(what)
        self._advance()
        return token.text

    def name(self, what: str) -> str:
        """Read the name of a source, a table, a channel: of ``what`` may have one."""
        at = self.offset
        name = self.identifier(what)
        if name.lower() == PUBLIC and self.skip("."):
            at, name = self.offset, self.identifier(what)
        if self.word == ".":
            self._advance()
            whole = f"{name}.{self._curr.text}" if self._curr else f"{name}."
            raise self.error(
                f"the name of a {what} has one part, with no schema before it",
                hint=f'If the point belongs to the name, write "{whole}".',
                at=at,
            )
        try:
            return check_name(name, what)
        except InvalidNameError as error:
            raise self.located_error(error, at) from error

    def _is_name(self, token: Token) -> bool:
        if token.token_type is TokenType.IDENTIFIER:
            return True
        if not self._is_bare(token) or self.sql[token.start : token.end + 1] != token.text:
            return False
        # What quote_name leaves bare must be readable here, or SHOW CREATE would write in vain.
        return token.token_type in _WORD_LIKE or quote_name(token.text) == token.text

    def _no_name(self, what: str) -> SqlError:
        text = self._curr.text if self._curr else ""
        message = f"expected the name of a {what}"
        if text and self._curr.token_type is TokenType.STRING:
            hint = f"Single quotes are for strings; write {quote_name(text)}."
        elif text.isidentifier():
            message = f"{text} is a keyword, and cannot be the name of a {what} as it stands"
            hint = f'Put it in double quotes: "{text}".'
            return self.error(message, hint=hint)
        else:
            hint = "A name is one word, or a text in double quotes."
        return self.expected(f"the name of a {what}", hint=hint)

    def may_be_alias(self) -> bool:
        """Whether the next token can be another name of a table, and begins no clause."""
        if not self._curr or self.word.split(" ")[0] in CLAUSES:
            return False
        quoted = self._curr.token_type is TokenType.IDENTIFIER
        return quoted or self._curr.token_type in self.TABLE_ALIAS_TOKENS - {TokenType.LIMIT}

    # --- Lists ------------------------------------------------------------------------------------

    def listed(self, read: Callable[[], _T]) -> list[_T]:
        """Read one or more things with commas between them."""
        things = [read()]
        while self.skip(","):
            things.append(read())
        return things

    def wrapped(self, read: Callable[[], _T]) -> list[_T]:
        """Read one or more things in parentheses."""
        self.expect("(")
        things = self.listed(read)
        self.close()
        return things

    def close(self) -> None:
        """Read the parenthesis that ends a list."""
        if not self.skip(")"):
            raise self.expected("',' or ')'", hint="A comma or a parenthesis may be missing.")

    # --- Errors and places ------------------------------------------------------------------------

    def error(
        self,
        message: str,
        *,
        hint: str = "",
        at: int | None = None,
        kind: type[SqlError] = SqlSyntaxError,
    ) -> SqlError:
        """Return an error at an offset, or else at the next token."""
        line, column = place_at(self.sql, self.offset if at is None else at)
        return kind(message, sql=self.sql, line=line, column=column, hint=hint)

    def expected(self, what: str, *, hint: str = "") -> SqlError:
        """Return the error of another token than ``what``."""
        if self._prev and self._curr and self._curr.token_type is TokenType.PLACEHOLDER:
            hint = "A parameter stands for a value in a query, an INSERT, an UPDATE or a DELETE."
        return self.error(f"expected {what}, got {self._shown()}", hint=hint)

    def unsupported(self, message: str, *, hint: str, at: int | None = None) -> SqlError:
        """Return the error of what is well formed, but not there."""
        return self.error(message, hint=hint, at=at, kind=SqlUnsupportedError)

    def located_error(
        self, error: Error, at: int, kind: type[SqlError] = SqlSyntaxError
    ) -> SqlError:
        """Return an error of the model, which knows no text, with its place in this one."""
        return self.error(error.message, hint=error.hint, at=at, kind=kind)

    def located(self, statement: _S, begin: int) -> _S:
        """Return a statement with its text, from an offset to the last token, and its place."""
        line, column = place_at(self.sql, begin)
        text = self.parameters.text(self.sql, begin, self._tokens[-1].end + 1)
        return dataclasses.replace(statement, sql=self.sql, text=text, line=line, column=column)

    @contextmanager
    def hiding_tokens(self) -> Iterator[None]:
        """While this is entered, errors do not repeat words, numbers and texts."""
        self._hides_tokens = True
        yield
        self._hides_tokens = False

    def _shown(self) -> str:
        if self.at_end:
            return "the end of the statement"
        text = self.sql[self._curr.start : self._curr.end + 1]
        if self._hides_tokens and (len(text) > 1 or text.isalnum()):
            return {"'": "a text", '"': "a name"}.get(
                text[0], "a number" if text[0].isdecimal() else "a word"
            )
        return text if text[0] in "'\"`" else repr(text if len(text) <= 40 else text[:37] + "...")
