"""Posting over HTTP, signed: webhooks of the server, and the webhook sink."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

Check = Callable[[str], None]
"""Raises for an address that may not be reached."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A receiver that has moved has not accepted."""

    def redirect_request(self, *_: Any) -> None:  # noqa: ANN401 - as urllib has it
        """Follow none."""


class _Plain(http.client.HTTPConnection):
    """A connection to addresses that a check has accepted.

    Args:
        check: raises for an address that may not be reached.
    """

    def __init__(self, *given: Any, check: Check, **options: Any) -> None:  # noqa: ANN401
        super().__init__(*given, **options)
        self._check = check

    def connect(self) -> None:
        """Connect to the name's address; what is checked is what is connected to."""
        self.sock = _connected(self.host, self.port, self.timeout, self._check)


class _Tls(http.client.HTTPSConnection):
    """The same with TLS."""

    def __init__(self, *given: Any, check: Check, **options: Any) -> None:  # noqa: ANN401
        super().__init__(*given, **options)
        self._check = check

    def connect(self) -> None:
        """Connect, and shake hands as the name that was asked for."""
        plain = _connected(self.host, self.port, self.timeout, self._check)
        self.sock = ssl.create_default_context().wrap_socket(plain, server_hostname=self.host)


class _Checked(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    def __init__(self, check: Check) -> None:
        super().__init__()
        self._check_address = check

    def http_open(self, req: urllib.request.Request) -> Any:  # noqa: ANN401 - as urllib has it
        return self.do_open(partial(_Plain, check=self._check_address), req)

    def https_open(self, req: urllib.request.Request) -> Any:  # noqa: ANN401 - as urllib has it
        return self.do_open(partial(_Tls, check=self._check_address), req)


def _connected(host: str, port: int, timeout: float | None, check: Check) -> socket.socket:
    """A socket to the first address of a name that answers, once all of them were checked."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(each[4][0]) for each in found]
    for each in addresses:
        check(each)
    for each in addresses[:-1]:
        try:
            return socket.create_connection((each, port), timeout)
        except OSError:
            continue
    return socket.create_connection((addresses[-1], port), timeout)


_no_proxy: Final = urllib.request.ProxyHandler({})
_opener: Final = urllib.request.build_opener(_NoRedirect, _no_proxy)


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
    opener = _opener
    if check is not None:
        opener = urllib.request.build_opener(_NoRedirect, _no_proxy, _Checked(check))
    headers = {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310 - as checked
    try:
        with opener.open(request, timeout=timeout) as answer:
            return Answer(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return Answer(error.code)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None)  # that of a URLError: a refused connection, say
        return Answer(0, type(reason if isinstance(reason, Exception) else error).__name__)


def signature(secret: str, body: bytes, now: int) -> str:
    """The header ``X-Millstream-Signature``: HMAC-SHA256 of the time and the body.

    >>> signature("secret", b"{}", 1700000000)[:30]
    't=1700000000,v1=b8569b78799ff9'
    """
    signed = hmac.new(secret.encode(), f"{now}.".encode() + body, hashlib.sha256)
    return f"t={now},v1={signed.hexdigest()}"
