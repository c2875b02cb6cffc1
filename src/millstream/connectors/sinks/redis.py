"""Changes to a Redis stream, or the current rows under a key each; exactly once, by MULTI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.connectors.contract import Option, SinkConnector, SinkWriter
from millstream.connectors.messages import (
    MODE,
    change_texts,
    check_mode,
    key_text,
    keys_of,
    row_text,
)
from millstream.connectors.sources.redis import connect
from millstream.errors import ConnectorError, InvalidOptionError

if TYPE_CHECKING:
    from millstream.connectors.batches import SinkBatch


class RedisSink(SinkConnector):
    """Writes rows and the token of their batch in one transaction of Redis.

    ``mode = 'append'`` adds every change to a stream; ``'upsert'`` keeps the row of a key as JSON
    under ``prefix`` and its key.
    """

    name = "redis"
    extra = "redis"
    transactional = True
    options = (
        Option("url", required=True, help="redis://[[user]:password@]host:port/database"),
        MODE,
        Option("stream", help="of append: the key of the stream"),
        Option("prefix", help="of upsert: what the names of keys begin with, such as 'price:'"),
        Option("max_length", "int", help="of append: about so many entries are kept", least=1),
    )

    def check(self) -> None:
        """Ask the server."""
        wanted = "stream" if self.settings["mode"] == "append" else "prefix"
        if not self.settings[wanted]:
            raise InvalidOptionError(
                f"the option {wanted} is missing", hint=f"mode = '{self.settings['mode']}' needs it"
            )
        check_mode(self.settings, self.input)
        client = connect(self.settings["url"])
        kind = client.type(self.settings["stream"]).decode() if wanted == "stream" else "none"
        client.close()
        if kind not in {"stream", "none"}:
            raise ConnectorError(
                f"{self.settings['stream']} is a {kind}, not a stream",
                hint="name another key",
            )

    def open(self) -> RedisWriter:
        """Connect."""
        return RedisWriter(self, connect(self.settings["url"]))

    def drop(self) -> None:
        """Remove the token, and the list of keys."""
        client = connect(self.settings["url"])
        client.delete(*_names(self.input.id))
        client.close()


def _names(sink: str) -> tuple[str, str]:
    """The keys of a sink's own: of its token, and of the set of the keys that it has written."""
    return f"millstream:{{{sink}}}:token", f"millstream:{{{sink}}}:keys"


class RedisWriter(SinkWriter):
    """Writes batches; the parts of a snapshot in one transaction."""

    def __init__(self, sink: RedisSink, client: Any) -> None:  # noqa: ANN401
        super().__init__()
        self._settings = sink.settings
        self._client = client
        self._token, self._keys = _names(sink.input.id)
        self._pipe: Any = None

    def position(self) -> str | None:
        """The token that is stored."""
        found = self._client.get(self._token)
        return None if found is None else found.decode()

    def write(self, batch: SinkBatch) -> bool:
        """Gather a batch, and store it with its token once it is complete."""
        if self._pipe is None or batch.replaces:
            self._pipe = self._client.pipeline(transaction=True)
        if self._settings["mode"] == "append":
            self._append(batch)
        else:
            self._upsert(batch)
        if not batch.is_complete:
            return False
        self._pipe.set(self._token, batch.token)
        self._pipe.execute()
        self._pipe = None
        return True

    def _append(self, batch: SinkBatch) -> None:
        stream, most = self._settings["stream"], self._settings["max_length"]
        if batch.replaces:
            self._pipe.xtrim(stream, maxlen=0, approximate=False)
        for text in change_texts(batch):
            self._pipe.xadd(stream, {"data": text}, maxlen=most)

    def _upsert(self, batch: SinkBatch) -> None:
        prefix, schema = self._settings["prefix"], batch.schema
        if batch.replaces:
            for old in self._client.sscan_iter(self._keys, count=1000):
                self._pipe.delete(old)
            self._pipe.delete(self._keys)
        net = batch.net()
        for key, row in zip(keys_of(net.upserts, schema), net.upserts, strict=True):
            name = prefix + key_text(key)
            self._pipe.set(name, row_text(row, schema))
            self._pipe.sadd(self._keys, name)
        for key in net.deletes:
            name = prefix + key_text(key)
            self._pipe.delete(name)
            self._pipe.srem(self._keys, name)

    def close(self) -> None:
        """Disconnect."""
        self._client.close()


CONNECTOR = RedisSink
