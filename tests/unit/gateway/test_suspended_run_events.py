"""What clients and the shutdown of the gateway see of a run that waits for an approval."""

import asyncio
from pathlib import Path

from homarus.core.message import ToolCall
from tests.unit.gateway.app_harness import Harness, answer, run
from tests.waiting import until

KEY = "agent:main:main"


async def suspend(it: Harness) -> None:
    """Send a message whose command waits for an approval until its run is suspended."""
    it.app.approval_ports.reach.append(lambda _record: True)
    params = {"sessionKey": "main", "message": "do it", "idempotencyKey": "r"}
    await it.ask("chat.send", params)
    await until(lambda: any(n == "exec.approval.requested" for n, _ in it.gateway.broadcasts))
    async with asyncio.timeout(10):
        while not it.app.control.has_suspended(KEY):
            await it.clock.advance(1)


async def test_stopped_suspended_run_ends_with_one_chat_event(tmp_path: Path) -> None:
    async with run(tmp_path, answer(ToolCall("c1", "exec", {"command": "touch x"}))) as it:
        await suspend(it)
        stopped = await it.ask("chat.abort", sessionKey="main")
        assert stopped["runIds"] == ["r"]
        await it.ended("r")
        await until(lambda: not it.gateway.events.live())
        assert [chat["state"] for chat in it.gateway.chats("r")] == ["aborted"]


async def test_gateway_stop_does_not_wait_for_a_suspended_run(tmp_path: Path) -> None:
    async with run(tmp_path, answer(ToolCall("c1", "exec", {"command": "touch x"}))) as it:
        await suspend(it)
        assert [live.run_id for live in it.gateway.events.live()] == ["r"]
        async with asyncio.timeout(10):  # the clock of the gateway stands still
            await it.gateway.stop("gateway stopping")
        assert it.app.control.has_suspended(KEY)


async def test_approve_command_of_a_client_names_its_device_shortly(tmp_path: Path) -> None:
    call = answer(ToolCall("c1", "exec", {"command": "touch x"}))
    async with run(tmp_path, call, answer("I did not.")) as it:
        await suspend(it)
        (waiting,) = await it.ask("exec.approval.list", {}, "approvals")
        await it.send(f"/approve {waiting['id']} deny", "a")
        await it.ended("r")
        told = it.gateway.chats("a")[-1]["message"]["content"][0]["text"]
        assert "denied by webchat:dddddddd." in told
        assert "d" * 9 not in str(it.model.requests[-1].messages)
