"""agents.*: made, changed, removed; their files read and written, and nothing else."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from homarus.agent.prompt.injection import ORDER
from homarus.agent.prompt.workspace_files import get_file, list_files, set_file
from homarus.core.errors import HomarusError, InvalidRequestError, UserError
from homarus.gateway.frames import NEWEST_PROTOCOL
from homarus.gateway.method import MethodCall
from homarus.gateway.methods import METHODS
from tests.unit.gateway.app_harness import Harness, answer, run


def written(it: Harness) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(it.app.paths.config.read_text("utf-8"))
    return read


def text_of(path: Path) -> str:
    return path.read_text("utf-8")


def there(path: Path) -> bool:
    return path.exists()


async def test_agents_list_shows_scope_and_identity_of_config(tmp_path: Path) -> None:
    listed_agents = {"defaults": {"agentId": "ops"}, "list": [{"id": "main"}, {"id": "ops"}]}
    config = {"session": {"scope": "global"}, "agents": listed_agents}
    async with run(tmp_path, answer("Hello"), config=config) as it:
        listed = await it.ask("agents.list")
        assert (listed["scope"], listed["defaultId"]) == ("global", "ops")
        assert it.app.control.resolve_key() == "agent:ops:global"
        assert it.app.control.resolve_key("main", "main") == "global"
        assert it.app.control.resolve_key("agent:main:main") == "agent:main:main"


async def test_agents_list_shows_the_model_of_each_agent(tmp_path: Path) -> None:
    listed = [{"id": "main"}, {"id": "ops", "model": "mock/mock-1"}]
    async with run(tmp_path, answer("Hello"), config={"agents": {"list": listed}}) as it:
        newest = replace(it.caller(), protocol=NEWEST_PROTOCOL)
        call = MethodCall(it.services, it.gateway, newest, "1", it.accepted.append)
        rows = (await METHODS["agents.list"](call, {}))["agents"]
        assert [row["model"] for row in rows] == [{"primary": "mock/mock-1"}] * 2
        assert "model" not in (await it.ask("agents.list"))["agents"][1]  # of protocol 3


async def test_agents_create_answers_at_once_and_main_stays(tmp_path: Path) -> None:
    async with run(tmp_path, answer("Hello")) as it:
        made = await it.ask(
            "agents.create", name="Night Shift", workspace="~/state/workspace-night", emoji="🌙"
        )
        assert made == {
            "ok": True,
            "agentId": "night-shift",
            "name": "Night Shift",
            "workspace": str(tmp_path / "state" / "workspace-night"),
        }
        assert [entry["id"] for entry in written(it)["agents"]["list"]] == ["main", "night-shift"]
        listed = await it.ask("agents.list")
        assert [agent["id"] for agent in listed["agents"]] == ["main", "night-shift"]
        assert listed["agents"][1]["identity"] == {"name": "Night Shift", "emoji": "🌙"}
        assert listed["defaultId"] == "main"
        assert "- Emoji: 🌙" in text_of(it.app.paths.state / "workspace-night" / "IDENTITY.md")
        final = await it.ask("agent", message="hi", agentId="night-shift", idempotencyKey="a")
        assert final["status"] == "ok"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"name": "main"}, "reserved"),
        ({"name": "???"}, "reserved"),
        ({"name": "Ops"}, "already exists"),
        ({"workspace": "relative"}, "absolute"),
        ({"workspace": "/x\0y"}, "absolute"),
        ({"workspace": "~/state"}, "gateway's own state"),
        ({"workspace": "~/state/agents/main/agent"}, "gateway's own state"),
        ({"workspace": "/"}, "gateway's own state"),
        ({"workspace": "~/link"}, "gateway's own state"),
        ({"name": ""}, "name"),
        ({"name": "x" * 200}, "name"),
    ],
)
async def test_agents_create_with_invalid_params_is_refused(
    fields: dict[str, Any], why: str, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "state")

    agents = {"defaults": {"model": "mock/mock-1"}, "list": [{"id": "main"}, {"id": "ops"}]}
    async with run(tmp_path, config={"agents": agents}) as it:
        before = it.app.paths.config.read_bytes()
        with pytest.raises(InvalidRequestError, match=why):
            await it.ask("agents.create", {"name": "New", "workspace": "~/w", **fields})
        assert it.app.paths.config.read_bytes() == before
        assert not there(tmp_path / "w")


async def test_agents_update_changes_config_and_identity_file(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        done = await it.ask("agents.update", agentId="main", name="Ada", model="openai/gpt-5.2")
        assert done == {"ok": True, "agentId": "main"}
        (entry,) = written(it)["agents"]["list"]
        assert entry == {"id": "main", "name": "Ada", "model": "openai/gpt-5.2"}
        assert (await it.ask("agent.identity.get"))["name"] == "Ada"
        for wrong in ({"agentId": "none"}, {"agentId": "main", "model": "nobody/knows"}):
            with pytest.raises(HomarusError):
                await it.ask("agents.update", wrong)


async def test_agents_delete_removes_all_and_archives_files(tmp_path: Path) -> None:
    bindings = [{"agentId": name, "match": {"channel": "telegram"}} for name in ("main", "ops")]
    agents = {"defaults": {"model": "mock/mock-1"}, "list": [{"id": "main"}, {"id": "ops"}]}
    async with run(tmp_path, answer("x"), config={"agents": agents, "bindings": bindings}) as it:
        await it.ask("agent", message="hi", agentId="ops", idempotencyKey="a")
        workspace = it.app.agent("ops").workspace
        done = await it.ask("agents.delete", agentId="ops")
        assert done == {"ok": True, "agentId": "ops", "removedBindings": 1}
        config = written(it)
        assert [entry["id"] for entry in config["agents"]["list"]] == ["main"]
        assert [b["agentId"] for b in config["bindings"]] == ["main"]
        assert await it.app.store.sessions(agent="ops") == []
        assert not there(workspace)
        trash = list((it.app.paths.state / "trash").iterdir())
        assert there(trash[0] / workspace.name / "AGENTS.md")
        for kept in ("main", "ops"):
            with pytest.raises(InvalidRequestError):
                await it.ask("agents.delete", agentId=kept)


async def test_agents_delete_keeps_a_workspace_outside_the_state(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "AGENTS.md").write_text("mine")
    entries = [{"id": "main"}, {"id": "ops", "workspace": "~/mine"}]
    agents = {"defaults": {"model": "mock/mock-1"}, "list": entries}
    async with run(tmp_path, config={"agents": agents}) as it:
        await it.ask("agents.delete", agentId="ops")
        assert there(tmp_path / "mine" / "AGENTS.md")


async def test_agents_files_are_listed_read_and_written(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        listed = await it.ask("agents.files.list", agentId="main")
        names = [file["name"] for file in listed["files"]]
        assert names == ["AGENTS.md", "SOUL.md", "TOOLS.md", "IDENTITY.md", "USER.md",
                         "HEARTBEAT.md", "BOOTSTRAP.md", "MEMORY.md"]  # fmt: skip
        assert [file["missing"] for file in listed["files"]] == [False] * 7 + [True]
        done = await it.ask("agents.files.set", agentId="main", name="MEMORY.md", content="é\n")
        assert done["file"]["size"] == 3
        got = await it.ask("agents.files.get", agentId="main", name="MEMORY.md")
        assert got["file"]["content"] == "é\n" and got["file"]["missing"] is False


@pytest.mark.parametrize(
    "name",
    ["../AGENTS.md", "/etc/passwd", "notes.md", ".git/config", "AGENTS.md/", "agents.md", "."],
)
async def test_agents_files_refuse_any_other_file(name: str, tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        for params in ({}, {"content": "x"}):
            method = "agents.files.set" if params else "agents.files.get"
            with pytest.raises(UserError, match="unsupported file"):
                await it.ask(method, {"agentId": "main", "name": name, **params})


def test_agents_files_link_out_of_workspace_is_not_followed(
    tmp_path: Path,
) -> None:
    outside = tmp_path / "secret"
    outside.write_text("secret")
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "AGENTS.md").symlink_to(outside)
    os.link(outside, tmp_path / "w" / "SOUL.md")
    assert list_files(tmp_path / "w")[0].missing
    for name in ("AGENTS.md", "SOUL.md"):
        assert "secret" not in get_file(tmp_path / "w", name).content
        with pytest.raises(UserError):
            set_file(tmp_path / "w", name, "mine")
    assert outside.read_text() == "secret"


def test_agents_files_memory_file_is_the_existing_one(tmp_path: Path) -> None:
    assert [file.name for file in list_files(tmp_path)][-1] == "MEMORY.md"
    (tmp_path / "memory.md").write_text("x")
    assert [file.name for file in list_files(tmp_path)][-1] == "memory.md"
    assert set(ORDER) >= {file.name for file in list_files(tmp_path)}


def test_agents_files_too_large_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at most"):
        set_file(tmp_path, "AGENTS.md", "é" * 2_500_000)
    assert not (tmp_path / "AGENTS.md").exists()
