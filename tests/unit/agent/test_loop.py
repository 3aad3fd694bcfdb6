import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence

import pytest

from homarus.agent.loop import SKIPPED, LoopContext, run_loop
from homarus.core.errors import OverloadedError, ProviderError
from homarus.core.event import (
    EventData,
    MessageSaved,
    TextAdded,
    ThinkingAdded,
    ToolEnded,
    ToolStarted,
)
from homarus.core.message import Message, Origin, Text, Thinking, ToolCall, ToolResult, user_message
from homarus.providers.base import AttemptRetried, Delta, ModelRequest, TextDelta
from homarus.testing.fakes import Hang, ScriptedProvider, assistant_message

ORIGIN = Origin("scripted", "scripted", "scripted-1")


class LoopHarness:
    """A loop with a scripted model and tools that record how they were run."""

    def __init__(self, *script: Message | ProviderError | Hang) -> None:
        self.provider = ScriptedProvider(script)
        self.saved: list[Message] = []
        self.saves: list[int] = []
        self.finished: list[str] = []
        self.events: list[EventData] = []
        self.steering: list[list[Message]] = []
        self.running = 0
        self.peak = 0

    async def call(self, call: ToolCall) -> ToolResult:
        self.running += 1
        self.peak = max(self.peak, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        return ToolResult(call.id, call.name, (Text(f"did {call.name}"),))

    async def save(self, messages: Sequence[Message]) -> None:
        self.saved += messages
        self.saves.append(len(messages))

    async def finish(self, reply: Message) -> None:
        self.saved.append(reply)
        self.finished.append(reply.text)

    def context(self) -> LoopContext:
        return LoopContext(
            provider=self.provider,
            request=lambda messages: ModelRequest("scripted-1", "system", messages),
            origin=ORIGIN,
            call=self.call,
            must_run_alone=lambda call: call.name == "write",
            steering=lambda: self.steering.pop(0) if self.steering else [],
            emit=self.events.append,
            save=self.save,
            finish=self.finish,
            now_ms=lambda: 7,
        )

    def run(self, *messages: Message) -> Message:
        return asyncio.run(run_loop(self.context(), list(messages or [user_message("hi")])))


def calls(*names: str) -> Message:
    return assistant_message(*(ToolCall(f"c{i}", name, {}) for i, name in enumerate(names)))


def results(messages: Iterable[Message]) -> list[str]:
    return [p.text for m in messages for p in m.parts if isinstance(p, ToolResult)]


def test_loop_answer_without_calls_ends() -> None:
    table = LoopHarness(assistant_message("hello"))
    assert table.run().text == "hello"
    assert [m.role for m in table.saved] == ["assistant"]
    assert [f.delta for f in table.events if isinstance(f, TextAdded)] == ["hello"]


def test_loop_call_result_goes_back_to_model() -> None:
    table = LoopHarness(calls("read"), assistant_message("done"))
    assert table.run().text == "done"
    assert [m.role for m in table.provider.requests[1].messages] == ["user", "assistant", "tool"]
    assert results(table.saved) == ["did read"]


def test_loop_parallel_calls_keep_result_order() -> None:
    table = LoopHarness(calls("a", "b", "c"), assistant_message("done"))
    table.run()
    assert table.peak == 3
    assert results(table.saved) == ["did a", "did b", "did c"]


def test_loop_serial_call_runs_alone_in_order() -> None:
    table = LoopHarness(calls("a", "write", "write", "b"), assistant_message("done"))
    table.run()
    assert table.peak == 1
    started = [f.call.name for f in table.events if isinstance(f, ToolStarted)]
    assert started == ["a", "write", "write", "b"]


def test_loop_steering_message_skips_remaining_calls() -> None:
    table = LoopHarness(calls("write", "write", "read"), assistant_message("as you say"))
    table.steering = [[user_message("stop that")]]
    table.run()
    assert results(table.saved) == ["did write", SKIPPED, SKIPPED]
    assert table.provider.requests[1].messages[-1].text == "stop that"
    assert len([f for f in table.events if isinstance(f, ToolEnded)]) == 1


def test_loop_steering_at_last_answer_continues_run() -> None:
    table = LoopHarness(assistant_message("first"), assistant_message("second"))
    table.steering = [[user_message("and?")]]
    assert table.run().text == "second"
    assert [m.text for m in table.provider.requests[1].messages] == ["hi", "first", "and?"]
    assert table.saves == [2], "what was said and what it met are saved together"
    assert table.finished == ["second"]


def test_loop_resumed_open_calls_are_run_first() -> None:
    table = LoopHarness(assistant_message("done"))
    done = Message("tool", (ToolResult("c0", "a", (Text("did a"),)),))
    assert table.run(user_message("hi"), calls("a", "b"), done).text == "done"
    assert results(table.saved) == ["did b"]
    assert results(table.provider.requests[0].messages) == ["did a", "did b"]


def test_loop_history_ending_in_results_calls_model() -> None:
    table = LoopHarness(assistant_message("done"))
    done = Message("tool", (ToolResult("c0", "a", (Text("did a"),)),))
    table.run(user_message("hi"), calls("a"), done)
    assert not [f for f in table.events if isinstance(f, ToolStarted)]


async def test_loop_cancelled_answer_is_saved_partially() -> None:
    table = LoopHarness(Hang())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await run_loop(table.context(), [user_message("hi")])
    (kept,) = table.saved
    assert kept.text == "I was saying" and kept.origin is not None
    assert kept.origin.stop == "aborted" and kept.origin.provider == "scripted"


def test_loop_provider_error_is_saved_with_text_and_raised() -> None:
    table = LoopHarness(OverloadedError("busy"))
    with pytest.raises(OverloadedError):
        table.run()
    (kept,) = table.saved
    assert kept.origin is not None and (kept.origin.stop, kept.origin.error) == ("error", "busy")


def test_loop_saves_every_message_before_next_model_call() -> None:
    table = LoopHarness(calls("read"), assistant_message("done"))
    table.run()
    saved = [f.message for f in table.events if isinstance(f, MessageSaved)]
    assert saved == table.saved
    assert list(table.provider.requests[1].messages[1:]) == table.saved[:2]


def test_loop_partial_answer_separates_thinking_from_text() -> None:
    table = LoopHarness(assistant_message(Thinking("hm"), "yes"))
    reply = table.run()
    assert (reply.thinking, reply.text) == ("hm", "yes")


def test_loop_events_are_cleaned_and_messages_are_not() -> None:
    raw = "<think>\nplan</think>\n[[reply_to_current]] Look:\nMEDIA:./a.png\nBye."
    table = LoopHarness(assistant_message(raw))
    assert table.run().text == table.saved[0].text == raw
    texts = [data for data in table.events if isinstance(data, TextAdded)]
    assert "".join(data.delta for data in texts) == "Look:\nBye."
    assert [path for data in texts for path in data.media] == ["./a.png"]
    thoughts = [data.delta for data in table.events if isinstance(data, ThinkingAdded)]
    assert "".join(thoughts) == "\nplan"


def test_loop_silent_answer_emits_no_text() -> None:
    table = LoopHarness(assistant_message("NO_REPLY"))
    table.run()
    assert not [data for data in table.events if isinstance(data, TextAdded)]


def test_loop_final_tag_is_enforced_for_the_fallback_provider() -> None:
    class Failing(ScriptedProvider):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Message]:
            yield TextDelta("<think>never closed")
            yield AttemptRetried("scripted", "a", "overloaded", "busy", "minimax/m1 (key k)")
            async for piece in super().stream(request):
                yield piece

    table = LoopHarness()
    table.provider = Failing([assistant_message("plan <final>answer</final>")])
    table.run()
    texts = [data.delta for data in table.events if isinstance(data, TextAdded)]
    assert "".join(texts) == "answer"
