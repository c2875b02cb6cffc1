"""The secret of the bridge shows nowhere, and rows leave this machine only encrypted."""

import subprocess
import sys

from millstream.spark.bridge import server as wire
from millstream.testing import TIMEOUT

from .cluster import QUICK

VIEW = "CREATE MATERIALIZED VIEW v AS SELECT k, SUM(n) AS total FROM s GROUP BY k"


def fill(db):
    db.execute("CREATE SOURCE s (k VARCHAR, n BIGINT)")
    db.execute(VIEW)
    for n in range(100):
        db.source("s").push((f"k{n % 3}", n))
    db.flush()
    db.wait_for("v", timeout=TIMEOUT)
    return sorted(db.query("SELECT k, total FROM v").fetchall())


ANSWER = [("k0", 1683), ("k1", 1617), ("k2", 1650)]


def test_the_secret_is_in_no_plan_no_progress_and_no_log(tmp_path):
    code = f"""
import millstream as ms
from millstream.testing import engine_of
db = ms.open({str(tmp_path / "db")!r}, spark_options={{
    "spark.eventLog.enabled": "true", "spark.eventLog.dir": {str(tmp_path / "events")!r},
}})
import logging; logging.basicConfig(level=logging.DEBUG, filename={str(tmp_path / "python.log")!r})
db.execute("CREATE SOURCE s (k VARCHAR, n BIGINT)")
db.execute({VIEW!r})
db.insert("s", [("a", 1)]); db.wait_for("v", timeout={TIMEOUT})
views = engine_of(db).views
session = views.spark_views.spark.session
jvm = session.sparkContext._jvm
seen = [str(jvm.System.getProperties()), str(session.sparkContext.getConf().getAll())]
for query in session.streams.active:
    seen += [str(query.lastProgress), str(query.recentProgress)]
for running in views:
    plan = running.runner._query.streaming_result()._jdf.queryExecution()
    seen += [plan.toString(), plan.stringWithStats(), str(plan.logical().toJSON())]
assert any("millstream" in text for text in seen)
secret = views.spark_views.server().secret
print(secret.hex())
for text in seen:
    assert secret.hex() not in text
db.close()
"""
    (tmp_path / "events").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    secret = done.stdout.split()[-1]
    assert len(secret) == 64
    written = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert any("events" in p.parts for p in written)
    for each in written:
        data = each.read_bytes()
        assert secret.encode() not in data, each
        assert bytes.fromhex(secret) not in data, each


def test_a_view_whose_connections_are_encrypted(db, monkeypatch):
    monkeypatch.setattr(wire, "is_loopback", lambda host: False)
    assert fill(db) == ANSWER
    sub = db.subscribe("SELECT * FROM v WHERE k = 'k1'")
    sub.recv(timeout=TIMEOUT)
    for n in range(1, 50):  # one by one
        db.source("s").push(("k1", n))
        changes = list(sub.recv(timeout=TIMEOUT))
        assert changes[-1]["total"] == 1617 + sum(range(n + 1))


def test_the_secret_reaches_executors_in_processes_of_their_own(tmp_path):
    code = f"""
import millstream as ms
from millstream.spark.bridge import server as wire
wire.is_loopback = lambda host: False
db = ms.open(
    {str(tmp_path / "db")!r}, master="local-cluster[1,4,1024]", spark_options={QUICK!r}
)
db.execute("CREATE SOURCE s (k VARCHAR, n BIGINT)")
db.execute({VIEW!r})
for n in range(100):
    db.source("s").push((f"k{{n % 3}}", n))
db.flush()
db.wait_for("v", timeout={TIMEOUT * 2})
print(sorted(db.query("SELECT k, total FROM v").fetchall()))
db.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(ANSWER)
