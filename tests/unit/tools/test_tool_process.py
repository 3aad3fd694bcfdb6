"""`exec` in the background and `process`: what a model does with a command that goes on."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import ToolError
from homarus.core.message import Text
from homarus.policy.approvals import ApprovalQuestion
from homarus.policy.tool_call import ToolCallFacts
from homarus.testing.approvals import AskingApprovals
from homarus.tools.builtin import process
from homarus.tools.exec.process_table import ProcessTable
from homarus.tools.tool import ToolContext, ToolOutput
from tests.unit.tools.exec_builders import make_exec_tool, make_source_context, run_prepared
from tests.waiting import settle, until

pytestmark = pytest.mark.skipif(os.name != "posix", reason="exec needs a POSIX system")


async def yes(_question: ApprovalQuestion) -> bool:
    return True


class Agent:
    """Calls exec and process as the model of one session does."""

    def __init__(self, root: Path, table: ProcessTable, settings: dict[str, Any]) -> None:
        self.root, self.table = root, table
        config = {"tools": {"exec": settings}}
        self._exec = make_exec_tool(config, lambda: table)
        [self._process] = process.tools(make_source_context(config, lambda: table))

    def context(self, key: str = "agent:main:main") -> ToolContext:
        return ToolContext(key, "main", self.root, call_id="call-7", approvals=AskingApprovals(yes))

    async def exec(self, command: str, **args: Any) -> ToolOutput:
        return await run_prepared(self._exec, self.context(), {"command": command} | args)

    async def start(self, command: str, **args: Any) -> str:
        """Start a command in the background and return its session id."""
        result = await self.exec(command, background=True, **args)
        assert result.details and result.details["status"] == "running"
        return str(result.details["sessionId"])

    async def process(self, action: str, key: str = "agent:main:main", **args: Any) -> ToolOutput:
        return await run_prepared(self._process, self.context(key), {"action": action} | args)

    async def find_facts(self, action: str, **args: Any) -> ToolCallFacts:
        assert self._process.prepare
        values = self._process.parse({"action": action} | args)
        return (await self._process.prepare(self.context(), **values)).facts


@asynccontextmanager
async def agent(root: Path, **settings: Any) -> AsyncIterator[Agent]:
    notices: list[str] = []
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        table = ProcessTable(group, lambda: 5_000, lambda _key, text: notices.append(text))
        yield Agent(root, table, settings)
        table.stop()


def text(result: ToolOutput) -> str:
    return "".join(part.text for part in result.content if isinstance(part, Text))


async def test_exec_background_returns_a_session_at_once(tmp_path: Path) -> None:
    async with agent(tmp_path) as it:
        result = await it.exec("sleep 1000", background=True)
        assert not result.is_error and result.details
        details = dict(result.details)
        assert details.pop("pid") > 0 and "-" in str(details.pop("sessionId"))
        assert details == {
            "status": "running",
            "startedAt": 5_000,
            "cwd": str(tmp_path),
            "tail": "",
        }


async def test_exec_goes_to_the_background_after_yield_ms(tmp_path: Path) -> None:
    async with agent(tmp_path) as it:
        result = await it.exec("sh -c 'echo one; sleep 1000'", yieldMs=50)
        assert result.details and result.details["status"] == "running"
        job = it.table.find(("main", "agent:main:main"), str(result.details["sessionId"]))
        assert job and "process" in text(result)
        await until(lambda: job.tail == "one\n")


async def test_exec_yield_ms_is_clamped_and_has_its_default_from_config(tmp_path: Path) -> None:
    async with agent(tmp_path, backgroundMs=20) as it:
        for given in ({}, {"yieldMs": -5}):
            result = await it.exec("sleep 1000", **given)
            assert result.details and result.details["status"] == "running"
        done = await it.exec("echo hi", yieldMs=10**9)
        assert done.details and done.details["status"] == "completed"


async def test_process_lists_its_sessions_with_name_and_state(tmp_path: Path) -> None:
    async with agent(tmp_path) as it:
        assert "No running" in text(await it.process("list"))
        first = await it.start("sleep 1000")
        second = await it.start("cat")
        await it.process("write", sessionId=second, data="x", eof=True)
        await it.process("poll", sessionId=second, timeout=30_000)
        listed = await it.process("list")
        assert listed.details
        rows = {row["sessionId"]: row for row in listed.details["sessions"]}
        assert rows[first]["status"] == "running" and rows[first]["name"] == "sleep 1000"
        assert (rows[second]["status"], rows[second]["exitCode"]) == ("completed", 0)
        assert first in text(listed) and second in text(listed)


async def test_process_of_another_session_finds_nothing(tmp_path: Path) -> None:
    async with agent(tmp_path) as it:
        session = await it.start("sleep 1000")
        for action in ("poll", "log", "kill", "remove", "submit"):
            with pytest.raises(ToolError, match="no session"):
                await it.process(action, key="agent:main:other", sessionId=session)
        assert "No running" in text(await it.process("list", key="agent:main:other"))


async def test_process_poll_waits_for_the_end(tmp_path: Path) -> None:
    async with agent(tmp_path) as it:
        session = await it.start("sh -c 'read line; echo got $line; exit 4'")
        assert "still running" in text(await it.process("poll", sessionId=session))
        await it.process("write", sessionId=session, data="hello\n")
        ended = await it.process("poll", sessionId=session, timeout=30_000)
        assert text(ended) == "got hello\n\n[The command ended with exit code 4.]"
        assert ended.details and ended.details["status"] == "failed"
        assert (ended.details["exitCode"], ended.details["aggregated"]) == (4, "got hello\n")


async def test_process_log_pages_by_lines(tmp_path: Path) -> None:
    async with agent(tmp_path) as it:
        session = await it.start("seq 1 300")
        await it.process("poll", sessionId=session, timeout=30_000)
        last = text(await it.process("log", sessionId=session))
        assert last.startswith("101\n") and "the last 200 of 300 lines" in last
        assert text(await it.process("log", sessionId=session, offset=2, limit=2)) == "3\n4"
        assert text(await it.process("log", sessionId=session, limit=1)) == "300"
        assert text(await it.process("log", sessionId=session, offset=298)) == "299\n300"
        page = await it.process("log", sessionId=session, offset=900)
        assert text(page) == "(no output)"
        assert page.details and page.details["totalLines"] == 300


async def test_process_keys_reach_a_program_in_a_terminal(tmp_path: Path) -> None:
    async with agent(tmp_path) as it:
        session = await it.start("cat", pty=True)
        job = it.table.find(("main", "agent:main:main"), session)
        assert job
        await it.process("send-keys", sessionId=session, literal="one")
        await it.process("submit", sessionId=session)
        await until(lambda: job.tail.count("one") == 2)  # echoed by the terminal, and by cat
        await it.process("paste", sessionId=session, text="two\n", bracketed=False)
        await until(lambda: job.tail.count("two") == 2)
        await it.process("send-keys", sessionId=session, keys=["C-d"])
        ended = await it.process("poll", sessionId=session, timeout=30_000)
        assert ended.details and ended.details["exitCode"] == 0


async def test_process_interrupt_key_ends_a_command(tmp_path: Path) -> None:
    async with agent(tmp_path) as it:
        session = await it.start("sleep 1000", pty=True)
        while True:  # a key that is sent before the terminal has its owner does nothing
            await it.process("send-keys", sessionId=session, keys=["C-c"])
            ended = await it.process("poll", sessionId=session, timeout=200)
            if ended.details and ended.details["status"] != "running":
                break
        assert ended.details and ended.details["exitCode"] == 130


async def test_process_kill_clear_and_remove(tmp_path: Path) -> None:
    async with agent(tmp_path) as it:
        session = await it.start("sleep 1000")
        with pytest.raises(ToolError, match="still runs"):
            await it.process("clear", sessionId=session)
        killed = await it.process("kill", sessionId=session)
        assert killed.details and killed.details["status"] == "failed"
        with pytest.raises(ToolError, match="ended already"):
            await it.process("kill", sessionId=session)
        await it.process("clear", sessionId=session)
        other = await it.start("sleep 1000")
        await it.process("remove", sessionId=other)
        assert "No running" in text(await it.process("list"))


@pytest.mark.parametrize(
    "args",
    [
        {"action": "poll"},
        {"action": "write", "sessionId": "x-y"},
        {"action": "teleport"},
        {"action": "log", "sessionId": "x", "offset": -1},
    ],
)
async def test_process_invalid_call_is_refused(tmp_path: Path, args: dict[str, Any]) -> None:
    async with agent(tmp_path) as it:
        with pytest.raises(ToolError):
            await it.process(**args)


async def test_process_input_counts_as_a_command_for_the_policy(tmp_path: Path) -> None:
    async with agent(tmp_path) as it:
        session = await it.start("cat")
        await settle()
        inputs: dict[str, dict[str, Any]] = {
            "write": {"data": "x"},
            "send-keys": {"keys": ["Enter"]},
            "submit": {},
            "paste": {"text": "x"},
        }
        for action, args in inputs.items():
            facts = await it.find_facts(action, sessionId=session, **args)
            assert facts.effects == {"exec"} and facts.exec and facts.exec.is_satisfied
        for action in ("poll", "log", "kill", "remove", "clear"):
            facts = await it.find_facts(action, sessionId=session)
            assert not facts.effects and facts.exec is None


async def test_process_input_of_a_command_without_a_question_is_asked(tmp_path: Path) -> None:
    async with agent(tmp_path) as it:
        sessions = [
            await it.start("wc -l"),  # needs no approval
            await it.start("cat", elevated=True),  # as /bash starts what the owner types
        ]
        for session in sessions:
            facts = await it.find_facts("write", sessionId=session, data="x")
            assert facts.exec and not facts.exec.is_satisfied
