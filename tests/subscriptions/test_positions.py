"""Durable subscriptions: acknowledged positions survive restarts."""

from __future__ import annotations

import pytest

import millstream as ms
from millstream.errors import (
    ForeignTokenError,
    InvalidOptionError,
    InvalidTokenError,
    SubscriptionExistsError,
    SubscriptionNotFoundError,
)
from millstream.testing import TIMEOUT, engine_of

from .test_subscription import rows_of


class TestDurable:
    def test_resumes_after_what_was_acknowledged(self, tmp_path):
        with ms.open(tmp_path) as db:
            db.execute("CREATE SOURCE s (n BIGINT)")
            subscription = db.subscribe("SELECT * FROM s", name="reader", max_rows=2)
            db.insert("s", [(n,) for n in range(6)])
            subscription.ack(subscription.recv(TIMEOUT))
            subscription.recv(TIMEOUT)
        with ms.open(tmp_path) as db:
            subscription = db.subscribe("SELECT * FROM s", name="reader")
            assert rows_of(subscription, 4) == [(n,) for n in range(2, 6)]
            last = subscription.position
            subscription.ack()
            subscription.cancel()
            again = db.subscribe("SELECT * FROM s", name="reader")
            assert again.try_recv() is None
            assert again.metrics.acknowledged >= last

    def test_without_an_acknowledgement_it_starts_where_it_started(self, db, source):
        db.subscribe("SELECT n FROM s", name="r").cancel()
        source.push((1, None))
        for _ in range(2):
            with db.subscribe("SELECT n FROM s", name="r") as subscription:
                assert rows_of(subscription, 1) == [(1,)]

    def test_a_part_of_a_snapshot_cannot_be_resumed(self, db, table):
        db.insert(table, [(n, "x") for n in range(10)])
        with db.subscribe("SELECT id FROM t", name="r", max_rows=4) as subscription:
            subscription.ack(subscription.recv(TIMEOUT))
            subscription.ack()
        with db.subscribe("SELECT id FROM t", name="r") as subscription:
            batch = subscription.recv(TIMEOUT)
            assert (batch.kind, len(batch)) == ("snapshot", 10)
            subscription.ack()
        db.insert(table, [(10, "y")])
        with db.subscribe("SELECT id FROM t", name="r") as subscription:
            assert subscription.recv(TIMEOUT).rows == [(10,)]

    def test_what_was_not_delivered_cannot_be_acknowledged(self, db, source):
        subscription = db.subscribe("SELECT n FROM s", name="r", max_rows=1)
        source.push_batch([(1, None), (2, None)])
        batch = subscription.recv(TIMEOUT)
        for beyond in (10**12, batch.lsn + 1, engine_of(db).log.token(10**9)):
            with pytest.raises(InvalidOptionError, match="was not handed over"):
                subscription.ack(beyond)
        assert subscription.metrics.acknowledged < batch.lsn
        subscription.ack(batch.lsn)
        subscription.cancel()
        assert rows_of(db.subscribe("SELECT n FROM s", name="r"), 1) == [(2,)]

    @pytest.mark.parametrize("what", ["batch", "token", "lsn", "all", "token of the subscription"])
    def test_what_can_be_acknowledged(self, db, source, what):
        subscription = db.subscribe("SELECT n FROM s", name="r", max_rows=1)
        source.push_batch([(1, None), (2, None)])
        batch = subscription.recv(TIMEOUT)
        acks = {"batch": batch, "token": batch.token, "lsn": batch.lsn, "all": None}
        subscription.ack(acks.get(what, subscription.token))
        assert subscription.metrics.acknowledged == batch.lsn
        subscription.ack(0)  # less than before changes nothing
        assert subscription.metrics.acknowledged == batch.lsn

    @pytest.mark.parametrize("what", ["token", "", b"x", -1, True, 1.0, [], object()])
    def test_anything_else_is_refused(self, db, source, what):
        subscription = db.subscribe("SELECT n FROM s", name="r")
        with pytest.raises((InvalidOptionError, InvalidTokenError)) as refused:
            subscription.ack(what)
        assert refused.value.hint

    def test_a_batch_of_another_subscription_cannot_be_acknowledged(self, db, source, table):
        db.insert(table, [(1, "x")])
        other = db.subscribe("SELECT * FROM t").recv(TIMEOUT)
        changed = db.subscribe("SELECT * FROM t", start="earliest").recv(TIMEOUT)
        subscription = db.subscribe("SELECT n FROM s", name="r")
        assert other.kind == "snapshot"
        with pytest.raises(InvalidOptionError):
            subscription.ack(changed)
        with ms.open() as elsewhere, pytest.raises(ForeignTokenError):
            subscription.ack(engine_of(elsewhere).log.token(0))

    def test_a_name_has_one_reader_and_one_query(self, db, source):
        subscription = db.subscribe("SELECT n FROM s", name="r")
        with pytest.raises(SubscriptionExistsError, match="open already"):
            db.subscribe("SELECT n FROM s", name="r")
        subscription.cancel()
        with pytest.raises(SubscriptionExistsError, match="another query"):
            db.subscribe("SELECT t FROM s", name="r")
        db.subscribe("SELECT n FROM s", name="r")

    def test_only_a_durable_subscription_acknowledges(self, db, source):
        with pytest.raises(InvalidOptionError):
            db.subscribe("SELECT n FROM s").ack()

    def test_is_listed_and_dropped(self, db, source):
        subscription = db.subscribe("SELECT n FROM s", name="r")
        with pytest.raises(SubscriptionExistsError):
            db.execute("DROP SUBSCRIPTION r")
        subscription.cancel()
        (row,) = db.query("SHOW SUBSCRIPTIONS").to_pylist()
        assert (row["name"], row["state"]) == ("r", "closed")
        db.execute("DROP SUBSCRIPTION r")
        assert db.query("SHOW SUBSCRIPTIONS").fetchall() == []
        with pytest.raises(SubscriptionNotFoundError):
            db.execute("DROP SUBSCRIPTION r")

    def test_retention_keeps_what_it_has_not_acknowledged(self, tmp_path):
        with ms.open(tmp_path, segment_bytes=2000) as db:
            db.execute("CREATE SOURCE s (n BIGINT, t VARCHAR) WITH (retention_bytes = 1)")
            db.subscribe("SELECT n FROM s", name="r").cancel()
            for n in range(60):
                db.insert("s", [(n, "x" * 100)])
                db.flush()
            engine_of(db).log.retain()
            subscription = db.subscribe("SELECT n FROM s", name="r")
            assert rows_of(subscription, 60) == [(n,) for n in range(60)]
            subscription.ack()
            db.flush()
            engine_of(db).log.retain()
            assert engine_of(db).log.topic("s").low_lsn > 1

    def test_is_dropped_with_its_source(self, db, source):
        db.subscribe("SELECT n FROM s", name="r").cancel()
        db.execute("DROP SOURCE s; CREATE SOURCE s (n BIGINT)")
        subscription = db.subscribe("SELECT n FROM s", name="r")
        db.insert("s", [(1,)])
        assert rows_of(subscription, 1) == [(1,)]
