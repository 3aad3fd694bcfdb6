"""Skills in a home, and the complete program with a scripted model, for tests of conversations."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from homarus.agent.approval_ports import ApproverIdentity
from homarus.app import App
from homarus.core.message import Address, Inbound, RunOptions, ToolResult
from homarus.process import open_app
from homarus.store.approvals import ApprovalRecord
from homarus.testing.model_server import ModelServer

MAIN = "agent:main:main"
SECRET = "tk-5EbYp2Qz9LmW"


def write_skill(
    root: Path, name: str, description: str = "", *, body: str = "Do it.", **fields: Any
) -> Path:
    """Write a skill, and return its SKILL.md; `fields` are lines of the frontmatter."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    lines = {"name": name, "description": description or f"About {name}.", **fields}
    shown = [f"{key.replace('_', '-')}: {_format(value)}" for key, value in lines.items()]
    file = folder / "SKILL.md"
    file.write_text("\n".join(["---", *shown, "---", body, ""]), encoding="utf-8")
    return file


def _format(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


class Approver:
    """A person at the terminal who gives the same answer to every question."""

    identity = ApproverIdentity("anna")

    def __init__(self, answer: str) -> None:
        self.answer, self.asked = answer, list[str]()

    def is_reachable(self, _record: ApprovalRecord) -> bool:
        return True

    async def ask(self, record: ApprovalRecord) -> str:
        self.asked.append(json.dumps(dict(record.request)))
        return self.answer


class SkillStage:
    """A home with skills, the program in it, and a model that follows the script in messages."""

    def __init__(self, home: Path, server: ModelServer, app: App) -> None:
        self.home, self.server, self.app = home, server, app
        self._sent = 0

    @property
    def workspace(self) -> Path:
        return self.app.agent("main").workspace

    @property
    def managed(self) -> Path:
        return self.home / ".openclaw" / "skills"

    def answer_questions(self, answer: str) -> Approver:
        """Have every question about a call answered; return who answers."""
        approver = Approver(answer)
        self.app.approval_ports.register_approver(approver)
        return approver

    async def say(self, text: str, key: str = MAIN, **given: Any) -> str:
        """Send a message of the owner, and return the reply."""
        self._sent += 1
        options = given.pop("options", RunOptions())
        inbound = Inbound(
            f"m{self._sent}", Address("cli", "1"), "", text, options=options,
            **{"authority": "owner", **given},
        )  # fmt: skip
        outcome = await self.app.control.ask(key, inbound)
        assert outcome.error is None, outcome.error
        return outcome.text

    async def use(self, tool: str, key: str = MAIN, **args: Any) -> str:
        """Have the model call a tool, and return the result."""
        await self.say(f"MOCK:tool:{tool}:{json.dumps(args)}§", key)
        return (await self.results(key))[-1].text

    async def results(self, key: str = MAIN) -> list[ToolResult]:
        session = await self.app.control.load(key)
        parts = [part for message in session.messages for part in message.parts]
        return [part for part in parts if isinstance(part, ToolResult)]

    def systems(self) -> list[str]:
        """Return the system prompts of all requests."""
        return [str(each.body["messages"][0]["content"]) for each in self.server.requests]

    async def snapshot(self, key: str = MAIN) -> Any:
        return (await self.app.control.load(key)).record.data.get("skillsSnapshot")


@asynccontextmanager
async def open_stage(
    home: Path, monkeypatch: pytest.MonkeyPatch, **config: Any
) -> AsyncIterator[SkillStage]:
    """Open the program in a home; `config` are sections of openclaw.json."""
    monkeypatch.setenv("HOME", str(home))
    async with ModelServer() as server:
        row = {"id": "mock-1", "name": "Mock", "contextWindow": 200_000, "maxTokens": 4_000}
        provider = {"baseUrl": server.url, "apiKey": "sk-test", "api": "openai-completions"}
        agents = config.pop("agents", {})
        defaults = {"model": {"primary": "mock/mock-1"}, **agents.pop("defaults", {})}
        skills = {"allowBundled": ["none"], **config.pop("skills", {})}
        tree = {
            "models": {"providers": {"mock": {**provider, "models": [row]}}},
            "agents": {"defaults": defaults, **agents},
            "skills": skills,
            **config,
        }
        (home / ".openclaw").mkdir(exist_ok=True)
        (home / ".openclaw" / "openclaw.json").write_text(json.dumps(tree), encoding="utf-8")
        async with open_app({"HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin"}) as app:
            yield SkillStage(home, server, app)
