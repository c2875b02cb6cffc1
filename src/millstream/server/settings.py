"""What a server is started with: addresses, who may use it, and its limits."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from millstream.errors import InvalidOptionError

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.server.addresses import Network

LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What clients may ask for at most.

    Attributes:
        body_bytes: the body of a request.
        message_bytes: a message from a WebSocket client.
        connections: open connections, of HTTP and WebSocket together.
        subscriptions_per_key: open subscriptions of one key; without keys, of all together.
        subscriptions_per_connection: open subscriptions on one WebSocket.
        query_seconds: how long a statement may run.
        result_rows: rows in the answer to a statement.
        workers: threads that run statements, and as many that take in rows.
        header_seconds: how long a client may take to send the head of a request.
        body_seconds: how long it may take to send the body.
        header_bytes: the head of a request.
    """

    body_bytes: int = 16 << 20
    message_bytes: int = 1 << 20
    connections: int = 8192
    subscriptions_per_key: int = 4096
    subscriptions_per_connection: int = 256
    query_seconds: float = 60.0
    result_rows: int = 1_000_000
    workers: int = 8
    header_seconds: float = 10.0
    body_seconds: float = 60.0
    header_bytes: int = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a server is to run.

    Attributes:
        http: host and port of HTTP; port 0: any free one.
        postgres: those of PostgreSQL's protocol; None: it is not served.
        auth: whether a key is asked for.
        insecure: serve other machines although no keys are asked for.
        origins: the web sites whose pages may use it; those it serves itself always may.
        hosts: names of this machine, besides localhost, that requests without a key may be for.
        certificate: the file of a TLS certificate, with its chain.
        private_key: the file of its key; None: it is in the same file.
        directories: the only directories whose files statements of clients may name, in COPY and
            in connectors; empty: none.
        webhook_networks: which addresses the webhooks of tenants may reach besides public ones.
        limits: what clients may ask for.
    """

    http: tuple[str, int] = ("127.0.0.1", 8080)
    postgres: tuple[str, int] | None = None
    auth: bool = False
    insecure: bool = False
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    certificate: Path | None = None
    private_key: Path | None = None
    directories: tuple[Path, ...] = ()
    webhook_networks: tuple[Network, ...] = ()
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        for host, _ in filter(None, (self.http, self.postgres)):
            if not (self.auth or self.insecure or is_loopback(host)):
                raise InvalidOptionError(
                    f"{host} can be reached from other machines, and no keys are asked for",
                    hint="add --auth, and create keys with: millstream keys create DIR NAME; "
                    "or say --insecure",
                )


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0"), is_loopback("localhost")
    (True, False, True)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``; an IPv6 host is in brackets.

    >>> parse_address("127.0.0.1:8080"), parse_address("[::1]:0")
    (('127.0.0.1', 8080), ('::1', 0))

    Raises:
        InvalidOptionError: the text is something else.
    """
    host, separator, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    if not separator or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InvalidOptionError(
            f"{text!r} is not HOST:PORT", hint="such as 127.0.0.1:8080; port 0 is any free one"
        )
    return host, int(port)
