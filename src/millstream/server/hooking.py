"""``/v1/webhooks``: add, list, remove and replay webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import RequestError
from millstream.server.answers import json_answer
from millstream.server.bodies import json_object, read_body, taken
from millstream.server.webhooks import Webhook

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from millstream.server.roles import Identity
    from millstream.server.service import Service
    from millstream.subscriptions import OwnedName


async def listed(service: Service, _: Request, identity: Identity) -> Response:
    """The webhooks, without their secrets."""
    identity.check("see webhooks")
    return json_answer({"webhooks": service.webhooks.shown(identity.tenant)})


async def add(service: Service, request: Request, identity: Identity) -> Response:
    """Add one; the answer has its secret, this once."""
    identity.check("change webhooks")
    found = json_object(await read_body(request, service.settings.limits))
    name, sql, url, secret, attempts, rows = taken(
        found, name=str, sql=str, url=str, secret=str, attempts=int, max_rows=int
    )
    if not (name and sql and url):
        raise RequestError("name, sql and url are needed")
    wanted = Webhook(
        name,
        sql,
        url,
        secret or "",
        identity.tenant,
        8 if attempts is None else attempts,
        1000 if rows is None else rows,
    )

    made = await service.openings.run(lambda: service.webhooks.add(wanted), service.owner(identity))
    return json_answer({**made.shown(), "secret": made.secret}, 201)


async def remove(service: Service, request: Request, identity: Identity) -> Response:
    """Remove one."""
    key = _found(service, request, identity)
    await service.openings.run(lambda: service.webhooks.remove(key), service.owner(identity))
    return json_answer({"removed": key[1]})


async def replay(service: Service, request: Request, identity: Identity) -> Response:
    """Post its dead letters once more."""
    key = _found(service, request, identity)
    accepted, left = await service.inserts.run(
        service.webhooks[key].replay, service.owner(identity)
    )
    return json_answer({"accepted": accepted, "left": left})


def _found(service: Service, request: Request, identity: Identity) -> OwnedName:
    """The webhook that a request names; without a tenant, ``?tenant=`` may say whose it is."""
    identity.check("change webhooks")
    tenant = identity.tenant
    if tenant is None:
        tenant = request.query_params.get("tenant")
    return service.webhooks.find(tenant, request.path_params["name"])
