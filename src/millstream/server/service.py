"""The service: what all endpoints share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from millstream.server.addresses import AddressRules
from millstream.server.gate import Gate
from millstream.server.measures import Measures
from millstream.server.pushes import Pushes
from millstream.server.tails import Tails
from millstream.server.webhooks import Webhooks
from millstream.server.workers import Workers

if TYPE_CHECKING:
    from millstream.database import Database
    from millstream.engine.session import Session
    from millstream.server.keys import Keys
    from millstream.server.roles import Identity
    from millstream.server.settings import Settings

_KEYS_SECONDS = 2.0


class Service:
    """An open database, and what serving it needs.

    Attributes:
        database: what is served.
        settings: how.
        gate: who may use it.
        statements: the threads that run SQL.
        openings: the threads that open subscriptions; apart, since a live query waits for Spark.
        inserts: the threads that take in rows; apart, since a full source makes them wait.
        measures: what is counted of requests and deliveries.
        pushes: the requests under way that add rows.
        tails: the newest changes of the queries that clients follow.
        webhooks: the changes that are posted elsewhere.
        streaming: the tasks that send frames, and for whom.
        connections: the tasks that serve WebSockets, and for whom.
        is_stopping: whether it takes no more requests.
    """

    def __init__(self, database: Database, settings: Settings, keys: Keys | None = None) -> None:
        limits, relations = settings.limits, database.context.engine.relations
        self.database = database
        self.settings = settings
        self.gate = Gate(settings, keys)
        self.statements = Workers("sql", limits.workers, limits.query_seconds, relations.interrupt)
        self.openings = Workers("open", limits.workers, limits.query_seconds)
        self.inserts = Workers("insert", limits.workers, limits.query_seconds)
        self.measures = Measures()
        self.pushes = Pushes()
        self.tails = Tails(self.measures, self.pushes)
        self.webhooks = Webhooks(database, rules=AddressRules(settings.webhook_networks))
        self.streaming: dict[asyncio.Task[Any], Identity] = {}
        self.connections: dict[asyncio.Task[Any], Identity] = {}
        self.is_stopping = False

    def owner(self, identity: Identity) -> str | None:
        """Whose share of the threads a client's calls have; without keys there are no shares."""
        return identity.name if self.settings.auth else None

    def session(self, identity: Identity) -> Session:
        """The database as a client sees it; of its own, with its own channels."""
        return self.database.session(
            tenant=identity.tenant, role=identity.role, directories=self.settings.directories
        )

    def end_streams(self) -> None:
        """Have every subscription end now, each with a frame that says so. In the event loop."""
        self.is_stopping = True
        for task in tuple(self.streaming):
            task.cancel()

    async def watch_keys(self) -> None:
        """End the connections of keys that are revoked, as long as the server runs."""
        while True:
            await asyncio.sleep(_KEYS_SECONDS)
            for task, identity in (*self.streaming.items(), *self.connections.items()):
                if not self.gate.is_valid(identity):
                    task.cancel()

    def close(self) -> None:
        """Run nothing more."""
        self.is_stopping = True
        self.tails.close()
        self.webhooks.close()
        self.statements.close()
        self.openings.close()
        self.inserts.close()
