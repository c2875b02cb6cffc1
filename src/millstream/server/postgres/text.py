"""A text of SQL, cut into statements and tokens, and written anew for Millstream's dialect.

PostgreSQL's text differs in its letters only: ``$1`` for ``?``, strings without backslash escapes,
``$$...$$``, ``public.name``, names of types. Positions in errors are those of the client's text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

from millstream.masking import without_secrets
from millstream.server.postgres.errors import PostgresError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.errors import SqlError

Kind = Literal["word", "name", "string", "escaped", "dollar", "parameter", "number", "sign"]

_TOKEN: Final = re.compile(
    r"""(?P<blank>\s+|--[^\n]*)
      | (?P<comment>/\*)
      | (?P<escaped>[eE]'(?:[^'\\]|''|\\.)*(?:'|\Z))
      | (?P<string>'(?:[^']|'')*(?:'|\Z))
      | (?P<parameter>\$\d+)
      | (?P<dollar>\$(?:[^\W\d]\w*)?\$)
      | (?P<name>"(?:[^"]|"")*(?:"|\Z))
      | (?P<word>[^\W\d][\w$]*)
      | (?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)
      | (?P<sign>::|<=|>=|<>|!=|\|\||.)""",
    re.VERBOSE | re.DOTALL,
)
_TYPES: Final = {
    "int8": "BIGINT",
    "int4": "INTEGER",
    "int2": "SMALLINT",
    "float8": "DOUBLE",
    "float4": "REAL",
    "float": "DOUBLE",
    "text": "VARCHAR",
    "varchar": "VARCHAR",
    "timestamptz": "TIMESTAMP",
}
MAX_PARAMETERS: Final = 65_535
_DEFINING: Final = {"CREATE", "ALTER"}


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text.

    Attributes:
        kind: what it is.
        text: as it is written.
        start: its offset.
    """

    kind: Kind
    text: str
    start: int

    @property
    def word(self) -> str:
        """In capitals, if it is a word or a sign; else empty."""
        return self.text.upper() if self.kind in {"word", "sign", "number"} else ""

    @property
    def identifier(self) -> str:
        """The name that it is; empty when it is none. Bare names are folded, as in PostgreSQL."""
        if self.kind == "name":
            return self.text[1:-1].replace('""', '"')
        return self.text.lower() if self.kind == "word" else ""

    @property
    def value(self) -> str:
        """The text that a string stands for."""
        if self.kind == "string":
            return self.text[1:-1].replace("''", "'")
        if self.kind == "escaped":
            return _unescaped(self.text[2:-1])
        if self.kind == "dollar":
            mark = self.text.index("$", 1) + 1
            return self.text[mark:-mark]
        return self.text


@dataclass(frozen=True, eq=False)
class Text:
    """One statement of a client's text.

    Attributes:
        query: the whole text.
        tokens: those of the statement.
    """

    query: str = field(repr=False)
    tokens: tuple[Token, ...] = field(repr=False)

    @property
    def start(self) -> int:
        """Where it begins in the whole text."""
        return self.tokens[0].start

    @cached_property
    def original(self) -> str:
        """The statement as the client wrote it, without blanks around it."""
        last = self.tokens[-1]
        return self.query[self.start : last.start + len(last.text)]

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words and signs of its beginning, in capitals; empty where something else stands."""
        return tuple(each.word for each in self.tokens[:8])

    @cached_property
    def rewritten(self) -> Rewritten:
        """The statement in Millstream's dialect."""
        return rewritten(self.query, self.tokens)

    def tail(self, count: int) -> Text:
        """The statement without so many tokens at its beginning."""
        if len(self.tokens) <= count:
            raise PostgresError(
                "syntax error at end of input", sqlstate="42601", position=len(self.query) + 1
            )
        return Text(self.query, self.tokens[count:])


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A statement in Millstream's dialect.

    Attributes:
        sql: the text.
        order: of each ``?`` in it the number of the client's parameter, from 0.
        marks: the offset of each ``?``.
        starts: the offsets in ``sql`` where a piece begins,
        origins: and where these begin in the client's text.
    """

    sql: str
    order: tuple[int, ...]
    marks: tuple[int, ...]
    starts: tuple[int, ...]
    origins: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many parameters the client has to give."""
        return max(self.order, default=-1) + 1

    def given(self, values: Sequence[Any]) -> list[Any] | None:
        """The value of each ``?``; None when there is none."""
        return [values[number] for number in self.order] if self.order else None

    def position(self, error: SqlError) -> int:
        """The place of an error in the client's text, from 1; 0 when it has none."""
        lines = self.sql.splitlines(keepends=True)
        if error.sql != without_secrets(self.sql) or not 0 < error.line <= len(lines):
            return 0
        offset = sum(map(len, lines[: error.line - 1])) + error.column - 1
        piece = max(bisect_right(self.starts, offset) - 1, 0)
        return self.origins[piece] + offset - self.starts[piece] + 1


def statements(query: str) -> list[Text]:
    """The statements of a text, which semicolons separate; empty ones are left out.

    >>> [each.original for each in statements("SELECT ';' AS a ; ; SHOW x -- y")]
    ["SELECT ';' AS a", 'SHOW x']

    Raises:
        PostgresError: a string, a name in quotes or a comment does not end.
    """
    found: list[Text] = []
    tokens: list[Token] = []
    for token in _tokens(query):
        if token.text == ";":
            if tokens:
                found.append(Text(query, tuple(tokens)))
            tokens = []
        else:
            tokens.append(token)
    if tokens:
        found.append(Text(query, tuple(tokens)))
    return found


def prepared(query: str) -> list[Text]:
    """As ``statements``, each already written anew: for a long text, in another thread."""
    found = statements(query)
    for each in found:
        _ = each.rewritten
    return found


def _tokens(query: str) -> Iterator[Token]:
    place = 0
    while place < len(query):
        found = _TOKEN.match(query, place)
        if found is None:  # cannot be: the last alternative takes any character
            raise _unterminated("text", place)
        kind, end = found.lastgroup, found.end()
        if kind == "comment":
            end = _comment_end(query, place)
        elif kind == "dollar":
            end = _dollar_end(query, found)
        elif kind in {"string", "escaped", "name"} and not _is_closed(found[0]):
            raise _unterminated("quoted text", place)
        if kind not in {"blank", "comment"}:
            yield Token(kind, query[place:end], place)  # type: ignore[arg-type]
        place = end


def _is_closed(text: str) -> bool:
    body = text[1:] if text[0] in "eE" else text
    return len(body) > 1 and body[-1] == body[0]


def _comment_end(query: str, place: int) -> int:
    depth, at = 1, place + 2
    mark = re.compile(r"/\*|\*/")
    while depth:
        found = mark.search(query, at)
        if found is None:
            raise _unterminated("comment", place)
        depth += 1 if found[0] == "/*" else -1
        at = found.end()
    return at


def _dollar_end(query: str, opening: re.Match[str]) -> int:
    end = query.find(opening[0], opening.end())
    if end < 0:
        raise _unterminated("dollar-quoted text", opening.start())
    return end + len(opening[0])


def _unterminated(what: str, place: int) -> PostgresError:
    return PostgresError(f"unterminated {what}", sqlstate="42601", position=place + 1)


_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_ESCAPE: Final = re.compile(
    r"''|\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{4})|(.))", re.DOTALL
)


def _unescaped(text: str) -> str:
    def one(found: re.Match[str]) -> str:
        if found[0] == "''":
            return "'"
        if found[1] or found[3]:
            return chr(int(found[1] or found[3], 16))
        return chr(int(found[2], 8)) if found[2] else _ESCAPES.get(found[4], found[4])

    return _ESCAPE.sub(one, text)


# ---- in Millstream's dialect


def rewritten(query: str, tokens: Sequence[Token]) -> Rewritten:
    r"""A statement in Millstream's dialect.

    >>> [found] = statements(r"SELECT $2::int8, 'a\n' FROM public.t")
    >>> print(rewritten(found.query, found.tokens).sql)
    SELECT ?::BIGINT, 'a\\n' FROM t
    """
    out: list[str] = []
    starts, origins, order, marks = [], [], [], []
    length, copied = 0, tokens[0].start
    known = _lists(tokens)
    for place, token in enumerate(tokens):
        piece = known[place] if place in known else _piece(tokens, place)
        if piece is None:
            continue
        for text, origin in ((query[copied : token.start], copied), (piece, token.start)):
            if text:
                starts.append(length)
                origins.append(origin)
                out.append(text)
                length += len(text)
        if token.kind == "parameter":
            order.append(_number(token))
            marks.append(length - 1)
        copied = token.start + len(token.text)
    last = tokens[-1]
    rest = query[copied : last.start + len(last.text)]
    starts.append(length)
    origins.append(copied)
    return Rewritten(
        "".join([*out, rest]), tuple(order), tuple(marks), tuple(starts), tuple(origins)
    )


def _number(token: Token) -> int:
    number = int(token.text[1:10])
    if not 0 < number <= MAX_PARAMETERS:
        raise PostgresError(f"there is no parameter ${number}", sqlstate="42P02")
    return number - 1


def _lists(tokens: Sequence[Token]) -> dict[int, str]:
    """What the tokens of ``= ANY($1)`` become: ``IN (?)``."""
    made: dict[int, str] = {}
    for place in listed_places(tokens):
        made |= {place - 3: " IN ", place - 2: ""}
    return made


def listed_places(tokens: Sequence[Token]) -> Iterator[int]:
    """The places of parameters in ``= ANY($1)`` and ``= ANY($1::int8[])``, which are lists."""
    for place in range(3, len(tokens) - 1):
        if tokens[place].kind == "parameter":
            after = [each.text for each in tokens[place + 1 : place + 6]]
            is_cast = after[:1] == ["::"] and after[2:5] == ["[", "]", ")"]
            if after[0] != ")" and not is_cast:
                continue
            before = [each.word for each in tokens[place - 3 : place]]
            if before == ["=", "ANY", "("]:
                yield place


def spaced(text: Text) -> str:
    """A statement as the client wrote it, with a blank after each parameter.

    Other lexers take ``$1,$`` for the beginning of a text.
    """
    out, copied = [], text.start
    for token in text.tokens:
        if token.kind == "parameter":
            end = token.start + len(token.text)
            out.append(text.query[copied:end] + " ")
            copied = end
    last = text.tokens[-1]
    return "".join([*out, text.query[copied : last.start + len(last.text)]])


def _piece(tokens: Sequence[Token], place: int) -> str | None:
    """What a token becomes; None when it stays."""
    token = tokens[place]
    if token.kind == "parameter":
        return "?"
    if token.kind in {"escaped", "dollar"} or (token.kind == "string" and "\\" in token.text):
        return "'" + token.value.replace("\\", "\\\\").replace("'", "''") + "'"
    if any(found(tokens, place) for found in (_is_schema, _is_void_cast, _is_zone)):
        return ""
    if token.kind == "word" and _is_type(tokens, place):
        return _TYPES[token.text.lower()]
    return None


def _is_schema(tokens: Sequence[Token], place: int) -> bool:
    """Whether a token is ``public``, or the point after it."""
    if tokens[place].text == ".":
        return place > 0 and _is_schema(tokens, place - 1)
    if place + 2 >= len(tokens) or not _names_schema(tokens, place):
        return False
    before = tokens[place - 1] if place else None
    if before is not None and before.text == "." and not _is_schema(tokens, place - 1):
        return False
    return tokens[place + 1].text == "." and tokens[place + 2].identifier != ""


def _is_void_cast(tokens: Sequence[Token], place: int) -> bool:
    """Whether a token is of a cast of a parameter that says no more than its place does.

    Of LIMIT and OFFSET, to an array, to json.
    """
    at = next((n for n in range(place, max(place - 4, -1), -1) if tokens[n].text == "::"), 0)
    if at < 1 or tokens[at - 1].kind != "parameter" or at + 1 >= len(tokens):
        return False
    is_array = [each.text for each in tokens[at + 2 : at + 4]] == ["[", "]"]
    is_limit = at > 1 and tokens[at - 2].word in {"LIMIT", "OFFSET"}
    if is_array or is_limit or tokens[at + 1].word in {"JSON", "JSONB"}:
        return place <= at + (3 if is_array else 1)
    return False


def _is_zone(tokens: Sequence[Token], place: int) -> bool:
    """Whether a token is of ``WITH | WITHOUT TIME ZONE`` after ``TIMESTAMP``."""
    words = {"WITH": 0, "WITHOUT": 0, "TIME": 1, "ZONE": 2}
    first = place - words.get(tokens[place].word, place + 1)
    if first < 1 or tokens[first - 1].word != "TIMESTAMP":
        return False
    found = [each.word for each in tokens[first : first + 3]]
    return found[0] in {"WITH", "WITHOUT"} and found[1:] == ["TIME", "ZONE"]


def _names_schema(tokens: Sequence[Token], place: int) -> bool:
    name = tokens[place].identifier
    return name == "public" or (name == "millstream" and tokens[place + 2].identifier == "public")


def _is_type(tokens: Sequence[Token], place: int) -> bool:
    if tokens[place].text.lower() not in _TYPES or place == 0:
        return False
    after = tokens[place + 1].text if place + 1 < len(tokens) else ""
    if tokens[place].word == "FLOAT" and after == "(":
        return False
    before = tokens[place - 1]
    if before.text == "::" or (before.word == "AS" and _in_cast(tokens, place)):
        return True
    # In a column's definition the type stands after the name.
    return tokens[0].word in _DEFINING and before.identifier != "" and before.word != "AS"


def _in_cast(tokens: Sequence[Token], place: int) -> bool:
    depth = 0
    for at in range(place - 1, 0, -1):
        depth += {")": 1, "(": -1}.get(tokens[at].text, 0)
        if depth < 0:
            return tokens[at - 1].word in {"CAST", "TRY_CAST"}
    return False
