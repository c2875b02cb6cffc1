"""The change bus: every committed mutation, in LSN order."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

import millstream as ms
from millstream.errors import Error, InvalidOptionError, ObjectNotFoundError, TenantError
from millstream.log import Retention
from millstream.model import ChangeBatch, Schema
from millstream.subscriptions import EventMaker, Events, NotificationMaker
from millstream.testing import TIMEOUT, engine_of, inbox_of, writer_of

SCHEMA = Schema.of(key=("id",), id="BIGINT NOT NULL", a="BIGINT", b="VARCHAR")


def events(bus, count):
    return [bus.recv(TIMEOUT) for _ in range(count)]


def made(rows, weights=None, **options):
    batch = ChangeBatch.from_rows(SCHEMA, rows, weights=weights)
    batch = batch.placed("t", 10, committed_at=5_000_000, origin=None)
    return list(EventMaker(lambda _: None, **options)(batch))


class TestEvents:
    def test_have_key_lsn_and_time(self):
        (event,) = made([(1, 2, "x")])
        assert (event.lsn, event.collection, event.op, event.key) == (10, "t", "insert", {"id": 1})
        assert event.timestamp == datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)
        assert (event.before, event.after, event.changed, event.tenant) == (None, None, None, None)

    @pytest.mark.parametrize(
        ("include", "expected"),
        [
            ("keys", (None, None, None)),
            ("after", (None, {"id": 1, "a": 3, "b": "x"}, None)),
            ("both", ({"id": 1, "a": 2, "b": "x"}, {"id": 1, "a": 3, "b": "x"}, None)),
            ("changed", (None, None, {"a": 3})),
        ],
    )
    def test_of_an_update(self, include, expected):
        (event,) = made([(1, 2, "x"), (1, 3, "x")], [-1, 1], include=include)
        assert event.op == "update"
        assert (event.before, event.after, event.changed) == expected
        assert event.lsn == 11

    @pytest.mark.parametrize("include", ["keys", "after", "both", "changed"])
    def test_of_a_delete(self, include):
        (event,) = made([(1, 2, "x")], [-1], include=include)
        assert (event.op, event.key, event.after) == ("delete", {"id": 1}, None)
        expected = {"id": 1, "a": 2, "b": "x"} if include in {"both", "changed"} else None
        assert event.before == expected

    def test_fields(self):
        (event,) = made([(1, 2, "x"), (1, 3, "y")], [-1, 1], include="both", fields=["b"])
        assert (event.before, event.after) == ({"b": "x"}, {"b": "y"})
        assert event.key == {"id": 1}

    def test_without_a_key(self):
        schema = Schema.of(n="BIGINT")
        batch = ChangeBatch.from_rows(schema, [(1,)])
        (event,) = EventMaker(lambda _: None)(batch)
        assert event.key is None

    def test_invalid_options(self):
        with pytest.raises(InvalidOptionError):
            EventMaker(lambda _: None, include="all")
        with pytest.raises(InvalidOptionError):
            EventMaker(lambda _: None, fields="abc")

    @given(
        st.lists(
            st.tuples(st.integers(0, 2), st.integers(0, 2), st.just("x")), min_size=1, max_size=6
        ),
        st.data(),
    )
    def test_both_is_enough_to_keep_a_copy(self, rows, data):
        weights = data.draw(
            st.lists(st.sampled_from([1, -1]), min_size=len(rows), max_size=len(rows))
        )
        total, copy = {}, {}
        for row, weight in zip(rows, weights, strict=True):
            total[row] = total.get(row, 0) + weight
        for event in made(rows, weights, include="both"):
            for image, weight in ((event.before, -1), (event.after, 1)):
                if image is not None:
                    row = tuple(image.values())
                    copy[row] = copy.get(row, 0) + weight
        assert {k: v for k, v in copy.items() if v} == {k: v for k, v in total.items() if v}


class TestBus:
    def test_of_one_collection(self, db, table, source):
        bus = db.changes("t", include="changed")
        source.push((1, None))
        db.insert(table, [(1, "a")])
        db.execute("UPDATE t SET v = 'b'; DELETE FROM t")
        got = events(bus, 3)
        assert [(e.collection, e.op, e.key) for e in got] == [
            ("t", "insert", {"id": 1}),
            ("t", "update", {"id": 1}),
            ("t", "delete", {"id": 1}),
        ]
        assert [e.changed for e in got] == [None, {"v": "b"}, None]
        assert [e.lsn for e in got] == sorted({e.lsn for e in got})

    def test_of_all_collections_with_those_created_later(self, db, source):
        bus = db.changes(include="after")
        source.push((1, "a"))
        db.execute("CREATE TABLE later (id BIGINT PRIMARY KEY)")
        db.insert("later", [(7,)])
        source.push((2, "b"))
        got = events(bus, 3)
        assert [(e.collection, e.after) for e in got] == [
            ("s", {"n": 1, "t": "a"}),
            ("later", {"id": 7}),
            ("s", {"n": 2, "t": "b"}),
        ]

    def test_internal_topics_are_left_out(self, db, source):
        bus = db.changes()
        db.notify("channel", "x")
        db.subscribe("SELECT n FROM s", name="durable").ack()
        source.push((1, None))
        assert events(bus, 1)[0].collection == "s"

    def test_from_the_earliest_on(self, db, source):
        source.push((1, None))
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        db.insert("t", [(5,)])
        db.flush()
        bus = db.changes(start="earliest", include="after")
        source.push((2, None))
        assert [e.after for e in events(bus, 3)] == [
            {"n": 1, "t": None},
            {"id": 5},
            {"n": 2, "t": None},
        ]

    def test_a_slow_reader_loses_nothing_while_logs_are_created_and_dropped(self, db, source):
        bus = db.changes(include="after", buffer_rows=4)
        expected = []
        for n in range(30):
            source.push((n, None))
            expected.append(("s", n))
            if n % 5 == 0:
                db.execute(f"CREATE SOURCE extra{n} (n BIGINT)")
            db.insert(f"extra{n - n % 5}", [(n,)])
            expected.append((f"extra{n - n % 5}", n))
            db.flush()
        got = [(e.collection, e.after["n"]) for e in events(bus, 60)]
        assert got == expected
        db.execute("CREATE SOURCE last (n BIGINT)")
        db.insert("last", [(1,)])
        assert events(bus, 1)[0].collection == "last"

    def test_a_reader_from_an_old_lsn_of_a_new_log(self, tmp_path):
        """The other logs' retention is not its own."""
        with ms.open(tmp_path, segment_bytes=2000) as db:
            db.execute("CREATE SOURCE a (n BIGINT, t VARCHAR) WITH (retention_bytes = 1)")
            bus = db.changes(include="after", buffer_rows=2)
            for n in range(60):
                db.insert("a", [(n, "x" * 100)])
                db.flush()
            engine_of(db).log.retain()
            db.execute("CREATE SOURCE b (n BIGINT)")
            db.insert("b", [(99,)])
            got = []
            while not got or got[-1].collection != "b":
                got.append(bus.recv(TIMEOUT))
            (gap,) = [each for each in got if each.op == "gap"]
            assert gap.gap.count + len(got) - 2 == 60 == got[-2].after["n"] + 1

    def test_a_token_goes_on(self, db, source):
        bus = db.changes(include="after")
        source.push((1, None))
        assert events(bus, 1)[0].after["n"] == 1
        token = bus.token
        bus.cancel()
        source.push((2, None))
        again = db.changes(start=token, include="after")
        assert events(again, 1)[0].after["n"] == 2

    def test_ends(self, db, source):
        bus = db.changes()
        assert bus.try_recv() is None
        with pytest.raises(ms.errors.ReceiveTimeoutError, match="within 0 seconds"):
            bus.recv(timeout=0)
        bus.cancel()
        with pytest.raises(ms.errors.ClosedError):
            bus.recv(TIMEOUT)
        assert list(bus) == []

    def test_iterating(self, db, source):
        with db.changes(include="after") as bus:
            source.push_batch([(n, None) for n in range(3)])
            got = []
            for event in bus:
                got.append(event.after["n"])
                if len(got) == 3:
                    break
        assert got == [0, 1, 2]
        assert bus.metrics.delivered == 3

    def test_an_unknown_collection(self, db):
        with pytest.raises(ObjectNotFoundError):
            db.changes("nothing")
        with pytest.raises((Error, TypeError)):
            db.changes(colour="red")


class TestTenants:
    @pytest.fixture(autouse=True)
    def tenants(self, db):
        db.execute("CREATE SOURCE mine (who VARCHAR NOT NULL, n BIGINT) WITH (tenant = 'who')")
        db.execute("CREATE SOURCE nobodys (n BIGINT)")

    @pytest.mark.parametrize("collection", ["mine", None])
    def test_see_their_own_only(self, db, collection):
        bus = db.changes(collection, tenant="a", include="after")
        db.insert("nobodys", [(0,)])
        db.insert("mine", [("a", 1), ("b", 2), ("a", 3)])
        got = events(bus, 2)
        assert [(e.tenant, e.after["n"]) for e in got] == [("a", 1), ("a", 3)]
        assert bus.try_recv() is None

    def test_a_reader_without_a_tenant_sees_the_tenant_of_each_row(self, db):
        bus = db.changes()
        db.insert("mine", [("a", 1), ("b", 2)])
        db.insert("nobodys", [(0,)])
        assert [e.tenant for e in events(bus, 3)] == ["a", "b", None]

    def test_collections_without_a_tenant_column_are_left_out(self, db):
        with pytest.raises(TenantError):
            db.changes("nobodys", tenant="a")


def test_stream(db, table):
    async def main():
        async with asyncio.timeout(TIMEOUT):
            async with db.changes_stream("t", include="after") as bus:
                db.insert(table, [(1, "a"), (2, "b")])
                got = []
                async for event in bus:
                    got.append(event.after["v"])
                    if len(got) == 2:
                        return got
        return None

    assert asyncio.run(main()) == ["a", "b"]


class TestTimes:
    """Each event has the time of its own commit, on every path."""

    UPDATES = 20

    @pytest.fixture
    def docs(self, db):
        db.execute(
            "CREATE TABLE docs (who VARCHAR NOT NULL, id BIGINT NOT NULL, n BIGINT, "
            "PRIMARY KEY (who, id)) WITH (tenant = 'who')"
        )
        return db

    def commit(self, db, live):
        """Commits one by one, and the time of each as a reader that keeps up has it."""
        db.execute("INSERT INTO docs VALUES ('a', 1, 0), ('b', 1, 0)")
        times = {e.lsn: e.timestamp for e in events(live, 2)}
        for n in range(self.UPDATES):
            db.execute(f"UPDATE docs SET n = {n + 1} WHERE id = 1")
            times |= {e.lsn: e.timestamp for e in events(live, 2)}
        assert len(set(times.values())) == self.UPDATES + 1
        return times

    def test_of_a_reader_that_lags(self, docs):
        live, lagging, all_of_them = docs.changes("docs"), docs.changes("docs"), docs.changes()
        tenant = docs.changes("docs", "a")
        times = self.commit(docs, live)
        for bus in (lagging, all_of_them):
            assert {e.lsn: e.timestamp for e in events(bus, len(times))} == times
        mine = {e.lsn: e.timestamp for e in events(tenant, self.UPDATES + 1)}
        assert mine.items() <= times.items()

    def test_from_the_log(self, docs):
        times = self.commit(docs, docs.changes("docs"))
        for start in ("earliest", 1, min(times)):
            again = docs.changes("docs", start=start)
            assert {e.lsn: e.timestamp for e in events(again, len(times))} == times
        shown = docs.query("SHOW CHANGES FOR docs").to_pylist()
        assert {row["lsn"]: row["timestamp"] for row in shown} == times
        mine = docs.query("SHOW CHANGES FOR docs", tenant="b").to_pylist()
        assert {row["lsn"]: row["timestamp"] for row in mine}.items() <= times.items()
        assert len(mine) == self.UPDATES + 1

    def test_of_changes_that_were_netted(self, docs):
        netted = docs.changes("docs", backpressure="conflate")
        times = self.commit(docs, docs.changes("docs"))
        assert all(e.timestamp == times[e.lsn] for e in events(netted, 2))

    def test_of_a_source_whose_commits_share_frames(self, db, source):
        live = db.changes("s", include="after")
        times = {}
        with writer_of(engine_of(db).log)._encode:  # nothing is written yet
            for n in range(10):
                source.push((n, None))
                event = live.recv(TIMEOUT)
                times[event.lsn] = event.timestamp
        assert len(set(times.values())) == 10
        again = db.changes("s", start="earliest")
        assert {e.lsn: e.timestamp for e in events(again, 10)} == times

    def test_of_notifications(self, db):
        now, later = db.listen("a"), db.listen("a")
        times = []
        for n in range(5):
            db.notify("a", str(n))
            times.append(now.recv(TIMEOUT).timestamp)
        assert [later.recv(TIMEOUT).timestamp for _ in range(5)] == times
        assert len(set(times)) == 5


class TestGaps:
    """What a reader of the bus was not given is an event of its own."""

    @pytest.fixture
    def small(self, tmp_path):
        with ms.open(tmp_path / "db", segment_bytes=2000) as db:
            db.execute("CREATE SOURCE s (n BIGINT, t VARCHAR) WITH (retention_bytes = 1)")
            db.execute("CREATE SOURCE kept (n BIGINT)")
            yield db

    def fill(self, db, count=60):
        for n in range(count):
            db.insert("s", [(n, "x" * 100)])
            if n % 10 == 0:
                db.insert("kept", [(n,)])
            db.flush()
        engine_of(db).log.retain()
        return len(db.query("SELECT n FROM s"))

    @staticmethod
    def drain(bus):
        got = []
        while (event := bus.try_recv()) or bus.metrics.lag_rows:
            got += [event] if event is not None else []
        return got

    @pytest.mark.parametrize("start", ["token", "lsn", "earliest", "time", "spilled"])
    def test_of_rows_that_retention_removed(self, small, start):
        begin = datetime.now(UTC)
        bus = small.changes("s", start="now", buffer_rows=3, include="after")
        first = small.lsn + 1
        kept = self.fill(small)
        if start != "spilled":
            starts = {"token": bus.token, "lsn": first, "earliest": start, "time": begin}
            bus = small.changes("s", start=starts[start], include="after")
        gaps, rows = [], []
        for event in self.drain(bus):
            (gaps if event.op == "gap" else rows).append(event)
        (gap,) = gaps
        assert (gap.collection, gap.lsn) == ("s", gap.gap.last_lsn)
        assert [e.after["n"] for e in rows][-kept:] == list(range(60 - kept, 60))
        assert gap.gap.count == 60 - len(rows) == bus.metrics.dropped > 0
        assert all(e.lsn < gap.gap.first_lsn or e.lsn > gap.gap.last_lsn for e in rows)

    def test_of_a_bus_over_all_collections(self, small):
        """Each in its place: what is kept of other logs comes before the end of the gap."""
        bus = small.changes(start="earliest", include="after")
        kept = self.fill(small)
        for each in (bus, small.changes(start=1), small.changes(start=2)):
            got = self.drain(each)
            lsns = [event.lsn for event in got]
            assert lsns == sorted(set(lsns))
            (gap,) = [event for event in got if event.op == "gap"]
            assert gap.collection == ""
            assert sum(e.collection == "kept" for e in got) == 6
            assert gap.gap.count == 60 - kept == each.metrics.dropped
            assert got.index(gap) > 0
        part = small.changes(start=2)
        head = [part.recv(TIMEOUT) for _ in range(got.index(gap) + 1)]
        assert head == got[: len(head)]
        again = small.changes(start=part.token)
        assert self.drain(again) == got[len(head) :]

    @pytest.mark.parametrize("meanwhile", ["a source is made", "retention takes more"])
    def test_of_a_bus_that_is_reopened_within_a_gap(self, small, meanwhile):
        """What it has not reported yet is reported once."""
        kept = self.fill(small)
        bus = small.changes(start="earliest")
        got = [bus.recv(TIMEOUT)]
        assert got[0].collection == "kept"
        if meanwhile == "a source is made":
            small.execute("CREATE SOURCE later (n BIGINT)")
            total, kept_of_other = 60, 6
        else:
            kept = self.fill(small)
            total, kept_of_other = 120, 12
        got += self.drain(bus)
        assert [event.lsn for event in got] == sorted({event.lsn for event in got})
        lost = sum(event.gap.count for event in got if event.op == "gap")
        assert lost == bus.metrics.dropped == total - sum(e.collection == "s" for e in got)
        assert sum(e.collection == "s" for e in got) == kept
        assert sum(e.collection == "kept" for e in got) == kept_of_other

    def test_when_nothing_is_left(self, small):
        """It is reported at once, and not with the next event, which may never come."""
        with small.changes("s", start="now", buffer_rows=1) as bus:
            self.fill(small)
            writer_of(engine_of(small).log).roll()
            engine_of(small).log.set_retention("s", Retention(max_bytes=0))
            engine_of(small).log.retain()
            assert len(small.query("SELECT n FROM s")) == 0
            got = self.drain(bus)
            count = sum(e.gap.count for e in got if e.op == "gap")
            assert count + sum(e.op == "insert" for e in got) == 60
            assert got[-1].op == "gap"
            late = small.changes("s", start="earliest")
            assert [e.gap.count for e in (late.recv(TIMEOUT),)] == [60]
            small.insert("s", [(60, "")])
            assert (bus.recv(TIMEOUT).op, late.recv(TIMEOUT).op) == ("insert", "insert")

    @pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest", "sample(7)"])
    def test_of_what_a_policy_dropped(self, db, source, policy):
        bus = db.changes("s", backpressure=policy, buffer_rows=10)
        for n in range(100):
            source.push((n, None))
            db.flush()
        got = self.drain(bus)
        gaps = [event.gap.count for event in got if event.op == "gap"]
        assert gaps
        assert bus.metrics.dropped == 100 - (len(got) - len(gaps))
        later = 2 if policy == "sample(7)" else 0  # those after the last one that it kept
        assert sum(gaps) + later == bus.metrics.dropped

    def test_in_the_async_style(self, small):
        async def main():
            async with small.changes_stream("s", start=start) as bus:
                event = await bus.recv(TIMEOUT)
                return event.op, event.gap.count

        start = small.lsn + 1
        kept = self.fill(small)
        assert asyncio.run(main()) == ("gap", 60 - kept)

    def test_in_show_changes(self, small):
        begin, first = datetime.now(UTC), small.lsn + 1
        kept = self.fill(small)
        low = engine_of(small).log.topic("s").low_lsn
        for since in ("", f"SINCE {first}", f"SINCE '{begin:%Y-%m-%d %H:%M:%S.%f}'"):
            rows = small.query(f"SHOW CHANGES FOR s {since}").to_pylist()
            assert (rows[0]["operation"], rows[0]["lsn"]) == ("GAP", low - 1)
            assert json.loads(rows[0]["after"])["count"] == 60 - kept
            assert [row["operation"] for row in rows[1:]] == ["INSERT"] * kept
        everything = small.query("SHOW CHANGES").to_pylist()
        assert [row["lsn"] for row in everything] == sorted(row["lsn"] for row in everything)
        assert [row["operation"] for row in everything].count("GAP") == 1
        assert len(everything) == 1 + kept + 6
        assert len(small.query("SHOW CHANGES FOR s LIMIT 1")) == 1
        later = small.query(f"SHOW CHANGES FOR s SINCE {low}").to_pylist()
        assert [row["operation"] for row in later] == ["INSERT"] * kept

    def test_of_logs_that_lost_nothing_there_is_none(self, small):
        token = small.changes("kept").token
        self.fill(small)
        for start in (token, 1, "earliest"):
            events = self.drain(small.changes("kept", start=start))
            assert [event.op for event in events] == ["insert"] * 6

    def test_of_notifications(self, small):
        log = engine_of(small).log
        lagging = small.listen("a").subscription
        inbox_of(lagging).backlog.limit = 2
        for n in range(30):
            small.notify("a", str(n) + "x" * 100)
            small.flush()
        writer_of(log).roll()
        log.set_retention("__notifications", Retention(max_bytes=0))
        log.retain()
        small.notify("a", "last")
        notes = Events(lagging, NotificationMaker())
        got = [notes.recv(TIMEOUT)]
        while got[-1].payload != "last":
            got.append(notes.recv(TIMEOUT))
        assert sum(note.gap.count for note in got if note.gap) + len(got) == 31
