from __future__ import annotations

import datetime as dt
import decimal
import subprocess
import sys

import pyarrow as pa
import pytest
from tests.server.conftest import serving

import millstream as ms
from millstream import errors
from millstream.model.clock import from_datetime
from millstream.server.keys import Keys
from millstream.testing import TIMEOUT

from .conftest import Process


class TestSql:
    def test_statements_and_queries(self, db, t):
        result = db.execute(f"INSERT INTO {t} VALUES (?, ?), (2, 'b')", [1, "O'Hara"])
        assert (result.status, result.rowcount) == ("INSERT 2", 2)
        found = db.query(f"SELECT * FROM {t} WHERE id = :id", {"id": 1})
        assert found.fetchall() == [(1, "O'Hara")]
        assert found.lsn > 0
        assert found.schema == db.schema(t)
        assert found.schema.key == ("id",)
        assert found.to_arrow().num_rows == 1
        assert found.to_pandas()["name"].tolist() == ["O'Hara"]
        assert db.sql(f"SELECT COUNT(*) AS c FROM {t}").to_pylist() == [{"c": 2}]
        assert db.explain(f"SELECT * FROM {t}")
        assert not db.query(f"SELECT * FROM {t} WHERE id = 9")

    def test_types_come_back_as_they_were(self, db):
        db.execute(
            "CREATE TABLE kinds (id BIGINT PRIMARY KEY, d DECIMAL(9, 2), ts TIMESTAMP, b BINARY, "
            "day DATE, a ARRAY<BIGINT>, ok BOOLEAN, x DOUBLE)"
        )
        when = dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC)
        row = (2**60, decimal.Decimal("1.50"), when, b"\x00\xff", when.date(), [1, None], True, 0.5)
        assert db.insert("kinds", [row]) == 1
        assert db.query("SELECT * FROM kinds WHERE ts = ?", [when]).fetchall() == [row]

    def test_errors_are_those_of_a_database(self, db, t):
        with pytest.raises(errors.SqlSyntaxError) as caught:
            db.execute("SELEC 1")
        assert (caught.value.line, caught.value.column) == (1, 1)
        assert caught.value.hint == "Did you mean SELECT?"
        assert "SELEC 1\n  ^" in str(caught.value)
        with pytest.raises(errors.ObjectNotFoundError):
            db.query("SELECT * FROM nothing")
        with pytest.raises(errors.ObjectExistsError):
            db.execute(f"CREATE TABLE {t} (id BIGINT PRIMARY KEY)")
        db.insert(t, [(1, "a")])
        with pytest.raises(errors.DuplicateKeyError):
            db.insert(t, [(1, "b")])
        with pytest.raises(errors.SqlUnsupportedError):
            db.query(f"DELETE FROM {t}")

    def test_how_it_is(self, db, s):
        db.insert(s, [(1, "a")])
        assert db.metrics()["sources"][s]["pushed"] == 1
        assert db.metrics()["lsn"] <= db.lsn
        assert s in [node["name"] for node in db.topology()["nodes"]]
        db.execute(f"CREATE MATERIALIZED VIEW v AS SELECT n FROM {s} WHERE n > 1")
        db.insert(s, [(2, "b")])
        assert db.wait_for("v", timeout=TIMEOUT) > 0
        assert db.query("SELECT * FROM v").fetchall() == [(2,)]
        with pytest.raises(errors.ViewNotReadyError):
            db.wait_for("v", lsn=db.lsn + 1_000, timeout=0)
        with pytest.raises(errors.ObjectNotFoundError):
            db.wait_for("nothing")


class TestInsert:
    def test_any_shape(self, db, s):
        assert db.insert(s, [(1, "a")]) == 1
        assert db.insert(s, ({"n": n} for n in (2, 3))) == 2
        assert db.insert(s, {"n": [4], "name": ["d"]}) == 1
        assert db.insert(s, pa.table({"n": [5, 6]})) == 2
        assert db.insert_json(s, '{"n": 7}\n{"n": 8}') == 2
        assert db.insert_csv(s, "n,name\n9,i\n") == 1
        assert db.insert(s, []) == 0
        rows = db.query(f"SELECT n FROM {s}").fetchall()
        assert sorted(rows) == [(n,) for n in range(1, 10)]

    def test_a_value_that_does_not_fit_names_its_place(self, db, s):
        with pytest.raises(errors.RowError) as caught:
            db.insert(s, [(1, "a"), ("x", "b")])
        assert (caught.value.row, caught.value.column) == (1, "n")

    def test_once(self, db, s):
        assert not db.insert_once(s, [(1, "a")], "k").repeated
        assert db.insert_once(s, [(1, "a")], "k").repeated
        with pytest.raises(errors.InvalidOptionError):
            db.insert_once(s, [(1, "a"), (2, "b")], "k")
        assert len(db.query(f"SELECT * FROM {s}")) == 1

    def test_columns_that_were_added_since(self, db, s, shared):
        db.insert(s, [(1, "a")])
        with ms.connect(shared.url) as other:
            other.execute(f"ALTER SOURCE {s} ADD COLUMN x DOUBLE")
        assert db.insert(s, [(2, "b", 0.5)]) == 1
        assert (2, "b", 0.5) in db.query(f"SELECT * FROM {s}").fetchall()


class TestConnecting:
    def test_what_is_no_server(self, tmp_path):
        for url in ("market.db", "ftp://host", "http://", None):
            with pytest.raises(errors.InvalidOptionError, match="not the address"):
                ms.connect(url)
        with pytest.raises(errors.DisconnectedError, match="no answer from"):
            ms.connect("http://127.0.0.1:9", timeout=0)

    def test_the_first_attempt_that_fails_is_reported_at_once(self, caplog):
        with pytest.raises(errors.DisconnectedError):
            ms.connect("http://127.0.0.1:9", timeout=0.1)
        (said,) = [each.message for each in caplog.records if each.name == "millstream.client"]
        assert "http://127.0.0.1:9" in said
        assert said.endswith("; trying for 0.1 s")

    def test_closed(self, shared):
        with ms.connect(shared.url) as db:
            assert "open" in repr(db)
        assert "closed" in repr(db)
        with pytest.raises(errors.ClosedError):
            db.query("SHOW TABLES")
        db.close()

    def test_the_import_is_light(self):
        code = "import millstream, sys; print(' '.join(sys.modules))"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert not {"httpx", "websockets", "millstream.client"} & set(done.stdout.split())

    def test_a_restart_between_two_calls(self, server):
        with ms.connect(server.url, timeout=TIMEOUT) as db:
            db.execute("CREATE SOURCE s (n BIGINT)")
            db.insert("s", [(1,)])
            server.restart()
            assert db.insert("s", [(2,)]) == 1
            assert db.query("SELECT n FROM s").fetchall() == [(1,), (2,)]

    def test_a_statement_is_never_run_twice(self, server):
        with ms.connect(server.url, timeout=0) as db:
            server.end()
            with pytest.raises(errors.DisconnectedError):
                db.execute("CREATE SOURCE s (n BIGINT)")


class TestKeys:
    def test_keys_roles_and_tenants(self, tmp_path):
        keys = Keys(tmp_path / "db")
        secrets = {
            name: keys.create(name, role=role, tenant=tenant)
            for name, role, tenant in [
                ("boss", "admin", None),
                ("acme", "write", "acme"),
                ("other", "write", "other"),
                ("reader", "read", None),
            ]
        }
        server = Process(tmp_path / "db", "--auth").start()
        try:
            self.check(server, keys, secrets)
        finally:
            server.end()

    def check(self, server, keys, secrets):
        for wrong in (None, "msk_wrong"):
            with pytest.raises(errors.AuthenticationError):
                ms.connect(server.url, key=wrong)
        boss, acme, other, reader = (
            ms.connect(server.url, key=secrets[name])
            for name in ("boss", "acme", "other", "reader")
        )
        with boss, acme, other, reader:
            boss.execute("CREATE SOURCE s (org VARCHAR NOT NULL, n BIGINT) WITH (tenant = 'org')")
            acme.insert("s", [("acme", 1)])
            other.insert("s", [("other", 2)])
            with pytest.raises(errors.TenantError):
                acme.insert("s", [("other", 3)])
            assert acme.query("SELECT n FROM s").fetchall() == [(1,)]
            assert len(reader.query("SELECT n FROM s")) == 2
            with pytest.raises(errors.RoleError):
                reader.insert("s", [("acme", 4)])
            with pytest.raises(errors.RoleError):
                acme.execute("DROP SOURCE s")
            subscription = reader.subscribe("SELECT n FROM s")
            of_acme = acme.subscribe("SELECT n FROM s")
            other.insert("s", [("other", 5)])
            acme.insert("s", [("acme", 6)])
            assert subscription.recv(TIMEOUT).rows[0] == (5,)
            assert of_acme.recv(TIMEOUT).rows == [(6,)]
            keys.revoke("reader")
            with pytest.raises(errors.AuthenticationError):
                reader.query("SELECT n FROM s")
            with pytest.raises(errors.AuthenticationError):
                while True:
                    subscription.recv(TIMEOUT)
            with pytest.raises(errors.AuthenticationError):
                reader.subscribe("SELECT n FROM s")


class TestLikeADatabase:
    def test_errors_have_their_details(self, db, t):
        db.insert(t, [(1, "a")])
        with pytest.raises(errors.DuplicateKeyError) as caught:
            db.insert(t, [(2, "b"), (1, "c")])
        assert caught.value.key == (1,)
        with pytest.raises(errors.RowError) as misfit:
            db.execute(f"INSERT INTO {t} VALUES (3, 'x'), (NULL, 'y')")
        assert (misfit.value.row, misfit.value.column) == (1, "id")
        db.execute("CREATE SOURCE texts (x VARCHAR)")
        db.execute("CREATE MATERIALIZED VIEW fails AS SELECT CAST(x AS BIGINT) AS n FROM texts")
        with db.subscribe("SELECT * FROM fails") as subscription:
            db.insert("texts", [("no number",)])
            with pytest.raises(errors.ViewFailedError) as failed:
                while True:
                    subscription.recv(TIMEOUT)
            assert failed.value.view == "fails"
        db.execute("DROP SOURCE texts CASCADE")

    def test_rows_replace_others(self, db, t):
        db.insert(t, [(1, "a"), (2, "b")])
        assert db.insert(t, [(2, "c"), (3, "d")], replace=True) == 2
        assert db.insert_once(t, [(3, "e")], "again", replace=True).rows == 1
        assert db.insert_once(t, [(3, "f")], "again", replace=True).repeated
        found = db.query(f"SELECT * FROM {t} ORDER BY id").fetchall()
        assert found == [(1, "a"), (2, "c"), (3, "e")]

    def test_a_writer(self, db, s):
        with db.writer(s, batch_rows=10) as writer:
            for n in range(25):
                writer.write((n, "x"))
        assert db.query(f"SELECT COUNT(*) AS n FROM {s}").fetchall() == [(25,)]

    def test_a_watermark_comes_after_the_rows_before_it(self, tmp_path):
        when = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
        with serving(tmp_path / "db") as served, ms.connect(served.url) as db:
            db.execute("CREATE SOURCE timed (ts TIMESTAMP, WATERMARK FOR ts AS ts)")
            with db.source("timed") as source:
                for day in range(3):
                    source.push((when + dt.timedelta(days=day),))
                source.watermark(when + dt.timedelta(days=9))
                source.flush()
                with pytest.raises(errors.InvalidOptionError):
                    source.watermark("tomorrow")
            micros = served.db.context.engine.log.watermark("timed")
            assert micros == from_datetime(when + dt.timedelta(days=9))
            assert len(served.db.query("SELECT * FROM timed")) == 3
            body = {"watermark": "2026-02-01T00:00:00Z"}
            assert served.client.post("/v1/sources/timed/watermark", json=body).status_code == 200
            for wrong in ({}, {"watermark": "soon"}, {"watermark": 2**70}, {"watermark": True}):
                answer = served.client.post("/v1/sources/timed/watermark", json=wrong)
                assert answer.status_code == 400

    def test_a_tenant_sets_no_watermark(self, tmp_path):
        keys = Keys(tmp_path)
        secret = keys.create("k", role="admin", tenant="a")
        process = Process(tmp_path / "db", "--auth", "--keys", str(keys.path)).start()
        try:
            with ms.connect(process.url, key=keys.create("all", role="admin")) as db:
                db.execute("CREATE SOURCE own (who VARCHAR NOT NULL) WITH (tenant = 'who')")
            with pytest.raises(errors.TenantError), ms.connect(process.url, key=secret) as db:
                source = db.source("own")
                source.watermark(1)
                source.flush()
        finally:
            process.end()

    def test_what_led_to_a_change(self, db, s):
        db.execute(f"CREATE MATERIALIZED VIEW doubled AS SELECT n * 2 AS m FROM {s} WHERE n > 5")
        with db.subscribe("SELECT * FROM doubled", start="now") as subscription:
            db.insert(s, [(1, "a"), (7, "b")])
            (change,) = subscription.recv(TIMEOUT)
        assert 0 < change.cause < change.lsn
        led = db.cause(change)
        assert [(each.op, each.row) for each in led[s]] == [
            ("insert", (1, "a")),
            ("insert", (7, "b")),
        ]
        assert led == db.cause(change.lsn)
        assert led[s][0].schema.names == ("n", "name")
        with pytest.raises(errors.InvalidOptionError):
            db.cause("x")
        db.execute("DROP VIEW doubled")
