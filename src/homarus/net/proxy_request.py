"""Read what a client requests of a proxy, and make the request for the origin of it. Pure.

The target of the request decides where it goes; a Host header that differs is replaced. Where two
readers could disagree about the end of a message, it is refused.
"""

from collections.abc import Iterable
from typing import Final

import h11

from homarus.core.errors import BlockedUrlError
from homarus.core.fast_dataclass import dataclass
from homarus.net.connection import Headers
from homarus.net.guard import PORTS, parse_url

# They are for one connection; a proxy makes its own. Host and the length are written again.
_OWN: Final = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate",
        b"proxy-authorization", b"te", b"trailer", b"transfer-encoding", b"upgrade",
        b"content-length", b"host", b"expect",
    }
)  # fmt: skip
_TARGET: Final = "http://"


class ProxyRefusalError(Exception):
    """A request is refused: an HTTP status, why, and where it would have led, "" if nowhere."""

    def __init__(self, status: int, reason: str, place: str = "") -> None:
        super().__init__(reason)
        self.status, self.reason, self.place = status, reason, place


@dataclass(frozen=True, slots=True)
class ProxyTarget:
    """Where a request leads; `path` is what the origin is asked for, "" for a tunnel."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def url(self) -> str:
        """The URL that the guard checks, without path and query."""
        return f"{self.scheme}://{format_place(self.host, self.port)}/"

    @property
    def place(self) -> str:
        """The host and the port."""
        return format_place(self.host, self.port)


def format_place(host: str, port: int) -> str:
    """Return a host and a port as one text."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_proxy_target(request: h11.Request) -> ProxyTarget:
    """Return where a request leads. Raises ProxyRefusalError for one that is not for a proxy."""
    method, target = request.method.decode("ascii"), request.target.decode("latin-1")
    if method == "CONNECT":
        host, colon, port = target.rpartition(":")
        if not colon or not host or not port or any(ch in target for ch in "/?#@"):
            raise ProxyRefusalError(400, "CONNECT names a host and a port, as example.org:443")
        return _check_place("https", target)
    if not target.lower().startswith(_TARGET):
        raise ProxyRefusalError(400, "a proxy is asked for http:// by URL, for https:// by CONNECT")
    rest = target[len(_TARGET) :]
    end = min((at for at in map(rest.find, "/?#") if at >= 0), default=len(rest))
    authority, path = rest[:end], rest[end:]
    if "@" in authority:
        raise ProxyRefusalError(403, "the URL contains a user name; it belongs into a header")
    if "#" in path:
        raise ProxyRefusalError(400, "the URL of a request has no fragment")
    place = _check_place("http", authority)
    return ProxyTarget("http", place.host, place.port, path if path.startswith("/") else f"/{path}")


def _check_place(scheme: str, authority: str) -> ProxyTarget:
    try:
        _, host, port = parse_url(f"{scheme}://{authority}/")
    except BlockedUrlError as exc:
        raise ProxyRefusalError(403, f"its host or port is not valid: {exc.message}") from exc
    return ProxyTarget(scheme, host, port)


def check_framing(request: h11.Request) -> None:
    """Raise ProxyRefusalError where two readers could find different ends of a request.

    Lengths that contradict each other are refused by the parser.
    """
    names = [name for name, _ in request.headers]
    has_length, is_chunked = b"content-length" in names, b"transfer-encoding" in names
    if has_length and is_chunked:
        raise ProxyRefusalError(400, "the request states its length twice")
    if is_chunked and request.http_version < b"1.1":
        raise ProxyRefusalError(400, "HTTP/1.0 has no transfer encodings")
    if request.method == b"CONNECT" and (has_length or is_chunked):
        raise ProxyRefusalError(400, "CONNECT has no body")


def make_origin_request(request: h11.Request, target: ProxyTarget) -> h11.Request:
    """Return the request as the origin is sent it."""
    default_port = PORTS[target.scheme]
    host = target.place if target.port != default_port else target.place.rpartition(":")[0]
    framing = [
        (name, value)
        for name, value in request.headers
        if name in (b"content-length", b"transfer-encoding")
    ]
    headers = [(b"Host", host.encode()), *end_to_end(request.headers.raw_items()), *framing]
    headers.append((b"Connection", b"close"))
    return h11.Request(method=request.method, target=target.path.encode("latin-1"), headers=headers)


def end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the headers that are not for one connection only, without the framing of the body."""
    given = list(headers)
    named = {
        token.strip().lower()
        for name, value in given
        if name.lower() == b"connection"
        for token in value.split(b",")
    }
    return [(name, value) for name, value in given if name.lower() not in _OWN | named]


def make_client_response(response: h11.Response) -> h11.Response:
    """Return the response of an origin as the client is sent it."""
    encodings = [value for name, value in response.headers if name == b"transfer-encoding"]
    lengths = [(name, value) for name, value in response.headers if name == b"content-length"]
    headers = [*end_to_end(response.headers.raw_items()), *([] if encodings else lengths)]
    headers.append((b"Connection", b"close"))
    return h11.Response(
        status_code=response.status_code, headers=headers, reason=bytes(response.reason)
    )
