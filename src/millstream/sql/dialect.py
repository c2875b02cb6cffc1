"""The dialect: Spark SQL in ANSI mode, with the quotes of the SQL standard.

``'...'`` is a string, with Spark's backslash escapes and ``''`` for a quote; ``"..."`` and
backticks are names. sqlglot's grammar of expressions is used as it is; statements are read by
``statements.reader.StatementReader``, which is built on this parser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError
from sqlglot.parser import binary_range_parser
from sqlglot.parsers.spark import SparkParser

from millstream.formats.text import bytea
from millstream.model.types import NUMERIC, parse_type
from millstream.sql.function_names import AGGREGATES, AS_WRITTEN, COUNTS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_ALL = {**COUNTS, **AGGREGATES}
_NO_CALLS = frozenset({"AND", "OR", "ARGMAX", "ARGMIN", "ARG_MAX", "ARG_MIN"})
_POSITIONAL = frozenset({"ANY_VALUE", "FIRST", "FIRST_VALUE", "LAST", "LAST_VALUE"})
_TYPED = {TokenType.DATE, TokenType.TIMESTAMPTZ, TokenType.TIMESTAMPLTZ, TokenType.TIMESTAMPNTZ}
_NOTHING = Token(TokenType.SENTINEL, "")
_MATCH = "MATCH_CONDITION"
_BYTEA = "bytea"


_BITWISE: tuple[tuple[TokenType, int, type[exp.Expr]], ...] = (
    (TokenType.PIPE, 1, exp.BitwiseOr),
    (TokenType.CARET, 2, exp.BitwiseXor),
    (TokenType.AMP, 3, exp.BitwiseAnd),
)
_SHIFT = 4


def _unsigned_shift(this: exp.Expr, expression: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="SHIFTRIGHTUNSIGNED", expressions=[this, expression])


class MisreadError(ParseError):
    """What sqlglot could not read; a ParseError, so that its own second tries still work.

    Attributes:
        description: the problem in sqlglot's words.
        offset: where in the text.
        found: the text of the token there; empty at the end of the statement.
    """

    def __init__(self, description: str, *, offset: int, found: str) -> None:
        super().__init__(description, [{"description": description}])
        self.description = description
        self.offset = offset
        self.found = found


def _placed(read: Callable[[Any], tuple[str, Any]]) -> Callable[[Any], tuple[str, Any]]:
    """Return what reads a clause, such as ORDER BY, and notes where its first word is."""

    def placed(parser: MillstreamParser) -> tuple[str, Any]:
        token = parser._curr  # noqa: SLF001 - of the class below
        key, clause = read(parser)
        if isinstance(clause, exp.Expr):
            clause.update_positions(token)
        return key, clause

    return placed


def _counted(name: str, build: Callable[..., Any]) -> Callable[..., Any]:
    """Return what builds the tree of a function; with a wrong number of arguments, just a call."""

    def built(args: list[exp.Expr], dialect: Any = None) -> exp.Expr:  # noqa: ANN401 - sqlglot's
        least, most = _ALL[name]
        if not least <= len(args) <= most or not _is_fixed(name, args):
            return exp.Anonymous(this=name, expressions=args)
        # Of builders that need the dialect, sqlglot expects a TypeError without it.
        made: exp.Expr = build(args) if dialect is None else build(args, dialect=dialect)
        return made

    return built


def _is_fixed(name: str, args: list[exp.Expr]) -> bool:
    """Whether the arguments that Spark wants to be known beforehand are written out."""
    if name == "DATE_TRUNC":
        return args[0].is_string
    return name not in _POSITIONAL or len(args) < 2 or isinstance(args[1], exp.Boolean)


class MillstreamParser(SparkParser):
    """Spark's grammar, whose trees and errors know their places."""

    # In ANSI mode CAST raises; sqlglot would make a TRY_CAST of it for Spark.
    STRICT_CAST = True

    # SESSION is a word of other dialects' SET; here it is a window.
    FUNC_TOKENS = SparkParser.FUNC_TOKENS | {TokenType.SESSION}

    # A parameter stands where a literal may, and nowhere else; sqlglot takes it for a name, too.
    PLACEHOLDER_PARSERS: ClassVar = {}
    COLUMN_OPERATORS: ClassVar = {
        kind: read
        for kind, read in SparkParser.COLUMN_OPERATORS.items()
        if kind is not TokenType.PLACEHOLDER
    }

    FUNCTIONS = {  # noqa: RUF012 - declared as a ClassVar in the base
        name: _counted(name, build) if name in _ALL else build
        for name, build in SparkParser.FUNCTIONS.items()
        if name not in _NO_CALLS and name not in AS_WRITTEN
    }
    FUNCTION_PARSERS = {  # noqa: RUF012 - Spark does not call these
        name: read for name, read in SparkParser.FUNCTION_PARSERS.items() if name not in _NO_CALLS
    }

    # As in Spark || is one of + and -, not of the operators of bits.
    TERM: ClassVar = {**SparkParser.TERM, TokenType.DPIPE: exp.DPipe}

    # Between two operands ~ is PostgreSQL's RLIKE; before one it is Spark's NOT of bits.
    RANGE_PARSERS: ClassVar = {
        **SparkParser.RANGE_PARSERS,
        TokenType.TILDE: binary_range_parser(exp.RegexpLike),
    }

    PRIMARY_PARSERS = {  # noqa: RUF012 - declared as a ClassVar in the base
        **SparkParser.PRIMARY_PARSERS,
        TokenType.PLACEHOLDER: lambda self, token: self.parameter(token),
        TokenType.COLON: lambda self, token: self.parameter(token),
        TokenType.NULL: lambda self, token: self.expression(exp.Null(), token),
        TokenType.TRUE: lambda self, token: self.expression(exp.Boolean(this=True), token),
        TokenType.FALSE: lambda self, token: self.expression(exp.Boolean(this=False), token),
    }

    QUERY_MODIFIER_PARSERS: ClassVar = {
        kind: _placed(read) for kind, read in SparkParser.QUERY_MODIFIER_PARSERS.items()
    }

    def raise_error(self, message: str, token: Token = _NOTHING) -> None:
        """Raise with the offset of the token, which sqlglot's own error has not."""
        token = token or self._curr
        if token:
            raise MisreadError(message, offset=token.start, found=token.text)
        raise MisreadError(message, offset=self._prev.end + 1 if self._prev else 0, found="")

    def parameter(self, token: Token) -> exp.Expr:
        """Return what a parameter stands for; the token, ``?`` or the colon, was read."""
        raise MisreadError("no parameter", offset=token.start, found=token.text)

    def _parse_type(
        self, parse_interval: bool = True, fallback_to_identifier: bool = False
    ) -> exp.Expr | None:
        if (
            not self._curr
            or self._curr.token_type not in _TYPED
            or not self._next
            or self._next.token_type is not TokenType.STRING
        ):
            return super()._parse_type(parse_interval, fallback_to_identifier)
        # sqlglot would read DATE '2026-01-31'::STRING as a DATE of '2026-01-31'::STRING.
        token = self._curr
        to = self._parse_types(check_func=True, allow_identifiers=False)
        made = self.expression(exp.Cast(this=self._parse_primary(), to=to))
        return self._parse_column_ops(made.update_positions(token))

    def _parse_types(
        self,
        check_func: bool = False,
        schema: bool = False,
        allow_identifiers: bool = True,
        with_collation: bool = False,
    ) -> exp.Expr | None:
        word = self._curr.text.upper() if self._curr else ""
        made = super()._parse_types(check_func, schema, allow_identifiers, with_collation)
        if isinstance(made, exp.DataType) and made.this is exp.DType.FLOAT and made.expressions:
            return exp.DataType.build(parse_type(f"FLOAT({made.expressions[0].name})").sql)
        if isinstance(made, exp.DataType) and not made.expressions:
            if made.this is exp.DType.DECIMAL:  # Spark's own has no digits after the point
                sizes = (NUMERIC.arrow.precision, NUMERIC.arrow.scale)
                params = [exp.DataTypeParam(this=exp.Literal.number(size)) for size in sizes]
                made.set("expressions", params)
            elif word == "BYTEA":
                made.meta[_BYTEA] = True
        return made

    def build_cast(self, strict: bool, **kwargs: Any) -> exp.Expr:  # noqa: ANN401 - sqlglot's
        """Return a CAST; of a text to BYTEA the bytes that PostgreSQL reads in it."""
        made = super().build_cast(strict, **kwargs)
        this, to = made.this, made.args.get("to")
        if not (to is not None and to.meta.get(_BYTEA) and this.is_string):
            return made
        try:
            read = exp.HexString(this=bytea(this.name).hex())
        except ValueError as error:
            raise MisreadError(
                f"{this.name!r} is no BYTEA", offset=this.meta.get("start", 0), found=this.name
            ) from error
        return self.expression(read)

    def _parse_atom(self) -> exp.Expr | None:
        # sqlglot's short cut takes one token for an operand; a colon and its name are two, and what
        # follows them, as in :x::BIGINT, would be left over.
        is_parameter = self._curr and self._curr.token_type is TokenType.COLON
        return None if is_parameter else super()._parse_atom()

    def _parse_unary(self) -> exp.Expr | None:
        # Every operand comes this way: CASE, CAST, NOT and parentheses get their places here.
        token = self._curr
        operand = super()._parse_unary()
        if operand is not None and "start" not in operand.meta:
            operand.update_positions(token)
        return operand

    def _parse_bitwise(self) -> exp.Expr | None:
        # sqlglot has one level for all of them; in Spark shifts come first, then &, ^ and |.
        made = [self._parse_term()]
        waiting: list[tuple[int, Callable[..., exp.Expr]]] = []
        while (found := self._bit_operator()) is not None:
            while waiting and waiting[-1][0] >= found[0]:
                self._reduce(made, waiting.pop()[1])
            waiting.append(found)
            made.append(self._parse_term())
        while waiting:
            self._reduce(made, waiting.pop()[1])
        return made[0]

    def _bit_operator(self) -> tuple[int, Callable[..., exp.Expr]] | None:
        """Return how near an operator of bits binds, and what makes it; None: there is none."""
        for kind, rank, operator in _BITWISE:
            if self._match(kind):
                return rank, operator
        if self._match_pair(TokenType.LT, TokenType.LT):
            return _SHIFT, exp.BitwiseLeftShift
        if self._match_pair(TokenType.GT, TokenType.GT):
            unsigned = self._match(TokenType.GT)
            return _SHIFT, _unsigned_shift if unsigned else exp.BitwiseRightShift
        return None

    def _reduce(self, made: list[exp.Expr | None], operator: Callable[..., exp.Expr]) -> None:
        right = made.pop()
        made.append(self.expression(operator(this=made.pop(), expression=right)))

    def _parse_join(
        self,
        skip_join_token: bool = False,
        parse_bracket: bool = False,
        alias_tokens: Collection[TokenType] | None = None,
    ) -> exp.Join | None:
        token = self._curr
        join = super()._parse_join(skip_join_token, parse_bracket, alias_tokens)
        if join is not None:
            join.update_positions(token)
        if join is not None and join.method == "ASOF" and self._match_text_seq(_MATCH):
            self._parse_match(join)
        return join

    def _parse_join_parts(self) -> tuple[Token | None, Token | None, Token | None]:
        method, side, kind = super()._parse_join_parts()
        if method is None and self._match(TokenType.ASOF):  # LEFT ASOF JOIN, as Spark writes it
            method = self._prev
        return method, side, kind

    def _parse_match(self, join: exp.Join) -> None:
        """Read what follows MATCH_CONDITION."""
        join.set("match_condition", self._parse_wrapped(self._parse_disjunction))
        if self._match_text_seq("TOLERANCE"):
            join.set("tolerance", self._parse_unary())
        if self._match(TokenType.ON):
            join.set("on", self._parse_disjunction())
        elif self._match(TokenType.USING):
            join.set("using", self._parse_using_identifiers())

    def _parse_table_alias(
        self, alias_tokens: Collection[TokenType] | None = None
    ) -> exp.TableAlias | None:
        is_match = self._curr and self._curr.text.upper() == _MATCH
        if is_match and self._next and self._next.token_type is TokenType.L_PAREN:
            return None
        return super()._parse_table_alias(alias_tokens)

    def _parse_select(
        self,
        nested: bool = False,
        table: bool = False,
        parse_subquery_alias: bool = True,
        parse_set_operation: bool = True,
        consume_pipe: bool = True,
    ) -> exp.Expr | None:
        token = self._curr
        query = super()._parse_select(
            nested, table, parse_subquery_alias, parse_set_operation, consume_pipe
        )
        if query is not None and "start" not in query.meta:
            query.update_positions(token)
        return query


WRITTEN = "written"
"""Where the tree of a function keeps the name that it was called by, among others of its class."""


class Millstream(Spark):
    """The dialect, for sqlglot's own functions: ``sqlglot.parse_one(sql, dialect=Millstream)``."""

    ORIGINAL_NAME_META_KEY = WRITTEN

    class Tokenizer(Spark.Tokenizer):
        """Spark's tokens, with standard quotes and without statements of one token."""

        QUOTES = ["'"]  # noqa: RUF012
        IDENTIFIERS = ['"', "`"]  # noqa: RUF012
        STRING_ESCAPES = ["\\", "'"]  # noqa: RUF012
        RAW_STRINGS = [("r'", "'"), ("R'", "'")]  # noqa: RUF012

        # sqlglot takes all that follows a command as one string; we want its tokens.
        COMMANDS: ClassVar[set[TokenType]] = set()
        KEYWORDS = {  # noqa: RUF012
            word: kind
            for word, kind in Spark.Tokenizer.KEYWORDS.items()
            # ADD FILE, for one, would hide the column of ALTER SOURCE s ADD file VARCHAR;
            # an operator ?:: of other dialects would hide the parameter of ?::BIGINT.
            if kind is not TokenType.COMMAND and not word.startswith("?")
        }

    Parser = MillstreamParser
