"""Check where a connection leads that a model or a message aims. Every such one passes here.

A URL is read as browsers read it (WHATWG), and refused where two readers could understand it
differently: backslashes, control characters, user names, missing or extra slashes. Its name is
resolved once; when one of the addresses is not on the public internet, it is refused. The
connection is then made to the addresses that were checked, never to the name again.

    target = await check_target("https://example.com/a.png", policy)
    target.addresses                  # ("93.184.216.34",)
"""

import asyncio
import socket
import unicodedata
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, TypeAlias
from urllib.parse import SplitResult, unquote_to_bytes, urlsplit

from homarus.core.errors import BlockedUrlError, FetchError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line
from homarus.net.special_addresses import (
    IPAddress,
    SpecialRange,
    find_special_range,
    unmapped,
)

PORTS: Final = {"http": 80, "https": 443}
MAX_URL_CHARS: Final = 8_000
MAX_ADDRESSES: Final = 16
RESOLVE_S: Final = 10.0
POLICY_KEY: Final = "tools.web.fetch.ssrfPolicy"

# Resolves a host name to addresses. Raises OSError.
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

# Names that mean this machine or a network of its owner, whatever a resolver says.
_LOCAL_SUFFIXES: Final = (
    "localhost", "localdomain", "local", "internal", "intranet", "lan", "home", "corp", "private",
    "home.arpa", "svc", "onion",
)  # fmt: skip
# Below 1024, only the ports of the web. Above: the list of the fetch standard, databases and
# the control ports of machines.
_WEB_PORTS: Final = frozenset({80, 443})
_FORBIDDEN_PORTS: Final = frozenset(
    {
        1433, 1521, 1719, 1720, 1723, 2049, 2375, 2376, 2379, 2380, 3306, 3389, 3659, 4045, 4190,
        5060, 5061, 5432, 5672, 5900, 5901, 5984, 6000, 6379, 6380, 6566, 6665, 6666, 6667, 6668,
        6669, 6679, 6697, 9042, 9092, 9200, 9300, 10080, 10250, 10255, 11211, 27017, 27018, 27019,
    }
)  # fmt: skip
_FORBIDDEN_HOST_CHARS: Final = frozenset(' "#%*/:<>?@[\\]^`{|}')
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """What `tools.web.fetch.ssrfPolicy` allows besides the public internet, and what it blocks.

    `allowed_hosts` are names whose addresses may also be private; `*.lan` is every name beneath
    lan. `blocked_hosts` are refused with all names beneath them. No setting allows the metadata
    services of clouds, multicast and reserved addresses, except an address that `allowed_hosts`
    has literally. With `only_hosts`, no others are fetched from.
    """

    allows_private: bool = False
    allows_benchmark: bool = False
    allows_unique_local: bool = False
    allowed_hosts: frozenset[str] = frozenset()
    blocked_hosts: frozenset[str] = frozenset()
    only_hosts: frozenset[str] = frozenset()

    def is_unlisted(self, host: str) -> bool:
        """Return whether a list of hosts holds, and a host is not on it."""
        names = self.only_hosts
        return bool(names) and not any(
            host == name or (name.startswith("*.") and host.endswith(name[1:])) for name in names
        )

    def is_blocked(self, host: str) -> bool:
        """Return whether the owner blocks a host, or a domain that it is in."""
        names = (name.removeprefix("*.") for name in self.blocked_hosts)
        return any(host == name or host.endswith(f".{name}") for name in names)

    def is_allowed(self, host: str) -> bool:
        """Return whether the owner allows private addresses for a host."""
        return host in self.allowed_hosts or any(
            name.startswith("*.") and host.endswith(name[1:]) for name in self.allowed_hosts
        )

    def permits(self, found: SpecialRange, host: str) -> bool:
        """Return whether a host may be at an address in a special range."""
        if found.kind == "special":
            return False
        if self.allows_private or self.is_allowed(host):
            return True
        return (found.kind == "benchmark" and self.allows_benchmark) or (
            found.kind == "unique-local" and self.allows_unique_local
        )


PUBLIC_ONLY: Final = NetworkPolicy()


@dataclass(frozen=True, slots=True)
class CheckedTarget:
    """A URL whose host was resolved and checked; a connection is made to `addresses` only.

    `host` is a name in ASCII, or an address.
    """

    url: SplitResult
    host: str
    port: int
    addresses: tuple[str, ...]

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.url.scheme, self.host, self.port


async def resolve_host(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a name, as the system resolves it."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


async def check_target(
    url: str,
    policy: NetworkPolicy = PUBLIC_ONLY,
    resolve: Resolve = resolve_host,
    *,
    is_port_allowed: bool = False,
) -> CheckedTarget:
    """Return where a URL leads. Raises BlockedUrlError, or FetchError for an unknown name.

    With `is_port_allowed` the port is one that the owner named: it need not be one of web servers.
    """
    parts, host, port = parse_url(url)
    if policy.is_blocked(host):
        raise BlockedUrlError(f"{host} is blocked by {POLICY_KEY}.blockedHostnames")
    if policy.is_unlisted(host):
        raise BlockedUrlError(f"{host} is not on the list of hosts that may be fetched from")
    if not is_port_allowed:
        _check_port(port)
    if (literal := _find_literal(host)) is not None:
        if host not in policy.allowed_hosts:
            _check_address(literal, host, policy)
        return CheckedTarget(parts, host, port, (str(unmapped(literal)),))
    if not policy.allows_private and not policy.is_allowed(host):
        _check_name(host)
    addresses = [_parse_address(text, host) for text in await _resolve(host, port, resolve)]
    for address in addresses:
        _check_address(address, host, policy)
    return CheckedTarget(parts, host, port, tuple(str(unmapped(one)) for one in addresses))


def parse_url(url: str) -> tuple[SplitResult, str, int]:
    """Return a URL with its host and port. Raises BlockedUrlError for all but plain HTTP(S)."""
    text = url.strip(" ")
    if len(text) > MAX_URL_CHARS:
        raise BlockedUrlError(f"the URL is longer than {MAX_URL_CHARS} characters")
    if any(unicodedata.category(ch) in _UNSEEN or ch in "\\ " for ch in text):
        raise _invalid(url, "it contains a space, a backslash or a character that is not shown")
    scheme, colon, rest = text.partition(":")
    scheme = scheme.lower()
    if not colon or scheme not in PORTS:
        raise _invalid(url, "only http:// and https:// can be fetched")
    if not rest.startswith("//") or rest.startswith("///"):
        raise _invalid(url, f"{scheme}: is followed by two slashes and a host")
    rest = rest[2:]
    end = min((at for at in map(rest.find, "/?#") if at >= 0), default=len(rest))
    authority, after = rest[:end], rest[end:]
    if "@" in authority:
        raise _invalid(url, "it contains a user name", fix="leave out what is before the @")
    host, port = _split_authority(url, authority, PORTS[scheme])
    shown = f"[{host}]" if ":" in host else host
    netloc = shown if port == PORTS[scheme] else f"{shown}:{port}"
    parts = urlsplit(f"{scheme}://{netloc}{after}")
    if parts.netloc != netloc:
        raise _invalid(url, "it is ambiguous")
    return parts._replace(fragment=""), host, port


def normalize_host(text: str) -> str:
    """Return a host name or address of a setting as `parse_url` returns it, or `*.` and a name.

    Raises BlockedUrlError for text that is none.
    """
    bare = text.strip()
    if bare.startswith("*."):
        return f"*.{_parse_name(bare, bare[2:])}"
    host = bare[1:-1] if bare.startswith("[") and bare.endswith("]") else bare
    return _parse_ipv6(bare, host) if ":" in host else _parse_name(bare, host)


def _split_authority(url: str, authority: str, default_port: int) -> tuple[str, int]:
    if authority.startswith("["):
        inner, bracket, rest = authority[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise _invalid(url, "its brackets do not enclose an address")
        host, digits = _parse_ipv6(url, inner), rest[1:]
    else:
        name, _, digits = authority.partition(":")
        host = _parse_name(url, name)
    if digits and not is_port_number(digits):
        raise _invalid(url, "its port is not a number from 1 to 65535")
    return host, int(digits) if digits else default_port


def is_port_number(digits: str) -> bool:
    """Return whether text is a port number; a very long one is not converted, which would fail."""
    return len(digits) < 20 and digits.isascii() and digits.isdigit() and 0 < int(digits) < 65_536


def _parse_ipv6(url: str, text: str) -> str:
    if "%" in text:
        raise _invalid(url, "it names an interface of this machine")
    try:
        address = IPv6Address(text)
    except ValueError as exc:
        raise _invalid(url, "its host is not an IPv6 address") from exc
    return str(unmapped(address))


def _parse_name(url: str, text: str) -> str:
    """Return a host name in ASCII, or the IPv4 address that browsers read it as."""
    try:
        decoded = unquote_to_bytes(text).decode("utf-8")
    except UnicodeDecodeError as exc:
        raise _invalid(url, "its host is not text") from exc
    # Browsers fold compatibility characters: fullwidth and enclosed digits become digits.
    folded = unicodedata.normalize("NFKC", decoded.replace("\u3002", ".").replace("\uff61", "."))
    host = folded.lower().removesuffix(".")
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii").lower()
        except UnicodeError as exc:
            raise _invalid(url, "its host is not the name of one") from exc
    labels = host.split(".")
    if (
        len(host) > 253
        or any(not label or len(label) > 63 for label in labels)
        or any(ch in _FORBIDDEN_HOST_CHARS or not "!" <= ch <= "~" for ch in host)
    ):
        raise _invalid(url, "its host is not the name of one")
    if _is_number(labels[-1]):
        return str(_parse_ipv4(url, labels))
    return host


def _is_number(label: str) -> bool:
    return label.isdigit() or (label.startswith("0x") and _number(label) is not None)


def _parse_ipv4(url: str, labels: list[str]) -> IPv4Address:
    """Return an address of one to four numbers, each decimal, octal (0…) or hexadecimal (0x…)."""
    numbers = [_number(label) for label in labels]
    *firsts, last = numbers
    if len(numbers) > 4 or last is None or last >= 256 ** (4 - len(firsts)):
        raise _invalid(url, "its host ends in a number and is not an IPv4 address")
    value = last
    for place, number in enumerate(firsts):
        if number is None or number > 255:
            raise _invalid(url, "its host ends in a number and is not an IPv4 address")
        value += number * 256 ** (3 - place)
    return IPv4Address(value)


def _number(label: str) -> int | None:
    digits, base = label, 10
    if label.startswith("0x"):
        digits, base = label[2:] or "0", 16
    elif len(label) > 1 and label.startswith("0"):
        digits, base = label[1:], 8
    if not digits.isalnum():  # `int` also accepts signs, spaces and underscores
        return None
    try:
        return int(digits, base)
    except ValueError:
        return None


def _find_literal(host: str) -> IPAddress | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _check_port(port: int) -> None:
    if (port < 1024 and port not in _WEB_PORTS) or port in _FORBIDDEN_PORTS:
        raise BlockedUrlError(f"port {port} is not a port of web servers")


def _check_name(host: str) -> None:
    is_local = any(host == name or host.endswith(f".{name}") for name in _LOCAL_SUFFIXES)
    if is_local or "." not in host:
        raise BlockedUrlError(
            f"{host} is a name of this machine or its network, not of the public internet",
            fix=_allow_fix(host),
        )


def _check_address(address: IPAddress, host: str, policy: NetworkPolicy) -> None:
    found = find_special_range(address)
    if found is None or policy.permits(found, host):
        return
    shown = host if str(address) == host else f"{host} resolves to {address}, which"
    message = f"{shown} is not on the public internet ({found.name})"
    fix = ""
    if found.kind == "benchmark":
        fix = (
            "a proxy that invents addresses (fake-ip) answers so: "
            f"{POLICY_KEY}.allowRfc2544BenchmarkRange: true allows 198.18.0.0/15"
        )
    elif found.kind != "special":
        fix = _allow_fix(host)
    raise BlockedUrlError(message, fix=fix)


def _allow_fix(host: str) -> str:
    return f"the owner can add {host} to {POLICY_KEY}.allowedHostnames"


async def _resolve(host: str, port: int, resolve: Resolve) -> Sequence[str]:
    try:
        async with asyncio.timeout(RESOLVE_S):
            found = await resolve(host, port)
    except TimeoutError as exc:
        raise FetchError(f"the name {host} was not resolved within {RESOLVE_S:g} s") from exc
    except (OSError, UnicodeError) as exc:
        reason = getattr(exc, "strerror", "") or str(exc)
        raise FetchError(f"the name {host} cannot be resolved: {reason}") from exc
    if not found:
        raise FetchError(f"the name {host} has no address")
    if len(found) > MAX_ADDRESSES:
        raise BlockedUrlError(f"{host} has more than {MAX_ADDRESSES} addresses")
    return found


def _parse_address(text: str, host: str) -> IPAddress:
    try:
        return ip_address(text)
    except ValueError as exc:
        raise BlockedUrlError(f"{host} resolves to {one_line(text, 60)}, no address") from exc


def _invalid(url: str, reason: str, *, fix: str = "") -> BlockedUrlError:
    return BlockedUrlError(f"{one_line(url, 120) or '(empty)'} is not fetched: {reason}", fix=fix)
