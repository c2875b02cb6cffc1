"""``/metrics``: the counters of the database and of the server, as Prometheus reads them.

No label has text of a query, or a value of a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from millstream import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.requests import Request

    from millstream.server.measures import Measures
    from millstream.server.roles import Identity
    from millstream.server.service import Service

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = dict[str, Any]
_OF_SOURCES = (
    ("rows_total", "counter", "pushed", "Rows that were taken in."),
    ("dropped_total", "counter", "dropped", "Rows that a full buffer has dropped."),
    ("pending_rows", "gauge", "pending", "Items that wait to be committed."),
    ("producers", "gauge", "producers", "Open handles that push."),
)
_OF_VIEWS = (
    ("rows", "gauge", "rows", "Current rows."),
    ("changes_total", "counter", "changes", "Changes that were emitted."),
    ("lag_rows", "gauge", "lag_rows", "Rows of its inputs that it has not taken in."),
    ("late_rows_total", "counter", "late_rows", "Rows that came after their window had closed."),
    ("restarts_total", "counter", "restarts", "Restarts of its query."),
)
_OF_CONNECTORS = (
    ("rows_total", "counter", "rows", "Rows delivered to the log, or stored outside."),
    ("batches_total", "counter", "batches", "Deliveries, or batches."),
    ("rejected_total", "counter", "rejected", "Records that went to the dead letters."),
    ("restarts_total", "counter", "restarts", "Attempts after an error."),
)
_OF_SUBSCRIPTIONS = (
    ("delivered_total", "counter", "delivered", "Rows that were handed over."),
    ("dropped_total", "counter", "dropped", "Rows that were dropped, each reported in a gap."),
    ("conflated_total", "counter", "conflated", "Rows that later ones have replaced."),
    ("lag_rows", "gauge", "lag_rows", "Rows that were not handed over yet."),
    ("lag_seconds", "gauge", "lag_seconds", "Age of the oldest of them."),
)


async def metrics(service: Service, _: Request, identity: Identity) -> Response:
    """The counters; not for tenants, since they are of all."""
    identity.check("see metrics")
    found = await service.statements.run(service.database.metrics, service.owner(identity))
    text = Exposition()
    _database(text, found)
    _server(text, service)
    return Response(text.text(), media_type=MEDIA_TYPE)


class Exposition:
    """Prometheus' text format, written metric by metric."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, name: str, kind: str, about: str, samples: Iterable[tuple[Labels, Any]]) -> None:
        """Add a metric, with a value for each set of labels."""
        name = f"millstream_{name}"
        self._lines += (f"# HELP {name} {about}", f"# TYPE {name} {kind}")
        for labels, value in samples:
            shown = ",".join(f'{key}="{_escaped(each)}"' for key, each in labels.items())
            self._lines.append(f"{name}{{{shown}}} {value}" if shown else f"{name} {value}")

    def text(self) -> str:
        """All of them."""
        return "\n".join([*self._lines, ""])


def _escaped(value: object) -> str:
    return str(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _database(text: Exposition, found: dict[str, Any]) -> None:
    text.add("lsn", "gauge", "The newest LSN.", [({}, found["lsn"])])
    text.add("durable_lsn", "gauge", "The newest LSN on the disk.", [({}, found["durable_lsn"])])
    sources, views, subscriptions = found["sources"], found["views"], found["subscriptions"]
    for name, kind, field, about in _OF_SOURCES:
        samples = [({"source": each}, counts[field]) for each, counts in sources.items()]
        text.add(f"source_{name}", kind, about, samples)
    for name, kind, field, about in _OF_VIEWS:
        samples = [({"view": each}, counts[field]) for each, counts in views.items()]
        text.add(f"view_{name}", kind, about, samples)
    states = [({"view": each, "state": counts["state"]}, 1) for each, counts in views.items()]
    text.add("view_state", "gauge", "1 for the state that a view is in.", states)
    _connectors(text, found["connectors"])
    for name, kind, field, about in _OF_SUBSCRIPTIONS:
        samples = [
            ({"id": each["id"], "name": each["name"] or ""}, each[field]) for each in subscriptions
        ]
        text.add(f"subscription_{name}", kind, about, samples)


def _connectors(text: Exposition, connectors: dict[str, Any]) -> None:
    def labels(name: str, counts: dict[str, Any]) -> Labels:
        return {"name": name, "kind": counts["kind"], "connector": counts["connector"]}

    for name, kind, field, about in _OF_CONNECTORS:
        samples = [(labels(each, counts), counts[field]) for each, counts in connectors.items()]
        text.add(f"connector_{name}", kind, about, samples)
    lags = [
        (labels(each, counts), counts["lag"])
        for each, counts in connectors.items()
        if counts["lag"] is not None
    ]
    text.add("connector_lag", "gauge", "How far it is behind, in its own unit.", lags)
    states = [
        ({**labels(each, counts), "state": counts["state"]}, 1)
        for each, counts in connectors.items()
    ]
    text.add("connector_state", "gauge", "1 for the state that a connector is in.", states)


def _server(text: Exposition, service: Service) -> None:
    measures = service.measures
    text.add("info", "gauge", "The version.", [({"version": __version__}, 1)])
    _latencies(text, measures)
    text.add(
        "http_requests_total",
        "counter",
        "Requests, by route and status.",
        [({"route": r, "status": s}, count) for (r, s), count in measures.requests.items()],
    )
    text.add(
        "http_request_seconds_total",
        "counter",
        "How long requests took, in all.",
        [({"route": route}, round(value, 6)) for route, value in measures.seconds.items()],
    )
    text.add(
        "frames_sent_total",
        "counter",
        "Frames that were sent to subscribers.",
        [({"type": each}, count) for each, count in measures.frames.items()],
    )
    text.add("websockets", "gauge", "Open WebSockets.", [({}, measures.connections)])
    open_now = service.gate.subscriptions
    text.add("client_subscriptions", "gauge", "Subscriptions of clients.", [({}, open_now)])
    pools = {
        "sql": service.statements.pending,
        "open": service.openings.pending,
        "insert": service.inserts.pending,
    }
    text.add(
        "pending_calls",
        "gauge",
        "Calls that run or wait for a thread.",
        [({"pool": name}, count) for name, count in pools.items()],
    )


def _latencies(text: Exposition, measures: Measures) -> None:
    samples = [
        ({"relation": target, "quantile": quantile}, f"{value:.6f}")
        for target, values in measures.latencies().items()
        for quantile, value in zip(("0.5", "0.99"), values, strict=True)
    ]
    about = "From the commit of a batch to its frames, of the last 512 batches."
    text.add("delivery_seconds", "gauge", about, samples)
