"""The ASGI application: routes, and what is done around each of them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute

from millstream.errors import ClosedError, Error, RequestError
from millstream.server import (
    hooking,
    ingest,
    looking,
    openapi,
    prometheus,
    sql,
    subscribe,
    websocket,
)
from millstream.server.answers import error_answer, error_json, json_answer
from millstream.server.console import pages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from millstream.server.roles import Identity
    from millstream.server.service import Service

    Endpoint = Callable[[Service, Request, Identity], Awaitable[Response]]
    OpenEndpoint = Callable[[Service, Request], Awaitable[Response]]

_SOURCES = "/v1/sources/"
_METHODS = "GET, POST, DELETE, OPTIONS"
_ALLOWED = "Authorization, Content-Type, Idempotency-Key, Last-Event-ID"


def make_app(service: Service) -> ASGIApp:
    """The application that serves a database."""
    keyed: list[tuple[str, str, Endpoint]] = [
        ("POST", "/v1/sql", sql.sql),
        ("POST", "/v1/sources/{name}", ingest.push),
        ("POST", "/v1/sources/{name}/watermark", ingest.watermark),
        ("GET", "/v1/subscribe", subscribe.subscribe),
        ("GET", "/v1/poll", subscribe.poll),
        ("GET", "/v1/webhooks", hooking.listed),
        ("POST", "/v1/webhooks", hooking.add),
        ("DELETE", "/v1/webhooks/{name}", hooking.remove),
        ("POST", "/v1/webhooks/{name}/replay", hooking.replay),
        ("GET", "/v1/catalog", looking.catalog),
        ("GET", "/v1/topology", looking.topology),
        ("GET", "/v1/cause/{lsn}", looking.cause),
        ("GET", "/metrics", prometheus.metrics),
    ]
    free: list[tuple[str, OpenEndpoint]] = [
        ("/health", looking.health),
        ("/ready", looking.ready),
        ("/openapi.json", openapi.document),
    ]
    routes: list[BaseRoute] = [
        Route(path, _keyed(service, path, call), methods=[method]) for method, path, call in keyed
    ]
    routes += [Route(path, _free(service, path, call), methods=["GET"]) for path, call in free]
    routes += pages.routes()
    routes.append(WebSocketRoute("/v1/ws", partial(websocket.websocket, service)))
    handlers = {HTTPException: _no_route, Exception: _failed}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), service)


def _keyed(
    service: Service, route: str, call: Endpoint
) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that only those with a key may use."""

    async def answer(request: Request) -> Response:
        identity = service.gate.identity(request.headers)
        return await call(service, request, identity)

    return _measured(service, route, answer)


def _free(
    service: Service, route: str, call: OpenEndpoint
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return await call(service, request)

    return _measured(service, route, answer)


def _measured(
    service: Service, route: str, call: Callable[[Request], Awaitable[Response]]
) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint whose errors are answers, and that is counted."""

    async def answer(request: Request) -> Response:
        began = time.perf_counter()
        try:
            response = await call(request)
        except Error as error:
            response = error_answer(error)
        except asyncio.CancelledError:  # by uvicorn, which stops and waits no longer
            response = error_answer(
                ClosedError("the server stops", hint="whether the request was served is not known")
            )
        except Exception as error:  # noqa: BLE001 - logged there; the client is told no details
            response = error_answer(error)
        service.measures.request(route, response.status_code, time.perf_counter() - began)
        return response

    return answer


async def _no_route(_: Request, error: Exception) -> Response:
    """A path or a method that there is not."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    missing = RequestError(
        "there is no such path" if status == 404 else "there is no such method here",
        hint="GET /openapi.json lists them",
    )
    return json_answer({"error": error_json(missing)}, status, headers)


async def _failed(_: Request, error: Exception) -> Response:
    return error_answer(error)


class Guard:
    """Around the application: who may call it from a web page, and headers of every answer."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._gate = service.gate
        self._pushes = service.pushes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or serve one WebSocket."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            self._gate.check_origin(headers, may_link=scope["path"] == pages.PAGE)
        except Error as error:
            await _refuse(scope, receive, send, error)
            return
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
            return
        origin = headers.get("origin", "")
        if scope["method"] == "OPTIONS" and origin and "access-control-request-method" in headers:
            preflight = {
                "Access-Control-Allow-Methods": _METHODS,
                "Access-Control-Allow-Headers": _ALLOWED,
                "Access-Control-Max-Age": "600",
            }
            await Response(status_code=204, headers=preflight)(
                scope, receive, _with_headers(send, origin)
            )
            return
        is_push = scope["method"] == "POST" and scope["path"].startswith(_SOURCES)
        with self._pushes if is_push else contextlib.nullcontext():
            await self._app(scope, receive, _with_headers(send, origin))


async def _refuse(scope: Scope, receive: Receive, send: Send, error: Error) -> None:
    """Answer with an error, whether it is a request or a WebSocket."""
    await error_answer(error)(scope, receive, send)


def _with_headers(send: Send, origin: str) -> Send:
    """Add to an answer what lets the page of an allowed origin read it, and no other."""
    extra = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]
    if origin:
        extra += [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", b"retry-after"),
            (b"vary", b"Origin"),
        ]

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *extra]}
        await send(message)

    return sending
