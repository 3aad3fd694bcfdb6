"""HTTP to a chat service: what adapters of such services share.

One `Api` per account. Whatever fails becomes a class that says what is known: a request that was
never sent is `SendFailed` and may be tried again, one that nobody heard the answer of is
`ChannelError`. What a service answers, whatever its status, is the adapter's to read. Nothing is
retried, no redirect is followed, and no address or body is logged: some carry a token.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, quote, urlencode, urlsplit
from uuid import uuid4

from homarus.core.errors import ChannelError, ConfigError, MediaTooLarge, SendFailed
from homarus.core.message import Json, Media
from homarus.core.value import dataclass

if TYPE_CHECKING:
    from homarus.net.exchange import Peer, Reply

CONNECT_S = 10.0
ANSWER_S = 30.0
MAX_ANSWER_BYTES = 32 * 1024 * 1024
_NOT_SENT = frozenset({"unreachable", "unsendable"})


@dataclass(frozen=True, slots=True)
class Answer:
    """What a service said. `data` is its JSON; None when it was none."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    data: Json


@dataclass(frozen=True, slots=True)
class File:
    """A file to be sent in a form."""

    name: str
    content: bytes
    mime: str = ""


class Api:
    """One service, reached over connections that are kept. `name` is what errors call it."""

    def __init__(
        self,
        name: str,
        base_url: str,
        headers: Mapping[str, str] | None = None,
        *,
        proxy: str = "",
    ) -> None:
        self._name, self._address = name, _address(name, base_url)
        self._headers = dict(headers or {})
        self._proxy = proxy  # else the one that the environment names
        self._peer: Peer | None = None

    async def get(self, path: str, *, answer_s: float = ANSWER_S, **query: str | int) -> Answer:
        """Ask for something; a query's values are quoted here."""
        target = f"{path}?{urlencode(query)}" if query else path
        return await self.ask("GET", target, answer_s=answer_s)

    async def send_json(
        self, method: str, path: str, data: Json, *, answer_s: float = ANSWER_S
    ) -> Answer:
        """Send JSON."""
        body = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        return await self.ask(
            method,
            path,
            body.encode("utf-8", "replace"),
            {"Content-Type": "application/json"},
            answer_s=answer_s,
        )

    async def send_form(
        self,
        path: str,
        fields: Mapping[str, str],
        files: Mapping[str, File],
        *,
        answer_s: float = ANSWER_S,
    ) -> Answer:
        """Send a form with files, as browsers do."""
        mark = uuid4().hex
        body = _form(mark, fields, files)
        kind = {"Content-Type": f"multipart/form-data; boundary={mark}"}
        return await self.ask("POST", path, body, kind, answer_s=answer_s)

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        answer_s: float = ANSWER_S,
    ) -> Answer:
        """One request and the whole of its answer, within `answer_s`."""
        async with self._asked(method, path, body, headers, answer_s) as reply:
            told = await self._read(reply, MAX_ANSWER_BYTES)
            return Answer(reply.status, reply.headers, told, _json(told))

    async def download(
        self, path: str, max_bytes: int, *, answer_s: float = 4 * ANSWER_S
    ) -> Answer:
        """A file: MediaTooLarge as soon as that is known, without reading on."""
        async with self._asked("GET", path, b"", None, answer_s) as reply:
            announced = reply.headers.get("content-length", "")
            if reply.status >= 300:  # no file, but why not
                max_bytes = MAX_ANSWER_BYTES
            if announced.isdigit() and int(announced) > max_bytes:
                raise MediaTooLarge(f"it has {announced} bytes, and {max_bytes} is the most")
            body = await self._read(reply, max_bytes)
            return Answer(
                reply.status, reply.headers, body, _json(body) if reply.status >= 300 else None
            )

    async def close(self) -> None:
        """Hang up for good."""
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
        answer_s: float,
    ) -> "AsyncIterator[Reply]":
        from homarus.net.line import ExchangeFailed

        sent = self._headers | dict(headers or {})
        sent |= {"Content-Length": str(len(body)), "User-Agent": "homarus", "Accept": "*/*"}
        target = self._address.path.rstrip("/") + path
        try:
            async with (
                asyncio.timeout(answer_s),
                self._reached().ask(method, target, sent, body) as reply,
            ):
                yield reply
        except ExchangeFailed as exc:
            if exc.trouble in _NOT_SENT:
                again = exc.trouble == "unreachable"
                raise SendFailed(f"{self._name} cannot be reached: {exc}", retryable=again) from exc
            raise ChannelError(f"{self._name} did not answer: {exc}") from exc
        except TimeoutError as exc:
            raise ChannelError(f"{self._name} did not answer within {answer_s:.0f} s") from exc

    async def _read(self, reply: "Reply", max_bytes: int) -> bytes:
        pieces, size = list[bytes](), 0
        async for piece in reply.pieces():
            size += len(piece)
            if size > max_bytes:
                raise MediaTooLarge(f"{self._name} sent more than {max_bytes} bytes")
            pieces.append(piece)
        return b"".join(pieces)

    def _reached(self) -> "Peer":
        if self._peer is None:
            # Loaded with the first request: to make a channel must cost nothing.
            from homarus.net.exchange import Peer, proxy_for

            proxy = self._proxy or proxy_for(self._address)
            # Deadlines are per request: a long poll is silent for long.
            self._peer = Peer(self._address, connect_s=CONNECT_S, idle_s=600.0, proxy=proxy)
        return self._peer


def _address(name: str, url: str) -> SplitResult:
    with suppress(ValueError):  # of a port that is none, or of brackets that do not close
        address = urlsplit(url)
        if address.scheme in {"http", "https"} and address.hostname and address.port != 0:
            return address
    raise ConfigError(f"{name}: {url!r} is no address (http://… or https://…)")


async def load(media: Media, max_bytes: int) -> File:
    """A file of this machine, to be sent; SendFailed when it cannot be read, or is too large."""
    path = Path(media.path)
    name = media.name or path.name

    def read() -> bytes:
        with path.open("rb") as opened:
            return opened.read(max_bytes + 1)

    try:
        content = await asyncio.to_thread(read)
    except (OSError, ValueError) as exc:  # a path with a zero byte is no path
        raise SendFailed(f"{name} cannot be read: {exc}", retryable=False) from exc
    if len(content) > max_bytes:
        raise SendFailed(
            f"{name} has more than {max_bytes} bytes, which is the most",
            retryable=False,
            fix="send a smaller one, or raise the channel's mediaMaxMb",
        )
    return File(name, content, media.mime)


def path_of(*steps: str) -> str:
    """A path whose steps may hold anything."""
    return "".join(f"/{quote(step, safe='')}" for step in steps)


def _json(body: bytes) -> Json:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _form(mark: str, fields: Mapping[str, str], files: Mapping[str, File]) -> bytes:
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
    """A name that cannot end its quotes or its line."""
    return text.replace("\\", "_").replace('"', "%22").replace("\r", "_").replace("\n", "_")


def _bytes(text: str) -> bytes:
    """Whatever it holds: the name of a file may be no text at all."""
    return text.encode("utf-8", "replace")


def _guess(name: str) -> str:
    import mimetypes  # for who sends files

    return mimetypes.guess_type(name)[0] or "application/octet-stream"
