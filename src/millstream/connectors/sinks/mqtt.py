"""Changes to an MQTT topic, each a message with QoS 1: at least once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.connectors.contract import SinkConnector, SinkWriter
from millstream.connectors.messages import change_texts
from millstream.connectors.sources.mqtt import OPTIONS, Session
from millstream.errors import ConnectorError, InvalidOptionError

if TYPE_CHECKING:
    from millstream.connectors.batches import SinkBatch

_SECONDS = 30.0


class MqttSink(SinkConnector):
    """Publishes every change as JSON, and waits until the broker has it."""

    name = "mqtt"
    extra = "mqtt"
    options = OPTIONS

    def check(self) -> None:
        """Connect once."""
        if set("+#") & set(self.settings["topic"]):
            raise InvalidOptionError(
                f"topic is {self.settings['topic']!r}", hint="one topic, without + and #"
            )
        Session(self.settings, f"check-{self.input.id}", lasting=False).close()

    def open(self) -> MqttWriter:
        """Connect."""
        name = self.settings["client_id"] or f"millstream-{self.input.id}"
        return MqttWriter(Session(self.settings, name, lasting=False), self.settings["topic"])


class MqttWriter(SinkWriter):
    """Publishes batches."""

    def __init__(self, session: Session, topic: str) -> None:
        super().__init__()
        self._session = session
        self._topic = topic

    def write(self, batch: SinkBatch) -> bool:
        """Publish each change, and wait for the broker."""
        self._session.check()
        client = self._session.client
        sent = [client.publish(self._topic, text, qos=1) for text in change_texts(batch)]
        for each in sent:
            each.wait_for_publish(_SECONDS)
            if not each.is_published():
                raise ConnectorError("the broker has not taken a message", hint="it is sent again")
        return True

    def close(self) -> None:
        """Disconnect."""
        self._session.close()


CONNECTOR = MqttSink
