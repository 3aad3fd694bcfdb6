"""A command in a sandbox swaps files for links while file tools work there: none leads out."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import ToolError
from homarus.policy.workspace_access import FULL_ACCESS
from homarus.tools.builtin.files import edit, read, write
from homarus.tools.builtin.search import find, grep, ls
from homarus.tools.exec.run import RunningCommand
from homarus.tools.sandbox.bubblewrap import BubblewrapSandbox
from homarus.tools.sandbox.session_sandbox import SessionSandbox
from homarus.tools.tool import ToolContext, ToolOutput
from tests.unit.tools.bwrap_builders import make_spec, needs_bwrap, open_sandbox_plan
from tests.unit.tools.sandbox_builders import GROUP, SandboxHarness
from tests.waiting import until

pytestmark = [pytest.mark.slow, needs_bwrap]
CANARY = "TOPSECRET"
ROUNDS = 150
# Inside: a folder and a file become links to the secret and back, and hard links are tried.
ATTACK = """
swap() {{ ln -s "$1" .new; mv -T .new "$2"; }}
echo inside > plain
while :; do
  mkdir -p swapped && echo inside > swapped/secret
  swap {outside}/secret plain; ln {outside}/secret twin; ln plain twin
  rm -rf swapped; swap {outside} swapped
  rm -f swapped twin; echo inside > .new; mv -T .new plain; ln plain twin
done 2> /dev/null
"""


async def _call(tool: Any, ctx: ToolContext, **args: Any) -> str:
    made = await tool.run(ctx, **args)
    return repr(made.content) if isinstance(made, ToolOutput) else str(made)


def _attempts(ctx: ToolContext) -> list[Callable[[], Coroutine[Any, Any, str]]]:
    return [
        lambda: _call(read, ctx, path="plain"),
        lambda: _call(read, ctx, path="/workspace/twin"),
        lambda: _call(read, ctx, path="swapped/secret"),
        lambda: _call(ls, ctx, path="swapped"),
        lambda: _call(find, ctx, pattern="*"),
        lambda: _call(grep, ctx, pattern=CANARY, path="/workspace"),
        lambda: _call(write, ctx, path="swapped/new", content="from the tool"),
        lambda: _call(write, ctx, path="plain", content="from the tool"),
        lambda: _call(edit, ctx, path="plain", old_text=CANARY, new_text="changed"),
    ]


def _follow(path: Path) -> bool:
    """Return whether a program that follows links reads the secret."""
    with suppress(OSError):
        return CANARY in path.read_text()
    return False


async def _race(sandbox: SessionSandbox) -> None:
    """Call every tool many times; each has to succeed sometimes, `edit` never."""
    ctx = ToolContext(
        GROUP, "main", sandbox.agent_workspace, run_access=FULL_ACCESS, sandbox=sandbox
    )
    for number, attempt in enumerate(attempts := _attempts(ctx)):
        good = tries = 0
        # Where the machine is busy, all tries may fall between two exchanges.
        while tries < ROUNDS or not (good or number == len(attempts) - 1):
            tries += 1
            try:
                found = await attempt()
            except ToolError as exc:
                found = f"{exc}"
            else:
                good += 1
            assert f"{CANARY}!" not in found
            await asyncio.sleep(0)
        assert bool(good) == (number < len(attempts) - 1)


async def test_links_swapped_by_a_sandboxed_command_lead_nowhere(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text(f"{CANARY}!")
    session = SandboxHarness(tmp_path).open()
    session.make_workspace()
    backend = BubblewrapSandbox(tmp_path / "scratch")
    spec = replace(make_spec(tmp_path, "race"), workspace=session.workspace)
    await backend.prepare(spec)
    with open_sandbox_plan(backend, spec, ATTACK.format(outside=outside)) as plan:
        async with asyncio.TaskGroup() as group:
            attacker = RunningCommand(plan, group)
            try:
                for path in ("plain", "swapped/secret"):  # the links are there, and lead out
                    await until(partial(_follow, session.workspace / path))
                await _race(session)
            finally:
                await attacker.end()
    assert [each.name for each in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_text() == f"{CANARY}!"
    assert (outside / "secret").stat().st_nlink == 1
