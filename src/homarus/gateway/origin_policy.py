"""The facts of an HTTP request or WebSocket upgrade, and whether its origin is allowed.

A web page anywhere can make its reader's browser call a gateway on the reader's machine. So every
request must name one of the gateway's own addresses as its Host (a foreign name that resolves to
this machine is refused), and what a browser sends must come from a page that the gateway served or
that the config names (its Origin). Other programs send no Origin.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, TypeAlias
from urllib.parse import unquote_plus

from homarus.core.errors import ConfigError, HomarusError
from homarus.core.fast_dataclass import dataclass

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network
HostPort: TypeAlias = tuple[str, int]  # a host and a port, as a URL names them

# Headers that a proxy, a tunnel or a CDN adds, by name and by prefix: a request with one did not
# come straight from its peer.
FORWARDING = frozenset(
    {
        "cdn-loop", "client-ip", "fastly-client-ip", "forwarded", "forwarded-for", "true-client-ip",
        "via", "x-client-ip", "x-cluster-client-ip", "x-forwarded", "x-host", "x-nginx-proxy",
        "x-originating-ip", "x-proxy-user", "x-proxyuser-ip", "x-real-ip", "x-real-port",
        "x-scheme", "x-user-ip",
    }
)  # fmt: skip
FORWARDING_PREFIXES = (
    "cf-", "fly-", "ngrok-", "remote-", "tailscale-", "x-amzn-", "x-appengine-", "x-arr-",
    "x-auth-request-", "x-authentik-", "x-azure-", "x-envoy-", "x-forwarded-", "x-goog-",
    "x-ms-client-principal", "x-original-", "x-remote-", "x-vercel-", "x-webauth-",
)  # fmt: skip
_SINGLE = ("host", "origin", "authorization")
_TWO_LENGTHS = frozenset({"content-length", "transfer-encoding"})  # a proxy may trust the other
_SECRETS = frozenset(
    {"token", "accesstoken", "authtoken", "devicetoken", "gatewaytoken", "password", "secret"}
    | {"apikey", "authorization"}
)
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,252}[a-z0-9])?")
_HOST = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[^\[\]:/@\\\s,]{1,254})(?::([0-9]{1,5}))?")
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]{0,30})://([^/?#@\\\s,]{1,262})")
_PORTS = {"http": 80, "https": 443}
_MAX_HOPS = 32
_MAX_TARGET_BYTES = 8 * 1024


class RequestBlockedError(HomarusError):
    """A request that is refused; `status` is the HTTP status."""

    code = "gateway.barred"

    def __init__(self, status: int, message: str, *, fix: str = "", after_s: int = 0) -> None:
        super().__init__(message, fix=fix)
        self.status = status
        self.after_s = after_s  # value of Retry-After, when waiting helps


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """The facts of a request: `peer` and `own` are the socket's two ends, the rest are headers."""

    peer: str
    own: str = ""
    host: str = ""
    origin: str | None = None
    authorization: str = field(default="", repr=False)
    forwarded_for: tuple[str, ...] = ()
    is_forwarded: bool = False
    is_browser: bool = False
    has_secret_in_query: bool = False
    is_malformed: bool = False
    target_bytes: int = 0
    user_agent: str = ""
    is_upgrade: bool = False  # to a WebSocket
    headers: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_from_own_machine(self) -> bool:
        """Whether a program on the gateway's own machine opened the connection."""
        return is_loopback(self.peer) or _same_address(self.peer, self.own)

    def header(self, name: str) -> str:
        """Return a header's value; empty when it is missing, or there twice with two values."""
        values = {value.strip() for value in self.headers.get(name, ())}
        return values.pop() if len(values) == 1 else ""

    @classmethod
    def from_scope(cls, scope: Mapping[str, Any]) -> "RequestInfo":
        """Return the facts of an ASGI request or upgrade."""
        client, server = scope.get("client"), scope.get("server")
        return cls.read(
            client[0] if client else "",
            scope.get("headers", ()),
            own=server[0] if server else "",
            path=scope.get("raw_path") or b"",
            query=scope.get("query_string", b""),
            is_upgrade=scope.get("type") == "websocket",
        )

    @classmethod
    def read(
        cls,
        peer: str,
        headers: Iterable[tuple[bytes, bytes]],
        *,
        own: str = "",
        path: bytes = b"/",
        query: bytes = b"",
        is_upgrade: bool = False,
    ) -> "RequestInfo":
        """Return the facts of a request from its raw headers."""
        found: dict[str, list[str]] = {}
        for name, value in headers:
            found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        one = {name: (found.get(name) or [""])[0] for name in (*_SINGLE, "user-agent")}
        hops = ",".join(found.get("x-forwarded-for", ())) or ",".join(found.get("x-real-ip", ()))
        return cls(
            peer=peer,
            own=own,
            host=one["host"],
            origin=one["origin"] if "origin" in found else None,
            authorization=one["authorization"],
            forwarded_for=tuple(hop.strip() for hop in hops.split(",") if hop.strip()),
            is_forwarded=not FORWARDING.isdisjoint(found)
            or any(name.startswith(FORWARDING_PREFIXES) for name in found),
            is_browser="origin" in found or any(name.startswith("sec-fetch-") for name in found),
            has_secret_in_query=_has_secret(query),
            is_malformed=any(len(found.get(name, ())) > 1 for name in _SINGLE)
            or found.keys() >= _TWO_LENGTHS,
            target_bytes=len(path) + len(query),
            user_agent=one["user-agent"],
            is_upgrade=is_upgrade,
            headers=found,
        )


@dataclass(frozen=True, slots=True)
class OriginPolicy:
    """The hosts and origins that the gateway accepts: its port, extra names, pages, proxies."""

    port: int
    origins: frozenset[tuple[str, str, int]] = frozenset()
    proxies: tuple[Network, ...] = ()
    scheme: str = "http"
    proxy_headers: frozenset[str] = frozenset()  # that the config names, besides FORWARDING

    @classmethod
    def from_config(
        cls,
        port: int,
        allowed_origins: Collection[str] = (),
        proxies: Collection[str] = (),
        proxy_headers: Collection[str] = (),
        *,
        is_tls: bool = False,
    ) -> "OriginPolicy":
        """Return the policy of the config; raises ConfigError for an invalid origin or proxy."""
        return cls(
            port=port,
            origins=frozenset(_allowed(text) for text in allowed_origins),
            proxies=tuple(_proxy(text) for text in proxies),
            proxy_headers=frozenset(name.strip().lower() for name in proxy_headers),
            scheme="https" if is_tls else "http",
        )

    def check(self, request: RequestInfo) -> None:
        """Check the host and origin of a request; raises RequestBlockedError."""
        self.check_shape(request)
        host_port = parse_host(request.host, self.scheme)
        if host_port is None or not self._is_own_host(host_port, request):
            raise RequestBlockedError(
                403,
                "the Host header does not name this gateway",
                fix="use its address, or add the name to gateway.controlUi.allowedOrigins",
            )
        if request.origin is not None and not (
            self._is_allowed_origin(request.origin, host_port) or self.is_local_page(request)
        ):
            raise RequestBlockedError(
                403,
                "pages of this origin may not call the gateway",
                fix="open the gateway's own page, or add it to gateway.controlUi.allowedOrigins",
            )

    def check_shape(self, request: RequestInfo) -> None:
        """Check what every request must fulfil, whatever its host; raises RequestBlockedError."""
        if request.is_malformed:
            raise RequestBlockedError(400, "a header stands twice, or the body has two lengths")
        if request.target_bytes > _MAX_TARGET_BYTES:
            raise RequestBlockedError(414, "the address is too long")
        if request.has_secret_in_query:
            raise RequestBlockedError(
                400,
                "a secret in the query of a URL is not accepted",
                fix="URLs are logged and remembered: send it in the Authorization header",
            )

    def is_own_host(self, request: RequestInfo) -> bool:
        """Return whether a plain request to a port with TLS names this gateway as its host."""
        host_port = parse_host(request.host, "http")
        return host_port is not None and self._is_own_host(host_port, request)

    def _is_own_host(self, host_port: HostPort, request: RequestInfo) -> bool:
        if any(host_port == (host, port) for _, host, port in self.origins):
            return True
        host, port = host_port
        return port == self.port and (is_local_name(host) or _same_address(host, request.own))

    def _is_allowed_origin(self, origin: str, host_port: HostPort) -> bool:
        found = parse_origin(origin)
        return found is not None and (found == (self.scheme, *host_port) or found in self.origins)

    def is_local_page(self, request: RequestInfo) -> bool:
        """Return whether a page of another server of this machine opens a WebSocket.

        Such a page may be a client in development, so its socket is opened and the handshake
        refuses it: a page cannot read the answer to an upgrade that is refused.
        """
        found = parse_origin(request.origin or "")
        return (
            request.is_upgrade
            and found is not None
            and is_local_name(found[1])
            and found[1:] != parse_host(request.host, self.scheme)
            and found not in self.origins
            and self.is_local(request)
        )

    def client_ip(self, request: RequestInfo) -> str:
        """Return the client's address; forwarded addresses count only from trusted proxies."""
        if not self.is_trusted_proxy(request.peer):
            return plain_ip(request.peer)
        last = plain_ip(request.peer)
        for hop in reversed(request.forwarded_for[-_MAX_HOPS:]):
            ip = _hop_ip(hop)
            if not ip:  # hops beyond it cannot be verified
                return last
            last = ip
            if not self.is_trusted_proxy(ip):
                return ip
        return last

    def is_local(self, request: RequestInfo) -> bool:
        """Return whether nothing contradicts that a program on this machine calls directly.

        A proxy on this machine need not add a header, so only a client that is also
        authenticated by the owner's secret may be treated as local.
        """
        host_port = parse_host(request.host, self.scheme)
        return (
            not request.is_forwarded
            and self.proxy_headers.isdisjoint(request.headers)
            and is_loopback(request.peer)
            and host_port is not None
            and is_local_name(host_port[0])
        )

    def is_trusted_proxy(self, ip: str) -> bool:
        """Return whether an address is in `gateway.trustedProxies`."""
        address = _address(ip)
        return address is not None and any(
            address in network for network in self.proxies if network.version == address.version
        )


def parse_host(text: str, scheme: str = "http") -> HostPort | None:
    """Parse a Host header; None when it is invalid."""
    found = _HOST.fullmatch(text.lower())
    if not found:
        return None
    name, port = found[1], int(found[2]) if found[2] else _PORTS[scheme]
    if port > 65_535:
        return None
    if name.startswith("["):
        address = _address(name[1:-1])
        return (str(address), port) if isinstance(address, IPv6Address) else None
    return (name, port) if _NAME.fullmatch(name) else None


def parse_origin(text: str) -> tuple[str, str, int] | None:
    """Parse an Origin header into scheme, host, port; None for `null` and for what is no page."""
    found = _ORIGIN.fullmatch(text.lower())
    if not found or found[1] not in _PORTS:
        return None
    host_port = parse_host(found[2], found[1])
    return (found[1], *host_port) if host_port else None


def is_local_name(host: str) -> bool:
    """Return whether a host from `parse_host` always means this machine, without DNS."""
    return host == "localhost" or is_loopback(host)


def is_loopback(ip: str) -> bool:
    """Return whether an address is a loopback address."""
    address = _address(ip)
    return address is not None and address.is_loopback


def plain_ip(text: str) -> str:
    """Return an address in canonical form, without port and zone; empty when it is invalid."""
    address = _address(text)
    return str(address) if address else ""


def _address(text: str) -> Address | None:
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _same_address(host: str, own: str) -> bool:
    address = _address(host)
    return address is not None and not address.is_unspecified and address == _address(own)


def _hop_ip(text: str) -> str:
    """Return the address of one entry of X-Forwarded-For, which may have a port."""
    if text.startswith("["):
        return plain_ip(text[1:].partition("]")[0])
    return plain_ip(text.partition(":")[0] if text.count(":") == 1 else text)


def _has_secret(query: bytes) -> bool:
    names = re.split(rb"[&;]", query)
    return any(
        re.sub(r"[^a-z]", "", unquote_plus(name.partition(b"=")[0].decode("latin-1")).lower())
        in _SECRETS
        for name in names
    )


def _allowed(text: str) -> tuple[str, str, int]:
    found = parse_origin(text.strip().removesuffix("/"))
    if found is None:
        raise ConfigError(
            f"{text!r} is not an origin",
            key="gateway.controlUi.allowedOrigins",
            fix="write scheme, host and port, for example https://gateway.example",
        )
    return found


def _proxy(text: str) -> Network:
    try:
        return ip_network(text.strip(), strict=False)
    except ValueError:
        raise ConfigError(
            f"{text!r} is not an address",
            key="gateway.trustedProxies",
            fix="write an address or a network, for example 10.0.0.2 or 10.0.0.0/24",
        ) from None
