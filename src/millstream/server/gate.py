"""The gate: who a client is, whether a web page may speak for it, and how much it may open."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from millstream.errors import AuthenticationError, LimitError, OriginError
from millstream.server.roles import LOCAL
from millstream.server.settings import LOCAL_NAMES, is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from starlette.datastructures import Headers

    from millstream.server.keys import Keys
    from millstream.server.roles import Identity
    from millstream.server.settings import Settings

SUBPROTOCOL: Final = "millstream.v1"
_KEY_PROTOCOL: Final = "millstream.key."
_MANY = 2


class Gate:
    """Lets clients in.

    Args:
        settings: whether keys are asked for, whose pages may use it, the limits.
        keys: the keys; None: there are none.
    """

    def __init__(self, settings: Settings, keys: Keys | None) -> None:
        self._settings = settings
        self._keys = keys if settings.auth else None
        self._open: Counter[str] = Counter()

    # ---- who it is

    def identity(self, headers: Headers, subprotocols: Sequence[str] = ()) -> Identity:
        """Who a client is.

        The key is in ``Authorization: Bearer``, or, of a browser's WebSocket, which has no headers,
        in a subprotocol ``millstream.key.KEY``. It is never taken from an address, which is logged
        in many places.

        Raises:
            AuthenticationError: there is no key, or it is none of this server's.
        """
        if not self._settings.auth:
            return LOCAL
        found = None if self._keys is None else self._keys.find(_secret(headers, subprotocols))
        if found is None:
            raise AuthenticationError(
                "a key is needed",
                hint="Authorization: Bearer KEY; millstream keys create DIR NAME makes one",
            )
        return found.identity

    def is_valid(self, identity: Identity) -> bool:
        """Whether the key that a client came with is still what it was."""
        if self._keys is None:
            return True
        key = self._keys.get(identity.name)
        return key is not None and key.identity == identity

    # ---- whose page it is

    def check_origin(self, headers: Headers, *, may_link: bool = False) -> None:
        """Raise if a web page of another site makes the request, or it is for another machine.

        Without keys, whoever can reach the server may use it; a page that a user of this machine
        looks at must not be able to, directly or under a name of its own (DNS rebinding).

        Args:
            headers: of the request.
            may_link: whether pages of other sites may have a link that leads here.

        Raises:
            OriginError: it is one of these.
        """
        host = headers.get("host", "")
        origins = headers.getlist("origin")
        if len(origins) >= _MANY or len(headers.getlist("host")) >= _MANY:
            raise OriginError("a header is there twice", hint="send Host and Origin once")
        if origins and not self.may_origin(origins[0], host):
            raise OriginError(
                "pages of this origin may not use the server",
                hint="start it with --origin https://that.site",
            )
        is_link = may_link and headers.get("sec-fetch-mode") == "navigate"
        if not origins and headers.get("sec-fetch-site") == "cross-site" and not is_link:
            raise OriginError("the request comes from a page of another site")
        if not self._settings.auth and not self._is_ours(host):
            raise OriginError(
                "the server is not known under this name",
                hint="use 127.0.0.1 or localhost, or start it with --host NAME",
            )

    def may_origin(self, origin: str, host: str) -> bool:
        """Whether pages of an origin may use the server."""
        if origin in self._settings.origins or "*" in self._settings.origins:
            return True
        return origin != "null" and urlsplit(origin).netloc.lower() == host.lower()

    def _is_ours(self, host: str) -> bool:
        if not is_loopback(self._settings.http[0]):
            return True  # it was said to be --insecure
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            return False
        return not host or name in LOCAL_NAMES or name in self._settings.hosts

    # ---- how much

    @contextmanager
    def subscription(self, identity: Identity) -> Iterator[None]:
        """Count a subscription of a client while it is open.

        Raises:
            LimitError: it has too many.
        """
        limit = self._settings.limits.subscriptions_per_key
        if self._open[identity.name] >= limit:
            raise LimitError(
                f"the key has {limit:,} subscriptions already", hint="end some of them first"
            )
        self._open[identity.name] += 1
        try:
            yield
        finally:
            self._open[identity.name] -= 1

    @property
    def subscriptions(self) -> int:
        """How many are open."""
        return self._open.total()


def _secret(headers: Headers, subprotocols: Sequence[str]) -> str:
    given = headers.getlist("authorization")
    if len(given) == 1:
        scheme, _, secret = given[0].partition(" ")
        return secret.strip() if scheme.lower() == "bearer" else ""
    offered = [each for each in subprotocols if each.startswith(_KEY_PROTOCOL)]
    return offered[0].removeprefix(_KEY_PROTOCOL) if len(offered) == 1 and not given else ""
