"""Messages of pgoutput, byte by byte as the protocol says."""

import struct

import pytest

from millstream.connectors._postgres_types import PgType, decoder, fits, sql_type
from millstream.connectors.sources import _pgoutput as pgoutput
from millstream.errors import ConnectorFailedError, SchemaMismatchError
from millstream.model.row_change import UNCHANGED
from millstream.model.types import parse_type

RELATION = (
    b"R\0\0@\0public\0t\0d\0\2\1id\0\0\0\0\x17\xff\xff\xff\xff\0s\0\0\0\0\x19\xff\xff\xff\xff"
)
ROW = b"\0\3t\0\0\0\0021" + b"2nu"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"B" + struct.pack(">QqI", 5, 6, 7), pgoutput.Begin(5, 6, 7)),
        (b"C\0" + struct.pack(">QQq", 5, 6, 7), pgoutput.Commit(5, 6, 7)),
        (b"O" + struct.pack(">Q", 5) + b"there\0", pgoutput.Origin(5, "there")),
        (b"Y\0\0\0\7public\0mood\0", pgoutput.Type(7, "public", "mood")),
        (b"I\0\0\0\7N" + ROW, pgoutput.Insert(7, [b"12", None, UNCHANGED])),
        (b"U\0\0\0\7N" + ROW, pgoutput.Update(7, None, [b"12", None, UNCHANGED])),
        (b"U\0\0\0\7K\0\1nN" + ROW, pgoutput.Update(7, [None], [b"12", None, UNCHANGED])),
        (b"D\0\0\0\7O" + ROW, pgoutput.Delete(7, [b"12", None, UNCHANGED])),
        (b"T\0\0\0\2\1\0\0\0\7\0\0\0\x08", pgoutput.Truncate((7, 8), 1)),
        (b"M\1" + struct.pack(">Q", 5) + b"p\0\0\0\0\2hi", pgoutput.Message(True, 5, "p", b"hi")),
        (
            RELATION,
            pgoutput.Relation(
                16384,
                "public",
                "t",
                "d",
                (
                    pgoutput.RelationColumn("id", 23, -1, True),
                    pgoutput.RelationColumn("s", 25, -1, False),
                ),
            ),
        ),
    ],
)
def test_all_kinds_of_messages(data, message):
    assert pgoutput.parse(data) == message


def test_an_unknown_message():
    with pytest.raises(ConnectorFailedError, match="kind 'S'"):
        pgoutput.parse(b"S\0\0\0\0")


@pytest.mark.parametrize(
    ("name", "into", "text"),
    [
        ("numeric", "DECIMAL(4, 2)", b"100.00"),
        ("numeric", "DECIMAL(4, 2)", b"1.005"),
        ("numeric", "DECIMAL(4, 2)", b"NaN"),
        ("timestamptz", "TIMESTAMP", b"-infinity"),
        ("date", "DATE", b"10000-01-01"),
        ("interval", "INTERVAL", b"P1M"),
        ("text", "VARCHAR", b"\xff"),
    ],
)
def test_values_that_cannot_be_held(name, into, text):
    of = PgType(1, name)
    assert fits(of, parse_type(into))
    with pytest.raises((ValueError, ArithmeticError, SchemaMismatchError)):
        decoder(of, parse_type(into))(text)


def test_arrays_of_several_dimensions():
    ints = PgType(1007, "_int4", element=PgType(23, "int4"))
    decode = decoder(ints, sql_type(ints, -1))
    assert decode(b"[0:1]={1,NULL}") == [1, None]
    assert decode(b"{}") == []
    with pytest.raises(ValueError, match="several dimensions"):
        decode(b"{{1},{2}}")
