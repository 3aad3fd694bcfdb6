"""The examples of tools in the reference: each is run, and its result is compared."""

import asyncio
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from docs.generate import EXAMPLES
from homarus.core.message import ToolCall
from homarus.policy.decision import decide_tool_call
from homarus.policy.tool_call import ToolCallFacts, ToolDecision
from homarus.tools.catalog import builtin_tools
from homarus.tools.execute import execute_tool_call

GUARD_S = 60.0
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.json"))
# Stages that need more than the dependencies of the tests have a module in tests/peers.
PEER_STAGES = frozenset({"browser"})


def read_example(name: str) -> dict[str, Any]:
    """Return the example of a tool."""
    example: dict[str, Any] = json.loads((EXAMPLES / f"{name}.json").read_text(encoding="utf-8"))
    return example


def test_tool_examples_exist_for_every_tool() -> None:
    assert [tool.name for tool in builtin_tools()] == NAMES


@pytest.mark.parametrize(
    "name", [name for name in NAMES if read_example(name)["stage"] not in PEER_STAGES]
)
async def test_tool_example_has_the_documented_result(name: str, tmp_path: Path) -> None:
    await run_example(name, tmp_path)


async def run_example(name: str, folder: Path) -> None:
    """Call a tool as its example does, and compare the result."""
    example, workspace = read_example(name), folder / "workspace"
    workspace.mkdir()
    for path, text in example.get("files", {}).items():
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).write_text(text, encoding="utf-8")
    stage = import_module(f"tests.docs.tool_stages.{example['stage']}")
    async with asyncio.timeout(GUARD_S), stage.open_stage(workspace) as (tools, context, values):

        async def decide(facts: ToolCallFacts) -> ToolDecision:
            return decide_tool_call(facts, context.caller)

        call = ToolCall("call_1", name, fill(example["args"], values))
        result = await execute_tool_call(tools, context, call, decide)
    assert not result.is_error, result.text
    assert fill(example["result"], values) in result.text


def fill(value: Any, values: dict[str, str]) -> Any:
    """Return a value of an example with the names in braces replaced."""
    if isinstance(value, str):
        for name, text in values.items():
            value = value.replace(f"{{{name}}}", text)
        return value
    if isinstance(value, dict):
        return {key: fill(each, values) for key, each in value.items()}
    return [fill(each, values) for each in value] if isinstance(value, list) else value
