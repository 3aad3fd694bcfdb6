"""Payloads of a hostile gateway, or of another version: a value of a wrong type ends nothing."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from homarus.cli.gateway_options import GatewayOptions
from homarus.cli.tui.bars import BarState, draw_header, draw_status, read_row
from homarus.cli.tui.block_layout import LayoutView, lay_out
from homarus.cli.tui.command import TuiOptions
from homarus.cli.tui.link import GatewayLink
from homarus.cli.tui.session_view import SessionView
from homarus.core.message import Json
from homarus.core.tasks import task_group
from tests.unit.cli.tui.harness import (
    MAIN,
    NOW_MS,
    FakeClient,
    FakeGateway,
    answer,
    called,
    result,
    screen_text,
    shown,
    thought,
    type_text,
    until_shown,
    user,
)

WRONG: tuple[Json, ...] = (
    None, True, 0, -1, 1.5, float("nan"), float("inf"), 10**400, "", "text", [], [1], [["x"]],
    [None], {}, {"x": [1]}, [{"x": {}}],
)  # fmt: skip
TEXT: list[Json] = [{"type": "text", "text": "out"}]
MESSAGES: list[Json] = [
    user("hello [media attached: a.png (x, a.png)]", 1, provenance={"sourceChannel": "telegram"}),
    thought("hm", 2),
    called("exec", "c1", 3, command="ls"),
    result("c1", "done", 4, isError=False),
    {**answer("Hi", 5), "stopReason": "stop", "errorMessage": "", "openclawAbort": {"at": 1}},
    {"role": "system", "content": "note", "__openclaw": {"id": "s", "kind": "compaction"}},
]
ROW: dict[str, Json] = {
    "key": MAIN, "label": "Main", "derivedTitle": "t", "updatedAt": NOW_MS, "hasActiveRun": False,
    "modelProvider": "openai", "model": "gpt", "totalTokens": 5, "contextTokens": 10,
    "queueMode": "collect", "queueDepth": 0, "subject": "s",
}  # fmt: skip
REQUEST: dict[str, Json] = {
    "title": "Run?", "detail": "ls", "always": "ls", "agentId": "main", "sessionKey": MAIN,
    "toolCallId": "c1",
}  # fmt: skip
APPROVAL: dict[str, Json] = {"id": "a1", "request": REQUEST, "expiresAtMs": NOW_MS + 60_000}
ASKED: Json = {"question": "Which?", "options": [{"label": "red"}], "isOther": True}
QUESTION: dict[str, Json] = {
    "id": "q1", "questions": [ASKED], "agentId": "main", "sessionKey": MAIN
}  # fmt: skip
ANSWERS: dict[str, Json] = {
    "chat.history": {
        "sessionKey": MAIN, "sessionId": "s1", "messages": MESSAGES, "thinkingLevel": "low",
        "hasMore": True, "sessionInfo": ROW,
    },
    "sessions.list": {"sessions": [ROW], "defaults": {"model": "gpt"}},
    "sessions.usage": {"sessions": [{"usage": {"totalTokens": 5, "totalCost": 0.1,
                                               "missingCostEntries": 1}}]},
    "sessions.create": {"key": "agent:main:new"},
    "sessions.patch": {"ok": True},
    "agents.list": {"defaultId": "main", "agents": [{"id": "main", "identity": {"name": "P"}}]},
    "models.list": {"models": [{"provider": "openai", "id": "gpt", "contextWindow": 10}]},
    "commands.list": {"commands": [{"name": "help", "textAliases": ["/help", "/h"],
                                    "description": "d", "args": [{"description": "a"}]}]},
    "exec.approval.list": [APPROVAL],
    "question.list": {"questions": [QUESTION]},
    "chat.abort": {"ok": True, "runIds": ["run-1"]},
    "chat.send": {"runId": "run-1", "status": "started"},
}  # fmt: skip


def event_of(stream: str, **data: Json) -> tuple[str, Json]:
    fields = {"runId": "run-1", "stream": stream, "ts": NOW_MS, "sessionKey": MAIN}
    return "agent", {**fields, "data": data}


CALL: dict[str, Json] = {"name": "exec", "toolCallId": "c9"}
EVENTS: list[tuple[str, Json]] = [
    event_of("lifecycle", phase="start"),
    event_of("lifecycle", phase="fallback", provider="p", model="m", error="e"),
    event_of("assistant", text="Hi", delta="Hi", mediaUrls=["/a.png"]),
    event_of("thinking", text="hm", delta="hm"),
    event_of("tool", phase="start", **CALL, args={"command": "ls"}),
    event_of("tool", phase="update", **CALL, partialResult={"content": TEXT}),
    event_of("tool", phase="result", **CALL, result={"content": TEXT}, isError=False),
    event_of("compaction", phase="start"),
    event_of("error", message="bad"),
    ("chat", {"runId": "run-1", "sessionKey": MAIN, "state": "delta",
              "message": {"content": TEXT}}),
    ("chat", {"runId": "run-1", "sessionKey": MAIN, "state": "error", "errorMessage": "e"}),
    ("sessions.changed", {"sessionKey": MAIN, "session": ROW, "reason": "patch"}),
    ("session.message", {"sessionKey": MAIN, "session": ROW}),
    ("exec.approval.requested", APPROVAL),
    ("exec.approval.resolved", {"id": "a1", "decision": "deny", "resolvedBy": "page"}),
    ("question.requested", QUESTION),
    ("question.resolved", {"id": "q1", "status": "answered"}),
]  # fmt: skip


def with_wrong_values(value: Json) -> Iterator[Json]:
    """Yield the value with each part of it replaced by each wrong value, one at a time."""
    yield from WRONG
    parts: list[tuple[Any, Json]] = []
    if isinstance(value, dict):
        parts = list(value.items())
    elif isinstance(value, list):
        parts = list(enumerate(value))
    for place, part in parts:
        for wrong in with_wrong_values(part):
            copy: Any = dict(value) if isinstance(value, dict) else list(value)
            copy[place] = wrong
            yield copy


class ViewOnFake:
    """The view of a session on a gateway whose answers a test replaces."""

    def __init__(self, gateway: FakeGateway) -> None:
        self.client = FakeClient(gateway)
        link = GatewayLink(gateway.connect)
        link._client = self.client
        options = TuiOptions(GatewayOptions())
        self.view = SessionView(link, options, lambda: None, lambda _text, _severity="": None)

    def draw(self) -> None:
        """Draw everything that the screen has of it."""
        view = self.view
        fields: Any = read_row(view.conversation.row)
        state = BarState(view.agent_name, view.session_name, **fields, waiting="x",
                         total_tokens=view.spent_tokens, cost_usd=view.spent_usd)  # fmt: skip
        draw_header(state, 80)
        draw_status(state, 80)
        view.describe_waiting()
        for block in view.conversation.get_blocks():
            lay_out(block, LayoutView(80, is_expanded=True))

    async def use_all(self) -> None:
        """Call everything that reads an answer."""
        view = self.view
        await view.open(self.client.hello)
        self.draw()
        await view.conversation.load_older()
        for load in (view.load_sessions, view.load_agents, view.load_models, view.load_levels):
            await load("")
        await view.pick_session("new")
        await view.abort()
        await view.send("hi")
        self.draw()


@pytest.mark.parametrize("method", sorted(ANSWERS))
async def test_answer_of_a_wrong_type_is_shown_as_nothing(method: str) -> None:
    gateway = FakeGateway()
    gateway.more = {name: _constant(value) for name, value in ANSWERS.items()}
    for wrong in with_wrong_values(ANSWERS[method]):
        gateway.more[method] = _constant(wrong)
        await ViewOnFake(gateway).use_all()


async def test_greeting_of_a_wrong_type_opens_the_main_session() -> None:
    gateway = FakeGateway()
    fake = ViewOnFake(gateway)
    for wrong in with_wrong_values(dict(fake.client.hello)):
        if isinstance(wrong, dict):
            fake.view.is_open = False
            await fake.view.open(wrong)
            assert fake.view.conversation.key


@pytest.mark.parametrize("place", range(len(EVENTS)))
async def test_event_of_a_wrong_type_is_skipped(place: int) -> None:
    gateway = FakeGateway()
    gateway.messages[MAIN] = [each for each in MESSAGES if isinstance(each, dict)]
    name, payload = EVENTS[place]
    fake = ViewOnFake(gateway)
    await fake.view.open(fake.client.hello)
    for wrong in with_wrong_values(payload):
        async with task_group() as group:
            fake.view._is_refresh_planned = True  # it is loaded below, without the wait
            for each in (*EVENTS[:place], (name, wrong)):
                fake.view.on_event(*each, group)
            fake.draw()
            await fake.view.conversation.load()
            fake.draw()


async def test_screen_stays_open_when_every_answer_is_wrong(tmp_path: Path) -> None:
    gateway = FakeGateway()
    async with shown(gateway, tmp_path) as (app, pilot):
        for wrong in WRONG:
            gateway.more = {name: _constant(wrong) for name in ANSWERS if name != "chat.send"}
            gateway.send("exec.approval.requested", {**APPROVAL, "expiresAtMs": wrong})
            for name, _ in EVENTS:
                gateway.send(name, wrong)
            gateway.send("gap", None)
            await asyncio.sleep(0)
        await pilot.press("ctrl+p")
        await until_shown(app, "New session")
        await pilot.press("escape")
        app.composer.focus()
        await type_text(pilot, "still here")
        await until_shown(app, "still here")
        assert "Traceback" not in screen_text(app)


def _constant(value: Json) -> Callable[[Mapping[str, Json]], Json]:
    return lambda _params: value
