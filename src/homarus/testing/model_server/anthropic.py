"""Anthropic's dialect: messages and token counting."""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

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

MODEL = "mock-1"
_ASKED = ("/messages", ":streamRawPredict")  # the second is Google Cloud's
SIGNATURE = "bW9jay1zaWduYXR1cmU="

_STOPS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "toolUse": "tool_use",
    "filtered": "refusal",
}
# What the service says for each status: message, type.
_REFUSALS: dict[int, tuple[str, str]] = {
    400: ("max_tokens: Field required", "invalid_request_error"),
    401: ("invalid x-api-key", "authentication_error"),
    402: ("Your payment could not be processed.", "billing_error"),
    403: ("Your key may not use this model.", "permission_error"),
    404: ("model: mock-1", "not_found_error"),
    408: ("Request timeout.", "timeout_error"),
    413: ("Request exceeds the maximum size", "request_too_large"),
    429: ("This request would exceed your organization's rate limit.", "rate_limit_error"),
    500: ("Internal server error", "api_error"),
    529: ("Overloaded", "overloaded_error"),
}
_ids = itertools.count(1)


class AnthropicDialect:
    """The endpoints under /v1/messages."""

    def parse_request(self, path: str, body: Json, body_bytes: int) -> ServerRequest | None:
        if not path.endswith(_ASKED) or not isinstance(body, dict):
            return None
        messages = body.get("messages")
        turns = messages if isinstance(messages, list) else []
        return ServerRequest(
            model=str(body.get("model", MODEL)),
            stream=bool(body.get("stream")),
            said=[said for turn in turns for said in _said(turn)],
            tools=len(body.get("tools") or ()),
            body_bytes=body_bytes,
            body=body,
        )

    def other(self, method: str, path: str, body: Json) -> Json | None:
        if method == "POST" and path.endswith("/messages/count_tokens"):
            return {"input_tokens": max(1, len(json.dumps(body)) // 4)}
        return None

    def make_streamer(self, ask: ServerRequest) -> "MessageStreamer":
        return MessageStreamer(ask)

    def full_response(self, ask: ServerRequest, steps: Sequence[Content]) -> bytes:
        content: list[Json] = []
        for step in steps:
            match step:
                case Think():
                    content.append(_thinking("".join(step.pieces), SIGNATURE))
                case Say() if "".join(step.pieces):
                    content.append({"type": "text", "text": "".join(step.pieces)})
                case CallTools():
                    content += [{**_tool_use(c), "input": call_input(c)} for c in step.calls]
                case _:
                    pass
        message = {
            **_message(ask),
            "content": content,
            "stop_reason": stop_reason(steps, _STOPS),
        }
        return compact_json({**message, "usage": _usage(ask, steps)})

    def error_response(self, step: Fail | Overflow) -> ErrorResponse:
        if isinstance(step, Overflow):
            words = f"prompt is too long: {step.asked} tokens > {step.window} maximum"
            return ErrorResponse(400, compact_json(_error(words, "invalid_request_error")))
        if step.body is not None:
            return ErrorResponse(step.status, step.body)
        words, kind = _REFUSALS.get(step.status, (f"Status {step.status}.", "api_error"))
        return ErrorResponse(
            step.status, compact_json(_error(step.message or words, step.code or kind))
        )


class MessageStreamer:
    """One streamed message with its blocks in sequence."""

    def __init__(self, ask: ServerRequest) -> None:
        self._ask = ask
        self._steps: list[Content] = []
        self._index = -1
        self._open = ""  # the kind of the block that is open

    def begin(self) -> list[bytes]:
        message = {**_message(self._ask), "content": [], "stop_reason": None}
        message["usage"] = {**_usage(self._ask, ()), "output_tokens": 1}
        return [_event("message_start", message=message), _event("ping")]

    def write(self, step: Content) -> Iterable[bytes]:
        self._steps.append(step)
        match step:
            case Think():
                return self._say("thinking", _thinking("", ""), step.pieces)
            case Say():
                return self._say("text", {"type": "text", "text": ""}, step.pieces)
            case CallTools():
                return self._call_tools(step)
            case ReportedUsage() | Stop():
                return ()

    def write_error(self, step: StreamFault) -> list[bytes]:
        kind = "api_error" if step.code == "server_error" else step.code
        return [_event("error", error=_error(step.message, kind)["error"])]

    def end(self) -> list[bytes]:
        delta = {
            "stop_reason": stop_reason(self._steps, _STOPS),
            "stop_sequence": None,
        }
        usage = _usage(self._ask, self._steps)
        return [
            *self._close(),
            _event("message_delta", delta=delta, usage=usage),
            _event("message_stop"),
        ]

    def _say(self, kind: str, block: Json, pieces: Sequence[str]) -> Iterator[bytes]:
        if self._open != kind:
            yield from self._begin(kind, block)
        # The frame around a piece, made once: this is the hot path of every benchmark.
        around = self._delta({"type": f"{kind}_delta", kind: "\0"})
        head, _, tail = around.partition(b'"\\u0000"')
        for piece in pieces:
            yield head + compact_json(piece) + tail

    def _call_tools(self, step: CallTools) -> Iterator[bytes]:
        for call in step.calls:
            yield from self._begin("tool_use", {**_tool_use(call), "input": {}})
            text = call.args if isinstance(call.args, str) else json.dumps(dict(call.args))
            yield self._delta({"type": "input_json_delta", "partial_json": ""})
            for start in range(0, len(text), step.piece_chars):
                piece = text[start : start + step.piece_chars]
                yield self._delta({"type": "input_json_delta", "partial_json": piece})

    def _begin(self, kind: str, block: Json) -> list[bytes]:
        closed = self._close()
        self._index += 1
        self._open = kind
        return [*closed, _event("content_block_start", index=self._index, content_block=block)]

    def _close(self) -> list[bytes]:
        kind, self._open = self._open, ""
        if not kind:
            return []
        signed = [self._delta({"type": "signature_delta", "signature": SIGNATURE})]
        stop = _event("content_block_stop", index=self._index)
        return [*(signed if kind == "thinking" else ()), stop]

    def _delta(self, delta: Json) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)


def _said(turn: Json) -> Iterator[ServerMessage]:
    """Return the messages of a turn; tool results in a user's turn count as the tools' messages."""
    if not isinstance(turn, dict):
        return
    role, content = str(turn.get("role")), turn.get("content")
    blocks = [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []
    results = [b for b in blocks if b.get("type") == "tool_result"]
    yield from (ServerMessage("tool", _text_of(result.get("content"))) for result in results)
    if isinstance(content, str) or len(blocks) > len(results):
        calls = any(block.get("type") == "tool_use" for block in blocks)
        yield ServerMessage(role, _text_of(content), calls=calls)


def _text_of(content: Json) -> str:
    if isinstance(content, list):
        texts = [block.get("text") for block in content if isinstance(block, dict)]
        return "\n".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def _message(ask: ServerRequest) -> dict[str, Json]:
    made = {"id": f"msg_{next(_ids):08x}", "type": "message", "role": "assistant"}
    return {**made, "model": ask.model, "stop_sequence": None}


def _thinking(text: str, signature: str) -> dict[str, Json]:
    return {"type": "thinking", "thinking": text, "signature": signature}


def _tool_use(call: ScriptedCall) -> dict[str, Json]:
    return {"type": "tool_use", "id": call.id or f"toolu_{next(_ids):08x}", "name": call.name}


def _usage(ask: ServerRequest, steps: Sequence[Content]) -> dict[str, Json]:
    tokens = usage_of(ask, steps)
    return {
        "input_tokens": tokens.given - tokens.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": tokens.cached,
        "output_tokens": tokens.answered,
        "output_tokens_details": {"thinking_tokens": tokens.reasoning},
    }


def _error(message: str, kind: str) -> dict[str, Json]:
    error = {"type": kind, "message": message}
    return {"type": "error", "error": error, "request_id": f"req_{next(_ids):08x}"}


def _event(kind: str, **fields: Json) -> bytes:
    data: Mapping[str, Json] = {"type": kind, **fields}
    return b"event: " + kind.encode() + b"\ndata: " + compact_json(data) + b"\n\n"
