"""The HTTP side of the fake: calls, files, long polling, webhooks and scripted faults."""

import argparse
import asyncio
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, field
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.testing.model_server.body_stream import ConnectionEnded, read_request, write_whole
from homarus.testing.stream_server import StreamServer, serve
from homarus.testing.telegram_server.feed import UpdateFeed
from homarus.testing.telegram_server.forms import Upload, read_params
from homarus.testing.telegram_server.methods import FakeBotError, bad, perform
from homarus.testing.telegram_server.state import TelegramState
from homarus.testing.telegram_server.user_actions import UserActions
from homarus.testing.telegram_server.webhook import Push

TOKEN: Final = "700000001:AAfake-token_0123456789abcdefghijklm"  # noqa: S105 - nobody's
_TOKEN: Final = re.compile(r"[0-9]+:[A-Za-z0-9_-]+")
# Methods of UserActions by the word in the URL.
_ACTIONS: Final = {
    "say": "send_message",
    **{name: name for name in ("attach", "edit", "press", "react", "upgrade", "block")},
}


@dataclass(frozen=True, slots=True)
class CallFault:
    """A fault of a call. `page` answers with a proxy's page, `told` with its own body."""

    status: int = 500
    taken: bool = False
    retry_after: int = 0
    words: str = ""
    wait_s: float = 0.0
    page: bool = False
    told: Json = None


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call and its answer; status 0: none. Files are given by name and size."""

    method: str
    params: dict[str, Any]
    status: int
    answer: Json
    taken: bool = True


@dataclass(slots=True)
class CallLog:
    """Every request on the wire, and every call once it is answered."""

    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    calls: list[RecordedCall] = field(default_factory=list)
    pushes: list[Push] = field(default_factory=list)

    def of(self, *methods: str) -> list[RecordedCall]:
        """Return the calls of these methods, in order."""
        return [call for call in self.calls if call.method in methods]


class TelegramServer(StreamServer):
    """An async context manager; `telegram.url` is the `apiRoot`.

    `reads_all` switches the bot's privacy mode off. `without` are methods it does not know, like
    an older server. `hosts` maps the addresses of webhooks to real ones, as DNS and TLS would.
    """

    def __init__(
        self,
        *,
        token: str = TOKEN,
        username: str = "lobster_bot",
        reads_all: bool = False,
        without: tuple[str, ...] = (),
        hosts: Mapping[str, str] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        super().__init__(self._talk, host, port)
        self.token = token
        self.world = TelegramState(username, reads_all=reads_all)
        self.books = CallLog()
        self.hosts = dict(hosts or {})
        self.feed = UpdateFeed(self.world, self.books.pushes, self.hosts, self._changed_now)
        self.acts = UserActions(self.world, self.feed.notify)
        self.say, self.attach, self.edit = self.acts.send_message, self.acts.attach, self.acts.edit
        self.press, self.react = self.acts.press, self.acts.react
        self.redeliver = self.acts.redeliver
        self._without = without
        self._faults: list[tuple[str, CallFault]] = []
        self._changed = asyncio.Event()

    async def __aexit__(self, *exc: object) -> None:
        self.feed.stop_pushing()
        await super().__aexit__(*exc)

    # For tests

    def trouble(self, method: str, *, times: int = 1, **what: Any) -> None:
        """Make the next calls of a method, or of any (`*`), fail."""
        self._faults += [(method, CallFault(**what))] * times

    def sent(self, chat: int = 0) -> list[dict[str, Any]]:
        """Return the bot's messages as they are now, in one chat or all."""
        places = [self.world.chats[chat]] if chat else self.world.chats.values()
        found = [message for place in places for message in place.messages.values()]
        mine = self.world.me["id"]
        return [
            one
            for one in found
            if one.get("from", {}).get("id") == mine or one["chat"]["type"] == "channel"
        ]

    async def until_called(
        self, method: str, count: int = 1, wait_s: float = 30.0
    ) -> list[RecordedCall]:
        """Wait until a method was called, and answered, this many times."""
        async with asyncio.timeout(wait_s):
            while len(found := self.books.of(method)) < count:
                self._changed.clear()
                await self._changed.wait()
        return found

    async def until_heard(self, wait_s: float = 30.0) -> None:
        """Wait until every update was confirmed, or accepted by the webhook."""
        async with asyncio.timeout(wait_s):
            while self.world.pending:
                self._changed.clear()
                await self._changed.wait()

    async def until_asked(
        self, method: str, count: int = 1, wait_s: float = 30.0
    ) -> list[dict[str, Any]]:
        """Wait until a method was requested this many times, answered or not.

        Return the requests.
        """
        async with asyncio.timeout(wait_s):
            while len(found := [what for name, what in self.books.asked if name == method]) < count:
                self._changed.clear()
                await self._changed.wait()
        return found

    # The wire

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, ConnectionEnded):
            while (request := await read_request(reader)) is not None:
                method, target, headers, body = request
                parts = urlsplit(target)
                steps = [unquote(step) for step in parts.path.strip("/").split("/")]
                if steps[0] == "control":
                    status, payload = self._control(method, steps[-1], body)
                    await write_whole(writer, status, json.dumps(payload).encode())
                elif steps[0] == "file":
                    await self._give_file(writer, steps)
                else:
                    await self._serve(writer, steps, headers, parts.query, body)
            writer.close()
            await writer.wait_closed()

    async def _serve(
        self,
        writer: asyncio.StreamWriter,
        steps: list[str],
        headers: Mapping[str, str],
        query: str,
        body: bytes,
    ) -> None:
        method = steps[-1]
        try:
            self._check_token(steps)
            params = read_params(headers, query, body)
        except FakeBotError as exc:
            await self._answer(writer, method, {}, exc.status, _refused(exc))
            return
        except ValueError as exc:
            await self._answer(writer, method, {}, 400, _refused(bad(str(exc))))
            return
        self.books.asked.append((method, _shown(params)))
        self._changed_now()
        trouble = self._next_fault(method)
        if trouble:
            await self._go_wrong(writer, method, params, trouble)
            return
        status, told = await self._perform(method, params)
        await self._answer(writer, method, params, status, told)

    def _check_token(self, steps: list[str]) -> None:
        token = steps[0].removeprefix("bot")
        if len(steps) != 2 or not steps[0].startswith("bot") or not _TOKEN.fullmatch(token):
            raise FakeBotError(404, "Not Found")
        if token != self.token:
            raise FakeBotError(401, "Unauthorized")

    async def _perform(self, method: str, params: Mapping[str, Json]) -> tuple[int, Json]:
        try:
            if method in self._without:
                raise FakeBotError(404, "Not Found: method not found")
            match method:
                case "getUpdates":
                    result = await self.feed.get_updates(params)
                case "setWebhook":
                    result = self.feed.set_webhook(params, self._group)
                case "deleteWebhook":
                    result = self.feed.delete_webhook(params)
                case "getWebhookInfo":
                    result = self.feed.webhook_info()
                case _:
                    result = perform(self.world, method, params)
        except FakeBotError as exc:
            return exc.status, _refused(exc)
        return 200, {"ok": True, "result": result}

    async def _go_wrong(
        self,
        writer: asyncio.StreamWriter,
        method: str,
        params: Mapping[str, Json],
        trouble: CallFault,
    ) -> None:
        if trouble.taken:
            await self._perform(method, params)
        if trouble.wait_s:
            await asyncio.sleep(trouble.wait_s)
        told = trouble.told or _refused(_fault_error(trouble))
        self._note(RecordedCall(method, _shown(params), trouble.status, told, trouble.taken))
        if not trouble.status:
            raise ConnectionEnded
        body = b"<html>Bad Gateway</html>" if trouble.page else json.dumps(told).encode()
        await write_whole(writer, trouble.status, body)

    async def _answer(
        self,
        writer: asyncio.StreamWriter,
        method: str,
        params: Mapping[str, Json],
        status: int,
        told: Json,
    ) -> None:
        body = json.dumps(told).encode()
        self._note(RecordedCall(method, _shown(params), status, json.loads(body), status == 200))
        await write_whole(writer, status, body)

    async def _give_file(self, writer: asyncio.StreamWriter, steps: list[str]) -> None:
        path = "/".join(steps[2:])
        found = next((one for one in self.world.files.values() if one.path == path), None)
        if steps[1] != f"bot{self.token}" or found is None:
            body = json.dumps(_refused(FakeBotError(404, "Not Found"))).encode()
            await write_whole(writer, 404, body)
            return
        kind = {"Content-Type": "application/octet-stream"}
        await write_whole(writer, 200, found.content, kind)

    def _note(self, call: RecordedCall) -> None:
        self.books.calls.append(call)
        self._changed_now()

    def _changed_now(self) -> None:
        self._changed.set()

    def _next_fault(self, method: str) -> CallFault | None:
        for at, (name, trouble) in enumerate(self._faults):
            if name in {method, "*"}:
                del self._faults[at]
                return trouble
        return None

    # Acts by HTTP

    def _control(self, method: str, name: str, body: bytes) -> tuple[int, Json]:
        if (method, name) == ("GET", "books"):
            return 200, self._encode_log()
        try:
            arguments = json.loads(body or b"{}")
            if name == "trouble":
                self.trouble(**arguments)
                return 200, {}
            if name == "hosts":
                self.hosts.update(arguments)
                return 200, {}
            if name == "redeliver":
                count = arguments.pop("count", 1)
                self.redeliver(*self.acts.updates[-count:], **arguments)
                return 200, {}
            if name in _ACTIONS:
                return 200, {"made": getattr(self.acts, _ACTIONS[name])(**arguments)}
        except (ValueError, TypeError, KeyError) as exc:
            return 400, {"error": f"{type(exc).__name__}: {exc}"}
        return 404, {"error": f"nobody can {name}"}

    def _encode_log(self) -> Json:
        messages = [m for chat in self.world.chats.values() for m in chat.messages.values()]
        return {
            "calls": [asdict(call) for call in self.books.calls],
            "pushes": [asdict(push) for push in self.books.pushes],
            "messages": messages,
            "pending": self.world.pending,
            "drafts": self.world.drafts,
            "actions": self.world.actions,
        }


def _fault_error(trouble: CallFault) -> FakeBotError:
    if trouble.retry_after or trouble.status == 429:
        words = f"Too Many Requests: retry after {trouble.retry_after}"
        return FakeBotError(429, words, parameters={"retry_after": trouble.retry_after})
    return FakeBotError(trouble.status, trouble.words or "Bad Gateway")


def _refused(refusal: FakeBotError) -> Json:
    payload = {"ok": False, "error_code": refusal.status, "description": refusal.words}
    return {**payload, **refusal.more}


def _shown(params: Mapping[str, Json]) -> dict[str, Any]:
    return {
        name: {"name": value.name, "mime": value.mime, "size": len(value.content)}
        if isinstance(value, Upload)
        else value
        for name, value in params.items()
    }


def main() -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m homarus.testing.telegram_server")
    parser.add_argument("--token", default=TOKEN)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    options = parser.parse_args()
    serve(TelegramServer(token=options.token, host=options.host, port=options.port))
