"""The model loop: call the model, run its tool calls, repeat until it answers without any.

It knows no channel, store or config: everything it needs is in `LoopContext`. `steering` pops the
messages that steer the run: after each group of tool calls, and when the model would stop. A
message that comes later is left for another run.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace

from homarus.core.errors import ContextOverflow, ProviderError
from homarus.core.event import (
    AttemptFailed,
    Fact,
    MessageSaved,
    TextAdded,
    ThinkingAdded,
    ToolEnded,
    ToolStarted,
)
from homarus.core.faults import fault
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
from homarus.core.value import dataclass
from homarus.providers.base import Provider, Request, Retried, TextDelta, ThinkingDelta

SKIPPED = "Skipped due to queued user message."  # clients match this text


@dataclass(frozen=True, slots=True)
class Turn:
    """What the loop of one run works with."""

    provider: Provider
    request: Callable[[tuple[Message, ...]], Request]
    origin: Origin  # for an answer that was cut short: a complete one has its own
    call: Callable[[ToolCall], Awaitable[ToolReturn]]
    alone: Callable[[ToolCall], bool]  # whether the call must run by itself, in order
    steering: Callable[[], list[Message]]
    emit: Callable[[Fact], None]
    save: Callable[[Sequence[Message]], Awaitable[None]]  # in one transaction, in order
    finish: Callable[[Message], Awaitable[None]]  # the same for the last message, with the outcome
    now_ms: Callable[[], int]


async def run_loop(turn: Turn, messages: list[Message]) -> Message:
    """Extend `messages` in place until the model answers without a tool call.

    Calls at the end without a result are run first: a run may resume an earlier attempt.
    """
    if waiting := _unanswered(messages):
        await _add(turn, messages, *await _call_all(turn, messages, waiting))
    while True:
        reply = await _ask(turn, turn.request(tuple(messages)))
        if reply.calls:
            await _add(turn, messages, reply)
            await _add(turn, messages, *await _call_all(turn, messages, reply.calls))
        elif news := turn.steering():
            await _add(turn, messages, reply, *news)
        else:
            messages.append(reply)
            await turn.finish(reply)
            turn.emit(MessageSaved(reply))
            return reply


def _unanswered(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """Return the calls of the last assistant message that have no result."""
    answered: set[str] = set()
    for message in reversed(messages):
        if message.role == "user":
            break
        answered.update(part.call_id for part in message.parts if isinstance(part, ToolReturn))
        if message.calls:
            return tuple(call for call in message.calls if call.id not in answered)
    return ()


async def _ask(turn: Turn, request: Request) -> Message:
    """Call the model once. Text before an error or a stop is saved, with how it ended."""
    said: list[Part] = []
    try:
        async for piece in turn.provider.stream(request):
            fault("provider.streaming")
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
        if said or not isinstance(exc, ContextOverflow):  # after an overflow the call is repeated
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


async def _add(turn: Turn, messages: list[Message], *added: Message) -> None:
    messages.extend(added)
    await _save(turn, *added)


async def _save(turn: Turn, *messages: Message) -> None:
    if messages:
        await turn.save(messages)
    for message in messages:
        turn.emit(MessageSaved(message))


async def _call_all(
    turn: Turn, messages: list[Message], calls: tuple[ToolCall, ...]
) -> list[Message]:
    """Run the calls group by group; skip the rest when a message steers. Returns those messages."""
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
    """Yield neighbouring calls that may run concurrently as one group; serial calls alone."""
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
