"""What exists, and how it is: ``/v1/catalog``, ``/v1/topology``, ``/health``, ``/ready``.

And why it is so: ``/v1/cause/{lsn}``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream import __version__
from millstream.engine import show
from millstream.errors import Error, RequestError
from millstream.model.names import quote_name
from millstream.server.answers import columns_json, json_answer

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from millstream.server.roles import Identity
    from millstream.server.service import Service

_KINDS = ("sources", "tables", "views", "streams")


async def catalog(service: Service, _: Request, identity: Identity) -> Response:
    """Sources, tables, views and streams, each with its columns and what SHOW says of it."""

    def listed() -> dict[str, Any]:
        with service.session(identity) as session:
            found: dict[str, Any] = {"lsn": session.lsn}
            for kind in _KINDS:
                rows = session.query(f"SHOW {kind.upper()}").to_pylist()
                for row in rows:
                    row["schema"] = _columns(session.query(f"DESCRIBE {quote_name(row['name'])}"))
                found[kind] = rows
            return found

    return json_answer(await service.statements.run(listed, service.owner(identity)))


def _columns(described: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - a Result
    return [
        {"name": name, "type": of, "nullable": nullable, "key": key}
        for name, of, nullable, key in described
    ]


async def topology(service: Service, _: Request, identity: Identity) -> Response:
    """What flows where; to a tenant, among the relations that it may see."""

    def drawn() -> dict[str, Any]:
        with service.session(identity) as session:
            return show.topology(session.context)

    return json_answer(await service.statements.run(drawn, service.owner(identity)))


async def cause(service: Service, request: Request, identity: Identity) -> Response:
    """By source and table, the changes that led to a change of a view."""
    identity.check("see causes")
    text: str = request.path_params["lsn"]
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise RequestError("the LSN of a change is a number", hint="GET /v1/cause/42")

    def led() -> dict[str, Any]:
        with service.session(identity) as session:
            found = session.cause(int(text))
        return {
            name: {
                "columns": columns_json(changes[0].schema),
                "key": list(changes[0].schema.key),
                "changes": [
                    {"op": each.op, "row": each.row, "before": each.before, "lsn": each.lsn}
                    for each in changes
                ],
            }
            for name, changes in found.items()
            if changes
        }

    return json_answer(await service.statements.run(led, service.owner(identity)))


async def health(_service: Service, _: Request) -> Response:
    """Whether the process is there."""
    return json_answer({"status": "ok", "version": __version__})


async def ready(service: Service, _: Request) -> Response:
    """Whether it takes and answers requests: the database is open, and its log takes rows."""
    try:
        if service.is_stopping:
            return json_answer({"status": "stopping"}, 503)
        lsn = service.database.lsn
        await service.statements.run(lambda: service.database.query("SHOW TABLES LIKE ''"))
    except Error as error:
        return json_answer({"status": "failing", "code": error.code}, 503)
    return json_answer({"status": "ready", "lsn": lsn})
