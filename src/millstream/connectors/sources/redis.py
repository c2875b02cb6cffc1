"""Rows from a Redis stream. The position is the id of the last entry: exactly once."""

from __future__ import annotations

from typing import Any, Final

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

_BEGIN: Final = "0-0"


class RedisSource(SourceConnector):
    """Follows a stream that others add to with XADD.

    With ``format = 'json'`` the entries have one field with a JSON object, ``'raw'`` one with a
    value; with ``'fields'`` the fields of an entry are the columns.
    """

    name = "redis"
    extra = "redis"
    options = (
        Option("url", required=True, help="redis://[[user]:password@]host:port/database"),
        Option("stream", required=True, help="the key of the stream"),
        Option("format", "choice", default="json", choices=("json", "raw", "fields"),
               help=FORMAT.help),
        Option("field", default="data", help="the field of an entry that has the message"),
        Option("start", "choice", default="earliest", choices=("earliest", "latest"),
               help="where it begins"),
        Option("id_column", help="the column for the id of the entry"),
        Option("max_entries", "int", default=10_000, help="read at most so many at once", least=1),
        TIMESTAMP_UNIT,
    )  # fmt: skip

    def check(self) -> None:
        """Ask the server."""
        MessageDecoder(self.settings, self.target.schema, ("id_column",))
        client = connect(self.settings["url"])
        kind = client.type(self.settings["stream"]).decode()
        client.close()
        if kind not in {"stream", "none"}:
            raise ConnectorError(
                f"{self.settings['stream']} is a {kind}, not a stream",
                hint="name a key that is written with XADD",
            )

    def open(self, position: Any) -> RedisReader:  # noqa: ANN401
        """Connect, and go on after an id."""
        return RedisReader(self, connect(self.settings["url"]), position)


class RedisReader(SourceReader):
    """Reads entries after the last one."""

    def __init__(self, source: RedisSource, client: Any, position: dict[str, Any] | None) -> None:  # noqa: ANN401
        settings = source.settings
        self._client = client
        self._stream: str = settings["stream"]
        self._field: bytes = settings["field"].encode()
        self._is_fields = settings["format"] == "fields"
        self._most: int = settings["max_entries"]
        self._decoder = MessageDecoder(settings, source.target.schema, ("id_column",))
        self._first: Delivery | None = None
        self._lag: int | None = None
        info = client.xinfo_stream(self._stream) if client.exists(self._stream) else {}
        gone = info.get("entries-added", 0) - info.get("length", 0)
        if position is not None:
            self._last, self._read = position["id"], position["read"]
            self._report_deleted(info, gone - self._read)
        elif settings["start"] == "latest":
            self._last, self._read = _text(info, "last-generated-id"), info.get("entries-added", 0)
            self._first = Delivery(position=self._position)  # where that was is known from now on
        else:
            self._last, self._read = _BEGIN, gone

    @property
    def _position(self) -> dict[str, Any]:
        """The id of the last entry, and how many there were up to it since the stream began."""
        return {"id": self._last, "read": self._read}

    def _report_deleted(self, info: dict[str, Any], gone: int) -> None:
        """Entries that were deleted before they were read are lost: the dead letters say so."""
        last = _parts(self._last)
        is_trimmed = gone > 0 and _parts(_text(info, "recorded-first-entry-id")) > last
        if is_trimmed or _parts(_text(info, "max-deleted-entry-id")) > last:
            reason = f"entries after {self._last} were deleted before they were read"
            self._read = max(self._read, self._read + gone)
            self._first = Delivery(
                position=self._position, rejected=[Rejected(reason, origin=self._stream)]
            )

    def read(self, timeout: float) -> Delivery | None:
        """The entries that are there, at most so many."""
        if self._first is not None:
            first, self._first = self._first, None
            return first
        found = self._client.xread(
            {self._stream: self._last}, count=self._most, block=max(1, int(timeout * 1000))
        )
        if not found:
            self._lag = 0
            return None
        ((_, entries),) = found
        self._last = entries[-1][0].decode()
        self._read += len(entries)
        self._lag = None if len(entries) == self._most else 0
        ids = [each.decode() for each, _ in entries]
        origins = [f"{self._stream}@{each}" for each in ids]
        metadata = {"id_column": ids}
        if self._is_fields:
            records = [fields for _, fields in entries]
            return self._decoder.delivery_of_fields(
                records, self._position, metadata=metadata, origins=origins
            )
        bodies = [fields.get(self._field, b"") for _, fields in entries]
        return self._decoder.delivery(bodies, self._position, metadata=metadata, origins=origins)

    def lag(self) -> int | None:
        """0 when it has read all."""
        return self._lag

    def close(self) -> None:
        """Disconnect."""
        self._client.close()


def _text(info: dict[str, Any], what: str) -> str:
    """An id that XINFO has; the least one when it has none."""
    found = info.get(what) or _BEGIN
    return found.decode() if isinstance(found, bytes) else str(found)


def _parts(entry: str) -> tuple[int, int]:
    time, _, number = entry.partition("-")
    return int(time), int(number or 0)


def connect(url: str) -> Any:  # noqa: ANN401 - a client of redis
    """A client of a server that answers.

    Raises:
        ConnectorFailedError: the URL or the password is wrong.
        ConnectorError: it does not answer.
    """
    redis = needs("redis", "redis")
    try:
        client = redis.Redis.from_url(url, protocol=2, socket_connect_timeout=5)
        client.ping()
    except (ValueError, redis.AuthenticationError) as error:
        raise ConnectorFailedError(
            f"cannot connect to Redis: {error}", hint="url = 'redis://user:password@host:port/0'"
        ) from error
    except redis.RedisError as error:
        raise ConnectorError(f"cannot connect to Redis: {error}", hint="is it running?") from error
    return client


CONNECTOR = RedisSource
