"""Posting over HTTP, signed: webhooks of the server, and the webhook sink."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from millstream.errors import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

Check = Callable[[str], None]
"""Raises for an address that may not be reached."""


def http_url(url: str, option: str = "url") -> SplitResult:
    """The parts of a URL of HTTP, which is the value of an option.

    Raises:
        InvalidOptionError: it is none.
    """
    with contextlib.suppress(ValueError):  # of a port or an IPv6 address that is none
        parts = urlsplit(url)
        if parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0:
            return parts
    raise InvalidOptionError(f"{option} is no URL of HTTP", hint=f"{option} = 'https://host/path'")


class _Connection(http.client.HTTPConnection):
    """A connection to an address that a check has accepted.

    Args:
        parts: of the URL.
        timeout: in seconds.
        check: raises for an address that may not be reached.
    """

    def __init__(self, parts: SplitResult, timeout: float, check: Check | None) -> None:
        self.default_port = 443 if parts.scheme == "https" else 80
        super().__init__(parts.netloc, timeout=timeout)
        self._is_tls = parts.scheme == "https"
        self._check = check

    def connect(self) -> None:
        """Connect to the name's address; what is checked is what is connected to."""
        self.sock = _connected(self.host, self.port, self.timeout, self._check)
        if self._is_tls:
            context = ssl.create_default_context()
            self.sock = context.wrap_socket(self.sock, server_hostname=self.host)


def _connected(host: str, port: int, timeout: float | None, check: Check | None) -> socket.socket:
    """A socket to the first address of a name that answers, once all of them were checked."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(each[4][0]) for each in found]
    for each in addresses:
        if check is not None:
            check(each)
    for each in addresses[:-1]:
        with contextlib.suppress(OSError):
            return socket.create_connection((each, port), timeout)
    return socket.create_connection((addresses[-1], port), timeout)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a post.

    Attributes:
        status: the status of the answer; 0 when there was none.
        error: why there was none, in a word; empty when there was one.
    """

    status: int
    error: str = ""

    @property
    def is_accepted(self) -> bool:
        """Whether the receiver has taken it."""
        return 200 <= self.status < 300

    @property
    def is_refused(self) -> bool:
        """Whether the receiver will not take it the next time either."""
        return 400 <= self.status < 500 and self.status not in {401, 403, 404, 408, 425, 429}


def http_post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    timeout: float,
    check: Check | None = None,
) -> Answer:
    """Post JSON; redirects are not followed, and no proxy of the environment is used.

    Args:
        url: where to.
        body: the JSON.
        headers: more headers.
        timeout: seconds until it has failed.
        check: called with each address that the name of the URL has now; what it raises, an Error,
            is raised, and nothing is connected to. None: all may be reached.
    """
    named = {name.title(): value for name, value in headers.items()}
    headers = {"Connection": "close", "Content-Type": "application/json", **named}
    try:
        parts = urlsplit(url)
        target = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
        with contextlib.closing(_Connection(parts, timeout, check)) as connection:
            connection.request("POST", target, body, headers)
            return Answer(connection.getresponse().status)
    except (OSError, ValueError, http.client.HTTPException) as error:
        return Answer(0, type(error).__name__)


def signature(secret: str, body: bytes, now: int) -> str:
    """The header ``X-Millstream-Signature``: HMAC-SHA256 of the time and the body.

    >>> signature("secret", b"{}", 1700000000)[:30]
    't=1700000000,v1=b8569b78799ff9'
    """
    signed = hmac.new(secret.encode(), f"{now}.".encode() + body, hashlib.sha256)
    return f"t={now},v1={signed.hexdigest()}"
