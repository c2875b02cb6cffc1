"""The webhook sink: changes as JSON, posted to an address, signed, each at least once.

What the receiver refuses for good goes to the dead letters, and the next batch is posted. While it
cannot be reached, or says that it cannot take anything now, the sink waits and tries again.
"""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from millstream.connectors.contract import Option, SinkConnector, SinkWriter
from millstream.connectors.http import http_post, http_url, signature
from millstream.errors import ConnectorError, InvalidOptionError
from millstream.formats.json_output import change_objects, to_json

if TYPE_CHECKING:
    from millstream.connectors.batches import SinkBatch
    from millstream.connectors.contract import Settings


class Webhook(SinkConnector):
    """``connector = 'webhook'``."""

    name = "webhook"
    rejects = True
    batch_rows = 1000
    options = (
        Option("url", required=True, help="where changes are posted"),
        Option("secret", secret=True, help="what they are signed with"),
        Option("headers", "json", secret=True, help='more headers: \'{"Authorization": "..."}\''),
        Option("timeout", "duration", default=10.0, help="how long an answer may take"),
    )

    def check(self) -> None:
        """Raise unless the address and the headers can be."""
        if http_url(self.settings["url"]).username is not None:
            raise InvalidOptionError(
                "a url with a user is not supported",
                hint='headers = \'{"Authorization": "Basic ..."}\'',
            )
        headers = self.settings["headers"]
        if headers is not None and not _is_texts(headers):
            raise InvalidOptionError("headers are not an object of texts", hint='\'{"A": "b"}\'')

    def open(self) -> SinkWriter:
        """Nothing is open between two posts."""
        return _Writer(self.input.name, self.settings)


CONNECTOR: Final = Webhook


class _Writer(SinkWriter):
    def __init__(self, name: str, settings: Settings) -> None:
        super().__init__()
        self._name = name
        self._url: str = settings["url"]
        self._secret: str = settings["secret"] or ""
        self._headers: dict[str, str] = settings["headers"] or {}
        self._timeout: float = settings["timeout"]
        self._posted = 0
        self._part = 0  # of a snapshot

    def write(self, batch: SinkBatch) -> bool:
        if not len(batch) and not batch.replaces:
            return True
        body = to_json(_body(self._name, batch)).encode()
        self._part = 0 if batch.replaces else self._part + 1
        delivery = f"{batch.changes.first_lsn}-{batch.lsn}"
        if batch.kind == "snapshot":  # its parts but the last have no LSN of their own
            digest = hashlib.sha256(body).hexdigest()[:16]
            delivery = f"snapshot-{self._part}-{digest}"
        headers = {
            **self._headers,
            "X-Millstream-Sink": quote(self._name),
            "X-Millstream-Delivery": delivery,
        }
        if self._secret:
            headers["X-Millstream-Signature"] = signature(self._secret, body, int(time.time()))
        answer = http_post(self._url, body, headers, self._timeout)
        if answer.is_refused:
            self.reject(f"the receiver answered with status {answer.status}", body, delivery)
        elif not answer.is_accepted:
            raise ConnectorError(
                f"the receiver answered with status {answer.status}"
                if answer.status
                else f"the receiver cannot be reached: {answer.error}",
                hint="it is tried again; see the receiver's own log",
            )
        self._posted += 1
        return True

    def metrics(self) -> dict[str, int | float]:
        return {"posted": self._posted}


def _body(name: str, batch: SinkBatch) -> dict[str, Any]:
    schema = batch.schema
    return {
        "sink": name,
        "type": batch.kind,
        "replaces": batch.replaces,
        "complete": batch.is_complete,
        "token": batch.token,
        "lsn": batch.lsn,
        "columns": list(schema.names),
        "key": list(schema.key),
        "changes": change_objects(batch.changes),
    }


def _is_texts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
