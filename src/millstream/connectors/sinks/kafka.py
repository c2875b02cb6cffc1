"""``connector = 'kafka'``: changes into a topic, in transactions, exactly once.

The token of a batch is a message of a compacted topic, in the transaction of the batch's messages.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.contract import Option, SinkConnector, SinkWriter
from millstream.connectors.kafka.client import (
    ASK_SECONDS,
    EXTRA,
    OPTIONS,
    REGISTRY_OPTIONS,
    Errors,
    as_ours,
    client_settings,
    first_contact,
    made,
    missing_topic,
    unreachable,
)
from millstream.connectors.kafka.encoding import Encoder, Record
from millstream.connectors.kafka.schema_registry import SchemaRegistry
from millstream.connectors.kafka.tokens import create_tokens, create_topic, last_token, live_values
from millstream.connectors.registry import needs
from millstream.errors import ConnectorError, ConnectorFailedError, InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.connectors.batches import SinkBatch
    from millstream.connectors.contract import SinkInput

_COMMIT_SECONDS: Final = 60.0
_FENCED: Final = {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}


class KafkaSink(SinkConnector):
    """Writes to a topic."""

    name = "kafka"
    extra = EXTRA
    transactional = True
    options = (
        *OPTIONS,
        Option("topic", required=True, help="where the changes go"),
        Option("mode", "choice", choices=("append", "upsert", "debezium"), help="what is written"),
        Option("format", "choice", default="json", choices=("json", "avro"), help="of messages"),
        Option("key_format", "choice", choices=("json", "text"), help="of keys; as the format"),
        Option(
            "create_topic",
            "int",
            help="create it with so many partitions if it is missing",
            least=1,
        ),
        Option("token_topic", default="__millstream_sinks", help="compacted; of all sinks' tokens"),
        *REGISTRY_OPTIONS,
    )

    @property
    def mode(self) -> str:
        """What is written: as given, or upsert where rows change and append where they do not."""
        return str(self.settings["mode"] or ("upsert" if self.input.retracts else "append"))

    def check(self) -> None:
        """Whether the brokers answer and have the topic, and the mode fits what is read."""
        mode, given = self.mode, self.input
        if mode == "upsert" and not given.schema.key:
            raise InvalidOptionError(
                f"{given.relation} has no key, so its rows cannot be updated",
                hint="mode = 'debezium', or select the key of the table or view",
            )
        if mode == "debezium" and self.settings["format"] != "json":
            raise InvalidOptionError(
                "mode = 'debezium' is written as JSON", hint="leave format out"
            )
        if self.settings["key_format"] == "text" and len(given.schema.key) != 1:
            raise InvalidOptionError(
                "key_format = 'text' is for a key of one column", hint="leave it out: JSON"
            )
        client, driver = client_settings(self.settings), needs("confluent_kafka", EXTRA)
        made(lambda: driver.Producer({"transactional.id": "checked"} | client))  # not connected
        self.find_topic()
        if self.settings["format"] == "avro":
            Encoder(self.input, self.settings, SchemaRegistry.of(self.settings))

    def find_topic(self) -> None:
        """Raise if there is no topic, unless it is to be created."""
        admin = needs("confluent_kafka.admin", EXTRA)
        settings, topic = client_settings(self.settings), self.settings["topic"]
        errors = Errors()
        client = made(lambda: admin.AdminClient({**settings, "error_cb": errors}))
        known = first_contact(client, errors)
        if topic not in known:
            if not self.settings["create_topic"]:
                raise missing_topic(topic, list(known))
            create_topic(settings, topic, partitions=self.settings["create_topic"])

    def open(self) -> SinkWriter:
        """Connect, and end what an earlier producer of this sink has left."""
        self.find_topic()
        return _Writer(self)

    def drop(self) -> None:
        """Remove the token; the topic stays."""
        driver = needs("confluent_kafka", EXTRA)
        producer = driver.Producer(client_settings(self.settings))
        producer.produce(self.settings["token_topic"], None, self.input.id.encode(), 0)
        producer.flush(ASK_SECONDS)


class _Writer(SinkWriter):
    """A transactional producer."""

    def __init__(self, connector: KafkaSink) -> None:
        super().__init__()
        settings = connector.settings
        self._driver = needs("confluent_kafka", EXTRA)
        self._client = client_settings(settings)
        self._topic = settings["topic"]
        self._tokens = settings["token_topic"]
        self._mode = connector.mode
        self._given: SinkInput = connector.input
        self._errors = Errors()
        registry = SchemaRegistry.of(settings) if settings["format"] == "avro" else None
        self._encoder = Encoder(connector.input, settings, registry)
        self._encode = {
            "append": self._encoder.appended,
            "upsert": self._encoder.upserted,
            "debezium": self._encoder.enveloped,
        }[connector.mode]
        self._stale: dict[bytes, bytes] = {}
        self._has_token = self._is_open = False
        create_tokens(self._client, self._tokens)
        ours = {
            "transactional.id": f"millstream-{connector.input.id}",
            "partitioner": "murmur2_random",  # as Java's producers have it
            "linger.ms": 0,
            "error_cb": self._errors,
        }
        self._producer = made(lambda: self._driver.Producer(ours | self._client))
        self._run(self._producer.init_transactions, _COMMIT_SECONDS)

    def position(self) -> str | None:
        """The token of the last transaction that was committed."""
        token = last_token(self._client, self._tokens, self._given.id)
        self._has_token = token is not None
        return token

    def write(self, batch: SinkBatch) -> bool:
        """Write a batch, and commit it with its token; a snapshot is one transaction."""
        if batch.replaces:
            self._abort()
        if not self._is_open:
            self._run(self._producer.begin_transaction)
            self._is_open = True
        if batch.replaces:
            self._begin_again()
        for record in self._encode(batch):
            if record.key is not None:
                self._stale.pop(record.key, None)
            self._produce(self._topic, record)
        if not batch.is_complete:
            return False
        self._remove_stale()
        self._produce(self._tokens, Record(self._given.id.encode(), batch.token.encode()), 0)
        self._run(self._producer.commit_transaction, _COMMIT_SECONDS)
        self._is_open, self._has_token, self._stale = False, True, {}
        return True

    def _begin_again(self) -> None:
        """A snapshot takes the place of everything: what it does not have is to disappear."""
        if not self._has_token:
            return
        if self._mode == "append" or not self._given.schema.key:
            raise ConnectorFailedError(
                "rows were lost between the log and the topic, whose messages have no keys",
                hint="DROP SINK and create it again, with another topic or start = 'now'",
            )
        self._stale = live_values(self._client, self._topic)

    def _remove_stale(self) -> None:
        for key, value in self._stale.items():
            gone: Iterable[Record] = [Record(key, None)]
            if self._mode == "debezium":
                gone = self._encoder.removed(key, value)
            for record in gone:
                self._produce(self._topic, record)

    def _produce(self, topic: str, record: Record, partition: int = -1) -> None:
        while True:
            try:
                self._producer.produce(topic, record.value, record.key, partition)
            except BufferError:  # the queue is full: let some of it go out
                self._producer.poll(0.1)
            except self._driver.KafkaException as error:
                raise self._ours(error) from None
            else:
                return

    def _run(self, step: Any, *arguments: float) -> None:  # noqa: ANN401 - a method
        """Do a step of a transaction; what librdkafka calls retriable is tried again at once."""
        for attempt in range(3):
            try:
                step(*arguments)
            except self._driver.KafkaException as error:
                if attempt < 2 and error.args[0].retriable():
                    continue
                raise self._ours(error) from None
            return

    def _ours(self, error: Any) -> ConnectorError:  # noqa: ANN401 - a KafkaException
        found = error.args[0]
        name = found.name()
        if name in _FENCED or (self._errors.last and self._errors.last.name() in _FENCED):
            return ConnectorFailedError(
                "another process writes as this sink: a copy of this database runs elsewhere",
                hint="stop the other one, then ALTER SINK ... RESUME",
            )
        if name in {"_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN"}:
            return unreachable(error, self._errors)
        if name == "MSG_SIZE_TOO_LARGE":
            return ConnectorFailedError(
                f"a row is too large for a message: {found.str()}",
                hint="raise kafka.message.max.bytes, and max.message.bytes of the topic",
            )
        return as_ours(found)

    def _abort(self) -> None:
        if self._is_open:
            self._is_open = False
            self._producer.purge()
            self._run(self._producer.abort_transaction, ASK_SECONDS)

    def close(self) -> None:
        """Abort what was not committed, so that readers do not wait for it."""
        with contextlib.suppress(ConnectorError):
            self._abort()


CONNECTOR = KafkaSink
