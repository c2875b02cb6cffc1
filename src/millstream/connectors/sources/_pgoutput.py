"""The messages of pgoutput, PostgreSQL's plugin for logical replication, version 1. Pure.

Values of rows are as they come: bytes of text, None for NULL, ``UNCHANGED`` for a large value that
was not sent because the update did not touch it.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from millstream.errors import ConnectorFailedError
from millstream.model.row_change import UNCHANGED

if TYPE_CHECKING:
    from collections.abc import Callable

Values = list[Any]

_BEGIN: Final = Struct(">QqI").unpack_from
_COMMIT: Final = Struct(">BQQq").unpack_from
_COLUMN: Final = Struct(">Ii").unpack_from
_U64: Final = Struct(">Q").unpack_from
_U32: Final = Struct(">I").unpack_from
_I32: Final = Struct(">i").unpack_from
_I16: Final = Struct(">h").unpack_from


class Begin(NamedTuple):
    """A transaction begins; they come whole, one after the other."""

    final_lsn: int
    time: int
    xid: int


class Commit(NamedTuple):
    """It ends; after ``end_lsn`` comes the next."""

    lsn: int
    end_lsn: int
    time: int


class Origin(NamedTuple):
    """The transaction came from another server."""

    lsn: int
    name: str


class RelationColumn(NamedTuple):
    """A column of a relation: its type's number, and whether it is of the replica identity."""

    name: str
    type: int
    typmod: int
    in_identity: bool


class Relation(NamedTuple):
    """What the rows of a table look like from now on."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


class Type(NamedTuple):
    """A type that is not built in."""

    oid: int
    schema: str
    name: str


class Insert(NamedTuple):
    """A new row."""

    oid: int
    new: Values


class Update(NamedTuple):
    """A row in place of another; ``old`` has only its identity, or all of it, or was not sent."""

    oid: int
    old: Values | None
    new: Values


class Delete(NamedTuple):
    """A row disappears; ``old`` has at least its identity."""

    oid: int
    old: Values


class Truncate(NamedTuple):
    """All rows of some tables disappear."""

    oids: tuple[int, ...]
    options: int


class Message(NamedTuple):
    """What pg_logical_emit_message has written."""

    is_transactional: bool
    lsn: int
    prefix: str
    content: bytes


Any_ = Begin | Commit | Origin | Relation | Type | Insert | Update | Delete | Truncate | Message


def parse(data: bytes) -> Any_:
    """One message.

    >>> parse(b"T" + bytes([0, 0, 0, 1, 0]) + bytes([0, 0, 64, 0]))
    Truncate(oids=(16384,), options=0)

    Raises:
        ConnectorFailedError: of a kind that version 1 does not have.
    """
    found = _PARSERS.get(data[0])
    if found is None:
        raise ConnectorFailedError(
            f"PostgreSQL sent a message of kind {chr(data[0])!r}", hint="report this as a bug"
        )
    return found(data)


def _begin(data: bytes) -> Begin:
    return Begin(*_BEGIN(data, 1))


def _commit(data: bytes) -> Commit:
    _, lsn, end_lsn, time = _COMMIT(data, 1)
    return Commit(lsn, end_lsn, time)


def _origin(data: bytes) -> Origin:
    return Origin(_U64(data, 1)[0], _text(data, 9)[0])


def _relation(data: bytes) -> Relation:
    (oid,) = _U32(data, 1)
    schema, at = _text(data, 5)
    name, at = _text(data, at)
    identity = chr(data[at])
    (count,) = _I16(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        in_identity = bool(data[at] & 1)
        column, at = _text(data, at + 1)
        of, typmod = _COLUMN(data, at)
        at += 8
        columns.append(RelationColumn(column, of, typmod, in_identity))
    return Relation(oid, schema, name, identity, tuple(columns))


def _type(data: bytes) -> Type:
    schema, at = _text(data, 5)
    return Type(_U32(data, 1)[0], schema, _text(data, at)[0])


def _insert(data: bytes) -> Insert:
    return Insert(_U32(data, 1)[0], _values(data, 6)[0])


def _update(data: bytes) -> Update:
    old, at = None, 5
    if data[5] != 78:  # b"N"
        old, at = _values(data, 6)
    return Update(_U32(data, 1)[0], old, _values(data, at + 1)[0])


def _delete(data: bytes) -> Delete:
    return Delete(_U32(data, 1)[0], _values(data, 6)[0])


def _truncate(data: bytes) -> Truncate:
    (count,) = _U32(data, 1)
    return Truncate(tuple(_U32(data, 6 + 4 * place)[0] for place in range(count)), data[5])


def _message(data: bytes) -> Message:
    prefix, at = _text(data, 10)
    (length,) = _U32(data, at)
    return Message(bool(data[1]), _U64(data, 2)[0], prefix, data[at + 4 : at + 4 + length])


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


def _values(data: bytes, at: int) -> tuple[Values, int]:
    values: Values = []
    (count,) = _I16(data, at)
    at += 2
    for _ in range(count):
        kind = data[at]
        if kind == 116:  # b"t"
            end = at + 5 + _I32(data, at + 1)[0]
            values.append(data[at + 5 : end])
            at = end
        else:
            values.append(None if kind == 110 else UNCHANGED)  # b"n", b"u"
            at += 1
    return values, at


_PARSERS: Final[dict[int, Callable[[bytes], Any_]]] = {
    ord("B"): _begin,
    ord("C"): _commit,
    ord("O"): _origin,
    ord("R"): _relation,
    ord("Y"): _type,
    ord("I"): _insert,
    ord("U"): _update,
    ord("D"): _delete,
    ord("T"): _truncate,
    ord("M"): _message,
}


def lsn_text(lsn: int) -> str:
    """An LSN as PostgreSQL writes it.

    >>> lsn_text(0x16_0000_00FF)
    '16/FF'
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    """The number of an LSN.

    >>> lsn_number("16/FF") == 0x16_0000_00FF
    True
    """
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)
