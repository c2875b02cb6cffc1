"""DROP of a view that many clients of a server follow, while rows are pushed to what it reads."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest
from tests.server.conftest import serving
from tests.server.test_drop import Events, Postgres, last_of, websocket

import millstream as ms
from millstream.errors import SubscriptionEndedError
from millstream.testing import TIMEOUT, wait_until

EACH = 20


@pytest.mark.parametrize("shape", ["GROUP BY id % 10", "plain"])
def test_drop_of_a_view_under_many_subscribers(tmp_path, spark, shape):
    select = "id % 10 AS id, COUNT(*) AS v FROM s GROUP BY id % 10"
    if shape == "plain":
        select = "id, v FROM s WHERE id > 0"
    create = f"CREATE MATERIALIZED VIEW x AS SELECT {select}"
    options = {"spark": spark, "postgres": ("127.0.0.1", 0)}
    with serving(tmp_path / "db", **options) as served, ExitStack() as stack:
        db = served.db
        db.execute(f"CREATE SOURCE s (id BIGINT, v VARCHAR); {create}")
        db.wait_for("x", timeout=TIMEOUT)
        sql = "SELECT id, v FROM x"
        events = [Events(served.url, sql) for _ in range(EACH)]
        sockets = [websocket(stack, served.url, sql) for _ in range(EACH)]
        clients = [Postgres(served.server.postgres, "x") for _ in range(EACH)]
        remote = stack.enter_context(ms.connect(served.url))
        cuts, own = remote.subscribe(["x", "s"]), remote.subscribe(sql)
        service = served.server._service
        wait_until(lambda: service.gate.subscriptions == 3 * EACH + 2)
        stop, pushed = threading.Event(), []

        def push():
            while not stop.wait(0.005):
                pushed.append(db.insert("s", [(len(pushed) * 10 + n, "y") for n in range(10)]))

        producer = threading.Thread(target=push)
        producer.start()
        try:
            wait_until(lambda: own.try_recv() is not None and len(pushed) > 20)
            assert served.sql("DROP VIEW x").json()["status"] == "DROP VIEW"
            for each in events:
                names, codes = each.rest()
                assert (names[0], names[-2:]) == ("ready", ["error", "end"])
                assert codes == ["SUBSCRIPTION_ENDED"]
            for each in sockets:
                assert last_of(each) == (["error", "end"], "SUBSCRIPTION_ENDED")
            assert [each.rest() for each in clients] == ["55000"] * EACH
            for ended in (cuts, own):
                with pytest.raises(SubscriptionEndedError):
                    while True:
                        ended.recv(TIMEOUT)
            wait_until(lambda: not service.gate.subscriptions)
            wait_until(lambda: not (service.streaming or len(service.tails)))
            assert served.rows("SHOW VIEWS") == []
            count = len(pushed)
            wait_until(lambda: len(pushed) > count)  # the source goes on
        finally:
            stop.set()
            producer.join(TIMEOUT)
        db.execute(create)
        db.wait_for("x", timeout=TIMEOUT)
        total = "SUM(v)" if shape != "plain" else "COUNT(*)"
        expected = served.rows("SELECT COUNT(*) AS n FROM s WHERE id >= 0")[0][0]
        assert served.rows(f"SELECT {total} AS n FROM x") == [[expected - (shape == "plain")]]
