"""The change bus: every committed mutation, once, in LSN order."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime

import pytest

from millstream import errors


@pytest.fixture
def both(db):
    db.execute(
        "CREATE SOURCE s (n BIGINT, x VARCHAR); "
        "CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT, x VARCHAR)"
    )
    return db


def take(bus, count):
    events = [bus.recv(60) for _ in range(count)]
    assert None not in events
    return events


def test_what_an_event_contains(both):
    before = datetime.now(UTC)
    with both.changes() as bus:
        both.execute("INSERT INTO t VALUES (1, 10, 'a')")
        both.execute("UPDATE t SET n = 11 WHERE id = 1")
        both.insert("s", [(5, "b")])
        both.execute("DELETE FROM t WHERE id = 1")
        events = take(bus, 4)
        assert bus.try_recv() is None
    assert [(e.collection, e.op, e.key) for e in events] == [
        ("t", "insert", {"id": 1}),
        ("t", "update", {"id": 1}),
        ("s", "insert", None),
        ("t", "delete", {"id": 1}),
    ]
    lsns = [e.lsn for e in events]
    assert lsns == sorted(set(lsns))
    assert all(before <= e.timestamp for e in events)
    assert {(e.before, e.after, e.changed, e.tenant) for e in events} == {(None,) * 4}


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        ("keys", [(None, None, None)] * 3),
        (
            "after",
            [
                (None, {"id": 1, "n": 10, "x": "a"}, None),
                (None, {"id": 1, "n": 11, "x": "a"}, None),
                (None, None, None),
            ],
        ),
        (
            "both",
            [
                (None, {"id": 1, "n": 10, "x": "a"}, None),
                ({"id": 1, "n": 10, "x": "a"}, {"id": 1, "n": 11, "x": "a"}, None),
                ({"id": 1, "n": 11, "x": "a"}, None, None),
            ],
        ),
        (
            "changed",
            [
                (None, {"id": 1, "n": 10, "x": "a"}, None),
                (None, None, {"n": 11}),
                ({"id": 1, "n": 11, "x": "a"}, None, None),
            ],
        ),
    ],
)
def test_include(both, include, expected):
    with both.changes("t", include=include) as bus:
        both.execute("INSERT INTO t VALUES (1, 10, 'a'); UPDATE t SET n = 11; DELETE FROM t")
        assert [(e.before, e.after, e.changed) for e in take(bus, 3)] == expected


def test_fields(both):
    with both.changes(include="both", fields=["n"]) as bus:
        both.execute("INSERT INTO t VALUES (1, 10, 'a'); UPDATE t SET n = 11")
        both.insert("s", [(5, "b")])
        events = take(bus, 3)
    assert [(e.before, e.after) for e in events] == [
        (None, {"n": 10}),
        ({"n": 10}, {"n": 11}),
        (None, {"n": 5}),
    ]
    assert events[0].key == {"id": 1}
    for options in ({"fields": "n"}, {"include": "everything"}):
        with pytest.raises(errors.InvalidOptionError):
            both.changes(**options)
    with pytest.raises(errors.ObjectNotFoundError):
        both.changes("nothing")


@pytest.mark.parametrize("start", ["now", "earliest"])
@pytest.mark.parametrize("buffer_rows", [65536, 10])
def test_lsn_order_over_all_collections_also_later_ones(both, start, buffer_rows):
    """Four producers, tables among them, collections that come later: one order, each once."""
    counted = {"s": 0, "t": 0, "late": 0, "later": 0}
    bus = both.changes(start=start, buffer_rows=buffer_rows, include="after")
    barrier = threading.Barrier(4)

    def push(name, count):
        barrier.wait(60)
        if name not in {"s", "t"}:
            both.execute(f"CREATE SOURCE {name} (n BIGINT)")
        for n in range(count):
            if name == "t":
                both.execute(f"INSERT INTO t VALUES ({n}, 0, '')")
            elif name == "s":
                both.insert("s", [(n, "")])
            else:
                both.source(name).push((n,))

    sizes = {"s": 500, "t": 300, "late": 500, "later": 500}
    threads = [threading.Thread(target=push, args=item) for item in sizes.items()]
    for thread in threads:
        thread.start()
    last = 0
    for _ in range(sum(sizes.values())):
        event = bus.recv(60)
        assert event.lsn > last
        last = event.lsn
        value = event.after["id" if event.collection == "t" else "n"]
        assert value == counted[event.collection]
        counted[event.collection] += 1
    for thread in threads:
        thread.join(60)
    assert counted == sizes
    assert bus.try_recv() is None
    replayed = both.changes(start="earliest")
    lsns = [replayed.recv(60).lsn for _ in range(sum(sizes.values()))]
    assert lsns == sorted(set(lsns))
    shown = both.query("SHOW CHANGES").to_pylist()
    assert [c["lsn"] for c in shown] == lsns


def test_resume_with_a_token_and_from_an_lsn(both):
    with both.changes() as bus:
        both.insert("s", [(1, "a")])
        both.execute("INSERT INTO t VALUES (1, 1, 'a')")
        first, second = take(bus, 2)
        token = bus.token
        both.insert("s", [(2, "b")])
    with both.changes(start=token) as resumed:
        assert take(resumed, 1)[0].lsn > second.lsn
    with both.changes(start=second.lsn) as again:
        assert [e.lsn for e in take(again, 1)] == [second.lsn]
    with both.changes("s", start=first.lsn) as one:
        assert [e.lsn for e in take(one, 1)] == [first.lsn]


def test_an_update_is_one_event_wherever_one_begins(both):
    """Its LSN is that of the new row; a reader that begins there gets an update, not an insert."""
    both.execute("INSERT INTO t VALUES (1, 1, 'a')")
    bus = both.changes()
    both.execute("UPDATE t SET n = 2")
    (update,) = take(bus, 1)
    (shown,) = both.query(f"SHOW CHANGES SINCE {update.lsn}").to_pylist()
    assert shown["operation"] == "UPDATE"


def test_what_is_dropped_goes_and_the_bus_goes_on(both):
    bus, of_s = both.changes(), both.changes("s")
    both.execute("DROP SOURCE s")
    both.execute("INSERT INTO t VALUES (1, 1, 'a')")
    assert take(bus, 1)[0].collection == "t"
    with pytest.raises(errors.SubscriptionEndedError):
        of_s.recv(60)
    both.execute("CREATE SOURCE s (other VARCHAR)")
    both.insert("s", [("x",)])
    assert take(bus, 1)[0].collection == "s"


def test_the_database_keeps_its_own_to_itself(both):
    """Positions, notifications and the catalog are logs, too; the bus does not include them."""
    bus = both.changes()
    both.notify("c", "x")
    mine = both.subscribe("SELECT n FROM s", name="mine")
    both.insert("s", [(1, "a")])
    mine.recv(60)
    mine.ack()
    both.execute("CREATE SOURCE another (n BIGINT)")
    both.insert("another", [(1,)])
    assert [e.collection for e in take(bus, 2)] == ["s", "another"]
    assert {c["collection"] for c in both.query("SHOW CHANGES").to_pylist()} == {"s", "another"}


def test_policies_of_the_bus(both):
    bus = both.changes(backpressure="drop_oldest", buffer_rows=10)
    for n in range(100):
        both.insert("s", [(n, "")])
    both.flush()
    got = []
    while (event := bus.try_recv()) is not None:
        got.append(event)
    gap = got.pop(0)
    assert (gap.op, gap.collection, gap.gap.count) == ("gap", "", 100 - len(got))
    metrics = bus.metrics
    assert metrics.delivered + metrics.dropped == 100
    assert len(got) == metrics.delivered <= 10
    with pytest.raises(errors.InvalidOptionError):
        both.changes(backpressure="conflate")


def test_async(both):
    async def main():
        got = []
        async with both.changes_stream("t", include="after") as bus:
            both.execute("INSERT INTO t VALUES (1, 1, 'a'), (2, 2, 'b')")
            async for event in bus:
                got.append(event.after["id"])
                if len(got) == 2:
                    break
            assert bus.try_recv() is None
            with pytest.raises(TimeoutError):
                await bus.recv(0.01)
        return got

    assert asyncio.run(main()) == [1, 2]


def test_counters(both):
    bus = both.changes()
    subscription = both.subscribe("SELECT n FROM s WHERE n > 1")
    before = both.metrics()
    both.insert("s", [(1, "a"), (2, "b"), (3, "c")])
    both.execute("INSERT INTO t VALUES (1, 1, 'a'); UPDATE t SET n = 2")
    after = both.metrics()
    assert after["published"] - before["published"] == 6
    assert after["sources"]["s"]["pushed"] - before["sources"]["s"]["pushed"] == 3
    assert after["lsn"] - before["lsn"] >= 6
    assert after["subscribers"] == 2
    by_query = {each["query"]: each for each in after["subscriptions"]}
    assert by_query["SELECT n FROM s WHERE n > 1"]["lag_rows"] == 2
    assert by_query["changes of everything"]["lag_rows"] == 6
    take(bus, 5)
    assert len(subscription.recv(60)) == 2
    by_query = {each["query"]: each for each in both.metrics()["subscriptions"]}
    assert by_query["SELECT n FROM s WHERE n > 1"]["delivered"] == 2
    assert by_query["changes of everything"]["delivered"] == 6
    both.flush()
    assert both.metrics()["durable_lsn"] >= after["lsn"]
    bus.cancel()
    subscription.cancel()
    assert both.metrics()["subscribers"] == 0
