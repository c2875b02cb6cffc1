"""``/v1/ws``: many subscriptions, statements and messages on one connection."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

from starlette.websockets import WebSocketDisconnect

from millstream.errors import AuthenticationError, Error, LimitError, RequestError
from millstream.formats.json_output import to_json
from millstream.server.answers import error_answer, error_json
from millstream.server.bodies import json_object, taken
from millstream.server.gate import SUBPROTOCOL
from millstream.server.sql import execute, result_json, statement_of
from millstream.server.streams import Stream
from millstream.server.wanted import wanted_changes, wanted_query
from millstream.server.wide_streams import ChangesStream, CutStream

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.websockets import WebSocket

    from millstream.engine.session import Session
    from millstream.server.frames import Frame
    from millstream.server.roles import Identity
    from millstream.server.service import Service
    from millstream.server.sql import WantedStatements
    from millstream.server.wanted import Wanted


async def websocket(service: Service, client: WebSocket) -> None:
    """Serve one WebSocket until it closes."""
    offered = client.scope.get("subprotocols", [])
    try:
        identity = service.gate.identity(client.headers, offered)
    except AuthenticationError as error:
        await client.send_denial_response(error_answer(error))
        return
    await client.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
    service.measures.connections += 1
    task = asyncio.current_task()
    if task is None:
        raise AssertionError("a connection is served by a task")
    service.connections[task] = identity
    try:
        with service.session(identity) as session:
            await Connection(service, client, identity, session).run()
    except asyncio.CancelledError:  # its key was revoked
        if service.is_stopping:
            raise
        task.uncancel()
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            await client.close(1008)
    finally:
        service.connections.pop(task, None)
        service.measures.connections -= 1


class Connection:
    """One WebSocket: what it has asked for, and what it is sent."""

    def __init__(
        self, service: Service, client: WebSocket, identity: Identity, session: Session
    ) -> None:
        self._service = service
        self._client = client
        self._identity = identity
        self._session = session
        self._streams: dict[str, Stream] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._channels: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Do what the client says, until it leaves."""
        try:
            while True:
                message = await self._client.receive()
                if message["type"] == "websocket.disconnect":
                    return
                await self._handle(message.get("text") or message.get("bytes") or b"")
        except WebSocketDisconnect:
            pass
        finally:
            tasks = [*self._tasks.values(), *self._calls, *self._channels.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _handle(self, text: str | bytes) -> None:
        """Do what one message says; what is wrong with it is answered."""
        client_id: Any = None
        try:
            found = json_object(text)
            kind, client_id = found.pop("type", None), found.pop("id", None)
            if not isinstance(client_id, str | int | None) or isinstance(client_id, bool):
                client_id = None
                raise RequestError("an id is a text or a number")
            command = _COMMANDS.get(kind) if isinstance(kind, str) else None
            if command is None:
                raise RequestError("unknown type", hint=f"one of {', '.join(_COMMANDS)}")
            await command(self, client_id, found)
        except Error as error:
            await self._send({"type": "error", "id": client_id, "error": error_json(error)})

    async def _send(self, content: dict[str, Any]) -> None:
        await self._client.send_text(to_json(content))

    async def _done(self, client_id: Any, what: str) -> None:  # noqa: ANN401 - of the client
        await self._send({"type": "ok", "id": client_id, "of": what})

    # ---- subscriptions

    async def _subscribe(self, client_id: Any, found: dict[str, Any]) -> None:  # noqa: ANN401
        key = self._new_key(client_id)
        wanted = wanted_query(found)
        write = self._writing(key, as_arrow=wanted.encoding == "arrow")
        style = CutStream if wanted.queries else Stream
        self._start(key, style(self._service, self._session, self._identity, wanted, write), wanted)

    async def _changes(self, client_id: Any, found: dict[str, Any]) -> None:  # noqa: ANN401
        key = self._new_key(client_id)
        wanted = wanted_changes(found)
        stream = ChangesStream(self._service, self._session, self._identity, wanted)
        self._start(key, stream, wanted)

    def _new_key(self, client_id: Any) -> str:  # noqa: ANN401 - of the client
        """The key of one subscription more."""
        limit = self._service.settings.limits.subscriptions_per_connection
        key = _key(client_id)
        if key in self._tasks:
            raise RequestError(f"the id {key} is in use", hint="give each subscription its own")
        if len(self._tasks) >= limit:
            raise LimitError(f"{limit} subscriptions are on this connection already")
        return key

    def _start(self, key: str, stream: Stream, wanted: Wanted) -> None:
        """Send the frames of a stream, from now to its end."""
        counted = self._service.gate.subscription(self._identity)
        counted.__enter__()  # ended with its task
        self._streams[key] = stream
        task = asyncio.get_running_loop().create_task(self._pump(key, stream, wanted.encoding))
        self._tasks[key] = task

        def ended(_: asyncio.Task[None]) -> None:
            counted.__exit__(None, None, None)
            self._tasks.pop(key, None)
            self._streams.pop(key, None)

        task.add_done_callback(ended)

    def _writing(self, key: str, *, as_arrow: bool) -> Callable[[Frame], bool] | None:
        """What sends a frame without waiting; None where the connection cannot."""
        extension = self._client.scope.get("extensions", {}).get("millstream.write")
        if extension is None:
            return None
        write: Callable[[bytes], bool] = extension["write"]
        return lambda frame: write(frame.message(key, as_arrow=as_arrow))

    async def _pump(self, key: str, stream: Stream, encoding: str) -> None:
        """Send the frames of a subscription, as fast as the client takes them."""
        as_arrow = encoding == "arrow"
        frames = stream.frames()
        with contextlib.suppress(WebSocketDisconnect):
            async with contextlib.aclosing(frames):  # type: ignore[type-var]
                async for frame in frames:
                    await self._send_frame(frame, key, as_arrow=as_arrow)

    async def _send_frame(self, frame: Frame, key: str, *, as_arrow: bool) -> None:
        message = frame.message(key, as_arrow=as_arrow)
        await self._client.send({"type": "websocket.send", "encoded": message})

    def _stream(self, client_id: Any) -> Stream:  # noqa: ANN401 - of the client
        found = self._streams.get(_key(client_id))
        if found is None:
            raise RequestError("there is no subscription of this id on this connection")
        return found

    async def _unsubscribe(self, client_id: Any, found: dict[str, Any]) -> None:  # noqa: ANN401
        taken(found)
        self._stream(client_id)
        task = self._tasks[_key(client_id)]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await self._send({"id": client_id, "type": "end"})

    async def _pause(self, client_id: Any, found: dict[str, Any]) -> None:  # noqa: ANN401
        taken(found)
        self._stream(client_id).pause()
        await self._done(client_id, "pause")

    async def _resume(self, client_id: Any, found: dict[str, Any]) -> None:  # noqa: ANN401
        taken(found)
        self._stream(client_id).resume()
        await self._done(client_id, "resume")

    async def _request(self, client_id: Any, found: dict[str, Any]) -> None:  # noqa: ANN401
        (rows,) = taken(found, rows=int)
        self._stream(client_id).request(rows)

    async def _ack(self, client_id: Any, found: dict[str, Any]) -> None:  # noqa: ANN401
        (token,) = taken(found, token=(str, int))
        self._stream(client_id).ack(token)
        await self._done(client_id, "ack")

    # ---- statements and messages

    async def _sql(self, client_id: Any, found: dict[str, Any]) -> None:  # noqa: ANN401
        wanted = statement_of(found)
        limit = self._service.settings.limits.subscriptions_per_connection
        if len(self._calls) >= limit:
            raise LimitError(f"{limit} statements run on this connection already")
        call = self._answer(client_id, wanted)
        task = asyncio.get_running_loop().create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _answer(self, client_id: Any, wanted: WantedStatements) -> None:  # noqa: ANN401
        def run() -> str:
            result = execute(self._service, self._session, wanted)
            return to_json({"type": "result", "id": client_id, **result_json(result)})

        owner = self._service.owner(self._identity)
        with contextlib.suppress(WebSocketDisconnect):
            try:
                await self._client.send_text(await self._service.statements.run(run, owner))
            except Error as error:
                await self._send({"type": "error", "id": client_id, "error": error_json(error)})

    async def _listen(self, client_id: Any, found: dict[str, Any]) -> None:  # noqa: ANN401
        (channel,) = taken(found, channel=str)
        limit = self._service.settings.limits.subscriptions_per_connection
        if not channel:
            raise RequestError("there is no channel")
        if len(self._channels) >= limit:
            raise LimitError(f"{limit} channels are listened to on this connection already")
        if channel not in self._channels:
            listener = await self._service.openings.run(
                lambda: self._session.listen_stream(channel), self._service.owner(self._identity)
            )
            pump = self._forward(listener)
            task = self._channels[channel] = asyncio.get_running_loop().create_task(pump)
            task.add_done_callback(lambda _: listener.cancel())  # also if it never began
        await self._done(client_id, "listen")

    async def _forward(self, listener: Any) -> None:  # noqa: ANN401 - an AsyncListener
        with contextlib.suppress(WebSocketDisconnect, Error):
            async with listener:
                async for each in listener:
                    await self._send(
                        {
                            "type": "notification",
                            "channel": each.channel,
                            "payload": each.payload,
                            "lsn": each.lsn,
                        }
                    )

    async def _unlisten(self, client_id: Any, found: dict[str, Any]) -> None:  # noqa: ANN401
        (channel,) = taken(found, channel=str)
        task = self._channels.pop(channel or "", None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._done(client_id, "unlisten")

    async def _notify(self, client_id: Any, found: dict[str, Any]) -> None:  # noqa: ANN401
        channel, payload = taken(found, channel=str, payload=str)
        await self._service.inserts.run(
            lambda: self._session.notify(channel, payload or ""),
            self._service.owner(self._identity),
        )
        await self._done(client_id, "notify")


_COMMANDS = {
    "subscribe": Connection._subscribe,  # noqa: SLF001 - of this module
    "changes": Connection._changes,  # noqa: SLF001
    "unsubscribe": Connection._unsubscribe,  # noqa: SLF001
    "pause": Connection._pause,  # noqa: SLF001
    "resume": Connection._resume,  # noqa: SLF001
    "request": Connection._request,  # noqa: SLF001
    "ack": Connection._ack,  # noqa: SLF001
    "sql": Connection._sql,  # noqa: SLF001
    "listen": Connection._listen,  # noqa: SLF001
    "unlisten": Connection._unlisten,  # noqa: SLF001
    "notify": Connection._notify,  # noqa: SLF001
}


def _key(client_id: Any) -> str:  # noqa: ANN401 - of the client
    """The id of a subscription, as JSON."""
    if client_id is None:
        raise RequestError("there is no id", hint='{"type": "subscribe", "id": 1, ...}')
    return json.dumps(client_id)
