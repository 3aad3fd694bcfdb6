"""prompt.get, avatars, and the first conversation of an agent, by the gateway."""

import base64
from pathlib import Path
from typing import Any

import pytest

from homarus.agent.workspace import read_state
from homarus.core.errors import HomarusError
from homarus.core.message import ToolCall
from homarus.gateway.http_server import GatewayAsgiApp
from tests.unit.gateway.app_harness import answer, run
from tests.unit.gateway.test_http_server import HERE

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


async def test_prompt_get_equals_what_the_model_receives(tmp_path: Path) -> None:
    async with run(tmp_path, answer("hello")) as it:
        await it.send("hi")
        told = await it.ask("prompt.get")
        assert told["text"] == it.model.requests[0].system
        assert told["sessionKey"] == "agent:main:main"
        assert told["report"]["systemPrompt"]["chars"] == len(told["text"])
        tools = [tool["name"] for tool in told["report"]["tools"]["entries"]]
        assert tools == [spec.name for spec in it.model.requests[0].tools]
        without = await it.ask("prompt.get", sessionKey="agent:main:slack:group:g", text=False)
        assert "text" not in without


async def test_prompt_of_two_turns_is_identical(tmp_path: Path) -> None:
    async with run(tmp_path, answer("a"), answer("b"), answer("c")) as it:
        await it.send("one", "run-1")
        await it.send("aside", "run-2", key="agent:main:slack:group:g")
        it.app.notices.add("agent:main:main", "somebody came online", 5)
        await it.send("two", "run-3")
        first, _, second = it.model.requests
        assert first.system == second.system and first.tools == second.tools
        assert second.messages[: len(first.messages)] == first.messages


async def test_prompt_report_is_stored_with_the_session(tmp_path: Path) -> None:
    async with run(tmp_path, answer("a"), answer("b"), answer("c")) as it:
        await it.send("one", "run-1")
        first = (await it.app.control.load("agent:main:main")).record.data["systemPromptReport"]
        assert first["source"] == "run" and first["model"] == "mock-1"
        assert first["systemPrompt"]["chars"] == len(it.model.requests[0].system)
        await it.send("two", "run-2")
        again = (await it.app.control.load("agent:main:main")).record.data["systemPromptReport"]
        assert again == first  # nothing changed: it is not written again
        (it.app.agent("main").workspace / "SOUL.md").write_text("Be terse.")
        await it.send("three", "run-3")
        last = (await it.app.control.load("agent:main:main")).record.data["systemPromptReport"]
        assert last["systemPrompt"]["chars"] == len(it.model.requests[2].system)


async def test_prompt_get_needs_admin_scope(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        with pytest.raises(HomarusError, match="missing scope"):
            await it.ask("prompt.get", {}, "read")


async def test_avatar_is_served_from_the_workspace_only(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        workspace = it.app.agent("main").workspace
        (workspace / "me.png").write_bytes(PNG)
        identity = workspace / "IDENTITY.md"
        identity.write_text("---\nname: Ada\navatar: ./me.png\n---\n")
        site = GatewayAsgiApp(it.gateway)
        here = {**HERE, "host": "127.0.0.1:18789"}
        got = await get_bytes(site, "/avatar/main", here)
        assert got == (200, "image/png", PNG)
        listed = (await it.ask("agents.list"))["agents"][0]["identity"]
        assert listed["avatarUrl"] == "/avatar/main"
        assert (await it.ask("agent.identity.get"))["avatar"] == "/avatar/main"
        for path in ("/avatar/nobody", "/avatar/main/x", "/avatar/..%2f", "/avatar/"):
            assert (await get_bytes(site, path, here))[0] in {401, 404}
        (tmp_path / "secret.png").write_bytes(PNG)
        (workspace / "out.png").symlink_to(tmp_path / "secret.png")
        for avatar in ("out.png", "../secret.png", str(tmp_path / "secret.png"), "AGENTS.md"):
            identity.write_text(f"---\navatar: {avatar}\n---\n")
            assert (await get_bytes(site, "/avatar/main", here))[0] == 401
        assert (await get_bytes(GatewayAsgiApp(it.gateway, page=False), "/avatar/main", here))[
            0
        ] == 401


async def get_bytes(
    site: GatewayAsgiApp, path: str, headers: dict[str, str]
) -> tuple[int, str, bytes]:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "root_path": "",
        "scheme": "http",
        "http_version": "1.1",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 18789),
    }
    await site(scope, receive, send)
    kind = dict(sent[0]["headers"]).get(b"content-type", b"").decode()
    return sent[0]["status"], kind, b"".join(part.get("body", b"") for part in sent[1:])


async def test_first_conversation_runs_the_bootstrap_ritual(tmp_path: Path) -> None:
    """The ritual: it is asked for, the files are written, and it is never asked for again."""

    def write(number: int, path: str, content: str) -> ToolCall:
        return ToolCall(f"c{number}", "write", {"path": path, "content": content})

    script = [
        answer("Hello! Who are you, and who am I?"),
        answer(
            write(1, "IDENTITY.md", "- Name: Nyx\n- Emoji: 🌙\n"),
            write(2, "USER.md", "- Name: Ann\n"),
            write(3, "BOOTSTRAP.md", ""),
        ),
        answer("I am Nyx."),
        answer("Good morning, Ann."),
        answer("Still Nyx."),
    ]
    async with run(tmp_path, *script[:4]) as it:
        await it.send("hi", "run-1")
        await it.send("I am Ann, you are Nyx", "run-2")
        await it.send("good morning", "run-3")
        before, _, after, later = (request.system for request in it.model.requests)
        assert "BOOTSTRAP.md comes first" in before and "You are Homarus" in before
        assert before == after  # a run keeps the prompt it began with
        assert "You are Nyx," in later and "### BOOTSTRAP.md" not in later
        assert "- Name: Ann" in later
        assert (await it.ask("agents.list"))["agents"][0]["identity"]["name"] == "Nyx"
    async with run(tmp_path, script[4]) as it:
        await it.send("and today?", "run-4")
        assert "### BOOTSTRAP.md" not in it.model.requests[0].system
        assert "onboardingCompletedAt" in read_state(it.app.agent("main").workspace)


async def test_agents_have_separate_workspace_model_and_credentials(tmp_path: Path) -> None:
    async with run(tmp_path, answer("Arr"), answer("Hello")) as it:
        await it.ask("agents.create", name="Ops", workspace="~/state/workspace-ops")
        (tmp_path / "state" / "workspace-ops" / "SOUL.md").write_text("Be a pirate.")
        await it.ask("agent", message="hi", agentId="ops", idempotencyKey="a")
        await it.send("hi")
        ops, main = it.model.requests
        assert "Be a pirate." in ops.system and "Be a pirate." not in main.system
        assert "agent=ops" in ops.system
        dirs = {it.app.models.credentials(agent) for agent in ("main", "ops")}
        assert len(dirs) == 2
