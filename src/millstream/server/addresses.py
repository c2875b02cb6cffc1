"""Which addresses the webhooks of tenants may reach: public ones, and those the operator allows."""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING, Final

from millstream.errors import AddressRefusedError, InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Iterable

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA: Final = ipaddress.ip_address("168.63.129.16")
"""A cloud's service for its machines that has a public address; all others have private ones."""
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_COMPATIBLE: Final = ipaddress.ip_network("::/96")
"""IPv6 addresses that have an IPv4 address in them."""


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Networks, from texts such as ``10.1.0.0/16``.

    >>> parse_networks(["10.1.0.0/16", "::1"])
    (IPv4Network('10.1.0.0/16'), IPv6Network('::1/128'))

    Raises:
        InvalidOptionError: a text that is no network.
    """
    try:
        return tuple(ipaddress.ip_network(each) for each in texts)
    except ValueError as error:
        raise InvalidOptionError(str(error), hint="such as 10.1.0.0/16") from error


def is_public(address: Address) -> bool:
    """Whether an address is of the public internet.

    >>> [is_public(ipaddress.ip_address(each)) for each in ("93.184.216.34", "::ffff:10.0.0.1")]
    [True, False]
    """
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64 or address in _COMPATIBLE:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address.is_site_local or address.teredo is not None:
            return False
    return address.is_global and not address.is_multicast and address != _METADATA


class AddressRules:
    """Which addresses may be reached besides public ones.

    >>> AddressRules(parse_networks(["10.0.0.0/8"])).check("10.1.2.3")
    >>> AddressRules(()).check("169.254.169.254")
    Traceback (most recent call last):
    millstream.errors.AddressRefusedError: the address is not of the public internet...

    Args:
        allowed: these networks.
    """

    def __init__(self, allowed: tuple[Network, ...] = ()) -> None:
        self._allowed = allowed

    def check(self, address: str) -> None:
        """Raise unless an address may be reached.

        Raises:
            AddressRefusedError: it may not.
        """
        found = ipaddress.ip_address(address.partition("%")[0])
        mapped = getattr(found, "ipv4_mapped", None) or found
        if not is_public(found) and not any(mapped in each for each in self._allowed):
            raise AddressRefusedError(  # without the address: a name may be asked for on purpose
                "the address is not of the public internet",
                hint="the server's operator allows others with --webhook-network",
            )

    def check_host(self, host: str) -> None:
        """Raise if a name has an address now that may not be reached.

        Raises:
            AddressRefusedError: it has.
        """
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return  # it has none; each delivery looks again
        for each in found:
            self.check(str(each[4][0]))
