"""Match hosts and ports against a list that the owner wrote. Pure.

An entry is a host name, `*.` and a name (every name beneath it, at any depth, and not the name
itself) or an address, each with an optional port: `example.org`, `*.example.org:8443`,
`[2606:4700::1111]:443`. Without a port, an entry is for the ports of the web.

    parse_allowed_host("Example.org.")        # AllowedHost("example.org", 0)
    HostAllowlist(["*.example.org"]).find("a.example.org", 443)
"""

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

from homarus.core.errors import BlockedUrlError
from homarus.core.fast_dataclass import dataclass
from homarus.net.guard import PORTS, is_port_number, normalize_host

_WEB_PORTS: Final = frozenset(PORTS.values())
# The two standards for such names encode these differently, so they would be two hosts.
_AMBIGUOUS: Final = frozenset("ßẞς\u200c\u200d")


@dataclass(frozen=True, slots=True)
class AllowedHost:
    """An entry: `host` is as `normalize_host` returns it, `port` 0 for the ports of the web."""

    host: str
    port: int = 0

    def matches(self, host: str, port: int) -> bool:
        """Return whether the entry is for a host, as `parse_url` returns it, and a port."""
        return self.matches_host(host) and (port == self.port if self.port else port in _WEB_PORTS)

    def matches_host(self, host: str) -> bool:
        """Return whether the entry is for a host, on whatever port."""
        if self.host.startswith("*."):
            return host.endswith(self.host[1:]) and not _is_address(host)
        return host == self.host

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host and self.port else self.host
        return f"{host}:{self.port}" if self.port else host


class HostAllowlist:
    """A list of entries. Raises BlockedUrlError for text that is no entry."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._entries = tuple(map(parse_allowed_host, entries))

    def find(self, host: str, port: int) -> AllowedHost | None:
        """Return the entry for a host and a port; one that names the port is preferred."""
        found = [each for each in self._entries if each.matches(host, port)]
        return max(found, key=lambda each: each.port, default=None)

    def has_host(self, host: str) -> bool:
        """Return whether a host is listed for some port."""
        return any(each.matches_host(host) for each in self._entries)


def parse_allowed_host(text: str) -> AllowedHost:
    """Return an entry of the list. Raises BlockedUrlError for text that is none."""
    bare = text.strip()
    host, colon, digits = bare, "", ""
    if bare.startswith("["):
        host, bracket, rest = bare[1:].partition("]")
        host, colon, digits = f"[{host}{bracket}", rest[:1], rest[1:]
        if not bracket or colon not in ("", ":"):
            raise _invalid(bare)
    elif bare.count(":") == 1:
        host, colon, digits = bare.partition(":")
    if (colon and not is_port_number(digits)) or _AMBIGUOUS & set(host):
        raise _invalid(bare)
    name = normalize_host(host)
    if name.startswith("*.") and _is_address(name[2:]):
        raise _invalid(bare)
    return AllowedHost(name, int(digits or 0))


def _invalid(text: str) -> BlockedUrlError:
    return BlockedUrlError(f"{text} is not a host name or an address, with or without a port")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
