"""Tokens of sinks in a compacted topic: written in the transaction of the rows, read at the start.

The messages of one sink have its id as their key, and the last one counts. They lie at the end,
unless other sinks have written much since: so it is read backwards, in steps.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.kafka.client import (
    ASK_SECONDS,
    EXTRA,
    Errors,
    as_ours,
    consumer,
    first_contact,
    made,
    unreachable,
)
from millstream.connectors.registry import needs
from millstream.errors import ConnectorError

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIRST_STEP: Final = 2_000
_FACTOR: Final = 32
_QUIET_SECONDS: Final = 30.0
_TO_THE_END: Final = {"enable.partition.eof": True, "fetch.wait.max.ms": 10}  # no wait for more
_COMPACTED: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(16 << 20),
    "segment.ms": "3600000",
}


def create_topic(
    settings: dict[str, Any],
    topic: str,
    *,
    partitions: int = 1,
    replication: int = -1,
    config: dict[str, str] | None = None,
) -> None:
    """Create a topic, unless there is one.

    Raises:
        ConnectorError: the brokers do not answer, or do not allow it.
    """
    admin = needs("confluent_kafka.admin", EXTRA)
    driver = needs("confluent_kafka", EXTRA)
    errors = Errors()
    client = made(lambda: admin.AdminClient({**settings, "error_cb": errors}))
    if topic in first_contact(client, errors):
        return
    new = admin.NewTopic(topic, partitions, replication, config=config or {})
    try:
        client.create_topics([new], request_timeout=ASK_SECONDS)[topic].result()
    except driver.KafkaException as error:
        if error.args[0].name() == "TOPIC_ALREADY_EXISTS":
            return
        raise ConnectorError(
            f"the topic {topic!r} cannot be created: {error.args[0].str()}",
            hint="create it yourself, or grant CREATE",
        ) from None


def create_tokens(settings: dict[str, Any], topic: str) -> None:
    """Create the topic of tokens, unless there is one."""
    create_topic(settings, topic, config=_COMPACTED)


def last_token(settings: dict[str, Any], topic: str, sink: str) -> str | None:
    """The token that a sink has committed last; None: none.

    Raises:
        ConnectorError: the brokers do not answer.
    """
    driver = needs("confluent_kafka", EXTRA)
    errors = Errors()
    client = consumer({**settings, **_TO_THE_END}, errors)
    try:
        partition = driver.TopicPartition(topic, 0)
        try:
            low, high = client.get_watermark_offsets(partition, timeout=ASK_SECONDS)
        except driver.KafkaException as error:
            raise unreachable(error, errors) from None
        end, step = high, _FIRST_STEP
        while end > low:
            begin = max(low, end - step)
            found = None
            for message in _messages(client, topic, {0: begin}):
                if message.key() == sink.encode() and message.offset() < end:
                    found = message.value()
            if found is not None or begin == low:
                return None if found is None else found.decode()
            end, step = begin, step * _FACTOR
        return None
    finally:
        client.close()


def live_values(settings: dict[str, Any], topic: str) -> dict[bytes, bytes]:
    """The last value of each key of a topic, without those whose last message is a tombstone."""
    errors = Errors()
    client = consumer({**settings, **_TO_THE_END}, errors)
    try:
        partitions = first_contact(client, errors).get(topic, [])
        driver = needs("confluent_kafka", EXTRA)
        begin = dict.fromkeys(partitions, driver.OFFSET_BEGINNING)
        values: dict[bytes, bytes] = {}
        for message in _messages(client, topic, begin):
            key, value = message.key(), message.value()
            if key is not None and value is not None:
                values[key] = value
            elif key is not None:
                values.pop(key, None)
        return values
    finally:
        client.close()


def _messages(client: Any, topic: str, begin: dict[int, int]) -> Iterator[Any]:  # noqa: ANN401
    """The committed messages of partitions, from offsets to what is their end now.

    Raises:
        ConnectorError: the brokers stop to answer.
    """
    driver = needs("confluent_kafka", EXTRA)
    client.assign([driver.TopicPartition(topic, each, at) for each, at in begin.items()])
    ended: set[int] = set()
    quiet_since = time.monotonic()
    while len(ended) < len(begin):
        first = client.poll(0.25)
        if first is None:
            if time.monotonic() - quiet_since > _QUIET_SECONDS:
                raise ConnectorError(
                    f"the end of {topic!r} is not reached: no answer", hint="see the brokers"
                )
            continue
        quiet_since = time.monotonic()
        for message in [first, *client.consume(10_000, 0)]:
            error = message.error()
            if error is None:
                yield message
            elif error.name() == "_PARTITION_EOF":
                ended.add(message.partition())
            elif not error.retriable():
                raise as_ours(error)
