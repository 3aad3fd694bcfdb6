"""`homarus subagents` without a gateway: the stored state is read and changed."""

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from homarus.cli.subagents import command
from homarus.core.clock import SystemClock
from homarus.core.errors import UserError
from homarus.core.message import user_message
from homarus.sessions.session import SessionRepository
from homarus.store.sqlite import open_store
from homarus.store.subagents import SubagentRecord, list_subagents, put_subagent

PARENT = "agent:main:main"
CHILD = "agent:main:subagent:11111111-aaaa-4bbb-8ccc-222222222222"
OTHER = "agent:main:subagent:33333333-aaaa-4bbb-8ccc-444444444444"


@pytest.fixture
def state(home: Path) -> Path:
    """Return a state directory with one sub-agent that runs, and one that has ended."""
    now_ms = SystemClock().now_ms()
    running = SubagentRecord(CHILD, "run-1111", PARENT, "Count\x1b lamps", now_ms - 5_000)
    ended = SubagentRecord(
        OTHER,
        "run-2222",
        "agent:main:work",
        "Sort the boats",
        now_ms - 9_000,
        label="boats",
        status="timed_out",
        ended_ms=now_ms - 1_000,
    )

    async def fill() -> None:
        async with open_store(home / ".openclaw") as store:
            session = await SessionRepository(store, SystemClock()).load(OTHER, "main")
            await session.append(user_message("Sort them by size."))
            async with store.transaction() as transaction:
                put_subagent(transaction, running)
                put_subagent(transaction, ended)

    asyncio.run(fill())
    return home / ".openclaw"


def run(*args: str) -> Result:
    return CliRunner().invoke(command, args, standalone_mode=False)


def test_subagents_list_shows_active_and_recent_ones(state: Path) -> None:
    shown = run("list").output
    assert "  1  running" in shown and "  2  timed out    run-2222  boats" in shown
    assert "\x1b" not in shown and state.exists()
    found = json.loads(run("list", "--json", "--session", PARENT).output)
    assert [row["sessionKey"] for row in found["active"]] == [CHILD] and found["recent"] == []


@pytest.mark.usefixtures("state")
def test_subagents_info_and_log_show_one() -> None:
    info = run("info", "boats").output
    assert "Status: timed out" in info and "Started by: agent:main:work" in info
    assert json.loads(run("info", "2", "--json").output)["subagent"]["runId"] == "run-2222"
    assert run("log", "run-2222").output == "Task: Sort them by size.\n"
    assert run("log", "1").output == "(no messages)\n"
    assert isinstance(run("info", "nosuch").exception, UserError)


def test_subagents_kill_without_gateway_is_recorded(state: Path) -> None:
    result = run("kill", "1")
    assert "Stopped Count" in result.output, result.exception

    async def read() -> list[str]:
        async with open_store(state, read_only=True) as store:
            return [one.status for one in await list_subagents(store)]

    assert asyncio.run(read()) == ["timed_out", "killed"]
    assert "No sub-agent is active." in run("kill", "all").output


@pytest.mark.usefixtures("state")
def test_subagents_steer_without_gateway_is_refused() -> None:
    refused = run("steer", "1", "Only the north.").exception
    assert isinstance(refused, UserError) and "gateway run" in refused.fix
