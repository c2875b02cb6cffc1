"""One client: its socket, its first messages, and the loop that answers the others."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from typing import TYPE_CHECKING, Final

from millstream.errors import Error
from millstream.server.postgres import codec
from millstream.server.postgres.auth import MECHANISM, Scram, wrong_password
from millstream.server.postgres.backend import Backend
from millstream.server.postgres.errors import PostgresError, ProtocolError, fields_of
from millstream.server.postgres.settings import REPORTED, startup_options

if TYPE_CHECKING:
    from millstream.server.postgres.runner import Runner
    from millstream.server.postgres.server import PostgresServer
    from millstream.server.postgres.settings import Settings
    from millstream.server.roles import Identity

_MOST_UNREAD: Final = 1 << 20
_MOST_UNSENT: Final = 1 << 16
_BEFORE_LOGIN: Final = 1 << 16


class LostError(Exception):
    """The client is gone."""


class Connection(asyncio.Protocol):
    """A client's connection.

    Args:
        server: whose it is.

    Attributes:
        process: the number that the client knows it by.
        secret: what a CancelRequest must have.
        identity: who it is, once that is known.
    """

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self.process = server.next_process()
        self.secret = secrets.randbits(31)  # some clients read it as a signed number
        self._frames = codec.Frames(_BEFORE_LOGIN, is_startup=True)
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._unsent = 0
        self._delivered = bytearray()
        self._news: asyncio.Future[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._is_lost = False
        self._is_paused = False
        self._interrupted = False
        self._end = ("the server stops", "57P01")
        self.identity: Identity | None = None
        self._runner: Runner | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def task(self) -> asyncio.Task[None]:
        """What serves it."""
        if self._task is None:
            raise LostError
        return self._task

    # ---- the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        if self._transport is not None:  # TLS makes a second one
            self._server.transports.discard(self._transport)
        self._transport = transport  # type: ignore[assignment]
        self._server.transports.add(transport)  # type: ignore[arg-type]
        handle = transport.get_extra_info("socket")
        if handle is not None:  # a client that is gone without a word is found after a while
            with contextlib.suppress(OSError):
                handle.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._server.is_overrun:
            self._is_lost = True
            self._transport.abort()  # type: ignore[union-attr]
        elif self._task is None:
            self._server.opened(self)
            self._task = asyncio.get_running_loop().create_task(self._main())

    def data_received(self, data: bytes) -> None:
        """Bytes of the client."""
        self._frames.feed(data)
        self._wake()
        if len(self._frames) > _MOST_UNREAD and not self._is_paused and self._news is None:
            self._is_paused = True
            if self._transport is not None:
                self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The client is gone; what runs for it is ended."""
        if self._transport is not None:
            self._server.transports.discard(self._transport)
        self._is_lost = True
        self._writable.set()
        self._wake()
        if self._task is not None and self._news is None:
            self._task.cancel()

    def pause_writing(self) -> None:
        """The client does not read as fast as we write."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """It has."""
        self._writable.set()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    # ---- messages

    def send(self, data: bytes) -> None:
        """Send, sooner or later."""
        self._out.append(data)
        self._unsent += len(data)
        if self._unsent > _MOST_UNSENT:
            self.flush()

    def deliver(self, data: bytes) -> None:
        """Send what comes by itself: at once if the client waits, else before it is told to go on.

        Without data, send what has come so far.
        """
        self._delivered += data
        waiting = 0 if self._transport is None else self._transport.get_write_buffer_size()
        if len(self._delivered) + waiting > _MOST_UNREAD * 16 and self._task is not None:
            self._end = ("notifications are not read", "53000")
            self._task.cancel()
            return
        if self._delivered and (self._news is not None or not data):
            self.send(bytes(self._delivered))
            self._delivered.clear()
            if self._news is not None:
                self.flush()

    def flush(self) -> None:
        """Hand over to the socket what was to be sent."""
        if self._out and self._transport is not None and not self._is_lost:
            self._transport.write(b"".join(self._out))
        self._out.clear()
        self._unsent = 0

    async def drain(self) -> None:
        """Wait until the client has taken what was sent, but for a little."""
        self.flush()
        await self._writable.wait()
        if self._is_lost:
            raise LostError

    async def receive(self) -> tuple[bytes, bytes]:
        """The next message; before it waits for one, all answers are sent."""
        while True:
            frame = self._frames.next()
            if frame is not None:
                return frame
            if self._is_lost:
                raise LostError
            self.deliver(b"")
            await self.drain()
            if self._is_paused and self._transport is not None:
                self._is_paused = False
                self._transport.resume_reading()
            self._news = asyncio.get_running_loop().create_future()
            try:
                await self._news
            finally:
                self._news = None

    def was_interrupted(self) -> bool:
        """Whether a CancelRequest was for what ran just now."""
        was, self._interrupted = self._interrupted, False
        if was and self._task is not None:
            self._task.uncancel()
        return was

    def interrupt(self) -> None:
        """A CancelRequest: end what runs now, if it can be ended halfway."""
        if self._runner is not None and self._runner.is_reading and self._task is not None:
            self._interrupted = True
            self._task.cancel()

    def end(self, why: str = "the server stops", sqlstate: str = "57P01") -> None:
        """End it, whatever runs."""
        self._end = why, sqlstate
        if self._task is not None:
            self._task.cancel()

    # ---- from the first message to the last

    async def _main(self) -> None:
        try:
            async with asyncio.timeout(self._server.limits.startup_seconds):
                identity = await self._start()
            if identity is not None:
                await self._serve(identity)
        except PostgresError as error:
            self.send(codec.error_or_notice(b"E", fields_of(error)))
        except TimeoutError:
            self._last_words("the login took too long", "57014")
        except asyncio.CancelledError:
            self._last_words(*self._end)
        except (LostError, OSError):
            pass
        finally:
            self._finish()

    def _last_words(self, why: str, sqlstate: str) -> None:
        error = PostgresError(why, sqlstate=sqlstate, is_fatal=True)
        self.send(codec.error_or_notice(b"E", fields_of(error)))

    def _finish(self) -> None:
        self.flush()
        if self._runner is not None:
            self._runner.close()
        if self._transport is not None and self._writable.is_set():
            self._transport.close()
        elif self._transport is not None:  # it does not read what there is already
            self._transport.abort()
        self._server.left(self)

    async def _start(self) -> Identity | None:
        """Read the first messages; returns who it is, or None if nothing follows."""
        while True:
            _, content = await self.receive()
            fields = codec.Fields(content)
            version = fields.int32()
            if version == codec.CANCEL_REQUEST:
                self._server.cancel(fields.int32() & 0xFFFFFFFF, fields.int32() & 0xFFFFFFFF)
                return None
            if version == codec.SSL_REQUEST:
                await self._start_tls()
                continue
            if version == codec.GSS_REQUEST:
                self.send(b"N")
                continue
            break
        if version >> 16 != 3:
            raise PostgresError(
                f"protocol version {version >> 16}.{version & 0xFFFF} is not supported",
                sqlstate="0A000",
                is_fatal=True,
            )
        given = codec.startup_parameters(fields)
        self._frames.is_startup = False
        unknown = [name for name in given if name.startswith("_pq_.")]
        if version != codec.PROTOCOL_3 or unknown:
            self.send(codec.protocol_version(unknown))
        return await self._log_in(given)

    async def _start_tls(self) -> None:
        tls = self._server.tls
        if tls is None:
            self.send(b"N")
            return
        if self._frames.rest():  # it must not be taken for what was sent under TLS
            raise ProtocolError("received unencrypted data after SSL request")
        if self._transport is None:
            raise LostError
        transport = self._transport
        transport.pause_reading()
        self.send(b"S")
        self.flush()
        loop = asyncio.get_running_loop()
        try:
            made = await loop.start_tls(transport, self, tls, server_side=True)
        except OSError as error:
            raise LostError from error
        if made is None:
            raise LostError
        self._transport = made

    async def _log_in(self, given: dict[str, str]) -> Identity:
        user = given.get("user", "")
        database = given.get("database", user)
        if not user:
            raise PostgresError("no user name was given", sqlstate="28000", is_fatal=True)
        self._server.check_room()
        identity, verifier = self._server.access(user)
        if verifier is not None:
            await self._check_password(Scram(verifier))
        if database not in {"millstream", user}:
            raise PostgresError(
                f'database "{database}" does not exist',
                sqlstate="3D000",
                hint='the database is "millstream"',
                is_fatal=True,
            )
        if identity is None:
            raise wrong_password()
        self._server.check_share(identity)
        self.identity = identity
        self.send(codec.AUTHENTICATION_OK)
        self._runner = runner = self._server.runner(identity, self)
        self._set_up(runner.settings, user, given)
        return identity

    @staticmethod
    def _set_up(settings: Settings, user: str, given: dict[str, str]) -> None:
        """Take the settings of the start-up message, or end the connection."""
        settings.start("session_authorization", user)
        others = ("user", "database", "options", "replication")
        pairs = [pair for pair in given.items() if pair[0] not in others]
        for name, value in (*startup_options(given.get("options", "")), *pairs):
            if name.startswith("_pq_."):
                continue
            try:
                settings.start(name, value)
            except PostgresError as error:
                error.is_fatal = True
                raise

    async def _check_password(self, scram: Scram) -> None:
        self.send(codec.sasl_mechanisms([MECHANISM]))
        fields = codec.Fields(await self._password_message())
        mechanism, first = fields.string(), fields.value()
        if mechanism != MECHANISM or first is None:
            raise ProtocolError(f"{MECHANISM} is expected", sqlstate="28000")
        self.send(codec.sasl_continue(scram.first(first)))
        self.send(codec.sasl_final(scram.final(await self._password_message())))

    async def _password_message(self) -> bytes:
        kind, content = await self.receive()
        if kind != b"p":
            raise ProtocolError(f"a password is expected, not {kind!r}", sqlstate="28000")
        return content

    async def _serve(self, identity: Identity) -> None:
        runner = self._runner
        if runner is None:
            raise LostError
        self._frames.max_bytes = self._server.limits.message_bytes
        for name in REPORTED:
            self.send(codec.parameter_status(name, runner.settings.get(name)))
        self.send(codec.backend_key(self.process, self.secret))
        self.send(codec.ready(b"I"))
        backend = Backend(self, runner)
        runner.deallocate = backend.deallocate
        while True:
            kind, content = await self.receive()
            if kind == b"X":
                return
            self._server.check_key(identity)
            try:
                await backend.handle(kind, content)
            except (PostgresError, LostError, asyncio.CancelledError, Error):
                raise
            except Exception as error:  # noqa: BLE001 - a fault of ours ends one client only
                self._server.report(error)
                backend.fault(error, kind)
