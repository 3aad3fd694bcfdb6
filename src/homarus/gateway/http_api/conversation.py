"""The conversation of a request, in the form that both endpoints for runs give it.

A session that exists for longer has its own history: only what comes after the last answer of the
request goes to it. A session of this request alone gets all of it, each message with its role.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Final, Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Image, Json, Message, Origin, Part, Text, ToolCall, ToolResult
from homarus.core.text import one_line
from homarus.gateway.http_api.api_error import ApiError
from homarus.sessions.transcript import encode_message

PartKind: TypeAlias = Literal["image", "file"]
ConversationRole: TypeAlias = Literal["user", "assistant", "tool"]
# The origin of answers that a program says were given before.
_ORIGIN: Final = Origin("", "client", "request")


@dataclass(frozen=True, slots=True)
class SentPart:
    """An image or a file of a message: in base64 or a `data:` URL, or an address to fetch."""

    kind: PartKind
    source: str
    is_url: bool = False
    mime: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message of a request. One of a tool has the id of the call that it is the result of."""

    role: ConversationRole
    text: str = ""
    parts: tuple[SentPart, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class SentConversation:
    """The conversation of a request: what it says to the agent, and what came before."""

    system: str = ""
    earlier: tuple[SentMessage, ...] = ()
    results: tuple[SentMessage, ...] = ()
    questions: tuple[SentMessage, ...] = ()

    @property
    def text(self) -> str:
        return "\n\n".join(one.text for one in self.questions if one.text.strip())


def split_conversation(
    system: Iterable[str], messages: Sequence[SentMessage], *, is_single: bool, param: str
) -> SentConversation:
    """Return what a request says to the agent; raises ApiError (400) if that is nothing.

    `is_single`: the session has no history but what the request brings.
    """
    last = max((n for n, one in enumerate(messages) if one.role == "assistant"), default=-1)
    tail = messages[last + 1 :]
    results = tuple(one for one in tail if one.role == "tool")
    questions = tuple(one for one in tail if one.role == "user")
    if not results and not any(one.text.strip() or one.parts for one in questions):
        raise ApiError(400, "a message of the user is missing at the end", param=param)
    prompt = "\n\n".join(text.strip() for text in system if text.strip())
    if not is_single:
        return SentConversation(prompt, (), results, questions)
    first_question = next((n for n, one in enumerate(tail) if one.role == "user"), len(tail))
    earlier = (*messages[: last + 1], *tail[:first_question])
    if any(one.role == "tool" for one in tail[first_question:]):
        raise ApiError(400, "results of tools come right after the calls", param=param)
    check_calls(earlier, param)
    return SentConversation(prompt, earlier, (), questions)


def check_calls(messages: Sequence[SentMessage], param: str) -> None:
    """Raise ApiError (400) unless each call has one result, right after it, and the other way."""
    open_calls = dict[str, ToolCall]()
    for message in messages:
        if message.role == "tool":
            if open_calls.pop(message.call_id, None) is None:
                shown = one_line(message.call_id, 80)
                raise ApiError(400, f"no tool call {shown!r} waits for a result", param=param)
            continue
        _check_answered(open_calls, param)
        open_calls = {call.id: call for call in message.calls}
        if len(open_calls) != len(message.calls):
            raise ApiError(400, "two tool calls have the same id", param=param)
    _check_answered(open_calls, param)


def _check_answered(open_calls: dict[str, ToolCall], param: str) -> None:
    for call_id in open_calls:
        shown = one_line(call_id, 80)
        raise ApiError(400, f"the tool call {shown!r} has no result", param=param)


@dataclass(frozen=True, slots=True)
class DecodedParts:
    """The images of messages, by the message."""

    images: dict[int, tuple[Image, ...]] = field(default_factory=dict)

    def of(self, message: SentMessage) -> tuple[Image, ...]:
        return self.images.get(id(message), ())


def encode_history(
    messages: Sequence[SentMessage], decoded: DecodedParts
) -> tuple[dict[str, Json], ...]:
    """Return messages in the transcript's format."""
    names = {call.id: call.name for message in messages for call in message.calls}
    return tuple(
        encode_message(_as_message(message, decoded.of(message), names)) for message in messages
    )


def _as_message(message: SentMessage, images: tuple[Image, ...], names: dict[str, str]) -> Message:
    if message.role == "tool":
        name = names.get(message.call_id, "")
        result = ToolResult(message.call_id, name, (Text(message.text), *images))
        return Message("tool", (result,))
    text: tuple[Part, ...] = (Text(message.text),) if message.text or not message.calls else ()
    if message.role == "user":
        return Message("user", (*text, *images))
    return Message("assistant", (*text, *message.calls), origin=_ORIGIN)


def parse_call(call_id: str, name: str, arguments: str) -> ToolCall:
    """Return a call that a request brings back; its arguments may be no JSON."""
    try:
        args = json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        return ToolCall(call_id, name, {}, arguments)
    return (
        ToolCall(call_id, name, args)
        if isinstance(args, dict)
        else ToolCall(call_id, name, {}, arguments)
    )
