"""Rows from an MQTT broker: a lasting session, each message acknowledged once it is on the disk.

At least once: MQTT has no positions, so a message that was committed here, and not acknowledged
before a kill, is sent again.
"""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.contract import Option, SourceConnector, SourceReader
from millstream.connectors.messages import FORMAT, TIMESTAMP_UNIT, MessageDecoder
from millstream.connectors.registry import needs
from millstream.errors import ConnectorError, ConnectorFailedError, InvalidOptionError

if TYPE_CHECKING:
    from millstream.connectors.contract import Delivery, Settings

OPTIONS: Final = (
    Option("host", required=True, help="the broker's host"),
    Option("port", "int", default=1883, help="its port", least=1, most=65_535),
    Option("topic", required=True, help="the topic; of a source it may have + and #"),
    Option("username", help="who connects"),
    Option("password", secret=True, help="the password"),
    Option("tls", "bool", default=False, help="whether to connect by TLS"),
    Option("client_id", help="the name of the session; one of its own for each by default"),
)
_SECONDS: Final = 5.0
_REFUSED: Final = ("Bad user name or password", "Not authorized", "Client identifier not valid")


class MqttSource(SourceConnector):
    """Subscribes to a topic with QoS 1, in a session that outlives connections."""

    name = "mqtt"
    extra = "mqtt"
    options = (
        *OPTIONS,
        FORMAT,
        TIMESTAMP_UNIT,
        Option("topic_column", help="the column for the topic of a message"),
        Option(
            "max_messages", "int", default=10_000, help="taken at once, unacknowledged", least=1
        ),
    )

    def check(self) -> None:
        """Connect once."""
        check_filter(self.settings["topic"])
        MessageDecoder(self.settings, self.target.schema, ("topic_column",))
        Session(self.settings, f"check-{self.target.id}", lasting=False).close()

    def open(self, position: Any) -> MqttReader:  # noqa: ANN401, ARG002 - the broker knows
        """Connect, and subscribe."""
        return MqttReader(self)

    def drop(self, position: Any) -> None:  # noqa: ANN401, ARG002
        """Let the broker forget the session."""
        Session(self.settings, session_name(self), lasting=False).close()


def check_filter(topic: str) -> None:
    """Raise unless messages can be asked for by this.

    >>> check_filter("sensors/+/temperature/#")

    Raises:
        InvalidOptionError: a wildcard that is not a whole level, or # before the end.
    """
    levels = topic.split("/")
    is_fit = all(level in {"+", "#"} or not {"+", "#"} & set(level) for level in levels)
    if not topic or not is_fit or "#" in levels[:-1]:
        raise InvalidOptionError(
            f"topic is {topic!r}", hint="such as 'sensors/+/temperature', or 'sensors/#'"
        )


def session_name(source: MqttSource) -> str:
    """The name of a source's session."""
    return source.settings["client_id"] or f"millstream-{source.target.id}"


class MqttReader(SourceReader):
    """Takes messages as they come. A position is the number of the last one since it was opened."""

    def __init__(self, source: MqttSource) -> None:
        self._messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._most: int = source.settings["max_messages"]
        self._decoder = MessageDecoder(source.settings, source.target.schema, ("topic_column",))
        self._taken = self._acknowledged = 0
        self._unacknowledged: list[Any] = []
        self._session = Session(
            source.settings, session_name(source), on_message=self._messages.put, most=self._most
        )
        self._session.subscribe(source.settings["topic"])

    def read(self, timeout: float) -> Delivery | None:
        """The messages that have come."""
        found: list[Any] = []
        try:
            found.append(self._messages.get(timeout=timeout))
            while len(found) < self._most:
                found.append(self._messages.get_nowait())
        except queue.Empty:
            self._session.check()
        if not found:
            return None
        self._taken += len(found)
        self._unacknowledged += found
        topics = [each.topic for each in found]
        return self._decoder.delivery(
            [bytes(each.payload) for each in found],
            self._taken,
            metadata={"topic_column": topics},
            origins=topics,
        )

    def committed(self, position: Any) -> None:  # noqa: ANN401
        """Acknowledge the messages up to a position."""
        count = position - self._acknowledged
        for each in self._unacknowledged[:count]:
            self._session.acknowledge(each)
        del self._unacknowledged[:count]
        self._acknowledged = position

    def lag(self) -> int | None:
        """How many messages have come, and are not read."""
        return self._messages.qsize()

    def close(self) -> None:
        """Disconnect; the session stays."""
        self._session.close()


class Session:
    """A connection to a broker.

    Args:
        settings: the options.
        name: of the session.
        lasting: whether the broker keeps it, and what comes meanwhile, after this connection.
        on_message: called, by another thread, with each message.
        most: so many messages may be unacknowledged.

    Raises:
        ConnectorFailedError: the broker refuses it.
        ConnectorError: the broker does not answer.
    """

    def __init__(
        self,
        settings: Settings,
        name: str,
        *,
        lasting: bool = True,
        on_message: Any = None,  # noqa: ANN401
        most: int = 1,
    ) -> None:
        mqtt = needs("paho.mqtt.client", "mqtt")
        properties = needs("paho.mqtt.properties", "mqtt").Properties(
            needs("paho.mqtt.packettypes", "mqtt").PacketTypes.CONNECT
        )
        properties.SessionExpiryInterval = 0xFFFFFFFF if lasting else 0
        properties.ReceiveMaximum = min(most, 65_535)
        self._events: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._subscribed: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        self._lost = ""
        self.client = client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, name, protocol=mqtt.MQTTv5, manual_ack=True
        )
        if settings["username"] is not None:
            client.username_pw_set(settings["username"], settings["password"])
        if settings["tls"]:
            client.tls_set()
        client.on_connect = lambda *given: self._events.put(str(given[3]))
        client.on_subscribe = lambda *given: self._subscribed.put(given[3])
        client.on_disconnect = self._disconnected
        if on_message is not None:
            client.on_message = lambda *given: on_message(given[2])
        try:
            client.connect(
                settings["host"], settings["port"], clean_start=not lasting, properties=properties
            )
        except (OSError, ValueError) as error:
            raise ConnectorError(
                f"cannot connect to {settings['host']}:{settings['port']}: {error}",
                hint="is the broker running?",
            ) from error
        client.loop_start()
        self._await_connection()

    def _await_connection(self) -> None:
        try:
            answer = self._events.get(timeout=_SECONDS)
        except queue.Empty:
            answer = "no answer"
        if answer != "Success":
            self.close()
            kind = ConnectorFailedError if answer in _REFUSED else ConnectorError
            raise kind(f"the broker refuses the connection: {answer}", hint="username, password?")

    def _disconnected(self, *given: Any) -> None:  # noqa: ANN401 - of paho
        self._lost = str(given[3])

    def check(self) -> None:
        """Raise if the connection was lost.

        Raises:
            ConnectorError: it was.
        """
        if self._lost:
            raise ConnectorError(f"the connection was lost: {self._lost}")

    def subscribe(self, topic: str) -> None:
        """Have the messages of a topic sent.

        Raises:
            ConnectorFailedError: the broker refuses that.
        """
        result, _ = self.client.subscribe(topic, qos=1)
        try:
            codes = self._subscribed.get(timeout=_SECONDS) if not result else ["not connected"]
        except queue.Empty:
            raise ConnectorError("the broker does not answer") from None
        if any(getattr(each, "is_failure", True) for each in codes):
            raise ConnectorFailedError(
                f"cannot subscribe to {topic!r}: {codes[0]}", hint="may this user read it?"
            )

    def acknowledge(self, message: Any) -> None:  # noqa: ANN401 - of paho
        """Tell the broker that a message is safe."""
        self.client.ack(message.mid, message.qos)

    def close(self) -> None:
        """Disconnect."""
        self.client.disconnect()
        self.client.loop_stop()


CONNECTOR = MqttSource
