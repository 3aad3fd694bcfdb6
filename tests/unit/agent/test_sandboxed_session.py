"""A session with a sandbox in the complete program: its prompt, its files, and what is loaded."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, TypeGuard

import pytest

from homarus.agent.prompt.chat_context import find_sandbox_info
from homarus.agent.prompt.facts import SandboxInfo
from homarus.agent.prompt.preview import preview_prompt
from homarus.app import App
from homarus.config.check import check_config
from homarus.core.message import Address, Inbound, ToolResult
from homarus.policy.workspace_access import FULL_ACCESS, session_access
from homarus.process import open_app
from homarus.testing.model_server import ModelServer
from tests.unit.tools.sandbox_builders import GROUP, MAIN, FakeSandbox

OTHER = "agent:main:other"


def configure(home: Path, url: str) -> None:
    row = {"id": "mock-1", "name": "Mock", "contextWindow": 200_000, "maxTokens": 4_000}
    provider = {"baseUrl": url, "apiKey": "sk-test", "api": "openai-completions", "models": [row]}
    defaults = {"model": {"primary": "mock/mock-1"}, "sandbox": {"mode": "non-main"}}
    config = {"models": {"providers": {"mock": provider}}, "agents": {"defaults": defaults}}
    (home / ".openclaw").mkdir()
    (home / ".openclaw" / "openclaw.json").write_text(json.dumps(config), encoding="utf-8")


def is_result(part: object) -> TypeGuard[ToolResult]:
    return isinstance(part, ToolResult)


async def use(app: App, key: str, tool: str, **args: Any) -> str:
    """Have the scripted model call a tool in a session, and return the result."""
    text = f"MOCK:tool:{tool}:{json.dumps(args)}§"
    outcome = await app.control.ask(key, Inbound(f"m{key}{text}", Address("cli", "1"), "", text))
    assert outcome.error is None
    session = await app.control.load(key)
    results = [part for each in session.messages for part in each.parts if is_result(part)]
    return results[-1].text


async def test_session_with_a_sandbox_works_on_its_files(tmp_path: Path) -> None:
    async with ModelServer() as server:
        configure(tmp_path, server.url)
        async with open_app({"HOME": str(tmp_path)}) as app:
            await use(app, MAIN, "write", path="main.txt", content="1")
            assert app.sandboxes._registry is None  # nothing is loaded for a session without one
            app.sandboxes()._backends["bubblewrap"] = FakeSandbox()
            await use(app, OTHER, "write", path="/workspace/made.txt", content="from a tool\n")
            assert await use(app, OTHER, "exec", command="cat < made.txt") == "from a tool"
            boxes = tmp_path / ".openclaw" / "sandboxes"
            (box,) = [each for each in boxes.iterdir() if each.name != ".data"]
            workspace = app.agent("main").workspace
            assert (box / "made.txt").exists() and not (workspace / "made.txt").exists()
            assert (workspace / "main.txt").exists()

            system = server.requests[-1].body["messages"][0]["content"]
            assert "Your folder is /workspace." in system and "## Sandbox" in system
            report = (await app.control.load(OTHER)).record.data["systemPromptReport"]
            assert report["sandbox"] == {"mode": "all", "sandboxed": True}
            systems = [each.body["messages"][0]["content"] for each in server.requests]
            assert systems.count(system) == 4  # the same for every call of the model
            preview = await preview_prompt(app.preview, OTHER)
            assert "## Sandbox" in preview.prompt.text
            assert "## Sandbox" not in (await preview_prompt(app.preview, MAIN)).prompt.text

            await app.maintenance.run_once()
            assert box.exists()
            await app.sandboxes.prune(app.clock.now_ms() + 25 * 3_600_000)
            assert not box.exists()


@pytest.mark.parametrize(
    ("settings", "access", "expected"),
    [
        ({"mode": "non-main"}, session_access(GROUP), SandboxInfo("/workspace", "none")),
        ({"mode": "all", "workspaceAccess": "rw"}, FULL_ACCESS, SandboxInfo("/workspace", "rw")),
        (
            {"mode": "all", "workspaceAccess": "rw", "network": {"allow": ["pypi.org"]}},
            session_access(GROUP),
            SandboxInfo("/workspace", "ro", hosts=("pypi.org",)),
        ),
        (
            {"mode": "all", "docker": {"workdir": "/work"}},
            FULL_ACCESS,
            SandboxInfo("/work", "none"),
        ),
        (
            {"mode": "all", "docker": {"image": "tools", "network": "bridge"}},
            FULL_ACCESS,
            SandboxInfo("/workspace", "none", has_network=True),
        ),
        ({"mode": "off"}, FULL_ACCESS, None),
    ],
)
def test_sandbox_info_is_what_the_settings_give(
    settings: Any, access: Any, expected: SandboxInfo | None
) -> None:
    config = check_config({"agents": {"defaults": {"sandbox": settings}}}).config
    assert config and find_sandbox_info(config, GROUP, access) == expected


@pytest.mark.parametrize(
    ("elevated", "own", "can_leave"),
    [
        ({}, {}, False),
        ({"allowFrom": {"telegram": ["42"]}}, {}, True),
        ({"allowFrom": {"telegram": []}}, {}, False),
        ({"enabled": False, "allowFrom": {"telegram": ["42"]}}, {}, False),
        ({"allowFrom": {"telegram": ["42"]}}, {"enabled": False}, False),
    ],
)
def test_sandbox_info_tells_whether_commands_may_leave(
    elevated: Any, own: Any, can_leave: bool
) -> None:
    tree = {
        "agents": {
            "defaults": {"sandbox": {"mode": "all"}},
            "list": [{"id": "main", "tools": {"elevated": own}}],
        },
        "tools": {"elevated": elevated},
    }
    config = check_config(tree).config
    assert config
    info = find_sandbox_info(config, GROUP, FULL_ACCESS)
    assert info and info.elevated == can_leave


@pytest.mark.slow
async def test_program_without_sandboxes_imports_nothing_of_them() -> None:
    code = (
        "import sys, homarus.app, homarus.agent.run, homarus.tools.builtin.exec;"
        "print([name for name in sys.modules if name.startswith('homarus.tools.sandbox.')])"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    loaded = {name.rpartition(".")[2].strip("']") for name in output.decode().strip().split(", ")}
    assert loaded <= {"loader", "sandbox_status"}
