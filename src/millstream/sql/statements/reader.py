"""The reader: the words of a statement, and the values and expressions among them."""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from sqlglot import TokenType, exp

from millstream.errors import Error, SqlParameterError
from millstream.sql.refusals import check_expression
from millstream.sql.statements.cursor import PUBLIC, TokenCursor
from millstream.sql.statements.durations import parse_duration
from millstream.sql.statements.parameters import NoValue
from millstream.sql.synonyms import as_spark
from millstream.sql.table_functions import rewrite_table_functions

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from sqlglot import Token

_NUMBER = re.compile(r"[0-9]{1,300}(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?")
_DEEPER = {TokenType.LT: 1, TokenType.L_PAREN: 1, TokenType.GT: -1, TokenType.R_PAREN: -1}
_STRINGS = {TokenType.STRING, TokenType.RAW_STRING}

# What sqlglot lets through when a function has arguments that it did not think of: MAP(1).
_BROKEN = (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError)


class StatementReader(TokenCursor):
    """What reads a statement: one method each for words, names, values, expressions, and lists."""

    # --- Parameters -------------------------------------------------------------------------------

    def parameter(self, token: Token) -> exp.Expr:
        """Return the literal of a parameter; the token, ``?`` or the colon, was read."""
        name, end = "", token.end
        if token.token_type is TokenType.COLON:
            if not self._names_parameter(token, self._curr):
                raise self.error(
                    "a name must follow the colon", hint="Write :name, or ?.", at=token.start
                )
            name, end = self._curr.text, self._curr.end
            self._advance()
        made = self.parameters.bind(name, token.start, end + 1)
        made.update_positions(token)
        if isinstance(made, exp.Neg):
            made.this.update_positions(token)
        return made

    def refuse_parameters(self) -> None:
        """Let none stand in what follows."""
        self.parameters = self.parameters.refused(
            "a definition is stored, and has no parameters", "Write the value into the text."
        )

    def _names_parameter(self, colon: Token, name: Token) -> bool:
        return bool(name) and name.start == colon.end + 1 and name.text.isidentifier()

    def _value(self, what: str, fits: Callable[[Any], bool]) -> Any:  # noqa: ANN401 - the user's
        """Read a parameter whose value must fit; None, with nothing read, if there is none.

        For the places where our own grammar takes one token, and no expression.
        """
        token = self._curr
        is_named = token.token_type is TokenType.COLON and self._names_parameter(token, self._next)
        if token.token_type is not TokenType.PLACEHOLDER and not is_named:
            return None
        name = self._next.text if is_named else ""
        value = self.parameters.value(name, token.start)
        if isinstance(value, NoValue):  # what it is will be checked once it is known
            value = next(each for each in ("", 1) if fits(each))
        if isinstance(value, bool) or not fits(value):
            raise self.error(
                f"{what} is {value!r}", hint="Give another value.", kind=SqlParameterError
            )
        self._advance()
        self.parameter(token)
        return value

    def _parse_in(self, this: exp.Expr | None, alias: bool = False) -> exp.In:
        made = super()._parse_in(this, alias)
        values = made.expressions or [made.args.get("field")]
        if not any(isinstance(each, exp.Placeholder) for each in values):
            return made
        listed = [one for each in values for one in self.parameters.spread(each)]
        if listed:
            return self.expression(exp.In(this=made.this, expressions=listed))
        return cast("exp.In", exp.false())  # nothing is in an empty list

    # --- Values -----------------------------------------------------------------------------------

    def string(self, what: str) -> str:
        """Read a string in single quotes."""
        given: str | None = self._value(what, lambda value: isinstance(value, str))
        if given is not None:
            return given
        token = self._curr
        if token.token_type not in _STRINGS:
            raise self.expected(what, hint="Write it in single quotes: '...'.")
        self._advance()
        return token.text

    def integer(self, what: str) -> int:
        """Read a whole number, zero or more."""
        given: int | None = self._value(
            what, lambda value: isinstance(value, int) and 0 <= value < 10**18
        )
        if given is not None:
            return given
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
        given: str | int | float | datetime | None = self._value(
            "the parameter", lambda value: isinstance(value, (str, int, float, datetime))
        )
        if given is not None:
            return given.isoformat() if isinstance(given, datetime) else given
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
        """Read the key of an option, in small letters: ``a``, ``a.b-c``, ``"a"`` or ``'a'``."""
        parts = []
        while True:
            token = self._curr
            first = token.text[:1] if token else ""
            if not (first.isalpha() or first == "_"):
                raise self.expected("the name of an option", hint="Write WITH (name = value).")
            self._advance()
            parts.append(token.text.lower() + self._after_hyphens())
            if not self.skip("."):
                return ".".join(parts)

    def _after_hyphens(self) -> str:
        """Read ``-b-c``, the rest of a key such as ``a-b-c``, if it follows without a blank."""
        found = ""
        while (
            self.word == "-"
            and self._curr.start == self._prev.end + 1
            and self._next
            and self._next.start == self._curr.end + 1
            and self._next.text[:1].isalnum()
        ):
            found += f"-{self._next.text.lower()}"
            self._advance(2)
        return found

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

    def stored(self, what: str) -> exp.Expression:
        """Read the value of a column: an expression, or a parameter that is a list or a dict."""
        at = self._index
        value = self._read(self._parse_disjunction, what)
        if isinstance(value, exp.Placeholder):
            return cast("exp.Expression", value)
        self._retreat(at)
        return self.operand(what)

    def condition(self) -> exp.Expression:
        """Read what follows WHERE."""
        return self.operand("a condition")

    def item(self) -> exp.Expression:
        """Read what a SELECT may select: an expression, perhaps with an alias, or a star."""
        return self._checked(self._parse_expression, "what to select")

    def query(self) -> exp.Query:
        """Read a whole query of any shape, by sqlglot's grammar."""
        tree = self._read(self._parse_whole, "a query")
        if isinstance(tree, exp.Values):
            tree = exp.Select(expressions=[exp.Star()], from_=exp.From(this=tree))
        if not isinstance(tree, exp.Query):
            raise self.expected("a query", hint="Write SELECT ... FROM ...")
        _drop_schemas(tree)
        rewrite_table_functions(tree, self.sql)
        return cast("exp.Query", as_spark(tree))

    def _parse_whole(self) -> exp.Expr | None:
        tree = self._parse_select(nested=True, parse_subquery_alias=False)
        return self._parse_query_modifiers(self._parse_set_operations(tree))

    def _parse_table_part(self, schema: bool = False) -> exp.Expr | None:
        """Read a name after FROM, or a function, whatever it is called."""
        if schema:
            return super()._parse_table_part(schema)
        is_flinks = self._match_pair(TokenType.TABLE, TokenType.L_PAREN)
        function = self._parse_function(anonymous=True, optional_parens=False)
        if is_flinks:
            self._match_r_paren()
        return function or super()._parse_table_part(schema)

    def _parse_lambda(self, alias: bool = False) -> exp.Expr | None:
        """Read an argument of a function; TABLE before the name of a relation is Flink's."""
        is_table = self._curr.token_type is TokenType.TABLE
        if is_table and self._next.token_type is not TokenType.L_PAREN:
            self._match(TokenType.TABLE)
        return super()._parse_lambda(alias)

    def _checked(self, read: Callable[[], exp.Expr | None], what: str) -> exp.Expression:
        expression = self._read(read, what)
        if expression is None:
            raise self.expected(what, hint="Write an expression, such as price > 100 or NULL.")
        expression = as_spark(expression)
        check_expression(expression, self.sql)
        return cast("exp.Expression", expression)

    def _read(self, read: Callable[[], exp.Expr | None], what: str) -> exp.Expr | None:
        at = self.offset
        try:
            return None if self.at_end else read()
        except _BROKEN as error:
            hint = "A function may have too few arguments, or arguments of the wrong kind."
            raise self.error(f"{what} cannot be read", hint=hint, at=at) from error


def _drop_schemas(tree: exp.Expr) -> None:
    """Leave out the one schema that there is, ``public``, before the names of a query."""
    for each in tree.find_all(exp.Table, exp.Column):
        schema = each.args.get("db")
        if schema is not None and schema.name.lower() == PUBLIC and not each.args.get("catalog"):
            each.set("db", None)


def _is_number(text: str) -> bool:
    return text.strip().lstrip("+-").replace(".", "", 1).isdecimal()
