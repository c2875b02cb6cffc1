"""Requests over HTTP: sent again while the server is away, as far as that is safe."""

from __future__ import annotations

import json
import logging
import random
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import pyarrow as pa

from millstream.client.remote_errors import error_from
from millstream.errors import ClosedError, DisconnectedError, LimitError, MissingExtraError
from millstream.formats.json_output import to_json

try:
    import httpx
except ImportError as error:
    raise MissingExtraError(
        "ms.connect needs the package httpx", hint="pip install 'millstream[client]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.errors import Error
    from millstream.sql import ParameterValues

_logger = logging.getLogger("millstream.client")

ARROW: Final = "application/vnd.apache.arrow.stream"
_TIMES: Final = httpx.Timeout(connect=5.0, read=120.0, write=60.0, pool=None)
_FIRST_DELAY, _LONGEST_DELAY = 0.02, 2.0


def delays() -> Iterator[float]:
    """How long to wait before each further attempt: longer and longer, and never all at once."""
    longest = _FIRST_DELAY
    while True:
        yield random.uniform(longest / 2, longest)  # noqa: S311 - it guards no secret
        longest = min(2 * longest, _LONGEST_DELAY)


def bearer(key: str | None) -> dict[str, str]:
    """The header that carries a key."""
    return {} if key is None else {"Authorization": f"Bearer {key}"}


def ipc_stream(schema: pa.Schema, batches: list[pa.RecordBatch]) -> bytes:
    """Record batches of a schema as an Arrow IPC stream."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    data: bytes = out.getvalue().to_pybytes()
    return data


class Http:
    """The requests of one client. Any thread may use it.

    Args:
        url: of the server.
        key: an API key.
        timeout: for how many seconds a request is tried while the server cannot be reached.
    """

    def __init__(self, url: str, key: str | None, timeout: float) -> None:
        self._client = httpx.Client(base_url=url, headers=bearer(key), timeout=_TIMES)
        self._timeout = timeout
        self._reached = False  # whether the server has ever answered

    def sql(
        self, sql: str, parameters: ParameterValues, reads: dict[str, Any], *, again: bool
    ) -> bytes:
        """Run statements; returns Arrow. With ``again``, they may be run more than once.

        Args:
            sql: the statements.
            parameters: the values of their parameters.
            reads: whether they wait for views: ``stale_ok`` and ``timeout``.
            again: whether they may be sent again.
        """
        body: dict[str, Any] = {"sql": sql, **reads}
        if parameters is not None:
            body["params"] = parameters
        headers = {"Accept": ARROW, "Content-Type": "application/json"}
        content = to_json(body).encode()
        return self._send("POST", "/v1/sql", headers, content, again=again, sql=sql)

    def insert(self, name: str, rows: bytes, key: str, *, replace: bool = False) -> Any:  # noqa: ANN401
        """Add rows in Arrow to a source or a table, once however often it is sent."""
        headers = {"Content-Type": ARROW, "Idempotency-Key": key}
        path = f"/v1/sources/{quote(name, safe='')}{'?replace=true' if replace else ''}"
        return json.loads(self._send("POST", path, headers, rows))

    def watermark(self, name: str, micros: int) -> Any:  # noqa: ANN401 - JSON
        """Set the watermark of a source; an older one than it has does nothing."""
        path = f"/v1/sources/{quote(name, safe='')}/watermark"
        body = json.dumps({"watermark": micros}).encode()
        return json.loads(self._send("POST", path, {"Content-Type": "application/json"}, body))

    def get(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """What is at a path."""
        return json.loads(self._send("GET", path, {}, b""))

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def _send(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        content: bytes,
        *,
        again: bool = True,
        sql: str = "",
    ) -> bytes:
        """The body of the answer.

        Raises:
            DisconnectedError: the server could not be reached in time; or, unless ``again``, the
                connection broke after the request was sent.
            Error: what the server has answered.
        """
        deadline, waits = time.monotonic() + self._timeout, False
        for delay in delays():
            try:
                answer = self._client.request(method, path, headers=headers, content=content)
            except (httpx.TransportError, RuntimeError) as error:
                failure = self._failure(error, again=again)
            else:
                self._reached = True
                if answer.is_success:
                    return answer.content
                failure = _refusal(answer, sql)
                if not _passes(failure, again=again, is_sql=bool(sql)):
                    raise failure
            if time.monotonic() + delay > deadline:
                raise failure
            if not (self._reached or waits):
                waits = True
                _logger.warning("%s; trying for %g s", failure.message, self._timeout)
            time.sleep(delay)
        raise AssertionError("there is always a further delay")

    def _failure(self, error: Exception, *, again: bool) -> Error:
        """A request that has no answer, as an error; raises it when it must not be sent again."""
        if self._client.is_closed:
            raise ClosedError("the client is closed", hint="ms.connect again") from error
        if not isinstance(error, httpx.TransportError):
            raise error
        was_sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
        failure = DisconnectedError(
            f"no answer from {self._client.base_url}: {error or type(error).__name__}",
            hint="whether the statement has run is not known: look before you repeat it"
            if was_sent
            else "start a server there: millstream serve DIR --http HOST:PORT",
        )
        failure.__cause__ = error
        if was_sent and not again:
            raise failure
        return failure


def _refusal(answer: httpx.Response, sql: str) -> Error:
    try:
        found = answer.json()["error"]
    except (ValueError, KeyError, TypeError):
        if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            return LimitError("the server has too many connections", hint="try again later")
        return DisconnectedError(
            f"an answer with status {answer.status_code} that is not Millstream's",
            hint="is it the address of a Millstream server?",
        )
    return error_from(found, sql=sql)


def _passes(error: Error, *, again: bool, is_sql: bool) -> bool:
    """Whether a refusal holds for the moment only: the server stops, or is busy.

    A statement that is refused by a limit may have a result that is too large; it is not repeated.
    """
    return (not is_sql and type(error) is LimitError) or (again and isinstance(error, ClosedError))
