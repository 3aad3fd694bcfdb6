"""Every fact of the prompt, filled from config and chat: present, small, and the same each turn."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from homarus import __version__
from homarus.agent.prompt.preview import preview_prompt
from homarus.agent.prompt.report import format_report
from homarus.app import App
from homarus.core.message import Address, Inbound, InboundMetadata, RunOptions
from homarus.process import open_app
from homarus.testing.model_server import ModelServer

MAX_REQUEST_BYTES = 22_600  # with every fact of a chat; a plain turn has 20,000 (bench/limits.toml)
OWNERS = ["telegram:42", "tg:43", "user:44", "@ann", "discord:45", "*"]


def configure(home: Path, url: str, *, reverse: bool = False) -> None:
    """Write a config that fills every fact; `reverse` gives its lists and keys another order."""
    turn = -1 if reverse else 1
    row = {"id": "mock-1", "name": "Mock", "contextWindow": 200_000, "maxTokens": 4_000}
    provider = {"baseUrl": url, "apiKey": "sk-test", "api": "openai-completions", "models": [row]}
    aliases = {"mock/mock-1": {"alias": "quick"}, "mock/mock-2": {"alias": "slow"}}
    identity = {"name": "Ada", "creature": "lobster", "vibe": "calm", "emoji": "🦞"}
    config: dict[str, Any] = {
        "models": {"providers": {"mock": provider}},
        "agents": {
            "defaults": {
                "model": {"primary": "mock/mock-1"},
                "models": dict(list(aliases.items())[::turn]),
                "repoRoot": str(home / "repo"),
                "userTimezone": "Europe/Berlin",
                "thinkingDefault": "low",
            },
            # Which bundled skills are listed depends on the machine.
            "list": [
                {"id": "main", "identity": dict(list(identity.items())[::turn]), "skills": []}
            ],
        },
        "commands": {"ownerAllowFrom": OWNERS[::turn]},
        "channels": {
            "telegram": {
                "botToken": "123456:AAAA",
                "enabled": True,
                "allowFrom": ["42"],
                "reactionLevel": "minimal",
                "capabilities": ["inlineButtons", "polls", "albums"][::turn],
            }
        },
    }
    (home / ".openclaw").mkdir(exist_ok=True)
    file = home / ".openclaw" / "openclaw.json"
    file.write_text(json.dumps(dict(list(config.items())[::turn])), encoding="utf-8")
    (home / "repo").mkdir(exist_ok=True)


async def ask(app: App, number: int, **changes: Any) -> None:
    """Send one message of a direct chat on Telegram; each differs in all that a message has."""
    inbound = Inbound(
        f"m{number}",
        Address("telegram", "42"),
        "42",
        f"Question {number}",
        authority="owner",
        at_ms=1_771_300_000_000 + number * 3_600_000,
        metadata=InboundMetadata(name=f"Ann {number}"),
        options=RunOptions(thinking=("off", "high")[number % 2]),
        run_id=f"r{number}",
        **changes,
    )
    outcome = await app.control.ask("agent:main:main", inbound)
    assert outcome.error is None


def system_of(server: ModelServer, at: int) -> str:
    first = server.requests[at].body["messages"][0]
    assert first["role"] in {"system", "developer"}
    return str(first["content"])


async def test_prompt_with_every_fact_is_small_and_stable(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path)}
    async with ModelServer() as server:
        configure(tmp_path, server.url)
        async with open_app(env) as app:
            for number in range(5):
                await ask(app, number)
        configure(tmp_path, server.url, reverse=True)
        async with open_app(env) as app:  # as after a restart of the gateway
            for number in range(5, 10):
                await ask(app, number)
        assert len(server.requests) == 10
        sent = [request.body for request in server.requests]
        assert int(server.requests[0].headers["content-length"]) <= MAX_REQUEST_BYTES
        for before, after in pairwise(sent):
            # A request is the one before it, with more messages at its end.
            assert json.dumps(before["tools"]) == json.dumps(after["tools"])
            shared = after["messages"][: len(before["messages"])]
            assert json.dumps(shared) == json.dumps(before["messages"])
        check_facts(system_of(server, -1), tmp_path)


def check_facts(text: str, home: Path) -> None:
    assert text.startswith("You are Ada, ") and "\nYour identity: creature: lobster" in text
    assert "## Your Person\nMessages from these are your person's own: 42, 43, 44.\n" in text
    assert "The folder is a git repository: commit what you change." in text
    assert "## Documentation\nThe documentation of this program is in /" in text
    assert "buttons=[[{text, callback_data}]]" in text
    assert "On Telegram a target is a number" in text
    assert "## Reactions" in text and "- quick: mock/mock-1\n- slow: mock/mock-2" in text
    *_, runtime, reasoning = text.splitlines()
    fields = dict(field.split("=", 1) for field in runtime.split(" | "))
    assert list(fields) == [
        "agent", "host", "repo", "os", "python", "version", "model", "default_model", "shell",
        "channel", "capabilities", "thinking",
    ]  # fmt: skip
    assert fields["repo"] == str(home / "repo") and fields["version"] == __version__
    assert fields["model"] == fields["default_model"] == "mock/mock-1"
    assert fields["channel"] == "telegram" and fields["thinking"] == "low"
    assert fields["capabilities"] == (
        "albums,deleteMessage,editMessage,files,inlineButtons,poll,polls,reactions"
    )
    assert fields["shell"] == Path("/bin/sh").resolve().name
    assert reasoning.startswith("Reasoning: off.") and "/reasoning" in reasoning


async def test_prompt_report_counts_sections_of_every_fact(tmp_path: Path) -> None:
    async with ModelServer() as server:
        configure(tmp_path, server.url)
        async with open_app({"HOME": str(tmp_path)}) as app:
            await ask(app, 1)
            session = await app.control.load("agent:main:main")
            report = session.record.data["systemPromptReport"]
            assert report["systemPrompt"]["chars"] == len(system_of(server, 0))
            preview = await preview_prompt(app.preview, "agent:main:main")
            assert preview.prompt.text == system_of(server, 0)
            sizes = {part.name: part.chars for part in preview.report.sections}
            assert sizes["Authorized Senders"] > 40 and sizes["Documentation"] > 100
            assert sizes["Messaging"] > 300 and sizes["Runtime"] > 200
            shown = format_report(preview.report, detail=True)
            assert f"Documentation: {sizes['Documentation']:,} characters" in shown
