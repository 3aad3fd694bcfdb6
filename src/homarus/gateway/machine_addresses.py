"""The addresses of this machine's network interfaces.

Python's library cannot list addresses, so that the system's `getifaddrs` is called. Imported by a
gateway only when it listens beyond this machine.
"""

import ctypes
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Any, Final

_UP, _LOOPBACK = 0x1, 0x8
_RUNNING = 0x40
_IPV6_FLAGS: Final = Path("/proc/net/if_inet6")  # Linux alone has it
_UNSTABLE: Final = 0x01 | 0x08 | 0x20 | 0x40  # temporary, duplicate, deprecated, tentative
_TAILNETS: Final = (ip_network("100.64.0.0/10"), ip_network("fd7a:115c:a1e0::/48"))
_ROUTES: Final = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


class _Interface(ctypes.Structure):
    """The fields of `struct ifaddrs` that Linux and the BSDs have in common."""


_Interface._fields_ = [
    ("next", ctypes.POINTER(_Interface)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
]


def machine_addresses() -> tuple[str, ...]:
    """Return the addresses under which other machines reach this one, the most usual first.

    Loopback, link-local and temporary addresses, and interfaces that are down, are left out.
    """
    found = dict.fromkeys(_interface_addresses())
    for probe in () if found else _ROUTES:
        with suppress(OSError):
            found[_route_source(*probe)] = None
    unstable = _unstable_addresses()
    usable = [each for each in map(ip_address, found) if _is_usable(each) and each not in unstable]
    preferred = ""
    with suppress(OSError):
        preferred = _route_source(*_ROUTES[0])
    return tuple(map(str, sorted(usable, key=lambda each: _rank(each, preferred))))


def _route_source(family: int, target: str) -> str:
    """Return the address from which this machine would send to another one; nothing is sent."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((target, 9))
        return str(probe.getsockname()[0])


def _interface_addresses() -> Iterator[str]:
    try:
        library = ctypes.CDLL(None)
        first = ctypes.POINTER(_Interface)()
        if library.getifaddrs(ctypes.byref(first)) != 0:
            return
    except (OSError, AttributeError):
        return
    try:
        each: Any = first
        while each:
            entry = each.contents
            is_up = entry.flags & _UP and entry.flags & _RUNNING and not entry.flags & _LOOPBACK
            if is_up and entry.address and (text := _read_address(entry.address)):
                yield text
            each = entry.next
    finally:
        library.freeifaddrs(first)


def _read_address(pointer: int) -> str:
    """Return the address of a `struct sockaddr`; empty when it is of another family."""
    head = ctypes.string_at(pointer, 2)
    # The BSDs have the length in the first byte, Linux a family of two bytes.
    is_linux = sys.platform.startswith("linux")
    family = int.from_bytes(head, sys.byteorder) if is_linux else head[1]
    if family == socket.AF_INET:
        return socket.inet_ntop(family, ctypes.string_at(pointer + 4, 4))
    if family == socket.AF_INET6:
        return socket.inet_ntop(family, ctypes.string_at(pointer + 8, 16))
    return ""


def _unstable_addresses() -> set[IPv4Address | IPv6Address]:
    found: set[IPv4Address | IPv6Address] = set()
    with suppress(OSError, ValueError):
        for line in _IPV6_FLAGS.read_text(encoding="ascii").splitlines():
            fields = line.split()
            if int(fields[4], 16) & _UNSTABLE:
                found.add(IPv6Address(bytes.fromhex(fields[0])))
    return found


def _is_usable(address: IPv4Address | IPv6Address) -> bool:
    return not (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
    )


def _rank(address: IPv4Address | IPv6Address, preferred: str) -> tuple[bool, bool, bool]:
    is_tailnet = any(address in net for net in _TAILNETS if net.version == address.version)
    return address.version == 6, str(address) != preferred, is_tailnet
