"""Object stores: S3, played by moto's server; the same code reaches GCS and ABFS through Arrow."""

from __future__ import annotations

import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs

import millstream as ms
from millstream.errors import ConnectorFailedError, FileAccessError
from millstream.testing import wait_until

KEYS = "access_key = '${env:S3_KEY}', secret_key = '${env:S3_SECRET}', region = 'us-east-1'"


@pytest.fixture(scope="module")
def s3():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3, monkeypatch, request):
    monkeypatch.setenv("S3_KEY", "AKIA-TEST")
    monkeypatch.setenv("S3_SECRET", "never shown")
    store = fs.S3FileSystem(
        access_key="AKIA-TEST",
        secret_key="never shown",
        region="us-east-1",
        endpoint_override=s3,
        allow_bucket_creation=True,
    )
    name = request.node.name.replace("_", "-")[:40]
    store.create_dir(name)
    return store, name


def options(s3):
    return f"endpoint = '{s3}', {KEYS}"


def names(store, path):
    found = store.get_file_info(fs.FileSelector(path, allow_not_found=True))
    return sorted(each.base_name for each in found if each.is_file)


def test_copy(s3, bucket):
    store, name = bucket
    with ms.open() as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)")
        db.insert("t", [(n, f"v{n}") for n in range(1000)])
        url = f"s3://{name}/deep/x.parquet"
        assert db.execute(f"COPY t TO '{url}' WITH ({options(s3)})").rowcount == 1000
        assert names(store, f"{name}/deep") == ["x.parquet"]
        db.execute("CREATE TABLE u (id BIGINT PRIMARY KEY, v VARCHAR)")
        assert db.execute(f"COPY u FROM '{url}' WITH ({options(s3)})").rowcount == 1000
        for wrong in (f"s3://{name}/none.csv", "s3://no-such-bucket/x.csv"):
            with pytest.raises(FileAccessError) as raised:
                db.execute(f"COPY u FROM '{wrong}' WITH ({options(s3)})")
            assert "never shown" not in str(raised.value)
        with pytest.raises(ConnectorFailedError, match="NONE is not set"):
            db.execute(f"COPY u FROM '{url}' WITH (access_key = '${{env:NONE}}')")


def test_a_sink_and_a_source(s3, bucket, tmp_path):
    store, name = bucket
    with ms.open(tmp_path / "db") as db:
        db.execute("CREATE SOURCE s (id BIGINT, v VARCHAR)")
        db.execute(
            f"CREATE SINK k FROM s WITH (connector = 'files', path = 's3://{name}/out', "
            f"roll_interval = '50 milliseconds', {options(s3)})"
        )
        db.insert("s", [(1, "a"), (2, "b")])
        wait_until(lambda: names(store, f"{name}/out")[1:], "a file and its note")
        db.execute(
            f"CREATE SOURCE r (id BIGINT, v VARCHAR) WITH (connector = 'files', "
            f"path = 's3://{name}/out/', poll_interval = '50 milliseconds', {options(s3)})"
        )
        assert "never shown" not in str(db.query("SHOW CREATE k").fetchall())
    with ms.open(tmp_path / "db") as db:  # both go on where they were
        db.insert("s", [(3, "c")])
        query = "SELECT id FROM r ORDER BY id"
        wait_until(lambda: len(db.query(query)) >= 3, "three rows", timeout=30)
        assert db.query(query).fetchall() == [(1,), (2,), (3,)]
        assert len(names(store, f"{name}/out")) == 3


def test_delta_lake(s3, bucket):
    _, name = bucket
    with ms.open() as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)")
        db.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        db.execute(
            f"CREATE SINK k FROM t WITH (connector = 'delta', path = 's3://{name}/table', "
            f"commit_interval = '20 milliseconds', {options(s3)})"
        )
        shown = lambda: {each["name"]: each for each in db.query("SHOW CONNECTORS").to_pylist()}  # noqa: E731
        wait_until(lambda: shown()["k"]["rows"] >= 2, lambda: str(shown()), timeout=60)
        db.execute(
            f"CREATE SOURCE r WITH (connector = 'delta', path = 's3://{name}/table', "
            f"poll_interval = '50 milliseconds', {options(s3)})"
        )
        wait_until(lambda: len(db.query("SELECT * FROM r")) == 2, lambda: str(shown()), timeout=60)
        assert sorted(db.query("SELECT * FROM r")) == [(1, "a"), (2, "b")]


def test_iceberg(s3, bucket, tmp_path):
    store, name = bucket
    catalog = (
        f"catalog.type = 'sql', catalog.uri = 'sqlite:///{tmp_path}/catalog.db', "
        f"catalog.warehouse = 's3://{name}/lake', catalog.s3.endpoint = '{s3}', "
        "catalog.s3.access-key-id = '${env:S3_KEY}', catalog.s3.region = 'us-east-1', "
        "catalog.s3.secret-access-key = '${env:S3_SECRET}'"
    )
    quick = "commit_interval = '20 milliseconds'"
    with ms.open(tmp_path / "db") as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)")
        db.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        options = f"connector = 'iceberg', table = 'ns.t', {catalog}"
        db.execute(f"CREATE SINK k FROM t WITH ({options}, {quick})")
        shown = lambda: {each["name"]: each for each in db.query("SHOW CONNECTORS").to_pylist()}  # noqa: E731
        wait_until(lambda: shown()["k"]["rows"] >= 2, lambda: str(shown()), timeout=60)
        db.execute(f"CREATE SOURCE r WITH ({options}, poll_interval = '50 milliseconds')")
        wait_until(lambda: len(db.query("SELECT * FROM r")) == 2, lambda: str(shown()), timeout=60)
        assert sorted(db.query("SELECT * FROM r")) == [(1, "a"), (2, "b")]
        assert "never shown" not in str(db.query("SHOW CONNECTORS").to_pylist())
        found = store.get_file_info(fs.FileSelector(f"{name}/lake", recursive=True))
        assert any(each.path.endswith(".parquet") for each in found)
    with ms.open(tmp_path / "db") as db:  # goes on after its token
        db.execute("INSERT INTO t VALUES (3, 'c')")
        wait_until(lambda: shown()["k"]["rows"] >= 1, lambda: str(shown()), timeout=60)
        wrong = options.replace(s3, "http://127.0.0.1:1").replace("ns.t", "ns.u")
        with pytest.raises(ms.Error) as caught:
            db.execute(f"CREATE SOURCE q WITH ({wrong})")
        assert "never shown" not in str(caught.value)
