"""What a conversation shows: the messages of a history as blocks, each of one kind.

A block is never changed: one that goes on (an answer, a running tool) is replaced under its key.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final, Literal, TypeAlias

from homarus.cli.tui.payload import read_count, read_fields, read_rows
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json

Tone: TypeAlias = Literal["dim", "error", "warning"]
_ATTACHED: Final = re.compile(r"^\[media (?:attached|missing): (.+)\]$", re.M)
_INSIDE: Final = re.compile(r"\(([^()]*)\)$")


@dataclass(frozen=True, slots=True)
class QuestionBlock:
    """What a person wrote; `state` says what became of a message that is not stored yet."""

    key: str
    text: str
    files: tuple[str, ...] = ()
    source: str = ""
    state: str = ""
    is_refused: bool = False


@dataclass(frozen=True, slots=True)
class AnswerBlock:
    """Text of the agent, in Markdown."""

    key: str
    text: str
    is_live: bool = False


@dataclass(frozen=True, slots=True)
class ThinkingBlock:
    """Reasoning of the model."""

    key: str
    text: str
    is_live: bool = False


@dataclass(frozen=True, slots=True)
class ToolBlock:
    """A tool call with its arguments, and its output so far; None while there is none."""

    key: str
    call_id: str
    name: str
    args: Mapping[str, Json] = field(default_factory=dict)
    output: str | None = None
    is_error: bool = False
    is_running: bool = False
    started_ms: int = 0
    ended_ms: int = 0
    is_waiting: bool = False  # for an approval


@dataclass(frozen=True, slots=True)
class NoteBlock:
    """A line of the program: a summary, an error, that an answer was stopped."""

    key: str
    text: str
    tone: Tone = "dim"


Block: TypeAlias = QuestionBlock | AnswerBlock | ThinkingBlock | ToolBlock | NoteBlock


def id_of(message: Mapping[str, Json]) -> str:
    """Return the id of a message of a history, if it has one."""
    marker = message.get("__openclaw")
    return str(marker.get("id") or "") if isinstance(marker, dict) else ""


def text_of(message: Json) -> str:
    """Return the text of a message."""
    return "".join(str(part.get("text") or "") for part in _parts(message))


def build_blocks(messages: Sequence[Mapping[str, Json]]) -> list[Block]:
    """Return the blocks of messages, oldest first. Results are part of the block of their call."""
    results = {
        str(each["toolCallId"]): each
        for each in messages
        if each.get("role") == "toolResult" and each.get("toolCallId")
    }
    found: list[Block] = []
    for place, message in enumerate(messages):
        key = id_of(message) or f"{message.get('role')}-{message.get('timestamp')}-{place}"
        match message.get("role"):
            case "user":
                found.append(_question(key, message))
            case "assistant":
                found += _answer(key, message, results)
            case "toolResult":
                pass
            case _:
                found += _note(key, message)
    return found


def split_files(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a person's text without the lines that name its files, and those names."""
    files = tuple(_file_name(each) for each in _ATTACHED.findall(text))
    return _ATTACHED.sub("", text).strip(), files


def _question(key: str, message: Mapping[str, Json]) -> QuestionBlock:
    text, files = split_files(text_of(message))
    images = sum(part.get("type") == "image" for part in _parts(message))
    named = (*files, *(["image"] * images))
    source = message.get("provenance")
    found = source if isinstance(source, dict) else {}
    return QuestionBlock(
        key, text, named, str(found.get("sourceChannel") or found.get("sourceTool") or "")
    )


def _answer(
    key: str, message: Mapping[str, Json], results: Mapping[str, Mapping[str, Json]]
) -> Iterator[Block]:
    for place, part in enumerate(_parts(message)):
        own = f"{key}-{place}"
        match part.get("type"):
            case "text" if str(part.get("text") or "").strip():
                yield AnswerBlock(own, str(part["text"]))
            case "thinking" if str(part.get("thinking") or "").strip():
                yield ThinkingBlock(own, str(part["thinking"]))
            case "toolCall":
                yield _tool(own, part, message, results.get(str(part.get("id"))))
            case "media":
                yield NoteBlock(own, f"📎 {part.get('path')}")
            case "image":
                yield NoteBlock(own, "📎 image")
            case _:
                pass
    if isinstance(message.get("openclawAbort"), dict) or message.get("stopReason") == "aborted":
        yield NoteBlock(f"{key}-end", "Stopped.", "warning")
    elif message.get("errorMessage"):
        yield NoteBlock(f"{key}-end", str(message["errorMessage"]), "error")


def _tool(
    key: str,
    part: Mapping[str, Json],
    call: Mapping[str, Json],
    result: Mapping[str, Json] | None,
) -> ToolBlock:
    args = part.get("arguments")
    return ToolBlock(
        key,
        str(part.get("id")),
        str(part.get("name")),
        args if isinstance(args, dict) else {},
        None if result is None else text_of(result),
        bool(result and result.get("isError")),
        started_ms=read_count(call.get("timestamp")),
        ended_ms=read_count(result.get("timestamp")) if result else 0,
    )


def _note(key: str, message: Mapping[str, Json]) -> Iterator[NoteBlock]:
    marker = message.get("__openclaw")
    if isinstance(marker, dict) and marker.get("kind") == "compaction":
        yield NoteBlock(key, "Earlier messages were summarised here.")
    elif text := text_of(message).strip():
        yield NoteBlock(key, text)


def _file_name(named: str) -> str:
    inside = _INSIDE.search(named)
    given = inside[1].partition(", ")[2] if inside else ""
    return given or named.split(" (", maxsplit=1)[0].rpartition("/")[2] or named


def _parts(message: Json) -> list[Mapping[str, Json]]:
    content = read_fields(message).get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return read_rows(content)
