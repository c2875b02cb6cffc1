"""The rows of SHOW CONNECTORS and SHOW SINKS."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from millstream.model.schema import Schema

if TYPE_CHECKING:
    from millstream.engine.connections import Running
    from millstream.model.weighted_rows import Row

CONNECTORS: Final = Schema.of(
    name="VARCHAR NOT NULL",
    kind="VARCHAR NOT NULL",
    connector="VARCHAR NOT NULL",
    state="VARCHAR NOT NULL",
    rows="BIGINT NOT NULL",
    batches="BIGINT NOT NULL",
    rejected="BIGINT NOT NULL",
    lag="BIGINT",
    restarts="BIGINT NOT NULL",
    error="VARCHAR",
    dead_letters="VARCHAR",
    options="VARCHAR NOT NULL",
    metrics="VARCHAR NOT NULL",
)
SINKS: Final = Schema.of(
    name="VARCHAR NOT NULL",
    query="VARCHAR NOT NULL",
    connector="VARCHAR NOT NULL",
    state="VARCHAR NOT NULL",
    rows="BIGINT NOT NULL",
    lag="BIGINT",
    error="VARCHAR",
)


def connector(running: Running) -> Row:
    """A row of SHOW CONNECTORS; secrets are masked."""
    connection = running.connection
    supervisor, work = running.supervisor, running.work
    return (
        running.definition.name,
        running.kind,
        connection.connector,
        supervisor.state,
        work.counters.rows,
        work.counters.batches,
        work.counters.rejected,
        work.lag(),
        supervisor.restarts,
        supervisor.error,
        connection.dead_letters or None,
        json.dumps(connection.shown),
        json.dumps(work.metrics(), default=str),
    )


def sink(running: Running) -> Row:
    """A row of SHOW SINKS."""
    shown = dict(zip(CONNECTORS.names, connector(running), strict=True))
    shown["query"] = getattr(running.definition, "query", "")
    return tuple(shown[name] for name in SINKS.names)
