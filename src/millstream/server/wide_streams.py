"""Streams of more than one query: cuts over several, and the change bus.

Each has a subscription of its own: a cut is found for one reader, and the bus has what its reader
may see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from millstream.errors import ReceiveTimeoutError
from millstream.server.frames import (
    Frame,
    batch_frames,
    cut_frames,
    progress_frame,
    schema_json,
)
from millstream.server.streams import Stream
from millstream.server.tails import HEARTBEAT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from millstream.model.batch import ChangeBatch
    from millstream.server.wanted import Wanted
    from millstream.subscriptions import AsyncCutSubscription, AsyncSubscription


class CutStream(Stream):
    """The frames of a subscription to several queries: those of a cut, and then ``cut``."""

    def _subscribed(self, wanted: Wanted) -> AsyncSubscription:
        return self._session.subscribe_stream(
            wanted.queries, start=wanted.start, buffer_rows=wanted.buffer_rows
        )

    def _ready(self, subscription: AsyncSubscription) -> Frame:
        schemas = cast("AsyncCutSubscription", subscription).schemas
        queries = [{"query": query, **schema_json(each)} for query, each in schemas.items()]
        return Frame(
            "ready",
            token=subscription.token,
            lsn=subscription.position,
            fields={"queries": queries},
        )

    async def _all(self, subscription: AsyncSubscription) -> AsyncIterator[Frame]:
        cuts = cast("AsyncCutSubscription", subscription)
        while True:
            try:
                cut = await cuts.recv(HEARTBEAT)
            except ReceiveTimeoutError:
                yield Frame("progress", token=cuts.token, lsn=cuts.position)
                continue
            for frame in cut_frames(cut):
                yield frame


class ChangesStream(Stream):
    """The frames of the change bus; each says what its rows are of, and which columns they have."""

    def _subscribed(self, wanted: Wanted) -> AsyncSubscription:
        events = self._session.changes_stream(
            wanted.collection,
            start=wanted.start,
            backpressure=wanted.backpressure,
            buffer_rows=wanted.buffer_rows,
        )
        return events.subscription

    async def _all(self, subscription: AsyncSubscription) -> AsyncIterator[Frame]:
        while True:
            try:
                batch = await subscription.recv(HEARTBEAT)
            except ReceiveTimeoutError:
                yield progress_frame(subscription)
                continue
            for frame in batch_frames(batch, fields=self._fields(batch)):
                yield frame

    def _fields(self, batch: ChangeBatch) -> dict[str, Any]:
        return {
            "topic": batch.topic,
            "committed_at": batch.committed_at,
            "tenant": self._session.context.tenant_column(batch.topic),
            **schema_json(batch.schema),
        }
