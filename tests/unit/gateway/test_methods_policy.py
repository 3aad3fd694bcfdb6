"""`policy.*` and `agents.files.preview`: what the control UI shows of an agent."""

from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import InvalidRequestError
from tests.unit.gateway.app_harness import CONFIG, run

DENIED: dict[str, Any] = {"tools": {"deny": ["write"]}}


async def test_policy_explain_names_the_layer_that_decides(tmp_path: Path) -> None:
    async with run(tmp_path, config=DENIED) as it:
        denied = await it.ask("policy.explain", tool="write")
        allowed = await it.ask("policy.explain", tool="read", args={"path": "a.md"})
    assert (denied["tool"], denied["action"]) == ("write", "deny")
    assert denied["reason"]
    assert allowed["action"] == "allow"
    assert {verdict["layer"] for verdict in allowed["verdicts"]}


async def test_policy_list_has_a_row_for_each_tool(tmp_path: Path) -> None:
    async with run(tmp_path, config=DENIED) as it:
        found = await it.ask("policy.list", agentId="main")
    rows = {row["tool"]: row for row in found["tools"]}
    assert found["sessionKey"] == "agent:main:main"
    assert rows["write"]["action"] == "deny"
    assert rows["read"]["action"] == "allow"
    assert all(row["reason"] for row in rows.values() if row["action"] != "allow")


async def test_policy_explain_of_unknown_tool_is_refused(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        with pytest.raises(InvalidRequestError, match="unknown tool"):
            await it.ask("policy.explain", tool="wrote")


def _limits(chars: int) -> dict[str, Any]:
    return {"agents": {"defaults": {**CONFIG["agents"]["defaults"], "bootstrapMaxChars": chars}}}


async def test_files_preview_shows_what_the_prompt_keeps(tmp_path: Path) -> None:
    async with run(tmp_path, config=_limits(1_000)) as it:
        it.app.agent("main")  # makes the workspace
        long = "first " + "x" * 5_000 + " last"
        params = {"agentId": "main", "name": "SOUL.md", "content": long}
        found = await it.ask("agents.files.preview", params)
        stored = await it.ask("agents.files.preview", agentId="main")
    row = next(one for one in found["files"] if one["name"] == "SOUL.md")
    assert (row["truncated"], row["rawChars"]) == (True, len(long))
    assert row["keptChars"] == len(found["kept"]) <= 1_000
    assert found["kept"].startswith("first") and found["kept"].endswith("last")
    assert "left out" in found["kept"]
    assert found["maxFileChars"] == 1_000
    assert "kept" not in stored
    unsaved = next(one for one in stored["files"] if one["name"] == "SOUL.md")
    assert unsaved["rawChars"] != len(long)  # nothing was saved


@pytest.mark.parametrize(
    "params", [{"agentId": "nobody"}, {"agentId": "main", "name": "../secret", "content": "x"}]
)
async def test_files_preview_of_unknown_name_is_refused(params: Any, tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        with pytest.raises(InvalidRequestError, match=r"agents\.files\.preview"):
            await it.ask("agents.files.preview", params)
