"""COPY: rows from and to a client in text, CSV and binary."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from datetime import UTC
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import Error
from millstream.formats.text import text_value
from millstream.server.postgres.errors import PostgresError
from millstream.server.postgres.options import check_names, flag, read_options
from millstream.server.postgres.parameters import read_text, read_value
from millstream.server.postgres.types import JSON, oid_of, writer, written

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import tzinfo

    from millstream.engine.session import Session
    from millstream.model.schema import Schema
    from millstream.model.types import SqlType
    from millstream.server.postgres.answers import Columns
    from millstream.server.postgres.styles import Style
    from millstream.server.postgres.text import Text, Token

_OPTIONS: Final = ("format", "header", "delimiter", "null", "quote", "escape", "encoding")
_OLD_WORDS: Final = ("CSV", "BINARY", "TEXT", "HEADER", "DELIMITER", "NULL")
_WRITTEN_OTHERWISE: Final = ("BOOLEAN", "BINARY", "INTERVAL", "ARRAY")
"""Types that PostgreSQL writes in a form which other CSV does not have."""
_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\x00"


@dataclass(frozen=True, slots=True)
class Copy:
    """``COPY name [(columns)] | (query) FROM STDIN | TO STDOUT [[WITH] (...)]``.

    Attributes:
        name: the relation; empty for a query.
        columns: those in parentheses after it.
        query: the tokens of a query.
        is_in: FROM STDIN.
        form: text, csv or binary.
        has_header: whether the first line is names.
        delimiter: what stands between fields.
        null: how NULL is written.
    """

    name: str
    columns: tuple[str, ...]
    query: tuple[Token, ...]
    is_in: bool
    form: str
    has_header: bool
    delimiter: str
    null: str

    @property
    def code(self) -> int:
        """0 for text and CSV, 1 for binary."""
        return int(self.form == "binary")


def is_of_file(text: Text) -> bool:
    """Whether a COPY reads or writes a file of the server: the engine's statement."""
    depth = 0
    for token, after in pairwise(text.tokens):
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if depth == 0 and token.word in {"FROM", "TO"}:
            return after.kind in {"string", "escaped", "dollar", "parameter"}
    return False


def read_copy(text: Text) -> Copy:
    """What a COPY asks for.

    Raises:
        PostgresError: it is written otherwise.
    """
    tokens = text.tail(1).tokens
    query: tuple[Token, ...] = ()
    columns: tuple[str, ...] = ()
    name = ""
    if tokens[0].text == "(":
        end = _closing(tokens, 0, text)
        query, tokens = tokens[1:end], tokens[end + 1 :]
    else:
        name, tokens = _relation(tokens)
        if tokens and tokens[0].text == "(":
            end = _closing(tokens, 0, text)
            columns = tuple(_name(each) for each in tokens[1:end] if each.text != ",")
            tokens = tokens[end + 1 :]
    words = [each.word for each in tokens[:2]]
    if words not in (["FROM", "STDIN"], ["TO", "STDOUT"]) or (query and words[0] == "FROM"):
        raise PostgresError(
            "COPY reads FROM STDIN and writes TO STDOUT",
            sqlstate="0A000",
            hint="in psql, \\copy reads and writes files of the client",
            position=text.start + 1,
        )
    return _copy(text, name, columns, query, is_in=words[0] == "FROM", tokens=tokens[2:])


def _copy(
    text: Text,
    name: str,
    columns: tuple[str, ...],
    query: tuple[Token, ...],
    *,
    is_in: bool,
    tokens: tuple[Token, ...],
) -> Copy:
    options = _options(tokens)
    check_names(options, _OPTIONS, text)
    form = options.get("format", "text").lower()
    if form not in {"text", "csv", "binary"}:
        raise PostgresError(f'COPY format "{form}" not recognized', sqlstate="22023")
    delimiter = options.get("delimiter", "," if form == "csv" else "\t")
    null = options.get("null", "" if form == "csv" else "\\N")
    if len(delimiter) != 1 or delimiter in '\\"\r\n':
        raise PostgresError("COPY delimiter must be one character", sqlstate="22023")
    if form == "csv" and null:
        raise PostgresError("in CSV, NULL is an empty field", sqlstate="0A000")
    header = options.get("header", "false").lower() == "match" or flag(
        {**options, "header": options.get("header", "false").replace("match", "true")}, "header"
    )
    return Copy(name, columns, query, is_in, form, header, delimiter, null)


def _options(tokens: tuple[Token, ...]) -> dict[str, str]:
    """Options in parentheses, or the words of before PostgreSQL 9."""
    if tokens and tokens[0].word == "WITH":
        tokens = tokens[1:]
    if tokens and tokens[0].text == "(" and tokens[-1].text == ")":
        return read_options(tokens[1:-1])
    made: dict[str, str] = {}
    place = 0
    while place < len(tokens):
        word = tokens[place].word
        if word not in _OLD_WORDS:
            raise PostgresError(
                f"unexpected {tokens[place].text}",
                sqlstate="42601",
                position=tokens[place].start + 1,
            )
        place += 1
        if word in {"DELIMITER", "NULL"}:
            place += int(place < len(tokens) and tokens[place].word == "AS")
            if place >= len(tokens):
                raise PostgresError(f"{word} needs a value", sqlstate="42601")
            made[word.lower()] = tokens[place].value
            place += 1
        elif word == "HEADER":
            made["header"] = "true"
        else:
            made["format"] = word.lower()
    return made


def _relation(tokens: tuple[Token, ...]) -> tuple[str, tuple[Token, ...]]:
    if len(tokens) > 2 and tokens[1].text == "." and tokens[0].identifier == "public":
        tokens = tokens[2:]
    return _name(tokens[0]), tokens[1:]


def _name(token: Token) -> str:
    if token.kind not in {"word", "name"}:
        raise PostgresError("a name is expected", sqlstate="42601", position=token.start + 1)
    return token.text if token.kind == "word" else token.identifier


def _closing(tokens: Sequence[Token], place: int, text: Text) -> int:
    depth = 0
    for at in range(place, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[at].text, 0)
        if depth == 0:
            return at
    raise PostgresError("a parenthesis is not closed", sqlstate="42601", position=text.start + 1)


# ---- from the client


def insert(session: Session, copy: Copy, data: bytes, zone: tzinfo) -> int:
    """Add the rows that a client has sent, all or none; returns how many.

    Args:
        session: where they are added.
        copy: how they were sent.
        data: what was sent.
        zone: of times that name none.

    Raises:
        PostgresError: they cannot be read.
        Error: they cannot be added.
    """
    schema = session.context.find(copy.name).schema
    names = [_column(schema, name) for name in copy.columns] or list(schema.names)
    columns = [schema.columns[schema.names.index(name)] for name in names]
    own = _WRITTEN_OTHERWISE if zone is UTC else (*_WRITTEN_OTHERWISE, "TIMESTAMP")
    if copy.form == "csv" and not any(each.type.kind in own for each in columns):
        _, _, rest = data.partition(b"\n") if copy.has_header else (b"", b"", data)
        head = copy.delimiter.join('"' + name.replace('"', '""') + '"' for name in names)
        whole = head.encode() + b"\n" + rest
        return session.insert_csv(copy.name, whole, delimiter=copy.delimiter)
    types = [column.type for column in columns]
    if copy.form == "binary":
        read = list(_binary_rows(data, types, zone))
    else:
        read = list(_text_rows(data, types, copy, zone))
    if names != list(schema.names):
        places = [names.index(name) if name in names else -1 for name in schema.names]
        read = [tuple(row[at] if at >= 0 else None for at in places) for row in read]
    return session.insert(copy.name, read) if read else 0


def _column(schema: Schema, name: str) -> str:
    for known in schema.names:
        if known.lower() == name.lower():
            return known
    raise PostgresError(f'column "{name}" does not exist', sqlstate="42703")


_ESCAPES: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def _text_rows(
    data: bytes, types: Sequence[SqlType], copy: Copy, zone: tzinfo
) -> Iterator[tuple[Any, ...]]:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise PostgresError("COPY data that is not UTF-8", sqlstate="22021") from error
    oids = [oid_of(each) for each in types]
    lines = _csv_lines(text, copy) if copy.form == "csv" else _text_lines(text, copy)
    for number, fields in islice(enumerate(lines, 1), int(copy.has_header), None):
        if len(fields) != len(oids):
            raise _bad_line(number, f"{len(fields)} fields for {len(oids)} columns")
        try:
            yield tuple(
                None if field is None else _field(field, of, oid, zone)
                for field, of, oid in zip(fields, types, oids, strict=True)
            )
        except (ValueError, ArithmeticError, Error) as error:
            raise _bad_line(number, "a value that its column cannot hold") from error


def _text_lines(text: str, copy: Copy) -> Iterator[list[str | None]]:
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    for line in lines:
        whole = line.removesuffix("\r")
        if whole == "\\.":
            return
        fields = whole.split(copy.delimiter)
        yield [None if each == copy.null else _unescaped(each) for each in fields]


def _csv_lines(text: str, copy: Copy) -> Iterator[list[str | None]]:
    mark = re.escape(copy.delimiter)
    one = re.compile(rf'(?:"((?:[^"]|"")*+)"|([^"\r\n{mark}]*+))({mark}|\r?\n|\Z)')
    fields: list[str | None] = []
    place, number = 0, 1
    while place < len(text) or fields:
        found = one.match(text, place)
        if found is None:
            raise _bad_line(number, "a quote that is not closed, or within a field")
        quoted, bare, end = found.groups()
        fields.append(bare or None if quoted is None else quoted.replace('""', '"'))
        place = found.end()
        if end != copy.delimiter:
            if fields != [None]:  # an empty line
                yield fields
            fields, number = [], number + 1


def _field(text: str, of: SqlType, oid: int, zone: tzinfo) -> Any:  # noqa: ANN401 - of any type
    """A field as PostgreSQL writes it; or, where that is something else, as JSON and CSV do."""
    is_own = (
        oid == JSON
        or (of.kind == "ARRAY" and text.startswith("["))
        or (of.kind == "BINARY" and not text.startswith("\\"))
        or (of.kind == "INTERVAL" and "P" in text)
    )
    return text_value(of, text) if is_own else read_text(text, oid, zone)


def _bad_line(number: int, why: str) -> PostgresError:
    return PostgresError(f"COPY, line {number}: {why}", sqlstate="22P04")


def _unescaped(field: str) -> str:
    if "\\" not in field:
        return field
    parts, place = [], 0
    while place < len(field):
        mark = field.find("\\", place)
        if mark < 0 or mark + 1 >= len(field):
            parts.append(field[place:])
            break
        letter = field[mark + 1]
        parts += (field[place:mark], _ESCAPES.get(letter, letter))
        place = mark + 2
    return "".join(parts)


def _binary_rows(data: bytes, types: Sequence[SqlType], zone: tzinfo) -> Iterator[tuple[Any, ...]]:
    columns = [(each, oid_of(each)) for each in types]
    if data[:11] != _SIGNATURE or len(data) < 19:
        raise PostgresError("COPY file signature not recognized", sqlstate="22P04")
    try:
        place = 19 + int.from_bytes(data[15:19], "big")
        while place < len(data):  # some clients leave out the trailer
            (count,) = struct.unpack_from("!h", data, place)
            place += 2
            if count == -1:
                return
            if count != len(columns):
                raise PostgresError(
                    f"COPY: {count} fields for {len(columns)} columns", sqlstate="22P04"
                )
            row = []
            for of, oid in columns:
                (length,) = struct.unpack_from("!i", data, place)
                place += 4
                value = None if length < 0 else data[place : place + length]
                place += max(length, 0)
                if place > len(data):
                    raise PostgresError("COPY data ends too early", sqlstate="22P04")
                row.append(read_value(value, oid, 1, zone=zone, of=of))
            yield tuple(row)
    except struct.error as error:
        raise PostgresError("COPY data ends too early", sqlstate="22P04") from error


# ---- to the client

_TO_ESCAPE: Final = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


class CopyWriter:
    """Writes rows as COPY data, one piece for each row.

    The header of the binary format comes with the first piece, as clients expect it.

    Args:
        columns: of the rows.
        copy: the format; None: text.
        style: how text has times.
    """

    def __init__(self, columns: Columns, copy: Copy | None, style: Style) -> None:
        self._form = "text" if copy is None else copy.form
        self._delimiter = "\t" if copy is None else copy.delimiter
        self._null = "\\N" if copy is None else copy.null
        self._names = [each.name for each in columns]
        code = int(self._form == "binary")
        self._writers = [writer(each.oid, code, each.typmod, style) for each in columns]
        self._head = _SIGNATURE + bytes(8) if code else b""
        self.code = code

    def begin(self, *, has_header: bool) -> bytes:
        """The line of names, if there is one."""
        has_header = has_header and self._form != "binary"
        return self._line([self._quoted(name) for name in self._names]) if has_header else b""

    def end(self) -> bytes:
        """What comes after the last row."""
        return self._headed(b"\xff\xff") if self._form == "binary" else b""

    def _headed(self, data: bytes) -> bytes:
        head, self._head = self._head, b""
        return head + data

    def rows(self, rows: Iterable[Sequence[Any]]) -> Iterator[bytes]:
        """One piece for each row."""
        for row in rows:
            made = [
                None if value is None else written(value, write)
                for value, write in zip(row, self._writers, strict=True)
            ]
            if self._form == "binary":
                yield self._headed(self._binary(made))
            else:
                yield self._line(
                    [self._null if each is None else self._quoted(each.decode()) for each in made]
                )

    def _line(self, fields: Sequence[str]) -> bytes:
        return (self._delimiter.join(fields) + "\n").encode()

    def _quoted(self, field: str) -> str:
        if self._form == "text":
            made = field.translate(_TO_ESCAPE)
            return (
                made
                if self._delimiter == "\t"
                else made.replace(self._delimiter, "\\" + self._delimiter)
            )
        if not field or any(each in field for each in (self._delimiter, '"', "\n", "\r")):
            return '"' + field.replace('"', '""') + '"'
        return field

    @staticmethod
    def _binary(fields: Sequence[bytes | None]) -> bytes:
        parts = [struct.pack("!h", len(fields))]
        for each in fields:
            if each is None:
                parts.append(b"\xff\xff\xff\xff")
            else:
                parts += (struct.pack("!i", len(each)), each)
        return b"".join(parts)
