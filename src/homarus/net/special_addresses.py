"""Decide which IP addresses belong to the public internet, by our own table. Pure.

`ipaddress.is_global` is not used: it is True for NAT64, 6to4, IPv4-compatible and multicast
addresses. IPv4 addresses are public unless a range of the table has them; IPv6 addresses only in
2000::/3, and not in a range of the table. An IPv6 address that carries an IPv4 address is judged by
that one too, because a translator or a tunnel of the network delivers to it.
"""

from collections.abc import Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass

IPAddress: TypeAlias = IPv4Address | IPv6Address
# private: another machine of the owner may be there. benchmark: used by proxies that answer name
# lookups with invented addresses. unique-local: the same in IPv6. special: never a web server.
RangeKind: TypeAlias = Literal["private", "benchmark", "unique-local", "special"]


@dataclass(frozen=True, slots=True)
class SpecialRange:
    """A range of addresses that are not on the public internet."""

    kind: RangeKind
    name: str


_V4: Final[tuple[tuple[str, RangeKind, str], ...]] = (
    ("0.0.0.0/8", "special", "this host"),
    ("10.0.0.0/8", "private", "a private network"),
    ("100.64.0.0/10", "private", "shared address space (CGNAT, Tailscale)"),
    ("127.0.0.0/8", "private", "loopback"),
    ("168.63.129.16/32", "special", "the metadata service of a cloud"),
    ("169.254.0.0/16", "special", "link-local, where clouds have their metadata service"),
    ("172.16.0.0/12", "private", "a private network"),
    ("192.0.0.0/24", "special", "IETF protocol assignments"),
    ("192.0.2.0/24", "special", "documentation"),
    ("192.31.196.0/24", "special", "AS112"),
    ("192.52.193.0/24", "special", "AMT"),
    ("192.88.99.0/24", "special", "6to4 relays"),
    ("192.168.0.0/16", "private", "a private network"),
    ("192.175.48.0/24", "special", "AS112"),
    ("198.18.0.0/15", "benchmark", "benchmark tests"),
    ("198.51.100.0/24", "special", "documentation"),
    ("203.0.113.0/24", "special", "documentation"),
    ("224.0.0.0/4", "special", "multicast"),
    ("240.0.0.0/4", "special", "reserved"),
)
_V6: Final[tuple[tuple[str, RangeKind, str], ...]] = (
    ("::/128", "special", "unspecified"),
    ("::1/128", "private", "loopback"),
    ("64:ff9b:1::/48", "special", "a translation prefix of the local network"),
    ("2001::/32", "special", "Teredo"),
    ("2001::/23", "special", "IETF protocol assignments"),
    ("2001:db8::/32", "special", "documentation"),
    ("2002::/16", "special", "6to4"),
    ("2620:4f:8000::/48", "special", "AS112"),
    ("3ffe::/16", "special", "6bone"),
    ("3fff::/20", "special", "documentation"),
    # The metadata services that clouds have in the range of private networks.
    ("fd00:ec2::/32", "special", "the metadata service of a cloud"),
    ("fd20:ce::254/128", "special", "the metadata service of a cloud"),
    ("fc00::/7", "unique-local", "a private network"),
    ("fe80::/10", "special", "link-local"),
    ("ff00::/8", "special", "multicast"),
)
_GLOBAL_V6: Final = IPv6Network("2000::/3")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_LOCAL_NAT64: Final = IPv6Network("64:ff9b:1::/48")
_SIX_TO_FOUR: Final = IPv6Network("2002::/16")
_TEREDO: Final = IPv6Network("2001::/32")
_LOW_32: Final = (1 << 32) - 1
# What the 96 bits before an IPv4 address are: compatible, mapped, and SIIT (::ffff:0:a.b.c.d).
_COMPATIBLE, _MAPPED, _TRANSLATED = 0, 0xFFFF, 0xFFFF0000
_ISATAP: Final = frozenset({0x00005EFE, 0x02005EFE})  # the upper half of the interface id


def unmapped(address: IPAddress) -> IPAddress:
    """Return an IPv4-mapped IPv6 address as IPv4, which is what a socket connects to."""
    if isinstance(address, IPv6Address) and int(address) >> 32 == _MAPPED:
        return IPv4Address(int(address) & _LOW_32)
    return address


def find_special_range(address: IPAddress) -> SpecialRange | None:
    """Return why an address is not on the public internet; None when it is."""
    address = unmapped(address)
    if isinstance(address, IPv4Address):
        return _find_v4(address)
    for embedded in embedded_addresses(address):
        if inner := _find_v4(embedded):
            # The tunnel may lead anywhere, so no setting for private networks allows it.
            return SpecialRange("special", f"{inner.name}, as {embedded} in {address}")
    for network, found in _v6_table():
        if address in network:
            return found
    if address in _GLOBAL_V6 or address in _NAT64:
        return None
    return SpecialRange("special", "not global unicast")


def embedded_addresses(address: IPv6Address) -> Iterator[IPv4Address]:
    """Yield the IPv4 addresses that an IPv6 address carries for a translator or a tunnel."""
    value = int(address)
    low, upper = value & _LOW_32, value >> 32
    is_translated = upper in (_MAPPED, _TRANSLATED) or address in _NAT64 or address in _LOCAL_NAT64
    if is_translated or (upper == _COMPATIBLE and low > 1):
        yield IPv4Address(low)
    elif address in _SIX_TO_FOUR:
        yield IPv4Address(value >> 80 & _LOW_32)
    elif address in _TEREDO:
        yield IPv4Address(value >> 64 & _LOW_32)  # the server
        yield IPv4Address(low ^ _LOW_32)  # the client, inverted
    if value >> 32 & _LOW_32 in _ISATAP:
        yield IPv4Address(low)


def _find_v4(address: IPv4Address) -> SpecialRange | None:
    return next((found for network, found in _v4_table() if address in network), None)


@lru_cache(1)
def _v4_table() -> tuple[tuple[IPv4Network, SpecialRange], ...]:
    return tuple((IPv4Network(text), SpecialRange(kind, name)) for text, kind, name in _V4)


@lru_cache(1)
def _v6_table() -> tuple[tuple[IPv6Network, SpecialRange], ...]:
    return tuple((IPv6Network(text), SpecialRange(kind, name)) for text, kind, name in _V6)
