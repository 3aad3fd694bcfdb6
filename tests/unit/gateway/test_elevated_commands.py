"""Commands of a session with a sandbox: inside without a question, outside only elevated."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from homarus.core.message import ToolCall, ToolResult
from tests.unit.gateway.app_harness import CONFIG, Harness, answer, run
from tests.unit.tools.sandbox_builders import FakeSandbox

UNLISTED = "echo > ran"  # on this machine it would need approval
OWNER = {"elevated": {"allowFrom": {"webchat": ["*"]}}}


def config(tools: Mapping[str, Any] | None = None, **sandbox: Any) -> dict[str, Any]:
    agents: dict[str, Any] = {
        "defaults": {"model": "mock/mock-1", "sandbox": {"mode": "all", **sandbox}}
    }
    return {**CONFIG, "agents": agents, "tools": dict(tools or {})}


def script(*calls: Mapping[str, Any]) -> list[Any]:
    parts = [
        answer("", ToolCall(f"c{number}", "exec", {"command": UNLISTED, **args}))
        for number, args in enumerate(calls)
    ]
    return [each for call in parts for each in (call, answer("Done."))]


def use(it: Harness, backend: FakeSandbox) -> FakeSandbox:
    it.app.sandboxes()._backends["bubblewrap"] = backend
    return backend


def result(it: Harness) -> str:
    (part,) = it.model.requests[-1].messages[-1].parts
    assert isinstance(part, ToolResult)
    return part.text


async def places(it: Harness) -> list[tuple[object, object]]:
    """Return the action and the place of every decision in the audit log."""
    await it.app.audit.write()
    rows = await it.app.store.audit_entries()
    return [(row.data["action"], row.data.get("place")) for row in rows if row.kind == "decision"]


async def test_sandboxed_command_runs_without_question(tmp_path: Path) -> None:
    async with run(tmp_path, *script({}, {"host": "sandbox"}), config=config()) as it:
        backend = use(it, FakeSandbox())
        await it.send("go", "a")
        await it.send("go", "b")
        assert [each.text for each in backend.commands] == [UNLISTED, UNLISTED]
        assert await places(it) == [("allow", "sandbox of level L3")] * 2
        assert not (it.app.agent("main").workspace / "ran").exists()


@pytest.mark.parametrize(
    ("tools", "backend", "sandbox", "text"),
    [
        ({"exec": {"security": "deny"}}, FakeSandbox(), {}, "switched off"),
        ({"exec": {"ask": "always"}}, FakeSandbox(), {}, "approval"),
        ({}, FakeSandbox("L1"), {"level": "L1"}, "approval"),
        ({}, FakeSandbox("L1"), {}, "demands L2"),
        ({"sandbox": {"tools": {"deny": ["shell"]}}}, FakeSandbox(), {}, "tools.sandbox.tools"),
        ({"exec": {"security": "full"}}, FakeSandbox("L0"), {"level": "L1"}, "level L0"),
    ],
)
async def test_sandboxed_command_is_refused_or_asked_about(
    tools: dict[str, Any], backend: FakeSandbox, sandbox: dict[str, Any], text: str, tmp_path: Path
) -> None:
    tree = config(tools, **sandbox)
    async with run(tmp_path, *script({}), config=tree) as it:
        use(it, backend)
        await it.send("go", "a")
        assert text in result(it)
        assert not list(tmp_path.rglob("ran"))


async def test_command_leaves_sandbox_only_elevated(tmp_path: Path) -> None:
    calls = ({"host": "gateway"}, {"elevated": True}, {"elevated": False})
    async with run(tmp_path, *script(*calls), config=config(OWNER)) as it:
        backend = use(it, FakeSandbox())
        await it.send("go", "a")
        assert "run in a sandbox" in result(it) and "elevated: true" in result(it)
        await it.send("go", "b")
        assert "needs a person's approval" in result(it)
        await it.ask("sessions.patch", key="main", elevatedLevel="full")
        await it.send("go", "c")  # with elevated: false
        assert len(backend.commands) == 1
        assert not (it.app.agent("main").workspace / "ran").exists()
        assert await places(it) == [
            ("ask", "outside the sandbox (elevated on)"),
            ("allow", "sandbox of level L3"),
        ]


@pytest.mark.parametrize("is_listed", [True, False])
async def test_elevated_full_leaves_sandbox_for_listed_senders(
    is_listed: bool, tmp_path: Path
) -> None:
    tree = config(OWNER if is_listed else {"elevated": {"allowFrom": {"irc": ["*"]}}})
    async with run(tmp_path, *script({}, {"elevated": True}), config=tree) as it:
        backend = use(it, FakeSandbox())
        await it.ask("sessions.patch", key="main", elevatedLevel="full")
        await it.send("go", "a")
        ran = it.app.agent("main").workspace / "ran"
        assert ran.exists() == is_listed and bool(backend.commands) != is_listed
        place = "outside the sandbox (elevated full)" if is_listed else "sandbox of level L3"
        assert await places(it) == [("allow", place)]
        ran.unlink(missing_ok=True)
        await it.send("go", "b")
        assert ran.exists() == is_listed
        assert is_listed or "tools.elevated does not allow" in result(it)


async def test_exec_command_says_where_commands_run(tmp_path: Path) -> None:
    async with run(tmp_path, config=config(OWNER)) as it:
        for name, text, expected in (
            ("a", "/exec host=sandbox", "Commands run in the sandbox of this conversation"),
            ("b", "/elevated ask", "Elevated: ask"),
            ("c", "/exec", "Commands run on this machine (elevated: ask)"),
            ("d", "/elevated off", "Elevated: off; commands run in the sandbox"),
        ):
            await it.send(text, name)
            assert expected in it.gateway.chats(name)[-1]["message"]["content"][0]["text"]
