"""Statements about connectors: what they create, refuse, show and drop; what restarts keep."""

import json
import threading
from contextlib import suppress
from typing import ClassVar

import pytest

import millstream as ms
from millstream.connectors import (
    Option,
    SinkConnector,
    SinkWriter,
    SourceConnector,
    needs,
    register,
    unregister,
)
from millstream.connectors.http import http_post
from millstream.connectors.sinks import webhook
from millstream.errors import (
    ConnectorError,
    ConnectorFailedError,
    InUseError,
    MissingExtraError,
    ObjectExistsError,
    ObjectNotFoundError,
    SqlColumnError,
    SqlOptionError,
    SqlSyntaxError,
    SqlUnsupportedError,
    TenantError,
    WrongObjectError,
)
from millstream.testing import database, engine_of, wait_until

from . import samples


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "lines"
    path.write_text('[1, "a"]\n[2, "b"]\n')
    return path


@pytest.fixture
def db():
    with database() as db:
        yield db


def source(lines, more="", name="k"):
    return (
        f"CREATE SOURCE {name} (id BIGINT, v VARCHAR) "
        f"WITH (connector = 'test-lines', path = '{lines}'{more})"
    )


def connector(db, name="k"):
    return next(each for each in db.query("SHOW CONNECTORS").to_pylist() if each["name"] == name)


def in_state(db, state, name="k"):
    wait_until(
        lambda: connector(db, name)["state"] == state,
        lambda: f"{state}: {connector(db, name)}",
    )
    return connector(db, name)


def has_rows(db, count, name="k"):
    wait_until(lambda: len(db.query(f"SELECT * FROM {name}")) == count, f"{count} rows")


# ---- creating


def test_columns_are_discovered(db, lines):
    db.execute(f"CREATE SOURCE k WITH (connector = 'test-lines', path = '{lines}')")
    db.execute(f"CREATE TABLE t WITH (connector = 'test-lines', path = '{lines}')")
    has_rows(db, 2)
    has_rows(db, 2, "t")
    assert db.query("DESCRIBE t").fetchall()[0] == ("id", "BIGINT", False, True)


def test_a_watermark_over_discovered_columns(db, lines):
    options = f"(connector = 'test-lines', path = '{lines}', mode = 'timed')"
    mark = "WATERMARK FOR TS AS TS - INTERVAL '1 second'"
    db.execute(f"CREATE SOURCE k ({mark}) WITH {options}")
    made = db.query("SHOW CREATE k").fetchall()[0][1]
    assert "WATERMARK FOR ts AS ts - INTERVAL '1 second'" in made
    with pytest.raises(SqlColumnError, match="other is no TIMESTAMP") as caught:
        db.execute(f"CREATE SOURCE j ({mark.replace('TS', 'other')}) WITH {options}")
    assert (caught.value.column, caught.value.hint) == (32, "available: ts")
    with pytest.raises(SqlUnsupportedError, match="a table has no watermark"):
        db.execute(f"CREATE TABLE j ({mark}) WITH {options}")
    with pytest.raises(SqlSyntaxError, match="no columns"):
        db.execute(f"CREATE SOURCE j ({mark}) WITH (retention = '1 day')")


def test_options_of_the_source_itself(db, lines):
    db.execute(source(lines, ", retention = '1 hour', rate_limit = 1000"))
    assert connector(db)["options"] == json.dumps(
        {"connector": "test-lines", "path": str(lines), "rate_limit": 1000}
    )
    assert "retention = '1 hour'" in db.query("SHOW CREATE SOURCE k").fetchall()[0][1]


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ("connector = 'test-line'", "there is no source connector 'test-line'", "'test-lines'?"),
        ("connector = 'test-sqlite'", "there is no source connector", "it is a sink only"),
        ("connector = 'test-lines'", "the option path is missing", "give it: the file"),
        ("connector = 'test-lines', pth = 'x'", "there is no option pth", "did you mean path?"),
        ("connector = 'test-lines', path = 'x', lines = 'many'", "lines is 'many'", "a whole"),
        ("connector = 'test-lines', path = 'x', mode = 'no'", "mode is 'no'", "one of 'plain'"),
        ("connector = 'test-lines', path = 'x', retry_delay = 1", "retry_delay is 1", "a time"),
    ],
)
def test_refused_options(db, given, message, hint):
    with pytest.raises(SqlOptionError) as caught:
        db.execute(f"CREATE SOURCE k (id BIGINT) WITH ({given})")
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.line == 1


@pytest.mark.parametrize(
    ("mode", "kind"), [("fails", ConnectorFailedError), ("raises", ConnectorError)]
)
def test_what_check_refuses_is_not_created_and_says_no_secret(db, lines, mode, kind):
    with pytest.raises(kind) as caught:
        db.execute(source(lines, f", mode = '{mode}', password = 'hunter2'"))
    assert "hunter2" not in str(caught.value)
    assert "***" in str(caught.value)
    assert not db.query("SHOW SOURCES").fetchall()


def test_names(db, lines):
    db.execute(source(lines))
    db.execute(source(lines).replace("SOURCE", "SOURCE IF NOT EXISTS"))
    for statement in (
        source(lines),
        "CREATE SOURCE s (a INT)",
        "CREATE SINK k FROM k WITH (a = 1)",
    ):
        if "SOURCE s" in statement:
            db.execute("CREATE SINK s FROM k WITH (connector = 'test-append', path = '/dev/null')")
        with pytest.raises(ObjectExistsError):
            db.execute(statement)


def test_dead_letters_have_a_name_of_choice(db, lines):
    with lines.open("a") as file:
        file.write("oops\n")
    db.execute(source(lines, ", dead_letters = 'bin'"))
    wait_until(lambda: len(db.query("SELECT * FROM bin")), "a dead letter")
    ((_, reason, origin, payload),) = db.query("SELECT * FROM bin").fetchall()
    assert ("Expecting value" in reason, origin, payload) == (True, "byte 18", b"oops\n")
    with pytest.raises(WrongObjectError):
        db.source("bin")
    db.execute("DROP SOURCE k")
    assert not db.query("SHOW SOURCES").fetchall()


def test_rows_that_do_not_fit_are_rejected_one_by_one(db, lines):
    with lines.open("a") as file:
        file.write('["three", "c"]\n[4, "d"]\n')
    db.execute(source(lines))
    has_rows(db, 3)
    ((_, reason, _, payload),) = db.query("SELECT * FROM k_dead_letters").fetchall()
    assert "'id'" in reason
    assert b"three" in payload


def test_reject_limit_stops_it(db, lines):
    lines.write_text("oops\n" * 20)
    db.execute(source(lines, ", reject_limit = 3, lines = 1"))
    assert "rejected" in in_state(db, "failed")["error"]
    db.execute("ALTER SOURCE k RESUME")
    wait_until(lambda: connector(db)["rejected"] >= 8, "the next ones")


def test_missing_extra_names_the_command(db):
    class Absent(SourceConnector):
        name = "test-absent"
        extra = "kafka"

        def check(self):
            needs("no_such_module", self.extra)

        def open(self, position):
            raise AssertionError

    register(Absent)
    try:
        with pytest.raises(MissingExtraError) as caught:
            db.execute("CREATE SOURCE k (a INT) WITH (connector = 'test-absent')")
    finally:
        unregister(Absent)
    assert caught.value.hint == "pip install 'millstream[kafka]'"


def test_kind_that_a_connector_cannot_feed(db):
    class Only(SourceConnector):
        name = "test-only"

        def open(self, position):
            raise AssertionError

    register(Only)
    try:
        with pytest.raises(SqlOptionError, match="cannot feed a table"):
            db.execute("CREATE TABLE k (a INT PRIMARY KEY) WITH (connector = 'test-only')")
    finally:
        unregister(Only)


# ---- writing beside it


def test_others_may_not_write(db, lines):
    db.execute(f"CREATE TABLE t WITH (connector = 'test-lines', path = '{lines}')")
    db.execute(source(lines))
    has_rows(db, 2, "t")
    writes = (
        lambda: db.execute("INSERT INTO k VALUES (1, 'x')"),
        lambda: db.source("k"),
        lambda: db.insert("k", [(1, "x")]),
        lambda: db.insert("t", [(1, "x")]),
        lambda: db.execute("UPDATE t SET v = 'x'"),
        lambda: db.execute("DELETE FROM t WHERE id = 1"),
        lambda: db.execute("INSERT INTO t VALUES (?, ?)", [7, "x"]),
    )
    for write in writes:
        for _ in range(2):  # the second time without parsing
            with pytest.raises(WrongObjectError, match="fed by the connector 'test-lines'"):
                write()
    assert len(db.query("SELECT * FROM t")) == 2


def test_only_without_a_tenant(db, lines):
    acme = db.session(tenant="acme")
    for statement in (source(lines), "SHOW CONNECTORS", "SHOW SINKS", "ALTER SOURCE k PAUSE"):
        with pytest.raises(TenantError):
            acme.execute(statement)


# ---- trouble


def test_an_error_is_shown_without_secrets_and_is_over(db, lines, monkeypatch):
    monkeypatch.setenv("TEST_PASSWORD", "wrong")
    db.execute(source(lines, ", password = '${env:TEST_PASSWORD}', retry_delay = '1 ms'"))
    wait_until(lambda: connector(db)["error"], "an error")
    shown = connector(db)
    assert shown["error"] == "OSError: password '***' was refused by db://me:***@there"
    assert '"${env:TEST_PASSWORD}"' in shown["options"]
    monkeypatch.setenv("TEST_PASSWORD", "right")
    has_rows(db, 2)
    shown = connector(db)
    assert (shown["state"], shown["error"]) == ("running", None)
    assert shown["restarts"] > 0
    assert shown["metrics"] == '{"lines": 7}'


def test_circuit_breaker_rests_and_resume_ends_the_rest(db, lines, monkeypatch):
    monkeypatch.setenv("TEST_PASSWORD", "wrong")
    more = ", password = '${env:TEST_PASSWORD}', retry_delay = '1 ms', retry_limit = 2"
    db.execute(source(lines, more))
    in_state(db, "resting")
    monkeypatch.setenv("TEST_PASSWORD", "right")
    db.execute("ALTER SOURCE k RESUME")
    has_rows(db, 2)


def test_a_secret_that_is_not_there_fails_until_resume(db, lines, tmp_path, monkeypatch):
    monkeypatch.setenv("TEST_PASSWORD", "right")
    secret = tmp_path / "secret"
    secret.write_text("right\n")
    db.execute(source(lines, f", password = '${{file:{secret}}}'"))
    has_rows(db, 2)
    secret.unlink()
    db.execute("ALTER SOURCE k PAUSE")
    db.execute("ALTER SOURCE k RESUME")
    assert "cannot be read" in in_state(db, "failed")["error"]
    secret.write_text("right\n")
    db.execute("ALTER SOURCE k RESUME")
    in_state(db, "running")
    monkeypatch.delenv("TEST_PASSWORD")
    with pytest.raises(ConnectorFailedError, match="TEST_PASSWORD is not set"):
        db.execute(source(lines, ", password = '${env:TEST_PASSWORD}'", name="other"))


def test_one_that_fails_harms_nothing_else(db, lines):
    db.execute(source(lines, name="bad"))
    has_rows(db, 2, "bad")
    lines.unlink()
    other = lines.with_name("other")
    other.write_text('[1, "a"]\n')
    db.execute("ALTER SOURCE bad PAUSE")
    db.execute("ALTER SOURCE bad RESUME")
    db.execute(source(other, name="good"))
    has_rows(db, 1, "good")
    wait_until(lambda: "FileNotFoundError" in (connector(db, "bad")["error"] or ""), "an error")
    assert db.metrics()["connectors"]["good"]["rows"] == 1


# ---- showing


def test_literal_secrets_are_kept_and_never_shown(tmp_path, lines):
    with database(source(lines, ", password = 'hunter2'"), path=tmp_path / "db") as db:
        has_rows(db, 2)
    with database(path=tmp_path / "db") as db:
        kept = engine_of(db).catalog["k"].connection.options["password"]
        assert kept == "hunter2"
        texts = [
            *(str(db.query(sql).to_pylist()) for sql in ("SHOW CONNECTORS", "SHOW CREATE k")),
            *(str(db.query(sql).to_pylist()) for sql in ("SHOW SOURCES", "DESCRIBE k")),
            str(db.metrics()),
            str(db.topology()),
        ]
        assert not any("hunter2" in text for text in texts)
        assert "password = '***'" in texts[1]


def test_sinks_are_shown(db, lines, tmp_path):
    db.execute(source(lines))
    has_rows(db, 2)
    out = tmp_path / "out"
    db.execute(
        "CREATE SINK s AS SELECT id, v FROM k WHERE id > 1 "
        f"WITH (connector = 'test-append', path = '{out}')"
    )
    wait_until(lambda: out.exists() and out.read_text() == '[2, "b"]\n', "the row")
    wait_until(lambda: db.query("SHOW SINKS").to_pylist()[0]["rows"] == 1, "it is counted")
    (shown,) = db.query("SHOW SINKS").to_pylist()
    assert shown["query"] == "SELECT id, v FROM k WHERE id > 1"
    assert (shown["connector"], shown["state"], shown["error"]) == ("test-append", "running", None)
    ((_, made),) = db.query("SHOW CREATE SINK s").fetchall()
    assert dict(db.query("DESCRIBE SINK s").fetchall())["path"] == str(out)
    db.execute("DROP SINK s")
    db.execute(made)
    assert db.query("SHOW SINKS").to_pylist()[0]["name"] == "s"
    assert {"name": "s", "kind": "sink"} in db.topology()["nodes"]


def test_a_sink_takes_one_relation(db, lines):
    db.execute(source(lines))
    with pytest.raises(SqlUnsupportedError, match="one relation"):
        db.execute("CREATE SINK s AS SELECT COUNT(*) FROM k WITH (connector = 'test-append')")
    with pytest.raises(SqlOptionError, match="a sink needs a connector"):
        db.execute("CREATE SINK s FROM k WITH (path = 'x')")


def test_rows_that_a_sink_refuses_are_dead_letters(db, tmp_path):
    out = tmp_path / "out"
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)")
    db.execute("INSERT INTO t VALUES (1, 'a'), (2, 'poison'), (3, 'c')")
    db.execute(f"CREATE SINK s FROM t WITH (connector = 'test-append', path = '{out}')")
    wait_until(lambda: len(db.query("SELECT * FROM s_dead_letters")), "a dead letter")
    ((_, reason, _, payload),) = db.query("SELECT * FROM s_dead_letters").fetchall()
    assert (reason, json.loads(payload)) == ("it is poison", [2, "poison"])
    wait_until(lambda: connector(db, "s")["rejected"] == 1, "it is counted")


# ---- stopping and dropping


def test_pause_lasts_over_a_restart(tmp_path, lines):
    with database(source(lines), path=tmp_path / "db") as db:
        has_rows(db, 2)
        db.execute("ALTER SOURCE k PAUSE")
        assert connector(db)["state"] == "paused"
    with lines.open("a") as file:
        file.write('[3, "c"]\n')
    with database(path=tmp_path / "db") as db:
        assert connector(db)["state"] == "paused"
        assert len(db.query("SELECT * FROM k")) == 2
        db.execute("ALTER SOURCE k RESUME")
        has_rows(db, 3)


def test_what_has_no_connector_is_not_paused(db):
    db.execute("CREATE SOURCE s (a INT)")
    with pytest.raises(WrongObjectError, match="has no connector"):
        db.execute("ALTER SOURCE s PAUSE")


def test_drop_forgets_the_position_and_cleans_up_outside(tmp_path, lines):
    with database(source(lines), path=tmp_path / "db") as db:
        has_rows(db, 2)
        db.execute("DROP SOURCE k")
        assert (tmp_path / "lines.dropped").read_text() == "18"
        assert not [name for name in engine_of(db).log.topics if name.startswith("__position.")]
        db.execute(source(lines))
        has_rows(db, 2)


def test_what_a_sink_reads_is_not_dropped_before_it(db, lines, tmp_path):
    db.execute(source(lines))
    db.execute(f"CREATE SINK s FROM k WITH (connector = 'test-append', path = '{tmp_path / 'o'}')")
    with pytest.raises(InUseError, match="read by the sink s"):
        db.execute("DROP SOURCE k")
    db.execute("DROP SOURCE k CASCADE")
    assert not db.query("SHOW CONNECTORS").fetchall()
    assert not db.query("SHOW SOURCES").fetchall()
    assert not db.query("SHOW SUBSCRIPTIONS").fetchall()
    with pytest.raises(ms.errors.ObjectNotFoundError):
        db.execute("DROP SINK s")
    db.execute("DROP SINK IF EXISTS s")


def test_a_sink_that_checks_its_columns(db):
    class Picky(SinkConnector):
        name = "test-picky"
        options = (Option("a"),)

        def check(self):
            if not self.input.schema.key:
                raise ConnectorFailedError("it has no key", hint="select one")

        def open(self):
            raise AssertionError

    register(Picky)
    try:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)")
        with pytest.raises(ConnectorFailedError, match="no key"):
            db.execute("CREATE SINK s AS SELECT v FROM t WITH (connector = 'test-picky')")
    finally:
        unregister(Picky)
    assert samples.Lines.name == "test-lines"


def test_a_sink_that_was_dropped_halfway_keeps_no_log(tmp_path, lines):
    out = tmp_path / "out"
    with database(source(lines), path=tmp_path / "db") as db:
        db.execute(f"CREATE SINK s FROM k WITH (connector = 'test-append', path = '{out}')")
        wait_until(out.exists, "the sink writes")
        engine = engine_of(db)
        engine.connections.stop("s")
        engine.dispatcher.call(lambda: engine.catalog.drop_sink("s"))  # and then a crash
        assert [each.name for each in engine.positions.all()] == ["__sink.s"]
    with database(path=tmp_path / "db") as db:
        assert engine_of(db).positions.all() == []


def test_dead_letters_that_a_view_reads_are_not_dropped_with_their_sink(db, lines, monkeypatch):
    db.execute(source(lines))
    db.execute("CREATE SINK s FROM k WITH (connector = 'test-append', path = '/dev/null')")
    monkeypatch.setattr(
        engine_of(db).views, "readers_of", lambda name: ["v"] if "letters" in name else []
    )
    with pytest.raises(InUseError, match="s_dead_letters is read by"):
        db.execute("DROP SINK s")
    assert len(db.query("SHOW SINKS")) == 1


def test_a_sink_is_given_what_is_on_the_disk():
    """Else its token could be ahead of the log after a crash."""
    found = []

    class Noting(SinkConnector):
        name = "noting"

        def open(self):
            return Writer()

    class Writer(SinkWriter):
        def write(self, batch):
            found.append((batch.lsn, engine_of(db).log.durable_lsn))
            return True

    register(Noting)
    try:
        with ms.open(sync_interval=3600.0) as db:  # by itself the log goes to the disk rarely
            db.execute("CREATE SOURCE s (n BIGINT)")
            db.execute("CREATE SINK o FROM s WITH (connector = 'noting')")
            for n in range(20):
                db.source("s").push((n,))
                wait_until(lambda: len(found) > n)
    finally:
        unregister(Noting)
    assert all(lsn <= durable for lsn, durable in found)


class Keeping(SinkConnector):
    """Stores rows and the token in memory, as one; fails at its first write if it is told to."""

    name = "keeping"
    transactional = True
    rows: ClassVar[list] = []
    token: ClassVar[list] = []
    failures: ClassVar[list] = []

    def open(self):
        return KeepingWriter()


class KeepingWriter(SinkWriter):
    def position(self):
        return Keeping.token[-1] if Keeping.token else None

    def write(self, batch):
        if Keeping.failures:
            raise OSError(Keeping.failures.pop())
        Keeping.rows += [change.row for change in batch]
        Keeping.token.append(batch.token)
        return True


@pytest.fixture
def keeping():
    for each in (Keeping.rows, Keeping.token, Keeping.failures):
        each.clear()
    register(Keeping)
    yield Keeping
    unregister(Keeping)


@pytest.mark.parametrize("what", ["pause", "failure"])
def test_now_is_when_the_sink_was_created(db, keeping, what):
    """Whether it was paused, or failed, before it had stored anything."""
    db.execute("CREATE SOURCE s (n BIGINT); INSERT INTO s VALUES (0)")
    if what == "failure":
        keeping.failures.append("not yet")
    more = "connector = 'keeping', start = 'now', retry_delay = '1 ms'"
    db.execute(f"CREATE SINK o FROM s WITH ({more})")
    if what == "pause":
        db.execute("ALTER SINK o PAUSE")
    db.execute("INSERT INTO s VALUES (1)")
    if what == "pause":
        db.execute("ALTER SINK o RESUME")
    wait_until(lambda: keeping.rows == [(1,)], lambda: str(keeping.rows))


@pytest.mark.slow
def test_what_is_dropped_while_it_is_created_has_no_thread(keeping):
    """Sinks and sources are created and dropped by several threads at once."""
    with database("CREATE SOURCE s (n BIGINT)") as db:

        def work():
            for _ in range(15):
                for sql in (
                    "CREATE SINK o FROM s WITH (connector = 'keeping')",
                    "DROP SINK o",
                    "CREATE SOURCE g (n BIGINT) WITH (connector = 'generator', rows = 5)",
                    "DROP SOURCE g",
                ):
                    with suppress(ObjectExistsError, ObjectNotFoundError):
                        db.execute(sql)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        db.execute("DROP SINK IF EXISTS o; DROP SOURCE IF EXISTS g")
        assert db.query("SHOW CONNECTORS").to_pylist() == []
        names = [each.name for each in threading.enumerate()]
        assert not [each for each in names if "connector" in each]


@pytest.mark.parametrize(
    "option",
    ["rate_limit = '${env:RATE}'", "retry_delay = '${env:RATE}'", "rate_limit = 'nan'",
     "rate_limit = 0", "retry_limit = 0", "dead_letters = 'K'"],
)  # fmt: skip
def test_options_of_all_connectors_are_refused_at_create(db, lines, option, monkeypatch):
    monkeypatch.setenv("RATE", "1")  # would be gone at the next start, and nothing would open
    with pytest.raises(SqlOptionError):
        db.execute(source(lines, f", {option}"))


def test_urls_are_shown_without_what_is_secret_in_them(db):
    db.execute(
        "CREATE SOURCE s (n BIGINT);"
        "CREATE SINK o FROM s WITH (connector = 'webhook', retry_delay = '1 hour',"
        " url = 'http://127.0.0.1:1/p?id=7&token=hunter2')"
    )
    for statement in ("SHOW CONNECTORS", "SHOW CREATE SINK o", "DESCRIBE SINK o"):
        shown = str(db.execute(statement).to_pylist())
        assert "hunter2" not in shown
        assert "id=7" in shown


@pytest.mark.parametrize("null", ["NULL", "a", "-"])
def test_copy_writes_null_as_it_reads_it(db, tmp_path, null):
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)")
    db.execute("INSERT INTO t VALUES (1, NULL), (2, 'a'), (3, ''), (4, 'NULL')")
    options = f"WITH (null = '{null}')"
    db.execute(f"COPY t TO '{tmp_path}/t.csv' {options}")
    db.execute("CREATE TABLE u (id BIGINT PRIMARY KEY, v VARCHAR)")
    db.execute(f"COPY u FROM '{tmp_path}/t.csv' {options}")
    query = "SELECT * FROM {} ORDER BY id"
    assert db.query(query.format("u")).fetchall() == db.query(query.format("t")).fetchall()
    assert f"1,{null}" in (tmp_path / "t.csv").read_text()


def test_each_post_of_a_snapshot_has_an_id_of_its_own(monkeypatch):
    ids = []

    def post(url, body, headers, timeout):
        ids.append(headers["X-Millstream-Delivery"])
        return Answer(200)

    Answer = type(http_post("http://127.0.0.1:1/", b"", {}, 0.1))  # noqa: N806
    monkeypatch.setattr(webhook, "http_post", post)
    with database("CREATE TABLE t (id BIGINT PRIMARY KEY)") as db:
        db.insert("t", [(n,) for n in range(10)])
        db.execute(
            "CREATE SINK o FROM t WITH (connector = 'webhook', url = 'http://127.0.0.1:1/',"
            " batch_rows = 3)"
        )
        wait_until(lambda: len(ids) >= 4, lambda: str(ids))
    assert len(set(ids)) == len(ids)
