"""``GET /v1/subscribe``: Server-Sent Events; ``GET /v1/poll``: the same for those who only ask."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response, StreamingResponse

from millstream.errors import RequestError, ViewNotReadyError
from millstream.server.answers import JSON
from millstream.server.roles import check_sql
from millstream.server.streams import Stream
from millstream.server.wanted import Wanted, parse_start
from millstream.views.readiness import READ_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from millstream.server.frames import Frame
    from millstream.server.roles import Identity
    from millstream.server.service import Service

_WORDS: Final = ("snapshot", "now", "earliest")
_OPTIONS: Final = {
    "sql": str,
    "params": str,
    "start": str,
    "backpressure": str,
    "buffer_rows": int,
    "max_rows": int,
    "max_delay": float,
}
_POLL: Final = {**_OPTIONS, "timeout": float}
_LONGEST_POLL: Final = 60.0
_POLLED_ROWS: Final = 16_384
_TOGETHER: Final = 0.005


async def subscribe(service: Service, request: Request, identity: Identity) -> Response:
    """The changes of a query as Server-Sent Events; ``Last-Event-ID`` resumes."""
    options = _options(request, _OPTIONS)
    last = request.headers.get("last-event-id")
    if last:
        options["start"] = last
    wanted = _wanted(options)
    # What is refused at once has a status; what fails later is a frame. After a frame EventSource
    # connects again, so a token that will never do must have a status.
    if isinstance(wanted.start, str) and wanted.start not in _WORDS:
        service.database.context.engine.log.resume(wanted.start)
    await service.statements.run(
        lambda: check_sql(identity, wanted.sql, wanted.parameters), service.owner(identity)
    )
    counted = service.gate.subscription(identity)
    counted.__enter__()  # ended with the stream
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(
        _events(service, identity, wanted, counted), headers=headers, media_type="text/event-stream"
    )


async def _events(
    service: Service,
    identity: Identity,
    wanted: Wanted,
    counted: contextlib.AbstractContextManager[None],
) -> AsyncIterator[str]:
    with contextlib.ExitStack() as stack:
        stack.push(counted)
        session = stack.enter_context(service.session(identity))
        frames = Stream(service, session, identity, wanted).frames()
        async with contextlib.aclosing(frames):  # type: ignore[type-var]
            async for frame in frames:
                yield frame.event()


async def poll(service: Service, request: Request, identity: Identity) -> Response:
    """What there is after ``start``, a token of the last answer; waits for it for a while."""
    options = _options(request, _POLL)
    seconds = min(max(options.pop("timeout", 0.0), 0.0), _LONGEST_POLL)
    wanted = _wanted(options)
    with service.gate.subscription(identity), service.session(identity) as session:
        stream = Stream(service, session, identity, wanted)
        found = await _gathered(stream, seconds)
    tokens = [frame.token for frame in found if frame.token]
    token = json.dumps(tokens[-1] if tokens else None)
    body = f'{{"token":{token},"frames":[{",".join(frame.json() for frame in found)}]}}'
    return Response(body.encode(), media_type=JSON)


async def _gathered(stream: Stream, seconds: float) -> list[Frame]:
    """The frames that a stream has now; if these have no changes, those that come in time.

    Raises:
        ViewNotReadyError: the view that it reads is still starting.
    """
    found: list[Frame] = []
    rows = 0
    caught_up = waits_for_view = False
    frames = stream.frames()
    async with contextlib.aclosing(frames):  # type: ignore[type-var]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None) as waiting:  # until it has caught up
                async for frame in frames:
                    if frame.type == "waiting":
                        if not waits_for_view:
                            waits_for_view = True
                            waiting.reschedule(asyncio.get_running_loop().time() + READ_SECONDS)
                        continue
                    if waits_for_view:
                        waits_for_view = False
                        waiting.reschedule(None)
                    found.append(frame)
                    rows += len(frame)
                    is_first = frame.type == "progress" and not caught_up
                    caught_up = caught_up or is_first
                    if rows >= _POLLED_ROWS or frame.type == "end":
                        break
                    if caught_up and not (rows or seconds):
                        break
                    if is_first or (caught_up and rows):  # what comes at once is in one answer
                        pause = _TOGETHER if rows else seconds
                        waiting.reschedule(asyncio.get_running_loop().time() + pause)
    if waits_for_view:
        raise ViewNotReadyError(
            "the view has not processed what was committed before, and the time is up",
            hint="ask again later, or see SHOW VIEWS",
        )
    return found


def _options(request: Request, kinds: dict[str, Any]) -> dict[str, Any]:
    """The options in the address, each of its type.

    Raises:
        RequestError: an unknown one, one that is there twice, or of another type.
    """
    given = request.query_params.multi_items()
    found: dict[str, Any] = {}
    for name, text in given:
        kind = kinds.get(name)
        if kind is None or name in found:
            raise RequestError(
                f"{name!r} is {'unknown' if kind is None else 'there twice'}"[:200],
                hint=f"known: {', '.join(kinds)}",
            )
        try:
            found[name] = kind(text)
        except ValueError as error:
            raise RequestError(f"{name}: expected {kind.__name__}") from error
    return found


def _wanted(options: dict[str, Any]) -> Wanted:
    if not options.get("sql"):
        raise RequestError("there is no sql", hint="/v1/subscribe?sql=SELECT * FROM ...")
    parameters = options.pop("params", None)
    if parameters is not None:
        try:
            parameters = json.loads(parameters)
        except (ValueError, RecursionError) as error:
            raise RequestError("params is not JSON", hint="a list, or an object") from error
        if not isinstance(parameters, list | dict):
            raise RequestError("params is neither a list nor an object")
    start = parse_start(options.pop("start", None))
    return Wanted(parameters=parameters, start=start, **options)
