"""The peers of the channel contract that need no installed server.

Telegram is our own strict fake: a green cell shows only that we agree with ourselves about the Bot
API. The ledger is our own service by design. The web chat and the terminal are the gateway's: there
the peer is a client on its WebSocket, and a user at a pseudo-terminal.
"""

import asyncio
import base64
import re
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from copy import deepcopy
from functools import partial
from itertools import groupby
from typing import Any, ClassVar, Generic, TypeVar
from uuid import uuid4

from homarus.core.message import Json
from homarus.core.text import utf16_len
from homarus.gateway.client import ClientProfile, GatewayClient, GatewaySecret, connect_gateway
from homarus.gateway.identity import DeviceIdentity
from homarus.testing.stream_server import StreamServer
from homarus.testing.telegram_server import ADA, GROUP, TelegramServer
from tests.contract.channel_stage import ANN, EVE, GUARD_S, TOKEN, Harness, Shown
from tests.crash.ledger import LedgerServer, Offer, SendFault
from tests.e2e.screen import ScreenTerminal

S = TypeVar("S", bound=StreamServer)
T = TypeVar("T")

SLOW_S = 2.0
UNLIMITED = 10**9


class Hosted(Generic[S]):
    """Run a server on a thread of its own, so that a test can block without blocking it."""

    def __init__(self, make: Callable[[], S]) -> None:
        self._made: Future[S] = Future()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, args=(make,))
        self._thread.start()
        self.server = self._made.result(GUARD_S)

    def do(self, act: Callable[[], T]) -> T:
        """Run something on the server's thread."""

        async def main() -> T:
            return act()

        return self.wait(main)

    def wait(self, act: Callable[[], Awaitable[T]]) -> T:
        async def main() -> T:
            return await act()

        return asyncio.run_coroutine_threadsafe(main(), self._loop).result(GUARD_S)

    def freeze(self, seconds: float) -> None:
        """Block the server for a while."""
        self._loop.call_soon_threadsafe(time.sleep, seconds)

    def go_down(self) -> None:
        self.wait(self.server.disconnect_all)

    def come_up(self) -> None:
        self.wait(self.server.listen)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    def _run(self, make: Callable[[], S]) -> None:
        async def serve() -> None:
            async with make() as server:
                self._made.set_result(server)
                await self._stop.wait()

        self._loop.run_until_complete(serve())


class TelegramPeer:
    """Telegram, as our strict fake implements it."""

    name = "telegram"
    limit = 4_000
    _people: ClassVar = {ANN: ADA, EVE: 666}

    def __init__(self) -> None:
        self._host = Hosted(partial(TelegramServer, reads_all=True))
        self._server = self._host.server
        self.go_down, self.come_up = self._host.go_down, self._host.come_up

    def section(self) -> Mapping[str, Any]:
        server = self._server
        return {
            "telegram": {
                "botToken": server.token,
                "apiRoot": server.url,
                "allowFrom": [ADA],
                "groups": {str(GROUP): {}},
                "mediaMaxMb": 0.1,
                "streamMode": "off",
            }
        }

    def arrive(self, stage: Harness) -> None:
        """The bot polls as soon as it runs: nothing to wait for."""

    def write(self, text: str, *, who: str = ANN, room: bool = False) -> None:
        chat = GROUP if room else 0
        self._host.do(lambda: self._server.say(text, chat, self._people[who]))

    def call(self, text: str) -> str:
        return f"@lobster_bot {text}"

    def shown(self, *, who: str = ANN, room: bool = False) -> list[Shown]:
        chat = GROUP if room else self._people[who]
        known = self._server.world.chats
        sent = self._host.do(lambda: self._server.sent(chat) if chat in known else [])
        return [_telegram_shown(message) for message in sent]

    def measure(self, text: str) -> int:
        return utf16_len(text)

    def be_slow(self) -> None:
        self._host.freeze(SLOW_S)

    def refuse_once(self) -> None:
        self._host.do(lambda: self._server.trouble("sendMessage", status=429, retry_after=1))

    def accept_and_fail(self) -> None:
        self._host.do(lambda: self._server.trouble("sendMessage", taken=True, page=True))

    def refuse_room(self) -> None:
        def kick() -> None:
            self._server.world.chat(GROUP)
            self._server.acts.block(GROUP, "bot was kicked from the supergroup chat")

        self._host.do(kick)

    def redeliver(self, stage: Harness, times: int) -> None:
        server = self._server
        again = [server.acts.updates[-1]] * times
        self._host.do(lambda: server.redeliver(*again, renumbered=True))

    def redeliver_reversed(self, count: int) -> None:
        again = self._server.acts.updates[-count:][::-1]
        self._host.do(lambda: self._server.redeliver(*again, renumbered=True))

    def contradict(self, text: str) -> None:
        update = deepcopy(self._server.acts.updates[-1])
        update["message"]["text"] = text
        self._host.do(lambda: self._server.redeliver(update, renumbered=True))

    def edit_last(self, text: str) -> None:
        number = self._server.acts.updates[-1]["message"]["message_id"]
        self._host.do(lambda: self._server.acts.edit(ADA, number, text))

    def revoke(self) -> None:
        refused = partial(self._server.trouble, "*", times=1_000, status=401, words="Unauthorized")
        self._host.do(refused)
        self.go_down()  # otherwise the poll under way would wait to its end
        self.come_up()

    def attach(self, text: str, size_bytes: int) -> None:
        content = b"x" * size_bytes
        self._host.do(lambda: self._server.attach("document", content, caption=text))

    def close(self) -> None:
        self._host.close()


def _telegram_shown(message: Mapping[str, Json]) -> Shown:
    text = str(message.get("text") or message.get("caption") or "")
    wide = text.encode("utf-16-le")
    spans = [one for one in message.get("entities", ()) if one["type"] == "bold"]
    bold = [wide[2 * one["offset"] : 2 * (one["offset"] + one["length"])] for one in spans]
    return Shown(text, tuple(each.decode("utf-16-le") for each in bold))


class LedgerPeer:
    """The service of the crash tests, which is idempotent."""

    name = "scripted"
    limit = 4_000

    def __init__(self) -> None:
        self._host = Hosted(partial(LedgerServer, "idempotent"))
        self._ledger = self._host.server
        self.program = ("tests.crash.scripted_gateway", ("--ledger", self._ledger.url))
        self.go_down, self.come_up = self._host.go_down, self._host.come_up
        self._last = ""

    def section(self) -> Mapping[str, Any]:
        return {"scripted": {"allowFrom": [ANN]}}

    def arrive(self, stage: Harness) -> None:
        """The channel polls as soon as it runs: nothing to wait for."""

    def write(self, text: str, *, who: str = ANN, room: bool = False) -> None:
        assert not room
        self._last = uuid4().hex
        offer = Offer(text=text, chat=who, id=self._last)
        self._host.do(lambda: self._ledger.offer(offer))

    def call(self, text: str) -> str:
        return text

    def shown(self, *, who: str = ANN, room: bool = False) -> list[Shown]:
        sends = self._host.do(lambda: list(self._ledger.records.sends))
        return [_markdown_shown(send.text) for send in sends if send.chat == who]

    def measure(self, text: str) -> int:
        return utf16_len(text)

    def be_slow(self) -> None:
        self._trouble(SendFault(wait_s=SLOW_S))

    def refuse_once(self) -> None:
        self._trouble(SendFault(taken=False, status=429, after_s=1))

    def accept_and_fail(self) -> None:
        self._trouble(SendFault(taken=True, status=500))

    def redeliver(self, stage: Harness, times: int) -> None:
        offer = Offer(text="again", chat=ANN, id=self._last, copies=times)
        text = self._ledger.records.messages[self._last].text
        self._host.do(lambda: self._ledger.offer(offer.model_copy(update={"text": text})))

    def redeliver_reversed(self, count: int) -> None:
        for id_, message in reversed([*self._ledger.records.messages.items()][-count:]):
            again = partial(self._ledger.offer, Offer(text=message.text, chat=ANN, id=id_))
            self._host.do(again)

    def contradict(self, text: str) -> None:
        self._host.do(partial(self._ledger.offer, Offer(text=text, chat=ANN, id=self._last)))

    def close(self) -> None:
        self._host.close()

    def _trouble(self, trouble: SendFault) -> None:
        self._host.do(lambda: self._ledger.records.faults.append(trouble))


def _markdown_shown(text: str) -> Shown:
    return Shown(text, tuple(re.findall(r"\*\*(.+?)\*\*", text)))


class WebchatPeer:
    """A client on the gateway's WebSocket; the history it gets is what is shown."""

    name = "webchat"
    limit = UNLIMITED  # an answer is one message there

    def __init__(self) -> None:
        self._stage: Harness | None = None
        self._identity: DeviceIdentity | None = None
        self._last: dict[str, str] = {}

    def section(self) -> Mapping[str, Any]:
        return {}

    def arrive(self, stage: Harness) -> None:
        self._stage = stage

    def write(self, text: str, *, who: str = ANN, room: bool = False) -> None:
        assert not room
        self._last = {"sessionKey": "main", "message": text, "idempotencyKey": str(uuid4())}
        self.ask("chat.send", self._last, token=TOKEN if who == ANN else "guess")

    def call(self, text: str) -> str:
        return text

    def shown(self, *, who: str = ANN, room: bool = False) -> list[Shown]:
        if who != ANN:
            return []
        history = self.ask("chat.history", {"sessionKey": "main"})
        said = [one for one in history["messages"] if one["role"] == "assistant"]
        parts = [part for one in said for part in one["content"]]
        return [_markdown_shown(part["text"]) for part in parts if part["type"] == "text"]

    def measure(self, text: str) -> int:
        return len(text)

    def redeliver(self, stage: Harness, times: int) -> None:
        async def main(link: GatewayClient) -> None:
            for _ in range(times):
                await link.call("chat.send", self._last)

        self._visit(main)

    def attach(self, text: str, size_bytes: int) -> None:
        content = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"x" * size_bytes).decode()
        file = {"type": "image", "mimeType": "image/png", "fileName": "a.png", "content": content}
        asked = {"sessionKey": "main", "message": text, "idempotencyKey": str(uuid4())}
        self.ask("chat.send", {**asked, "attachments": [file]})

    def ask(self, method: str, params: Mapping[str, Json], token: str = TOKEN) -> Any:
        return self._visit(lambda link: link.call(method, params), token)

    def close(self) -> None:
        """The gateway ends with the harness."""

    def _visit(self, act: Callable[[GatewayClient], Awaitable[Any]], token: str = TOKEN) -> Any:
        stage = self._stage
        assert stage is not None
        self._identity = self._identity or DeviceIdentity.load_or_create(
            stage.folder / "client.json", 1
        )
        guest = ClientProfile(secret=GatewaySecret(token), identity=self._identity)

        async def main() -> Any:
            async with asyncio.timeout(GUARD_S), connect_gateway(stage.url, guest) as link:
                return await act(link)

        return asyncio.run(main())


class TerminalPeer:
    """A user at a pseudo-terminal with `homarus chat`; the screen is what is shown."""

    name = "terminal"
    limit = UNLIMITED

    def __init__(self) -> None:
        self._terminal: ScreenTerminal | None = None

    def section(self) -> Mapping[str, Any]:
        return {}

    def arrive(self, stage: Harness) -> None:
        self.close()
        self._terminal = ScreenTerminal(stage.home, "chat", columns=200, rows=60)
        self._terminal.wait_until(">", line=">")

    def write(self, text: str, *, who: str = ANN, room: bool = False) -> None:
        assert self._terminal and who == ANN and not room
        self._terminal.press(f"{text}\r")

    def call(self, text: str) -> str:
        return text

    def shown(self, *, who: str = ANN, room: bool = False) -> list[Shown]:
        terminal = self._terminal
        assert terminal is not None
        terminal.read_available()
        rows = [row for row in terminal.shown.cells if row[:1] != [(">", "1")]]  # not what was sent
        bold = [
            "".join(ch for ch, _ in run)
            for row in rows
            for is_bold, run in groupby(row, lambda cell: "1" in cell[1].split(";"))
            if is_bold
        ]
        text = "\n".join("".join(ch for ch, _ in row).rstrip() for row in rows)
        # While an answer is under way only its last lines are drawn.
        return [] if "Ctrl-C stops" in text else [Shown(text, tuple(bold))]

    def measure(self, text: str) -> int:
        return len(text)

    def close(self) -> None:
        if self._terminal:
            self._terminal.close()
            self._terminal = None
