"""An HTTP/1.1 client for one host, with a pool of connections.

It has none of the features of a general client that we do not need: redirects, cookies, forms,
HTTP/2. A request takes a third of the CPU time, and the process 5 MB less memory. It uses the
proxy that the environment names, as general clients do.
"""

import asyncio
import base64
import ipaddress
import os
import ssl
import sys
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import SplitResult, quote, unquote, urlsplit

from homarus.core.fast_dataclass import dataclass
from homarus.net.connection import ExchangeError, Headers, HttpConnection

MAX_IDLE_CONNECTIONS = 20
KEEP_ALIVE_S = 30.0
CHUNK_BYTES = 256 * 1024  # of a decompressed body
_HAPPY_EYEBALLS_S = 0.25  # before the next address of a host is tried in parallel
_PORTS = {"http": 80, "https": 443}
# Where systems store certificates, for a Python that was built for another system.
_CERTIFICATES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """The status and headers of a response, and the connection that its body comes from."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    _connection: HttpConnection

    def iter_body(self) -> AsyncGenerator[bytes, None]:
        """Yield the body as it arrives, decompressed if the server compressed it unasked."""
        encoding = self.headers.get("content-encoding", "identity").strip().lower()
        return (
            self._decompressed()
            if encoding in {"gzip", "x-gzip", "deflate"}
            else self._connection.body()
        )

    def end_within(self, seconds: float) -> None:
        """Wait for more of the body for at most this long from now."""
        self._connection.end_within(seconds)

    async def _decompressed(self) -> AsyncGenerator[bytes, None]:
        decompressor = zlib.decompressobj(zlib.MAX_WBITS | 32)
        async for piece in self._connection.body():
            rest = piece
            try:
                while rest:
                    yield decompressor.decompress(rest, CHUNK_BYTES)
                    rest = decompressor.unconsumed_tail
            except zlib.error as exc:
                raise ExchangeError("cut", f"it cannot be unpacked: {exc}") from exc


class HttpClient:
    """An HTTP client for one host, directly or through a proxy.

    With `addresses`, the name of the host is not resolved: connections are made to these, and a
    proxy is told to connect to the first of them.
    """

    def __init__(
        self,
        url: SplitResult,
        *,
        connect_s: float,
        idle_s: float,
        proxy: str,
        tries_in_parallel: bool = True,
        addresses: Sequence[str] = (),
    ) -> None:
        self._scheme, self._port = url.scheme, url.port or _PORTS[url.scheme]
        host = url.hostname or ""
        self._host = host if host.isascii() else host.encode("idna").decode("ascii")
        self._connect_s, self._idle_s = connect_s, idle_s
        self._tries_in_parallel = tries_in_parallel  # the addresses of a host, by both families
        self._proxy = split_proxy(proxy) if proxy else None
        self._addresses = tuple(addresses)
        self._is_forwarded = self._proxy is not None and self._scheme == "http" and not addresses
        self._own = [
            ("Host", _host_header(self._host, url.port, url.scheme)),
            *basic_credentials(url, "Authorization"),
        ]
        self._idle: list[HttpConnection] = []
        self._connections: set[HttpConnection] = set()
        self._context: ssl.SSLContext | None = None

    @asynccontextmanager
    async def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes = b"",
        before_write: Callable[[], Awaitable[None]] | None = None,
    ) -> AsyncIterator[HttpResponse]:
        """Send a request and yield its response.

        `before_write` is awaited once there is a connection, before anything is sent. A response
        that was not read to its end when the block ends closes the connection. Raises
        ExchangeError.
        """
        connection = self._idle_connection() or await self._connect()
        try:
            if before_write:
                await before_write()
            response = await connection.send_request(
                method, self._target(target), self._all(headers), body
            )
            merged = dict[str, str]()
            for name, value in response.headers:
                key, text = name.decode("ascii"), value.decode("latin-1")
                merged[key] = f"{merged[key]}, {text}" if key in merged else text
            yield HttpResponse(response.status_code, merged, connection)
        finally:
            if connection.release() and len(self._idle) < MAX_IDLE_CONNECTIONS:
                self._idle.append(connection)
            else:
                connection.abort()

    async def close(self) -> None:
        """Close every connection."""
        for connection in list(self._connections):
            connection.abort()
            await connection.closed

    def _idle_connection(self) -> HttpConnection | None:
        now_s = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable and now_s - connection.free_since_s <= KEEP_ALIVE_S:
                return connection
            connection.abort()
        return None

    def _target(self, target: str) -> str:
        if not self._is_forwarded:
            return target
        return f"http://{self._own[0][1]}{target}"  # a proxy for plain HTTP needs the absolute URL

    def _all(self, headers: Mapping[str, str]) -> Headers:
        headers_by_name = {name.lower(): (name, value) for name, value in headers.items()}
        headers_by_name |= {name.lower(): (name, value) for name, value in self._own}
        if self._proxy is not None and self._is_forwarded:
            headers_by_name |= {
                name: (name, value)
                for name, value in basic_credentials(self._proxy, PROXY_CREDENTIALS)
            }
        return [(name.encode(), value.encode()) for name, value in headers_by_name.values()]

    async def _connect(self) -> HttpConnection:
        try:
            if self._scheme == "https" and self._context is None:
                # Reading the certificates takes 30 ms: in a thread, not to block the event loop.
                self._context = await asyncio.to_thread(tls_context)
            async with asyncio.timeout(self._connect_s):
                if self._proxy is None:
                    return await self._connect_directly()
                return await self._connect_through(self._proxy)
        except TimeoutError as exc:
            reason = f"nobody answered within {self._connect_s:g} s"
            raise ExchangeError("unreachable", reason) from exc
        except OSError as exc:
            raise ExchangeError("unreachable", exc.strerror or str(exc)) from exc
        except UnicodeError as exc:
            raise ExchangeError("unreachable", "that is not the name of a host") from exc
        except ExchangeError as exc:  # from the proxy: the request was not sent yet
            raise ExchangeError("unreachable", str(exc)) from exc

    async def _connect_directly(self) -> HttpConnection:
        *firsts, last = self._addresses or (self._host,)
        for address in firsts:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(self._connect_s / 3):
                    return await self._open(address, self._port, self._context)
        return await self._open(last, self._port, self._context)

    async def _open(
        self, host: str, port: int, context: ssl.SSLContext | None, name: str = ""
    ) -> HttpConnection:
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: HttpConnection(self._idle_s, self._connections.discard),
            host,
            port,
            ssl=context,
            server_hostname=(name or self._host) if context else None,
            # Not for localhost, where it gains nothing: CPython's staggered_race leaks the socket
            # when it is cancelled just after one attempt succeeded.
            happy_eyeballs_delay=_HAPPY_EYEBALLS_S
            if self._tries_in_parallel and not _is_loopback(host)
            else None,
        )
        self._connections.add(connection)
        return connection

    async def _connect_through(self, proxy: SplitResult) -> HttpConnection:
        if not proxy.hostname:
            raise ExchangeError("unreachable", "the proxy's address is not one")
        if proxy.scheme not in _PORTS:
            raise ExchangeError("unreachable", f"a {proxy.scheme} proxy cannot be used")
        context = await asyncio.to_thread(tls_context) if proxy.scheme == "https" else None
        port = proxy.port or _PORTS[proxy.scheme]
        connection = await self._open(proxy.hostname, port, context, proxy.hostname)
        if self._is_forwarded:
            return connection
        host = self._addresses[0] if self._addresses else self._host
        target = f"[{host}]:{self._port}" if ":" in host else f"{host}:{self._port}"
        headers = [("Host", target), *basic_credentials(proxy, PROXY_CREDENTIALS)]
        try:
            encoded = [(name.encode(), value.encode()) for name, value in headers]
            response = await connection.send_request("CONNECT", target, encoded, b"")
            if not 200 <= response.status_code < 300:
                raise ExchangeError("unreachable", f"the proxy answered {response.status_code}")
            await connection.start_tunnel(self._context, self._host)
        except BaseException:
            connection.abort()
            raise
        return connection


PROXY_CREDENTIALS = "Proxy-Authorization"


def split_proxy(proxy: str) -> SplitResult:
    """Split the URL of a proxy; an invalid one gives a result without a host."""
    try:
        parts = urlsplit(proxy)
        return parts if parts.port != 0 else urlsplit("")
    except ValueError:  # also raised for an invalid port
        return urlsplit("")


def _host_header(host: str, port: int | None, scheme: str) -> str:
    """Return the value of the Host header."""
    name = f"[{host}]" if ":" in host else host
    return name if port in {None, _PORTS[scheme]} else f"{name}:{port}"


def basic_credentials(url: SplitResult, header: str) -> list[tuple[str, str]]:
    """Return the user name and password of a URL as a header for basic authentication."""
    if not (url.username or url.password):
        return []
    pair = f"{unquote(url.username or '')}:{unquote(url.password or '')}"
    return [(header, f"Basic {base64.b64encode(pair.encode()).decode()}")]


def request_target(url: SplitResult) -> str:
    """Return the path and query of a URL as a request line has them."""
    safe = "/!$&'()*+,;=:@%-._~"
    path, query = quote(url.path or "/", safe=safe), quote(url.query, safe=f"{safe}?")
    return f"{path}?{query}" if query else path


def proxy_for(url: SplitResult) -> str:
    """Return the proxy that the environment names for a URL; "" for none or for localhost."""
    if _is_loopback(url.hostname or ""):
        return ""
    is_configured = any(name.lower().endswith("_proxy") for name in os.environ)
    if not is_configured and sys.platform not in {"darwin", "win32"}:
        return ""
    from urllib.request import getproxies, proxy_bypass

    proxies, host = getproxies(), url.netloc.rpartition("@")[2]
    proxy = proxies.get(url.scheme) or proxies.get("all") or ""
    if not proxy or proxy_bypass(host):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def tls_context() -> ssl.SSLContext:
    """Make a TLS context with the certificates that the environment names, else the system's."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if not (file or folder) and sys.platform in {"darwin", "win32"}:
        import truststore

        return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context = ssl.create_default_context(cafile=file or None, capath=folder or None)
    if not (file or folder):
        paths = ssl.get_default_verify_paths()
        if not paths.cafile and not (paths.capath and any(Path(paths.capath).iterdir())):
            certificates = next((path for path in _CERTIFICATES if Path(path).is_file()), None)
            if certificates:
                context.load_verify_locations(certificates)
    return context


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
