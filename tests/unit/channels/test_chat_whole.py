"""The complete program with one chat service: live replies, answers, and the message tool."""

import asyncio
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from homarus.channels.base import Capabilities, InboundHandler, Receipt
from homarus.channels.typing_indicator import TypingIndicator
from homarus.config.load import load_config
from homarus.config.paths import Paths
from homarus.core.event import RunEnded
from homarus.core.message import Address, Inbound, Message, Outbound, ToolCall
from homarus.process import open_app
from homarus.providers.base import Provider
from homarus.providers.catalog import ModelInfo
from homarus.providers.model_router import ModelSelection
from homarus.testing.fakes import ScriptedProvider, assistant_message
from homarus.testing.telegram_server import TelegramServer
from tests.waiting import until

GUARD_S = 60.0
HERE = Address("svc", "ann")


class Chat:
    """A service with all features, and one user."""

    name, account = "svc", "default"
    capabilities = Capabilities(
        200, idempotent=True, caption_limit=100, media_max_bytes=1_000, typing_s=5.0
    )

    def __init__(self, *words: str) -> None:
        self.words, self.sent, self.seen = words, list[Outbound](), list[str]()
        self.enough = asyncio.Event()
        self.wanted = 1
        self.model = ScriptedProvider([])

    async def run(self, receive: InboundHandler) -> None:
        for number, text in enumerate(self.words):
            await receive(Inbound(f"q{number}", HERE, "ann", text))
        await asyncio.Event().wait()

    async def send(self, message: Outbound) -> Receipt:
        self.sent.append(message)
        if len(self.sent) >= self.wanted:
            self.enough.set()
        return Receipt(f"m{len(self.sent)}")

    async def show_typing(self, to: Address, *, on: bool) -> None:
        self.seen.append(f"typing {on}")

    def can_draft(self, to: Address) -> bool:
        return True

    async def draft(self, to: Address, key: str, text: str) -> None:
        self.seen.append(f"draft {text}")

    async def react(self, to: Address, message_id: str, emoji: str) -> None:
        self.seen.append(f"react {message_id} {emoji}")


async def talk(folder: Path, chat: Chat, script: Sequence[Message], **config: Any) -> Chat:
    """Answer what the user writes, until enough was sent."""
    state = folder / ".openclaw"
    (state / "credentials").mkdir(parents=True)
    (state / "credentials" / "svc-allowFrom.json").write_text(
        '{"version": 1, "allowFrom": ["ann"]}'
    )
    (state / "openclaw.json").write_text(json.dumps(config))
    (state / "workspace").mkdir()
    (state / "workspace" / "a.txt").write_text("a file")
    env = {"HOME": str(folder)}
    chat.model = ScriptedProvider(script)

    async def road(_wish: ModelSelection) -> tuple[Provider, ModelInfo]:
        return chat.model, ModelInfo("p", "m")

    loaded = load_config(Paths.find(env), env)
    async with (
        asyncio.timeout(GUARD_S),
        open_app(env, loaded=loaded, channels=[chat]) as app,
    ):
        with (
            pytest.MonkeyPatch.context() as patch,
            app.bus.subscribe(kinds=(RunEnded,)) as events,
        ):
            patch.setattr(app.models, "connect", road)
            await app.recover()
            await chat.enough.wait()
            async for _ in events:
                break
    return chat


async def test_chat_answer_is_previewed_then_sent_with_extras(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TypingIndicator, "initial_delay_s", 0.0)
    chat = await talk(
        tmp_path, Chat("hi"), [assistant_message("[[reply_to_current]]Here.\nMEDIA:a.txt")]
    )
    (sent,) = chat.sent
    assert (sent.text, sent.extras.reply_to) == ("Here.", "q0")
    (file,) = sent.extras.media
    assert Path(file.path).read_text() == "a file"
    assert "typing True" in chat.seen and chat.seen[-1] == "typing False"


async def test_chat_global_scope_answers_in_the_one_session(tmp_path: Path) -> None:
    session = {"scope": "global", "store": "~/lists/{agentId}.json"}
    chat = await talk(tmp_path, Chat("hi"), [assistant_message("Hello.")], session=session)
    assert [sent.text for sent in chat.sent] == ["Hello."]
    entries = json.loads((tmp_path / "lists" / "main.json").read_text())
    assert list(entries) == ["global"]
    transcript = Path(entries["global"]["sessionFile"])
    assert transcript.parent == tmp_path / "lists" and "Hello." in transcript.read_text()
    assert not (tmp_path / ".openclaw/agents/main/sessions").exists()


async def test_chat_tool_message_is_not_repeated_by_answer(tmp_path: Path) -> None:
    script = [
        assistant_message(
            ToolCall("c1", "message", {"message": "The pump has failed.", "media": "a.txt"})
        ),
        assistant_message(ToolCall("c2", "message", {"action": "react", "emoji": "👍"})),
        assistant_message("The pump has failed."),
    ]
    chat = await talk(tmp_path, Chat("hi"), script)
    (sent,) = chat.sent
    assert sent.text == "The pump has failed." and len(sent.extras.media) == 1
    assert "react q0 👍" in chat.seen


async def test_chat_tool_message_to_unknown_chat_without_approver_is_denied(tmp_path: Path) -> None:
    call = ToolCall("c1", "message", {"message": "psst", "target": "svc:eve"})
    chat = await talk(
        tmp_path, Chat("hi"), [assistant_message(call), assistant_message("I may not.")]
    )
    assert [one.address.chat for one in chat.sent] == ["ann"]
    assert chat.sent[0].text == "I may not."


async def test_message_prefix_of_config_is_in_what_the_model_reads(tmp_path: Path) -> None:
    answers = [assistant_message("Hello.")]
    chat = await talk(tmp_path, Chat("hi"), answers, messages={"messagePrefix": "[family]"})
    (question,) = chat.model.requests[0].messages
    assert question.text.endswith("] [family] hi")


@pytest.mark.parametrize("is_allowed", [True, False])
async def test_migrated_telegram_group_is_written_to_the_config_if_allowed(
    is_allowed: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = tmp_path / ".openclaw"
    state.mkdir()
    file = state / "openclaw.json"
    caplog.set_level(logging.WARNING)
    ends = ("the config was changed", "configWrites is false")
    async with TelegramServer() as telegram, asyncio.timeout(GUARD_S):
        bot = {"botToken": telegram.token, "apiRoot": telegram.url, "groups": {"-77": {}}}
        section = {"telegram": {**bot, "configWrites": is_allowed}}
        file.write_text(json.dumps({"channels": section}))
        telegram.world.chat(-77, "group", "Old")
        telegram.say(chat=-77, migrate_to_chat_id=-10077)
        env = {"HOME": str(tmp_path)}
        loaded = load_config(Paths.find(env), env)
        async with open_app(env, loaded=loaded) as app:
            await app.recover()
            await until(lambda: any(text in caplog.text for text in ends))
    groups = json.loads(file.read_text())["channels"]["telegram"]["groups"]
    assert groups == ({"-10077": {}} if is_allowed else {"-77": {}})
