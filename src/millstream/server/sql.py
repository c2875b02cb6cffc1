"""``POST /v1/sql``: statements, one after the other; the answer is that of the last one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from starlette.responses import Response

from millstream.errors import LimitError, RequestError, SqlUnsupportedError
from millstream.formats.json_output import to_json
from millstream.server.answers import ARROW, JSON, columns_json
from millstream.server.bodies import json_object, read_body, taken
from millstream.server.roles import facts_of
from millstream.threads import deadline_of
from millstream.views.readiness import READ_SECONDS, ReadOptions

if TYPE_CHECKING:
    from starlette.requests import Request

    from millstream.engine.session import Session
    from millstream.model.result import Result
    from millstream.server.roles import Identity
    from millstream.server.service import Service
    from millstream.sql import ParameterValues


async def sql(service: Service, request: Request, identity: Identity) -> Response:
    """Run statements."""
    found = json_object(await read_body(request, service.settings.limits))
    wanted = statement_of(found)
    as_arrow = ARROW in request.headers.get("accept", "")

    def run() -> bytes:
        with service.session(identity) as session:
            result = execute(service, session, wanted)
            return arrow_of(result) if as_arrow else to_json(result_json(result)).encode()

    body = await service.statements.run(run, service.owner(identity))
    return Response(body, media_type=ARROW if as_arrow else JSON)


@dataclass(frozen=True, slots=True)
class WantedStatements:
    """What a client wants to run.

    Attributes:
        sql: the text.
        parameters: the values of its parameters.
        reads: whether it waits for views.
    """

    sql: str
    parameters: ParameterValues
    reads: ReadOptions


def statement_of(found: dict[str, Any]) -> WantedStatements:
    """The statements that a request names.

    Raises:
        RequestError: they are not there, or are something else.
        InvalidOptionError: a time-out that is no number of seconds.
    """
    text, parameters, stale_ok, timeout = taken(
        found, sql=str, params=(list, dict), stale_ok=bool, timeout=(int, float)
    )
    if not text:
        raise RequestError("there is no sql", hint='{"sql": "SELECT ...", "params": [...]}')
    deadline_of(timeout)
    seconds = READ_SECONDS if timeout is None else timeout
    return WantedStatements(text, parameters, ReadOptions(bool(stale_ok), seconds))


def execute(service: Service, session: Session, wanted: WantedStatements) -> Result:
    """Run statements, if the client's session may.

    Raises:
        RoleError: its role is too low.
        TenantError: it is a tenant, and tenants may not.
        SqlUnsupportedError: a statement that needs a connection which stays open.
        LimitError: the result is too large for an answer.
    """
    sql, parameters, reads = wanted.sql, wanted.parameters, wanted.reads
    facts = facts_of(sql, parameters)
    if facts.live or facts.listens:
        what = "LIVE SELECT" if facts.live else "LISTEN"
        raise SqlUnsupportedError(
            f"{what} needs a connection that stays open",
            hint="GET /v1/subscribe?sql=SELECT ..., or the WebSocket /v1/ws",
        )
    result = session.execute(sql, parameters, stale_ok=reads.stale_ok, timeout=reads.timeout)
    limit = service.settings.limits.result_rows
    if len(result) > limit:
        raise LimitError(
            f"the result has {len(result):,} rows, and {limit:,} are allowed",
            hint="add LIMIT, or subscribe: a snapshot comes in parts",
        )
    return result


def result_json(result: Result) -> dict[str, Any]:
    """A result as clients get it."""
    if result.status:
        return {
            "columns": [],
            "rows": [],
            "status": result.status,
            "rowcount": result.rowcount,
            "lsn": result.lsn,
        }
    return {
        "columns": columns_json(result.schema),
        "rows": list(result),
        "status": f"SELECT {len(result)}",
        "rowcount": len(result),
        "lsn": result.lsn,
        **({"catching_up": result.catching_up} if result.catching_up else {}),
    }


def arrow_of(result: Result) -> bytes:
    """A result as an Arrow IPC stream; status, count of rows and LSN are in its metadata."""
    table = pa.table({}) if result.status else result.to_arrow()
    facts = {"status": result.status, "rowcount": str(result.rowcount), "lsn": str(result.lsn)}
    if result.catching_up:
        facts["catching_up"] = json.dumps(result.catching_up)
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), **facts})
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    data: bytes = out.getvalue().to_pybytes()
    return data
