"""Send HTTP requests to a chat service; shared by adapters.

One ServiceClient per account. Failures become an error class that says what is known: a request
that was never sent is SendError and may be retried, one without a response is ChannelError.
Responses of any status are the adapter's to interpret. Nothing is retried, no redirect is followed,
and no URL or body is logged, as some contain a token.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, quote, urlencode, urlsplit
from uuid import uuid4

from homarus.channels.base import BeforeWrite
from homarus.core.errors import ChannelError, ConfigError, MediaTooLargeError, SendError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json, Media

if TYPE_CHECKING:
    from homarus.net.http_client import HttpClient, HttpResponse

CONNECT_TIMEOUT_S = 10.0
RESPONSE_TIMEOUT_S = 30.0
MAX_ANSWER_BYTES = 32 * 1024 * 1024
_NOT_SENT = frozenset({"unreachable", "unsendable"})


@dataclass(frozen=True, slots=True)
class ServiceResponse:
    """The response of a service. `data` is its JSON, None if the body was none."""

    status: int
    headers: Mapping[str, str]  # lower-case names
    body: bytes
    data: Json


@dataclass(frozen=True, slots=True)
class UploadFile:
    """A file to upload in a form."""

    name: str
    content: bytes
    mime: str = ""


class ServiceClient:
    """A client of one service with pooled connections. `name` is what errors call it."""

    def __init__(
        self,
        name: str,
        base_url: str,
        headers: Mapping[str, str] | None = None,
        *,
        proxy: str = "",
        tries_in_parallel: bool = True,
    ) -> None:
        self._name, self._address = name, _address(name, base_url)
        self._headers = dict(headers or {})
        self._proxy = proxy  # else the one of the environment
        self._tries_in_parallel = tries_in_parallel
        self._peer: HttpClient | None = None
        self._users = 0

    async def get(
        self, path: str, *, timeout_s: float = RESPONSE_TIMEOUT_S, **query: str | int
    ) -> ServiceResponse:
        """Send a GET request; the values of the query are quoted."""
        target = f"{path}?{urlencode(query)}" if query else path
        return await self.request("GET", target, timeout_s=timeout_s)

    async def send_json(
        self,
        method: str,
        path: str,
        data: Json,
        *,
        timeout_s: float = RESPONSE_TIMEOUT_S,
        before_write: BeforeWrite | None = None,
    ) -> ServiceResponse:
        """Send a request with a JSON body."""
        body = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        return await self.request(
            method,
            path,
            body.encode("utf-8", "replace"),
            {"Content-Type": "application/json"},
            timeout_s=timeout_s,
            before_write=before_write,
        )

    async def send_form(
        self,
        path: str,
        fields: Mapping[str, str],
        files: Mapping[str, UploadFile],
        *,
        timeout_s: float = RESPONSE_TIMEOUT_S,
        before_write: BeforeWrite | None = None,
    ) -> ServiceResponse:
        """Send a multipart form with files."""
        mark = uuid4().hex
        body = _form(mark, fields, files)
        kind = {"Content-Type": f"multipart/form-data; boundary={mark}"}
        return await self.request(
            "POST", path, body, kind, timeout_s=timeout_s, before_write=before_write
        )

    async def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        timeout_s: float = RESPONSE_TIMEOUT_S,
        before_write: BeforeWrite | None = None,
    ) -> ServiceResponse:
        """Send one request and read the complete response within `timeout_s`.

        `before_write` is awaited once there is a connection, before the request is written.
        """
        async with self._asked(
            method, path, body, headers, timeout_s, before_write=before_write
        ) as reply:
            message = await self._read(reply, MAX_ANSWER_BYTES)
            return ServiceResponse(reply.status, reply.headers, message, _json(message))

    async def download(
        self, path: str, max_bytes: int, *, timeout_s: float = 4 * RESPONSE_TIMEOUT_S
    ) -> ServiceResponse:
        """Return a file. Raises MediaTooLargeError as early as possible, without reading on."""
        async with self._asked("GET", path, b"", None, timeout_s) as reply:
            announced = reply.headers.get("content-length", "")
            if reply.status >= 300:  # an error response instead of the file
                max_bytes = MAX_ANSWER_BYTES
            if announced.isdigit() and int(announced) > max_bytes:
                raise MediaTooLargeError(f"it has {announced} bytes, and {max_bytes} is the most")
            body = await self._read(reply, max_bytes)
            return ServiceResponse(
                reply.status, reply.headers, body, _json(body) if reply.status >= 300 else None
            )

    @asynccontextmanager
    async def in_use(self) -> AsyncIterator[None]:
        """Keep connections open while the block lasts; the end of the last block closes them."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                await self.close()

    async def close(self) -> None:
        """Close all connections."""
        peer, self._peer = self._peer, None
        if peer:
            await peer.close()

    @asynccontextmanager
    async def _asked(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str] | None,
        timeout_s: float,
        *,
        before_write: BeforeWrite | None = None,
    ) -> "AsyncIterator[HttpResponse]":
        from homarus.net.connection import ExchangeError

        sent = {"User-Agent": "homarus", "Accept": "*/*"} | self._headers | dict(headers or {})
        sent["Content-Length"] = str(len(body))
        target = self._address.path.rstrip("/") + path
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._reached().request(method, target, sent, body, before_write) as reply,
            ):
                yield reply
        except ExchangeError as exc:
            if exc.kind in _NOT_SENT:
                again = exc.kind == "unreachable"
                raise SendError(f"{self._name} cannot be reached: {exc}", retryable=again) from exc
            raise ChannelError(f"{self._name} did not answer: {exc}") from exc
        except TimeoutError as exc:
            raise ChannelError(f"{self._name} did not answer within {timeout_s:.0f} s") from exc

    async def _read(self, reply: "HttpResponse", max_bytes: int) -> bytes:
        pieces, size = list[bytes](), 0
        async for piece in reply.iter_body():
            size += len(piece)
            if size > max_bytes:
                raise MediaTooLargeError(f"{self._name} sent more than {max_bytes} bytes")
            pieces.append(piece)
        return b"".join(pieces)

    def _reached(self) -> "HttpClient":
        if self._peer is None:
            # Imported with the first request: creating a channel must stay cheap.
            from homarus.net.http_client import HttpClient, proxy_for

            proxy = self._proxy or proxy_for(self._address)
            # Timeouts are per request: a long poll is silent for long.
            self._peer = HttpClient(
                self._address,
                connect_s=CONNECT_TIMEOUT_S,
                idle_s=600.0,
                proxy=proxy,
                tries_in_parallel=self._tries_in_parallel,
            )
        return self._peer


def _address(name: str, url: str) -> SplitResult:
    with suppress(ValueError):  # an invalid port, or brackets that do not close
        address = urlsplit(url)
        if address.scheme in {"http", "https"} and address.hostname and address.port != 0:
            return address
    raise ConfigError(f"{name}: {url!r} is no address (http://… or https://…)")


async def load_upload(media: Media, max_bytes: int) -> UploadFile:
    """Return a local file for upload.

    Raises SendError when it cannot be read or is too large.
    """
    path = Path(media.path)
    name = media.name or path.name

    def read() -> bytes:
        with path.open("rb") as opened:
            return opened.read(max_bytes + 1)

    try:
        content = await asyncio.to_thread(read)
    except (OSError, ValueError) as exc:  # a path with a zero byte is invalid
        raise SendError(f"{name} cannot be read: {exc}", retryable=False) from exc
    if len(content) > max_bytes:
        raise SendError(
            f"{name} has more than {max_bytes} bytes, which is the most",
            retryable=False,
            fix="send a smaller one, or raise the channel's mediaMaxMb",
        )
    return UploadFile(name, content, media.mime)


def quote_path(*steps: str) -> str:
    """Return a URL path of arbitrary segments."""
    return "".join(f"/{quote(step, safe='')}" for step in steps)


def _json(body: bytes) -> Json:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _form(mark: str, fields: Mapping[str, str], files: Mapping[str, UploadFile]) -> bytes:
    parts = [(f'name="{_quoted(name)}"', "", _bytes(value)) for name, value in fields.items()]
    for name, file in files.items():
        mime = file.mime or _guess(file.name)
        what = f'name="{_quoted(name)}"; filename="{_quoted(file.name)}"'
        parts.append((what, f"Content-Type: {mime}\r\n", file.content))
    heads = [
        _bytes(f"--{mark}\r\nContent-Disposition: form-data; {what}\r\n{kind}\r\n")
        for what, kind, _ in parts
    ]
    body = b"".join(
        head + content + b"\r\n" for head, (_, _, content) in zip(heads, parts, strict=True)
    )
    return body + f"--{mark}--\r\n".encode()


def _quoted(text: str) -> str:
    """Return a name that cannot end its quotes or its header line."""
    return text.replace("\\", "_").replace('"', "%22").replace("\r", "_").replace("\n", "_")


def _bytes(text: str) -> bytes:
    """Encode any file name, also one that is not valid text."""
    return text.encode("utf-8", "replace")


def _guess(name: str) -> str:
    import mimetypes  # only for uploads

    return mimetypes.guess_type(name)[0] or "application/octet-stream"
