"""The model loop: call the model, run its tool calls, repeat until it answers without any.

It knows no channel, store or config: everything it needs is in `LoopContext`. `steering` pops the
messages that steer the run: after each group of tool calls, and when the model would stop. A
message that comes later is left for another run.

A call of a client's tool ends the run, when the agent's own calls next to it have their results:
the client runs it, and another run gets its result.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from homarus.core.errors import (
    AnswerTooLongError,
    ContextOverflowError,
    ProviderError,
    RunSuspendedError,
)
from homarus.core.event import (
    AttemptFailed,
    EventData,
    MessageSaved,
    TextAdded,
    ThinkingAdded,
    ToolEnded,
    ToolStarted,
)
from homarus.core.fast_dataclass import dataclass
from homarus.core.faults import fault_point
from homarus.core.message import (
    Message,
    Origin,
    Part,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from homarus.core.text import clip_middle
from homarus.providers.base import AttemptRetried, ModelRequest, Provider, TextDelta, ThinkingDelta

if TYPE_CHECKING:  # imported with the first answer
    from homarus.agent.reply.reply_cleaner import CleanedText, ReplyCleaner

MAX_SAVED_CHARS = 8_000  # of an answer that did not end
SKIPPED = "Skipped due to queued user message."  # clients match this text


@dataclass(frozen=True, slots=True)
class LoopContext:
    """What the loop of one run works with."""

    provider: Provider
    request: Callable[[tuple[Message, ...]], ModelRequest]
    origin: Origin  # for an answer that was cut short: a complete one has its own
    call: Callable[[ToolCall], Awaitable[ToolResult]]
    must_run_alone: Callable[[ToolCall], bool]  # whether the call must run by itself, in order
    steering: Callable[[], list[Message]]
    emit: Callable[[EventData], None]
    save: Callable[[Sequence[Message]], Awaitable[None]]  # in one transaction, in order
    finish: Callable[[Message], Awaitable[None]]  # the same for the last message, with the outcome
    now_ms: Callable[[], int]
    is_client_call: Callable[[ToolCall], bool] = lambda _call: False  # a client must run it


async def run_loop(context: LoopContext, messages: list[Message]) -> Message:
    """Extend `messages` in place until the model answers, or calls a tool of the client.

    Calls at the end without a result are run first: a run may resume an earlier attempt. Raises
    RunSuspendedError when a call waits for an approval: the results of the others are saved.
    """
    if (waiting := unanswered_calls(messages)) and (
        last := await _answer_calls(context, messages, waiting)
    ):
        return last
    while True:
        reply = await _call_model(context, context.request(tuple(messages)))
        if reply.calls and not all(map(context.is_client_call, reply.calls)):
            await _append(context, messages, reply)
            if last := await _answer_calls(context, messages, reply.calls):
                return last
        elif not reply.calls and (steering := context.steering()):
            await _append(context, messages, reply, *steering)
        else:
            messages.append(reply)
            await context.finish(reply)
            context.emit(MessageSaved(reply))
            return reply


async def _answer_calls(
    context: LoopContext, messages: list[Message], calls: tuple[ToolCall, ...]
) -> Message | None:
    """Run the agent's own calls; if a client must run the others, end with their message."""
    own = tuple(call for call in calls if not context.is_client_call(call))
    await _append(context, messages, *await _run_calls(context, messages, own))
    if len(own) == len(calls):
        return None
    reply = next(message for message in reversed(messages) if message.calls)
    await context.finish(reply)
    return reply


def unanswered_calls(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """Return the calls of the last assistant message that have no result."""
    answered: set[str] = set()
    for message in reversed(messages):
        if message.role == "user":
            break
        answered.update(part.call_id for part in message.parts if isinstance(part, ToolResult))
        if message.calls:
            return tuple(call for call in message.calls if call.id not in answered)
    return ()


async def _call_model(context: LoopContext, request: ModelRequest) -> Message:
    """Call the model once. Text before an error or a stop is saved, with how it ended.

    Messages are saved as the model wrote them; the events have its text for readers.
    """
    from homarus.agent.reply.reply_cleaner import make_reply_cleaner

    texts, thoughts = list[str](), list[str]()
    answer: Message | None = None
    cleaner = make_reply_cleaner(context.origin.provider)
    try:
        async for piece in context.provider.stream(request):
            fault_point("provider.streaming")
            match piece:
                case TextDelta(text):
                    texts.append(text)
                    _emit_cleaned(context, cleaner.feed(text))
                case ThinkingDelta(text):
                    thoughts.append(text)
                    context.emit(ThinkingAdded(text))
                case AttemptRetried():
                    texts.clear()
                    thoughts.clear()
                    cleaner = make_reply_cleaner(piece.then.partition("/")[0])
                    context.emit(_failed(piece))
                case Message():  # the last piece; to leave here would end the stream in a task
                    answer = piece if piece.at_ms else replace(piece, at_ms=context.now_ms())
    except ProviderError as exc:
        # After an overflow the call is repeated.
        if texts or thoughts or not isinstance(exc, ContextOverflowError):
            await _save_partial(context, texts, thoughts, "error", exc)
        raise
    except asyncio.CancelledError:
        await _save_partial(context, texts, thoughts, "aborted")
        raise
    if answer is None:
        raise AssertionError("a provider must end its stream with a Message")
    _emit_rest(context, cleaner, "".join(texts), answer)
    return answer


def _emit_rest(
    context: LoopContext, cleaner: "ReplyCleaner", streamed: str, answer: Message
) -> None:
    """Emit what was not streamed of an answer, and what was held back."""
    if len(answer.text) > len(streamed) and answer.text.startswith(streamed):
        _emit_cleaned(context, cleaner.feed(answer.text[len(streamed) :]))
    _emit_cleaned(context, cleaner.finish())


def _emit_cleaned(context: LoopContext, cleaned: "CleanedText") -> None:
    visible, reasoning, media, reply_to, reply_to_current = cleaned
    if reasoning:
        context.emit(ThinkingAdded(reasoning))
    if visible or media:
        context.emit(TextAdded(visible, media, reply_to, reply_to_current))


def _failed(retried: AttemptRetried) -> AttemptFailed:
    return AttemptFailed(
        retried.provider,
        retried.model,
        retried.reason,
        retried.error,
        retried.then,
        retried.wait_s,
    )


async def _save_partial(
    context: LoopContext,
    texts: Sequence[str],
    thoughts: Sequence[str],
    stop: StopReason,
    error: ProviderError | None = None,
) -> None:
    """Save an answer that was cut short; of one that did not end, its beginning and end."""
    text, thinking = "".join(texts), "".join(thoughts)
    if isinstance(error, AnswerTooLongError):
        text, thinking = clip_middle(text, MAX_SAVED_CHARS), clip_middle(thinking, MAX_SAVED_CHARS)
    parts: list[Part] = [Thinking(thinking)] if thinking else []
    if text:
        parts.append(Text(text))
    code = error.code if error else ""
    origin = replace(context.origin, stop=stop, error=str(error or ""), code=code)
    await _save(context, Message("assistant", tuple(parts), context.now_ms(), origin))


async def _append(context: LoopContext, messages: list[Message], *added: Message) -> None:
    messages.extend(added)
    await _save(context, *added)


async def _save(context: LoopContext, *messages: Message) -> None:
    if messages:
        await context.save(messages)
    for message in messages:
        context.emit(MessageSaved(message))


async def _run_calls(
    context: LoopContext, messages: list[Message], calls: tuple[ToolCall, ...]
) -> list[Message]:
    """Run the calls group by group; skip the rest when a message steers. Returns those messages.

    A call that is suspended ends the run after its group: the rest stay without a result.
    """
    steering: list[Message] = []
    for group in _groups(context, calls):
        outcomes: list[ToolResult | RunSuspendedError]
        if steering:
            outcomes = [_skipped(call) for call in group]
        else:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(_run_call(context, call)) for call in group]
            outcomes = [task.result() for task in running]
        for result in outcomes:
            if isinstance(result, ToolResult):
                await _append(context, messages, Message("tool", (result,), context.now_ms()))
        for suspension in outcomes:
            if isinstance(suspension, RunSuspendedError):
                raise suspension
        steering = steering or context.steering()
    return steering


def _groups(context: LoopContext, calls: tuple[ToolCall, ...]) -> Iterator[list[ToolCall]]:
    """Yield neighbouring calls that may run concurrently as one group; serial calls alone."""
    group: list[ToolCall] = []
    for call in calls:
        if context.must_run_alone(call):
            if group:
                yield group
            yield [call]
            group = []
        else:
            group.append(call)
    if group:
        yield group


async def _run_call(context: LoopContext, call: ToolCall) -> ToolResult | RunSuspendedError:
    """Run one call; its suspension is returned, so that the calls next to it end first."""
    context.emit(ToolStarted(call))
    try:
        result = await context.call(call)
    except RunSuspendedError as suspension:
        return suspension
    context.emit(ToolEnded(result))
    return result


async def run_late_calls(context: LoopContext, calls: tuple[ToolCall, ...]) -> None:
    """Run calls of an earlier part of the conversation; their results are saved at its end."""
    await _run_calls(replace(context, steering=list), [], calls)


def _skipped(call: ToolCall) -> ToolResult:
    return ToolResult(call.id, call.name, (Text(SKIPPED),), is_error=True)
