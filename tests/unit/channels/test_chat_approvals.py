"""Approvals asked and answered in a chat, with the complete program and a scripted model."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from homarus.app import App
from homarus.channels.base import Capabilities, InboundHandler, Receipt
from homarus.config.load import load_config
from homarus.config.paths import Paths
from homarus.core.approval_button import parse_approval_button
from homarus.core.errors import ToolDeniedError
from homarus.core.message import (
    Address,
    Button,
    Extras,
    Inbound,
    InboundMetadata,
    Message,
    Outbound,
    ToolCall,
)
from homarus.process import open_app
from homarus.providers.base import Provider
from homarus.providers.catalog import ModelInfo
from homarus.providers.model_router import ModelSelection
from homarus.testing.fakes import ScriptedProvider, assistant_message
from tests.waiting import until

OWNER, GUEST = "ann", "eve"
SCRIPT = (
    assistant_message(ToolCall("c1", "exec", {"command": "touch made.txt"})),
    assistant_message("Done."),
)


@dataclass
class Chat:
    """A service with buttons whose messages can be edited, and the program behind it."""

    folder: Path
    name: str = "svc"
    account: str = "default"
    capabilities: Capabilities = field(
        default_factory=lambda: Capabilities(idempotent=True, max_buttons=9)
    )
    sent: list[Outbound] = field(default_factory=list)
    inbox: "asyncio.Queue[Inbound]" = field(default_factory=asyncio.Queue)
    app: App | None = None
    number: int = 0

    async def run(self, receive: InboundHandler) -> None:
        while True:
            await receive(await self.inbox.get())

    async def send(self, message: Outbound) -> Receipt:
        self.sent.append(message)
        return Receipt(f"m{len(self.sent)}")

    async def edit(self, to: Address, message_id: str, text: str) -> None:
        raise NotImplementedError

    def write(self, text: str, who: str = OWNER, **about: Any) -> None:
        self.number += 1
        to = Address(self.name, who)
        self.inbox.put_nowait(
            Inbound(f"q{self.number}", to, who, text, metadata=InboundMetadata(**about))
        )

    def press(self, decision: str, who: str = OWNER) -> None:
        self.write("Allow once", who, is_press=True, approval=f"{self.approval_id} {decision}")

    @property
    def prompts(self) -> list[Outbound]:
        return [each for each in self.sent if each.extras.buttons]

    @property
    def approval_id(self) -> str:
        return self.prompts[-1].extras.buttons[0][0].data.split(":")[1]

    def is_made(self) -> bool:
        return (self.folder / ".openclaw" / "workspace" / "made.txt").exists()

    def texts(self, who: str = OWNER) -> list[str]:
        return [each.text for each in self.sent if each.address.chat == who]

    async def wait_for(self, text: str, who: str = OWNER) -> str:
        await until(lambda: any(text in each for each in self.texts(who)))
        return next(each for each in self.texts(who) if text in each)


@asynccontextmanager
async def opened(
    folder: Path, script: Sequence[Message] = SCRIPT, **config: Any
) -> AsyncIterator[Chat]:
    state = folder / ".openclaw"
    (state / "credentials").mkdir(parents=True)
    people = json.dumps({"version": 1, "allowFrom": [OWNER, GUEST]})
    (state / "credentials" / "svc-allowFrom.json").write_text(people)
    commands = {"commands": {"ownerAllowFrom": [OWNER]}}
    (state / "openclaw.json").write_text(json.dumps({**commands, **config}))
    (state / "workspace").mkdir()
    env = {"HOME": str(folder), "PATH": "/usr/bin:/bin"}
    chat, model = Chat(folder), ScriptedProvider(script)

    async def connect(_wish: ModelSelection) -> tuple[Provider, ModelInfo]:
        return model, ModelInfo("p", "m")

    loaded = load_config(Paths.find(env), env)
    async with asyncio.timeout(60), open_app(env, loaded=loaded, channels=[chat]) as app:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(app.models, "connect", connect)
            chat.app = app
            await app.recover()
            yield chat


async def test_button_of_owner_runs_the_command_and_edits_the_prompt(tmp_path: Path) -> None:
    async with opened(tmp_path) as chat:
        chat.write("please make it")
        await until(lambda: chat.prompts)
        (prompt,) = chat.prompts
        assert prompt.address.chat == OWNER and "touch made.txt" in prompt.text
        assert not chat.is_made()
        chat.press("allow-once")
        await chat.wait_for("Done.")
        assert chat.is_made()
        await until(lambda: any(each.extras.replaces for each in chat.sent))
        (edit,) = [each for each in chat.sent if each.extras.replaces]
        assert "was allowed once by" in edit.text and not edit.extras.buttons
        assert len(chat.sent) == 3  # the prompt, its edit and the answer: the press has no reply


async def test_answer_of_guest_is_refused_and_of_owner_counts_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as chat:
        chat.write("please make it")
        await until(lambda: chat.prompts)
        short = chat.approval_id[:8]
        chat.write(f"/approve {short} allow-once", GUEST)
        await chat.wait_for("is not yours", GUEST)
        chat.press("allow-once", GUEST)
        await until(lambda: len(chat.texts(GUEST)) == 2)
        chat.write("/approve", GUEST)
        await chat.wait_for("Nothing waits for your approval", GUEST)
        chat.write("/approve")
        assert short in await chat.wait_for("Answer: /approve")
        chat.write(f"/approve {short} deny")
        await chat.wait_for("was denied by")
        chat.write(f"/approve {short} allow-once")
        await chat.wait_for("Done.")
        assert "svc:ann: deny" in await chat.wait_for("already answered by")
        assert not chat.is_made()


async def test_request_of_guest_asks_in_no_chat_and_is_answered_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as chat:
        chat.write("please make it", GUEST)
        await chat.wait_for("Done.", GUEST)
        assert chat.prompts == [] and not chat.is_made()


async def test_target_chat_answers_the_request_of_a_guest(tmp_path: Path) -> None:
    target = {"channel": "svc", "to": "boss"}
    rules = {"exec": {"mode": "targets", "targets": [target]}}
    async with opened(tmp_path, approvals=rules) as chat:
        people = tmp_path / ".openclaw" / "credentials" / "svc-allowFrom.json"
        people.write_text(json.dumps({"version": 1, "allowFrom": [OWNER, GUEST, "boss"]}))
        chat.write("please make it", GUEST)
        await until(lambda: chat.prompts)
        assert [each.address.chat for each in chat.prompts] == ["boss"]
        chat.write(f"/approve {chat.approval_id} allow-once", GUEST)
        await chat.wait_for("is not yours", GUEST)
        chat.press("allow-once", "boss")
        await chat.wait_for("Done.", GUEST)
        assert chat.is_made()


async def test_prompts_are_off_where_the_config_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path, approvals={"exec": {"enabled": False}}) as chat:
        chat.write("please make it")
        await chat.wait_for("Done.")
        assert chat.prompts == [] and not chat.is_made()


async def test_tool_cannot_send_the_button_of_an_approval(tmp_path: Path) -> None:
    async with opened(tmp_path) as chat:
        assert chat.app is not None
        for data in ("approve:x:allow-once", " APPROVE:x"):
            extras = Extras(buttons=((Button("Weather", data),),))
            with pytest.raises(ToolDeniedError, match="not for tools"):
                await chat.app.messenger.send(Address("svc", OWNER), "?", extras, "k")
        assert chat.sent == []


ASKS = (
    assistant_message(ToolCall("c1", "ask_user", {"question": "Tea?", "choices": ["Yes", "No"]})),
    assistant_message("As you like."),
)


async def test_button_of_a_question_answers_it_and_edits_the_prompt(tmp_path: Path) -> None:
    async with opened(tmp_path, ASKS) as chat:
        chat.write("offer me something")
        await until(lambda: chat.prompts)
        (prompt,) = chat.prompts
        assert [[button.label for button in row] for row in prompt.extras.buttons] == [
            ["Yes"],
            ["No"],
        ]
        data = prompt.extras.buttons[1][0].data
        assert parse_approval_button(data) == f"{chat.approval_id} choice-2"
        chat.press("choice-1", GUEST)
        await chat.wait_for("is not yours", GUEST)
        chat.press("choice-2")
        await chat.wait_for("As you like.")
        await until(lambda: any(each.extras.replaces for each in chat.sent))
        (edit,) = [each for each in chat.sent if each.extras.replaces]
        assert "was answered by" in edit.text and edit.text.rstrip().endswith("No")
        chat.press("choice-1")
        await chat.wait_for("was already answered by")


async def test_question_is_listed_and_dismissed_in_a_chat(tmp_path: Path) -> None:
    async with opened(tmp_path, ASKS) as chat:
        chat.write("offer me something")
        await until(lambda: chat.prompts)
        chat.write("/approve")
        assert "question (main): Tea?" in await chat.wait_for("Answer: /approve")
        chat.write(f"/approve {chat.approval_id[:8]} allow-once")
        assert "1 Yes, 2 No" in await chat.wait_for("does not answer")
        chat.write(f"/approve {chat.approval_id[:8]} deny")
        await chat.wait_for("was dismissed by")
        await chat.wait_for("As you like.")
