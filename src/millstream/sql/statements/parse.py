"""Parsing: from a text of SQL to its statements, or to one error at its place."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn, TypeVar

from sqlglot import Token, TokenType
from sqlglot.errors import SqlglotError, TokenError

from millstream.errors import InvalidOptionError, SqlError, SqlSyntaxError
from millstream.model.types import MAX_PRECISION
from millstream.sql.dialect import Millstream, MisreadError
from millstream.sql.positions import place_at
from millstream.sql.statements.constants import with_constants
from millstream.sql.statements.copy import read_copy
from millstream.sql.statements.create import read_alter, read_create, read_drop, read_explain
from millstream.sql.statements.cursor import did_you_mean, nearest
from millstream.sql.statements.parameters import Parameters
from millstream.sql.statements.query import QUERY_WORDS, read_live, read_query
from millstream.sql.statements.reader import StatementReader
from millstream.sql.statements.show import (
    read_describe,
    read_listen,
    read_notify,
    read_show,
    read_unlisten,
)
from millstream.sql.statements.write import read_delete, read_insert, read_update

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlglot import exp

    from millstream.sql.statements.constants import Functions
    from millstream.sql.statements.parameters import ParameterValues, Unknown
    from millstream.sql.statements.statement import Statement


_T = TypeVar("_T")

_READERS: Mapping[str, Callable[[StatementReader], Statement]] = {
    "CREATE": read_create,
    "ALTER": read_alter,
    "DROP": read_drop,
    "INSERT": read_insert,
    "UPDATE": read_update,
    "DELETE": read_delete,
    "COPY": read_copy,
    "LIVE": read_live,
    "EXPLAIN": read_explain,
    "SHOW": read_show,
    "DESCRIBE": read_describe,
    "DESC": read_describe,
    "LISTEN": read_listen,
    "UNLISTEN": read_unlisten,
    "NOTIFY": read_notify,
}
"""The first word of each statement, and what reads the rest of it."""

_TRANSACTION = "Each statement is a transaction of its own."
_RIGHTS = "Rights are those of keys: millstream keys create DIR NAME --role read."
_PREPARED = (
    "Give values as parameters: db.execute(sql, [...]). PREPARE and EXECUTE are statements of "
    "PostgreSQL's protocol."
)
_UNSUPPORTED = {
    "FROM": "Begin with SELECT: SELECT * FROM trades.",
    "VALUES": "Write INSERT INTO ... VALUES.",
    "TABLE": "Write SELECT * FROM ...",
    "MERGE": "Write INSERT OR REPLACE, UPDATE and DELETE.",
    "REPLACE": "Write INSERT OR REPLACE INTO ...",
    "UPSERT": "Write INSERT OR REPLACE INTO ...",
    "TRUNCATE": "Write DELETE FROM ... without WHERE.",
    "LOAD": "Write COPY t FROM 'x.csv'.",
    "SUBSCRIBE": "Call db.subscribe(query), or write LIVE SELECT; over HTTP, GET /v1/subscribe. "
    "SUBSCRIBE is a statement of the shell and of PostgreSQL's protocol.",
    "PREPARE": _PREPARED,
    "EXECUTE": _PREPARED,
    "DEALLOCATE": _PREPARED,
    "BEGIN": _TRANSACTION,
    "START": _TRANSACTION,
    "COMMIT": _TRANSACTION,
    "ROLLBACK": _TRANSACTION,
    "GRANT": _RIGHTS,
    "REVOKE": _RIGHTS,
    "SET": "Options are given in WITH (...) when something is created, or to ms.open().",
    "USE": "A database has one space of names; open another with ms.open(path).",
    "CALL": "There are no procedures.",
    "ANALYZE": "There are no statistics to gather.",
    "VACUUM": "Retention does this by itself.",
    "REFRESH": "Nothing needs to be refreshed.",
    "KILL": "Close the subscription where it was opened.",
}

_WANTED = re.compile(r"Expect(?:ed|ing) (?P<what>.+?)(?: but got .*)?$", re.DOTALL)
_COUNTS = re.compile(r"The number of provided arguments \((?P<given>\d+)\).*\((?P<most>\d+)\)")
_BAD_BYTES = re.compile(r"Numeric string contains invalid characters from \d+:(?P<offset>\d+)")
_MISSING_QUOTE = re.compile(r"Missing (?P<quote>.+) from \d+:(?P<offset>\d+)")
_TOO_DEEP = "Write it with fewer parentheses inside each other; use IN (...) for a long list of OR."


def parse(
    sql: str,
    parameters: ParameterValues | Unknown = None,
    functions: Functions | None = None,
) -> list[Statement]:
    """Return the statements of a text, which are separated by semicolons.

    Args:
        sql: the text.
        parameters: the values of its parameters: a list for ``?``, a dict for ``:name``.
        functions: those of the session, such as NOW(), whose values statements that run once have;
            None: they are what they are in a view.

    >>> [show] = parse("SHOW SOURCES LIKE 'tr%';")
    >>> show
    Show(kind='sources', like='tr%')

    Raises:
        SqlSyntaxError: the text is no statement; it says where and what to write instead.
        SqlUnsupportedError: it is one, but not one that can be answered yet.
        SqlParameterError: a parameter without a value, or a value without a parameter.
        SqlError: a column or a type in it is wrong.
    """
    return parse_marked(sql, parameters, functions)[0]


def parse_marked(
    sql: str,
    parameters: ParameterValues | Unknown = None,
    functions: Functions | None = None,
) -> tuple[list[Statement], dict[int, str]]:
    """As ``parse``; and by the offsets of the parameters in the text, their names.

    A ``?`` has an empty name.
    """
    if not isinstance(sql, str):
        raise InvalidOptionError(
            f"expected the text of a statement, got {type(sql).__name__}",
            hint="Give a str, such as 'SELECT * FROM trades'.",
        )
    chunks = [chunk for chunk in _chunks(sql) if chunk]
    if not chunks:
        raise SqlSyntaxError("there is no statement", sql=sql, hint="Write SELECT * FROM trades.")
    given = Parameters(sql, (token for chunk in chunks for token in chunk), parameters)
    if functions is not None:
        chunks = [with_constants(chunk, given, functions) for chunk in chunks]
    statements = [guarded(sql, chunk, given, _statement) for chunk in chunks]
    given.check_used()
    return statements, dict(sorted(given.marks.items()))


def parse_expression(sql: str) -> exp.Expression:
    """Return one expression, such as the condition of a WHERE.

    >>> parse_expression("price > 100").sql(dialect=Millstream)
    'price > 100'

    Raises:
        SqlError: the text is no expression, or more than one.
    """
    tokens = [token for chunk in _chunks(sql) for token in chunk]
    return guarded(sql, tokens, Parameters(sql, tokens), _expression)


def _expression(reader: StatementReader) -> exp.Expression:
    expression = reader.operand("an expression")
    reader.end()
    return expression


def _statement(reader: StatementReader) -> Statement:
    begin, word = reader.offset, reader.word
    read = _READERS.get(word)
    if word in QUERY_WORDS:
        statement: Statement = read_query(reader)
    elif read is None:
        raise _no_statement(reader)
    else:
        reader.skip(word)
        if word in {"CREATE", "ALTER"}:
            reader.refuse_parameters()
        statement = read(reader)
    reader.end()
    return reader.located(statement, begin)


def _no_statement(reader: StatementReader) -> SqlError:
    word = reader.word.split(" ")[0]
    if word in _UNSUPPORTED:
        return reader.unsupported(f"{word} is not supported", hint=_UNSUPPORTED[word])
    known = ["SELECT", "WITH", *_READERS, *_UNSUPPORTED]
    left = reader.tokens_left
    is_name = len(left) == 1 and left[0].token_type is TokenType.VAR
    if is_name and not nearest(word, known, cutoff=0.75):
        name = reader.sql[left[0].start : left[0].end + 1]
        return reader.expected("a statement", hint=f"Write SELECT * FROM {name}.")  # noqa: S608
    otherwise = f"Statements begin with SELECT, {', '.join(_READERS)}."
    return reader.expected("a statement", hint=did_you_mean(word, known, otherwise))


def _chunks(sql: str) -> list[list[Token]]:
    """The tokens of each statement."""
    problem: SqlError | None = None
    try:
        tokens = Millstream().tokenize(sql)
    except TokenError as error:
        problem = _token_error(error, sql)
    if problem is not None:
        raise problem  # with no context: sqlglot's errors repeat the text, and passwords in it
    chunks: list[list[Token]] = [[]]
    for token in numbers_apart(tokens, sql, Millstream().tokenize):
        if token.token_type is TokenType.SEMICOLON:
            chunks.append([])
        else:
            chunks[-1].append(token)
    return chunks


def guarded(
    sql: str,
    tokens: list[Token],
    parameters: Parameters,
    read: Callable[[StatementReader], _T],
    grammar: type[StatementReader] = StatementReader,
) -> _T:
    """Read, and turn what sqlglot raises into an error of ours, without context as above."""
    try:
        return read(grammar(sql, tokens, parameters))
    except MisreadError as error:
        line, column = place_at(sql, error.offset)
        message, hint = _in_our_words(error)
        problem = SqlSyntaxError(message, sql=sql, line=line, column=column, hint=hint)
    except SqlglotError:
        problem = SqlSyntaxError("the statement cannot be read", sql=sql)
    except RecursionError:
        problem = SqlSyntaxError("the statement is nested too deeply", sql=sql, hint=_TOO_DEEP)
    raise problem


def _in_our_words(error: MisreadError) -> tuple[str, str]:
    found = repr(error.found) if error.found else "the end of the statement"
    wanted = _WANTED.match(error.description)
    if wanted:
        what = wanted["what"] if wanted["what"][0].isalpha() else f"'{wanted['what']}'"
        return f"expected {what}, got {found}", "A parenthesis or a word may be missing before it."
    if error.description.startswith("Required keyword"):
        hint = "Operators need a value on both sides, functions all their arguments."
        if error.found in {"$", "@"}:
            hint = "Parameters are written ? or :name."
        return f"something is missing before {found}", hint
    counts = _COUNTS.match(error.description)
    if counts:
        hint = "Leave out those that it does not take, or close it earlier."
        return f"a function has {counts['given']} arguments and takes {counts['most']}", hint
    return f"unexpected {found}", "Something before it may be missing, or be one too many."


def _token_error(error: TokenError, sql: str) -> SqlSyntaxError:
    found = _MISSING_QUOTE.search(f"{error.__cause__} {error}")
    if found:
        quote = found["quote"]
        line, column = place_at(sql, int(found["offset"]))
        hint = f"Add {quote} where it ends; inside, write it twice."
        message = f"a text in {quote} quotes does not end" if len(quote) == 1 else "no end"
        return SqlSyntaxError(message, sql=sql, line=line, column=column, hint=hint)
    bad = _BAD_BYTES.search(f"{error.__cause__} {error}")
    if bad:
        line, column = place_at(sql, int(bad["offset"]))
        hint = "Write bytes as hexadecimal digits, two for each: X'1FA0'."
        return SqlSyntaxError(
            "X'...' has characters other than digits", sql=sql, line=line, column=column, hint=hint
        )
    # The tokenizer ran over the end, and does not say in what.
    line, column = place_at(sql, max(sql.rfind("/*"), 0))
    hint = "A comment, or a name in quotes, may not be closed."
    return SqlSyntaxError(
        "the text does not end well", sql=sql, line=line, column=column, hint=hint
    )


# ---- numbers, as Spark's lexer reads them


_GLUED = re.compile(r"([0-9]+\.?[0-9]*[eE][0-9]+)([+-].+)", re.DOTALL)
_PARTS = re.compile(r"(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?(?:[eE](?P<power>[+-]?[0-9]+))?")
_LONGEST_POWER = 6
_WHOLE_SUFFIXES = {"L", "S", "Y"}


def numbers_apart(
    tokens: Sequence[Token], sql: str, tokenize: Callable[[str], list[Token]]
) -> list[Token]:
    """Return the tokens of a text, with each number a token that Spark reads as a number.

    sqlglot's tokenizer reads ``1e3-4`` as one number and ``0x1`` as bytes, and takes numbers of any
    length; Spark reads the first as a subtraction and has no value for the others.

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
