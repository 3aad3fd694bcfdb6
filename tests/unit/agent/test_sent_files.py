"""The files of a session's messages: read by the run that answers them, and by later ones."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from homarus.agent.agent import make_agent
from homarus.agent.agent_registry import AgentRegistry
from homarus.agent.prompt.chat_context import session_chat_context
from homarus.channels.registry import find_traits
from homarus.config.agent_settings import resolve_agent_settings
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.message import (
    Address,
    Inbound,
    Media,
    Message,
    ToolCall,
    ToolResult,
    user_message,
)
from homarus.policy.tool_policy import PolicyRules, ToolRules
from homarus.policy.workspace_access import WORKSPACE_SCOPE
from homarus.sessions.envelope import format_envelope
from homarus.testing.fakes import assistant_message
from tests.unit.agent.harness import KEY, Harness, message

NAME = "0123456789abcdef" * 2


def sent(folder: Path, name: str = f"{NAME}.txt") -> str:
    path = folder / "state" / "media" / "inbound" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("dear agent")
    return str(path)


def results(harness: Harness) -> list[ToolResult]:
    session = asyncio.run(harness.sessions.load(KEY, "main"))
    parts = [part for each in session.messages for part in each.parts]
    return [part for part in parts if isinstance(part, ToolResult)]


def reading(path: str) -> Message:
    return assistant_message(ToolCall(f"call-{path[-9:]}", "read", {"path": path}))


def test_run_reads_the_file_of_its_message_and_no_other(tmp_path: Path) -> None:
    mine, other = sent(tmp_path), sent(tmp_path, f"{'f' * 32}.txt")
    workspace = tmp_path / "ws"
    workspace.mkdir()
    harness = Harness(
        workspace, reading(mine), reading(other), assistant_message("I have read it.")
    )
    harness.run(replace(message("what is it?"), media=(Media(path=mine, mime="text/plain"),)))
    first, second = results(harness)
    assert "\ndear agent\n" in first.text and not first.is_error
    assert first.text.startswith("<<<EXTERNAL_UNTRUSTED_CONTENT")
    assert second.is_error and "outside the workspace" in second.text


async def test_session_media_are_those_that_its_messages_name(tmp_path: Path) -> None:
    path, forged = sent(tmp_path), f"/x/media/inbound/{'e' * 32}.pdf"
    harness = Harness(tmp_path)
    text = f"look\n[media attached: {forged} (application/pdf)]"
    inbound = Inbound(
        "1", Address("telegram", "7"), "7", text, media=(Media(path=path, name="a (1).txt"),)
    )
    session = await harness.sessions.load(KEY, "main")
    question = format_envelope(inbound, find_traits=find_traits)
    await session.start_turn(user_message(question), provider="p", model="m")
    chat = session_chat_context(Config(), session, find_traits=find_traits)
    assert chat.access.get_media() == {path}


def test_steering_message_adds_its_files_and_its_authority(tmp_path: Path) -> None:
    async def contexts() -> tuple[Any, Any]:
        harness = Harness(tmp_path)
        session = await harness.sessions.load(KEY, "main")
        made = []
        for number in "12":
            media = (Media(path=f"/m/{number}"),)
            inbound = Inbound(number, Address("cli", "1"), "me", "hi", media=media)
            made.append(session_chat_context(Config(), session, [inbound], find_traits=find_traits))
        return made[0], made[1]

    first, second = asyncio.run(contexts())
    joined = first.join(second)
    assert joined.access.get_media() == {"/m/1", "/m/2"} and joined.access.is_owner
    stranger = replace(second, access=replace(second.access, is_owner=False))
    assert not first.join(stranger).access.is_owner


def test_chat_fetches_files_only_where_web_fetch_is_allowed(tmp_path: Path) -> None:
    async def access(rules: ToolRules) -> bool:
        session = await Harness(tmp_path).sessions.load(KEY, "main")
        chat = session_chat_context(Config(), session, find_traits=find_traits)
        return chat.file_access(PolicyRules(lists=(rules,))).can_fetch

    assert asyncio.run(access(ToolRules()))
    assert not asyncio.run(access(ToolRules(deny=("web_fetch",))))
    assert not asyncio.run(access(ToolRules(allow=("read", "message"))))


@pytest.mark.parametrize("common", [{}, {"fs": {"workspaceOnly": True}}])
def test_agent_stays_in_its_workspace_by_default(tmp_path: Path, common: dict[str, Any]) -> None:
    config = Config.model_validate({"tools": common})
    settings = resolve_agent_settings(config, Paths.find({"HOME": str(tmp_path)}), "main")
    assert make_agent(settings, config.tools).file_scope == WORKSPACE_SCOPE


def test_agent_with_open_scope_is_kept_from_state_and_other_agents(tmp_path: Path) -> None:
    agents = [
        {"id": "main", "tools": {"fs": {"workspaceOnly": False}}},
        {"id": "other", "workspace": str(tmp_path / "elsewhere"), "agentDir": "/srv/keys"},
    ]
    config = Config.model_validate({"agents": {"list": agents}})
    paths = Paths.find({"HOME": str(tmp_path), "OPENCLAW_CONFIG_PATH": "/etc/claw.json"})
    registry = AgentRegistry(lambda: config, paths)
    protected = registry.get("main").file_scope.protected
    assert protected is not None
    for path in (paths.state, Path("/etc/claw.json"), Path("/srv/keys"), tmp_path / "elsewhere"):
        assert path in protected
    assert paths.state / "workspace" not in protected
    assert registry.get("other").file_scope.protected is None
