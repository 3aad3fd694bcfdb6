"""Commands of a session with a sandbox: planned, asked about and run inside."""

import asyncio
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import SandboxError, ToolDeniedError, ToolError
from homarus.policy.decision import decide_tool_call
from homarus.policy.exec_settings import ExecSettings
from homarus.policy.tool_call import CallerFacts, TaintSource
from homarus.tools.builtin.exec import exec_tool
from homarus.tools.builtin.process import tools as process_tools
from homarus.tools.exec.process_table import ProcessTable
from homarus.tools.sandbox.folders import SandboxFolders, SandboxRecord
from homarus.tools.sources import ToolSourceContext
from homarus.tools.tool import PreparedCall, ToolContext, ToolOutput
from tests.unit.tools.sandbox_builders import GROUP, BrokenSandbox, FakeSandbox, SandboxHarness

CALLER = CallerFacts("main", GROUP, is_sandboxed=True)


def source(harness: SandboxHarness, table: ProcessTable | None = None) -> ToolSourceContext:
    config = harness.config
    get = (lambda: table) if table else None
    return ToolSourceContext("main", config, lambda _key: config.tools, get_processes=get)


def context(harness: SandboxHarness, caller: CallerFacts = CALLER) -> ToolContext:
    return ToolContext(
        GROUP,
        "main",
        harness.workspace,
        get_caller=lambda: caller,
        sandbox=harness.open(),
    )


async def prepare(
    harness: SandboxHarness,
    args: Mapping[str, Any],
    *,
    caller: CallerFacts = CALLER,
    table: ProcessTable | None = None,
) -> PreparedCall:
    made = exec_tool(source(harness, table)).prepare
    assert made
    return await made(context(harness, caller), **args)


async def run(harness: SandboxHarness, args: Mapping[str, Any], **given: Any) -> ToolOutput:
    prepared = await prepare(harness, args, **given)
    try:
        output = await prepared.run()
    finally:
        prepared.close()
    assert isinstance(output, ToolOutput)
    return output


@pytest.mark.parametrize(("access", "action"), [("none", "allow"), ("ro", "allow"), ("rw", "ask")])
async def test_tainted_command_that_can_write_prompt_files_is_asked_about(
    tmp_path: Path, access: str, action: str
) -> None:
    harness = SandboxHarness(tmp_path, {"workspaceAccess": access})
    prepared = await prepare(harness, {"command": "true"})
    prepared.close()
    assert decide_tool_call(prepared.facts, CALLER).action == "allow"
    tainted = replace(CALLER, taint=(TaintSource("web"),))
    assert decide_tool_call(prepared.facts, tainted).action == action


async def test_sandboxed_command_runs_verbatim_and_shows_inner_paths(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path)
    harness.open().make_workspace()
    (harness.open().workspace / "src").mkdir()
    text = 'echo "$ARG_X" > made; cat made'
    args = {"command": text, "workdir": "/workspace/src", "env": {"ARG_X": "5"}}
    output = await run(harness, args)
    command = harness.backend.commands[-1]
    assert (command.text, command.workdir, command.env) == (text, "/workspace/src", {"ARG_X": "5"})
    assert output.details and output.details["cwd"] == "/workspace/src"
    assert output.details["aggregated"] == "5" and list(harness.workspace.iterdir()) == []
    assert not harness.registry.entries()[0].is_live


async def test_sandboxed_command_is_allowed_without_a_question(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path, backend=FakeSandbox("L2"))
    prepared = await prepare(harness, {"command": "rm -rf x", "security": "allowlist"})
    assert prepared.facts.sandbox_level == "L2"
    assert decide_tool_call(prepared.facts, CALLER).action == "allow"
    asking = replace(CALLER, exec=ExecSettings(ask="always"))
    assert decide_tool_call(prepared.facts, asking).action == "ask"
    question = prepared.question
    assert "in the sandbox of the conversation (level L2)" in question.detail
    assert "runs it verbatim" in question.detail and "folder: /workspace" in question.detail
    assert question.wire["host"] == "sandbox" and not question.allow_always
    prepared.close()
    assert not harness.registry.entries()[0].is_live


async def test_sandboxed_command_of_a_low_level_is_asked_about(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path, {"level": "L1"}, backend=FakeSandbox("L1"))
    prepared = await prepare(harness, {"command": "rm -rf x"})
    assert decide_tool_call(prepared.facts, CALLER).action == "ask"
    prepared.close()


async def test_digest_of_an_equal_command_in_the_sandbox_is_equal(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path)
    digests = list[str]()
    for text in ("echo 1", "echo 1", "echo 2"):
        prepared = await prepare(harness, {"command": text})
        digests.append(prepared.question.digest)
        prepared.close()
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ({"env": {"PATH": "/workspace"}}, ToolDeniedError),
        ({"env": {"LD_PRELOAD": "x.so"}}, ToolDeniedError),
        ({"workdir": "/etc"}, ToolDeniedError),
        ({"workdir": "missing"}, ToolError),
        ({"host": "gateway"}, ToolDeniedError),
        ({"host": "node"}, ToolDeniedError),
        ({"elevated": True}, ToolDeniedError),
    ],
)
async def test_sandboxed_call_that_is_refused_starts_nothing(
    tmp_path: Path, args: dict[str, Any], error: type[ToolError]
) -> None:
    harness = SandboxHarness(tmp_path)
    with pytest.raises(error):
        await prepare(harness, {"command": "touch x", **args})
    assert harness.backend.commands == []


async def test_sandbox_that_cannot_be_had_runs_nothing(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path, backend=BrokenSandbox())
    with pytest.raises(SandboxError, match="bwrap is not installed") as caught:
        await prepare(harness, {"command": "touch canary"})
    assert caught.value.fix == "apt-get install bubblewrap"
    made = exec_tool(source(harness)).prepare
    assert made
    without = replace(context(harness), sandbox=None)
    with pytest.raises(SandboxError, match="which is not there"):
        await made(without, command="touch canary")
    assert list(tmp_path.rglob("canary")) == []


@pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap exists on Linux only")
async def test_machine_without_bwrap_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homarus.tools.sandbox.bubblewrap.shutil.which", lambda *_, **__: None)
    harness = SandboxHarness(tmp_path)
    del harness.registry._backends["bubblewrap"]  # the real one is loaded
    with pytest.raises(SandboxError, match="bubblewrap is not installed") as caught:
        await prepare(harness, {"command": "touch canary"})
    assert "bubblewrap" in caught.value.fix and list(tmp_path.rglob("canary")) == []


async def test_elevated_command_leaves_the_sandbox(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path)
    caller = replace(CALLER, is_elevated_allowed=True, elevated="on")
    args = {"command": "touch outside"}
    prepared = await prepare(harness, args, caller=caller)
    assert prepared.facts.sandbox_level == ""
    assert decide_tool_call(prepared.facts, caller).action == "ask"
    await prepared.run()
    prepared.close()
    assert (harness.workspace / "outside").exists() and harness.backend.commands == []
    full = replace(caller, elevated="full")
    prepared = await prepare(harness, args, caller=full)
    assert decide_tool_call(prepared.facts, full).action == "allow"
    prepared.close()


async def test_background_command_holds_its_sandbox_and_takes_input(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path)
    async with asyncio.TaskGroup() as group:
        table = ProcessTable(group, lambda: 0, lambda _key, _text: None)
        args = {"command": "read line; echo got $line", "background": True}
        output = await run(harness, args, table=table)
        assert output.details and output.details["cwd"] == "/workspace"
        assert harness.registry.entries()[0].is_live
        assert await harness.registry.prune(harness.now_ms * 2) == []
        process = process_tools(source(harness, table))[0].prepare
        assert process
        job = str(output.details["sessionId"])
        sent = await process(context(harness), action="write", session_id=job, data="it\n")
        assert sent.facts.sandbox_level == "L3"
        assert decide_tool_call(sent.facts, CALLER).action == "allow"
        await sent.run()
        polled = await process(context(harness), action="poll", session_id=job, timeout_ms=20_000)
        assert "got it" in str(await polled.run())
    assert not harness.registry.entries()[0].is_live


async def test_exec_makes_no_folders_of_a_sandbox_in_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, threads = SandboxHarness(tmp_path), list[threading.Thread]()
    save = SandboxFolders.save

    def record_thread(folders: SandboxFolders, record: SandboxRecord) -> None:
        threads.append(threading.current_thread())
        save(folders, record)

    monkeypatch.setattr(SandboxFolders, "save", record_thread)
    prepared = await prepare(harness, {"command": "true", "workdir": "."})
    prepared.close()
    assert threads and threads[0] is not threading.main_thread()
