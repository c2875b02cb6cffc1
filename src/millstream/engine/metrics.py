"""Counters of a database, and what flows where in it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from millstream.engine.show import listed
from millstream.subscriptions import InlineSubscription

if TYPE_CHECKING:
    from millstream.engine.context import Context
    from millstream.sql.statements.statement import ShowKind

_SOURCE: Final = ("producers", "pending", "pushed", "dropped")
_VIEW: Final = ("state", "rows", "changes", "lsn", "lag_rows", "late_rows", "shifts", "restarts")


def metrics(context: Context) -> dict[str, Any]:
    """Counters of the database, of each source, view and subscription."""
    engine = context.engine
    open_now = engine.registry.all()
    return {
        "lsn": engine.dispatcher.lsn,
        "durable_lsn": engine.log.durable_lsn,
        "published": engine.dispatcher.fan_out.published,
        "subscribers": len(open_now),
        "sources": _counters(context, "sources", _SOURCE),
        "views": _counters(context, "views", _VIEW) | _counters(context, "streams", _VIEW),
        "subscriptions": [
            {"id": each.id, "name": each.name, "query": each.sql, **asdict(each.metrics)}
            for each in open_now
            if not isinstance(each, InlineSubscription)
        ],
    }


def _counters(context: Context, kind: ShowKind, names: tuple[str, ...]) -> dict[str, Any]:
    """Some columns of SHOW, by the name of the object."""
    schema, rows = listed(context, kind)
    shown = [dict(zip(schema.names, row, strict=True)) for row in rows]
    return {each["name"]: {name: each[name] for name in names} for each in shown}


def topology(context: Context) -> dict[str, Any]:
    """What flows where: nodes, and edges between their names."""
    engine = context.engine
    nodes = [{"name": each.name, "kind": each.kind} for each in engine.catalog]
    edges = [
        {"from": log, "to": running.view.name}
        for running in engine.views
        for log in running.planned.inputs
    ]
    for each in engine.registry.all():
        if isinstance(each, InlineSubscription) or not each.target:
            continue
        name = each.name or f"subscription {each.id}"
        nodes.append({"name": name, "kind": "subscription"})
        edges.append({"from": each.target, "to": name})
    return {"nodes": nodes, "edges": edges}
