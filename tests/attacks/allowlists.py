"""`exec_allowlist`: commands that must not run by what an allowlist says, and some that must.

A plan is made and evaluated as for a call of the tool. What is allowed is run, too.
"""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from homarus.core.message import Json
from homarus.tools.exec.allowlist import AllowEntry, read_entry
from homarus.tools.exec.evaluate import evaluate_plan
from homarus.tools.exec.plan import ExecPlan, make_plan
from homarus.tools.exec.run import run_plan
from tests.attacks.cases import Case, Judge
from tests.attacks.exec_workspace import SECRET, TOKEN, build_workspace

_PATH = os.environ.get("PATH", "/usr/bin:/bin")


@contextmanager
def world() -> Iterator[Judge]:
    """Build the workspace; a case that may run is run in it."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve()
        build_workspace(root)
        yield lambda case: asyncio.run(_judge(case, root))


async def _judge(case: Case, root: Path) -> str:
    plan = await _plan(_fill(case["command"], root), root)
    try:
        entries = [_entry(each, root) for each in case["allowlist"]]
        enabled = case["safe_bins"]
        evaluation = evaluate_plan(plan, entries, safe_bins=enabled)
        if not evaluation.is_satisfied:
            return "" if "miss" in case["acceptable"] else f"asks: {evaluation.reason}"
        if "allow" not in case["acceptable"]:
            return f"runs without a question: {evaluation.matches}"
        return await _harm(plan, root)
    finally:
        plan.close()


async def _plan(command: str, root: Path) -> ExecPlan:
    fd = os.open(root, os.O_RDONLY)
    try:
        return await make_plan(
            command,
            folder=str(root),
            folder_fd=fd,
            workspace=root,
            env={"PATH": _PATH, "HOME": str(root), "SECRET_TOKEN": TOKEN},
            requested_env={},
            timeout_s=20,
        )
    finally:
        os.close(fd)


def _entry(entry: Json, root: Path) -> AllowEntry:
    if isinstance(entry, str):
        found = read_entry(_fill(entry, root))
    else:
        found = read_entry({key: _fill(value, root) for key, value in entry.items()})
    assert found is not None
    return found


def _fill(text: str, root: Path) -> str:
    return text.replace("{ws}", str(root))


async def _harm(plan: ExecPlan, root: Path) -> str:
    result = await run_plan(plan, show=lambda _text: None)
    if (root / "pwned").exists():
        (root / "pwned").unlink()
        return "ran and made the file"
    return "printed a secret" if SECRET in result.output or TOKEN in result.output else ""
