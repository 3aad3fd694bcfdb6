"""Bound the connections that have no authenticated client, per address and in total.

A new connection beyond the bound ends the oldest one of its address that is not being answered:
a client that holds connections open without authenticating cannot keep others of its address out,
and no other address notices. Connections of authenticated clients are not counted.
"""

import asyncio
from collections.abc import Callable, Iterable
from ipaddress import IPv6Address, ip_address, ip_network
from typing import ClassVar


class ConnectionSlots:
    """The open connections without an authenticated client, oldest first.

    `is_busy` returns whether a connection's request is being answered, so that it must not be
    ended; `is_exempt` whether an address, as that of a trusted proxy, stands for many clients.
    """

    max_per_address: ClassVar[int] = 64
    max_total: ClassVar[int] = 2_000

    def __init__(
        self,
        is_busy: Callable[[asyncio.Transport], bool],
        is_exempt: Callable[[str], bool] = lambda _ip: False,
    ) -> None:
        self._is_busy, self._is_exempt = is_busy, is_exempt
        self._all: dict[asyncio.Transport, str] = {}
        self._by_address: dict[str, dict[asyncio.Transport, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, transport: asyncio.Transport) -> bool:
        """Count a new connection, ending another one if needed; False when that is impossible."""
        peer = transport.get_extra_info("peername")
        ip = str(peer[0]) if peer else ""
        address = address_block(ip)
        same = self._by_address.get(address, {})
        if len(same) >= self.max_per_address and not self._is_exempt(ip) and not self._end(same):
            return False
        if len(self._all) >= self.max_total and not self._end(self._all):
            return False
        self._all[transport] = address
        self._by_address.setdefault(address, {})[transport] = None
        return True

    def release(self, transport: asyncio.Transport) -> None:
        """Stop counting a connection that has ended or whose client is authenticated."""
        address = self._all.pop(transport, None)
        if address is not None:
            same = self._by_address[address]
            del same[transport]
            if not same:
                del self._by_address[address]

    def _end(self, candidates: Iterable[asyncio.Transport]) -> bool:
        """End the oldest of these connections that may be ended; False when there is none."""
        oldest = next((each for each in candidates if not self._is_busy(each)), None)
        if oldest is None:
            return False
        self.release(oldest)
        oldest.abort()
        return True


def address_block(ip: str) -> str:
    """Return the network of an IPv6 address, of which one host can use every address; else `ip`."""
    try:
        address = ip_address(ip.partition("%")[0])
    except ValueError:
        return ip
    if isinstance(address, IPv6Address) and not address.is_loopback:
        return str(address.ipv4_mapped or ip_network((address, 64), strict=False))
    return ip
