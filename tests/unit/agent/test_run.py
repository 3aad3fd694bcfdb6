import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from homarus.agent.agent import Agent
from homarus.agent.run import BROKE_OFF, Outcome, Runner
from homarus.core.bus import Bus
from homarus.core.errors import Overloaded, ProviderError, UnknownName
from homarus.core.event import RunEnded
from homarus.core.lanes import Lanes
from homarus.core.message import Address, Inbound, Message, ToolCall, Wishes
from homarus.providers.base import Delta, Provider, Request, TextDelta
from homarus.providers.catalog import Model
from homarus.providers.models import Wish
from homarus.sessions.session import Sessions
from homarus.testing.clock import FakeClock
from homarus.testing.fakes import Hang, ScriptedProvider, say
from homarus.testing.memory_store import MemoryStore
from homarus.tools.builtin import files
from homarus.tools.registry import Registry
from homarus.tools.tool import nobody

KEY = "agent:main:main"


def message(text: str = "hi", wishes: Wishes | None = None) -> Inbound:
    return Inbound("1", Address("test", "1"), "ann", text, wishes=wishes or Wishes(), run_id="r1")


class Stage:
    """A Runner on a store in memory and a scripted model."""

    def __init__(self, folder: Path, *script: Message | ProviderError | Hang) -> None:
        self.provider: Provider = ScriptedProvider(script)
        self.bus, clock = Bus(), FakeClock(patient=False)
        self.sessions = Sessions(MemoryStore(), clock)
        self.wishes: list[Wish] = []
        self.runner = Runner(
            sessions=self.sessions,
            bus=self.bus,
            lanes=Lanes(),
            clock=clock,
            tools=lambda _agent: Registry.from_modules(files),
            agent=lambda id_: Agent(id_, "Ada", folder, model="p/m", timeout_s=5.0),
            connect=self.connect,
            ask=lambda _inbound: nobody,
            waiting=lambda _key: [],
        )

    async def connect(self, wish: Wish) -> tuple[Provider, Model]:
        self.wishes.append(wish)
        return self.provider, Model("p", "m", reasoning=True)

    def run(self, inbound: Inbound, also: Callable[[], object] = lambda: None) -> Outcome:
        async def main() -> Outcome:
            with self.bus.subscribe() as events:
                asyncio.get_running_loop().call_later(0.02, also)
                try:
                    return await self.runner(KEY, inbound)
                finally:
                    events.close()
                    facts = [event.fact async for event in events]
                    self.ended = [fact for fact in facts if isinstance(fact, RunEnded)]

        return asyncio.run(main())

    def messages(self) -> list[tuple[str, str]]:
        async def main() -> list[tuple[str, str]]:
            session = await self.sessions.load(KEY, "main")
            return [(m.role, m.text) for m in session.messages]

        return asyncio.run(main())


def test_an_answer_is_saved_and_is_the_outcome(tmp_path: Path) -> None:
    stage = Stage(tmp_path, say("hello"))
    outcome = stage.run(message())
    assert (outcome.status, outcome.text, outcome.run_id) == ("answered", "hello", "r1")
    assert stage.messages() == [("user", "hi"), ("assistant", "hello")]
    assert stage.ended == [RunEnded()]


def test_a_tool_works_in_the_agents_workspace(tmp_path: Path) -> None:
    call = ToolCall("c", "write", {"path": "a.txt", "content": "x"})
    stage = Stage(tmp_path, say(call), say("done"))
    assert stage.run(message()).text == "done"
    assert (tmp_path / "a.txt").read_text() == "x"


def test_a_failure_on_purpose_is_an_outcome_and_nothing_is_lost(tmp_path: Path) -> None:
    stage = Stage(tmp_path, Overloaded("busy", fix="wait"))
    outcome = stage.run(message())
    assert outcome.status == "failed" and isinstance(outcome.error, Overloaded)
    assert stage.messages()[0] == ("user", "hi")
    assert stage.ended[0].error == "busy (wait)"


def test_an_aborted_run_keeps_what_was_said(tmp_path: Path) -> None:
    stage = Stage(tmp_path, Hang())
    outcome = stage.run(message(), also=lambda: stage.runner.abort(KEY, "r1"))
    assert outcome.status == "aborted" and stage.ended[0].aborted
    assert stage.messages()[-1] == ("assistant", "I was saying")
    assert stage.runner.live() == ()


def test_a_deadline_of_its_own_ends_a_run(tmp_path: Path) -> None:
    stage = Stage(tmp_path, Hang())
    outcome = stage.run(message(wishes=Wishes(timeout_s=0.02)))
    assert outcome.error is not None and "deadline" in outcome.error.message


def test_a_bug_is_raised_and_the_run_is_seen_to_break_off(tmp_path: Path) -> None:
    class Broken(ScriptedProvider):
        async def stream(self, request: Request) -> AsyncIterator[Delta | Message]:
            for number in (0,):
                yield TextDelta(str(1 / number))

    stage = Stage(tmp_path)
    stage.provider = Broken([])
    with pytest.raises(ZeroDivisionError):
        stage.run(message())
    assert stage.ended == [RunEnded(error=BROKE_OFF)]


def test_a_wish_for_a_model_beats_session_and_agent(tmp_path: Path) -> None:
    stage = Stage(tmp_path, say("a"), say("b"))
    stage.run(message())
    stage.run(message(wishes=Wishes(model="q/n")))
    assert [wish.ref for wish in stage.wishes] == ["p/m", "q/n"]


def test_thinking_is_low_where_nobody_asked_and_checked_where_somebody_did(tmp_path: Path) -> None:
    stage = Stage(tmp_path, say("a"))
    stage.run(message())
    assert isinstance(stage.provider, ScriptedProvider)
    assert stage.provider.requests[0].thinking == "low"
    assert isinstance(stage.run(message(wishes=Wishes(thinking="odd"))).error, UnknownName)
