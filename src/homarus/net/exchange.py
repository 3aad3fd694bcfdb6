"""Requests to one service and their answers, over connections that are kept.

What a general HTTP client brings along, nobody here has a use for: redirects, cookies, forms, a
second version of the protocol. Without it a request costs a third of the CPU, and the process
5 MB less. A proxy that the environment names is used as such clients do.
"""

import asyncio
import base64
import ipaddress
import os
import ssl
import sys
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import SplitResult, quote, unquote, urlsplit

from homarus.core.value import dataclass
from homarus.net.line import ExchangeFailed, Headers, Line

MAX_KEPT = 20
KEEP_S = 30.0  # how long an unused connection is kept
PIECE_BYTES = 256 * 1024  # of a body that is unpacked
_SECOND_TRY_S = 0.25  # before the next of a host's addresses is tried too
_PORTS = {"http": 80, "https": 443}
# Where systems keep certificates, for a Python that was built for another one.
_CERTIFICATES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


@dataclass(frozen=True, slots=True)
class Reply:
    """The beginning of an answer, and the line on which the rest comes."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    _line: Line

    def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes, unpacked if it was packed although nobody asked for that."""
        packed = self.headers.get("content-encoding", "identity").strip().lower()
        return self._unpacked() if packed in {"gzip", "x-gzip", "deflate"} else self._line.body()

    async def _unpacked(self) -> AsyncGenerator[bytes, None]:
        packer = zlib.decompressobj(zlib.MAX_WBITS | 32)
        async for piece in self._line.body():
            left = piece
            try:
                while left:
                    yield packer.decompress(left, PIECE_BYTES)
                    left = packer.unconsumed_tail
            except zlib.error as exc:
                raise ExchangeFailed("cut", f"it cannot be unpacked: {exc}") from exc


class Peer:
    """One host that answers over HTTP, straight or through a proxy."""

    def __init__(self, url: SplitResult, *, connect_s: float, idle_s: float, proxy: str) -> None:
        self._scheme, self._port = url.scheme, url.port or _PORTS[url.scheme]
        host = url.hostname or ""
        self._host = host if host.isascii() else host.encode("idna").decode("ascii")
        self._connect_s, self._idle_s = connect_s, idle_s
        self._proxy = _split(proxy) if proxy else None
        self._own = [("Host", _at(self._host, url.port, url.scheme)), *_basic(url, "Authorization")]
        self._kept: list[Line] = []
        self._lines: set[Line] = set()
        self._context: ssl.SSLContext | None = None

    @asynccontextmanager
    async def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes = b""
    ) -> AsyncIterator[Reply]:
        """Ask for something, get an answer; leaving the block hangs up unless it was read."""
        line = self._kept_line() or await self._connect()
        try:
            answer = await line.ask(method, self._target(target), self._all(headers), body)
            got = dict[str, str]()
            for name, value in answer.headers:
                key, text = name.decode("ascii"), value.decode("latin-1")
                got[key] = f"{got[key]}, {text}" if key in got else text
            yield Reply(answer.status_code, got, line)
        finally:
            if line.release() and len(self._kept) < MAX_KEPT:
                self._kept.append(line)
            else:
                line.drop()

    async def close(self) -> None:
        """Hang up on every line."""
        for line in list(self._lines):
            line.drop()
            await line.closed

    def _kept_line(self) -> Line | None:
        now_s = asyncio.get_running_loop().time()
        while self._kept:
            line = self._kept.pop()
            if line.is_usable and now_s - line.free_since_s <= KEEP_S:
                return line
            line.drop()
        return None

    def _target(self, target: str) -> str:
        if self._proxy is None or self._scheme == "https":
            return target
        return f"http://{self._own[0][1]}{target}"  # a proxy for plain HTTP wants it whole

    def _all(self, headers: Mapping[str, str]) -> Headers:
        named = {name.lower(): (name, value) for name, value in headers.items()}
        named |= {name.lower(): (name, value) for name, value in self._own}
        if self._proxy is not None and self._scheme == "http":
            named |= {name: (name, value) for name, value in _basic(self._proxy, _PROXY_KEY)}
        return [(name.encode(), value.encode()) for name, value in named.values()]

    async def _connect(self) -> Line:
        try:
            if self._scheme == "https" and self._context is None:
                # Reading the certificates takes 30 ms: in a thread, so that nobody is held up.
                self._context = await asyncio.to_thread(trust)
            async with asyncio.timeout(self._connect_s):
                if self._proxy is None:
                    return await self._open(self._host, self._port, self._context)
                return await self._through(self._proxy)
        except TimeoutError as exc:
            told = f"nobody answered within {self._connect_s:g} s"
            raise ExchangeFailed("unreachable", told) from exc
        except OSError as exc:
            raise ExchangeFailed("unreachable", exc.strerror or str(exc)) from exc
        except UnicodeError as exc:
            raise ExchangeFailed("unreachable", "that is not the name of a host") from exc
        except ExchangeFailed as exc:  # of the proxy: the service was not asked yet
            raise ExchangeFailed("unreachable", str(exc)) from exc

    async def _open(self, host: str, port: int, context: ssl.SSLContext | None) -> Line:
        _, line = await asyncio.get_running_loop().create_connection(
            lambda: Line(self._idle_s, self._lines.discard),
            host,
            port,
            ssl=context,
            server_hostname=host if context else None,
            # On this machine there is nothing to race for, and who is cancelled in a race that is
            # just won leaves the socket open (CPython's staggered_race).
            happy_eyeballs_delay=None if _is_loopback(host) else _SECOND_TRY_S,
        )
        self._lines.add(line)
        return line

    async def _through(self, proxy: SplitResult) -> Line:
        if not proxy.hostname:
            raise ExchangeFailed("unreachable", "the proxy's address is not one")
        if proxy.scheme not in _PORTS:
            raise ExchangeFailed("unreachable", f"a {proxy.scheme} proxy cannot be used")
        context = await asyncio.to_thread(trust) if proxy.scheme == "https" else None
        port = proxy.port or _PORTS[proxy.scheme]
        line = await self._open(proxy.hostname, port, context)
        if self._context is None:
            return line
        place = f"[{self._host}]" if ":" in self._host else self._host
        place = f"{place}:{self._port}"
        known = [("Host", place), *_basic(proxy, _PROXY_KEY)]
        try:
            asked = [(name.encode(), value.encode()) for name, value in known]
            answer = await line.ask("CONNECT", place, asked, b"")
            if not 200 <= answer.status_code < 300:
                raise ExchangeFailed("unreachable", f"the proxy answered {answer.status_code}")
            await line.secure(self._context, self._host)
        except BaseException:
            line.drop()
            raise
        return line


_PROXY_KEY = "Proxy-Authorization"


def _split(proxy: str) -> SplitResult:
    """A proxy's address, which somebody typed; one that is none has no host."""
    try:
        parts = urlsplit(proxy)
        return parts if parts.port != 0 else urlsplit("")
    except ValueError:  # as it also says of a port that is none
        return urlsplit("")


def _at(host: str, port: int | None, scheme: str) -> str:
    """The Host header."""
    named = f"[{host}]" if ":" in host else host
    return named if port in {None, _PORTS[scheme]} else f"{named}:{port}"


def _basic(url: SplitResult, header: str) -> list[tuple[str, str]]:
    """The name and password of an address, as a header."""
    if not (url.username or url.password):
        return []
    pair = f"{unquote(url.username or '')}:{unquote(url.password or '')}"
    return [(header, f"Basic {base64.b64encode(pair.encode()).decode()}")]


def target_of(url: SplitResult) -> str:
    """The path and query of an address, as a request names them."""
    known = "/!$&'()*+,;=:@%-._~"
    path, query = quote(url.path or "/", safe=known), quote(url.query, safe=f"{known}?")
    return f"{path}?{query}" if query else path


def proxy_for(url: SplitResult) -> str:
    """The proxy that the environment names for an address; empty when there is none.

    What runs on this machine is spoken to straight.
    """
    if _is_loopback(url.hostname or ""):
        return ""
    named = any(name.lower().endswith("_proxy") for name in os.environ)
    if not named and sys.platform not in {"darwin", "win32"}:
        return ""
    from urllib.request import getproxies, proxy_bypass

    proxies, place = getproxies(), url.netloc.rpartition("@")[2]
    found = proxies.get(url.scheme) or proxies.get("all") or ""
    if not found or proxy_bypass(place):
        return ""
    return found if "://" in found else f"http://{found}"


def trust() -> ssl.SSLContext:
    """Whom to trust: what the environment names, else what the system does."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if not (file or folder) and sys.platform in {"darwin", "win32"}:
        import truststore

        return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context = ssl.create_default_context(cafile=file or None, capath=folder or None)
    if not (file or folder):
        places = ssl.get_default_verify_paths()
        if not places.cafile and not (places.capath and any(Path(places.capath).iterdir())):
            found = next((path for path in _CERTIFICATES if Path(path).is_file()), None)
            if found:
                context.load_verify_locations(found)
    return context


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
