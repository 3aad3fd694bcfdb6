"""The session of a gateway, as the chat uses it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from homarus.cli.session_client import GatewaySessionClient, LocalSessionClient, _resolve_key
from homarus.core.errors import UnavailableError, UserError
from homarus.core.event import ToolEnded
from homarus.core.message import Text, ToolResult
from homarus.gateway.client import GatewayClient
from homarus.testing.clock import FakeClock

KEY = "agent:main:main"


class FakeLink:
    """A gateway that knows these totals of input tokens, one per request; None is an error."""

    def __init__(self, totals: Sequence[int | None]) -> None:
        self._totals = iter(totals)

    async def call(self, method: str, _params: object = None, **_options: object) -> Any:
        if method == "sessions.list":
            return {"sessions": [{"key": KEY, "responseUsage": "tokens"}]}
        if (total := next(self._totals)) is None:
            raise UserError("the gateway closed the connection")
        return {"totals": {"input": total, "output": 0}}


@pytest.mark.parametrize(
    ("totals", "line"),
    [
        ((100, 150), "Usage: 50 in / 0 out"),
        ((100, None), ""),
        ((None, 150), ""),
        ((100, 20), ""),  # the session was reset meanwhile
    ],
)
async def test_usage_is_shown_only_where_both_totals_are_known(
    totals: tuple[int | None, ...], line: str
) -> None:
    async with asyncio.TaskGroup() as group:
        session = GatewaySessionClient(cast("GatewayClient", FakeLink(totals)), group, KEY)
        await session._start_usage()
        assert await session.find_usage() == line


class FakeConnection:
    """A connection that records what is sent, and answers each message until it is closed."""

    def __init__(self, *, answers: bool) -> None:
        self.sent: list[str] = []
        self.has_sent = asyncio.Event()
        self._answers = answers
        self._events: asyncio.Queue[Any] = asyncio.Queue()

    async def call(self, method: str, params: Any = None, **_options: object) -> Any:
        if method != "chat.send":
            return {"sessions": []}
        self.sent.append(params["message"])
        self.has_sent.set()
        if self._answers:
            content = [{"type": "text", "text": f"answer to {params['message']}"}]
            end = {"runId": params["idempotencyKey"], "state": "final"}
            self._events.put_nowait(("chat", {**end, "message": {"content": content}}))
        return {"status": "started"}

    async def events(self) -> AsyncIterator[tuple[str, Any]]:
        while event := await self._events.get():
            yield event

    def close(self) -> None:
        self._events.put_nowait(None)


async def test_message_after_closed_connection_goes_through_a_new_one() -> None:
    old, new = FakeConnection(answers=False), FakeConnection(answers=True)
    outcomes = [UnavailableError("it is not back"), None]

    @asynccontextmanager
    async def reopen() -> AsyncIterator[GatewayClient]:
        if error := outcomes.pop(0):
            raise error
        yield cast("GatewayClient", new)

    async with asyncio.TaskGroup() as group:
        session = GatewaySessionClient(cast("GatewayClient", old), group, KEY, reopen)
        showing = group.create_task(session.show(lambda _event: None))
        waiting = group.create_task(_failure(session, "first"))
        await old.has_sent.wait()
        old.close()
        assert "closed the connection before the answer came" in await waiting
        await showing
        assert await _failure(session, "second") == "it is not back"
        tasks = [group.create_task(session.send(text)) for text in ("third", "fourth")]
        assert [(await task).text for task in tasks] == ["answer to third", "answer to fourth"]
        session.close()
    assert (old.sent, new.sent, outcomes) == (["first"], ["third", "fourth"], [])


async def _failure(session: GatewaySessionClient, text: str) -> str:
    with pytest.raises(UnavailableError) as failed:
        await session.send(text)
    return failed.value.message


class FakeHistory:
    """A gateway that saves the result of a failed call after its event; None: it never does."""

    def __init__(self, *histories: list[Any] | None) -> None:
        self._histories = list(histories)

    async def call(self, _method: str, _params: object = None, **_options: object) -> Any:
        if (messages := self._histories.pop(0)) is None:
            raise UnavailableError("the gateway closed the connection")
        return {"messages": messages}


@pytest.mark.parametrize(
    ("is_saved", "reason"), [(True, "exec denied: it is not approved"), (False, "")]
)
async def test_failed_call_is_shown_with_the_reason_in_the_history(
    is_saved: bool, reason: str
) -> None:
    content = [{"type": "text", "text": "exec denied: it is not approved"}]
    result = {"role": "toolResult", "toolCallId": "call_1", "content": content, "timestamp": 2_000}
    older = {**result, "content": [{"type": "text", "text": "another"}], "timestamp": 1_000}
    link = FakeHistory([older], [older, result] if is_saved else None)
    ended = ToolEnded(ToolResult("call_1", "exec", (Text(""),), is_error=True))
    async with asyncio.TaskGroup() as group:
        session = GatewaySessionClient(cast("GatewayClient", link), group, KEY)
        shown = await session._with_reason(ended, 2_000)
    assert shown.result.text == reason and shown.result.is_error


class GlobalScopeGateway:
    """A gateway with `session.scope: global` that resolves every key to itself."""

    def __init__(self) -> None:
        defaults = {"mainSessionKey": "global", "scope": "global"}
        self.hello = {"snapshot": {"sessionDefaults": defaults}}

    async def call(self, _method: str, params: Any = None, **_options: object) -> Any:
        return {"sessionKey": params["sessionKey"]}


@pytest.mark.parametrize(
    ("key", "agent", "expected"),
    [
        (None, None, "global"),
        (None, "main", "global"),
        ("main", "work", "agent:work:global"),
        ("notes", "work", "agent:work:notes"),
        ("agent:main:main", None, "agent:main:main"),
    ],
)
async def test_named_agent_of_global_scope_has_its_only_session(
    key: str | None, agent: str | None, expected: str
) -> None:
    gateway = cast("GatewayClient", GlobalScopeGateway())
    assert await _resolve_key(gateway, key, agent) == expected


async def test_failed_run_raises_an_error_with_its_result() -> None:
    result = {"payloads": [], "meta": {"error": {"kind": "image_size", "message": "too large"}}}

    class FailingGateway:
        async def call(self, _method: str, params: Any = None, **_options: object) -> Any:
            session._runs[params["idempotencyKey"]].shown.set()
            return {"runId": "r1", "status": "ok", "result": result}

    async with asyncio.TaskGroup() as group:
        session = GatewaySessionClient(cast("GatewayClient", FailingGateway()), group, KEY)
        with pytest.raises(UnavailableError, match="too large") as caught:
            await session.run("hello")
    assert caught.value.payload["result"] == result


class SlowControl:
    """Session control that saves a message when `saved` is set, and never answers it."""

    def __init__(self) -> None:
        self.is_saving, self.saved = asyncio.Event(), asyncio.Event()
        self.stopped: list[str] = []
        self._outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def accept(self, _key: str, inbound: Any) -> Any:
        self.is_saving.set()
        await self.saved.wait()
        return SimpleNamespace(record=SimpleNamespace(id=inbound.id))

    def submit(self, _key: str, _record: object) -> asyncio.Future[Any]:
        return self._outcome

    def stop_now(self, _key: str) -> tuple[str, ...]:
        return ()

    async def stop(self, _key: str, run_id: str) -> None:
        self.stopped.append(run_id)
        self._outcome.cancel()


async def test_abort_while_a_message_is_saved_stops_that_message() -> None:
    control = SlowControl()
    session = LocalSessionClient(cast("Any", control), cast("Any", None), FakeClock(), KEY)
    assert not session.abort()  # nothing runs
    async with asyncio.TaskGroup() as group:
        sent = group.create_task(session.send("next"))
        await control.is_saving.wait()
        assert session.abort()
        control.saved.set()
    assert sent.result().aborted and len(control.stopped) == 1
