"""Changes to NATS JetStream, each a message with an id of its own: repeated ones are discarded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from millstream.connectors.contract import SinkConnector, SinkWriter
from millstream.connectors.messages import change_text
from millstream.connectors.sources.nats import OPTIONS, NatsClient
from millstream.formats.json_output import to_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.connectors.batches import SinkBatch

_AT_ONCE = 500


class NatsSink(SinkConnector):
    """Publishes every change as JSON to a subject that a stream keeps.

    A message has the header ``Nats-Msg-Id``, by which the stream discards what is sent again within
    its duplicate window, two minutes by default.
    """

    name = "nats"
    extra = "nats"
    options = OPTIONS

    def check(self) -> None:
        """Ask the server."""
        client = NatsClient(self.settings)
        try:
            client.stream_of(None, self.settings["subject"])
        finally:
            client.close()

    def open(self) -> NatsWriter:
        """Connect."""
        return NatsWriter(NatsClient(self.settings), self.settings["subject"], self.input.id)


class NatsWriter(SinkWriter):
    """Publishes batches."""

    def __init__(self, client: NatsClient, subject: str, sink: str) -> None:
        super().__init__()
        self._client = client
        self._subject = subject
        self._sink = sink
        self._part = 0  # of a snapshot

    def write(self, batch: SinkBatch) -> bool:
        """Publish each change, and wait until the stream has it."""
        self._client.run(self._publish(batch))
        self._part = 0 if batch.is_complete else self._part + 1
        return True

    async def _publish(self, batch: SinkBatch) -> None:
        waiting: list[Any] = []
        for name, text in self._messages(batch):
            headers = {"Nats-Msg-Id": f"{self._sink}-{name}"}
            waiting.append(
                self._client.jetstream.publish(
                    self._subject, text.encode(), headers=headers, timeout=10
                )
            )
            if len(waiting) == _AT_ONCE:
                await asyncio.gather(*waiting)
                waiting = []
        await asyncio.gather(*waiting)

    def _messages(self, batch: SinkBatch) -> Iterator[tuple[str, str]]:
        """An id and a text for each change: a change has the same whenever it is sent."""
        if batch.replaces:
            yield f"reset-{batch.token}", to_json({"op": "reset", "lsn": batch.lsn})
        names = batch.schema.names
        for number, change in enumerate(batch):
            is_state = batch.kind == "snapshot"
            name = (
                f"{batch.token}-{self._part}-{number}" if is_state else f"{change.lsn}-{change.op}"
            )
            yield name, change_text(change, names)

    def close(self) -> None:
        """Disconnect."""
        self._client.close()


CONNECTOR = NatsSink
