"""Receive the redirect of a browser login on a local server.

It listens on 127.0.0.1 only, answers a few small GET requests, and echoes nothing it receives. A
request with another `state` is ignored: any page in the browser can send one.
"""

import asyncio
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import field
from urllib.parse import parse_qs, urlsplit

from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass

HOST = "127.0.0.1"
PATH = "/callback"
MAX_HEAD_BYTES = 16 * 1024
HEAD_S = 10.0
_LOCAL = frozenset({"127.0.0.1", "localhost"})
_PAGE = (
    "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {size}\r\n"
    "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n"
    "Content-Security-Policy: default-src 'none'\r\nConnection: close\r\n\r\n{body}"
)
_DONE = "<!doctype html><title>Homarus</title><p>Logged in. You can close this page."
_ENDED = "<!doctype html><title>Homarus</title><p>The login was not granted. See the terminal."
_STRAY = "<!doctype html><title>Homarus</title><p>This is not the login that is waited for."


@dataclass(frozen=True, slots=True)
class RedirectResult:
    """The result of a redirect: a code, or the name of an error."""

    code: str = field(default="", repr=False)
    error: str = ""


def parse_redirect(url: str, state: str) -> RedirectResult | None:
    """Parse the result from a redirect's address; None when it belongs to another login.

    `code#state` is accepted too, which services without redirects display.
    """
    text = url.strip()
    if "?" not in text and "://" not in text:
        code, _, told = text.partition("#")
        values = {"code": [code], "state": [told]}
    else:
        try:
            values = parse_qs(urlsplit(text).query, max_num_fields=50)
        except ValueError:
            return None
    told = values.get("state", [""])[0]
    if not hmac.compare_digest(told.encode(errors="replace"), state.encode()):
        return None
    code, error = (values.get(name, [""])[0] for name in ("code", "error"))
    return RedirectResult(code, error) if code or error else None


class RedirectServer:
    """A waiting server; `url` is the redirect address for the browser."""

    def __init__(self, url: str, path: str, state: str) -> None:
        self.url = url
        self._path, self._state = path, state
        self._answer: asyncio.Future[RedirectResult] = asyncio.get_running_loop().create_future()

    async def wait(self) -> RedirectResult:
        return await asyncio.shield(self._answer)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request; its result is set once the browser has its page."""
        answer: RedirectResult | None = None
        try:
            async with asyncio.timeout(HEAD_S):
                head = await reader.readuntil(b"\r\n\r\n")
                status, body, answer = self._judge(head.decode("latin-1"))
                writer.write(_PAGE.format(status=status, size=len(body), body=body).encode())
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()
            if answer and not self._answer.done():
                self._answer.set_result(answer)

    def _judge(self, head: str) -> tuple[str, str, RedirectResult | None]:
        first, *lines = head.split("\r\n")
        words = first.split(" ")
        hosts = [line.partition(":")[2].strip() for line in lines if line[:5].lower() == "host:"]
        if len(words) != 3 or words[0] != "GET" or len(hosts) != 1:
            return "400 Bad Request", _STRAY, None
        # Another host name means DNS rebinding.
        if hosts[0].rpartition(":")[0] not in _LOCAL and hosts[0] not in _LOCAL:
            return "403 Forbidden", _STRAY, None
        target, _, _ = words[1].partition("?")
        if target != self._path:
            return "404 Not Found", _STRAY, None
        answer = parse_redirect(f"http://{HOST}{words[1]}", self._state)
        if answer is None:
            return "400 Bad Request", _STRAY, None
        return "200 OK", _ENDED if answer.error else _DONE, answer


@asynccontextmanager
async def open_redirect_server(redirect_url: str, state: str) -> AsyncIterator[RedirectServer]:
    """Open the server, at `redirect_url` if the service requires a certain one."""
    host, port, path = _local_address(redirect_url or f"http://{HOST}{PATH}")
    waiting: RedirectServer | None = None

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if waiting:
            await waiting.serve(reader, writer)

    try:
        server = await asyncio.start_server(serve, HOST, port, limit=MAX_HEAD_BYTES)
    except OSError as exc:
        raise UserError(
            f"cannot listen on port {port} of this machine: {exc.strerror or exc}",
            fix="end the program that uses it, or log in with --paste",
        ) from exc
    try:
        port = server.sockets[0].getsockname()[1]
        waiting = RedirectServer(f"http://{host}:{port}{path}", path, state)
        yield waiting
    finally:
        server.close()


def _local_address(url: str) -> tuple[str, int, str]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 0
    except ValueError:
        host, port = "", 0
    if host not in _LOCAL or parts.scheme != "http":
        raise UserError(
            f"{url} does not lead to this machine",
            fix="give an address like http://127.0.0.1:8765/callback",
        )
    return host, port, parts.path or "/"
