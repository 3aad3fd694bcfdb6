"""`path_traversal`: injected paths, in tool calls of a model."""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from homarus.core.errors import ToolError
from homarus.core.message import ToolCall, ToolResult
from homarus.memory.agent_memory import AgentMemory
from homarus.memory.spec import MemorySpec
from homarus.memory.tools import memory_tools
from homarus.policy.tool_call import ToolCallFacts, ToolDecision
from homarus.tools.builtin import files
from homarus.tools.execute import execute_tool_call
from homarus.tools.registry import ToolRegistry
from homarus.tools.rooted_fs import RootedFs
from homarus.tools.tool import ToolContext
from tests.attacks.cases import Case, Judge, NotRunError
from tests.attacks.races import swapped_files

SECRET = "TOPSECRET"
RACED_READS, RACED_WRITES = 10_000, 1_000
LINKS = {
    "link_out": "{out}/secret",
    "link_dir": "{out}",
    "link_in": "sub",
    "dangling": "{out}/new",
    "chain1": "chain2",
    "chain2": "{out}/secret",
    "sub/link_up": "../..",
}


@contextmanager
def world() -> Iterator[Judge]:
    """Create the `fixture` of a case, with a temporary folder as `/`."""

    def judge(case: Case) -> str:
        with tempfile.TemporaryDirectory() as folder:
            return _judge(_build(Path(folder)), case)

    yield judge


def _build(base: Path) -> Path:
    outside, root = base / "outside", base / "ws"
    (root / "sub").mkdir(parents=True)
    for path in (outside / "secret", base / "ws-evil" / "x", base / ".openclaw" / "x.json"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(SECRET)
    for name in ("a.txt", "notes.md"):
        (root / name).write_text("hello\n")
    for name, target in LINKS.items():
        (root / name).symlink_to(target.format(out=outside))
    os.link(outside / "secret", root / "hard")
    os.mkfifo(root / "fifo")
    _build_notes(root, outside)
    return base


def _build_notes(root: Path, outside: Path) -> None:
    """Return the same names in the memory folder, and names that look like notes."""
    notes = root / "memory"
    notes.mkdir()
    (outside / "x.md").write_text(SECRET)
    (root / "x.md").write_text(SECRET)
    (notes / "notes.md").write_text("hello\n")
    for folder in (root, notes):
        (folder / "notes.txt").write_text(SECRET)
        (folder / "link.md").symlink_to(outside / "x.md")


def _judge(base: Path, case: Case) -> str:
    if case["op"] == "memory_get":
        return _judge_note(base, case)
    if case["op"] not in {"read", "write"}:
        raise NotRunError(f"no tool does {case['op']}")
    if "race" in case:
        return _judge_race(base, case["op"])
    path = str(case["path"])
    if path.startswith(("/ws", "/outside", "@/outside", "file:///outside")):
        at = path.index("/ws" if path.startswith("/ws") else "/outside")
        path = f"{path[:at]}{base}{path[at:]}"
    before = _files(base)
    given = _use(base / "ws", case["op"], path)
    if SECRET in given.text:
        return "the secret was read"
    if given.is_error != (case["expected"] == "deny"):
        return f"answered {given.text[:100]!r}"
    if given.is_error and _files(base) != before:
        return "refused, and something was written"
    return ""


def _judge_race(base: Path, op: str) -> str:
    """Open a file 10,000 times, or write it, while its folder is swapped for a link outside."""
    outside, beneath = base / "outside", RootedFs(base / "ws")
    good = 0
    with swapped_files(base / "ws", outside):
        for _ in range(RACED_READS if op == "read" else RACED_WRITES):
            try:
                if op == "write":
                    beneath.write_atomic("swapped/secret", b"pwned")
                else:
                    with beneath.open_read("swapped/secret") as opened:
                        if SECRET.encode() in opened.file.read():
                            return "the secret was read"
            except ToolError:
                continue
            good += 1
    if not good:
        return "no attempt succeeded: nothing was raced"
    same = (outside / "secret").read_text() == SECRET
    return "" if same else "the file outside was written"


def _judge_note(base: Path, case: Case) -> str:
    """Run the case as it is, and in the memory folder."""
    for path in (case["path"], f"memory/{case['path']}"):
        given = [asyncio.run(_get(base, path)) for _ in range(2)]
        if any(SECRET in each.text for each in given):
            return f"the secret was read at {path!r}"
        refused = [each.is_error for each in given]
        if refused not in ([True, True], [False, False]):
            return f"{path!r} is refused now and then"
        if case["expected"] == "deny" and not refused[0]:
            return f"{path!r} answered {given[0].text[:100]!r}"
    given_own = asyncio.run(_get(base, "memory/notes.md"))
    return "" if "hello" in given_own.text else "a note of its own was not read"


async def _get(base: Path, path: str) -> ToolResult:
    root, state = base / "ws", base / "state"
    memory = AgentMemory(MemorySpec("main", root, state / "m.sqlite", state, state, state))
    ctx = ToolContext("agent:main:main", "main", root)
    try:
        asked = ToolCall("1", "memory_get", {"path": path})
        return await execute_tool_call(
            ToolRegistry(memory_tools(lambda: memory)), ctx, asked, _allow
        )
    finally:
        await memory.close()


async def _allow(_call: ToolCallFacts) -> ToolDecision:
    return ToolDecision("allow", "")


def _files(base: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in base.rglob("*") if p.is_file()}


def _use(root: Path, op: str, path: str) -> ToolResult:
    args = {"path": path} | ({"content": "pwned"} if op == "write" else {})
    ctx = ToolContext("agent:main:main", "main", root)
    tools = ToolRegistry.from_modules(files)
    return asyncio.run(execute_tool_call(tools, ctx, ToolCall("1", op, args), _allow))
