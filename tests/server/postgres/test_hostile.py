import random
import struct
from itertools import pairwise

import psycopg
import pytest
from tests.server.postgres.conftest import fields

from millstream.server.postgres.codec import Fields, Frames
from millstream.server.postgres.errors import PostgresError
from millstream.server.postgres.server import Limits
from millstream.server.postgres.text import statements


def test_lengths_that_cannot_be(served):
    for data in (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n"):
        raw = served.raw()
        raw.socket.sendall(data)
        [(kind, content)] = raw.ended()
        assert (kind, fields(content)["C"], fields(content)["S"]) == (b"E", "08P01", "FATAL")
    raw = served.raw()
    raw.start()
    raw.socket.sendall(b"Q" + struct.pack("!i", 1 << 30))
    assert fields(raw.ended()[-1][1])["C"] == "08P01"
    with served.connect() as client:
        assert client.execute("SELECT 1").fetchone() == (1,)


def test_messages_that_are_cut_short(served):
    for kind, content in (
        (b"Q", b"no end"),
        (b"P", b"a\0SELECT 1\0\0\5"),
        (b"B", b"\0\0\0\1"),
        (b"B", b"\0\0\0\0\0\1\x7f\xff\xff\xff"),
        (b"E", b"\0"),
        (b"D", b""),
        (b"Q", b"SELECT 1\0more"),
        (b"Q", b"\xff\xfe\0"),
        (b"!", b""),
        (b"p", b"late"),
    ):
        raw = served.raw()
        raw.start()
        raw.send(kind, content)
        assert fields(raw.ended()[-1][1])["S"] == "FATAL", (kind, content)


def test_messages_in_a_wrong_order(served):
    raw = served.raw()
    raw.start()
    raw.send(b"B", b"\0nothing\0" + struct.pack("!hhh", 0, 0, 0))
    raw.send(b"E", b"\0\0\0\0\0")
    raw.send(b"S")
    found = raw.until(b"Z")
    assert [kind for kind, _ in found] == [b"E", b"Z"]
    assert fields(found[0][1])["C"] == "26000"
    raw.send(b"d", b"no copy runs")
    raw.send(b"c")
    raw.send(b"E", b"nothing\0\0\0\0\0")
    raw.send(b"S")
    assert fields(raw.until(b"Z")[0][1])["C"] == "34000"
    raw.send(b"P", b"\0SELECT $1, $2\0\0\0")
    raw.send(b"B", b"\0\0" + struct.pack("!hh", 0, 1) + struct.pack("!i", -1) + b"\0\0")
    raw.send(b"S")
    assert [kind for kind, _ in raw.until(b"Z")] == [b"1", b"E", b"Z"]
    raw.close()


def test_parameters_without_end(served):
    with served.connect() as client:
        for sql in ("SELECT $0", "SELECT $99999999999999999999", "SELECT $70000"):
            with pytest.raises(psycopg.errors.UndefinedParameter):
                psycopg.RawCursor(client).execute(sql, [])


def test_who_connects_and_says_nothing_is_cut_off(serve):
    served = serve(limits=Limits(startup_seconds=0.2))
    silent = [served.raw() for _ in range(50)]
    slow = served.raw()
    slow.socket.sendall(b"\0\0")
    for raw in [*silent, slow]:
        assert fields(raw.ended()[-1][1])["C"] == "57014"
    with served.connect() as client:
        assert client.execute("SELECT 1").fetchone() == (1,)


def test_too_many_clients(serve):
    served = serve(limits=Limits(connections=3))
    clients = [served.connect() for _ in range(3)]
    with pytest.raises(psycopg.OperationalError, match="too many clients"):
        served.connect()
    clients.pop().close()
    raw = served.raw()  # until the server has noticed
    raw.close()
    for _ in range(100):
        try:
            clients.append(served.connect())
            break
        except psycopg.OperationalError:
            continue
    assert len(clients) == 3
    for each in clients:
        each.close()


def test_a_flood_of_sockets_is_cut_off(serve):
    served = serve(limits=Limits(connections=3, startup_seconds=60))
    silent = [served.raw() for _ in range(6)]
    flood = [served.raw() for _ in range(50)]
    assert [raw.ended() for raw in flood] == [[]] * 50
    for raw in silent:
        raw.close()


def test_a_cancel_with_a_wrong_secret_does_nothing(served):
    raw = served.raw()
    started = dict(raw.start())
    process, secret = struct.unpack("!II", started[b"K"])
    other = served.raw()
    other.send(b"", struct.pack("!III", 80877102, process, secret ^ 1))
    assert other.ended() == []
    raw.send(b"Q", b"SELECT 1\0")
    assert [kind for kind, _ in raw.until(b"Z")] == [b"T", b"D", b"C", b"Z"]
    raw.close()


def test_a_client_that_goes_in_the_middle_leaves_nothing(served):
    served.db.execute("CREATE SOURCE s (n BIGINT)")
    raw = served.raw()
    raw.start()
    raw.send(b"Q", b"SUBSCRIBE s\0")
    assert raw.message()[0] == b"H"
    assert len(served.db.query("SHOW SUBSCRIPTIONS")) == 1
    raw.close()
    for _ in range(10_000):
        if not len(served.db.query("SHOW SUBSCRIPTIONS")):
            break
    assert not len(served.db.query("SHOW SUBSCRIPTIONS"))


def test_a_copy_that_is_too_large(serve):
    served = serve(limits=Limits(copy_bytes=1000))
    served.db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    with served.connect() as client:
        with pytest.raises(psycopg.errors.ProgramLimitExceeded), client.cursor() as cursor:  # noqa: SIM117
            with cursor.copy("COPY t FROM STDIN") as copy:
                for n in range(1000):
                    copy.write(f"{n}\n")
        assert client.execute("SELECT id FROM t").fetchall() == []


def test_a_long_text_and_a_deep_one(served):
    served.db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    with served.connect() as client:
        values = ", ".join(f"({n})" for n in range(3_000))
        assert client.execute(f"INSERT INTO t VALUES {values}").statusmessage == "INSERT 0 3000"
        for deep in ("SELECT " + "(" * 1000 + "1" + ")" * 1000, "SELECT " + "-" * 3 + "1"):
            with pytest.raises(psycopg.Error):
                client.execute(deep + " FROM t")
        assert client.execute("SELECT 1").fetchone() == (1,)


def test_random_bytes_never_stop_the_server(served):
    random_bytes = random.Random(7).randbytes
    for length in (1, 7, 40, 400, 4000):
        raw = served.raw()
        raw.start()
        raw.socket.sendall(random_bytes(length))
        raw.socket.shutdown(1)
        raw.ended()
        raw = served.raw()
        raw.socket.sendall(random_bytes(length))
        raw.socket.shutdown(1)
        raw.ended()
    with served.connect() as client:
        assert client.execute("SELECT 1").fetchone() == (1,)


def test_random_texts_are_cut_or_refused():
    draw = random.Random(7)
    pieces = [
        "'",
        '"',
        "$$",
        "$1",
        "$a$",
        "--",
        "/*",
        "*/",
        "\n",
        ";",
        "E'",
        "\\",
        "x",
        " ",
        "1e",
        "(",
    ]
    for _ in range(3000):
        text = "".join(draw.choices(pieces, k=draw.randrange(12)))
        try:
            for each in statements(text):
                assert each.rewritten.sql
        except PostgresError as error:
            assert error.sqlstate in {"42601", "42P02"}


def test_frames_at_every_cut():
    whole = b"Q" + struct.pack("!i", 9) + b"abcd\0" + b"S" + struct.pack("!i", 4)
    for cut in range(len(whole)):
        frames = Frames(100)
        frames.feed(whole[:cut])
        found = [frames.next(), frames.next()]
        frames.feed(whole[cut:])
        found += [frames.next(), frames.next()]
        assert [each for each in found if each] == [(b"Q", b"abcd\0"), (b"S", b"")]
    assert Fields(b"abcd\0").string() == "abcd"


DOUBLED = (
    "WITH a AS (SELECT repeat('x', 10000) AS x FROM pg_class), "
    + ", ".join(f"{b} AS (SELECT x || x AS x FROM {a})" for a, b in pairwise("abcdefghijklmnopq"))
    + " SELECT length(x) FROM q"
)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT repeat('x', 3000000000) FROM pg_class",
        "SELECT length(repeat('x', 3000 * 1000000)) FROM pg_class",
        "SELECT lpad('x', 2000000000, 'y') FROM pg_class",
        "SELECT rpad('x', $$2000000000$$::int) FROM pg_class",
        "SELECT generate_series(1, 3000000000) FROM pg_class",
        "SELECT unnest(range(3000000000)) FROM pg_class",
        "SELECT printf('%2000000000d', 1) FROM pg_class",
        "SELECT oid FROM pg_class WHERE relname = repeat('x', 3000000000)",
        "SELECT replace(replace(repeat('x',9999),'x',repeat('y',9999)),'y','zzzz') FROM pg_class",
        "SELECT replace(a, 'x', a) FROM (SELECT repeat('x', 10000) AS a FROM pg_class) t",
        "SELECT list_transform(range(10000), x -> repeat('x', 10000))::text FROM pg_class",
        "SELECT string_agg(a, a) FROM (SELECT repeat('x', 10000) AS a FROM pg_class) t",
        "SELECT repeat(repeat('x', 10000), 10000) FROM pg_class",
        "SELECT " + "quote_literal(" * 40 + "'x'" + ")" * 40,
        DOUBLED,
    ],
)
def test_values_of_any_size(served, sql):
    """DuckDB makes each in one step that nothing ends."""
    errors = (
        psycopg.errors.ProgramLimitExceeded,
        psycopg.errors.FeatureNotSupported,
        psycopg.errors.UndefinedFunction,
    )
    with served.connect() as client:
        with pytest.raises(errors):
            client.execute(sql)
        assert client.execute("SELECT lower('AB')").fetchone() == ("ab",)
