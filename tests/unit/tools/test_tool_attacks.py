"""The recorded path attacks, through the file tools as a model calls them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from homarus.core.message import ToolCall, ToolResult
from homarus.policy.tool_call import ToolCallFacts, ToolDecision
from homarus.tools.builtin import files
from homarus.tools.execute import execute_tool_call
from homarus.tools.registry import ToolRegistry
from homarus.tools.tool import ToolContext

DATA = Path(__file__).parents[2] / "data" / "attacks" / "path_traversal.json"
CASES: list[dict[str, Any]] = json.loads(DATA.read_text())["cases"]
SECRET = "TOPSECRET"


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """What the cases' `fixture` describes, with the test's own folder for `/`."""
    outside, root = tmp_path / "outside", tmp_path / "ws"
    (root / "sub").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret").write_text(SECRET)
    (tmp_path / "ws-evil").mkdir()
    (tmp_path / "ws-evil" / "x").write_text(SECRET)
    (tmp_path / ".openclaw" / "credentials").mkdir(parents=True)
    (tmp_path / ".openclaw" / "credentials" / "x.json").write_text(SECRET)
    for name in ("a.txt", "notes.md"):
        (root / name).write_text("hello\n")
    for name, target in {
        "link_out": str(outside / "secret"),
        "link_dir": str(outside),
        "link_in": "sub",
        "dangling": str(outside / "new"),
        "chain1": "chain2",
        "chain2": str(outside / "secret"),
        "sub/link_up": "../..",
    }.items():
        (root / name).symlink_to(target)
    os.link(outside / "secret", root / "hard")
    os.mkfifo(root / "fifo")
    return tmp_path


async def use(root: Path, op: str, path: str) -> ToolResult:
    async def allow(_call: ToolCallFacts) -> ToolDecision:
        return ToolDecision("allow", "")

    args = {"path": path} | ({"content": "pwned"} if op == "write" else {})
    ctx = ToolContext("agent:main:main", "main", root)
    tools = ToolRegistry.from_modules(files)
    return await execute_tool_call(tools, ctx, ToolCall("1", op, args), allow)


@pytest.mark.parametrize("case", [c for c in CASES if "race" not in c], ids=lambda c: c["id"])
async def test_path_attack_is_handled_as_case_expects(world: Path, case: dict[str, Any]) -> None:
    path = case["path"]
    if path.startswith(("/ws", "/outside")):
        path = f"{world}{path}"
    elif path.startswith(("@/outside", "file:///outside")):
        path = path.replace("/outside", f"{world}/outside")
    before = {p: p.read_bytes() for p in world.rglob("*") if p.is_file()}
    given = await use(world / "ws", case["op"], path)
    assert given.is_error == (case["expected"] == "deny"), given.text
    assert SECRET not in given.text
    assert "failed by a fault" not in given.text
    if case["expected"] == "deny":
        after = {p: p.read_bytes() for p in world.rglob("*") if p.is_file()}
        assert after == before, "a refused write leaves nothing behind"
