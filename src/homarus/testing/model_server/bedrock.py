"""Bedrock's dialect: Converse, and ConverseStream in AWS's binary event stream."""

import itertools
import json
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import unquote
from zlib import crc32

from homarus.core.message import Json
from homarus.testing.model_server.dialect import (
    ErrorResponse,
    ServerMessage,
    ServerRequest,
    call_input,
    compact_json,
    stop_reason,
    usage_of,
)
from homarus.testing.model_server.script import (
    CallTools,
    Content,
    Fail,
    Overflow,
    ReportedUsage,
    Say,
    ScriptedCall,
    Stop,
    StreamFault,
    Think,
)

SIGNATURE = "bW9jay1zaWduYXR1cmU="
STREAM_TYPE = "application/vnd.amazon.eventstream"

_PATH = re.compile(r"/model/([^/]+)/converse(-stream)?$")
_STOPS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "toolUse": "tool_use",
    "filtered": "content_filtered",
}
# What the service says for each status: message, type.
_REFUSALS: dict[int, tuple[str, str]] = {
    400: ("The provided model identifier is invalid.", "ValidationException"),
    401: ("Authentication failed.", "UnauthorizedException"),
    403: ("The security token included in the request is invalid.", "UnrecognizedClientException"),
    404: ("Could not resolve the foundation model.", "ResourceNotFoundException"),
    408: ("The model took too long.", "ModelTimeoutException"),
    424: ("The model failed.", "ModelErrorException"),
    429: ("Too many requests, please wait before trying again.", "ThrottlingException"),
    500: ("The server failed.", "InternalServerException"),
    503: ("Bedrock is unable to process your request.", "ServiceUnavailableException"),
}
_TROUBLES = {"server_error": "internalServerException"}
_ids = itertools.count(1)


class BedrockDialect:
    """The endpoints under a model."""

    def parse_request(self, path: str, body: Json, body_bytes: int) -> ServerRequest | None:
        found = _PATH.search(path)
        if found is None or not isinstance(body, dict):
            return None
        return ServerRequest(
            model=unquote(found[1]),
            stream=bool(found[2]),
            said=[said for turn in _objects(body.get("messages")) for said in _said(turn)],
            tools=len((body.get("toolConfig") or {}).get("tools", ())),
            body_bytes=body_bytes,
            body=body,
            content_type=STREAM_TYPE,
        )

    def other(self, method: str, path: str, body: Json) -> Json | None:
        return None

    def make_streamer(self, ask: ServerRequest) -> "ConverseStreamer":
        return ConverseStreamer(ask)

    def full_response(self, ask: ServerRequest, steps: Sequence[Content]) -> bytes:
        content: list[Json] = []
        for step in steps:
            match step:
                case Think():
                    thought = {"text": "".join(step.pieces), "signature": SIGNATURE}
                    content.append({"reasoningContent": {"reasoningText": thought}})
                case Say():
                    content.append({"text": "".join(step.pieces)})
                case CallTools():
                    content += [
                        {"toolUse": {**_tool(c), "input": call_input(c)}} for c in step.calls
                    ]
                case _:
                    pass
        answer = {"message": {"role": "assistant", "content": content}}
        metrics = {"usage": _usage(ask, steps), "metrics": {"latencyMs": 1}}
        return compact_json(
            {
                "output": answer,
                "stopReason": stop_reason(steps, _STOPS),
                **metrics,
            }
        )

    def error_response(self, step: Fail | Overflow) -> ErrorResponse:
        if isinstance(step, Overflow):
            return _refusal(400, "Input is too long for requested model.", "ValidationException")
        words, kind = _REFUSALS.get(step.status, (f"Status {step.status}.", ""))
        refusal = _refusal(step.status, step.message or words, step.code or kind)
        if step.body is not None:
            return ErrorResponse(step.status, step.body, refusal.headers)
        return refusal


class ConverseStreamer:
    """One streamed answer with its blocks in sequence."""

    def __init__(self, ask: ServerRequest) -> None:
        self._ask = ask
        self._steps: list[Content] = []
        self._index = -1
        self._open = ""  # the kind of the block that is open

    def begin(self) -> list[bytes]:
        return [event("messageStart", role="assistant")]

    def write(self, step: Content) -> Iterable[bytes]:
        self._steps.append(step)
        match step:
            case Think():
                return self._think(step.pieces)
            case Say():
                return self._say(step.pieces)
            case CallTools():
                return self._call_tools(step)
            case ReportedUsage() | Stop():
                return ()

    def write_error(self, step: StreamFault) -> list[bytes]:
        name = _TROUBLES.get(step.code, step.code)
        headers = {":exception-type": name, ":message-type": "exception"}
        return [frame(headers, compact_json({"message": step.message}))]

    def end(self) -> list[bytes]:
        usage, metrics = _usage(self._ask, self._steps), {"latencyMs": 1}
        return [
            *self._close(),
            event("messageStop", stopReason=stop_reason(self._steps, _STOPS)),
            event("metadata", usage=usage, metrics=metrics),
        ]

    def _think(self, pieces: Sequence[str]) -> Iterator[bytes]:
        yield from self._begin("reasoning")
        for piece in pieces:
            yield self._delta({"reasoningContent": {"text": piece}})

    def _say(self, pieces: Sequence[str]) -> Iterator[bytes]:
        yield from self._begin("text")
        for piece in pieces:
            yield self._delta({"text": piece})

    def _call_tools(self, step: CallTools) -> Iterator[bytes]:
        for call in step.calls:
            yield from self._begin("toolUse", another=True)
            start = {"toolUse": _tool(call)}
            yield event("contentBlockStart", start=start, contentBlockIndex=self._index)
            text = call.args if isinstance(call.args, str) else json.dumps(dict(call.args))
            for at in range(0, len(text), step.piece_chars):
                yield self._delta({"toolUse": {"input": text[at : at + step.piece_chars]}})

    def _begin(self, kind: str, *, another: bool = False) -> list[bytes]:
        """Start a block; text and reasoning start with their first piece, without an event."""
        if self._open == kind and not another:
            return []
        closed = self._close()
        self._index += 1
        self._open = kind
        return closed

    def _close(self) -> list[bytes]:
        kind, self._open = self._open, ""
        if not kind:
            return []
        signed = [self._delta({"reasoningContent": {"signature": SIGNATURE}})]
        stop = event("contentBlockStop", contentBlockIndex=self._index)
        return [*(signed if kind == "reasoning" else ()), stop]

    def _delta(self, delta: Json) -> bytes:
        return event("contentBlockDelta", delta=delta, contentBlockIndex=self._index)


def event(name: str, **fields: Json) -> bytes:
    """Return one event as a frame, padded as the service pads it."""
    headers = {":event-type": name, ":message-type": "event"}
    return frame(headers, compact_json({**fields, "p": "abcdefghij"[: next(_ids) % 10]}))


def frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Return a frame of AWS's event stream."""
    raw = b"".join(
        struct.pack("!B", len(name)) + name.encode() + _text(value)
        for name, value in {**headers, ":content-type": "application/json"}.items()
    )
    lengths = struct.pack("!II", len(raw) + len(payload) + 16, len(raw))
    data = lengths + struct.pack("!I", crc32(lengths)) + raw + payload
    return data + struct.pack("!I", crc32(data))


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("!BH", 7, len(raw)) + raw


def _said(turn: Mapping[str, Json]) -> Iterator[ServerMessage]:
    """Return the messages of a turn; tool results in a user's turn count as the tools' messages."""
    blocks = _objects(turn.get("content"))
    results = [block["toolResult"] for block in blocks if "toolResult" in block]
    yield from (
        ServerMessage("tool", _text_of(_objects(result.get("content")))) for result in results
    )
    own = [block for block in blocks if "toolResult" not in block and "cachePoint" not in block]
    if own:
        calls = any("toolUse" in block for block in own)
        yield ServerMessage(str(turn.get("role")), _text_of(own), calls=calls)


def _objects(value: Json) -> list[dict[str, Json]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _text_of(blocks: Iterable[Mapping[str, Json]]) -> str:
    return "\n".join(text for b in blocks if isinstance(text := b.get("text"), str))


def _tool(call: ScriptedCall) -> dict[str, Json]:
    return {"toolUseId": call.id or f"tooluse_{next(_ids):08x}", "name": call.name}


def _usage(ask: ServerRequest, steps: Sequence[Content]) -> dict[str, Json]:
    tokens = usage_of(ask, steps)
    return {
        "inputTokens": tokens.given - tokens.cached,
        "outputTokens": tokens.answered,
        "totalTokens": tokens.given + tokens.answered,
        "cacheReadInputTokens": tokens.cached,
        "cacheWriteInputTokens": 0,
    }


def _refusal(status: int, words: str, kind: str) -> ErrorResponse:
    headers = {"x-amzn-ErrorType": kind} if kind else {}
    return ErrorResponse(status, compact_json({"message": words}), headers)
