"""``serve_postgres``: listens for clients, and knows those that are there."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from millstream.server.postgres.auth import nobody
from millstream.server.postgres.catalog import CatalogQueries
from millstream.server.postgres.connection import Connection
from millstream.server.postgres.errors import PostgresError
from millstream.server.postgres.locks import AdvisoryLocks
from millstream.server.postgres.runner import Pools
from millstream.server.postgres.statements import Statements
from millstream.server.roles import LOCAL, Identity
from millstream.server.workers import Workers

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from millstream.database import Database
    from millstream.server.gate import Gate
    from millstream.server.keys import Keys, ScramVerifier

_LAST_SECONDS: Final = 5.0
_KEYS_SECONDS: Final = 2.0
_FLUSH_SECONDS: Final = 0.5
_LOG: Final = logging.getLogger("millstream.postgres")


@dataclass(frozen=True, slots=True)
class Limits:
    """What clients may take.

    Attributes:
        connections: how many clients at once.
        connections_per_key: how many of them may have the same key.
        message_bytes: how long a message may be.
        copy_bytes: how much one COPY may bring.
        startup_seconds: how long a login may take.
        threads: how many statements run at once.
        query_seconds: how long a query may run; ``statement_timeout`` can make it less.
    """

    connections: int = 500
    connections_per_key: int = 250
    message_bytes: int = 64 << 20
    copy_bytes: int = 256 << 20
    startup_seconds: float = 10.0
    threads: int = 8
    query_seconds: float = 60.0


class PostgresServer:
    """Serves a database over PostgreSQL's protocol. Get one with ``serve_postgres``.

    Args:
        database: it.
        keys: who may log in; None: everybody, as anyone.
        tls: for clients that want it; None: they are refused it.
        limits: what clients may take.
        gate: counts the subscriptions of a key, together with those over HTTP; None: nobody does.
        directories: the only directories whose files statements may name; empty: none.

    Attributes:
        tls: as given.
        limits: as given.
        transports: the sockets that are open, also those whose clients are done.
    """

    def __init__(
        self,
        database: Database,
        *,
        keys: Keys | None = None,
        tls: ssl.SSLContext | None = None,
        limits: Limits | None = None,
        gate: Gate | None = None,
        directories: Sequence[Path] = (),
    ) -> None:
        self._database = database
        self._keys = keys
        self.tls = tls
        self.limits = limits or Limits()
        self._gate = gate
        self._directories = tuple(directories)
        self._relations = database.context.engine.relations
        self._pools = Pools(self._workers("postgres"), self._workers("postgres-open"))
        self._watching: asyncio.Task[None] | None = None
        self._processes = itertools.count(1)
        self._connections: dict[int, Connection] = {}
        self.transports: set[asyncio.Transport] = set()
        self._server: asyncio.Server | None = None
        self._catalog = CatalogQueries()
        self._locks = AdvisoryLocks()
        self._secret = secrets.token_bytes(32)

    def _workers(self, name: str) -> Workers:
        limits = self.limits
        most = 2 * max(limits.connections, limits.threads)
        return Workers(name, limits.threads, None, self._interrupt, most)

    def _interrupt(self, thread: int) -> None:
        """End the query that a thread runs."""
        self._catalog.interrupt(thread)
        self._relations.interrupt(thread)

    # ---- listening

    async def start(self, host: str, port: int) -> None:
        """Listen on an address; port 0 picks a free one."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), host, port, backlog=512)
        if self._keys is not None:
            self._watching = loop.create_task(self._watch_keys())

    async def _watch_keys(self) -> None:
        """End the connections of keys that are revoked."""
        while True:
            await asyncio.sleep(_KEYS_SECONDS)
            for each in list(self._connections.values()):
                if each.identity is not None and not self._is_valid(each.identity):
                    each.end("the key was revoked", "28000")

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """Those that it listens on."""
        return () if self._server is None else tuple(self._server.sockets)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Listen no more, and end what runs for clients."""
        if self._server is not None:
            self._server.close()
        if self._watching is not None:
            self._watching.cancel()
        for each in list(self._connections.values()):
            each.end()

    async def wait_closed(self) -> None:
        """Wait until all clients are gone."""
        while self._connections:
            await asyncio.wait([each.task for each in self._connections.values()])
        await self._cut_off()
        if self._server is not None:
            await self._server.wait_closed()
        for each in (self._pools.statements, self._pools.openings):
            await each.wait_closed(_LAST_SECONDS)  # what runs was told to end
        self._catalog.close(0.0)  # in an event loop

    async def _cut_off(self) -> None:
        """End the connections whose clients do not take what they were sent."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _FLUSH_SECONDS
        while self.transports and loop.time() < until:
            await asyncio.sleep(_FLUSH_SECONDS / 50)
        for each in list(self.transports):
            each.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await self.wait_closed()

    # ---- clients

    def next_process(self) -> int:
        """A number that no client has."""
        return next(self._processes) & 0x7FFFFFFF

    def opened(self, connection: Connection) -> None:
        """A client is there."""
        self._connections[connection.process] = connection

    def left(self, connection: Connection) -> None:
        """A client is gone."""
        self._connections.pop(connection.process, None)

    @property
    def is_overrun(self) -> bool:
        """Whether so many clients are logging in that another one is not even answered."""
        return len(self._connections) >= 2 * self.limits.connections

    def check_room(self) -> None:
        """Raise if there are too many clients.

        Raises:
            PostgresError: there are.
        """
        if len(self._connections) > self.limits.connections:
            raise PostgresError(
                "sorry, too many clients already",
                sqlstate="53300",
                hint=f"at most {self.limits.connections} at once",
                is_fatal=True,
            )

    def check_share(self, identity: Identity) -> None:
        """Raise if a key has too many clients.

        Raises:
            PostgresError: it has.
        """
        if self._keys is None:
            return
        limit = self.limits.connections_per_key
        open_now = [each.identity for each in self._connections.values()]
        if sum(each is not None and each.name == identity.name for each in open_now) >= limit:
            raise PostgresError(
                f'too many connections for role "{identity.name}"',
                sqlstate="53300",
                hint=f"at most {limit} with one key",
                is_fatal=True,
            )

    def cancel(self, process: int, secret: int) -> None:
        """A CancelRequest; one with a wrong secret does nothing."""
        found = self._connections.get(process)
        if found is not None and secrets.compare_digest(
            found.secret.to_bytes(4, "big"), secret.to_bytes(4, "big")
        ):
            found.interrupt()

    def access(self, user: str) -> tuple[Identity | None, ScramVerifier | None]:
        """Who a user is, and what the password is checked with; None: without a password."""
        if self._keys is None:
            return Identity(user), None
        key = self._keys.get(user)
        if key is None:
            return None, nobody(user, self._secret)
        return key.identity, key.scram

    def check_key(self, identity: Identity) -> None:
        """Raise if the key of a client was revoked since it has logged in.

        Raises:
            PostgresError: it was, or is another one now.
        """
        if not self._is_valid(identity):
            raise PostgresError("the key was revoked", sqlstate="28000", is_fatal=True)

    def _is_valid(self, identity: Identity) -> bool:
        if self._keys is None:
            return True
        key = self._keys.get(identity.name)
        return key is not None and key.identity == identity

    def runner(self, identity: Identity, connection: Connection) -> Statements:
        """What runs the statements of a client."""
        return Statements(
            self._database.session(
                tenant=identity.tenant, role=identity.role, directories=self._directories
            ),
            self._pools,
            connection,
            identity=identity,
            catalog=self._catalog,
            copy_bytes=self.limits.copy_bytes,
            query_seconds=self.limits.query_seconds,
            owner=None if self._keys is None else identity.name,
            counted=partial(self._counted, identity),
            locks=self._locks,
        )

    def _counted(self, identity: Identity) -> AbstractContextManager[None]:
        if self._gate is None:
            return nullcontext()
        return self._gate.subscription(LOCAL if self._keys is None else identity)

    def report(self, error: BaseException) -> None:
        """A fault of ours; the client is told its class only."""
        _LOG.error("a statement over PostgreSQL's protocol failed", exc_info=error)


async def serve_postgres(
    database: Database,
    host: str,
    port: int,
    *,
    keys: Keys | None = None,
    tls: ssl.SSLContext | None = None,
    limits: Limits | None = None,
    gate: Gate | None = None,
    directories: Sequence[Path] = (),
) -> PostgresServer:
    """Serve a database to clients of PostgreSQL, in the event loop that runs.

    Args:
        database: it; stays open when the server is closed.
        host: the address to listen on.
        port: 0 picks a free one: ``server.port``.
        keys: who may log in: the user is the name of a key, the password the key. None: all.
        tls: the certificate; clients may then use TLS.
        limits: what clients may take.
        gate: counts the subscriptions of a key, together with those over HTTP; None: nobody does.
        directories: the only directories whose files statements may name; empty: none.
    """
    server = PostgresServer(
        database, keys=keys, tls=tls, limits=limits, gate=gate, directories=directories
    )
    await server.start(host, port)
    return server
