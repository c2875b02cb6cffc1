"""Several queries in one subscription, and the change bus, of a server."""

from __future__ import annotations

import asyncio
import inspect
import threading

import pytest

import millstream as ms
from millstream import errors
from millstream.client import Client
from millstream.testing import TIMEOUT

PAID = "SELECT n FROM paid WHERE n >= 0"


def balances(cuts, queries):
    """The rows of each query after some cuts; a snapshot replaces what there was."""
    held = {query: [] for query in queries}
    for cut in cuts:
        for query, batch in cut:
            if batch.kind == "snapshot":
                held[query] = []
            for change in batch:
                if change.op != "insert":
                    held[query].remove(change.before)
                if change.op != "delete":
                    held[query].append(change.row)
    return held


class TestCuts:
    def test_changes_of_several_queries_at_one_lsn(self, db, t, s):
        queries = [t, f"SELECT n FROM {s} WHERE n > 1"]
        db.insert(t, {"id": list(range(5_000))})
        with db.subscribe(queries) as subscription:
            assert isinstance(subscription, ms.CutSubscription)
            assert list(subscription.schemas) == queries
            assert subscription.schemas[t].key == ("id",)
            first = subscription.recv(TIMEOUT)
            assert (first.kind, len(first[t]), len(first[t][0])) == ("snapshot", 1, 5_000)
            assert first[t][0].topic == t
            db.execute(f"UPDATE {t} SET name = 'x' WHERE id = 1; INSERT INTO {s} (n) VALUES (1)")
            db.insert(s, [(2, None)])
            cuts = [first]
            while balances(cuts, queries)[queries[1]] != [(2,)]:
                cuts.append(subscription.recv(TIMEOUT))
            assert subscription.token == cuts[-1].token
            assert subscription.metrics.delivered == sum(map(len, cuts))
            assert [each.lsn for each in cuts] == sorted(each.lsn for each in cuts)
            assert (1, "x") in balances(cuts, queries)[t]
            assert cuts[-1].to_arrow()[queries[1]]["n"].to_pylist() == [2]
        db.execute(f"DELETE FROM {t} WHERE id = 2")
        again = db.subscribe(queries, start=cuts[-1].token)
        (batch,) = again.recv(TIMEOUT)[t]
        assert [(change.op, change.before[0]) for change in batch] == [("delete", 2)]

    def test_other_styles(self, db, t, s):
        got, came = [], threading.Event()

        def on_change(cut):
            got.extend(row for batch in cut[s] for row in batch.rows)
            if got:
                came.set()

        with db.subscribe_callback([t, s], on_change):
            db.insert(s, [(7, None)])
            assert came.wait(TIMEOUT)
            assert got == [(7, None)]

        async def stream():
            async with db.subscribe_stream([s, t]) as subscription:
                assert isinstance(subscription, ms.AsyncCutSubscription)
                await asyncio.to_thread(db.insert, t, [(1, "a")])
                while not len(cut := await subscription.recv(TIMEOUT)):
                    pass
                return cut

        cut = asyncio.run(stream())
        assert [list(batch.rows) for _, batch in cut] == [[(1, "a")]]

    def test_errors(self, db, t):
        for wrong, error in (
            ([], errors.InvalidOptionError),
            ([t, 1], errors.InvalidOptionError),
            ([t, t], errors.InvalidOptionError),
            (None, errors.InvalidOptionError),
            ([t, "nothing"], errors.ObjectNotFoundError),
            ([t, "SELEC 1 FROM x"], errors.SqlError),
        ):
            with pytest.raises(error):
                db.subscribe(wrong)
        with pytest.raises(errors.InvalidOptionError, match="max_rows"):
            db.subscribe([t], max_rows=1)
        with pytest.raises(errors.InvalidOptionError, match="parameters"):
            db.subscribe([t], [1])
        with pytest.raises(errors.TokenError):
            db.subscribe([t], start="ms1nonsense.ms1nonsense")
        subscription = db.subscribe([t])
        db.execute(f"DROP TABLE {t}")
        with pytest.raises(errors.SubscriptionEndedError):
            while True:
                subscription.recv(TIMEOUT)

    @pytest.mark.crash
    def test_a_server_that_is_killed(self, server):
        """Everything comes once, and in order; a snapshot heals what the kill has taken."""
        with ms.connect(server.url) as db:
            db.execute("CREATE SOURCE paid (n BIGINT) WITH (wal_mode = 'sync')")
            db.execute("CREATE TABLE account (id BIGINT PRIMARY KEY, n BIGINT)")
            db.insert("account", [(1, 0), (2, 0)])
            subscription = db.subscribe(["account", PAID])
            cuts, last = [subscription.recv(TIMEOUT)], 12
            for n in range(1, last + 1):
                db.execute("UPDATE account SET n = ? WHERE id = 1", [n])
                db.insert("paid", [(n,)])
                if n in {4, 8}:
                    server.restart()
            seen = []
            while not seen or seen[-1] != last:
                cut = subscription.recv(TIMEOUT)
                cuts.append(cut)
                seen += [row[0] for batch in cut[PAID] for row in batch.rows]
            assert seen == list(range(1, last + 1))
            held = balances(cuts, ["account", PAID])
            assert sorted(held["account"]) == [(1, last), (2, 0)]


class TestChanges:
    def test_every_mutation(self, db, t, s):
        with db.changes(include="both") as bus:
            db.insert(s, [(1, "a")])
            db.execute(f"INSERT INTO {t} VALUES (1, 'a'); UPDATE {t} SET name = 'b' WHERE id = 1")
            db.execute(f"DELETE FROM {t} WHERE id = 1")
            found = []
            while not found or found[-1].op != "delete":
                event = bus.recv(TIMEOUT)
                found += [event] if event.collection in {s, t} else []
            assert [(each.collection, each.op, each.key) for each in found] == [
                (s, "insert", None),
                (t, "insert", {"id": 1}),
                (t, "update", {"id": 1}),
                (t, "delete", {"id": 1}),
            ]
            assert found[2].before == {"id": 1, "name": "a"}
            assert found[2].after == {"id": 1, "name": "b"}
            assert all(each.timestamp.year > 2000 for each in found)
            token = bus.token
        db.execute(f"INSERT INTO {t} VALUES (2, 'c')")
        event = db.changes(t, start=token, include="after", fields=["name"]).recv(TIMEOUT)
        assert (event.key, event.after) == ({"id": 2}, {"name": "c"})

    def test_errors(self, db, t):
        with pytest.raises(errors.ObjectNotFoundError):
            db.changes("nothing")
        with pytest.raises(errors.InvalidOptionError, match="include"):
            db.changes(t, include="all")
        with pytest.raises(errors.InvalidOptionError, match="no column"):
            db.changes(t, fields=["nothing"])
        with pytest.raises(errors.InvalidOptionError):
            db.changes(7)


# ---- the two faces

NOT_REMOTE = {
    "context": "of the engine",
    "notifies": "LISTEN in SQL belongs to one connection; listen() has its messages",
    "path": "the directory is the server's",
    "prepare": "a server reads each text when it runs, and knows those that come again",
    "session": "the key says whose session it is",
    "use_functions": "of those who serve a connection",
}
NOT_AN_ARGUMENT = {"tenant", "inline", "progress"}
"""The key says which tenant; there is no pusher's thread here, and an answer of HTTP comes once."""


def public(face):
    return {name for name in dir(face) if not name.startswith("_")} - {"mro"}


def test_a_client_has_the_methods_of_a_database():
    missing = public(ms.Database) - public(Client)
    assert missing == NOT_REMOTE.keys() & public(ms.Database)
    assert public(Client) - public(ms.Database) == {"catalog"}


@pytest.mark.parametrize(
    "name", sorted(public(ms.Database) & public(Client) - {"lsn"} - NOT_REMOTE.keys())
)
def test_their_arguments_are_the_same(name):
    def arguments(face):
        found = inspect.signature(getattr(face, name)).parameters
        return [(each, found[each].kind) for each in found if each not in NOT_AN_ARGUMENT]

    assert arguments(Client) == arguments(ms.Database)
