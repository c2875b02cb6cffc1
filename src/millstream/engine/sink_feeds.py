"""The feeds of sinks: durable subscriptions, as the runtime of connectors reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from millstream.connectors.registry import sink_connector
from millstream.engine import subscribe
from millstream.engine.connections import SINK_PREFIX
from millstream.engine.deliveries import letters
from millstream.errors import ConnectorError
from millstream.sql import parse
from millstream.subscriptions import SubscribeOptions, Subscription

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.catalog import SinkDefinition
    from millstream.connectors.contract import Rejected, Settings
    from millstream.engine.context import Context
    from millstream.engine.engine import Engine
    from millstream.model.batch import ChangeBatch
    from millstream.model.schema import Schema
    from millstream.sql import Select


def selected(query: str) -> Select:
    """The SELECT of a sink, which was checked when it was created."""
    return cast("Select", parse(query)[0])


class SinkFeeds:
    """Opens the feeds of sinks: durable subscriptions."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def input(self, sink: SinkDefinition) -> tuple[Schema, bool]:
        """The columns that a sink reads, and whether its rows may change."""
        definition, plan = subscribe.planned(self._context, selected(sink.query))
        retracts = self._context.engine.views.planner.input(definition.name).retracts
        return plan.schema, retracts

    def subscribe(
        self, sink: SinkDefinition, settings: Settings, *, exactly: bool, token: str | None
    ) -> SubscribedSink:
        """The feed of a sink: ``exactly`` after a token, or from the start; else after its ack.

        Where "now" is was decided when the sink was created: its name has a position since then.
        """
        engine = self._context.engine
        made = sink_connector(sink.connection.connector)
        definition = engine.catalog[sink.relation]
        has_rows = definition.kind in {"table", "view"}
        start = settings["start"] or ("snapshot" if has_rows else "earliest")
        rows, delay = settings["batch_rows"], settings["batch_delay"]
        options = SubscribeOptions(
            start=token if exactly and token is not None else start,
            name=SINK_PREFIX + sink.name,
            max_rows=made.batch_rows if rows is None else rows,
            max_delay=made.batch_delay if delay is None else delay,
            reset=exactly and not (token is None and start == "now"),
        )
        opened = subscribe.query(self._context, Subscription, selected(sink.query), options=options)
        return SubscribedSink(engine, opened, sink)


@dataclass(frozen=True, slots=True)
class SubscribedSink:
    """The feed of a sink that is open."""

    engine: Engine
    subscription: Subscription
    sink: SinkDefinition

    def recv(self, timeout: float) -> ChangeBatch:
        """The next batch, which is on the disk; ReceiveTimeoutError when none came.

        Subscribers get changes before the disk has them. A sink must not: after a crash its token
        would be ahead of the log, and what the log has there later would be skipped.
        """
        batch = self.subscription.recv(timeout)
        if self.engine.log.durable_lsn < batch.lsn:
            self.engine.flush()
        return batch

    def ack(self, batch: ChangeBatch) -> None:
        """Everything up to a batch is stored."""
        self.subscription.ack(batch)

    def reject(self, rejected: Sequence[Rejected]) -> None:
        """Put rows into the dead letters; they are on the disk when this returns."""
        name = self.sink.connection.dead_letters
        if not name:
            raise ConnectorError(f"a row was rejected: {rejected[0].reason}")
        batch = letters(rejected, self.engine.log.clock())
        self.engine.dispatcher.commit([(name, batch)], sync=True)

    def lag_rows(self) -> int:
        """How many rows wait."""
        return self.subscription.metrics.lag_rows

    def cancel(self) -> None:
        """End it."""
        self.subscription.cancel()
