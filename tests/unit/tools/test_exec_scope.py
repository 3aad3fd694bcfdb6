"""Commands of a session that belongs in a sandbox never run on the host instead."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from homarus.config.check import check
from homarus.core.message import ToolCall
from homarus.policy.decide import Verdict
from homarus.tools.builtin.exec import Unboxed, exec_tool, unsandboxed_scope
from homarus.tools.call import call
from homarus.tools.registry import Registry
from homarus.tools.tool import Question, ToolContext

MAIN, GROUP = "agent:main:main", "agent:main:telegram:group:-100"


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ({}, "all"),
        ({"agents": {"defaults": {"sandbox": {"mode": "off"}}}}, "all"),
        ({"agents": {"defaults": {"sandbox": {"mode": "all", "scope": "agent"}}}}, "none"),
        ({"agents": {"defaults": {"sandbox": {"mode": "non-main"}}}}, "main"),
        ({"agents": {"list": [{"id": "Main", "sandbox": {"mode": "all"}}]}}, "none"),
        (
            {
                "agents": {
                    "defaults": {"sandbox": {"mode": "all"}},
                    "list": [{"id": "main", "sandbox": {"mode": "off"}}],
                }
            },
            "all",
        ),
        ({"tools": {"exec": {"host": "sandbox"}}}, "none"),
        ({"tools": {"exec": {"host": "node"}}}, "none"),
        ({"tools": {"exec": {"host": "gateway"}}}, "all"),
        (
            {
                "tools": {"exec": {"host": "sandbox"}},
                "agents": {"list": [{"id": "main", "tools": {"exec": {"timeoutSec": 5}}}]},
            },
            "none",
        ),
    ],
)
def test_unsandboxed_scope_by_config(tree: Any, expected: str) -> None:
    config = check(tree).config
    assert config and unsandboxed_scope(config, "main") == expected


@pytest.mark.parametrize(
    ("allowed", "key", "runs"),
    [("all", GROUP, True), ("main", MAIN, True), ("main", GROUP, False), ("none", MAIN, False)],
)
def test_exec_outside_scope_is_denied_without_approval(
    tmp_path: Path, allowed: Unboxed, key: str, runs: bool
) -> None:
    asked = list[Question]()

    async def judge(_call: ToolCall) -> Verdict:
        return Verdict("allow", "")

    async def ask(question: Question) -> bool:
        asked.append(question)
        return True

    ctx = ToolContext(key, "main", tmp_path, ask)
    done = asyncio.run(
        call(
            Registry([exec_tool(unboxed=allowed)]),
            ctx,
            ToolCall("1", "exec", {"command": "touch canary"}),
            judge,
        )
    )
    assert (tmp_path / "canary").exists() == runs
    assert bool(asked) == runs and done.is_error != runs
    assert runs or "sandbox" in done.text
