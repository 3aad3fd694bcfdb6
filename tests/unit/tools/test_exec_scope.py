"""Commands of a session that belongs in a sandbox never run on the host instead."""

from pathlib import Path

import pytest

from homarus.core.message import ToolCall
from homarus.policy.approvals import ApprovalQuestion
from homarus.policy.tool_call import ToolCallFacts, ToolDecision
from homarus.testing.approvals import AskingApprovals
from homarus.tools.execute import execute_tool_call
from homarus.tools.registry import ToolRegistry
from homarus.tools.tool import ToolContext
from tests.unit.tools.exec_builders import make_exec_tool

MAIN, GROUP = "agent:main:main", "agent:main:telegram:group:-100"


@pytest.mark.parametrize(
    ("mode", "key", "runs"),
    [
        ("off", GROUP, True),
        ("non-main", MAIN, True),
        ("non-main", GROUP, False),
        ("all", MAIN, False),
    ],
)
async def test_exec_outside_scope_is_denied_without_approval(
    tmp_path: Path, mode: str, key: str, runs: bool
) -> None:
    asked = list[ApprovalQuestion]()

    async def judge(_call: ToolCallFacts) -> ToolDecision:
        return ToolDecision("ask", "")

    async def ask(question: ApprovalQuestion) -> bool:
        asked.append(question)
        return True

    ctx = ToolContext(key, "main", tmp_path, approvals=AskingApprovals(ask))
    done = await execute_tool_call(
        ToolRegistry([make_exec_tool({"agents": {"defaults": {"sandbox": {"mode": mode}}}})]),
        ctx,
        ToolCall("1", "exec", {"command": "touch canary"}),
        judge,
    )
    assert (tmp_path / "canary").exists() == runs
    assert bool(asked) == runs and done.is_error != runs
    assert runs or "sandbox" in done.text
