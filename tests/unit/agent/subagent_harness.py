"""The complete program with a model that a test plays, for tests of sub-agents."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from homarus.app import App
from homarus.channels.base import Channel
from homarus.core.clock import Clock
from homarus.core.message import Address, Inbound, Message, Origin, StopReason, ToolCall, Usage
from homarus.process import open_app
from homarus.providers.base import Delta, ModelRequest, Provider, TextDelta
from homarus.providers.catalog import ModelInfo
from homarus.providers.model_router import ModelSelection
from homarus.store.subagents import SubagentRecord
from homarus.testing.fakes import assistant_message

PARENT = "agent:main:main"
USAGE = Usage(input=1_000, output=200, cost=0.25)
# What the model answers to a request: text, or a message with calls; None: it never answers.
Answer = Callable[[str, ModelRequest], "str | Message | None"]


class PlayedModel:
    """A Provider whose answers a test decides by the last message; it counts the requests."""

    name = api = "played"

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[ModelRequest] = []
        self.selections: list[ModelSelection] = []
        self.holds: dict[str, asyncio.Event] = {}  # a request with this word waits for the event

    def hold(self, word: str) -> asyncio.Event:
        self.holds[word] = event = asyncio.Event()
        return event

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Message]:
        self.requests.append(request)
        last = last_text(request)
        for word, event in list(self.holds.items()):
            if word in last:
                yield TextDelta("I was saying")
                await event.wait()
        given = self.answer(last, request)
        if given is None:
            yield TextDelta("progress, and no result")
            await asyncio.Event().wait()
        message = given if isinstance(given, Message) else assistant_message(given or "")
        stop: StopReason = "toolUse" if message.calls else "stop"
        if message.origin and message.origin.stop == "length":
            stop = "length"
        origin = replace(message.origin or Origin("p", "p", "m"), stop=stop, usage=USAGE)
        yield replace(message, origin=origin)

    async def close(self) -> None:
        return None

    def asked(self, word: str) -> list[ModelRequest]:
        return [one for one in self.requests if word in last_text(one)]


def last_text(request: ModelRequest) -> str:
    """Return the last message of a request: the text of a person, or a tool's result."""
    last = request.messages[-1]
    return last.text or "".join(getattr(part, "text", "") for part in last.parts)


async def wait_for(check: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a condition holds; the timeout of the test ends a wait in vain."""
    while True:
        if await check():
            return
        await asyncio.sleep(0.002)


def spawn_call(task: str, call_id: str = "c1", **args: Any) -> Message:
    """Return an answer that starts a sub-agent."""
    return assistant_message(ToolCall(call_id, "sessions_spawn", {"task": task, **args}))


def write_config(home: Path, changes: Mapping[str, Any] | None = None) -> None:
    model = {"id": "mock", "name": "Mock", "contextWindow": 1_000_000}
    other = {"id": "other", "name": "Other", "contextWindow": 1_000_000}
    provider = {"baseUrl": "http://127.0.0.1:9/v1", "apiKey": "none", "models": [model, other]}
    defaults: dict[str, Any] = {
        "model": {"primary": "bench/mock"},
        "workspace": str(home / "workspace"),
        "subagents": {},
    }
    config: dict[str, Any] = {
        "logging": {"file": str(home / "log")},
        "models": {"providers": {"bench": {**provider, "api": "openai-completions"}}},
        "agents": {"defaults": defaults},
    }
    for path, value in (changes or {}).items():
        *parents, last = path.split(".")
        section = config
        for name in parents:
            section = section.setdefault(name, {})
        section[last] = value
    (home / "state").mkdir(parents=True, exist_ok=True)
    (home / "state" / "openclaw.json").write_text(json.dumps(config), encoding="utf-8")


class Stage:
    """A program, its model, and what tests ask of both."""

    def __init__(self, app: App, model: PlayedModel) -> None:
        self.app, self.model = app, model

    async def say(self, text: str, key: str = PARENT, **given: Any) -> "asyncio.Future[Any]":
        address = given.pop("address", Address("cli", "1"))
        inbound = Inbound(uuid4().hex, address, "owner", text, **given)
        return self.app.control.submit(key, (await self.app.control.accept(key, inbound)).record)

    async def records(self) -> list[SubagentRecord]:
        return await self.app.subagents().find_all()

    async def ended(self, count: int = 1) -> list[SubagentRecord]:
        """Wait until so many sub-agents have ended; return all records."""

        async def check() -> bool:
            return sum(not one.is_active for one in await self.records()) >= count

        await wait_for(check)
        return await self.records()

    async def idle(self, key: str = PARENT) -> None:
        """Wait until a session has answered everything that was accepted for it."""

        async def check() -> bool:
            found = await self.app.store.journal.inbox_records("accepted", "running", session=key)
            return not found and not self.app.control.is_busy(key)

        await wait_for(check)

    async def texts(self, role: str, key: str = PARENT) -> list[str]:
        session = await self.app.control.load(key)
        return [one.text for one in session.messages if one.role == role]

    async def announcements(self, key: str = PARENT) -> list[str]:
        return [text for text in await self.texts("user", key) if "[System Message]" in text]


@asynccontextmanager
async def open_stage(
    home: Path,
    answer: Answer,
    changes: Mapping[str, Any] | None = None,
    *,
    clock: Clock | None = None,
    channels: Sequence[Channel] = (),
) -> AsyncIterator[Stage]:
    """Open the program in a home; the same home again is a restart."""
    write_config(home, changes)
    env = {"HOME": str(home), "OPENCLAW_STATE_DIR": str(home / "state")}
    model = PlayedModel(answer)
    with pytest.MonkeyPatch.context() as monkeypatch, suppress(_ProgramEndError):
        async with open_app(env, clock=clock, channels=channels) as app:

            async def connect(wish: ModelSelection) -> tuple[Provider, ModelInfo]:
                model.selections.append(wish)
                return model, app.models.check(wish.ref or "bench/mock")

            monkeypatch.setattr(app.models, "connect", connect)
            await app.recover()
            yield Stage(app, model)
            if app.control.active_runs():
                raise _ProgramEndError  # as a gateway ends: its runs are cancelled


class _ProgramEndError(Exception):
    """Ends the program while runs are active."""
