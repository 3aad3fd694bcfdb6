"""OpenAI's dialect: chat completions, models, embeddings."""

import base64
import hashlib
import itertools
import json
import re
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from homarus.core.message import Json
from homarus.testing.model_server.dialect import (
    ErrorResponse,
    ServerMessage,
    ServerRequest,
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
EMBEDDING_SIZE = 256

_FINISH = {
    "stop": "stop",
    "length": "length",
    "toolUse": "tool_calls",
    "filtered": "content_filter",
}
# What the service says for each status: message, type, code.
_REFUSALS: dict[int, tuple[str, str, str | None]] = {
    400: ("We could not parse the JSON body of your request.", "invalid_request_error", None),
    401: ("Incorrect API key provided.", "invalid_request_error", "invalid_api_key"),
    402: ("Insufficient credits.", "insufficient_quota", "insufficient_quota"),
    403: ("You are not allowed to use this model.", "invalid_request_error", None),
    404: ("The model does not exist.", "invalid_request_error", "model_not_found"),
    408: ("Request timeout.", "timeout", None),
    429: ("Rate limit reached for requests.", "requests", "rate_limit_exceeded"),
    500: ("The server had an error while processing your request.", "server_error", None),
    503: ("The engine is currently overloaded.", "server_error", None),
    529: ("Overloaded.", "overloaded_error", None),
}
_ids = itertools.count(1)


class OpenAIDialect:
    """The endpoints under /v1."""

    def parse_request(self, path: str, body: Json, body_bytes: int) -> ServerRequest | None:
        if not path.endswith("/chat/completions") or not isinstance(body, dict):
            return None
        messages = body.get("messages")
        return ServerRequest(
            model=str(body.get("model", MODEL)),
            stream=bool(body.get("stream")),
            said=[_said(m) for m in messages] if isinstance(messages, list) else [],
            tools=len(body.get("tools") or ()),
            body_bytes=body_bytes,
            body=body,
        )

    def other(self, method: str, path: str, body: Json) -> Json | None:
        if method == "GET" and path.endswith("/models"):
            models = [{"id": MODEL, "object": "model", "created": 0, "owned_by": "mock"}]
            return {"object": "list", "data": models}
        if method == "POST" and path.endswith("/embeddings") and isinstance(body, dict):
            return _embeddings(body)
        return None

    def make_streamer(self, ask: ServerRequest) -> "ChatStreamer":
        return ChatStreamer(ask)

    def full_response(self, ask: ServerRequest, steps: Sequence[Content]) -> bytes:
        message: dict[str, Json] = {"role": "assistant", "content": None}
        thought = "".join(p for s in steps if isinstance(s, Think) for p in s.pieces)
        text = [p for s in steps if type(s) is Say for p in s.pieces]
        calls = [call for s in steps if isinstance(s, CallTools) for call in s.calls]
        if text:
            message["content"] = "".join(text)
        if thought:
            message["reasoning_content"] = thought
        if calls:
            message["tool_calls"] = [_call(call) for call in calls]
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": stop_reason(steps, _FINISH),
        }
        frame = _frame(ask, "chat.completion")
        return compact_json({**frame, "choices": [choice], "usage": _usage(ask, steps)})

    def error_response(self, step: Fail | Overflow) -> ErrorResponse:
        if isinstance(step, Overflow):
            message = (
                f"This model's maximum context length is {step.window} tokens. However, your "
                f"messages resulted in {step.asked} tokens. Please reduce the length of the "
                "messages."
            )
            kind, code = "invalid_request_error", "context_length_exceeded"
            return ErrorResponse(400, _error(message, kind, code))
        if step.body is not None:
            return ErrorResponse(step.status, step.body)
        message, kind, known = _REFUSALS.get(
            step.status, (f"Status {step.status}.", "invalid_request_error", None)
        )
        return ErrorResponse(step.status, _error(step.message or message, kind, step.code or known))


class ChatStreamer:
    """One streamed chat completion."""

    def __init__(self, ask: ServerRequest) -> None:
        self._ask = ask
        self._frame = _frame(ask, "chat.completion.chunk")
        self._steps: list[Content] = []
        self._calls = 0
        # The frame around a piece of text, made once: this is the hot path of every benchmark.
        around = compact_json({**self._frame, "choices": [_choice({"content": "\0"})]})
        head, _, tail = around.partition(b'"\\u0000"')
        self._text_head, self._text_tail = b"data: " + head, tail + b"\n\n"

    def begin(self) -> list[bytes]:
        return [self._event({"role": "assistant", "content": ""})]

    def write(self, step: Content) -> Iterable[bytes]:
        self._steps.append(step)
        match step:
            case Think():
                return (self._event({"reasoning_content": piece}) for piece in step.pieces)
            case Say():
                return (
                    self._text_head + compact_json(piece) + self._text_tail for piece in step.pieces
                )
            case CallTools():
                return self._call_tools(step)
            case ReportedUsage() | Stop():
                return ()

    def write_error(self, step: StreamFault) -> list[bytes]:
        return [b"data: " + _error(step.message, step.code, step.code) + b"\n\n"]

    def end(self) -> list[bytes]:
        events = [self._event({}, stop_reason(self._steps, _FINISH))]
        options = self._ask.body.get("stream_options")
        if isinstance(options, dict) and options.get("include_usage"):
            usage = _usage(self._ask, self._steps)
            events.append(_event({**self._frame, "choices": [], "usage": usage}))
        return [*events, b"data: [DONE]\n\n"]

    def _event(self, delta: Mapping[str, Json], finish: str | None = None) -> bytes:
        return _event({**self._frame, "choices": [_choice(delta, finish)]})

    def _call_tools(self, step: CallTools) -> Iterator[bytes]:
        first = self._calls
        self._calls += len(step.calls)
        for index, call in enumerate(step.calls, first):
            begun = _call(call)
            begun["function"]["arguments"] = ""
            yield self._event({"tool_calls": [{"index": index, **begun}]})
        rest = {i: _arguments(call) for i, call in enumerate(step.calls, first)}
        while any(rest.values()):
            for index, text in rest.items():
                piece, rest[index] = text[: step.piece_chars], text[step.piece_chars :]
                if piece:
                    function = {"arguments": piece}
                    yield self._event({"tool_calls": [{"index": index, "function": function}]})


def embedding(text: str, size: int = EMBEDDING_SIZE) -> list[float]:
    """Return a normalised bag of hashed words: the same text gives the same vector everywhere."""
    vector = [0.0] * size
    for word in re.findall(r"\w+", text.lower()):
        digest = hashlib.sha256(word.encode()).digest()
        vector[int.from_bytes(digest[:4], "big") % size] += 1.0 if digest[4] % 2 else -1.0
    length = sum(x * x for x in vector) ** 0.5
    return [x / length for x in vector] if length else [1.0, *vector[1:]]


def _embeddings(body: Mapping[str, Json]) -> Json:
    given = body.get("input")
    texts = given if isinstance(given, list) else [given]
    packed = body.get("encoding_format") == "base64"
    size = int(body.get("dimensions") or EMBEDDING_SIZE)
    data = []
    for index, text in enumerate(texts):
        vector: Json = embedding(str(text), size)
        if packed:
            vector = base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
        data.append({"object": "embedding", "index": index, "embedding": vector})
    used = sum(len(str(text).split()) for text in texts)
    usage = {"prompt_tokens": used, "total_tokens": used}
    return {"object": "list", "data": data, "model": body.get("model", MODEL), "usage": usage}


def _said(message: Json) -> ServerMessage:
    if not isinstance(message, dict):
        return ServerMessage("", "")
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        content = "\n".join(text for text in parts if isinstance(text, str))
    text = content if isinstance(content, str) else ""
    return ServerMessage(str(message.get("role")), text, calls=bool(message.get("tool_calls")))


def _frame(ask: ServerRequest, kind: str) -> dict[str, Json]:
    made = {"id": f"chatcmpl-{next(_ids):08x}", "object": kind, "created": int(time.time())}
    return {**made, "model": ask.model, "system_fingerprint": "fp_mock"}


def _choice(delta: Mapping[str, Json], finish: str | None = None) -> dict[str, Json]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def _call(call: ScriptedCall) -> dict[str, Json]:
    function = {"name": call.name, "arguments": _arguments(call)}
    return {"id": call.id or f"call_{next(_ids):08x}", "type": "function", "function": function}


def _arguments(call: ScriptedCall) -> str:
    return call.args if isinstance(call.args, str) else json.dumps(dict(call.args))


def _usage(ask: ServerRequest, steps: Sequence[Content]) -> dict[str, Json]:
    tokens = usage_of(ask, steps)
    return {
        "prompt_tokens": tokens.given,
        "completion_tokens": tokens.answered,
        "total_tokens": tokens.given + tokens.answered,
        "prompt_tokens_details": {"cached_tokens": tokens.cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning, "audio_tokens": 0},
    }


def _error(message: str, kind: str, code: str | None) -> bytes:
    return compact_json({"error": {"message": message, "type": kind, "param": None, "code": code}})


def _event(chunk: Json) -> bytes:
    return b"data: " + compact_json(chunk) + b"\n\n"
