"""Changes to a WebSocket server, each a message: at least once, as far as its side reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.connectors.contract import SinkConnector, SinkWriter
from millstream.connectors.messages import change_texts
from millstream.connectors.sources.websocket import OPTIONS, connect
from millstream.errors import ConnectorError

if TYPE_CHECKING:
    from millstream.connectors.batches import SinkBatch

_SECONDS = 30.0


class WebSocketSink(SinkConnector):
    """Sends every change as JSON, and waits for an answer to a ping after each batch."""

    name = "websocket"
    extra = "websocket"
    options = OPTIONS

    def check(self) -> None:
        """Connect once."""
        connect(self.settings).close()

    def open(self) -> WebSocketWriter:
        """Connect."""
        return WebSocketWriter(connect(self.settings))


class WebSocketWriter(SinkWriter):
    """Sends batches."""

    def __init__(self, socket: Any) -> None:  # noqa: ANN401
        super().__init__()
        self._socket = socket

    def write(self, batch: SinkBatch) -> bool:
        """Send each change; a pong says that the server has read them."""
        for text in change_texts(batch):
            self._socket.send(text)
        if not self._socket.ping().wait(_SECONDS):
            raise ConnectorError("the server does not answer", hint="the batch is sent again")
        return True

    def close(self) -> None:
        """Disconnect."""
        self._socket.close()


CONNECTOR = WebSocketSink
