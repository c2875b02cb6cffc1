import contextlib
import threading
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import inf

import psycopg
import pytest
from tests.server.postgres.conftest import Served

import millstream as ms

CREATE = """CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR);
CREATE SOURCE s (n BIGINT, at TIMESTAMP)"""


@pytest.fixture
def made(served):
    served.db.execute(CREATE)
    return served


def lines(copy, count):
    """The next rows of a COPY stream, without their tokens."""
    found = []
    while len(found) < count:
        found.append(copy.read_row())
    return found


def test_listen_and_notify(made):
    with made.connect() as one, made.connect() as other:
        one.execute('LISTEN Orders; LISTEN "Other"')
        other.execute("NOTIFY orders, 'it''s ready'; NOTIFY nobody, 'x'; NOTIFY \"Other\"")
        other.execute("SELECT pg_notify(%s, %s)", ["orders", "again"])
        made.db.notify("orders", "from the engine")
        found = [(each.channel, each.payload) for each in one.notifies(timeout=10, stop_after=4)]
        assert found == [
            ("orders", "it's ready"),
            ("Other", ""),
            ("orders", "again"),
            ("orders", "from the engine"),
        ]
        one.execute("UNLISTEN orders")
        other.execute("NOTIFY orders, 'unheard'; NOTIFY \"Other\", 'last'")
        found = [(each.channel, each.payload) for each in one.notifies(timeout=10, stop_after=1)]
        assert found == [("Other", "last")]
        one.execute("UNLISTEN *")


def test_psql_prints_its_own_notifications(made):
    found = made.psql("LISTEN a", "NOTIFY a, 'hello'").stdout
    assert 'Asynchronous notification "a" with payload "hello" received' in found


def test_subscribe_is_a_stream(made):
    made.db.insert("t", [(1, "a"), (2, None)])
    with made.connect() as client, client.cursor() as cursor:
        with pytest.raises(psycopg.errors.QueryCanceled):  # noqa: SIM117
            with cursor.copy("SUBSCRIBE SELECT * FROM t") as copy:
                found = lines(copy, 2)
                assert [row[1:3] + row[4:] for row in found] == [
                    ("snapshot", "1", "1", "a"),
                    ("snapshot", "1", "2", None),
                ]
                assert [row[3] is None for row in found] == [True, False]
                made.db.execute("UPDATE t SET name = 'tab\t, line\n, \\\\' WHERE id = 1")
                made.db.execute("DELETE FROM t WHERE id = 2; INSERT INTO t VALUES (3, '')")
                found = lines(copy, 4)
                assert [row[1:3] + row[4:] for row in found] == [
                    ("update", "-1", "1", "a"),
                    ("update", "1", "1", "tab\t, line\n, \\"),
                    ("delete", "-1", "2", None),
                    ("insert", "1", "3", ""),
                ]
                lsns = [int(row[0]) for row in found]
                assert lsns == sorted(lsns)
                assert lsns[-1] == made.db.lsn
                client.cancel_safe()
                copy.read_row()
        assert client.execute("SELECT 1").fetchone() == (1,)
    assert not made.db.query("SHOW SUBSCRIPTIONS").fetchall()


def test_a_stream_goes_on_after_a_token(made):
    made.db.insert("s", [(n, None) for n in range(3)])
    made.db.flush()
    with made.connect() as client, client.cursor() as cursor:
        with cursor.copy("SUBSCRIBE s WITH (start = 'earliest', timeout = '0.3s')") as copy:
            rows = list(copy.rows())
        assert [row[4] for row in rows] == ["0", "1", "2"]
        token = rows[-1][3]
        made.db.insert("s", [(3, None)])
        sql = f"SUBSCRIBE TO (SELECT n FROM s) WITH (start = '{token}', timeout = '0.3s')"
        with cursor.copy(sql) as copy:
            assert [row[1:3] + row[4:] for row in copy.rows()] == [("insert", "1", "3")]


def test_copy_of_a_subscription_and_of_a_query(made):
    made.db.insert("t", [(1, 'a "quoted", b'), (2, None), (3, "")])
    sql = "COPY (SUBSCRIBE t WITH (timeout = '100 ms')) TO STDOUT WITH (FORMAT csv, HEADER)"
    found = made.lines(sql)
    assert found[0] == "_lsn,_op,_weight,_token,id,name"
    assert found[1].endswith(',snapshot,1,,1,"a ""quoted"", b"')
    found = made.lines("COPY t TO STDOUT CSV HEADER", "COPY (SELECT id, name FROM t) TO STDOUT")
    assert found == [
        "id,name",
        '1,"a ""quoted"", b"',
        "2,",
        '3,""',
        '1\ta "quoted", b',
        "2\t\\N",
        "3\t",
    ]


def test_cursors_over_changes(made):
    with made.connect() as client:
        client.execute("BEGIN")
        client.execute("DECLARE c CURSOR FOR SUBSCRIBE SELECT id FROM t WHERE name = %s", ["a"])
        assert client.execute("FETCH 10 c WITH (timeout = '50 ms')").fetchall() == []
        made.db.insert("t", [(n, "a") for n in range(5)])
        found = client.execute("FETCH 3 FROM c WITH (timeout = '10s')").fetchall()
        assert [row[1:3] + row[4:] for row in found] == [("insert", 1, n) for n in range(3)]
        found = client.execute("FETCH ALL FROM c WITH (timeout = '10s')").fetchall()
        assert [row[4] for row in found] == [3, 4]
        assert found[-1][3]
        client.execute("CLOSE c; COMMIT")
        with pytest.raises(psycopg.errors.InvalidCursorName):
            client.execute("FETCH c")


def test_a_fetch_waits_for_a_change(made):
    with made.connect() as client:
        client.execute("DECLARE c CURSOR FOR SUBSCRIBE s")
        push = threading.Thread(target=made.db.insert, args=("s", [(7, None)]))
        push.start()
        [row] = client.execute("FETCH ALL c WITH (timeout = '10s')").fetchall()
        assert (row[1], row[4]) == ("insert", 7)
        push.join()


def test_cursors_over_rows(made):
    made.db.insert("t", [(n, "x") for n in range(25)])
    with made.connect(autocommit=False) as client, client.cursor("mine") as cursor:
        cursor.itersize = 10
        cursor.execute("SELECT id FROM t WHERE id >= %s", [5])
        assert [row[0] for row in cursor] == list(range(5, 25))


def test_a_gap_and_a_reset_are_rows(served):
    served.db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    served.db.insert("t", [(1,)])
    with served.connect() as client:
        client.execute("DECLARE c CURSOR FOR SUBSCRIBE t WITH (progress)")
        [row] = client.execute("FETCH ALL c WITH (timeout = '10s')").fetchall()
        old = row[3]
        served.db.execute("DROP TABLE t; CREATE TABLE t (id BIGINT PRIMARY KEY)")
        served.db.insert("t", [(2,)])
        client.execute(f"DECLARE d CURSOR FOR SUBSCRIBE t WITH (start = '{old}')")
        found = client.execute("FETCH ALL d WITH (timeout = '10s')").fetchall()
        assert [row[1:3] + row[4:] for row in found] == [
            ("gap", None, None),
            ("reset", None, None),
            ("snapshot", 1, 2),
        ]
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            for _ in range(3):
                client.execute("FETCH ALL c WITH (timeout = '10s')")


@pytest.mark.parametrize("form", ["text", "csv", "binary"])
def test_copy_in(served, form):
    served.db.execute(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, x DOUBLE, name VARCHAR, at TIMESTAMP)"
    )
    rows = [
        (1, 0.5, 'a\tb\\,"', "2026-01-01 00:00:00+00"),
        (2, None, None, None),
        (3, 1.0, "", None),
    ]
    with served.connect() as client, client.cursor() as cursor:
        if form == "csv":
            with cursor.copy("COPY t (id, name, x) FROM STDIN (FORMAT csv, HEADER)") as copy:
                copy.write('id,n,x\n1,"a\tb\\,""",0.5\n2,,\n3,"",1\n')
        else:
            with cursor.copy(f"COPY public.t FROM STDIN WITH (FORMAT {form})") as copy:
                copy.set_types(["int8", "float8", "text", "timestamptz"])
                for row in rows:
                    moment = row[3] and datetime.fromisoformat(row[3])
                    copy.write_row((*row[:3], moment))
        assert cursor.statusmessage == "COPY 3"
        found = client.execute("SELECT id, x, name FROM t ORDER BY id").fetchall()
        assert found == [row[:3] for row in rows]


def test_copy_in_is_all_or_nothing(made):
    with made.connect() as client:
        with pytest.raises(psycopg.errors.BadCopyFileFormat), client.cursor() as cursor:  # noqa: SIM117
            with cursor.copy("COPY t FROM STDIN") as copy:
                copy.write("1\ta\nx\tb\n")
        with pytest.raises(psycopg.errors.UniqueViolation), client.cursor() as cursor:  # noqa: SIM117
            with cursor.copy("COPY t FROM STDIN") as copy:
                copy.write("1\ta\n1\tb\n")
        with pytest.raises(RuntimeError, match="never mind"), client.cursor() as cursor:  # noqa: SIM117
            with cursor.copy("COPY t FROM STDIN") as copy:
                copy.write("1\ta\n")
                raise RuntimeError("never mind")
        assert client.execute("SELECT id FROM t").fetchall() == []


def test_psql_copies(made, tmp_path):
    (tmp_path / "in.csv").write_text("1,one\n2,two\n")
    made.psql(rf"\copy t FROM '{tmp_path}/in.csv' WITH (FORMAT csv)")
    made.psql("COPY t FROM STDIN", stdin="3\tthree\n4\t\\N\n\\.\n")
    made.psql(rf"\copy t TO '{tmp_path}/out.csv' CSV")
    assert (tmp_path / "out.csv").read_text() == "1,one\n2,two\n3,three\n4,\n"


def test_a_query_is_cancelled(made):
    made.db.insert("s", [(n, None) for n in range(3000)])
    with made.connect() as client:
        sql = "SELECT COUNT(*) AS n FROM s a JOIN s b ON a.n <> b.n JOIN s c ON b.n <> c.n"
        timer = threading.Timer(0.2, client.cancel_safe)
        timer.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            client.execute(sql)
        timer.join()
        client.execute("SET statement_timeout = '100ms'")
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
            client.execute(sql)
        client.execute("RESET statement_timeout")
        assert client.execute("SELECT 1").fetchone() == (1,)


def test_a_large_result_is_cancelled_halfway(made):
    made.db.insert("s", [(n, None) for n in range(50_000)])
    with made.connect() as client:
        for _ in range(5):
            with client.cursor() as cursor:
                rows = cursor.stream("SELECT n, at FROM s")
                assert next(rows) == (0, None)
                client.cancel_safe()
                with contextlib.suppress(psycopg.errors.QueryCanceled):
                    assert len(list(rows)) == 49_999
        assert client.execute("SELECT 1").fetchone() == (1,)


def test_a_client_that_does_not_read_holds_nobody_up(made):
    raw = made.raw()
    raw.start()
    raw.send(b"Q", b"SUBSCRIBE SELECT n FROM s WITH (buffer_rows = 100)\0")
    assert raw.message()[0] == b"H"
    for begin in range(0, 100_000, 10_000):
        made.db.insert("s", [(n, None) for n in range(begin, begin + 10_000)])
    with made.connect() as client:
        assert client.execute("SELECT COUNT(*) AS n FROM s").fetchone() == (100_000,)
    found = []
    while len(found) < 100_000:
        kind, content = raw.message()
        assert kind == b"d"
        found.append(int(content.split(b"\t")[4]))
    assert found == list(range(100_000))
    raw.close()


def test_a_token_outlives_the_server(tmp_path):
    def subscribe(client, start):
        with client.cursor() as cursor:
            sql = f"SUBSCRIBE s WITH (start = '{start}', timeout = '200 ms')"
            with cursor.copy(sql) as copy:
                return list(copy.rows())

    with ms.open(tmp_path / "db") as db:
        db.execute("CREATE SOURCE s (n BIGINT)")
        db.insert("s", [(1,), (2,)])
        served = Served(db)
        with served.connect() as client:
            *_, last = subscribe(client, "earliest")
        served.stop()
    with ms.open(tmp_path / "db") as db:
        served = Served(db)
        db.insert("s", [(3,)])
        with served.connect() as client:
            assert [row[4] for row in subscribe(client, last[3])] == ["3"]
        served.stop()


@pytest.mark.parametrize("form", ["text", "csv", "binary"])
def test_what_copy_writes_it_reads(served, form):
    columns = (
        "(id BIGINT PRIMARY KEY, b BOOLEAN, v VARCHAR, bin BINARY, i INTERVAL, d DECIMAL(30, 10), "
        "at TIMESTAMP, a ARRAY<DOUBLE>, t ARRAY<VARCHAR>, m MAP<VARCHAR, TIMESTAMP>, "
        "s STRUCT<x DECIMAL(30, 10), y DOUBLE, z BINARY, i INTERVAL, l ARRAY<DATE>>)"
    )
    day, length, long = (
        date(2026, 1, 31),
        timedelta(days=1, seconds=2.5),
        Decimal("123456789.5") ** 2,
    )
    moment = datetime(2026, 1, 31, 12, 30, 0, 1, tzinfo=UTC)
    nested = {"x": long, "y": inf, "z": b"\x00\xff", "i": -length, "l": [day, None]}
    rows = [
        (
            1,
            True,
            'a,"b"\r\n',
            b"\x00\xff",
            length,
            long,
            moment,
            [0.5, None],
            ["a,b", '"', ""],
            {"k": moment},
            nested,
        ),
        (2, False, "", b"", -length, None, None, [], [], {}, {**dict.fromkeys("xyzil"), "y": 0.5}),
        (3, *[None] * 10),
    ]
    served.db.execute(f"CREATE TABLE a {columns}; CREATE TABLE b {columns}")
    served.db.insert("a", rows)
    with served.connect() as client, client.cursor() as cursor:
        options = f"WITH (FORMAT {form}{', HEADER' if form == 'csv' else ''})"
        with cursor.copy(f"COPY a TO STDOUT {options}") as copy:
            data = b"".join(map(bytes, copy))
        with cursor.copy(f"COPY b FROM STDIN {options}") as copy:
            copy.write(data)
    assert sorted(served.db.query("SELECT * FROM b").fetchall()) == rows


def test_csv_of_others_is_read_too(served):
    served.db.execute(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, b BOOLEAN, x BINARY, a ARRAY<BIGINT>)"
    )
    with served.connect() as client, client.cursor() as cursor:
        with cursor.copy("COPY t FROM STDIN CSV") as copy:
            copy.write('1,true,AP8=,"[1, 2]"\r\n\r\n2,"f",,"{3,NULL}"')
        for wrong in ('3,"t', '3,t"t,,', "3,t\n", "3,maybe,,"):
            with (
                pytest.raises(psycopg.errors.BadCopyFileFormat),
                cursor.copy("COPY t FROM STDIN CSV") as copy,
            ):
                copy.write(wrong)
    found = served.db.query("SELECT * FROM t").fetchall()
    assert found == [(1, True, b"\x00\xff", [1, 2]), (2, False, None, [3, None])]


def test_copy_of_files_of_the_server(db, serve, tmp_path):
    made = serve(directories=[tmp_path / "open"])
    (tmp_path / "open").mkdir()
    (tmp_path / "secret.csv").write_text("id,name\n9,nine\n")
    (tmp_path / "open" / "link.csv").symlink_to(tmp_path / "secret.csv")
    path = tmp_path / "open" / "x.csv"
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR)")
    made.db.insert("t", [(1, "one"), (2, None)])
    with made.connect() as client:
        assert client.execute(f"COPY t (id, name) TO '{path}'").statusmessage == "COPY 2"
        before = path.read_text()
        path.write_text("id,name\n7,seven\n")
        sql = f"COPY t FROM '{path}'"
        assert client.execute(sql, prepare=True).statusmessage == "COPY 1"
        assert client.execute("SELECT name FROM t WHERE id = 7").fetchone() == ("seven",)
        assert client.execute("COPY t (id) TO 'y.csv'").statusmessage == "COPY 3"
        for given in ("../secret.csv", tmp_path / "secret.csv", "link.csv", "file:///etc/passwd"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="access to this file"):
                client.execute(f"COPY t FROM '{given}' WITH (format = 'csv')")
    assert (path.parent / "y.csv").exists()
    with serve().connect() as client, pytest.raises(psycopg.errors.InsufficientPrivilege):
        client.execute(f"COPY t FROM '{path}'")
    assert before == '"id","name"\n1,"one"\n2,\n'
