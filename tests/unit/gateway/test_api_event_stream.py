"""The stream of a run: what a client gets, reads too slowly, or leaves."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from homarus.agent.run import RunOutcome
from homarus.core.bus import Bus
from homarus.core.event import Event, TextAdded
from homarus.core.message import Usage
from homarus.gateway.http_api import event_stream
from homarus.gateway.http_api.api_error import ApiError
from homarus.gateway.http_api.client_run import ClientRun
from homarus.gateway.http_api.event_stream import RunEventStream, encode_event, stream_run
from homarus.gateway.http_api.run_answer import RunAnswer
from tests.waiting import settle, until

KEY = "agent:main:openai:r1"


class PlainEncoder:
    """Encodes the text of a run as it is."""

    def begin(self) -> Iterator[bytes]:
        yield b"<"

    def add_text(self, text: str) -> Iterator[bytes]:
        yield text.encode()

    def end(self, answer: RunAnswer) -> Iterator[bytes]:
        yield f">{answer.usage.total}".encode()

    def fail(self, error: ApiError) -> Iterator[bytes]:
        yield f"!{error.status}".encode()


class Scene:
    """A run without a gateway, and the client that reads it."""

    def __init__(self, *, has_key: bool = False) -> None:
        self.bus, self.stopped = Bus(), list[str]()
        self.left = asyncio.Event()
        control = SimpleNamespace(stop=self._stop)
        self.watchers: list[Any] = []
        gateway = SimpleNamespace(start=lambda _name, run: self.watchers.append(run))
        call: Any = SimpleNamespace(
            services=SimpleNamespace(bus=self.bus, control=control),
            gateway=gateway,
            request_key="key" if has_key else None,
            receive=self._receive,
        )
        self.run = ClientRun(call, "r1", KEY, 1, streams=True)
        self.outcome: asyncio.Future[RunOutcome] = asyncio.get_running_loop().create_future()
        self.run.set_outcome(self.outcome)
        self.run.watch_client()
        self.sent = b""
        self.aborted = False
        self.blocks = False

    async def _stop(self, _key: str, run_id: str, *, by: str) -> None:
        self.stopped.append(f"{run_id} {by}")

    async def _receive(self) -> dict[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if self.blocks:
            await asyncio.Event().wait()
        self.sent += message.get("body", b"")

    def abort(self) -> None:
        self.aborted = True

    def say(self, text: str) -> None:
        self.bus.publish(Event("r1", KEY, 1, 1, TextAdded(text)))

    def answer(self, text: str = "") -> None:
        usage = Usage(3, 4)
        self.outcome.set_result(RunOutcome("r1", KEY, "answered", text=text, total_usage=usage))

    async def stream(self, stall_s: float = 60.0) -> None:
        wire = SimpleNamespace(transport=SimpleNamespace(abort=self.abort))
        scope: Any = {"extensions": {"homarus.wire": {"wire": wire}}}
        app = RunEventStream(self.run, PlainEncoder(), stall_s=stall_s)
        await app(scope, self._receive, self.send)


async def test_stream_sends_text_as_it_comes() -> None:
    scene = Scene()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(scene.stream())
        scene.say("a")
        await until(lambda: scene.sent == b"<a")
        scene.say("b")
        await until(lambda: scene.sent == b"<ab")
        scene.answer("ab")
    assert scene.sent == b"<ab>7"
    assert not scene.bus._of_runs


async def test_stream_of_answer_that_was_not_streamed_has_it_whole() -> None:
    scene = Scene()
    scene.answer("whole")
    await scene.stream()
    assert scene.sent == b"<whole>7"


async def test_stream_of_client_that_reads_nothing_is_ended() -> None:
    scene = Scene()
    scene.blocks = True
    scene.say("a")
    await scene.stream(stall_s=0.01)
    assert scene.aborted and scene.stopped == ["r1 rpc"]


async def test_stream_of_quiet_run_has_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "KEEPALIVE_S", 0.01)
    scene = Scene()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(scene.stream())
        await until(lambda: scene.sent.count(b": keep-alive\n\n") >= 2)
        scene.answer()
    assert scene.sent.startswith(b"<:") and scene.sent.endswith(b">7")


@pytest.mark.parametrize("has_key", [False, True])
async def test_client_that_leaves_stops_its_run_without_key(has_key: bool) -> None:
    scene = Scene(has_key=has_key)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(scene.stream())
        (watch,) = scene.watchers
        tasks.create_task(watch())
        await settle()
        scene.left.set()
    assert scene.stopped == ([] if has_key else ["r1 rpc"])


async def test_client_that_has_everything_stops_nothing() -> None:
    scene = Scene()
    scene.answer("all")
    await scene.stream()
    scene.left.set()
    await scene.watchers[0]()
    assert scene.stopped == []


async def test_run_that_fails_before_any_text_is_no_stream() -> None:
    scene = Scene()
    scene.outcome.cancel()
    with pytest.raises(Exception, match="dropped"):
        await stream_run(scene.run, PlainEncoder())


async def test_run_that_fails_after_text_ends_its_stream() -> None:
    scene = Scene()
    scene.say("half")
    app = await stream_run(scene.run, PlainEncoder())
    scene.outcome.cancel()
    await app({"type": "http"}, scene._receive, scene.send)
    assert scene.sent == b"<half!503"


def test_event_is_one_line_of_ascii() -> None:
    assert encode_event({"a": "é\n\u2028"}, "name") == (
        b'event: name\ndata: {"a":"\\u00e9\\n\\u2028"}\n\n'
    )
