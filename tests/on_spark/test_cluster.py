"""Views on a Spark cluster: driver and executor killed, a worker lost, the application ended.

The driver is a process of its own, since a process has one Spark. It is killed while it pushes; the
next one opens the directory, and checks the views against the log of their source after each loss.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from py4j.protocol import Py4JError

import millstream as ms
from millstream.testing import TIMEOUT, Mirror, engine_of, wait_until

from .cluster import QUICK, Cluster, busy_executors, executors_of, kill
from .observing import batches_of, rows_of, runner_of, settle

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]

OPTIONS = {"spark.executor.memory": "512m", "spark.driver.memory": "512m", **QUICK}
VIEWS = ("sums", "pairs", "halves")
SETUP = """
    CREATE SOURCE s (k BIGINT, n BIGINT);
    CREATE MATERIALIZED VIEW sums AS
        SELECT k, SUM(n) AS total, COUNT(*) AS c, MAX(n) AS most FROM s GROUP BY k;
    CREATE MATERIALIZED VIEW pairs AS
        SELECT a.k, COUNT(*) AS c FROM s AS a JOIN s AS b ON a.k = b.k AND a.n <= b.n GROUP BY a.k;
    CREATE MATERIALIZED VIEW halves WITH (partitions = 2) AS
        SELECT k, SUM(n) AS total FROM s GROUP BY k;
"""


def push_until_killed(path, url):
    """The first driver: pushes, and says how many rows are on the disk."""
    db = ms.open(path, master=url, spark_options=OPTIONS)
    db.execute(SETUP)
    number = 0
    while True:
        db.source("s").push_batch([(each % 10, each) for each in range(number, number + 20)])
        number += 20
        settle(db, *VIEWS)
        os.write(1, f"{number}\n".encode())


def lose_one_after_the_other(path, url, workers):
    """The second driver: checks its views after each loss; says how often they were restarted."""
    with ms.open(path, master=url, spark_options=OPTIONS) as db:
        mirrors = {name: Mirror(key_columns=1) for name in VIEWS}
        for name, mirror in mirrors.items():
            mirror.follow(db.subscribe(f"SELECT * FROM {name}"))
        check(db, mirrors)
        acknowledged = len(source_rows(db))

        def lose(what):
            what(engine_of(db).views.spark_views.spark.session)
            check(db, mirrors)

        lose(lambda session: kill(busy_executor(session, workers)[1]))
        lose(lambda session: kill_worker(session, workers))
        lose(end_application)
        # Executors may have worked on these rows before they heard of the end.
        runners = [runner_of(db, name) for name in VIEWS]
        wait_until(lambda: all(each.restarts for each in runners), "all to restart")
        check(db, mirrors)
        restarts = [runner_of(db, name).restarts for name in VIEWS]
        sys.stdout.write(json.dumps({"rows": acknowledged, "restarts": restarts}))


def end_application(session):
    """As the master does it. A view that sees it may end that Java before the call is answered."""
    with suppress(Py4JError, OSError):
        session.sparkContext._jsc.sc().stop()


def busy_executor(session, workers):
    """A worker and one of its executors that a view runs on."""
    busy = busy_executors(session)
    return next(
        (worker, pid)
        for worker in workers
        for name, pid in executors_of(worker).items()
        if name in busy
    )


def kill_worker(session, workers):
    """Kill the worker that a view runs on, and its executors."""
    worker, _ = busy_executor(session, workers)
    kill(worker, *executors_of(worker).values())


def source_rows(db):
    return [row for rows, _ in batches_of(db, "s") for row in rows]


def check(db, mirrors):
    """Push some rows; the views, and what subscribers have added up, are what the log says."""
    number = len(source_rows(db))
    db.source("s").push_batch([(each % 10, each) for each in range(number, number + 20)])
    settle(db, *VIEWS)
    groups = {}
    for k, n in source_rows(db):
        groups.setdefault(k, []).append(n)
    expected = {
        "sums": Counter((k, sum(ns), len(ns), max(ns)) for k, ns in groups.items()),
        "pairs": Counter((k, len(ns) * (len(ns) + 1) // 2) for k, ns in groups.items()),
        "halves": Counter((k, sum(ns)) for k, ns in groups.items()),
    }
    for name in VIEWS:
        assert rows_of(db, name) == expected[name], name
        assert mirrors[name].catch_up(db).rows == expected[name], name


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    started = Cluster(tmp_path_factory.mktemp("cluster"))
    yield started
    started.close()


def driver(call):
    """A process that runs one of the functions above."""
    return subprocess.Popen(
        [sys.executable, "-c", f"from tests.on_spark import test_cluster as t; t.{call}"],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_exact_whatever_is_killed(cluster, tmp_path):
    path = str(tmp_path / "db")
    first = driver(f"push_until_killed({path!r}, {cluster.url!r})")
    try:
        while (line := first.stdout.readline()) and int(line) < 400:
            pass
        acknowledged = int(line or 0)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        _, errors = first.communicate(timeout=TIMEOUT)
    assert acknowledged, errors
    call = f"lose_one_after_the_other({path!r}, {cluster.url!r}, {cluster.workers})"
    second = driver(call)
    try:
        said, errors = second.communicate(timeout=500)
    finally:
        if second.poll() is None:
            os.killpg(second.pid, signal.SIGKILL)
            second.communicate(timeout=TIMEOUT)
    assert second.returncode == 0, errors
    found = json.loads(said)
    assert found["rows"] >= acknowledged + 20
    assert min(found["restarts"]) >= 1  # the last loss hits all
