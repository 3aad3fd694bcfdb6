"""The loop: ask the model, run what it asks for, until it stops asking.

Knows no channel, no store, no configuration; everything it needs is in Turn. Two functions are
pulled for news from outside: `steering` after each group of tool calls (a message for the run
that is live), `follow_up` when the model would stop (a message that waited its turn).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace

from homarus.core.errors import ProviderError
from homarus.core.event import (
    AttemptFailed,
    Fact,
    MessageSaved,
    TextAdded,
    ThinkingAdded,
    ToolEnded,
    ToolStarted,
)
from homarus.core.message import (
    Message,
    Origin,
    Part,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolReturn,
)
from homarus.providers.base import Provider, Request, Retried, TextDelta, ThinkingDelta

SKIPPED = "Skipped due to queued user message."  # the words clients and transcripts know


@dataclass(frozen=True, slots=True)
class Turn:
    """One run's fixed surroundings."""

    provider: Provider
    request: Callable[[tuple[Message, ...]], Request]
    origin: Origin  # who is asked: what an answer cut short is signed with
    call: Callable[[ToolCall], Awaitable[ToolReturn]]
    alone: Callable[[ToolCall], bool]  # must this call run by itself, in order?
    steering: Callable[[], list[Message]]
    follow_up: Callable[[], list[Message]]
    emit: Callable[[Fact], None]
    save: Callable[[Message], Awaitable[None]]
    now_ms: Callable[[], int]


async def run_loop(turn: Turn, messages: list[Message]) -> Message:
    """Extend `messages` in place until the model answers without a tool call."""
    while True:
        reply = await _ask(turn, turn.request(tuple(messages)))
        await _add(turn, messages, reply)
        news = await _call_all(turn, messages, reply.calls)
        if not reply.calls:
            news = [*turn.steering(), *turn.follow_up()]
            if not news:
                return reply
        for message in news:
            await _add(turn, messages, message)


async def _ask(turn: Turn, request: Request) -> Message:
    """One model call. What was said before a cut is kept, signed with how it ended."""
    said: list[Part] = []
    try:
        async for piece in turn.provider.stream(request):
            match piece:
                case TextDelta(text):
                    said.append(Text(text))
                    turn.emit(TextAdded(text))
                case ThinkingDelta(text):
                    said.append(Thinking(text))
                    turn.emit(ThinkingAdded(text))
                case Retried():
                    said.clear()
                    turn.emit(_failed(piece))
                case Message():
                    return piece if piece.at_ms else replace(piece, at_ms=turn.now_ms())
    except ProviderError as exc:
        await _keep(turn, said, "error", str(exc))
        raise
    except asyncio.CancelledError:
        await _keep(turn, said, "aborted")
        raise
    raise AssertionError("a provider must end its stream with a Message")


def _failed(retried: Retried) -> AttemptFailed:
    return AttemptFailed(
        retried.provider,
        retried.model,
        retried.reason,
        retried.error,
        retried.then,
        retried.wait_s,
    )


async def _keep(turn: Turn, said: list[Part], stop: StopReason, error: str = "") -> None:
    """Save an answer that was cut short."""
    thinking = "".join(part.text for part in said if isinstance(part, Thinking))
    text = "".join(part.text for part in said if isinstance(part, Text))
    parts: list[Part] = [Thinking(thinking)] if thinking else []
    if text:
        parts.append(Text(text))
    origin = replace(turn.origin, stop=stop, error=error)
    await _save(turn, Message("assistant", tuple(parts), turn.now_ms(), origin))


async def _add(turn: Turn, messages: list[Message], message: Message) -> None:
    messages.append(message)
    await _save(turn, message)


async def _save(turn: Turn, message: Message) -> None:
    await turn.save(message)
    turn.emit(MessageSaved(message))


async def _call_all(
    turn: Turn, messages: list[Message], calls: tuple[ToolCall, ...]
) -> list[Message]:
    """Run the calls group by group; when a message steers, the rest is skipped. Returns it."""
    news: list[Message] = []
    for group in _groups(turn, calls):
        if news:
            results = [_skipped(call) for call in group]
        else:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(_call(turn, call)) for call in group]
            results = [task.result() for task in running]
            news = turn.steering()
        for result in results:
            await _add(turn, messages, Message("tool", (result,), turn.now_ms()))
    return news


def _groups(turn: Turn, calls: tuple[ToolCall, ...]) -> Iterator[list[ToolCall]]:
    """Neighbours that may run side by side are one group; a call that must be alone is its own."""
    group: list[ToolCall] = []
    for call in calls:
        if turn.alone(call):
            if group:
                yield group
            yield [call]
            group = []
        else:
            group.append(call)
    if group:
        yield group


async def _call(turn: Turn, call: ToolCall) -> ToolReturn:
    turn.emit(ToolStarted(call))
    result = await turn.call(call)
    turn.emit(ToolEnded(result))
    return result


def _skipped(call: ToolCall) -> ToolReturn:
    return ToolReturn(call.id, call.name, (Text(SKIPPED),), is_error=True)
