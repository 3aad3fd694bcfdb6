"""Commands in the background, in a program with a scripted model."""

import os
from pathlib import Path

import pytest

from homarus.core.message import ToolCall
from tests.unit.gateway.app_harness import answer, run
from tests.waiting import until

pytestmark = pytest.mark.skipif(os.name != "posix", reason="exec needs a POSIX system")
FULL = {"exec": {"security": "full", "ask": "off"}}


async def test_end_of_a_background_command_is_in_the_next_message(tmp_path: Path) -> None:
    go = tmp_path / "go"
    command = f"while [ ! -e {go} ]; do sleep 0.01; done; echo ready; exit 3"
    call = ToolCall("call-1", "exec", {"command": command, "background": True})
    script = (answer(call), answer("started"), answer("thanks"))
    async with run(tmp_path, *script, config={"tools": FULL}) as it:
        await it.send("go on")
        [job] = it.app.processes().jobs(("main", "agent:main:main"))
        go.touch()
        await until(lambda: it.app.notices.pending("agent:main:main"))
        await it.send("and now?", "run-2")
        text = it.model.requests[-1].messages[-1].text
        expected = f"Exec finished (gateway id=call-1, session={job.id}, code 3)"
        assert text.startswith("System: [") and expected in text and "and now?" in text
        assert "ready" not in text


async def test_program_that_closes_ends_its_background_commands(tmp_path: Path) -> None:
    call = ToolCall("call-1", "exec", {"command": "sleep 1000", "background": True})
    async with run(tmp_path, answer(call), answer("started"), config={"tools": FULL}) as it:
        await it.send("go on")
        [job] = it.app.processes().jobs(("main", "agent:main:main"))
    assert job.result and job.result.is_killed
    assert it.app.notices.pending("agent:main:main") == ()


async def test_process_tool_reads_what_exec_started(tmp_path: Path) -> None:
    start = ToolCall("call-1", "exec", {"command": "echo hi; sleep 1000", "yieldMs": 10})
    listing = ToolCall("call-2", "process", {"action": "list"})
    script = (answer(start), answer(listing), answer("done"))
    async with run(tmp_path, *script, config={"tools": FULL}) as it:
        await it.send("go on")
        [job] = it.app.processes().jobs(("main", "agent:main:main"))
        assert f"{job.id} running" in str(it.model.requests[-1].messages[-1].parts)


async def test_exec_without_the_process_tool_waits_for_the_end(tmp_path: Path) -> None:
    call = ToolCall("call-1", "exec", {"command": "sleep 0.1; echo end", "background": True})
    config = {"tools": FULL | {"deny": ["process"]}}
    async with run(tmp_path, answer(call), answer("done"), config=config) as it:
        await it.send("go on")
        assert "end" in str(it.model.requests[-1].messages[-1].parts)
