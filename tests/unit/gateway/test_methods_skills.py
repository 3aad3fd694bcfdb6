"""`skills.status`, `skills.bins` and `skills.update`: OpenClaw's shapes, and no secret in them."""

import json
from pathlib import Path
from typing import Any

import pytest

from homarus.config.redaction import REDACTED
from homarus.core.errors import InvalidRequestError
from homarus.gateway.connection import find_method
from homarus.gateway.method import Caller
from tests.unit.gateway.app_harness import Harness, run
from tests.unit.skills.builders import write_skill

FIELDS = {
    "name", "description", "source", "bundled", "filePath", "baseDir", "skillKey", "primaryEnv",
    "emoji", "homepage", "always", "disabled", "blockedByAllowlist", "eligible", "requirements",
    "missing", "configChecks", "install",
}  # fmt: skip
OWN: dict[str, Any] = {
    "emoji": "🍌",
    "homepage": "https://x.example",
    "primaryEnv": "X_API_KEY",
    "requires": {"bins": ["no-such-bin"], "env": ["X_API_KEY"], "config": ["channels.slack"]},
    "install": [
        {"kind": "brew", "formula": "x", "bins": ["xbin"]},
        {"kind": "apt", "package": "x", "os": ["win32"]},
    ],
}


def written(it: Harness) -> Any:
    return json.loads(it.app.paths.config.read_text("utf-8")).get("skills")


def found(payload: Any, name: str) -> Any:
    [entry] = [one for one in payload["skills"] if one["name"] == name]
    return entry


async def test_skills_status_has_the_fields_of_the_protocol(tmp_path: Path) -> None:
    file = write_skill(tmp_path / "state" / "skills", "x", **OWN)
    write_skill(tmp_path / "state" / "skills", "broken", "name: [x]\n")
    async with run(tmp_path) as it:
        payload = await it.ask("skills.status", {}, "read")
    assert payload["workspaceDir"] == str(tmp_path / "state" / "workspace")
    assert payload["managedSkillsDir"] == str(tmp_path / "state" / "skills")
    entry = found(payload, "x")
    assert entry.keys() >= FIELDS
    assert (entry["source"], entry["bundled"]) == ("openclaw-managed", False)
    assert (entry["filePath"], entry["baseDir"]) == (str(file), str(file.parent))
    assert entry["missing"] == {**OWN["requires"], "anyBins": [], "os": []}
    assert entry["configChecks"] == [{"path": "channels.slack", "satisfied": False}]
    assert entry["install"] == [
        {"id": "brew-0", "kind": "brew", "label": "Install x (brew)", "bins": ["xbin"]}
    ]
    assert {reason["gate"] for reason in entry["reasons"]} == {"bins", "env", "config"}
    [problem] = payload["problems"]
    assert problem["message"] == "its name is not text"


async def test_skills_status_unknown_agent_is_refused(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        with pytest.raises(InvalidRequestError, match='unknown agent id "nobody"'):
            await it.ask("skills.status", agentId="nobody")


async def test_skills_update_is_written_used_and_shown_without_secrets(tmp_path: Path) -> None:
    write_skill(tmp_path / "state" / "skills", "x", requires={"env": ["X_API_KEY"]})
    async with run(tmp_path) as it:
        assert not found(await it.ask("skills.status"), "x")["eligible"]
        env = {"X_API_KEY": " a-secret-value "}
        done = await it.ask(
            "skills.update", skillKey="x", env=env, apiKey="sk-secret", enabled=True
        )
        hidden = {"enabled": True, "apiKey": REDACTED, "env": {"X_API_KEY": REDACTED}}
        assert done == {"ok": True, "skillKey": "x", "config": hidden}
        saved = {"enabled": True, "apiKey": "sk-secret", "env": {"X_API_KEY": "a-secret-value"}}
        assert written(it) == {"entries": {"x": saved}}
        shown = json.dumps([await it.ask("skills.status"), await it.ask("config.get")])
        assert "a-secret-value" not in shown and "sk-secret" not in shown
        assert found(await it.ask("skills.status"), "x")["eligible"]
        done = await it.ask("skills.update", skillKey="x", apiKey="", env={"X_API_KEY": " "})
        assert done["config"] == {"enabled": True, "env": {}}
        await it.ask("skills.update", skillKey="x", enabled=False)
        assert found(await it.ask("skills.status"), "x")["disabled"]


@pytest.mark.parametrize(
    "env", [{"LD_PRELOAD": "/tmp/x.so"}, {"PATH": "/tmp"}, {"X_API_KEY": "${SECRET_NAME}"}]
)
async def test_skills_update_cannot_choose_what_is_run(env: Any, tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        with pytest.raises(InvalidRequestError, match=r"skills\.entries\.x\.env"):
            await it.ask("skills.update", skillKey="x", env=env)
        assert written(it) is None


async def test_skills_bins_lists_programs_of_all_agents_for_nodes(tmp_path: Path) -> None:
    agents = {"list": [{"id": "main"}, {"id": "two", "workspace": str(tmp_path / "two")}]}
    write_skill(tmp_path / "state" / "skills", "x", **OWN)
    write_skill(tmp_path / "two" / "skills", "y", requires={"anyBins": ["second-bin"]})
    async with run(tmp_path, config={"agents": agents}) as it:
        payload = await it.ask("skills.bins")
        assert payload["bins"] == sorted(payload["bins"])
        assert {"no-such-bin", "second-bin", "xbin"} <= set(payload["bins"])
        with pytest.raises(InvalidRequestError, match="unauthorized role: operator"):
            find_method(it.gateway, "skills.bins", Caller("c", "cli", "cli"))
        node = Caller("c", "node-host", "node", role="node")
        assert find_method(it.gateway, "skills.bins", node).name == "skills.bins"


async def test_commands_list_has_the_commands_of_skills(tmp_path: Path) -> None:
    write_skill(tmp_path / "state" / "skills", "do-it")
    async with run(tmp_path) as it:
        payload = await it.ask("commands.list", {"includeArgs": False}, "read")
        other = await it.ask("commands.list", {"agentId": "main"}, "read")
    row = next(each for each in payload["commands"] if each["name"] == "do_it")
    assert (row["source"], row["textAliases"], row["acceptsArgs"]) == ("skill", ["/do_it"], True)
    assert "args" not in row and "do_it" in [each["name"] for each in other["commands"]]
