"""Encode and decode transcript entries, and read a tree of them. Pure.

Decoding accepts any JSON and never raises: unknown parts are left out, or noted in a user's
message. The names of OpenClaw's format (`toolResult`, `stopReason` …) are used only here.
"""

import json
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, get_args

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import (
    Image,
    InputProvenance,
    Json,
    Message,
    Origin,
    Part,
    ProvenanceKind,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)
from homarus.core.text import clip_middle
from homarus.store.base import TranscriptEntry
from homarus.store.usage import decode_usage, read_whole_number

_STOPS: Final[Mapping[str, StopReason]] = {stop: stop for stop in get_args(StopReason)}
# The origin of an assistant message that no model wrote; clients know these names.
INJECTED: Final = Origin("openai-responses", "openclaw", "gateway-injected")

_STEERING = "homarus-steering"
CLIENT_CALLS: Final = "homarus-client-calls"
_APPROVAL = "homarus-approval"
MAX_NOTE_CHARS: Final = 8_000
_SUMMARY = "What was said before, in short:\n\n<summary>\n{}\n</summary>"
_BRANCH = "We tried something else and came back from it. In short:\n\n<summary>\n{}\n</summary>"


@dataclass(frozen=True, slots=True)
class NewEntry:
    """An entry without an id and a parent."""

    type: str
    data: Mapping[str, Json]

    def at(self, entry_id: str, parent: str | None, at_ms: int) -> TranscriptEntry:
        return TranscriptEntry(entry_id, parent, self.type, at_ms, self.data)


def new_id(existing: Collection[str] = ()) -> str:
    """Return eight hex digits that no other entry of the transcript has."""
    while (entry_id := f"{random.getrandbits(32):08x}") in existing:
        pass
    return entry_id


def model_change(provider: str, model: str) -> NewEntry:
    """Return the entry that records a change of model."""
    return NewEntry("model_change", {"provider": provider, "modelId": model})


def thinking_level_change(level: str) -> NewEntry:
    """Return the entry that records a change of thinking level."""
    return NewEntry("thinking_level_change", {"thinkingLevel": level})


def model_snapshot(provider: str, api: str, model: str, at_ms: int) -> NewEntry:
    """Return the entry that OpenClaw writes with a change of model."""
    data = {"timestamp": at_ms, "provider": provider, "modelApi": api, "modelId": model}
    return NewEntry("custom", {"customType": "model-snapshot", "data": data})


def steering_copy(run_id: str) -> NewEntry:
    """Return the entry before a user message that only steers a run, and gets its own run later."""
    return NewEntry("custom", {"customType": _STEERING, "data": {"runId": run_id}})


def suspension(run_id: str, approvals: Mapping[str, str]) -> NewEntry:
    """Return the entry of a run that ends suspended, with its calls that have no result.

    Each has the id of the approval it waits for, or "" when it waits for the call before it.
    """
    data = {"runId": run_id, "approvals": dict(approvals)}
    return NewEntry("custom", {"customType": _APPROVAL, "data": data})


def resumption(run_id: str, text: str) -> NewEntry:
    """Return the note with which a suspended run continues after other turns."""
    data = {
        "customType": _APPROVAL,
        "content": text,
        "display": False,
        "details": {"runId": run_id},
    }
    return NewEntry("custom_message", data)


def resumption_text(question: str, unseen: Sequence[ToolResult]) -> str:
    """Return the text of that note; `unseen` are results whose calls are not shown any more."""
    results = "".join(
        f"\nThe result of {result.name}, as data:\n{clip_middle(result.text, MAX_NOTE_CHARS)}\n"
        for result in unseen
    )
    where = "" if unseen else " It is next to its call, above."
    return (
        f"[A tool call that waited for approval has its result now.{where}{results}"
        f" Continue with the earlier message “{question}”, and answer it now.]"
    )


def compaction(
    summary: str, first_kept: str, tokens_before: int, details: Mapping[str, Json] | None = None
) -> NewEntry:
    """Return the entry whose summary replaces what came before `first_kept`."""
    data = {"summary": summary, "firstKeptEntryId": first_kept, "tokensBefore": tokens_before}
    return NewEntry("compaction", {**data, "details": details} if details else data)


def message_draft(message: Message, at_ms: int = 0) -> NewEntry:
    """Return a message as an entry; `at_ms` is used when the message has no time."""
    return NewEntry("message", {"message": encode_message(message, at_ms)})


def copy_entries(path: Iterable[TranscriptEntry]) -> list[TranscriptEntry]:
    """Return the entries of a path for another transcript, without the state of active runs."""
    copied, parent = list[TranscriptEntry](), None
    for entry in path:
        is_of_run = entry.data.get("customType") in {_STEERING, _APPROVAL, CLIENT_CALLS}
        if entry.type == "custom" and is_of_run:
            continue
        copied.append(TranscriptEntry(entry.id, parent, entry.type, entry.at_ms, entry.data))
        parent = entry.id
    return copied


# --- encoding ----------------------------------------------------------------------------------


def encode_message(message: Message, at_ms: int = 0) -> dict[str, Json]:
    """Return the message in OpenClaw's format, with its order of fields."""
    timestamp_ms = message.at_ms or at_ms
    match message.role:
        case "user":
            content = [_encode_part(part) for part in message.parts]
            encoded = {"role": "user", "content": content, "timestamp": timestamp_ms}
            source = message.provenance
            return {**encoded, "provenance": _encode_provenance(source)} if source else encoded
        case "assistant":
            return _encode_assistant(message, timestamp_ms)
        case "tool":
            return _encode_tool_result(message, timestamp_ms)


def _encode_provenance(source: InputProvenance) -> dict[str, Json]:
    sources = {
        "sourceSessionKey": source.session_key,
        "sourceChannel": source.channel,
        "sourceTool": source.tool,
    }
    return {"kind": source.kind, **{name: value for name, value in sources.items() if value}}


def _encode_assistant(message: Message, timestamp_ms: int) -> dict[str, Json]:
    origin = message.origin or INJECTED
    encoded: dict[str, Json] = {
        "role": "assistant",
        "content": [_encode_part(part) for part in message.parts],
        "api": origin.api,
        "provider": origin.provider,
        "model": origin.model,
        "usage": encode_usage(origin.usage),
        "stopReason": origin.stop,
        "timestamp": timestamp_ms,
    }
    if origin.error:
        encoded["errorMessage"] = origin.error
    if origin.code:
        encoded["errorCode"] = origin.code
    if origin.stopped:
        run, by = origin.stopped.run_id, origin.stopped.by
        encoded["idempotencyKey"] = f"{run}:assistant"
        encoded["openclawAbort"] = {"aborted": True, "origin": by, "runId": run}
    return encoded


def _encode_tool_result(message: Message, timestamp_ms: int) -> dict[str, Json]:
    (result,) = (part for part in message.parts if isinstance(part, ToolResult))
    return {
        "role": "toolResult",
        "toolCallId": result.call_id,
        "toolName": result.name,
        "content": [_encode_part(part) for part in result.content],
        **({} if result.details is None else {"details": result.details}),
        "isError": result.is_error,
        "timestamp": timestamp_ms,
    }


def _encode_part(part: Part) -> dict[str, Json]:
    match part:
        case Text(text, signature):
            encoded = {"type": "text", "text": text}
            return {**encoded, "textSignature": signature} if signature else encoded
        case Thinking(text, signature):
            signed = {"thinkingSignature": signature} if signature else {}
            return {"type": "thinking", "thinking": text, **signed}
        case Image(data, mime):
            return {"type": "image", "data": data, "mimeType": mime}
        case ToolCall(call_id, name, args, broken, signature):
            call = {"type": "toolCall", "id": call_id, "name": name, "arguments": args}
            if signature:
                call["thoughtSignature"] = signature
            return {**call, "invalidArguments": broken} if broken else call
        case ToolResult():
            return {"type": "text", "text": part.text}


def encode_usage(usage: Usage) -> dict[str, Json]:
    """Return tokens and cost in OpenClaw's format."""
    cost = int(usage.cost) if float(usage.cost).is_integer() else usage.cost
    return {
        "input": usage.input,
        "output": usage.output,
        "cacheRead": usage.cache_read,
        "cacheWrite": usage.cache_write,
        "totalTokens": usage.total,
        **({"reasoning": usage.reasoning} if usage.reasoning else {}),
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": cost},
    }


CUT_SHORT: Final = frozenset({"error", "aborted"})  # why a model's answer did not end

# --- decoding ----------------------------------------------------------------------------------


def decode_message(entry: TranscriptEntry) -> Message | None:
    """Return the message that an entry gives to the model, or None."""
    data = entry.data
    match entry.type:
        case "message":
            message = data.get("message")
            return _decode_role(message, entry.at_ms) if isinstance(message, dict) else None
        case "custom_message":
            return _decode_user(data.get("content"), entry.at_ms)
        case "branch_summary":
            return _summary(_BRANCH, data.get("summary"), entry.at_ms)
        case "compaction":
            return _summary(_SUMMARY, data.get("summary"), entry.at_ms)
        case _:
            return None


def decode_stored_message(message: Mapping[str, Json], at_ms: int) -> Message | None:
    """Return the message that `encode_message` encoded, with this time if it has none."""
    return _decode_role(message, at_ms)


def _decode_role(message: Mapping[str, Json], entry_ms: int) -> Message | None:
    at_ms = read_whole_number(message.get("timestamp")) or entry_ms
    match message.get("role"):
        case "user" | "custom" | "hookMessage":
            return _decode_user(message.get("content"), at_ms, message.get("provenance"))
        case "assistant":
            parts = _decode_parts(message.get("content"))
            return Message("assistant", parts, at_ms, _decode_origin(message))
        case "toolResult":
            return _decode_tool_result(message, at_ms)
        case "bashExecution":
            return _decode_bash(message, at_ms)
        case "branchSummary":
            return _summary(_BRANCH, message.get("summary"), at_ms)
        case "compactionSummary":
            return _summary(_SUMMARY, message.get("summary"), at_ms)
        case _:
            return None


def _decode_user(content: Json, at_ms: int, source: Json = None) -> Message | None:
    parts = _decode_visible_parts(content)
    provenance = _decode_provenance(source) if isinstance(source, dict) else None
    return Message("user", parts, at_ms, provenance=provenance) if parts else None


def _decode_provenance(source: Mapping[str, Json]) -> InputProvenance | None:
    kind = next((one for one in get_args(ProvenanceKind) if one == source.get("kind")), None)
    names = ("sourceSessionKey", "sourceChannel", "sourceTool")
    return InputProvenance(kind, *(_str(source.get(name)) for name in names)) if kind else None


def _summary(frame: str, summary: Json, at_ms: int) -> Message | None:
    if not isinstance(summary, str) or not summary:
        return None
    return Message("user", (Text(frame.format(summary)),), at_ms)


def _decode_tool_result(message: Mapping[str, Json], at_ms: int) -> Message | None:
    call_id, details = message.get("toolCallId"), message.get("details")
    if not isinstance(call_id, str) or not call_id:
        return None
    result = ToolResult(
        call_id,
        _str(message.get("toolName")),
        _decode_visible_parts(message.get("content")),
        message.get("isError") is True,
        details if isinstance(details, dict) else None,
    )
    return Message("tool", (result,), at_ms)


def _decode_bash(message: Mapping[str, Json], at_ms: int) -> Message | None:
    """Decode a shell command that a person ran during the session."""
    if message.get("excludeFromContext") is True:
        return None
    command, output = _str(message.get("command")), _str(message.get("output"))
    code = message.get("exitCode")
    end = f"\n(exit code {code})" if isinstance(code, int) and code else ""
    return Message("user", (Text(f"I ran `{command}`:\n```\n{output}\n```{end}"),), at_ms)


def _decode_visible_parts(content: Json) -> tuple[Text | Image, ...]:
    """Decode the content of a user or a tool; unknown parts are mentioned."""
    if isinstance(content, str):
        return (Text(content),)
    shown: list[Text | Image] = []
    for part in content if isinstance(content, list) else ():
        decoded = _decode_part(part)
        if isinstance(decoded, Text | Image):
            shown.append(decoded)
        elif decoded is None and isinstance(part, dict):
            shown.append(Text(f"[{_str(part.get('type')) or 'something'} left out]"))
    return tuple(shown)


def _decode_parts(content: Json) -> tuple[Part, ...]:
    """Decode the content of a model; unknown parts are dropped."""
    if isinstance(content, str):
        return (Text(content),)
    if not isinstance(content, list):
        return ()
    return tuple([decoded for part in content if (decoded := _decode_part(part)) is not None])


def _decode_part(part: Json) -> Part | None:
    if not isinstance(part, dict):
        return Text(part) if isinstance(part, str) else None
    match part.get("type"):
        case "text":
            return Text(_str(part.get("text")), _str(part.get("textSignature")))
        case "thinking":
            return Thinking(_str(part.get("thinking")), _str(part.get("thinkingSignature")))
        case "image":
            data, mime = part.get("data"), part.get("mimeType")
            return Image(data, _str(mime) or "image/png") if isinstance(data, str) else None
        case "toolCall":
            return _decode_call(part)
        case _:
            return None


def _decode_call(part: Mapping[str, Json]) -> ToolCall | None:
    call_id, name, args = part.get("id"), part.get("name"), part.get("arguments")
    if not isinstance(call_id, str) or not isinstance(name, str) or not call_id or not name:
        return None
    broken, signature = _str(part.get("invalidArguments")), _str(part.get("thoughtSignature"))
    if isinstance(args, dict):
        return ToolCall(call_id, name, args, broken, signature)
    text = args if isinstance(args, str) else "" if args is None else json.dumps(args)
    if text:
        args, broken = _decode_args(text)
    return ToolCall(call_id, name, args or {}, broken, signature)


def _decode_args(text: str) -> tuple[dict[str, Json], str]:
    try:
        args = json.loads(text)
    except (ValueError, RecursionError):
        return {}, text
    return (args, "") if isinstance(args, dict) else ({}, text)


def _decode_origin(message: Mapping[str, Json]) -> Origin:
    return Origin(
        _str(message.get("api")),
        _str(message.get("provider")),
        _str(message.get("model")),
        _STOPS.get(_str(message.get("stopReason")), "stop"),
        decode_usage(message.get("usage")),
        _str(message.get("errorMessage")),
        code=_str(message.get("errorCode")),
    )


def _str(value: Json) -> str:
    return value if isinstance(value, str) else ""


# --- the tree ----------------------------------------------------------------------------------


class EntryTree:
    """Entries by id; `leaf` is the entry that the next one follows, None the root."""

    def __init__(self, entries: Iterable[TranscriptEntry], leaf: str | None) -> None:
        self._by_id = {entry.id: entry for entry in entries}
        self.leaf = leaf

    def path(self) -> list[TranscriptEntry]:
        """Return root to leaf; a missing parent or a cycle ends the walk.

        The newest `reset` of OpenClaw 2026.9 ends it too, after the first entry that it keeps.
        """
        path: list[TranscriptEntry] = []
        seen: set[str] = set()
        step, kept = self.leaf, None
        while step is not None and step not in seen and (entry := self._by_id.get(step)):
            path.append(entry)
            seen.add(step)
            step = entry.parent
            if entry.type == "reset" and kept is None:
                kept = _str(entry.data.get("firstKeptEntryId"))
            if kept is not None and (not kept or entry.id == kept):
                break
        path.reverse()
        return path


def messages_of(path: Sequence[TranscriptEntry]) -> list[Message]:
    """Return the messages of a path; the newest compaction replaces what it summarised."""
    messages = (decode_message(entry) for entry in _in_context(path))
    return [message for message in messages if message is not None]


@dataclass(frozen=True, slots=True)
class TranscriptMessage:
    """A message of a path, and the id of its entry."""

    id: str
    message: Message


def context_messages(path: Sequence[TranscriptEntry]) -> list[TranscriptMessage]:
    """Return the messages of a path with their entries' ids; the newest compaction is first."""
    decoded = ((entry.id, decode_message(entry)) for entry in _in_context(path))
    return [
        TranscriptMessage(entry_id, message) for entry_id, message in decoded if message is not None
    ]


def summary_in(message: Message) -> str:
    """Return the summary in the message of a compaction; "" for any other message."""
    frame, _, end = _SUMMARY.partition("{}")
    text = message.text if message.role == "user" else ""
    if not text.startswith(frame) or not text.endswith(end):
        return ""
    return text[len(frame) : len(text) - len(end)]


def is_summary(message: Message) -> bool:
    """Return whether a user message is the summary of a compaction or of a branch."""
    frames = (_SUMMARY.partition("{}")[0], _BRANCH.partition("{}")[0])
    return message.role == "user" and message.text.startswith(frames)


def _in_context(path: Sequence[TranscriptEntry]) -> Sequence[TranscriptEntry]:
    newest = next((n for n in range(len(path) - 1, -1, -1) if path[n].type == "compaction"), None)
    if newest is None:
        return path
    first = path[newest].data.get("firstKeptEntryId")
    kept = next((n for n in range(newest) if path[n].id == first), newest)
    before = [entry for entry in path[kept:newest] if entry.type != "compaction"]
    return [path[newest], *before, *path[newest + 1 :]]


@dataclass(frozen=True, slots=True)
class TranscriptModelState:
    """The model and thinking level that the transcript recorded last."""

    provider: str = ""
    model: str = ""
    thinking: str = ""


def model_state_of(path: Iterable[TranscriptEntry]) -> TranscriptModelState:
    """Return the settings at the end of a path."""
    settings = TranscriptModelState()
    for entry in path:
        settings = apply_entry(settings, entry)
    return settings


def apply_entry(
    settings: TranscriptModelState, entry: TranscriptEntry | NewEntry
) -> TranscriptModelState:
    """Return the settings after an entry."""
    data = entry.data
    match entry.type:
        case "model_change":
            provider, model = _str(data.get("provider")), _str(data.get("modelId"))
            return TranscriptModelState(provider, model, settings.thinking)
        case "thinking_level_change":
            thinking = _str(data.get("thinkingLevel"))
            return TranscriptModelState(settings.provider, settings.model, thinking)
        case _:
            return settings


@dataclass(frozen=True, slots=True)
class OrphanedMessage:
    """A user message without an answer, and the entry to branch from (None: the root)."""

    id: str
    parent: str | None


_SILENT: Final = frozenset(
    {"model_change", "thinking_level_change", "custom", "label", "session_info"}
)


def orphan_of(path: Sequence[TranscriptEntry]) -> OrphanedMessage | None:
    """Return the unanswered user message at the end of a path, or None."""
    for entry in reversed(path):
        if entry.type in _SILENT:
            continue
        message = entry.data.get("message") if entry.type == "message" else None
        if isinstance(message, dict) and message.get("role") == "user":
            return OrphanedMessage(entry.id, entry.parent)
        return None
    return None


def find_turn_base(path: Sequence[TranscriptEntry], question_id: str) -> tuple[bool, str | None]:
    """Return whether a turn can be left out of the path, and the entry that it follows.

    A turn can be left out while it is the last one and has nothing but its question, the settings
    before it, and what its run added: no compaction, and no message of others.
    """
    at = next((n for n, entry in enumerate(path) if entry.id == question_id), None)
    if at is None or not all(_is_of_run(entry) for entry in path[at + 1 :]):
        return False, None
    while at and _is_turn_setting(path[at - 1]):
        at -= 1
    return True, path[at - 1].id if at else None


def _is_of_run(entry: TranscriptEntry) -> bool:
    message = decode_message(entry) if entry.type == "message" else None
    return message is not None and message.role != "user" and not is_injected(message)


def _is_turn_setting(entry: TranscriptEntry) -> bool:
    is_snapshot = entry.type == "custom" and entry.data.get("customType") == "model-snapshot"
    return is_snapshot or entry.type in {"model_change", "thinking_level_change"}


def questions_in(path: Iterable[TranscriptEntry]) -> set[str]:
    """Return the ids of the entries with a user message that a run must answer.

    A copy that only steers a run is none: its own run answers it (`steering_copy`).
    """
    found, is_copy = set[str](), False
    for entry in path:
        message = entry.data.get("message") if entry.type == "message" else None
        if isinstance(message, dict) and message.get("role") == "user" and not is_copy:
            found.add(entry.id)
        is_copy = entry.type == "custom" and entry.data.get("customType") == _STEERING
    return found


def waiting_calls_in(path: Iterable[TranscriptEntry | NewEntry]) -> dict[str, str]:
    """Return the approvals that suspended calls of a path waited for, by call."""
    found: dict[str, str] = {}
    for entry in path:
        if entry.type == "custom" and entry.data.get("customType") == _APPROVAL:
            approvals = _mapping(entry.data.get("data")).get("approvals")
            found |= {call: _str(approval) for call, approval in _mapping(approvals).items()}
    return found


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, dict) else {}


def results_in(path: Iterable[TranscriptEntry]) -> dict[str, ToolResult]:
    """Return the results of a path by their calls, those before a compaction too."""
    messages = (decode_message(entry) for entry in path if entry.type == "message")
    parts = (part for message in messages if message for part in message.parts)
    return {part.call_id: part for part in parts if isinstance(part, ToolResult)}


def has_resumption(path: Iterable[TranscriptEntry]) -> bool:
    """Return whether a suspended run continued on this part of a path."""
    return any(
        entry.type == "custom_message" and entry.data.get("customType") == _APPROVAL
        for entry in path
    )


def ends_with_resumption(path: Sequence[TranscriptEntry], run_id: str) -> bool:
    """Return whether the last entry is the note of a run that continues."""
    data = path[-1].data if path and path[-1].type == "custom_message" else {}
    is_note = data.get("customType") == _APPROVAL
    return is_note and _mapping(data.get("details")).get("runId") == run_id


@dataclass(frozen=True, slots=True)
class SuspendedTurn:
    """What a suspended run did before other turns followed.

    `messages` are its own after its question, `calls` those of them that have no result.
    """

    messages: tuple[Message, ...]
    calls: tuple[ToolCall, ...]


def suspended_turn(
    path: Sequence[TranscriptEntry], question_ids: Collection[str], run_ids: Collection[str]
) -> SuspendedTurn | None:
    """Return the turn of a run whose questions are on the path, with what other runs did left out.

    Returns None when no run was suspended since: then the conversation went on without this one.
    """
    is_own, was_suspended = False, False
    other_questions = questions_in(path) - set(question_ids)
    own: list[Message] = []
    for entry in path:
        data = entry.data
        if data.get("customType") == _APPROVAL:
            was_suspended |= is_own or entry.type == "custom_message"
            if entry.type == "custom_message":
                is_own = _mapping(data.get("details")).get("runId") in run_ids
        elif entry.id in question_ids or entry.id in other_questions:
            is_own = entry.id in question_ids
        elif message := decode_message(entry) if is_own else None:
            own.append(message)
    results = set(results_in(path))
    calls = [call for message in own for call in message.calls if call.id not in results]
    return SuspendedTurn(tuple(own), tuple(calls)) if was_suspended else None


def count_partial_answers(path: Sequence[TranscriptEntry]) -> int:
    """Return how many entries at the end of a path are partial answers."""
    count = 0
    for entry in reversed(path):
        message = decode_message(entry)
        origin = message.origin if message else None
        if origin is None or origin.stop not in CUT_SHORT:
            break
        count += 1
    return count


def pair_calls(
    messages: Sequence[Message], waiting: Mapping[str, str] = MappingProxyType({})
) -> list[Message]:
    """Return the messages with one result right after each call, as providers require.

    A call without a result gets one that says so; a result without a call is left out. A message
    that was injected between a call and its result comes after both. `waiting` are the calls of
    suspended runs, with their approvals: their results may come after other messages.
    """
    paired: list[Message] = []
    open_calls: dict[str, ToolCall] = {}
    between: list[Message] = []
    for index, message in enumerate(messages):
        if message.role == "tool":
            (result,) = (part for part in message.parts if isinstance(part, ToolResult))
            if open_calls.pop(result.call_id, None):
                paired.append(message)
            continue
        if open_calls and is_injected(message):
            between.append(message)
            continue
        if open_calls or between:
            paired.extend(
                _late_result(call, messages[index:], message.at_ms, waiting)
                for call in open_calls.values()
            )
            paired.extend(between)
            between = []
        paired.append(message)
        open_calls = {call.id: call for call in message.calls}
    if open_calls:
        at_ms = messages[-1].at_ms
        paired.extend(_late_result(call, (), at_ms, waiting) for call in open_calls.values())
    return paired + between


def _late_result(
    call: ToolCall, later: Sequence[Message], at_ms: int, waiting: Mapping[str, str]
) -> Message:
    """Return the result that a suspended call got among later messages, or what stands for one."""
    result = interrupted_result(call)
    if call.id in waiting:
        for message in later:
            if any(other.id == call.id for other in message.calls):
                break  # a model may use an id again
            if any(isinstance(p, ToolResult) and p.call_id == call.id for p in message.parts):
                return message
        approval = waiting[call.id] or "of another call"
        text = Text(f"This call was not run: it waits for approval {approval}.")
        result = ToolResult(call.id, call.name, (text,))
    return Message("tool", (result,), at_ms)


def is_injected(message: Message) -> bool:
    """Return whether the message was injected, not written by a model."""
    if message.role != "assistant" or message.calls:
        return False
    origin = message.origin or INJECTED
    return (origin.provider, origin.model) == (INJECTED.provider, INJECTED.model)


def interrupted_result(call: ToolCall) -> ToolResult:
    """Return the result of a call whose outcome is unknown."""
    text = Text("This call was interrupted. Whether it took effect is not known.")
    return ToolResult(call.id, call.name, (text,), is_error=True)
