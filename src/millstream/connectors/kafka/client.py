"""Clients of librdkafka: their options, their settings, and their errors as ours."""

from __future__ import annotations

import difflib
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.contract import Option
from millstream.connectors.registry import needs
from millstream.errors import ConnectorError, ConnectorFailedError, InvalidOptionError

if TYPE_CHECKING:
    from millstream.connectors.contract import Settings

EXTRA: Final = "kafka"
ASK_SECONDS: Final = 10.0
"""How long a question to the brokers may take."""
_GLANCE_SECONDS: Final = 0.5

OPTIONS: Final = (
    Option("brokers", required=True, help="host:port, several with commas"),
    Option("kafka.sasl.password", secret=True, help="of SASL"),
    Option("kafka.ssl.key.password", secret=True, help="of the key of TLS"),
    Option("kafka.ssl.key.pem", secret=True, help="the key of TLS itself"),
    Option("kafka.ssl.keystore.password", secret=True, help="of the key store of TLS"),
    Option("kafka.sasl.oauthbearer.client.secret", secret=True, help="of OAuth"),
    Option("kafka.*", help="any setting of librdkafka, such as kafka.security.protocol"),
)
REGISTRY_OPTIONS: Final = (
    Option("schema_registry", help="URL of the schema registry, for Avro"),
    Option("schema_registry_user", help="of its basic authentication"),
    Option("schema_registry_password", secret=True, help="of its basic authentication"),
)

_OURS: Final = {
    "bootstrap.servers": "write brokers = 'host:port'",
    "group.id": "offsets are kept in the log, with the rows; there is no group",
    "enable.auto.commit": "offsets are kept in the log, with the rows",
    "enable.auto.offset.store": "offsets are kept in the log, with the rows",
    "auto.offset.reset": "write start = 'latest', and on_lost = 'earliest'",
    "enable.partition.eof": "the source does not end",
    "transactional.id": "it is made of the sink's id",
    "enable.idempotence": "a transactional producer is idempotent",
}
_logger = logging.getLogger("millstream.connectors.kafka")


def client_settings(settings: Settings) -> dict[str, Any]:
    """What all clients of a connector are made with.

    Raises:
        InvalidOptionError: a setting that the connector decides itself.
    """
    given = {name: value for name, value in settings.under("kafka.").items() if value is not None}
    for name, instead in _OURS.items():
        if name in given:
            raise InvalidOptionError(f"kafka.{name} cannot be set", hint=instead)
    # What goes wrong is raised, and shown with the connector; its log would only repeat it.
    ours = {"client.id": "millstream", "log_level": 2}
    return ours | given | {"bootstrap.servers": settings["brokers"]}


class Errors:
    """Collects what librdkafka reports beside its answers: why brokers cannot be reached.

    Attributes:
        last: the last of them.
    """

    def __init__(self) -> None:
        self.last: Any = None

    def __call__(self, error: Any) -> None:  # noqa: ANN401 - a KafkaError
        """Take one."""
        code = error.name()
        if self.last is None or code != "_ALL_BROKERS_DOWN":
            self.last = error


def consumer(settings: dict[str, Any], errors: Errors) -> Any:  # noqa: ANN401 - a Consumer
    """A consumer that follows no group."""
    driver = needs("confluent_kafka", EXTRA)
    ours = {
        "group.id": "millstream",  # which it must have, and does nothing with
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "max.poll.interval.ms": 86_400_000,
        "fetch.queue.backoff.ms": 5,
        "queued.min.messages": 500_000,
        "error_cb": errors,
    }
    return made(lambda: driver.Consumer(ours | settings, logger=_logger))


def made(make: Any) -> Any:  # noqa: ANN401 - a client
    """A client; what librdkafka says of its settings is an error of ours."""
    driver = needs("confluent_kafka", EXTRA)
    try:
        return make()
    except driver.KafkaException as error:
        reason = error.args[0].str()
        raise InvalidOptionError(
            f"librdkafka does not take the settings: {reason}",
            hint="see the options that begin with kafka.",
        ) from None


def topics_of(client: Any, errors: Errors) -> dict[str, list[int]]:  # noqa: ANN401
    """The topics that there are, with their partitions.

    Raises:
        ConnectorError: no broker answers.
    """
    driver = needs("confluent_kafka", EXTRA)
    try:
        found = client.list_topics(timeout=ASK_SECONDS)
    except driver.KafkaException as error:
        raise unreachable(error, errors) from None
    return {name: sorted(topic.partitions) for name, topic in found.topics.items()}


def first_contact(client: Any, errors: Errors) -> dict[str, list[int]]:  # noqa: ANN401
    """As ``topics_of``, of a client that is not assigned anything: it fails as soon as it is clear.

    librdkafka reports why it is not connected only while it is polled.
    """
    driver = needs("confluent_kafka", EXTRA)
    deadline = time.monotonic() + ASK_SECONDS
    while True:
        try:
            found = client.list_topics(timeout=_GLANCE_SECONDS)
        except driver.KafkaException as error:
            client.poll(0)
            if errors.last is not None or time.monotonic() > deadline:
                raise unreachable(error, errors) from None
        else:
            return {name: sorted(topic.partitions) for name, topic in found.topics.items()}


def unreachable(error: Any, errors: Errors) -> ConnectorError:  # noqa: ANN401 - a KafkaException
    """The error for brokers that do not answer, or do not want to."""
    found = errors.last or error.args[0]
    name, reason = found.name(), found.str()
    if name in {"_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED"}:
        return ConnectorError(
            f"the brokers refuse the login: {reason}",
            hint="check kafka.sasl.username, kafka.sasl.password and kafka.sasl.mechanism",
        )
    if name == "_SSL":
        return ConnectorError(
            f"no TLS connection to the brokers: {reason}",
            hint="check kafka.security.protocol and kafka.ssl.ca.location",
        )
    if name not in {"_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN", "_RESOLVE"}:
        return as_ours(found)
    return ConnectorError(
        f"no broker answers: {reason}",
        hint="check brokers = 'host:port', and kafka.security.protocol if they expect TLS or SASL",
    )


def missing_topic(topic: str, known: list[str]) -> ConnectorError:
    """The error for a topic that is not there."""
    near = difflib.get_close_matches(topic, known, 1)
    did = f"did you mean {near[0]!r}? " if near else ""
    return ConnectorError(
        f"there is no topic {topic!r}",
        hint=f"{did}create it; or its name is another, or may not be seen by this user",
    )


def as_ours(error: Any) -> ConnectorError:  # noqa: ANN401 - a KafkaError
    """An error of librdkafka as one of ours: fatal ones are not tried again."""
    kind = ConnectorFailedError if error.fatal() else ConnectorError
    return kind(f"{error.name()}: {error.str()}", hint="as the brokers or librdkafka report it")
