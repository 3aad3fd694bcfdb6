"""`/bash`: a command that the owner types is planned and decided on as a call of exec."""

import asyncio
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from homarus.config.redaction import add_known_secret, forget_known_secrets
from homarus.core.message import Address, Inbound, ToolCall
from homarus.plugins.hooks import hook
from homarus.plugins.values import Refusal
from homarus.store.journal import InboxRecord
from tests.unit.gateway.app_harness import CONFIG, Harness, answer, run

KEY = "agent:main:main"
ELEVATED: dict[str, Any] = {"elevated": {"allowFrom": {"webchat": ["*"]}}}


def config(
    *, bash: bool = True, wait_ms: int = 20_000, tools: dict[str, Any] | None = None
) -> dict[str, Any]:
    commands = {"bash": bash, "bashForegroundMs": wait_ms}
    return {**CONFIG, "commands": commands, "tools": ELEVATED if tools is None else tools}


def said(it: Harness, run_id: str) -> str:
    event = it.gateway.chats(run_id)[-1]
    return str(event.get("errorMessage") or event["message"]["content"][0]["text"])


async def send(it: Harness, text: str, run_id: str = "r") -> str:
    await it.send(text, run_id)
    return said(it, run_id)


async def settled_row(it: Harness, run_id: str) -> InboxRecord:
    """Wait until a message is settled."""
    async with asyncio.timeout(30):
        while True:
            row = await it.app.store.journal.inbox_record(run_id)
            if row and row.state not in {"accepted", "running"}:
                return row
            await asyncio.sleep(0.001)


async def test_bash_command_runs_typed_text(tmp_path: Path) -> None:
    async with run(tmp_path, config=config()) as it:
        assert await send(it, "/bash echo one > f && cat f; exit 3", "a") == (
            "$ echo one > f && cat f; exit 3\n```\none\n```\nExit code 3."
        )
        assert await send(it, "! echo 'two  words'", "b") == (
            "$ echo 'two words'\n```\ntwo  words\n```\nExit code 0."
        )
        assert it.model.requests == []


async def test_bash_command_of_sandboxed_session_is_elevated(tmp_path: Path) -> None:
    settings = config()
    defaults = {**CONFIG["agents"]["defaults"], "sandbox": {"mode": "all"}}
    settings["agents"] = {**CONFIG["agents"], "defaults": defaults}
    async with run(tmp_path, config=settings) as it:
        workspace = it.services.agent("main").workspace
        assert f"\n{workspace}\n" in await send(it, "/bash pwd", "a")
        assert not (it.app.paths.state / "sandboxes").exists()


async def test_bash_command_goes_to_background_and_is_polled(tmp_path: Path) -> None:
    async with run(tmp_path, config=config(wait_ms=0)) as it:
        assert "no command runs" in await send(it, "!poll", "a")
        assert "It still runs" in await send(it, "! echo begun; sleep 60", "b")
        assert "a command is still running" in await send(it, "/bash echo more", "c")
        async with asyncio.timeout(30):
            for number in range(1000):
                if "begun" in await send(it, "!poll", f"p{number}"):
                    break
        assert "was ended" in await send(it, "!stop", "d") or "Exit code" in said(it, "d")
        assert "there is no such command" in await send(it, "!stop calm-nonsense", "e")


async def test_bash_poll_masks_known_secret(tmp_path: Path) -> None:
    add_known_secret("4711-our-own-secret")
    try:
        async with run(tmp_path, config=config(wait_ms=0)) as it:
            await send(it, "! printf '4711-our-own-%s' secret; sleep 60", "b")
            polled = ""
            async with asyncio.timeout(30):
                for number in count():
                    if "\n```\n" in (polled := await send(it, "!poll", f"p{number}")):
                        break
            await send(it, "!stop", "d")
    finally:
        forget_known_secrets()
    assert "\n***\n" in polled and "4711-our-own-secret" not in polled


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"bash": False}, "/bash is switched off"),
        ({"tools": {}}, "tools.elevated.allowFrom.webchat does not list you"),
        (
            {"tools": {"elevated": {**ELEVATED["elevated"], "enabled": False}}},
            "tools.elevated.enabled is false",
        ),
        ({"tools": {**ELEVATED, "exec": {"security": "deny"}}}, "security is deny"),
        ({"tools": {**ELEVATED, "deny": ["exec"]}}, "tools of this agent do not include exec"),
    ],
)
async def test_bash_command_denied_by_settings_stays_denied(
    settings: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    async with run(tmp_path, config=config(**settings)) as it:
        assert reason in await send(it, "/bash touch ran")
        assert not (it.app.agent("main").workspace / "ran").exists()


async def test_bash_command_is_denied_by_approvals_file(tmp_path: Path) -> None:
    async with run(tmp_path, config=config()) as it:
        file = it.app.paths.state / "exec-approvals.json"
        file.write_text('{"defaults": {"security": "deny"}}')
        assert "security is deny" in await send(it, "/bash touch ran", "a")
        file.write_text("{ broken")
        assert "security is deny" in await send(it, "/bash touch ran", "b")
        assert not (it.app.agent("main").workspace / "ran").exists()


async def test_bash_command_needs_owner(tmp_path: Path) -> None:
    async with run(tmp_path, answer("Noted."), config=config()) as it:
        inbound = Inbound("x", Address("svc", "7"), "ann", "! ls", at_ms=1, authority="authorised")
        record = (await it.app.control.accept(KEY, inbound)).record
        outcome = await it.app.control.submit(KEY, record)
        assert outcome.text == "Noted."  # no command: a run answers the text
        inbound = Inbound("y", Address("svc", "7"), "ann", "/bash ls", authority="authorised")
        record = (await it.app.control.accept(KEY, inbound)).record
        outcome = await it.app.control.submit(KEY, record)
        assert "for the owner alone" in str(outcome.error)


async def test_bash_exclamation_mark_is_text_when_switched_off(tmp_path: Path) -> None:
    async with run(tmp_path, answer("Indeed."), config=config(bash=False)) as it:
        assert await send(it, "!important") == "Indeed."


async def test_bash_command_interrupted_by_crash_is_not_run_again(tmp_path: Path) -> None:
    async with run(tmp_path, config=config()) as it:
        journal = it.app.store.journal
        place, text = Address("webchat", KEY), "/bash touch ran"
        inbound = Inbound("r", place, "ann", text, at_ms=1, run_id="r", authority="owner")
        record = (await it.app.control.accept(KEY, inbound)).record
        async with journal.lease("command:r") as lease, journal.transaction() as unit:
            unit.mark_running([record.id], lease, run=record.id)
    async with run(tmp_path, config=config()) as it:
        row = await settled_row(it, "r")
        assert row.state == "reported" and "is not run again" in row.why
        assert not (it.app.agent("main").workspace / "ran").exists()


@pytest.mark.parametrize("changes", [True, False])
async def test_bash_command_obeys_hooks_of_plugins(changes: bool, tmp_path: Path) -> None:
    class Guard:
        @hook
        async def before_tool_call(self, call: ToolCall) -> Any:
            return {**call.args, "command": "touch other"} if changes else Refusal("not today")

    async with run(tmp_path, config=config()) as it:
        it.app.hooks.register(Guard(), "guard")
        expected = "a plugin changed the command" if changes else "not today"
        assert expected in await send(it, "/bash touch ran")
        assert not [*it.app.agent("main").workspace.glob("ran")]


async def test_bash_command_is_audited_with_its_approval(tmp_path: Path) -> None:
    async with run(tmp_path, config=config()) as it:
        await send(it, "/bash echo one > f", "a")
        rows = await it.app.store.audit_entries()
        kinds = [row.kind for row in rows if row.tool == "exec"]
        assert kinds == ["decision", "approval", "execution"]
        decision, approval, execution = (row.data for row in rows if row.tool == "exec")
        assert decision["action"] == "ask" and approval["by"].startswith("webchat:")
        assert approval["decision"] == "allow-once" and execution["exitCode"] == 0
