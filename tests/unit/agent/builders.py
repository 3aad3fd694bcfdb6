"""Builders for tests: messages in short form, their wire bytes, texts cut anywhere."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from homarus.agent.reply.reply_cleaner import CleanedText, ReplyCleaner
from homarus.core.event import EventData, TextAdded, ThinkingAdded
from homarus.core.message import Image, Message, Origin, Part, Text, ToolResult, Usage
from homarus.providers.anthropic_request import AnthropicMessageRenderer, turn_json
from homarus.sessions.transcript import compaction, decode_message

ORIGIN = Origin("api", "p", "m")


def said(*parts: Part | str, at_ms: int = 0, prompt: int = 0) -> Message:
    """Return an assistant message; `prompt` is the vendor's count of its prompt."""
    made = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    return Message("assistant", made, at_ms, replace(ORIGIN, usage=Usage(input=prompt)))


def result(
    call_id: str, text: str, *images: Image, failed: bool = False, at_ms: int = 0
) -> Message:
    content: tuple[Text | Image, ...] = (Text(text), *images)
    return Message("tool", (ToolResult(call_id, "exec", content, is_error=failed),), at_ms)


def summary(text: str, at_ms: int = 0) -> Message:
    """Return the message of a compaction."""
    message = decode_message(compaction(text, "x", 1).at("c", None, at_ms))
    assert message
    return message


def as_bytes(messages: Sequence[Message]) -> bytes:
    turns = AnthropicMessageRenderer(provider="p", model="m", sees_images=True, unsigned=True)
    return b",".join(turn_json(turn) for turn in turns.render(messages))


def cut(text: str, steps: Sequence[int]) -> list[str]:
    """Cut a text into pieces of these lengths, repeatedly."""
    pieces: list[str] = []
    at = 0
    while at < len(text):
        step = steps[len(pieces) % len(steps)]
        pieces.append(text[at : at + step])
        at += step
    return pieces


def streamed_events(pieces: Iterable[str]) -> Iterator[EventData]:
    """Yield the events of an answer that a model writes in these pieces."""
    cleaner = ReplyCleaner()
    for piece in pieces:
        yield from cleaned_events(cleaner.feed(piece))
    yield from cleaned_events(cleaner.finish())


def cleaned_events(cleaned: CleanedText) -> Iterator[EventData]:
    """Yield the events for newly clear text."""
    if cleaned.reasoning:
        yield ThinkingAdded(cleaned.reasoning)
    if cleaned.visible or cleaned.media:
        yield TextAdded(cleaned.visible, cleaned.media)
