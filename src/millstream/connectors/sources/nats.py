"""Rows from NATS JetStream. The position is the sequence in the stream: exactly once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from millstream.connectors.contract import (
    Delivery,
    Option,
    Rejected,
    SourceConnector,
    SourceReader,
)
from millstream.connectors.messages import FORMAT, TIMESTAMP_UNIT, MessageDecoder
from millstream.connectors.registry import needs
from millstream.errors import ConnectorError, ConnectorFailedError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from millstream.connectors.contract import Settings

T = TypeVar("T")
OPTIONS: Final = (
    Option("url", required=True, help="nats://host:port, or several with commas"),
    Option("subject", required=True, help="the subject; of a source it may have * and >"),
    Option("user", help="who connects"),
    Option("password", secret=True, help="the password"),
    Option("token", secret=True, help="the server's token, instead of a user"),
)


class NatsSource(SourceConnector):
    """Follows the messages of a subject that a stream of JetStream keeps."""

    name = "nats"
    extra = "nats"
    options = (
        *OPTIONS,
        Option("stream", help="the stream; the one that has the subject by default"),
        Option("start", "choice", default="earliest", choices=("earliest", "latest"),
               help="where it begins"),
        FORMAT,
        TIMESTAMP_UNIT,
        Option("subject_column", help="the column for the subject of a message"),
        Option("max_messages", "int", default=5_000, help="read at most so many at once", least=1),
    )  # fmt: skip

    def check(self) -> None:
        """Ask the server."""
        MessageDecoder(self.settings, self.target.schema, ("subject_column",))
        client = NatsClient(self.settings)
        try:
            client.stream_of(self.settings["stream"], self.settings["subject"])
        finally:
            client.close()

    def open(self, position: Any) -> NatsReader:  # noqa: ANN401
        """Connect, and go on after a sequence."""
        return NatsReader(self, position)


class NatsReader(SourceReader):
    """Reads messages by a consumer that the server forgets when this ends."""

    def __init__(self, source: NatsSource, position: int | None) -> None:
        settings = source.settings
        self._most: int = settings["max_messages"]
        self._decoder = MessageDecoder(settings, source.target.schema, ("subject_column",))
        self._client = NatsClient(settings)
        self._first: Delivery | None = None
        self._lag: int | None = None
        try:
            self._stream = self._client.stream_of(settings["stream"], settings["subject"])
            self._begin(settings, position)
        except BaseException:
            self._client.close()
            raise

    def _begin(self, settings: Settings, position: int | None) -> None:
        client, subject = self._client, settings["subject"]
        state = client.run(client.jetstream.stream_info(self._stream)).state
        if position is None and settings["start"] == "latest":
            position = state.last_seq
            self._first = Delivery(position=position)  # where that was is known from now on
        elif position is not None and position + 1 < state.first_seq:
            reason = (
                f"messages after {position} up to {state.first_seq - 1} were removed from the "
                "stream before they were read"
            )
            self._first = Delivery(
                position=position, rejected=[Rejected(reason, origin=self._stream)]
            )
        api = needs("nats.js.api", "nats")
        config = api.ConsumerConfig(
            deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=(position or 0) + 1,
            ack_policy=api.AckPolicy.NONE,
            inactive_threshold=60.0,
        )
        self._subscription = client.run(
            client.jetstream.pull_subscribe(subject, stream=self._stream, config=config)
        )

    def read(self, timeout: float) -> Delivery | None:
        """The messages that are there, at most so many."""
        if self._first is not None:
            first, self._first = self._first, None
            return first
        errors = needs("nats.errors", "nats")
        try:
            found = self._client.run(self._subscription.fetch(self._most, timeout=timeout))
        except (errors.TimeoutError, TimeoutError):
            self._client.check()
            self._lag = 0
            return None
        if not found:
            return None
        last = found[-1].metadata
        self._lag = last.num_pending
        subjects = [each.subject for each in found]
        origins = [f"{self._stream}@{each.metadata.sequence.stream}" for each in found]
        return self._decoder.delivery(
            [each.data for each in found],
            last.sequence.stream,
            metadata={"subject_column": subjects},
            origins=origins,
        )

    def lag(self) -> int | None:
        """How many messages are in the stream that were not read."""
        return self._lag

    def close(self) -> None:
        """Disconnect."""
        self._client.close()


class NatsClient:
    """A connection, whose coroutines are run by the calling thread.

    Raises:
        ConnectorFailedError: the server refuses it.
        ConnectorError: the server does not answer.
    """

    def __init__(self, settings: Settings) -> None:
        nats, errors = needs("nats", "nats"), needs("nats.errors", "nats")
        self._loop = asyncio.new_event_loop()
        given = {
            "user": settings["user"],
            "password": settings["password"],
            "token": settings["token"],
        }
        try:
            self._connection = self.run(
                nats.connect(
                    settings["url"].split(","),
                    connect_timeout=5,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,  # of the first contact, which else takes two minutes
                    reconnect_time_wait=0.1,
                    error_cb=_ignore,
                    **{name: value for name, value in given.items() if value is not None},
                )
            )
        except (OSError, errors.Error) as error:
            self._loop.close()
            is_refused = "authorization" in str(error).lower()
            kind = ConnectorFailedError if is_refused else ConnectorError
            raise kind(
                f"cannot connect to NATS: {error or type(error).__name__}",
                hint="user, password, token?" if is_refused else "is it running?",
            ) from error
        self.jetstream = self._connection.jetstream()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end."""
        return self._loop.run_until_complete(work)

    def check(self) -> None:
        """Raise if the connection was lost.

        Raises:
            ConnectorError: it was.
        """
        if not self._connection.is_connected:
            raise ConnectorError("the connection to NATS was lost")

    def stream_of(self, stream: str | None, subject: str) -> str:
        """The stream that has a subject.

        Raises:
            ConnectorFailedError: there is none.
        """
        errors = needs("nats.js.errors", "nats")
        try:
            if stream is not None:
                return str(self.run(self.jetstream.stream_info(stream)).config.name)
            return str(self.run(self.jetstream.find_stream_name_by_subject(subject)))
        except errors.NotFoundError as error:
            raise ConnectorFailedError(
                f"there is no stream {stream!r}" if stream else f"no stream has {subject!r}",
                hint="nats stream add; only what a stream of JetStream keeps can be read exactly",
            ) from error

    def close(self) -> None:
        """Disconnect."""
        try:
            self.run(self._connection.close())
        finally:
            self._loop.close()


async def _ignore(_: Exception) -> None:
    """Calls raise their errors themselves."""


CONNECTOR = NatsSource
