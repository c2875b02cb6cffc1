"""What a statement answers: columns, rows that are written piece by piece, and a tag."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream.server.postgres import codec
from millstream.server.postgres.errors import ProtocolError
from millstream.server.postgres.types import TEXT, data_rows, oid_of, size_of, typmod_of, writer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from millstream.model.result import Result
    from millstream.model.schema import Schema
    from millstream.model.types import SqlType
    from millstream.server.postgres.styles import Style


class PgColumn(NamedTuple):
    """A column of an answer.

    Attributes:
        name: its name.
        oid: of its type.
        size: of its values, in bytes; -1 when they differ.
        typmod: the modifier of its type; -1: it has none.
    """

    name: str
    oid: int = TEXT
    size: int = -1
    typmod: int = -1


Columns = tuple[PgColumn, ...]


@dataclass(slots=True)
class Answer:
    """The answer to a statement, read once.

    Attributes:
        tag: what CommandComplete says; of one with rows, without their number.
        columns: None when it has no rows.
        rows: those that were not sent yet.
        sent: how many were.
        small: how many rows there are if these are few and at hand; else -1.
        notices: fields of notices that come before it.
    """

    tag: str
    columns: Columns | None = None
    rows: Iterator[Sequence[Any]] = field(default_factory=lambda: iter(()))
    sent: int = 0
    small: int = -1
    notices: list[dict[str, str]] = field(default_factory=list)

    def describe(self, formats: Sequence[int]) -> bytes:
        """RowDescription, or NoData."""
        if self.columns is None:
            return codec.NO_DATA
        return codec.row_description(self.columns, expand(formats, len(self.columns)))

    def encode(self, formats: Sequence[int], count: int, style: Style) -> tuple[bytes, int]:
        """DataRow messages of the next rows, and their number."""
        columns = self.columns or ()
        codes = expand(formats, len(columns))
        writers = [
            writer(each.oid, code, each.typmod, style)
            for each, code in zip(columns, codes, strict=True)
        ]
        rows = list(islice(self.rows, count))
        self.sent += len(rows)
        return data_rows(rows, writers), len(rows)

    @property
    def complete(self) -> bytes:
        """CommandComplete."""
        counted = self.tag in {"SELECT", "FETCH"}
        return codec.command_complete(f"{self.tag} {self.sent}" if counted else self.tag)


def expand(formats: Sequence[int], count: int) -> Sequence[int]:
    """The format of each column: none given is text, one is for all.

    Raises:
        ProtocolError: another number than that of the columns.
    """
    if len(formats) == count:
        return formats
    if len(formats) <= 1:
        return [formats[0] if formats else 0] * count
    raise ProtocolError(f"{len(formats)} formats for {count} columns")


def columns_of(schema: Schema) -> Columns:
    """The columns of a schema."""
    return tuple(column(each.name, each.type) for each in schema.columns)


def labelled(schema: Schema, labels: Sequence[str]) -> Columns:
    """The columns of a query, as PostgreSQL calls them."""
    pairs = zip(labels, schema.columns, strict=True)
    return tuple([column(label, each.type) for label, each in pairs])


def column(name: str, of: SqlType) -> PgColumn:
    """A column of a name and a type."""
    oid = oid_of(of)
    return PgColumn(name, oid, size_of(oid), typmod_of(of))


_FEW = 64


def of_result(result: Result) -> Answer:
    """The answer of a Result of the engine."""
    if result.status:
        return Answer(tag(result.status))
    small = len(result) if len(result) <= _FEW else -1
    columns = labelled(result.schema, result.labels)
    return Answer("SELECT", columns, iter(result), small=small)


def of_texts(names: Sequence[str], rows: Iterable[Sequence[str]], tag: str = "SHOW") -> Answer:
    """An answer of texts, as SHOW gives."""
    made = list(rows)
    return Answer(tag, tuple(map(PgColumn, names)), iter(made), small=len(made))


def tag(status: str) -> str:
    """PostgreSQL's tag for a status of ours: INSERT has an OID, which is 0.

    >>> tag("INSERT 3"), tag("CREATE TABLE")
    ('INSERT 0 3', 'CREATE TABLE')
    """
    word, _, rest = status.partition(" ")
    return f"INSERT 0 {rest}" if word == "INSERT" else status
