"""``connector = 'kafka'``: messages of topics into the log.

Offsets are kept in the log, in the commit of the rows; no group of Kafka's has a part in it.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

from millstream.connectors.contract import (
    Delivery,
    Option,
    SourceConnector,
    SourceReader,
    TargetKind,
)
from millstream.connectors.kafka.avro import columns_of
from millstream.connectors.kafka.client import (
    ASK_SECONDS,
    EXTRA,
    OPTIONS,
    REGISTRY_OPTIONS,
    Errors,
    as_ours,
    client_settings,
    consumer,
    first_contact,
    missing_topic,
    topics_of,
    unreachable,
)
from millstream.connectors.kafka.decoding import ROLES, Decoded, Decoder
from millstream.connectors.kafka.schema_registry import SchemaRegistry
from millstream.connectors.registry import needs
from millstream.errors import ConnectorError, ConnectorFailedError, InvalidOptionError
from millstream.files.formats import check_csv

if TYPE_CHECKING:
    from millstream.connectors.contract import Settings
    from millstream.model.schema import Schema

Ask = Callable[[Any, Errors], dict[str, list[int]]]
Offsets = dict[str, dict[str, int]]
"""By topic and partition, which is text as in JSON: the offset of the next message."""

FORMATS: Final = ("json", "csv", "avro", "debezium", "debezium-avro", "raw")
_LAG_SECONDS: Final = 1.0
_MANY: Final = 1024
"""From so many messages on, decoding them is worth another thread."""
_OWN: Final = (
    Option("topic", help="a topic, or several with commas"),
    Option("topics_pattern", help="a regular expression; topics that match later are read, too"),
    Option("start", default="earliest", help="earliest, latest, a time, or JSON: {'0': 1042}"),
    Option("format", "choice", default="json", choices=FORMATS, help="of the values"),
    Option("key_format", "choice", choices=("text", "json", "avro"), help="of keys of tombstones"),
    Option("delimiter", default=",", help="of CSV"),
    Option("timestamp_unit", "choice", choices=("s", "ms", "us", "ns"), help="of times as numbers"),
    Option("decimals", "choice", choices=("precise", "string"), help="of Debezium without schema"),
    Option("tombstones", "choice", choices=("delete", "skip", "reject", "null"), help="no value"),
    Option("on_lost", "choice", default="fail", choices=("fail", "earliest"), help="if it expired"),
    Option("batch_messages", "int", default=65_536, help="messages in a commit, at most", least=1),
    Option("discover_every", "duration", default=30.0, help="how often partitions are looked for"),
)
_METADATA: Final = tuple(
    Option(f"{role}_column", help=f"the column of the {role}; kafka_{role}") for role in ROLES
)


class KafkaSource(SourceConnector):
    """Reads topics."""

    name = "kafka"
    extra = EXTRA
    kinds: ClassVar[tuple[TargetKind, ...]] = ("source", "table")
    options = (*OPTIONS, *_OWN, *_METADATA, *REGISTRY_OPTIONS)

    def check(self) -> None:
        """Whether the brokers answer and have the topics, and the options fit the columns."""
        if self.settings["format"] == "csv":
            check_csv(self.settings["delimiter"])
        reader = _Reader(self)
        try:
            reader.find_partitions(first_contact)
        finally:
            reader.close()

    def discover(self) -> Schema:
        """The columns of the newest schema in the registry; of Avro only."""
        if self.settings["format"] != "avro" or not self.settings["topic"]:
            return super().discover()
        topic = self.settings["topic"].partition(",")[0].strip()
        return columns_of(SchemaRegistry.of(self.settings).latest(f"{topic}-value"))

    def open(self, position: Any) -> SourceReader:  # noqa: ANN401 - a JSON value
        """Go on after the offsets of a position."""
        reader = _Reader(self)
        try:
            reader.begin(position)
        except BaseException:
            reader.close()
            raise
        return reader

    def registry(self) -> SchemaRegistry | None:
        """The schema registry, if the format needs it."""
        form, key = self.settings["format"], self.settings["key_format"]
        needed = form.endswith("avro") or key == "avro"
        return SchemaRegistry.of(self.settings) if needed else None


class _Topics:
    """Which topics are read."""

    def __init__(self, settings: Settings) -> None:
        names, pattern = settings["topic"], settings["topics_pattern"]
        if bool(names) == bool(pattern):
            raise InvalidOptionError(
                "either topic or topics_pattern is needed", hint="write topic = 'orders'"
            )
        self.names = [each.strip() for each in names.split(",") if each.strip()] if names else []
        try:
            self._pattern = re.compile(pattern) if pattern else None
        except re.error as error:
            raise InvalidOptionError(
                f"topics_pattern is no regular expression: {error}", hint="such as 'orders_.*'"
            ) from None

    def among(self, known: dict[str, list[int]]) -> dict[str, list[int]]:
        """Those that there are, with their partitions.

        Raises:
            ConnectorError: a topic that is named is not there.
        """
        if self._pattern is not None:
            return {
                name: partitions
                for name, partitions in known.items()
                if self._pattern.fullmatch(name) and not name.startswith("__")
            }
        for name in self.names:
            if name not in known:
                raise missing_topic(name, list(known))
        return {name: known[name] for name in self.names}


@dataclass(frozen=True, slots=True)
class _Batch:
    """Messages that were consumed.

    Attributes:
        messages: those without an error.
        failed: what consuming reported beside them.
        offsets: where to go on after them.
        decoding: what they say, as another thread finds out; None: there are few.
    """

    messages: list[Any]
    failed: list[Any]
    offsets: Offsets
    decoding: Future[Decoded] | None


class _Reader(SourceReader):
    """A consumer whose partitions are assigned by us, at offsets of ours."""

    def __init__(self, connector: KafkaSource) -> None:
        settings = connector.settings
        self._driver = needs("confluent_kafka", EXTRA)
        self._topics = _Topics(settings)
        self._start = _start(settings["start"])
        self._decoder = Decoder(connector.target, settings, connector.registry())
        self._on_lost = settings["on_lost"]
        self._most = settings["batch_messages"]
        self._every = settings["discover_every"]
        self._errors = Errors()
        self._offsets: Offsets = {}
        self._is_new = False
        self._looked_at = self._lag_at = time.monotonic()
        self._lag: int | None = None
        self._ahead: _Batch | None = None
        self._thread = ThreadPoolExecutor(1, "millstream-kafka")  # begun when it is needed
        self._consumer = consumer(client_settings(settings), self._errors)

    # ---- which partitions, from where

    def find_partitions(self, ask: Ask = topics_of) -> dict[str, list[int]]:
        """The partitions that are to be read."""
        return self._topics.among(ask(self._consumer, self._errors))

    def begin(self, position: Any) -> None:  # noqa: ANN401 - as it was delivered
        """Assign all partitions: where the position says, or where a new source starts."""
        found = self.find_partitions(first_contact)
        if position is None:
            self._offsets = {topic: self._first_offsets(topic, found[topic]) for topic in found}
            self._is_new = True
        else:
            self._offsets = {topic: dict(offsets) for topic, offsets in position.items()}
            self._add(found)
        self._assign()

    def _add(self, found: dict[str, list[int]]) -> bool:
        """Add partitions that are new: they are read from their beginning."""
        added = False
        for topic, partitions in found.items():
            known = self._offsets.setdefault(topic, {})
            for partition in partitions:
                if str(partition) not in known:
                    known[str(partition)] = self._watermarks(topic, partition)[0]
                    added = True
        return added

    def _assign(self) -> None:
        assigned = [
            self._driver.TopicPartition(topic, int(partition), offset)
            for topic, offsets in self._offsets.items()
            for partition, offset in offsets.items()
        ]
        self._consumer.assign(assigned)
        self._assigned = assigned

    def _first_offsets(self, topic: str, partitions: list[int]) -> dict[str, int]:
        """Where a new source begins to read a topic: offsets that are known from now on."""
        start = self._start
        if isinstance(start, dict):
            return self._given_offsets(topic, partitions, start)
        if isinstance(start, datetime):
            return self._offsets_at(topic, partitions, start)
        place = 0 if start == "earliest" else 1
        return {str(each): self._watermarks(topic, each)[place] for each in partitions}

    def _given_offsets(
        self, topic: str, partitions: list[int], start: dict[str, Any]
    ) -> dict[str, int]:
        given = start.get(topic, start)
        unknown = [each for each in given if each not in map(str, partitions)]
        if unknown and given is not start:
            raise InvalidOptionError(
                f"start names the partition {unknown[0]} of {topic}, which is not there",
                hint=f"the partitions are {', '.join(map(str, partitions))}",
            )
        return {
            str(each): int(given[str(each)])
            if isinstance(given.get(str(each)), int)
            else self._watermarks(topic, each)[0]
            for each in partitions
        }

    def _offsets_at(self, topic: str, partitions: list[int], at: datetime) -> dict[str, int]:
        millis = int(at.timestamp() * 1000)
        asked = [self._driver.TopicPartition(topic, each, millis) for each in partitions]
        try:
            found = self._consumer.offsets_for_times(asked, timeout=ASK_SECONDS)
        except self._driver.KafkaException as error:
            raise unreachable(error, self._errors) from None
        return {
            str(each.partition): each.offset
            if each.offset >= 0
            else self._watermarks(topic, each.partition)[1]  # none is so new: the end
            for each in found
        }

    def _watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset of a partition, and the one after its last."""
        asked = self._driver.TopicPartition(topic, partition)
        try:
            low, high = self._consumer.get_watermark_offsets(asked, timeout=ASK_SECONDS)
        except self._driver.KafkaException as error:
            raise unreachable(error, self._errors) from None
        return low, high

    # ---- reading

    def read(self, timeout: float) -> Delivery | None:
        """The messages that are there."""
        if self._is_new:  # where it begins must not be forgotten, were it killed now
            self._is_new = False
            return Delivery(position=self._position())
        batch, self._ahead = self._ahead, None
        if batch is None:
            self._look_around()
            batch = self._fetched(timeout)
        if batch is None:
            self._measure()
            return None
        if batch.failed and self._failed(batch.failed):
            return None  # offsets were set anew: what was consumed beside comes again
        if not batch.messages:
            return None
        if batch.decoding is None:
            decoded = self._decoder.decode(batch.messages)
        else:
            self._ahead = None if self._is_time_to_look() else self._fetched(0)
            decoded = batch.decoding.result()
        self._offsets = batch.offsets
        self._measure()
        return Delivery(
            rows=decoded.rows if decoded.rows is not None else (),
            changes=decoded.changes,
            rejected=decoded.rejected,
            position=self._position(),
        )

    def _fetched(self, timeout: float) -> _Batch | None:
        """Messages, many of which begin to be decoded in another thread.

        So the next ones are consumed, and those before are committed, while Arrow decodes.
        """
        first = self._consumer.poll(timeout)
        if first is None:
            return None
        messages, failed = [first], []
        if self._most > 1:
            messages += self._consumer.consume(min(self._most, 1_000_000) - 1, 0)
        error = self._driver.Message.error
        if any(map(error, messages)):
            failed = [message for message in messages if message.error() is not None]
            messages = [message for message in messages if message.error() is None]
        is_large = len(messages) >= _MANY and not failed
        decoding = self._thread.submit(self._decoder.decode, messages) if is_large else None
        return _Batch(messages, failed, self._consumed(), decoding)

    def _position(self) -> Offsets:
        return {topic: dict(offsets) for topic, offsets in self._offsets.items()}

    def _consumed(self) -> Offsets:
        """The offsets after what was consumed; a partition without messages has none."""
        offsets = self._position()
        for each in self._consumer.position(self._assigned):
            if each.offset >= 0:
                offsets[each.topic][str(each.partition)] = each.offset
        return offsets

    def _failed(self, failed: list[Any]) -> bool:
        """Raise what consuming reports; whether it was mended, by setting the offsets anew."""
        is_mended = False
        for message in failed:
            error = message.error()
            name = error.name()
            if name in {"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"}:
                self._lost(message)
                is_mended = True
                continue
            if name in {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"}:
                raise ConnectorError(
                    f"the topic {message.topic()!r} is not there any more",
                    hint="create it again, or DROP what reads it",
                )
            if name in {"TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"}:
                raise ConnectorError(
                    f"reading {message.topic()!r} is not allowed", hint="grant READ and DESCRIBE"
                )
            if not error.retriable():
                raise as_ours(error)
        if is_mended:
            self._assign()
        return is_mended

    def _lost(self, message: Any) -> None:  # noqa: ANN401 - a Message
        """The messages after the offset have expired, or the topic is another one."""
        topic, partition = message.topic(), message.partition()
        offset = self._offsets[topic][str(partition)]
        low, high = self._watermarks(topic, partition)
        if self._on_lost == "fail":
            raise ConnectorFailedError(
                f"offset {offset} of {topic}/{partition} is not there; there are {low} to {high}",
                hint="its messages have expired, or the topic was made anew; "
                "with on_lost = 'earliest' the source goes on at the first one",
            )
        self._offsets[topic][str(partition)] = low

    def _look_around(self) -> None:
        """Look for new partitions and topics, now and then; while nothing is fetched ahead."""
        if not self._is_time_to_look():
            return
        self._looked_at = time.monotonic()
        if self._add(self.find_partitions()):
            self._assign()

    def _is_time_to_look(self) -> bool:
        return bool(time.monotonic() - self._looked_at >= self._every)

    def _measure(self) -> None:
        now = time.monotonic()
        if now - self._lag_at < _LAG_SECONDS and self._lag is not None:
            return
        self._lag_at, lag = now, 0
        for each in self._assigned:
            found = self._consumer.get_watermark_offsets(each, cached=True)
            if found and found[1] >= 0:
                lag += max(0, found[1] - self._offsets[each.topic][str(each.partition)])
        self._lag = lag

    def lag(self) -> int | None:
        """How many messages, and marks of transactions, are ahead; a second old at most."""
        return self._lag

    def metrics(self) -> dict[str, int | float]:
        """The number of partitions."""
        return {"partitions": sum(map(len, self._offsets.values()))}

    def close(self) -> None:
        """Close the consumer."""
        self._thread.shutdown(cancel_futures=True)
        with contextlib.suppress(RuntimeError):
            self._consumer.close()


def _start(text: str) -> str | datetime | dict[str, Any]:
    """Where a new source begins: a word, a time, or offsets.

    >>> _start("2026-01-31 12:00"), _start('{"0": 7}')
    (datetime.datetime(2026, 1, 31, 12, 0, tzinfo=datetime.timezone.utc), {'0': 7})
    """
    if text.lower() in {"earliest", "latest"}:
        return text.lower()
    with contextlib.suppress(ValueError):
        if text.lstrip().startswith("{"):
            return _offsets(text)
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    raise InvalidOptionError(
        f"start is {text!r}",
        hint="'earliest', 'latest', a time such as '2026-01-31 12:00:00', "
        'or offsets such as \'{"0": 1042}\' or \'{"topic": {"0": 1042}}\'',
    )


def _offsets(text: str) -> dict[str, Any]:
    found = json.loads(text)
    parts = [each if isinstance(each, dict) else {"0": each} for each in found.values()]
    if not all(type(n) is int and n >= 0 for part in parts for n in part.values()):
        raise ValueError(text)
    return dict(found)


CONNECTOR = KafkaSource
