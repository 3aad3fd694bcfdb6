"""`exec`: asked for, run verbatim, bounded, and nothing is left behind.

A fifo that the command holds open for writing tells when its last process is gone: only then a
reader sees the end.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import ToolDeniedError, ToolError
from homarus.core.message import Text, ToolCall
from homarus.policy.approvals import ApprovalQuestion
from homarus.policy.tool_call import ToolCallFacts, ToolDecision
from homarus.testing.approvals import AskApproval, AskingApprovals, deny_approval
from homarus.tools.execute import execute_tool_call
from homarus.tools.registry import ToolRegistry
from homarus.tools.tool import ToolContext, ToolOutput
from tests.unit.tools.exec_builders import make_exec_tool, run_prepared

execute = make_exec_tool()

pytestmark = pytest.mark.skipif(os.name != "posix", reason="exec needs a POSIX system")
HAS_SETSID = sys.platform == "linux" and shutil.which("setsid") is not None
# In the group and out of it, in the foreground and not, deaf to polite signals.
FAMILY = "trap '' TERM HUP INT; sleep 1000 & (sleep 1000; :) & " + (
    "setsid sh -c 'setsid sleep 1000 & sleep 1000' & " if HAS_SETSID else ""
)


async def yes(_question: ApprovalQuestion) -> bool:
    return True


def context(
    root: Path, ask: AskApproval = yes, progress: Callable[[str], None] = lambda _text: None
) -> ToolContext:
    return ToolContext("agent:main:main", "main", root, progress, approvals=AskingApprovals(ask))


async def run(ctx: ToolContext, **args: Any) -> ToolOutput:
    return await run_prepared(execute, ctx, args)


async def use(root: Path, command: str, ask: AskApproval = yes, **args: Any) -> ToolOutput:
    return await run(context(root, ask), command=command, **args)


def text(result: ToolOutput) -> str:
    return "".join(part.text for part in result.content if isinstance(part, Text))


def open_fds() -> int:
    return len(list(Path("/dev/fd").iterdir()))


async def test_exec_command_result_matches_openclaw(tmp_path: Path) -> None:
    done = await use(tmp_path, "echo bench-ok")
    assert text(done) == "bench-ok"
    assert not done.is_error
    assert done.details and done.details.pop("durationMs") >= 0  # type: ignore[attr-defined]  # a dict
    assert done.details == {
        "status": "completed",
        "exitCode": 0,
        "aggregated": "bench-ok",
        "cwd": str(tmp_path),
    }


async def test_exec_failure_gives_exit_code_and_output(tmp_path: Path) -> None:
    done = await use(tmp_path, "echo out; echo err >&2; exit 3")
    assert text(done) == "out\nerr\n\n[The command ended with exit code 3.]"
    assert done.is_error and done.details
    assert (done.details["status"], done.details["exitCode"]) == ("failed", 3)
    killed = await use(tmp_path, "kill -9 $$")
    assert killed.details and killed.details["exitCode"] == 137
    assert "127" in text(await use(tmp_path, "no-such-program-here"))


async def test_exec_without_approver_is_denied(tmp_path: Path) -> None:
    with pytest.raises(ToolDeniedError, match="exec denied"):
        await use(tmp_path, "touch ran", deny_approval)
    assert not list(tmp_path.iterdir())


async def test_exec_asks_for_every_command_with_exact_text(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    asked: list[ApprovalQuestion] = []

    async def ask(question: ApprovalQuestion) -> bool:
        asked.append(question)
        return len(asked) < 2

    await use(tmp_path, "touch one\u200b", ask, workdir="sub", env={"ARG_A": "b"}, timeout=7)
    assert (tmp_path / "sub" / "one\u200b").exists(), "what runs is the text itself"
    assert r"    touch one\u{200b}" in asked[0].detail
    assert f"folder: {tmp_path}/sub" in asked[0].detail
    assert "variable: ARG_A=b" in asked[0].detail
    assert "at most 7 s" in asked[0].detail
    with pytest.raises(ToolDeniedError):
        await use(tmp_path, "touch one\u200b", ask)
    assert len(asked) == 2


@pytest.mark.parametrize(
    "args",
    [
        {"command": ""},
        {"command": "  \n"},
        {"command": "echo \0"},
        {"command": "echo \ud800"},
        {"command": "#" * 20_001},
        {"command": "ls", "workdir": ".."},
        {"command": "ls", "workdir": "/"},
        {"command": "ls", "workdir": "out"},
        {"command": "ls", "workdir": "file"},
        {"command": "ls", "workdir": "missing"},
        {"command": "ls", "env": {"PATH": "/evil"}},
        {"command": "ls", "timeout": 0},
        {"command": "ls", "timeout": 1e9},
        {"command": "ls", "yieldMs": "soon"},
        {"command": "ls", "host": "sandbox"},
        {"command": "ls", "host": "node"},
        {"command": "ls", "node": "laptop"},
    ],
)
async def test_exec_invalid_request_is_refused_before_asking(
    tmp_path: Path, args: dict[str, Any]
) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "out").symlink_to(tmp_path)
    (tmp_path / "ws" / "file").touch()

    async def ask(_question: ApprovalQuestion) -> bool:
        raise AssertionError("nobody should be asked")

    with pytest.raises(ToolError):
        await run(context(tmp_path / "ws", ask), **args)


async def test_exec_directory_swapped_while_asking_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "other").mkdir()

    async def ask(_question: ApprovalQuestion) -> bool:
        (tmp_path / "sub").rename(tmp_path / "old")
        (tmp_path / "sub").symlink_to("other")
        return True

    with pytest.raises(ToolDeniedError, match="not the folder that was approved"):
        await use(tmp_path, "touch ran", ask, workdir="sub")
    assert not list(tmp_path.rglob("ran"))


async def test_exec_command_gets_no_keys_input_or_open_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("BASH_ENV", "/nowhere")
    assert "sk-secret" not in text(await use(tmp_path, "env; cat /proc/$PPID/environ"))
    assert text(await use(tmp_path, "cat; echo done")) == "done"
    assert (
        text(await use(tmp_path, "echo $ARG_A; pwd", env={"ARG_A": "x y"}))
        == f"x y\n{tmp_path.resolve()}"
    )
    held = text(await use(tmp_path, "for fd in /dev/fd/*; do echo ${fd##*/}; done")).split()
    assert set(held) <= {"0", "1", "2", "3"}, "3 is the folder being listed"


async def test_exec_broken_pipe_ends_as_in_shell(tmp_path: Path) -> None:
    assert text(await use(tmp_path, "yes | head -1")) == "y"


async def test_exec_large_or_binary_output_is_bounded(tmp_path: Path) -> None:
    done = await use(
        tmp_path, "echo first; head -c 20000000 /dev/zero | tr '\\0' x; echo; echo last"
    )
    assert done.details
    kept = str(done.details["aggregated"])
    assert kept.startswith("first\nxxx") and kept.endswith("xxx\nlast")
    assert "left out" in kept and len(kept) < 200_100
    assert text(await use(tmp_path, r"printf 'a\377b\303'")) == "a\ufffdb\ufffd"
    assert text(await use(tmp_path, "true")) == "(no output)"


def test_exec_output_is_shown_while_running(tmp_path: Path) -> None:
    shown: list[str] = []

    def progress(said: str) -> None:
        shown.append(said)
        (tmp_path / "go").touch()

    command = "echo one; while [ ! -e go ]; do sleep 0.01; done; echo two"
    asyncio.run(run(context(tmp_path, progress=progress), command=command))
    assert "".join(shown) == "one\ntwo\n" and len(shown) == 2


async def test_exec_timeout_terminates_before_killing(tmp_path: Path) -> None:
    command = "trap 'echo bye; exit 5' TERM; echo hi; sleep 1000 & wait"
    for timeout in (1, 5, 30):  # a busy machine may start nothing in the first one
        done = await use(tmp_path, command, timeout=timeout)
        if text(done).startswith("hi"):
            break
    ended = f"[The command was ended: it was not done after {timeout} s.]"
    assert text(done) == f"hi\nbye\n\n{ended}"
    assert done.details and done.is_error
    assert (done.details["status"], done.details["exitCode"]) == ("failed", 5)


async def test_exec_default_timeout_comes_from_config(tmp_path: Path) -> None:
    made = make_exec_tool({"tools": {"exec": {"timeoutSec": 1}}})
    done = await run_prepared(made, context(tmp_path), {"command": "exec sleep 1000"})
    assert "not done after 1 s" in text(done)


class Witness:
    """Reads a fifo to its end: when every process that holds it is gone."""

    def __init__(self, root: Path) -> None:
        self.path = root / "witness"
        os.mkfifo(self.path)
        self.hold = f"exec 9>{self.path}; echo here >&9; {FAMILY}"

    async def wait_until_started(self) -> None:
        self._file = await asyncio.to_thread(self.path.open, "rb")
        assert await asyncio.to_thread(self._file.readline) == b"here\n"

    async def wait_until_all_are_gone(self) -> None:
        async with asyncio.timeout(20):
            assert await asyncio.to_thread(self._file.read) == b""
        self._file.close()


async def gone_after(
    root: Path, rest: str, meddle: Callable[[asyncio.Task[ToolOutput]], object], **args: Any
) -> None:
    """Start a family of processes, meddle, and see that all of them end."""

    before = open_fds()
    witness = Witness(root)
    async with asyncio.TaskGroup() as tasks:
        work = tasks.create_task(run(context(root), command=witness.hold + rest, **args))
        await witness.wait_until_started()
        meddle(work)
        await witness.wait_until_all_are_gone()
    assert open_fds() == before


async def test_exec_cancelled_ends_process_tree(tmp_path: Path) -> None:
    await gone_after(tmp_path, "wait; sleep 1000", lambda work: work.cancel())


async def test_exec_finished_command_leaves_no_process(tmp_path: Path) -> None:
    await gone_after(tmp_path, "echo done", lambda work: None)


async def test_exec_timeout_kills_process_ignoring_sigterm(tmp_path: Path) -> None:
    await gone_after(tmp_path, "wait; sleep 1000", lambda work: None, timeout=5)


async def test_exec_command_killing_its_supervisor_is_ended(tmp_path: Path) -> None:
    deaf_family_in_the_group = "kill -9 $PPID; sleep 1000"
    witness = Witness(tmp_path)
    command = f"exec 9>{witness.path}; echo here >&9; sleep 1000 & {deaf_family_in_the_group}"
    async with asyncio.TaskGroup() as tasks:
        work = tasks.create_task(run(context(tmp_path), command=command))
        await witness.wait_until_started()
        await witness.wait_until_all_are_gone()
    assert "is not known" in text(work.result())


async def test_exec_cancelled_before_start_does_not_run(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as tasks:
        work = tasks.create_task(run(context(tmp_path), command="touch ran"))
        # One step: asked, started, and not yet anything more.
        await asyncio.wait([work], timeout=0)
        work.cancel()
    assert not (tmp_path / "ran").exists()


KILLED = """
import asyncio, os, sys
from homarus.tools.exec.plan import make_plan
from homarus.tools.exec.run import run_plan
async def main():
    plan = await make_plan(sys.argv[2], folder=sys.argv[1],
                           folder_fd=os.open(sys.argv[1], os.O_RDONLY), workspace=sys.argv[1],
                           env={"PATH": os.environ["PATH"]}, requested_env={}, timeout_s=1000)
    await run_plan(plan)
asyncio.run(main())
"""


async def test_exec_process_tree_dies_with_killed_gateway(tmp_path: Path) -> None:
    witness = Witness(tmp_path)
    words = [sys.executable, "-c", KILLED, str(tmp_path), f"{witness.hold}wait; sleep 1000"]
    gateway = await asyncio.create_subprocess_exec(*words, stderr=subprocess.DEVNULL)
    await witness.wait_until_started()
    gateway.send_signal(signal.SIGKILL)
    await witness.wait_until_all_are_gone()
    await gateway.wait()


async def test_exec_parallel_commands_do_not_mix(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as tasks:
        works = [
            tasks.create_task(run(context(tmp_path), command=f"echo {n}; echo {n} >&2"))
            for n in range(8)
        ]
    result = [text(work.result()) for work in works]
    assert result == [f"{n}\n{n}" for n in range(8)]


def test_exec_by_alias_is_judged_and_run_as_exec(tmp_path: Path) -> None:
    judged: list[str] = []

    async def judge(asked: ToolCallFacts) -> ToolDecision:
        judged.append(asked.tool.name)
        return ToolDecision("ask", "exec asks first")

    asked = ToolCall("1", "bash", {"command": "echo hi"})
    back = asyncio.run(execute_tool_call(ToolRegistry([execute]), context(tmp_path), asked, judge))
    assert (judged, back.text, back.is_error, back.name) == (["exec"], "hi", False, "bash")
    json.dumps(dict(back.details or {}))
    denied = asyncio.run(
        execute_tool_call(ToolRegistry([execute]), context(tmp_path, deny_approval), asked, judge)
    )
    assert denied.is_error and "did not get it" in denied.text
