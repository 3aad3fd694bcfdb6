"""Rows 15, 16, 30, 31 and 32: summaries, the config, and unusual answers of a model."""

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from homarus.agent.agent import Agent
from homarus.agent.context.model_context import ModelContext, RenderedContextCache
from homarus.config.load import load_config
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.errors import ProviderError, StoreError, StreamError
from homarus.core.message import Message, Thinking, ToolCall, user_message
from homarus.providers.base import ModelRequest
from homarus.providers.catalog import ModelInfo
from homarus.providers.model_router import ModelRouter, ModelSelection
from homarus.sessions.session import Session
from homarus.store.base import Transaction, TranscriptEntry
from homarus.testing.clock import FakeClock
from homarus.testing.fakes import Hang, ScriptedProvider, assistant_message
from homarus.testing.memory_store import MemoryStore
from homarus.testing.model_server import Cut, ModelServer, Say, ScriptedAnswer
from homarus.testing.model_server.script import BodyFraming, Comments, LongLine, Raw
from tests.unit.gateway.app_harness import Harness, answer, world

KEY = "agent:main:main"
GUARD_S = 60.0


# --- row 15: during a compaction ---------------------------------------------------------------


class Full(MemoryStore):
    """A store that fails once, on request."""

    fails = False

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        async with super().transaction() as transaction:
            yield transaction
            if self.fails:
                self.fails = False
                raise StoreError("killed before it was written")


def write_nothing_else(_transaction: Transaction, _entries: Sequence[TranscriptEntry]) -> None:
    """Write nothing else in the transaction."""


async def long_session(store: MemoryStore, folder: Path) -> tuple[Session, Agent]:
    session = await Session.load(store, FakeClock(), KEY, "main")
    await session.start_turn(user_message("the code is 4711"), provider="p", model="m")
    for number in range(30):
        await session.append(
            assistant_message(f"answer {number} " + "word " * 300),
            user_message(f"question {number}"),
        )
    return session, Agent("main", "Ada", folder)


def make_context(session: Session, agent: Agent, *script: Any) -> ModelContext:
    return ModelContext(
        session, agent, ScriptedProvider(script), ModelInfo("p", "m", window=20_000),
        system="s", tools=(), thinking="off", cache=RenderedContextCache(), now_ms=lambda: 5,
    )  # fmt: skip


@pytest.mark.parametrize("when", ["while the summary is made", "before it is written"])
async def test_row_15_killed_compaction_leaves_transcript_unchanged(
    when: str, tmp_path: Path
) -> None:
    store = Full()
    session, agent = await long_session(store, tmp_path)
    before, leaf = await store.entries(session.session_id), session.leaf
    if when == "before it is written":
        store.fails = True
        with pytest.raises(StoreError):
            await make_context(session, agent, *[assistant_message("notes")] * 9).compact(
                write_nothing_else
            )
    else:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await make_context(session, agent, Hang()).compact(write_nothing_else)
    assert await store.entries(session.session_id) == before
    again = await Session.load(store, FakeClock(), KEY, "main")
    assert again.leaf == leaf and len(again.messages) == len(session.messages)
    await make_context(again, agent, *[assistant_message("notes: 4711")] * 9).compact(
        write_nothing_else
    )
    after = await store.entries(session.session_id)
    assert after[: len(before)] == before and [one.type for one in after[len(before) :]] == [
        "compaction"
    ]
    assert "4711" in again.messages[0].text and len(again.messages) < len(session.messages)


# --- row 16: during a write of the config ------------------------------------------------------

WRITER = """
import sys
from homarus.config.tree_edit import parse_path, set_path
from homarus.config.paths import Paths
from homarus.config.write import write_config
paths = Paths.find({"HOME": sys.argv[1]})
print("ready", flush=True)
for number in range(10_000):
    level = ("info", "debug")[number % 2]
    write_config(paths, {}, lambda tree: set_path(tree, parse_path("logging.level"), level))
"""


def test_row_16_killed_config_write_leaves_old_or_new_file(tmp_path: Path) -> None:
    state = tmp_path / ".openclaw"
    state.mkdir()
    file = state / "openclaw.json"
    file.write_text(json.dumps({"logging": {"level": "info"}}))
    chance = random.Random(16)
    for _ in range(10):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE
        ) as child:
            assert child.stdout is not None and child.stdout.readline() == b"ready\n"
            time.sleep(chance.random() * 0.2)
            child.kill()
        found = load_config(Paths.find({"HOME": str(tmp_path)}), {}).config
        assert found.logging.level in {"info", "debug"}


# --- rows 30 and 31: streams that are not what they should be ----------------------------------


async def open_question(tmp_path: Path, steps: ScriptedAnswer) -> str:
    """What a model says whose service answers like this."""
    async with asyncio.timeout(GUARD_S), ModelServer() as server:
        server.script(*[steps] * 9)  # it may be tried again
        provider = {"baseUrl": server.url, "apiKey": "k", "models": [{"id": "m", "name": "M"}]}
        config = Config.model_validate({"models": {"providers": {"p": provider}}})
        models = ModelRouter(
            config, {}, Paths.find({"HOME": str(tmp_path)}), FakeClock(patient=False)
        )
        try:
            road, _ = await models.connect(ModelSelection("main", "p/m"))
            async for piece in road.stream(ModelRequest("m", "", (user_message("hi"),))):
                if isinstance(piece, Message):
                    return piece.text
        finally:
            await models.close()
    raise AssertionError("no answer")


@pytest.mark.parametrize(
    "steps",
    [
        [Say("Hé"), Say("llo 🦞"), BodyFraming(piece_bytes=1)],
        [Say("Hé"), Say("llo 🦞"), BodyFraming(newline=b"\r\n")],
        [Say("Hé"), Say("llo 🦞"), BodyFraming(bom=True)],
        [Comments(times=20, every_s=0), Say("Hé"), Comments(times=5, every_s=0), Say("llo 🦞")],
    ],
    ids=["one byte at a time", "CRLF", "BOM", "comments"],
)
async def test_row_30_odd_streams_are_understood(steps: ScriptedAnswer, tmp_path: Path) -> None:
    assert await open_question(tmp_path, steps) == "Héllo 🦞"


@pytest.mark.parametrize(
    "steps",
    [
        [Say("a"), Raw(b"data: {not json\n\n")],
        [Say("a"), LongLine(50_000_000)],
        [Say("a"), BodyFraming(end=False)],
    ],
    ids=["bad JSON", "a line of 50 MB", "no end"],
)
async def test_row_30_broken_streams_raise_errors(steps: ScriptedAnswer, tmp_path: Path) -> None:
    with pytest.raises(ProviderError):
        await open_question(tmp_path, steps)


@pytest.mark.parametrize("how", ["close", "reset", "half-close"])
async def test_row_31_cut_stream_raises_its_own_error(how: Any, tmp_path: Path) -> None:
    with pytest.raises(StreamError):
        await open_question(tmp_path, [Say("a"), Cut(how)])


async def test_row_31_endless_run_meets_deadline_and_frees_lane(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, [Hang(), answer("here")]) as it:
        await it.send("long", "a", timeoutMs=1_000)
        (error,) = [c for c in it.gateway.chats("a") if c["state"] == "error"]
        assert "deadline" in error["errorMessage"]
        await it.send("again", "b")
        assert last_text(it, "b") == "here"


# --- row 32: answers that are odd --------------------------------------------------------------


def last_text(it: Harness, run_id: str) -> str:
    final = [c for c in it.gateway.chats(run_id) if c["state"] == "final"][-1]
    content = (final.get("message") or {}).get("content") or [{"text": ""}]
    return str(content[0].get("text", ""))


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ([answer(ToolCall("c", "no_such_tool", {})), answer("sorry")], "sorry"),
        ([answer(ToolCall("c", "read", {"nonsense": 1})), answer("sorry")], "sorry"),
        ([answer(ToolCall("c", "read", {}, broken="{")), answer("sorry")], "sorry"),
        (
            [
                answer(*[ToolCall(f"c{n}", "ls", {"path": f"d{n}"}) for n in range(500)]),
                answer("enough"),
            ],
            "enough",
        ),
    ],
    ids=["an unknown tool", "wrong arguments", "no JSON", "500 calls"],
)
async def test_row_32_odd_calls_are_reported_to_model_and_run_continues(
    script: list[Message], told: str, tmp_path: Path
) -> None:
    async with world(tmp_path, script) as it:
        await it.send("go")
        assert last_text(it, "run-1") == told


async def test_row_32_repeated_call_ends_run_with_reason(tmp_path: Path) -> None:
    script = [answer(ToolCall(f"c{n}", "ls", {})) for n in range(50)]
    async with world(tmp_path, script) as it:
        await it.send("go")
        (error,) = [c for c in it.gateway.chats("run-1") if c["state"] == "error"]
        assert "circles" in error["errorMessage"]
        assert len(it.model.requests) < 50


@pytest.mark.parametrize("parts", [(), (Thinking("hm"),)], ids=["empty", "only thinking"])
async def test_row_32_empty_answer_ends_run_normally(
    parts: tuple[Thinking, ...], tmp_path: Path
) -> None:
    async with world(tmp_path, [answer(*parts)]) as it:
        await it.send("go")
        assert [c["state"] for c in it.gateway.chats("run-1")][-1] == "final"
        (row,) = await it.app.store.journal.inbox_records()
        assert row.state == "answered"
