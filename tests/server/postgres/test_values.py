"""Values over the wire: those that were silently wrong once, and the settings that shape text."""

import struct
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import numpy as np
import psycopg
import pytest

SIGNATURE = b"PGCOPY\n\xff\r\n\0"
HEADER = SIGNATURE + bytes(8)


def _text(client, sql, given=None):
    """The first value as the text that was sent."""
    result = client.execute(sql, given).pgresult
    return result.get_value(0, 0).decode()


# ---- NUMERIC


@pytest.fixture
def prices(served):
    served.db.execute("CREATE TABLE p (id BIGINT PRIMARY KEY, x NUMERIC, y NUMERIC(10, 2))")
    return served


def test_a_numeric_keeps_its_digits_on_every_way_in(prices):
    with prices.connect() as client:
        client.execute("INSERT INTO p VALUES (1, 19.99, 19.99)")
        client.execute("INSERT INTO p VALUES (2, %s, %s)", [Decimal("19.99")] * 2)
        client.execute("INSERT INTO p VALUES (3, '19.99'::numeric, 19.99::numeric)")
        with client.cursor() as cursor, cursor.copy("COPY p FROM STDIN") as copy:
            copy.write_row((4, Decimal("19.99"), Decimal("19.99")))
        with client.cursor() as cursor, cursor.copy("COPY p FROM STDIN (FORMAT csv)") as copy:
            copy.write("5,19.99,19.99\n")
        with client.cursor() as cursor, cursor.copy("COPY p FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["int8", "numeric", "numeric"])
            copy.write_row((6, Decimal("19.99"), Decimal("19.99")))
        for binary in (False, True):
            with client.cursor(binary=binary) as cursor:
                found = cursor.execute("SELECT x, y FROM p").fetchall()
                assert found == [(Decimal("19.99"),) * 2] * 6
    assert prices.lines("SELECT x, y FROM p WHERE id = 1") == ["19.99|19.99"]


def test_a_numeric_that_would_be_rounded_is_refused(prices):
    long = "0.0000000000000000001"
    with prices.connect() as client:
        for sql, given in (
            (f"INSERT INTO p VALUES (1, {long}, 0)", None),
            ("INSERT INTO p VALUES (1, %s, 0)", [Decimal(long)]),
            ("INSERT INTO p VALUES (1, %s, 0)", [Decimal("1e21")]),
        ):
            with pytest.raises(psycopg.Error):
                client.execute(sql, given)
        for form in ("text", "csv"):
            with (
                pytest.raises(psycopg.Error),
                client.cursor() as cursor,
                cursor.copy(f"COPY p (id, x) FROM STDIN (FORMAT {form})") as copy,
            ):
                copy.write(f"1{',' if form == 'csv' else chr(9)}{long}\n")
        assert client.execute("SELECT COUNT(*) FROM p").fetchone() == (0,)


def test_the_modifier_of_a_numeric_is_sent(prices):
    with prices.connect() as client:
        described = client.execute("SELECT x, y FROM p").description
        assert [(each.precision, each.scale) for each in described] == [(None, None), (10, 2)]


# ---- BYTEA


def test_bytes_in_hex_are_bytes_everywhere(served):
    served.db.execute("CREATE TABLE b (id BIGINT PRIMARY KEY, x BYTEA)")
    with served.connect() as client:
        client.execute(r"INSERT INTO b VALUES (1, '\x0001ff'::bytea), (2, '\x0001ff')")
        client.execute(r"INSERT INTO b VALUES (3, CAST('\x0001FF' AS BYTEA)), (4, E'\\x0001ff')")
        client.execute("INSERT INTO b VALUES (5, %s), (6, %b)", [b"\0\1\xff"] * 2)
        client.execute(r"INSERT INTO b VALUES (7, '\000\001\377'::bytea)")
        with client.cursor() as cursor, cursor.copy("COPY b FROM STDIN") as copy:
            copy.write("8\t\\\\x0001ff\n")
        with client.cursor() as cursor, cursor.copy("COPY b FROM STDIN (FORMAT csv)") as copy:
            copy.write("9,\\x0001ff\n")
        client.execute(r"UPDATE b SET x = '\x0001ff'::bytea WHERE id = 9")
        found = client.execute("SELECT x FROM b").fetchall()
        assert found == [(b"\0\1\xff",)] * 9
        sql = r"SELECT COUNT(*) FROM b WHERE x = '\x0001ff'::bytea"
        assert client.execute(sql).fetchone() == (9,)
        assert _text(client, "SELECT x FROM b") == r"\x0001ff"
        assert client.execute(r"SELECT '\x0001ff'::bytea").fetchone() == (b"\0\1\xff",)
        for wrong in (r"'\x0'::bytea", r"'\xzz'", r"'\9'::bytea", "'plain'"):
            with pytest.raises(psycopg.Error):
                client.execute(f"INSERT INTO b VALUES (10, {wrong})")
    assert served.db.query(r"SELECT '\\x0001ff'::BYTEA AS x FROM b").fetchall()[0] == (b"\0\1\xff",)


# ---- binary COPY


@pytest.fixture
def copied(served):
    served.db.execute("CREATE TABLE c (id BIGINT PRIMARY KEY, t VARCHAR)")
    served.db.execute("INSERT INTO c VALUES (1, 'a'), (2, NULL)")
    return served


def test_the_header_of_a_binary_copy_comes_with_the_first_row(copied):
    sql = "COPY c TO STDOUT (FORMAT binary)"
    with copied.connect() as client:
        with client.cursor().copy(sql) as copy:
            pieces = [bytes(each) for each in copy]
        assert [each[:2] for each in pieces] == [b"PG", b"\0\2", b"\xff\xff"]
        assert pieces[0][:29] == HEADER + struct.pack("!hi", 2, 8) + struct.pack("!i", 0)
        with client.cursor().copy(sql) as copy:
            copy.set_types(["int8", "text"])
            assert list(copy.rows()) == [(1, "a"), (2, None)]
        with client.cursor().copy("COPY (SELECT id FROM c WHERE id > 9) TO STDOUT BINARY") as copy:
            assert [bytes(each) for each in copy] == [HEADER + b"\xff\xff"]


@pytest.mark.parametrize("trailer", [b"", b"\xff\xff"])
def test_a_binary_copy_may_end_without_its_trailer(copied, trailer):
    row = struct.pack("!hiqi", 2, 8, 3, 1) + b"x"
    with copied.connect() as client:
        with client.cursor() as cursor, cursor.copy("COPY c FROM STDIN BINARY") as copy:
            copy.write(HEADER + row + trailer)
        assert client.execute("SELECT t FROM c WHERE id = 3").fetchall() == [("x",)]
        for cut in (row[:-1], row[:9], row[:1]):
            with (
                pytest.raises(psycopg.errors.BadCopyFileFormat),
                client.cursor() as cursor,
                cursor.copy("COPY c FROM STDIN BINARY") as copy,
            ):
                copy.write(HEADER + cut)


# ---- READ ONLY

WRITES = (
    "INSERT INTO c VALUES (7, 'x')",
    "UPDATE c SET t = 'x'",
    "DELETE FROM c",
    "CREATE TABLE d (id BIGINT PRIMARY KEY)",
    "DROP TABLE c",
    "COPY c FROM STDIN",
)


def _refuses_writes(client, begin="", end=""):
    for sql in WRITES:
        if begin:
            client.execute(begin)
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            client.execute(sql)
        if end:
            client.execute(end)


@pytest.mark.parametrize(
    "begin", ["BEGIN READ ONLY", "START TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY"]
)
def test_a_read_only_transaction_changes_nothing(copied, begin):
    with copied.connect() as client:
        _refuses_writes(client, begin, "ROLLBACK")
        client.execute("BEGIN; SET TRANSACTION READ ONLY")
        assert client.execute("SHOW transaction_read_only").fetchone() == ("on",)
        assert client.execute("SELECT COUNT(*) FROM c").fetchone() == (2,)
        client.execute("COMMIT")
        client.execute("BEGIN READ WRITE; INSERT INTO c VALUES (3, 'x'); COMMIT")
        assert client.execute("SELECT COUNT(*) FROM c").fetchone() == (3,)


def test_a_read_only_session_changes_nothing(copied):
    with copied.connect() as client:
        client.execute("SET default_transaction_read_only = on")
        assert client.info.parameter_status("default_transaction_read_only") == "on"
        _refuses_writes(client)
        _refuses_writes(client, "BEGIN", "ROLLBACK")
        client.execute("BEGIN READ WRITE; INSERT INTO c VALUES (3, 'x'); COMMIT")
        client.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE")
        client.execute("DELETE FROM c WHERE id = 3")
    with copied.connect(options="-c default_transaction_read_only=on") as client:
        _refuses_writes(client)
        client.execute("SET default_transaction_read_only = off; RESET ALL")
        _refuses_writes(client)
    with copied.connect(autocommit=False) as client:
        client.read_only = True
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            client.execute("DELETE FROM c")


# ---- settings from the start-up message


def test_options_of_the_start_up_message_take_effect(copied):
    options = "-c statement_timeout=150ms --search-path=public -cTimeZone=Europe/Berlin"
    with copied.connect(options=options) as client:
        assert client.execute("SHOW statement_timeout").fetchone() == ("150ms",)
        assert client.execute("SHOW TIME ZONE").fetchone() == ("Europe/Berlin",)
        assert client.info.parameter_status("TimeZone") == "Europe/Berlin"
        with pytest.raises(psycopg.errors.QueryCanceled):
            client.execute("SELECT pg_sleep(60)")
        client.execute("SET statement_timeout = 0; RESET statement_timeout")
        assert client.execute("SHOW statement_timeout").fetchone() == ("150ms",)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("-c search_path=elsewhere", "search_path"),
        ("-c TimeZone=Nowhere/There", "TimeZone"),
        ("-c DateStyle=Roman", "DateStyle"),
        ("-c IntervalStyle=roman", "IntervalStyle"),
        ("-c statement_timeout=soon", "statement_timeout"),
        ("-c no_such_setting=1", "no_such_setting"),
        ("--single", "command-line"),
    ],
)
def test_options_without_an_effect_are_refused(copied, options, why):
    with pytest.raises(psycopg.OperationalError, match=why):
        copied.connect(options=options)


def test_a_text_in_another_encoding_is_refused(copied):
    with pytest.raises(psycopg.OperationalError, match="client_encoding"):
        copied.connect(client_encoding="latin1")


@pytest.mark.parametrize("path", ["elsewhere", "'elsewhere', public", "''"])
def test_a_search_path_without_what_there_is_is_refused(copied, path):
    with copied.connect() as client:
        client.execute('SET search_path TO "$user", public; SET search_path = public')
        with pytest.raises(psycopg.errors.InvalidSchemaName):
            client.execute(f"SET search_path TO {path}")


# ---- times

AT = datetime(2026, 7, 1, 12, 30, 15, 500_000, tzinfo=UTC)


@pytest.fixture
def times(served):
    served.db.execute("CREATE TABLE w (id BIGINT PRIMARY KEY, at TIMESTAMP, d DATE, i INTERVAL)")
    served.db.insert("w", [(1, AT, date(2026, 1, 31), timedelta(days=1, hours=2, seconds=3.5))])
    return served


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        ("'UTC'", "2026-07-01 12:30:15.5+00"),
        ("'europe/berlin'", "2026-07-01 14:30:15.5+02"),
        ("'Asia/Kolkata'", "2026-07-01 18:00:15.5+05:30"),
        ("-7", "2026-07-01 05:30:15.5-07"),
        ("'+02:00'", "2026-07-01 10:30:15.5-02"),
        ("INTERVAL '+01:00' HOUR TO MINUTE", "2026-07-01 13:30:15.5+01"),
        ("DEFAULT", "2026-07-01 12:30:15.5+00"),
    ],
)
def test_timestamps_are_written_in_the_zone_of_the_session(times, zone, text):
    with times.connect() as client:
        client.execute(f"SET TIME ZONE {zone}")
        assert _text(client, "SELECT at FROM w") == text
        assert client.execute("SELECT at FROM w").fetchone() == (AT,)
        with client.cursor().copy("COPY (SELECT at FROM w) TO STDOUT") as copy:
            assert b"".join(map(bytes, copy)).decode().strip() == text


def test_timestamps_without_a_zone_are_read_in_the_zone_of_the_session(times):
    local = datetime(2026, 7, 1, 14, 30, 15, 500_000)  # noqa: DTZ001 - as clients give it
    with times.connect() as client:
        client.execute("SET TimeZone TO 'Europe/Berlin'")
        client.execute("INSERT INTO w (id, at) VALUES (2, %s), (3, %b)", [local, local])
        client.execute("INSERT INTO w (id, at) VALUES (4, %s)", [str(local)])
        for form, data in (("text", f"5\t{local}\n"), ("csv", f"6,{local}\n")):
            with client.cursor().copy(f"COPY w (id, at) FROM STDIN (FORMAT {form})") as copy:
                copy.write(data)
        aware = local.replace(tzinfo=ZoneInfo("America/New_York"))
        client.execute("INSERT INTO w (id, at) VALUES (7, %s)", [aware])
        found = client.execute("SELECT at FROM w WHERE id < 7").fetchall()
        assert found == [(AT,)] * 6
        assert client.execute("SELECT at FROM w WHERE id = 7").fetchone() == (aware,)


@pytest.mark.parametrize(
    ("style", "day", "moment"),
    [
        ("ISO, DMY", "2026-01-31", "2026-07-01 12:30:15.5+00"),
        ("SQL, DMY", "31/01/2026", "01/07/2026 12:30:15.5 UTC"),
        ("SQL, MDY", "01/31/2026", "07/01/2026 12:30:15.5 UTC"),
        ("German", "31.01.2026", "01.07.2026 12:30:15.5 UTC"),
        ("Postgres, MDY", "01-31-2026", "Wed Jul 01 12:30:15.5 2026 UTC"),
        ("Postgres, DMY", "31-01-2026", "Wed 01 Jul 12:30:15.5 2026 UTC"),
    ],
)
def test_date_styles(times, style, day, moment):
    with times.connect() as client:
        client.execute(f"SET DateStyle = '{style}'")
        result = client.execute("SELECT d, at FROM w").pgresult
        assert [result.get_value(0, n).decode() for n in (0, 1)] == [day, moment]


@pytest.mark.parametrize(
    ("style", "text"),
    [
        ("postgres", "1 day 02:00:03.5"),
        ("postgres_verbose", "@ 1 day 2 hours 3.5 secs"),
        ("sql_standard", "1 2:00:03.5"),
        ("iso_8601", "P1DT2H3.5S"),
    ],
)
def test_interval_styles(times, style, text):
    with times.connect() as client:
        client.execute(f"SET IntervalStyle TO {style}")
        assert client.info.parameter_status("IntervalStyle") == style
        assert _text(client, "SELECT i FROM w") == text
        client.execute("INSERT INTO w (id, i) VALUES (2, %s)", [timedelta(days=1, seconds=7203.5)])
        client.execute("SET IntervalStyle TO DEFAULT")
        found = client.execute("SELECT i FROM w").fetchall()
        assert found == [(timedelta(days=1, seconds=7203.5),)] * 2


# ---- errors, processes


def test_a_unique_violation_names_its_table_key_and_constraint(copied):
    with copied.connect() as client:
        with pytest.raises(psycopg.errors.UniqueViolation) as caught:
            client.execute("INSERT INTO c VALUES (1, 'x')")
        found = caught.value.diag
        assert (found.schema_name, found.table_name) == ("public", "c")
        assert found.constraint_name == "c_pkey"
        assert found.message_detail == "Key (id)=(1) already exists."
        with pytest.raises(psycopg.errors.UniqueViolation) as caught:
            client.execute("INSERT INTO c VALUES (%s, 'x')", [1])
        assert caught.value.diag.constraint_name == "c_pkey"


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("SELECT 1 / (id - id) FROM c", psycopg.errors.DivisionByZero),
        ("SELECT CAST(id * 1000000 AS SMALLINT) FROM c", psycopg.errors.NumericValueOutOfRange),
        ("INSERT INTO c (id) VALUES (NULL)", psycopg.errors.Error),
    ],
)
def test_errors_of_values_have_their_own_sqlstate(copied, sql, error):
    with copied.connect() as client, pytest.raises(error):
        client.execute(sql)


def test_a_connection_knows_its_own_notifications(served):
    with served.connect() as one, served.connect() as other:
        one.execute("LISTEN news")
        one.execute("NOTIFY news, 'mine'")
        [mine] = list(one.notifies(timeout=5, stop_after=1))
        other.execute("NOTIFY news, 'yours'")
        [yours] = list(one.notifies(timeout=5, stop_after=1))
        assert (mine.pid, yours.pid) == (one.info.backend_pid, 0)
        assert one.info.backend_pid != other.info.backend_pid


# ---- advisory locks, materialized views


@pytest.mark.parametrize("prepare", [False, True])
def test_an_advisory_lock_is_held_by_one_connection(served, prepare):
    with served.connect() as one, served.connect() as other:
        take = "SELECT pg_try_advisory_lock(7) AS taken"
        found = one.execute(take, prepare=prepare)
        assert (found.description[0].name, found.fetchone()) == ("taken", (True,))
        assert one.execute(take, prepare=prepare).fetchone() == (True,)
        assert other.execute(take, prepare=prepare).fetchone() == (False,)
        assert other.execute("SELECT pg_try_advisory_lock(1, %s)", [7]).fetchone() == (True,)
        assert other.execute("SELECT pg_advisory_unlock(7)").fetchone() == (False,)
        for _ in range(2):
            assert one.execute("SELECT pg_advisory_unlock(%s)", [7]).fetchone() == (True,)
        assert other.execute(take).fetchone() == (True,)
        other.execute("SELECT pg_advisory_unlock_all()")
        assert one.execute(take).fetchone() == (True,)
    with served.connect() as third:  # the end of a connection is the end of its locks
        assert third.execute(take).fetchone() == (True,)
        for sql in ("SELECT 1, pg_try_advisory_lock(7)", "SELECT pg_advisory_lock(1, 2, 3)"):
            with pytest.raises(psycopg.errors.FeatureNotSupported):
                third.execute(sql)


def test_an_advisory_lock_is_waited_for(served):
    with served.connect() as one, served.connect() as other, served.connect() as third:
        one.execute("BEGIN; SELECT pg_advisory_xact_lock(7)")
        other.execute("SET statement_timeout = '100ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            other.execute("SELECT pg_advisory_lock(7)")
        with ThreadPoolExecutor() as pool:
            waits = pool.submit(third.execute, "SELECT pg_advisory_lock_shared(7)")
            one.execute("COMMIT")
            waits.result(20)
        assert other.execute("SELECT pg_try_advisory_lock_shared(7)").fetchone() == (True,)
        assert one.execute("SELECT pg_try_advisory_lock(7)").fetchone() == (False,)


def test_views_are_materialized_views_of_the_catalog(served):
    served.db.execute("CREATE SOURCE s (n BIGINT)")
    served.db.execute("CREATE MATERIALIZED VIEW v AS SELECT n FROM s WHERE n > 1")
    with served.connect() as client:
        found = client.execute("SELECT matviewname, ispopulated FROM pg_matviews").fetchall()
        assert found == [("v", True)]
        sql = "SELECT relname, relkind FROM pg_class WHERE relname IN ('s', 'v')"
        assert sorted(client.execute(sql).fetchall()) == [("s", "r"), ("v", "m")]
        assert client.execute("SELECT COUNT(*) FROM pg_views").fetchone() == (0,)
    assert "public|v|materialized view" in "\n".join(served.lines(r"\dm"))


def test_the_length_of_a_text_is_in_the_catalog(served):
    with served.connect() as client:
        client.execute("CREATE TABLE l (id BIGINT PRIMARY KEY, t VARCHAR(3), f FLOAT(24))")
        with pytest.raises(psycopg.errors.StringDataRightTruncation):
            client.execute("INSERT INTO l VALUES (1, 'abcd', 0)")
        with pytest.raises(psycopg.errors.StringDataRightTruncation):
            client.execute("INSERT INTO l (id, t) VALUES (1, %s)", ["abcd"])
        client.execute("INSERT INTO l (id, t) VALUES (1, %s)", ["abc"])
        sql = "SELECT character_maximum_length FROM information_schema.columns"
        assert client.execute(f"{sql} WHERE column_name = 't'").fetchone() == (3,)
    assert "t|character varying(3)||" in "\n".join(served.lines(r"\d l"))


# ---- no value of Python's, no fault of ours

ODD = (
    "'infinity'::date",
    "'infinity'::timestamptz",
    "'-infinity'::timestamp",
    "'294276-12-31'::timestamp",
    "'10000-01-01'::date",
    "'999999999999 days'::interval",
    "'24:00:00'::time",
    "'12:34:56'::time",
    "interval '1 hour'",
    "interval '1 year'",
    "'nan'::numeric",
    "'{}'::int[]",
    "'Infinity'::float8",
    "chr(0)",
    "1e400",
    "123456789012345678901234567890123456789012",
    "ROW(1, NULL)",
    "ARRAY[1, NULL]",
    "localtimestamp",
    "%s",
)


@pytest.mark.parametrize("sql", ODD)
@pytest.mark.parametrize("binary", [False, True])
def test_odd_values_are_values_or_errors_of_the_client(served, sql, binary, caplog):
    days = (timedelta(days=-999999999), timedelta(days=400000), timedelta(hours=-1))
    for given in [[each] for each in days] if sql == "%s" else [None]:
        with served.connect() as client, client.cursor(binary=binary) as cursor:
            try:
                cursor.execute(f"SELECT {sql}", given)
            except psycopg.Error as error:
                assert error.sqlstate not in {None, "XX000"}, error
                continue
            result = cursor.pgresult
            text = (result.get_value(0, 0) or b"").decode("latin-1")
        assert not any(each in text for each in ("MonthDayNano", "None", "datetime", "Decimal("))
    assert not caplog.records


def test_values_beyond_pythons_are_written_as_postgresql_writes_them(served):
    with served.connect() as client:
        client.execute("CREATE TABLE one (id BIGINT PRIMARY KEY)")
        sql = "SELECT relname, '12000-01-02'::date FROM pg_class LIMIT 1"
        assert client.execute(sql).pgresult.get_value(0, 1) == b"12000-01-02"
        with client.cursor(binary=True) as cursor:
            data = cursor.execute(sql).pgresult.get_value(0, 1)
        days = np.datetime64("12000-01-02") - np.datetime64("2000-01-01")
        assert struct.unpack("!i", data) == (days.astype(int),)


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("1 day 02:03:04.5", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("-1 days +00:00:01.000001", timedelta(days=-1, seconds=1, microseconds=1)),
        ("@ 1 day 3 mins ago", -timedelta(days=1, minutes=3)),
        ("P1W2DT-3H4M5.25S", timedelta(weeks=1, days=2, hours=-3, minutes=4, seconds=5.25)),
        ("106751990 days 1 microsecond", timedelta(days=106751990, microseconds=1)),
        ("0.1 seconds", timedelta(milliseconds=100)),
    ],
)
def test_intervals_are_read_exactly(times, text, length):
    with times.connect() as client:
        client.execute("INSERT INTO w (id, i) VALUES (2, %s)", [text])
        assert client.execute("SELECT i FROM w WHERE id = 2").fetchone() == (length,)
        for wrong in ("1 year", "P1M", "1 fortnight", "day"):
            with pytest.raises(psycopg.DataError):
                client.execute("INSERT INTO w (id, i) VALUES (3, %s)", [wrong])


# ---- parameters of the catalog, asyncpg's way


def _parameter_types(served, sql):
    raw = served.raw()
    raw.start()
    raw.send(b"P", b"\0" + sql.encode() + b"\0\0\0")
    raw.send(b"D", b"S\0")
    raw.send(b"S")
    found = dict(raw.until(b"Z"))[b"t"]
    raw.close()
    return list(struct.unpack(f"!{len(found) // 4}I", found[2:]))


def test_types_of_parameters_of_the_catalog(served):
    served.db.execute("CREATE TABLE ag (id BIGINT PRIMARY KEY); INSERT INTO ag VALUES (1), (3)")
    oids = "SELECT relname FROM pg_class WHERE oid = ANY(%s::oid[])"
    names = "SELECT relname FROM pg_class WHERE relname IN (%s,%s)"
    listed = "SELECT id FROM ag WHERE id = ANY(%s::bigint[])"
    assert _parameter_types(served, oids.replace("%s", "$1")) == [1028]
    assert _parameter_types(served, names.replace("%s,%s", "$1,$2")) == [25, 25]
    assert _parameter_types(served, listed.replace("%s", "$1")) == [1016]
    assert _parameter_types(served, "SELECT $1::bigint[]") == [1016]
    with served.connect() as client:
        assert client.execute(names, ["ag", "x"]).fetchall() == [("ag",)]
        assert client.execute(listed, [[1, 2]]).fetchall() == [(1,)]
        [[oid]] = client.execute("SELECT oid FROM pg_class WHERE relname = 'ag'").fetchall()
        assert client.execute(oids, [[oid]]).fetchall() == [("ag",)]
        assert client.execute("SELECT conkey FROM pg_constraint").pgresult.ftype(0) == 1028
        result = client.execute("SELECT %s::bigint[]", [[1, 2]]).pgresult
        assert (result.ftype(0), result.get_value(0, 0)) == (1016, b"{1,2}")
        client.execute("SET statement_timeout = '50ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            client.execute("SELECT pg_sleep(%s)", [60])


def test_elements_of_arrays_are_quoted_where_they_must_be(served):
    served.db.execute("CREATE TABLE a (id BIGINT PRIMARY KEY, t ARRAY<VARCHAR>, n ARRAY<BIGINT>)")
    texts = ["a", "", "NULL", None, "a b", 'q"', "{", "\\"]
    served.db.insert("a", [(1, texts, [1, None, -2])])
    with served.connect() as client:
        result = client.execute("SELECT t, n FROM a").pgresult
        assert result.get_value(0, 0).decode() == r"""{a,"","NULL",NULL,"a b","q\"","{","\\"}"""
        assert result.get_value(0, 1) == b"{1,NULL,-2}"
        assert client.execute("SELECT t, n FROM a").fetchone() == (texts, [1, None, -2])
