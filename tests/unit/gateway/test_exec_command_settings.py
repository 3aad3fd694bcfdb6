"""`/exec`, `/elevated` and `sessions.patch` decide which commands of a model run unasked."""

from pathlib import Path
from typing import Any

import pytest

from homarus.core.message import Address, Inbound, ToolCall
from tests.unit.gateway.app_harness import CONFIG, Harness, answer, run

KEY = "agent:main:main"
UNLISTED = "touch ran > out"  # no safe form, and on no list


def script(runs: int) -> list[Any]:
    calls = [answer("", ToolCall(f"c{n}", "exec", {"command": UNLISTED})) for n in range(runs)]
    return [each for call in calls for each in (call, answer("Done."))]


def has_run(it: Harness) -> bool:
    file: Path = it.app.agent("main").workspace / "ran"
    found = file.exists()
    file.unlink(missing_ok=True)
    return found


async def test_exec_of_session_lets_commands_of_owner_run(tmp_path: Path) -> None:
    async with run(tmp_path, *script(4)) as it:
        await it.send("go", "a")
        assert not has_run(it)  # it is asked about, and no approver is there
        await it.send("/exec security=full ask=off", "b")
        await it.send("go", "c")
        assert has_run(it)
        await it.send("go /exec security=deny", "d")
        assert not has_run(it)
        await it.send("/exec reset", "e")
        await it.send("go", "f")
        assert not has_run(it)


async def test_exec_of_session_does_not_loosen_for_others(tmp_path: Path) -> None:
    async with run(tmp_path, *script(1)) as it:
        await it.send("/exec security=full ask=off", "a")
        place = Address("svc", "7")
        inbound = Inbound("x", place, "ann", "go", at_ms=1, authority="authorised")
        record = (await it.app.control.accept(KEY, inbound)).record
        await it.app.control.submit(KEY, record)
        assert not has_run(it)


async def test_exec_of_session_set_during_run_holds_for_its_next_call(tmp_path: Path) -> None:
    config = {**CONFIG, "tools": {"exec": {"security": "full", "ask": "off"}}}
    wait = ToolCall("c0", "exec", {"command": "until [ -e go ]; do sleep 0.01; done"})
    async with run(tmp_path, answer("", wait), *script(1), config=config) as it:
        await it.ask("chat.send", sessionKey="main", message="go", idempotencyKey="a")
        await it.asked(1)
        await it.send("/exec security=deny", "b")
        workspace = it.app.agent("main").workspace
        (workspace / "go").touch()
        await it.ended("a")
        assert not has_run(it)


async def test_exec_settings_patched_by_client_are_obeyed(tmp_path: Path) -> None:
    config = {**CONFIG, "tools": {"exec": {"security": "full", "ask": "off"}}}
    async with run(tmp_path, *script(2), config=config) as it:
        await it.ask("sessions.patch", key="main", execSecurity="deny")
        await it.send("go", "a")
        assert not has_run(it)
        await it.ask("sessions.patch", key="main", execSecurity=None)
        await it.send("go", "b")
        assert has_run(it)


@pytest.mark.parametrize("is_listed", [True, False])
async def test_elevated_full_runs_commands_of_listed_senders(
    is_listed: bool, tmp_path: Path
) -> None:
    lists = {"webchat": ["*"]} if is_listed else {"irc": ["*"]}
    config = {**CONFIG, "tools": {"elevated": {"allowFrom": lists}}}
    async with run(tmp_path, *script(2), config=config) as it:
        await it.ask("sessions.patch", key="main", elevatedLevel="full")
        await it.send("go", "a")
        assert has_run(it) == is_listed
        await it.ask("sessions.patch", key="main", elevatedLevel=None)
        await it.send("go /elevated full", "b")
        assert has_run(it) == is_listed
        said = it.gateway.chats("b")[-1].get("errorMessage", "")
        assert ("not for you here" in said) != is_listed
