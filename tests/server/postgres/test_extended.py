import asyncio
import struct
import threading
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import psycopg
import pytest
from psycopg.types.json import Json

from millstream.testing import Background

COLUMNS = """id BIGINT PRIMARY KEY, a BOOLEAN, b TINYINT, c SMALLINT, d INTEGER, e REAL, f DOUBLE,
g DECIMAL(20, 4), h VARCHAR, i BINARY, j DATE, k TIMESTAMP, l INTERVAL, m ARRAY<BIGINT>,
n ARRAY<VARCHAR>, o STRUCT<x INT, y VARCHAR>, p MAP<VARCHAR, DOUBLE>, q ARRAY<ARRAY<INT>>"""
ROWS = [
    (
        *(1, True, 1, -2, 3, 0.1, 1e300, Decimal("-12345678.0900"), "it's \\ é", b"\x00\xff"),
        *(date(1999, 12, 31), datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)),
        *(timedelta(days=-1, hours=3), [1, None, -(2**62)], ["a", None, '"{,}\\', ""]),
        *({"x": 1, "y": "z"}, {"k": 1.5}, [[1], [2, 3]]),
    ),
    (2, *[None] * 17),
    (
        *(3, False, 0, 0, 0, float("inf"), float("nan"), Decimal("0.0001"), "", b""),
        *(date(1, 1, 1), datetime(1969, 12, 31, tzinfo=UTC), timedelta(0), [], []),
        *({"x": None, "y": None}, {}, []),
    ),
]


@pytest.fixture
def everything(served):
    served.db.execute(f"CREATE TABLE e ({COLUMNS})")
    return served


def _same(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        for x, y in zip(one, other, strict=True):
            near = isinstance(y, float) and (x == pytest.approx(y, rel=1e-6, nan_ok=True))
            assert near or x == y, (x, y)


@pytest.mark.parametrize("binary", [False, True])
def test_every_type_both_ways(everything, binary):
    marks = ", ".join(["%b" if binary else "%t"] * 10 + ["%s"] * 8)
    with everything.connect() as client:
        for row in ROWS:
            given = [Json(each) if isinstance(each, dict) else each for each in row]
            if given[17] is not None:
                given[17] = Json(given[17])
            client.execute(f"INSERT INTO e VALUES ({marks})", given)
        with client.cursor(binary=binary) as cursor:
            _same(cursor.execute("SELECT * FROM e ORDER BY id").fetchall(), ROWS)
        # as a source of truth, what the engine itself holds
        _same(everything.db.query("SELECT * FROM e ORDER BY id").fetchall(), ROWS)


def test_numerics_of_all_lengths_in_binary(served):
    served.db.execute("CREATE TABLE n (id BIGINT PRIMARY KEY, x DECIMAL(38, 10))")
    texts = ["0", "1", "-1", "0.0001", "10000", "9999.9999", "100000000", "-0.0000000001"]
    texts += ["1234567890123456789012345678.0123456789", "10000.0001", "120034.0000056"]
    values = [Decimal(each) for each in texts]
    with served.connect() as client:
        for place, value in enumerate(values):
            client.execute("INSERT INTO n VALUES (%b, %b)", [place, value])
        with client.cursor(binary=True) as cursor:
            found = cursor.execute("SELECT x FROM n ORDER BY id").fetchall()
        assert [row[0] for row in found] == values


def test_the_place_of_a_parameter_says_its_type(served):
    served.db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, at TIMESTAMP, x DECIMAL(6, 2))")
    with served.connect() as client:
        client.execute("INSERT INTO t VALUES (%s, %s, %s)", ["7", "2026-01-01 00:00:00Z", "1.50"])
        found = client.execute("SELECT id FROM t WHERE at >= %s AND x < %s", ["2025-12-31", "2"])
        assert found.fetchall() == [(7,)]
        found = client.execute("SELECT id FROM t WHERE id IN (%s, %s) LIMIT %s", ["7", "8", 1])
        assert found.fetchall() == [(7,)]
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            client.execute("SELECT id FROM t WHERE id = %s", ["seven"])


def test_a_parameter_may_be_used_twice(served):
    served.db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)")
    with served.connect(cursor_factory=psycopg.RawCursor) as client:
        client.execute("INSERT INTO t VALUES ($2, $1), ($1, $1)", [1, 2])
        found = client.execute("SELECT id FROM t WHERE n = $1 AND id >= $1 ORDER BY id", [1])
        assert found.fetchall() == [(1,), (2,)]


def test_prepared_statements_and_pipelines(served):
    served.db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR)")
    served.db.insert("t", [(n, f"name {n}") for n in range(100)])
    with served.connect() as client:
        for n in range(100):
            found = client.execute("SELECT name FROM t WHERE id = %s", [n], prepare=True)
            assert found.fetchone() == (f"name {n}",)
        with client.pipeline():
            cursors = [client.execute("SELECT id FROM t WHERE id = %s", [n]) for n in range(50)]
            assert [each.fetchone() for each in cursors] == [(n,) for n in range(50)]
        with client.cursor() as cursor:
            cursor.executemany("INSERT INTO t VALUES (%s, %s)", [(n, "x") for n in range(100, 200)])
        assert client.execute("SELECT COUNT(*) AS n FROM t").fetchone() == (200,)


def test_an_error_in_a_pipeline_skips_to_the_end_of_it(served):
    served.db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    with served.connect() as client:
        with pytest.raises(psycopg.errors.UndefinedTable), client.pipeline():
            client.execute("INSERT INTO t VALUES (1)")
            client.execute("SELECT * FROM nothing")
            client.execute("INSERT INTO t VALUES (2)")
        assert client.execute("SELECT id FROM t").fetchall() == [(1,)]


def test_a_table_that_changed_is_described_anew(served):
    served.db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    with served.connect() as client:
        client.execute("INSERT INTO t VALUES (1)")
        for _ in range(3):
            client.execute("SELECT * FROM t WHERE id = %s", [1], prepare=True)
        client.execute("ALTER TABLE t ADD COLUMN n BIGINT")
        assert client.execute("SELECT * FROM t WHERE id = %s", [1]).fetchone() == (1, None)


def test_a_portal_stops_after_so_many_rows(served):
    served.db.execute("CREATE SOURCE s (n BIGINT)")
    served.db.insert("s", [(n,) for n in range(5)])
    raw = served.raw()
    raw.start()
    raw.send(b"P", b"\0SELECT n FROM s\0" + struct.pack("!h", 0))
    raw.send(b"B", b"\0\0" + struct.pack("!hhh", 0, 0, 0))
    for _ in range(3):
        raw.send(b"E", b"\0" + struct.pack("!i", 2))
    raw.send(b"S")
    kinds = b"".join(kind for kind, _ in raw.until(b"Z"))
    assert kinds == b"12DDsDDsDCZ"
    raw.close()


def test_describe_before_values_are_known(served):
    served.db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, at TIMESTAMP)")
    raw = served.raw()
    raw.start()
    raw.send(b"P", b"p\0SELECT at, id FROM t WHERE id = $1\0" + struct.pack("!h", 0))
    raw.send(b"D", b"Sp\0")
    raw.send(b"P", b"q\0INSERT INTO t VALUES ($1, $2)\0" + struct.pack("!h", 0))
    raw.send(b"D", b"Sq\0")
    raw.send(b"C", b"Sp\0")
    raw.send(b"S")
    found = raw.until(b"Z")
    assert b"".join(kind for kind, _ in found) == b"1tT1tn3Z"
    assert found[1][1] == struct.pack("!hI", 1, 20)
    assert found[2][1][:5] == b"\0\2at\0"
    assert found[4][1] == struct.pack("!hII", 2, 20, 1184)
    raw.close()


def test_describe_runs_nothing(served):
    served.db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    raw = served.raw()
    raw.start()
    raw.send(b"Q", b"LISTEN heard\0")
    raw.until(b"Z")
    for sql, oids in (
        (b"SELECT pg_sleep(3600)", []),
        (b"SELECT pg_notify('heard', 'x')", []),
        (b"SELECT pg_notify($1, $2)", [25, 25]),
        (b"SELECT set_config('my.x', 'changed', false)", []),
        (b"INSERT INTO t VALUES ($1)", [20]),
        (b"SELECT $1, $2::int, id FROM t WHERE id = $3 LIMIT $4", [25, 23, 20, 20]),
        (b"SELECT CASE WHEN id = $1 THEN $2 END FROM t", [20, 25]),
        (b"SELECT $1::int4 + 1, version()", [23]),
    ):
        raw.send(b"P", b"\0" + sql + b"\0\0\0")
        raw.send(b"D", b"S\0")
        raw.send(b"S")
        found = raw.until(b"Z")
        kinds = b"".join(kind for kind, _ in found)
        assert kinds == (b"1tnZ" if sql.startswith(b"INSERT") else b"1tTZ"), sql
        assert found[1][1] == struct.pack(f"!h{len(oids)}I", len(oids), *oids), sql
    raw.close()
    with served.connect() as client:
        with pytest.raises(psycopg.errors.UndefinedObject):
            client.execute("SHOW my.x")
        heard = []
        client.add_notify_handler(lambda each: heard.append(each.payload))
        client.execute("LISTEN heard")
        assert client.execute("SELECT id FROM t").fetchall() == []
        client.execute("SELECT set_config('my.x', 'changed', false)")
        assert client.execute("SELECT current_setting('my.x')").fetchone() == ("changed",)
        client.execute("SELECT pg_notify(%s, %s)", ["heard", "y"])
        assert heard == ["y"]


def test_what_is_described_is_what_comes(served):
    """An INT8 parameter stays one, however small its value is."""
    raw = served.raw()
    raw.start()
    raw.send(b"P", b"p\0SELECT $1 AS a, $2 AS b\0" + struct.pack("!hII", 2, 20, 25))
    raw.send(b"D", b"Sp\0")
    value = struct.pack("!q", 5)
    given = struct.pack("!hhhhi", 2, 1, 0, 2, len(value)) + value + struct.pack("!i", 1) + b"x"
    raw.send(b"B", b"\0p\0" + given + struct.pack("!hh", 1, 1))
    raw.send(b"E", b"\0\0\0\0\0")
    raw.send(b"S")
    found = raw.until(b"Z")
    assert b"".join(kind for kind, _ in found) == b"1tT2DCZ"
    assert found[1][1] == struct.pack("!hII", 2, 20, 25)
    assert found[4][1] == struct.pack("!hi", 2, 8) + value + struct.pack("!i", 1) + b"x"
    raw.close()


def test_a_describe_that_takes_long_can_be_cancelled(served, monkeypatch):
    """Spark may have to be started to know the columns of a query."""
    began, ends = threading.Event(), threading.Event()

    def slowly(*_):
        began.set()
        ends.wait(60)

    with served.connect() as client:
        with monkeypatch.context() as patched:
            patched.setattr("millstream.server.postgres.runner.bind", slowly)
            asked = Background(lambda: client.execute("SELECT 1 AS one", binary=True))
            assert began.wait(60)
            client.cancel_safe()
            with pytest.raises(psycopg.errors.QueryCanceled):
                asked.result()
            ends.set()
        assert client.execute("SELECT 1").fetchone() == (1,)


def test_async_connections(served):
    served.db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")

    async def one(n):
        client = await psycopg.AsyncConnection.connect(served.dsn, autocommit=True)
        async with client:
            await client.execute("INSERT INTO t VALUES (%s)", [n])
            cursor = await client.execute("SELECT id FROM t WHERE id = %s", [n])
            return await cursor.fetchone()

    async def main():
        return await asyncio.gather(*[one(n) for n in range(30)])

    assert asyncio.run(main()) == [(n,) for n in range(30)]


def test_any_of_a_list(served):
    served.db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR)")
    served.db.insert("t", [(n, f"n{n}") for n in range(5)])
    with served.connect() as client:
        sql = "SELECT id FROM t WHERE id = ANY(%s) AND name = ANY(%s) ORDER BY id"
        assert client.execute(sql, [[1, 3, 9], ["n1", "n2", "n3"]]).fetchall() == [(1,), (3,)]
        assert client.execute(sql, [[], []]).fetchall() == []
    raw = served.raw()
    raw.start()
    raw.send(b"P", b"p\0SELECT id FROM t WHERE id = ANY($1)\0\0\0")
    raw.send(b"D", b"Sp\0")
    raw.send(b"B", b"\0p\0" + struct.pack("!hhi", 0, 1, 5) + b"{2,4}\0\0")
    raw.send(b"E", b"\0\0\0\0\0")
    raw.send(b"S")
    found = raw.until(b"Z")
    assert found[1] == (b"t", struct.pack("!hI", 1, 1016))
    assert b"".join(kind for kind, _ in found) == b"1tT2DDCZ"
    raw.close()


def test_now_is_when_the_statement_starts(served):
    served.db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, at TIMESTAMP)")
    with served.connect() as client:
        client.execute("INSERT INTO t VALUES (1, now()), (2, now() - INTERVAL '2 hours')")
        sql = "SELECT id FROM t WHERE at > now() - INTERVAL '1 hour' AND id < %s"
        for _ in range(3):
            assert client.execute(sql, [10], prepare=True).fetchall() == [(1,)]
        client.execute("UPDATE t SET at = CURRENT_TIMESTAMP WHERE id = 2")
        assert client.execute("SELECT COUNT(*) AS n FROM t WHERE at <= now()").fetchone() == (2,)
        with pytest.raises(psycopg.errors.UndefinedTable, match="did not exist at LSN"):
            client.execute("SELECT id FROM t AS OF NOW() - INTERVAL '1 minute'")
        with pytest.raises(psycopg.errors.UndefinedColumn):
            client.execute("SELECT id FROM t WHERE later > now()")


def test_what_is_in_json_is_what_http_has(served):
    served.db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, s STRUCT<d DECIMAL(9, 2), x DOUBLE>)")
    value = {"d": "1.50", "x": "NaN"}
    with served.connect() as client:
        for binary in (False, True):
            sql = (
                "INSERT OR REPLACE INTO t VALUES (1, %b)"
                if binary
                else "INSERT INTO t VALUES (1, %t)"
            )
            client.execute(sql, [Json(value)])
            found = client.cursor(binary=binary).execute("SELECT s FROM t").fetchone()
            assert found == (value,)
        client.execute("INSERT INTO t VALUES (2, %s)", [Json({"d": 1.25, "x": 1})])
        assert client.execute("SELECT s FROM t WHERE id = 2").fetchone() == (
            {"d": "1.25", "x": 1.0},
        )
