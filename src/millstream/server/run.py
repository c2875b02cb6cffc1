"""Running a server: sockets, the event loop, and a clean stop."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import socket
import ssl
import threading
from typing import TYPE_CHECKING, Any

import uvicorn

from millstream.errors import InvalidOptionError
from millstream.server.app import make_app
from millstream.server.protocol import SharedWebSocket, limited
from millstream.server.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.database import Database
    from millstream.server.keys import Keys
    from millstream.server.settings import Settings

_BACKLOG = 4096
_STOP_SECONDS = 5


class _Uvicorn(uvicorn.Server):
    """uvicorn, which leaves signals to ``Server``: after them the database is to be closed."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class Server:
    """A database, served until it is stopped.

    Args:
        database: what is served; it is not closed.
        settings: how.
        keys: who may use it; needed with ``settings.auth``.
    """

    def __init__(self, database: Database, settings: Settings, keys: Keys | None = None) -> None:
        if settings.auth and keys is None:
            raise InvalidOptionError("auth needs keys", hint="Keys(directory)")
        self._settings = settings
        self._keys = keys
        self._database = database
        self._service = Service(database, settings, keys)
        self._socket = _bound(*settings.http)
        self._postgres: Any = None
        self._held: list[socket.socket] = []  # the ports, until all is closed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._uvicorn = _Uvicorn(self._config())

    @property
    def http(self) -> str:
        """The address of HTTP."""
        host, port = self._socket.getsockname()[:2]
        scheme = "http" if self._settings.certificate is None else "https"
        return f"{scheme}://{_shown(host)}:{port}"

    @property
    def postgres(self) -> str | None:
        """The address of PostgreSQL's protocol, once it is served."""
        if self._postgres is None:
            return None
        host, port = self._postgres.sockets[0].getsockname()[:2]
        return f"postgresql://{_shown(host)}:{port}/millstream"

    def _config(self) -> uvicorn.Config:
        settings, limits = self._settings, self._settings.limits
        return uvicorn.Config(
            make_app(self._service),
            http=limited(limits),
            ws=SharedWebSocket,
            ws_max_size=limits.message_bytes,
            ws_per_message_deflate=False,  # costs each connection its own window of memory
            ws_ping_interval=20.0,
            ws_ping_timeout=20.0,
            lifespan="off",
            log_config=None,
            log_level="error",  # uvicorn would log addresses with their query
            access_log=False,
            server_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=_STOP_SECONDS,
            ssl_certfile=settings.certificate,
            ssl_keyfile=settings.private_key,
        )

    def run(
        self,
        ready: Callable[[Server], None] | None = None,
        last: Callable[[], None] | None = None,
    ) -> None:
        """Serve, in this thread, until ``stop`` is called; in the main thread, SIGTERM does.

        Args:
            ready: called when clients can connect.
            last: called when nothing is served any more, before the ports are free: whoever waits
                for them to start the next server finds what this one used closed.
        """
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self._serve(ready))
            if last is not None:
                last()
        finally:
            for each in self._held:
                each.close()

    async def _serve(self, ready: Callable[[Server], None] | None) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._held = [self._socket.dup()]
        watching = asyncio.ensure_future(self._service.watch_keys())
        serving = asyncio.ensure_future(self._uvicorn.serve(sockets=[self._socket]))
        if threading.current_thread() is threading.main_thread():
            for each in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(each, self.stop)
        try:
            while not (self._uvicorn.started or serving.done()):
                await asyncio.sleep(0.005)
            if not serving.done():
                await asyncio.to_thread(self._service.webhooks.start)
                await self._open_postgres()
                if ready is not None:
                    ready(self)
            await serving
        finally:
            watching.cancel()
            self._uvicorn.should_exit = True
            with contextlib.suppress(Exception):
                await serving
            self._cut_off()
            if self._postgres is not None:
                self._postgres.close()
                await self._postgres.wait_closed()  # no statement runs when the database closes
            self._service.close()

    def _cut_off(self) -> None:
        """End the connections of clients that do not take what they were sent.

        The event loop would wait for them before it closes.
        """
        for each in list(self._uvicorn.server_state.connections):
            if each.transport is not None:
                each.transport.abort()

    async def _open_postgres(self) -> None:
        address = self._settings.postgres
        if address is None:
            return
        protocol = importlib.import_module("millstream.server.postgres")
        settings, limits = self._settings, self._settings.limits
        self._postgres = await protocol.serve_postgres(
            self._database,
            *address,
            keys=self._keys if self._settings.auth else None,
            tls=self._tls(),
            limits=protocol.Limits(threads=limits.workers, query_seconds=limits.query_seconds),
            gate=self._service.gate,
            directories=settings.directories,
        )
        self._held += [socket.socket(fileno=os.dup(s.fileno())) for s in self._postgres.sockets]

    def _tls(self) -> ssl.SSLContext | None:
        settings = self._settings
        if settings.certificate is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(settings.certificate, settings.private_key)
        return context

    def stop(self) -> None:
        """End it, from any thread: requests under way are answered, subscriptions end."""
        self._service.is_stopping = True
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._service.end_streams)
        self._uvicorn.should_exit = True


def _bound(host: str, port: int) -> socket.socket:
    """A socket that listens at an address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        made = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise InvalidOptionError(
            f"cannot listen at {_shown(host)}:{port}: {error.strerror}",
            hint="port 0 is any free one",
        ) from error
    made.setblocking(False)
    return made


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Uvloop's event loop, where there is one."""
    try:
        made: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module(
            "uvloop"
        ).new_event_loop
    except ImportError:
        return None
    return made
