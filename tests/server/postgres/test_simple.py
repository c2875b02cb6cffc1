import psycopg
import pytest

from millstream.testing import engine_of


def test_psql_reads_and_writes(served):
    created = "CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT, x DOUBLE PRECISION)"
    served.psql(created, "INSERT INTO t VALUES (1, 'it''s', 0.5), (2, NULL, 1)")
    assert served.lines("SELECT * FROM public.t ORDER BY id") == ["1|it's|0.5", "2||1"]
    assert served.psql("UPDATE t SET x = 2", options=("-e",)).stdout
    assert served.lines("SELECT COUNT(*) AS n FROM t WHERE x = 2") == ["2"]


def test_several_statements_in_one_message(served):
    sql = "CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t VALUES (1); SELECT id FROM t"
    with served.connect() as client:
        cursor = client.execute(sql)
        tags = [cursor.statusmessage]
        while cursor.nextset():
            tags.append(cursor.statusmessage)
        assert tags == ["CREATE TABLE", "INSERT 0 1", "SELECT 1"]
        assert cursor.fetchall() == [(1,)]


def test_what_follows_an_error_is_not_run(served):
    with served.connect() as client:
        with pytest.raises(psycopg.errors.UndefinedTable):
            client.execute("SELECT * FROM nothing; CREATE TABLE t (id BIGINT PRIMARY KEY)")
        with pytest.raises(psycopg.errors.UndefinedTable):
            client.execute("SELECT * FROM t")


def test_an_error_has_its_place_and_a_hint(served):
    served.db.execute("CREATE SOURCE s (symbol VARCHAR, price DOUBLE)")
    sql = "SHOW TABLES;\n SELECT 'a\\b' AS x FROM public.s WHERE prise > 1"
    with served.connect() as client:
        with pytest.raises(psycopg.errors.UndefinedColumn) as caught:
            client.execute(sql)
        found = caught.value.diag
        assert int(found.statement_position) == sql.index("prise") + 1
        assert found.message_hint == "Did you mean price?"
        with pytest.raises(psycopg.errors.SyntaxError) as caught:
            client.execute("SELECT 'abc")
        assert caught.value.diag.statement_position == "8"
    shown = served.psql("SELECT prise FROM s", check=False).stderr
    assert "LINE 1: SELECT prise FROM s\n               ^" in shown


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("CREATE TABLE t (id BIGINT PRIMARY KEY)", psycopg.errors.DuplicateTable),
        ("INSERT INTO t VALUES (1)", psycopg.errors.UniqueViolation),
        ("DROP TABLE nothing", psycopg.errors.UndefinedTable),
        ("SELECT id FROM t WHERE id = 'x'", psycopg.errors.DatatypeMismatch),
        ("SELECT 1 / 0 AS x FROM t", psycopg.errors.DivisionByZero),
        ("GRANT ALL ON t TO me", psycopg.errors.FeatureNotSupported),
        ("SELEKT 1", psycopg.errors.SyntaxError),
    ],
)
def test_each_error_has_its_sqlstate(served, sql, error):
    served.db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t VALUES (1)")
    with served.connect() as client, pytest.raises(error):
        client.execute(sql)


def test_strings_are_those_of_postgresql(served):
    served.db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a VARCHAR)")
    with served.connect() as client:
        client.execute(r"INSERT INTO t VALUES (1, 'a\n'), (2, E'a\n\''''), (3, $$it's \$$)")
        client.execute("INSERT INTO t VALUES (4, $x$ $$ ; -- $x$) /* ; /* ; */ */ -- ;")
        found = client.execute("SELECT a FROM t ORDER BY id").fetchall()
    assert [row[0] for row in found] == ["a\\n", "a\n''", "it's \\", " $$ ; -- "]


def test_transactions_are_answered_and_undo_nothing(served):
    served.db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    notices = []
    with served.connect(autocommit=False) as client:
        client.add_notice_handler(lambda notice: notices.append(notice.message_hint))
        client.execute("INSERT INTO t VALUES (1)")
        assert client.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
        client.commit()
        with pytest.raises(psycopg.errors.UniqueViolation):
            client.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            client.execute("SELECT id FROM t")
        client.rollback()
        client.execute("INSERT INTO t VALUES (2)")
        client.rollback()
        assert client.execute("SELECT id FROM t ORDER BY id").fetchall() == [(1,), (2,)]
    assert notices == ["each statement commits by itself, also between BEGIN and COMMIT"] * 2


def test_on_conflict_do_nothing(served):
    served.db.execute(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT); INSERT INTO t VALUES (1, 1)"
    )
    with served.connect() as client:
        sql = "INSERT INTO t (id, n) VALUES (%s, %s), (2, 2) ON CONFLICT (id) DO NOTHING"
        assert client.execute(sql, [1, 5]).statusmessage == "INSERT 0 1"
        client.execute("INSERT INTO t VALUES (2, 7) ON CONFLICT DO NOTHING")
        found = client.execute("SELECT id, n FROM t ORDER BY id").fetchall()
        assert found == [(1, 1), (2, 2)]
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            client.execute("INSERT INTO t VALUES (1, 7) ON CONFLICT (id) DO UPDATE SET n = 1")


def test_settings(served):
    with served.connect() as client:
        client.execute("SET application_name = 'tests'; SET statement_timeout TO '5s'")
        assert client.info.parameter_status("application_name") == "tests"
        assert client.execute("SHOW statement_timeout").fetchone() == ("5s",)
        assert client.execute("SHOW TRANSACTION ISOLATION LEVEL").fetchone() == ("read committed",)
        assert client.execute("SHOW TIME ZONE").fetchone() == ("UTC",)
        client.execute("SET TIME ZONE 'UTC'; RESET ALL; DISCARD ALL; SET SESSION a.b = 'c'")
        assert client.execute("SHOW a.b").fetchone() == ("c",)
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            client.execute("SET client_encoding TO 'latin1'")
        with pytest.raises(psycopg.errors.UndefinedObject):
            client.execute("SHOW nothing_like_it")
        assert len(client.execute("SHOW ALL").fetchall()) > 10


def test_an_empty_query(served):
    with served.connect() as client:
        assert client.execute("").statusmessage is None
        assert client.execute(" ; -- nothing\n;").statusmessage is None


def test_a_large_result_comes_in_pieces(served):
    served.db.execute("CREATE SOURCE s (n BIGINT, t VARCHAR)")
    served.db.insert("s", [(n, "x" * 50) for n in range(30_000)])
    with served.connect() as client:
        found = client.execute("SELECT n, t FROM s").fetchall()
    assert [row[0] for row in found] == list(range(30_000))


def test_another_database_is_refused(served):
    with pytest.raises(psycopg.OperationalError, match='the database is "millstream"'):
        psycopg.connect(served.dsn.replace("dbname=millstream", "dbname=other"))


def test_prepare_and_execute(served):
    served.db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR, x DOUBLE)")
    with served.connect() as client:
        client.execute("PREPARE added AS INSERT INTO t VALUES ($1, $2, $3)")
        for values in ("1, 'it''s', -0.5", "2, NULL, 1e3", "3, E'a\\n', '7'::float8"):
            assert client.execute(f"EXECUTE added ({values})").statusmessage == "INSERT 0 1"
        client.execute("PREPARE found (bigint) AS SELECT name, x FROM t WHERE id = $1")
        rows = [client.execute(f"EXECUTE found({n})").fetchall() for n in (1, 2, 3)]
        assert rows == [[("it's", -0.5)], [(None, 1000.0)], [("a\n", 7.0)]]
        counted = "PREPARE counted AS SELECT COUNT(*) AS n FROM t"
        client.execute(counted)
        assert client.execute("EXECUTE counted").fetchall() == [(3,)]
        with client.cursor(binary=True) as cursor:  # by the extended protocol
            assert cursor.execute("EXECUTE counted").fetchall() == [(3,)]
        for sql, error in (
            (counted, psycopg.errors.DuplicatePreparedStatement),
            ("EXECUTE nothing", psycopg.errors.InvalidSqlStatementName),
            ("EXECUTE found", psycopg.errors.SyntaxError),
            ("EXECUTE found (1, 2)", psycopg.errors.SyntaxError),
            ("EXECUTE found ('x')", psycopg.errors.InvalidTextRepresentation),
            ("EXECUTE found (1 + 1)", psycopg.errors.FeatureNotSupported),
            ("PREPARE p (nonsense) AS SELECT 1", psycopg.errors.UndefinedObject),
            ("PREPARE p SELECT 1", psycopg.errors.SyntaxError),
            ("PREPARE p AS EXECUTE found (1)", psycopg.errors.SyntaxError),
            ("PREPARE", psycopg.errors.SyntaxError),
        ):
            with pytest.raises(error):
                client.execute(sql)
        client.execute("DEALLOCATE counted")
        with pytest.raises(psycopg.errors.InvalidSqlStatementName):
            client.execute("EXECUTE counted")
        client.execute("DEALLOCATE ALL")
        client.execute(counted)


def test_returning_is_refused_with_a_hint(served):
    served.db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    with served.connect() as client:
        for sql in (
            "INSERT INTO t VALUES (1) RETURNING id",
            "UPDATE t SET id = 2 RETURNING *",
            "DELETE FROM t RETURNING id",
        ):
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="RETURNING") as caught:
                client.execute(sql)
            assert "Leave it out" in caught.value.diag.message_hint
        assert client.execute("SELECT COUNT(*) AS n FROM t").fetchall() == [(0,)]


def test_a_column_without_a_name(served):
    served.db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t VALUES (1)")
    with served.connect() as client:
        found = client.execute("SELECT id + 1, id, lower('A'), id::int4, 1::int8, id FROM t")
        names = [each.name for each in found.description]
        assert names == ["?column?", "id", "lower", "id", "int8", "id"]
        assert found.fetchall() == [(2, 1, "a", 1, 1, 1)]
        found = client.execute("SELECT COUNT(*) FROM t")
        assert [each.name for each in found.description] == ["count"]
        found = client.execute("SELECT version(), now(), t.*, x.id FROM t JOIN t AS x USING (id)")
        assert [each.name for each in found.description] == ["version", "now", "id", "id"]
        client.execute("DECLARE c CURSOR FOR SUBSCRIBE (SELECT id + 1 FROM t)")
        found = client.execute("FETCH 1 FROM c WITH (timeout = '10s')")
        assert found.description[-1].name == "_c0"
        assert found.fetchall()[0][-1] == 2


def test_views_that_are_late(served, db):
    with served.connect() as client:
        client.execute("CREATE TABLE base (id BIGINT PRIMARY KEY); INSERT INTO base VALUES (1)")
        client.execute("CREATE MATERIALIZED VIEW late AS SELECT id FROM base WHERE id > 0")
        assert client.execute("SELECT id FROM late").fetchall() == [(1,)]
        with engine_of(db).views["late"].view._working:
            client.execute("INSERT INTO base VALUES (2)")
            client.execute("SET statement_timeout = '50ms'")
            with pytest.raises(psycopg.errors.QueryCanceled):
                client.execute("SELECT id FROM late")
            client.execute("SET millstream.stale_ok = on")
            assert client.execute("SHOW millstream.stale_ok").fetchone() == ("on",)
            assert client.execute("SELECT id FROM late").fetchall() == [(1,)]
            client.execute("RESET statement_timeout")
        client.execute("RESET millstream.stale_ok")
        assert client.execute("SELECT id FROM late ORDER BY id").fetchall() == [(1,), (2,)]
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            client.execute("SET millstream.stale_ok = maybe")
