"""``POST /v1/sources/{name}``: rows in JSON, NDJSON, CSV or Arrow, all of a body or none.

``POST /v1/sources/{name}/watermark``: what the source's clock is at least.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.errors import MediaTypeError, RequestError, SchemaMismatchError
from millstream.formats.csv_text import csv_rows
from millstream.formats.json_text import json_rows
from millstream.server.answers import ARROW, json_answer
from millstream.server.bodies import json_object, read_body, taken

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from millstream.engine.session import Session
    from millstream.server.roles import Identity
    from millstream.server.service import Service

MEDIA_TYPES: Final = ("application/json", "application/x-ndjson", "text/csv", ARROW)
_LONGEST_KEY: Final = 255


async def push(service: Service, request: Request, identity: Identity) -> Response:
    """Add the rows of the body to a source or a table."""
    identity.check("push rows")  # before the body is read
    name: str = request.path_params["name"]
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media not in MEDIA_TYPES:
        raise MediaTypeError(
            f"cannot read {media or 'a body without Content-Type'}"[:200],
            hint=f"one of {', '.join(MEDIA_TYPES)}",
        )
    key, replace = _key(request), _replaces(request)
    body = await read_body(request, service.settings.limits)

    def insert() -> dict[str, Any]:
        with service.session(identity) as session:
            data = rows_of(session, name, media, body)
            if key is None:
                count = session.insert(name, data, replace=replace)
                return {"rows": count}
            done = session.insert_once(name, data, key, replace=replace)
            return {"rows": done.rows, "lsn": session.lsn, "repeated": done.repeated}

    return json_answer(await service.inserts.run(insert, service.owner(identity)))


def _replaces(request: Request) -> bool:
    given = request.query_params.get("replace", "false")
    if given not in {"true", "false"}:
        raise RequestError("replace is true or false")
    return given == "true"


async def watermark(service: Service, request: Request, identity: Identity) -> Response:
    """Promise that no row that comes after this is older than a time."""
    identity.check("set a watermark")
    name: str = request.path_params["name"]
    found = json_object(await read_body(request, service.settings.limits))
    (given,) = taken(found, watermark=(str, int))
    if given is None:
        raise RequestError("there is no watermark", hint='{"watermark": "2026-01-31T00:00:00Z"}')
    try:
        moment = datetime.fromisoformat(given) if isinstance(given, str) else given
    except ValueError as error:
        raise RequestError("watermark is a time in ISO 8601, or microseconds") from error

    def advance() -> dict[str, Any]:
        with service.session(identity) as session, session.source(name) as source:
            source.watermark(moment)
            return {"lsn": source.flush()}

    return json_answer(await service.inserts.run(advance, service.owner(identity)))


def _key(request: Request) -> str | None:
    given = request.headers.getlist("idempotency-key")
    if not given:
        return None
    if len(given) > 1 or not 0 < len(given[0]) <= _LONGEST_KEY:
        raise RequestError(
            f"Idempotency-Key is once, and has 1 to {_LONGEST_KEY} characters",
            hint="such as a UUID",
        )
    return given[0]


def rows_of(session: Session, name: str, media: str, body: bytes) -> Any:  # noqa: ANN401
    """The rows of a body, in a form that ``insert`` takes.

    Raises:
        SchemaMismatchError: it is not what its media type says.
        RowError: a value that does not fit; it names the row and the column.
    """
    schema = session.schema(name)
    if media == ARROW:
        return _table(body)
    if media == "text/csv":
        return [row for batch in csv_rows(body, schema) for row in batch.held_rows]
    return json_rows(body, schema)


def _table(body: bytes) -> pa.Table:
    try:
        with pa.ipc.open_stream(body) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, ValueError, OSError, MemoryError) as error:
        raise SchemaMismatchError(
            f"the body is not an Arrow IPC stream: {str(error)[:200]}",
            hint="pyarrow.ipc.new_stream writes one",
        ) from error
    return table
