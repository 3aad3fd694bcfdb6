"""Assemble an answer of the Gemini API from its chunks.

Parsed chunks go in, deltas come out; at the end the parts, the stop reason and the usage are
available. Parts keep their order and signatures, because both must be sent back unchanged. Unknown
kinds of parts are ignored: the vendor adds some every year.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from homarus.core.message import Image, Json, Part, StopReason, Text, Thinking, ToolCall, Usage
from homarus.providers.base import Delta, TextDelta, ThinkingDelta
from homarus.providers.catalog import Price
from homarus.providers.chat_stream import MalformedChunkError, token_count

MADE_ID = "call_"  # the prefix of ids we give to calls that have none

_LENGTH = frozenset({"MAX_TOKENS", "CONTINUATION"})


class _PartialText:
    """Text or reasoning under assembly. A signature ends it: what follows is another part."""

    __slots__ = ("pieces", "signature", "thought")

    def __init__(self, *, thought: bool) -> None:
        self.thought = thought
        self.pieces: list[str] = []
        self.signature = ""

    def made(self) -> Part:
        text = "".join(self.pieces)
        return Thinking(text, self.signature) if self.thought else Text(text, self.signature)


_Block: TypeAlias = "_PartialText | ToolCall | Image"


class GeminiStreamAssembler:
    """Assembles one streamed answer. `names` maps tool names on the wire to ours."""

    done = False  # the service marks no last event

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        self.finish = ""  # the vendor's finish reason
        self.why = ""  # its explanation
        self.blocked = ""  # why the prompt was blocked
        self._names = names or {}
        self._blocks: list[_Block] = []
        self._open: _PartialText | None = None
        self._ids: set[str] = set()
        self._usage: Json = None

    def add(self, chunk: Mapping[str, Json]) -> Sequence[Delta]:
        self._usage = chunk.get("usageMetadata") or self._usage
        candidates = chunk.get("candidates")
        if not candidates:
            self._note_feedback(chunk.get("promptFeedback"))
            return ()
        if not isinstance(candidates, list) or not isinstance(candidates[0], dict):
            raise MalformedChunkError("candidates are not a list of objects")
        candidate = candidates[0]
        if candidate.get("index"):
            return ()  # a second candidate, which was not requested
        finish = candidate.get("finishReason")
        if finish and finish != "FINISH_REASON_UNSPECIFIED":
            self.finish = str(finish)
            self.why = str(candidate.get("finishMessage") or "")
        content = candidate.get("content")
        if not content:
            return ()
        parts = content.get("parts") if isinstance(content, dict) else content
        if not parts:
            return ()
        if not isinstance(parts, list):
            raise MalformedChunkError("parts are not a list")
        return self._take(parts)

    def message_parts(self) -> tuple[Part, ...]:
        """Return the reasoning, text, tool calls and pictures in order."""
        return tuple(
            block.made() if isinstance(block, _PartialText) else block for block in self._blocks
        )

    def stop(self) -> StopReason:
        if self.finish in _LENGTH:
            return "length"
        return "toolUse" if any(isinstance(b, ToolCall) for b in self._blocks) else "stop"

    def usage(self, price: Price) -> Usage:
        """Return tokens and cost.

        Google includes cached tokens in the input, and counts reasoning apart.
        """
        raw = self._usage if isinstance(self._usage, dict) else {}
        given = token_count(raw, "promptTokenCount") + token_count(raw, "toolUsePromptTokenCount")
        reasoning = token_count(raw, "thoughtsTokenCount")
        answered = token_count(raw, "candidatesTokenCount") + reasoning
        cached = min(token_count(raw, "cachedContentTokenCount"), given)
        fresh = given - cached
        cost = (
            fresh * price.input + answered * price.output + cached * price.cache_read
        ) / 1_000_000
        return Usage(fresh, answered, cached, 0, reasoning, cost)

    def _take(self, parts: list[Json]) -> Sequence[Delta]:
        said: list[Delta] = []
        for part in parts:
            if not isinstance(part, dict):
                raise MalformedChunkError("a part is not an object")
            text = part.get("text")
            if isinstance(text, str):
                delta = self._say(text, part)
                if delta is not None:
                    said.append(delta)
            elif "functionCall" in part:
                self._call(part["functionCall"], _string(part.get("thoughtSignature")))
            elif "inlineData" in part and not part.get("thought"):
                self._show(part["inlineData"])
        return said

    def _say(self, text: str, part: Mapping[str, Json]) -> Delta | None:
        words = self._open
        if len(part) == 1:  # the shape of nearly all chunks
            thought, signature = False, ""
        else:
            thought = part.get("thought") is True
            signature = _string(part.get("thoughtSignature"))
        if not text and not signature:
            return None
        if words is None or words.thought is not thought:
            words = self._open = _PartialText(thought=thought)
            self._blocks.append(words)
        if signature:
            words.signature = signature
            self._open = None
        if not text:
            return None
        words.pieces.append(text)
        return ThinkingDelta(text) if thought else TextDelta(text)

    def _call(self, call: Json, signature: str) -> None:
        if not isinstance(call, dict):
            raise MalformedChunkError("a function call is not an object")
        self._open = None
        name, call_id, args = _string(call.get("name")), _string(call.get("id")), call.get("args")
        if not call_id or call_id in self._ids:
            call_id = f"{MADE_ID}{uuid.uuid4().hex[:24]}"
        self._ids.add(call_id)
        given = args if isinstance(args, dict) else {}
        broken = "" if args is None or args is given else _shown(args)
        name = self._names.get(name, name)
        self._blocks.append(ToolCall(call_id, name, given, broken, signature))

    def _show(self, inline: Json) -> None:
        if not isinstance(inline, dict):
            raise MalformedChunkError("inline data is not an object")
        self._open = None
        data, mime = _string(inline.get("data")), _string(inline.get("mimeType"))
        if data and mime.startswith("image/"):
            self._blocks.append(Image(data, mime))

    def _note_feedback(self, feedback: Json) -> None:
        reason = feedback.get("blockReason") if isinstance(feedback, dict) else None
        if reason and reason != "BLOCKED_REASON_UNSPECIFIED":
            self.blocked = str(reason)


def _shown(args: Json) -> str:
    return args if isinstance(args, str) else json.dumps(args)


def _string(value: Json) -> str:
    return value if isinstance(value, str) else ""
