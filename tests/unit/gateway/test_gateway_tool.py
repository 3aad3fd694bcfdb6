"""The tool `gateway`: the config by the rules for chats, and restarts after the answer."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from homarus.agent.restart_note import RestartNotePorts, save_restart_note, send_restart_note
from homarus.core.message import Address, ToolCall, ToolResult
from homarus.policy.decision import decide_tool_call
from homarus.policy.tool_call import CallerFacts, TaintSource, ToolCallFacts, ToolDecision
from homarus.store.audit_changes import pending_changes
from homarus.store.journal import OutboxRecord
from homarus.tools.catalog import builtin_tools
from homarus.tools.execute import execute_tool_call
from homarus.tools.tool import ToolContext
from tests.unit.gateway.app_harness import CONFIG, Harness, answer, run
from tests.waiting import settle, until

MAIN, GROUP = "agent:main:main", "agent:main:telegram:group:7"
CHAT = Address("irc", "anna")
OWNER = CallerFacts("main", MAIN, channel="irc", sender="anna")
RESTARTS = {**CONFIG, "commands": {"restart": True}}
TAINTED = replace(OWNER, taint=(TaintSource("web", "evil.example"),))


@pytest.fixture
async def it(tmp_path: Path) -> AsyncIterator[Harness]:
    async with run(tmp_path, config=CONFIG) as opened:
        yield opened


async def use(
    it: Harness, action: str, *, caller: CallerFacts = OWNER, key: str = MAIN, **args: Any
) -> ToolResult:
    """Call the tool as a model does, decided by the policy."""
    workspace = it.app.agent("main").workspace
    ctx = ToolContext(key, "main", workspace, here=CHAT, run_id="r1", get_caller=lambda: caller)

    async def decide(facts: ToolCallFacts) -> ToolDecision:
        return decide_tool_call(facts, caller)

    call = ToolCall("c1", "gateway", {"action": action, **args})
    return await execute_tool_call(it.app.tools("main"), ctx, call, decide)


def written(it: Harness) -> Any:
    return json.loads(it.app.paths.config.read_text())


async def test_config_get_shows_no_secrets_and_the_hash(it: Harness) -> None:
    result = await use(it, "config.get")
    shown = json.loads(result.text)
    assert shown["config"]["agents"]["defaults"]["model"] == {"primary": "mock/mock-1"}
    assert "sk-very-secret-key" not in result.text and shown["valid"] is True
    assert shown["hash"] == (await it.ask("config.get"))["hash"]
    section = json.loads((await use(it, "config.get", path="agents.defaults")).text)
    assert section["config"] == {"model": {"primary": "mock/mock-1"}}
    assert "is not set" in (await use(it, "config.get", path="cron.x")).text


async def test_config_get_is_refused_where_others_read(it: Harness) -> None:
    result = await use(it, "config.get", key=GROUP)
    assert result.is_error and "no other people read" in result.text


@pytest.mark.parametrize("path", ["", "agents", "agents.list", "channels.telegram", "tools"])
async def test_config_schema_is_bounded(it: Harness, path: str) -> None:
    result = await use(it, "config.schema", path=path)
    assert not result.is_error and len(result.text) <= 12_100
    assert "agents" in result.text if not path else json.loads(result.text)["schema"]


async def test_config_schema_of_an_unknown_path_names_close_ones(it: Harness) -> None:
    result = await use(it, "config.schema", path="messages.ackReactoin")
    assert result.is_error and "ackReaction" in result.text


async def test_config_patch_is_written_used_and_audited(it: Harness) -> None:
    base = json.loads((await use(it, "config.get")).text)["hash"]
    raw = "{messages: {ackReaction: '👀'}}"
    result = await use(it, "config.patch", raw=raw, baseHash=base)
    shown = json.loads(result.text)
    assert shown["changed"] == ["messages"] and shown["restart"] is False
    assert written(it)["messages"] == {"ackReaction": "👀"}
    assert written(it)["models"] == CONFIG["models"], "secrets stay"
    await until(lambda: it.app.loaded.config.messages.ack_reaction == "👀")
    entries = [*pending_changes(it.app.paths.state), *await it.store.audit_entries(kind="config")]
    assert any(entry.data.get("by") == "agent main for irc:anna" for entry in entries)
    again = await use(it, "config.patch", raw="{messages: null}", baseHash=base)
    assert again.is_error and "changed since it was read" in again.text


async def test_config_apply_needs_the_hash_and_replaces_all(it: Harness) -> None:
    new = {**CONFIG, "messages": {"ackReaction": "x"}}
    refused = await use(it, "config.apply", raw=json.dumps(new))
    assert refused.is_error and "baseHash" in refused.text
    base = json.loads((await use(it, "config.get")).text)["hash"]
    result = await use(it, "config.apply", raw=json.dumps(new), baseHash=base)
    assert not result.is_error, result.text
    assert "logging" not in written(it) and written(it)["messages"] == {"ackReaction": "x"}


@pytest.mark.parametrize(
    "raw",
    [
        '{"tools": {"exec": {"security": "full"}}}',
        '{"agents": {"defaults": {"sandbox": {"mode": "off"}}}}',
        '{"gateway": {"auth": {"token": "mine"}}}',
        '{"approvals": {"exec": {"enabled": false}}}',
        '{"models": {"providers": {"mock": {"baseUrl": "https://evil.example"}}}}',
        '{"messages": {"ackReaction": "${SECRET_NAME}"}}',
        '{"messages": {"ackReaction": 7}}',
        "[]",
        "{",
        "",
    ],
)
async def test_config_patch_that_is_not_allowed_changes_nothing(it: Harness, raw: str) -> None:
    before = it.app.paths.config.read_bytes()
    result = await use(it, "config.patch", raw=raw)
    assert result.is_error and it.app.paths.config.read_bytes() == before


async def test_config_patch_obeys_config_writes(tmp_path: Path) -> None:
    irc = {"enabled": False, "host": "irc.example.org", "nick": "bot", "configWrites": False}
    async with run(tmp_path, config={**CONFIG, "channels": {"irc": irc}}) as it:
        result = await use(it, "config.patch", raw='{"messages": {"ackReaction": "x"}}')
        assert result.is_error and "configWrites is false" in result.text


async def test_gateway_tool_is_for_the_owner(it: Harness) -> None:
    result = await use(it, "config.get", caller=replace(OWNER, is_owner=False))
    assert result.is_error and "only for the owner" in result.text


@pytest.mark.parametrize(
    ("action", "args", "asks"),
    [
        ("config.get", {}, False),
        ("config.schema", {"path": "messages"}, False),
        ("update.run", {}, False),
        ("config.patch", {"raw": '{"messages": {"ackReaction": "x"}}'}, True),
        ("config.apply", {"raw": "{}", "baseHash": "x"}, True),
        ("restart", {}, True),
    ],
)
async def test_gateway_tool_in_a_tainted_run_asks_before_changes(
    it: Harness, action: str, args: dict[str, Any], asks: bool
) -> None:
    before = it.app.paths.config.read_bytes()
    result = await use(it, action, caller=TAINTED, **args)
    assert result.is_error == asks and it.app.paths.config.read_bytes() == before


async def test_update_run_returns_a_command_and_runs_nothing(it: Harness) -> None:
    shown = json.loads((await use(it, "update.run")).text)
    assert shown["status"] == "not run" and shown["command"] and shown["version"]


async def test_restart_waits_for_the_end_of_the_run(tmp_path: Path) -> None:
    calls = ToolCall("c1", "gateway", {"action": "restart", "delayMs": 0, "note": "As you asked."})
    async with run(tmp_path, answer(calls), answer("It restarts."), config=RESTARTS) as it:
        events = list[str]()
        it.app.set_restart(lambda: events.append(f"active: {it.app.control.active_runs()}"))
        await it.send("restart yourself", "r1")
        assert "It restarts." in str(it.gateway.chats("r1")[-1])
        await it.clock.advance(1)
        await until(lambda: bool(events))
        assert events == ["active: ()"]
        note = await it.store.record("restart", "note")
        assert note and note["text"] == "The gateway was restarted. As you asked."


async def test_restart_without_a_gateway_or_switched_off_is_refused(tmp_path: Path) -> None:
    async with run(tmp_path, config={**CONFIG, "commands": {"restart": False}}) as it:
        assert "switched off" in (await use(it, "restart")).text
        assert await it.store.record("restart", "note") is None
    (tmp_path / "state" / "openclaw.json").unlink()
    async with run(tmp_path, config=RESTARTS) as it:
        assert "no gateway to restart" in (await use(it, "restart")).text


async def test_restart_note_is_sent_once_when_its_chat_is_connected(it: Harness) -> None:
    await save_restart_note(it.store, MAIN, CHAT, "Back.", 5)
    accounts, sent = list[tuple[str, str]](), list[str]()
    ports = RestartNotePorts(
        it.store,
        it.clock,
        lambda: accounts,
        lambda inbound, run, text: [OutboxRecord(run, run, inbound.address, text, 0, 10)],
        lambda: sent.append("woken"),
        it.app.notices.add,
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(send_restart_note(ports))
        await settle()
        assert not sent and await it.store.record("restart", "note")
        accounts.append(("irc", "default"))
        await it.clock.advance(1)
    [record] = await it.store.journal.outbox_records()
    assert (record.text, record.address) == ("Back.", CHAT) and sent == ["woken"]
    assert [notice.text for notice in it.app.notices.pending(MAIN)] == ["Back."]
    await send_restart_note(ports)
    assert len(await it.store.journal.outbox_records()) == 1


def test_gateway_tool_loads_no_server_and_is_small() -> None:
    code = (
        "import sys, homarus.gateway.tools;"
        "print([n for n in sys.modules if n.startswith('homarus.gateway.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['homarus.gateway.tools']"
    spec = builtin_tools().get("gateway").spec
    sent = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    assert len(json.dumps(sent, separators=(",", ":"))) <= 800
