"""The gateway, channels, chat commands and the terminal reach a session by one entry point."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from homarus.cli.session_client import GatewaySessionClient
from homarus.core.event import CommandAnswered, Event
from homarus.core.message import Address, Inbound, Json
from homarus.gateway.client import GatewayClient
from homarus.plugins.hooks import hook
from homarus.plugins.values import HookContext
from homarus.testing.fakes import Hang
from tests.unit.gateway.app_harness import Harness, answer, run

KEY = "agent:main:main"


class CommandRecorder:
    """A plugin that records the commands it is called for, and adds a line."""

    def __init__(self) -> None:
        self.calls = list[tuple[str, str]]()

    @hook
    def command(self, where: HookContext, name: str) -> str:
        self.calls.append((name, where.channel))
        return f"(saw {name})"


async def start_channel_run(it: Harness) -> asyncio.Future[Any]:
    """Start a run for a message of a chat channel."""
    inbound = Inbound("chan-1", Address("svc", "room"), "ann", "long", at_ms=1, run_id="chan-1")
    row = (await it.app.control.accept(KEY, inbound)).record
    return it.app.control.submit(KEY, row)


async def test_sessions_reset_while_a_run_saves_waits_for_its_lane(tmp_path: Path) -> None:
    async with run(tmp_path, Hang()) as it:
        outcome = await start_channel_run(it)
        await it.asked(1)
        before = (await it.app.control.load(KEY)).session_id
        saving, saved = asyncio.Event(), asyncio.Event()
        commit = it.store.transaction

        def commit_runs_late() -> Any:
            task = asyncio.current_task()
            if task is None or not task.get_name().startswith("run "):
                return commit()
            saving.set()  # the stopped run saves what it said
            return _after(saved, commit())

        it.store.transaction = commit_runs_late  # type: ignore[method-assign] # delayed
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            resetting = group.create_task(it.ask("sessions.reset", key="main"))
            await saving.wait()
            for _ in range(20):
                await asyncio.sleep(0.001)
            was_done = resetting.done()
            saved.set()
        assert not was_done, "the stopped run had not saved yet"
        assert resetting.result()["entry"]["sessionId"] != before
        assert (await outcome).status == "aborted"
        assert (await it.app.control.load(KEY)).messages == []


class _after:  # noqa: N801 - a context manager that is used like a function
    def __init__(self, ready: asyncio.Event, inner: Any) -> None:
        self._ready, self._inner = ready, inner

    async def __aenter__(self) -> Any:
        await self._ready.wait()
        return await self._inner.__aenter__()

    async def __aexit__(self, *exc: Any) -> Any:
        return await self._inner.__aexit__(*exc)


@pytest.mark.parametrize("text", ["/stop", "stop"])
async def test_stop_through_chat_send_calls_the_command_hook(text: str, tmp_path: Path) -> None:
    async with run(tmp_path, Hang()) as it:
        recorder = CommandRecorder()
        it.app.hooks.register(recorder, "recorder")
        await it.ask("chat.send", sessionKey="main", message="long", idempotencyKey="a")
        await it.asked(1)
        done = await it.ask("chat.send", sessionKey="main", message=text, idempotencyKey="b")
        assert done == {"ok": True, "aborted": True, "runIds": ["a"]}
        assert recorder.calls == [("stop", "webchat")]


class FakeLink:
    """A connection of the terminal: calls the methods, and yields what is broadcast."""

    def __init__(self, it: Harness) -> None:
        self._it = it

    async def call(self, method: str, params: Mapping[str, Json], **_options: object) -> Json:
        return await self._it.ask(method, dict(params), client="cli")

    async def events(self) -> AsyncIterator[tuple[str, Json]]:
        seen = 0
        while True:
            for event in self._it.gateway.broadcasts[seen:]:
                seen += 1
                yield event
            await asyncio.sleep(0.001)


async def test_reset_trigger_from_terminal_through_gateway_resets(tmp_path: Path) -> None:
    config = {"session": {"resetTriggers": ["/new", "start over"]}}
    async with run(tmp_path, answer("one"), answer("two"), config=config) as it:
        shown = list[Event]()
        async with asyncio.TaskGroup() as group:
            desk = GatewaySessionClient(cast("GatewayClient", FakeLink(it)), group, KEY)
            showing = group.create_task(desk.show(shown.append))
            assert (await desk.send("hi")).text == "one"
            before = (await it.app.control.load(KEY)).session_id
            reply = await desk.send("Start over")
            assert reply.text.startswith("A new conversation.")
            assert isinstance(shown[-1].data, CommandAnswered)
            assert (await it.app.control.load(KEY)).session_id != before
            assert (await desk.send("start over hello")).text == "two"
            showing.cancel()
        assert it.model.requests[-1].messages[-1].text.endswith("hello")


async def test_reset_trigger_through_agent_method_resets(tmp_path: Path) -> None:
    config = {"session": {"resetTriggers": ["start over"]}}
    async with run(tmp_path, answer("one"), answer("two"), config=config) as it:
        await it.ask("agent", message="hi", idempotencyKey="a")
        before = (await it.app.control.load(KEY)).session_id
        await it.ask("agent", message="start over again", idempotencyKey="b")
        assert (await it.app.control.load(KEY)).session_id != before
        assert it.model.requests[-1].messages[-1].text.endswith("again")


@pytest.mark.parametrize(("client", "channel"), [("cli", "cli"), ("gateway-client", "webchat")])
@pytest.mark.parametrize("method", ["chat.send", "agent"])
async def test_message_channel_follows_the_kind_of_client(
    method: str, client: str, channel: str, tmp_path: Path
) -> None:
    async with run(tmp_path, answer("one")) as it:
        params = {"sessionKey": "main", "message": "hi", "idempotencyKey": "a"}
        await it.ask(method, params, client=client)
        await it.ended("a")
        row = await it.store.journal.inbox_record("a")
        assert row is not None and row.channel == channel


async def test_terminal_message_through_gateway_carries_pending_notices(tmp_path: Path) -> None:
    async with run(tmp_path, answer("one")) as it:
        await it.ask("system-event", text="The build is green.")
        params = {"sessionKey": "main", "message": "hi", "idempotencyKey": "a"}
        await it.ask("chat.send", params, client="cli")
        await it.ended("a")
        assert "The build is green." in it.model.requests[0].messages[-1].text


async def test_agent_method_of_another_client_keeps_the_last_route(tmp_path: Path) -> None:
    async with run(tmp_path, answer("one")) as it:
        await (await it.app.control.load(KEY)).update(lastChannel="telegram", lastTo="42")
        await it.ask("agent", message="hi", idempotencyKey="a")
        record = await it.store.session(KEY)
        assert record is not None and record.data["lastChannel"] == "telegram"
