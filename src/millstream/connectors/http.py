"""Posting over HTTP, signed: webhooks of the server, and the webhook sink."""

from __future__ import annotations

import hashlib
import hmac
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A receiver that has moved has not accepted."""

    def redirect_request(self, *_: Any) -> None:  # noqa: ANN401 - as urllib has it
        """Follow none."""


_opener: Final = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({}))


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


def http_post(url: str, body: bytes, headers: Mapping[str, str], timeout: float) -> Answer:
    """Post JSON; redirects are not followed, and no proxy of the environment is used."""
    headers = {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310 - as checked
    try:
        with _opener.open(request, timeout=timeout) as answer:
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
