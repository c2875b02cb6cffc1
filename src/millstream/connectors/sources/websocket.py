"""Rows from a WebSocket server, such as the feed of an exchange.

At most once: what the server sends while nobody is connected is lost, as with any other client.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.contract import Option, SourceConnector, SourceReader
from millstream.connectors.messages import FORMAT, TIMESTAMP_UNIT, MessageDecoder
from millstream.connectors.registry import needs
from millstream.errors import ConnectorError, ConnectorFailedError

if TYPE_CHECKING:
    from millstream.connectors.contract import Delivery, Settings

OPTIONS: Final = (
    Option("url", required=True, help="ws://host:port/path or wss://..."),
    Option("header.*", secret=True, help="headers of the request, such as header.authorization"),
)


class WebSocketSource(SourceConnector):
    """Connects, sends what subscribes, and takes each message as a row, or as several."""

    name = "websocket"
    extra = "websocket"
    options = (
        *OPTIONS,
        Option("send", help="the message to send first, such as a subscription"),
        Option("path", help="where in a message its rows are: 'data.trades'; the whole by default"),
        FORMAT,
        TIMESTAMP_UNIT,
        Option("max_messages", "int", default=10_000, help="taken at once", least=1),
    )

    def check(self) -> None:
        """Connect once."""
        MessageDecoder(self.settings, self.target.schema)
        connect(self.settings).close()

    def open(self, position: Any) -> WebSocketReader:  # noqa: ANN401, ARG002 - there is none
        """Connect, and subscribe."""
        return WebSocketReader(self)


class WebSocketReader(SourceReader):
    """Takes messages as they come."""

    def __init__(self, source: WebSocketSource) -> None:
        settings = source.settings
        self._url: str = settings["url"]
        self._most: int = settings["max_messages"]
        self._path = settings["path"].split(".") if settings["path"] else []
        self._is_json = settings["format"] == "json"
        self._decoder = MessageDecoder(settings, source.target.schema)
        self._socket = connect(settings)
        if settings["send"] is not None:
            self._socket.send(settings["send"])

    def read(self, timeout: float) -> Delivery | None:
        """The messages that have come."""
        closed = needs("websockets.exceptions", "websocket").ConnectionClosed
        bodies: list[bytes] = []
        try:
            while len(bodies) < self._most:
                message = self._socket.recv(timeout=0 if bodies else timeout)
                bodies += self._bodies(message.encode() if isinstance(message, str) else message)
        except TimeoutError:
            pass
        except closed as error:
            if not bodies:
                raise ConnectorError(f"the server has ended the connection: {error}") from error
        return self._decoder.delivery(bodies) if bodies else None

    def _bodies(self, message: bytes) -> list[bytes]:
        """What a message holds: one row, or several of an array."""
        is_plain = not self._path and message[:1] != b"["
        if not self._is_json or is_plain:
            return [message]
        try:
            found = json.loads(message)
        except ValueError:
            return [message]  # which the decoder rejects
        for name in self._path:
            found = found.get(name) if isinstance(found, dict) else None
        if found is None:  # another kind of message, such as an answer to the subscription
            return []
        rows = found if isinstance(found, list) else [found]
        return [json.dumps(each).encode() for each in rows]

    def close(self) -> None:
        """Disconnect."""
        self._socket.close()


def connect(settings: Settings) -> Any:  # noqa: ANN401 - a connection of websockets
    """A connection.

    Raises:
        ConnectorFailedError: the address is none, or the server refuses it.
        ConnectorError: the server does not answer.
    """
    client = needs("websockets.sync.client", "websocket")
    errors = needs("websockets.exceptions", "websocket")
    url = settings["url"]
    try:
        opened = client.connect(
            url,
            additional_headers=settings.under("header."),
            open_timeout=5,
            close_timeout=1,
            max_size=1 << 24,
        )
        return opened.__enter__()  # newer versions connect only then
    except (errors.InvalidURI, errors.InvalidStatus) as error:
        raise ConnectorFailedError(f"cannot connect: {error}", hint="url, headers?") from error
    except (OSError, TimeoutError, errors.WebSocketException) as error:
        raise ConnectorError(f"cannot connect: {error}", hint="is the server running?") from error


CONNECTOR = WebSocketSource
