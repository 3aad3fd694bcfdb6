"""A gateway that answers from dictionaries, the interface on it, and what its screen shows."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from textual.pilot import Pilot

from homarus.cli.chat_history import ChatHistoryFile
from homarus.cli.gateway_options import GatewayOptions
from homarus.cli.tui.app import TuiApp
from homarus.cli.tui.command import TuiOptions
from homarus.core.errors import InvalidRequestError, UnavailableError
from homarus.core.message import Json
from homarus.core.tasks import task_group
from tests.waiting import until

NOW_MS = 1_800_000_000_000
MAIN = "agent:main:main"
Handler = Callable[[Mapping[str, Json]], Json]


def user(text: str, number: int = 0, **more: Json) -> dict[str, Json]:
    return _message("user", [{"type": "text", "text": text}], number, **more)


def answer(text: str, number: int = 0, **more: Json) -> dict[str, Json]:
    return _message("assistant", [{"type": "text", "text": text}], number, **more)


def thought(text: str, number: int = 0) -> dict[str, Json]:
    return _message("assistant", [{"type": "thinking", "thinking": text}], number)


def called(name: str, call_id: str, number: int = 0, **args: Json) -> dict[str, Json]:
    part = {"type": "toolCall", "id": call_id, "name": name, "arguments": args}
    return _message("assistant", [part], number)


def result(call_id: str, text: str, number: int = 0, **more: Json) -> dict[str, Json]:
    content = [{"type": "text", "text": text}]
    return _message("toolResult", content, number, toolCallId=call_id, **more)


def _message(role: str, content: Json, number: int, **more: Json) -> dict[str, Json]:
    marker = {"__openclaw": {"id": f"m{number}-{role}"}}
    return {"role": role, "content": content, "timestamp": NOW_MS + number * 1000, **marker, **more}


class FakeGateway:
    """Sessions by key, answers to methods by name, and the open connections."""

    def __init__(self) -> None:
        self.messages: dict[str, list[dict[str, Json]]] = {MAIN: []}
        self.row: dict[str, Json] = {
            "key": MAIN, "modelProvider": "openai", "model": "gpt-5.2", "totalTokens": 34_000,
            "contextTokens": 200_000, "queueMode": "collect", "queueDepth": 0,
        }  # fmt: skip
        self.calls: list[tuple[str, Mapping[str, Json]]] = []
        self.approvals: list[Json] = []
        self.is_down = False
        self.more: dict[str, Handler] = {}  # answers of a test, before the usual ones
        self._clients: list[FakeClient] = []

    @asynccontextmanager
    async def connect(self) -> AsyncIterator["FakeClient"]:
        if self.is_down:
            raise UnavailableError("no gateway answers")
        client = FakeClient(self)
        self._clients.append(client)
        try:
            yield client
        finally:
            self._clients.remove(client)

    def send(self, name: str, payload: Json) -> None:
        """Send an event to the connected client."""
        for client in self._clients:
            client.queue.put_nowait((name, payload))

    def agent(self, stream: str, run_id: str = "run-1", **data: Json) -> None:
        """Send an event of a run."""
        fields = {"runId": run_id, "stream": stream, "ts": NOW_MS, "sessionKey": MAIN}
        self.send("agent", {**fields, "data": data})

    def stop(self) -> None:
        """Close every connection, and refuse new ones."""
        self.is_down = True
        for client in self._clients:
            client.queue.put_nowait(None)

    def params_of(self, method: str) -> list[Mapping[str, Json]]:
        return [params for name, params in self.calls if name == method]

    def answer(self, method: str, params: Mapping[str, Json]) -> Json:
        self.calls.append((method, params))
        usual: dict[str, Handler] = {
            "chat.history": self._history,
            "chat.send": lambda sent: {"runId": sent["idempotencyKey"], "status": "started"},
            "chat.abort": lambda _: {"ok": True, "aborted": True, "runIds": ["run-1"]},
            "agents.list": lambda _: {"defaultId": "main", "agents": AGENTS},
            "commands.list": lambda _: {"commands": COMMANDS},
            "models.list": lambda _: {"models": MODELS},
            "exec.approval.list": lambda _: self.approvals,
            "question.list": lambda _: {"questions": []},
            "sessions.create": self._create,
            "sessions.list": self._list,
            "sessions.usage": lambda _: {"sessions": [{"usage": USAGE}]},
            **{name: lambda _: {"ok": True} for name in SIMPLE},
            **self.more,
        }
        if method not in usual:
            raise InvalidRequestError(f"unknown method: {method}")
        return usual[method](params)

    def _create(self, _params: Mapping[str, Json]) -> Json:
        self.messages["agent:main:dashboard:1"] = []
        return {"ok": True, "key": "agent:main:dashboard:1"}

    def _list(self, params: Mapping[str, Json]) -> Json:
        keys = [each for each in self.messages if str(params.get("search") or "") in each]
        return {"sessions": [{**self.row, "key": each, "updatedAt": NOW_MS} for each in keys]}

    def _history(self, params: Mapping[str, Json]) -> Json:
        key = str(params["sessionKey"])
        messages = self.messages.get(key, [])
        ids = [each["__openclaw"]["id"] for each in messages]
        end = ids.index(params["before"]) if "before" in params else len(messages)
        page = messages[max(0, end - int(params["limit"])) : end]
        return {
            "sessionKey": key, "sessionId": "s1", "messages": page, "thinkingLevel": "low",
            "hasMore": end > len(page), "sessionInfo": {**self.row, "key": key},
        }  # fmt: skip


USAGE = {"totalTokens": 51_200, "totalCost": 0.1234}
SIMPLE = ("sessions.subscribe", "sessions.patch", "exec.approval.resolve")
AGENTS: list[Json] = [{"id": "main", "name": "Pinch"}, {"id": "work", "name": "Work"}]
MODELS: list[Json] = [
    {"provider": "openai", "id": "gpt-5.2", "contextWindow": 200_000},
    {"provider": "anthropic", "id": "claude", "contextWindow": 200_000},
]
COMMANDS: list[Json] = [
    {"name": name, "textAliases": [f"/{name}", *more], "description": text, "args": args}
    for name, more, text, args in (
        ("help", (), "Show the commands.", []),
        ("status", (), "Show the model, the context and the queue.", []),
        ("think", ("/thinking", "/t"), "How hard the model thinks.", [{"description": "off|low"}]),
        ("weather", (), "Current weather.", [{"description": "[input]"}]),
    )
]


class FakeClient:
    """One connection to the fake."""

    def __init__(self, gateway: FakeGateway) -> None:
        self._gateway = gateway
        self.queue: asyncio.Queue[tuple[str, Json] | None] = asyncio.Queue()
        defaults = {"mainSessionKey": MAIN, "defaultAgentId": "main", "scope": "per-sender"}
        self.hello: Mapping[str, Json] = {"snapshot": {"sessionDefaults": defaults}}
        self.close_reason = "service restart"

    async def call(
        self, method: str, params: Mapping[str, Json] | None = None, *, timeout_s: float | None
    ) -> Json:
        await asyncio.sleep(0)
        if self._gateway.is_down:
            raise UnavailableError("the gateway closed the connection")
        return self._gateway.answer(method, params or {})

    async def events(self) -> AsyncIterator[tuple[str, Json]]:
        while (event := await self.queue.get()) is not None:
            yield event


@asynccontextmanager
async def shown(
    gateway: FakeGateway,
    folder: Path,
    *,
    columns: int = 80,
    rows: int = 24,
    answer_delay_s: float = 0.0,
    **options: Any,
) -> AsyncIterator[tuple[TuiApp, Pilot[None]]]:
    """Show the interface, once its session is loaded."""
    async with task_group() as group:
        app = TuiApp(
            TuiOptions(GatewayOptions(), **options),
            gateway.connect,
            ChatHistoryFile(folder),
            group,
            [],
            now_ms=lambda: NOW_MS,
            answer_delay_s=answer_delay_s,
        )
        async with app.run_test(size=(columns, rows)) as pilot:
            await until(lambda: app.view.is_open and app.view.spent_usd is not None)
            await drawn_screen(app, pilot)
            yield app, pilot
        app.disconnect()


def screen_text(app: TuiApp) -> str:
    """Return what the screen shows, without colours."""
    size = app.size
    console = Console(
        width=size.width, height=size.height, file=io.StringIO(), color_system=None, record=True,
        legacy_windows=False, force_terminal=True,
    )  # fmt: skip
    compositor = app.screen._compositor
    update = compositor.render_update(full=True, screen_stack=app._background_screens)
    console.print(update)
    lines = console.export_text().split("\n")[: size.height]
    return "\n".join(line.rstrip() for line in lines)


async def drawn_screen(app: TuiApp, pilot: Pilot[None]) -> str:
    """Wait until every scheduled frame is drawn and the screen stays as it is; return it."""
    before, same = "", 0
    while same < 3:
        await until(lambda: not app._is_draw_scheduled, 0.01)
        await pilot.pause(0.02)
        now = screen_text(app)
        is_same = now == before and not app._is_draw_scheduled
        before, same = now, same + 1 if is_same else 0
    return before


async def until_shown(app: TuiApp, *texts: str) -> str:
    """Wait until the screen has these texts; return it."""
    await until(lambda: all(each in screen_text(app) for each in texts), 0.02)
    return screen_text(app)


async def type_text(pilot: Pilot[None], text: str) -> None:
    names: Sequence[str] = [
        {" ": "space", "/": "slash", "\n": "ctrl+j"}.get(each, each) for each in text
    ]
    await pilot.press(*names)
