"""Google's dialect: Gemini's streamGenerateContent and generateContent, models, token counts."""

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import unquote

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
SIGNATURE = "bW9jay1zaWduYXR1cmU="  # on the first call of an answer

_METHOD = re.compile(r"/(?:models|tunedModels)/([^/]+):(generateContent|streamGenerateContent)")
_FINISH = {"stop": "STOP", "length": "MAX_TOKENS", "toolUse": "STOP", "filtered": "SAFETY"}
# What the service says for each status: message, status.
_REFUSALS: dict[int, tuple[str, str]] = {
    400: ("Request contains an invalid argument.", "INVALID_ARGUMENT"),
    401: ("Request had invalid authentication credentials.", "UNAUTHENTICATED"),
    403: ("The caller does not have permission.", "PERMISSION_DENIED"),
    404: ("models/mock-1 is not found for API version v1beta.", "NOT_FOUND"),
    429: ("You exceeded your current quota, please check your plan.", "RESOURCE_EXHAUSTED"),
    500: ("An internal error has occurred.", "INTERNAL"),
    503: ("The model is overloaded. Please try again later.", "UNAVAILABLE"),
    504: ("The request timed out. Please try again.", "DEADLINE_EXCEEDED"),
}
_TROUBLES = {"server_error": 500, "rate_limit_exceeded": 429, "overloaded": 503}
_ids = itertools.count(1)


class GoogleDialect:
    """The endpoints under a model, and the model list of /v1beta."""

    def parse_request(self, path: str, body: Json, body_bytes: int) -> ServerRequest | None:
        method = _METHOD.search(path)
        if method is None or not isinstance(body, dict):
            return None
        contents = body.get("contents")
        turns = contents if isinstance(contents, list) else []
        return ServerRequest(
            model=unquote(method[1]),
            stream=method[2] == "streamGenerateContent",
            said=[said for turn in turns for said in _said(turn)],
            tools=sum(
                len(group.get("functionDeclarations", ())) for group in _objects(body, "tools")
            ),
            body_bytes=body_bytes,
            body=body,
        )

    def other(self, method: str, path: str, body: Json) -> Json | None:
        if method == "GET" and path.endswith("/v1beta/models"):
            methods = ["generateContent", "countTokens"]
            limits = {"inputTokenLimit": 8192, "outputTokenLimit": 1024}
            model = {"name": f"models/{MODEL}", "supportedGenerationMethods": methods, **limits}
            return {"models": [model]}
        if method == "POST" and path.endswith(":countTokens"):
            return {"totalTokens": max(1, len(json.dumps(body)) // 4)}
        return None

    def make_streamer(self, ask: ServerRequest) -> "GeminiStreamer":
        return GeminiStreamer(ask)

    def full_response(self, ask: ServerRequest, steps: Sequence[Content]) -> bytes:
        parts: list[Json] = []
        for step in steps:
            match step:
                case Think():
                    parts.append({"text": "".join(step.pieces), "thought": True})
                case Say():
                    parts.append({"text": "".join(step.pieces)})
                case CallTools():
                    parts += _calls(step.calls)
                case _:
                    pass
        candidate = _candidate(parts, stop_reason(steps, _FINISH))
        return compact_json(
            {**_frame(ask), "candidates": [candidate], "usageMetadata": _usage(ask, steps)}
        )

    def error_response(self, step: Fail | Overflow) -> ErrorResponse:
        if isinstance(step, Overflow):
            message = (
                f"The input token count ({step.asked}) exceeds the maximum number of tokens "
                f"allowed ({step.window})."
            )
            return ErrorResponse(400, compact_json(_error(400, message, "INVALID_ARGUMENT")))
        if step.body is not None:
            return ErrorResponse(step.status, step.body)
        message, status = _REFUSALS.get(step.status, (f"Status {step.status}.", "UNKNOWN"))
        error = _error(step.status, step.message or message, step.code or status)
        if step.retry_after:
            kind = "type.googleapis.com/google.rpc.RetryInfo"
            error["error"]["details"] = [{"@type": kind, "retryDelay": f"{step.retry_after}s"}]
        return ErrorResponse(step.status, compact_json(error))


class GeminiStreamer:
    """One streamed answer."""

    def __init__(self, ask: ServerRequest) -> None:
        self._ask = ask
        self._frame = _frame(ask)
        self._steps: list[Content] = []
        given = max(1, ask.body_bytes // 4)
        details = [{"modality": "TEXT", "tokenCount": given}]
        self._so_far = {
            "promptTokenCount": given,
            "totalTokenCount": given,
            "promptTokensDetails": details,
        }
        # The frame around a piece of text, made once: this is the hot path of every benchmark.
        head, _, tail = self._event([{"text": "\0"}]).partition(b'"\\u0000"')
        self._text_head, self._text_tail = head, tail

    def begin(self) -> list[bytes]:
        return []

    def write(self, step: Content) -> Iterable[bytes]:
        self._steps.append(step)
        match step:
            case Think():
                return (self._event([{"text": text, "thought": True}]) for text in step.pieces)
            case Say():
                return (
                    self._text_head + compact_json(piece) + self._text_tail for piece in step.pieces
                )
            case CallTools():
                return self._call_tools(step)
            case ReportedUsage() | Stop():
                return ()

    def write_error(self, step: StreamFault) -> list[bytes]:
        """Return bare JSON over several lines instead of an event, as the service fails midway."""
        number = _TROUBLES.get(step.code, 0)
        status = _REFUSALS[number][1] if number else step.code.upper()
        return [json.dumps(_error(number, step.message, status), indent=2).encode() + b"\n\n"]

    def end(self) -> list[bytes]:
        candidate = _candidate([{"text": ""}], stop_reason(self._steps, _FINISH))
        usage = _usage(self._ask, self._steps)
        return [_event({"candidates": [candidate], "usageMetadata": usage, **self._frame})]

    def _call_tools(self, step: CallTools) -> Iterator[bytes]:
        for part in _calls(step.calls):
            yield self._event([part])

    def _event(self, parts: list[Json]) -> bytes:
        chunk = {"candidates": [_candidate(parts)], "usageMetadata": self._so_far}
        return _event({**chunk, **self._frame})


def _said(turn: Json) -> list[ServerMessage]:
    """Return the messages of one turn: each tool result, then the text."""
    if not isinstance(turn, dict):
        return []
    parts = _objects(turn, "parts")
    results = [ServerMessage("tool", "") for part in parts if "functionResponse" in part]
    texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
    if turn.get("role") == "model":
        calls = any("functionCall" in part for part in parts)
        return [ServerMessage("assistant", "\n".join(texts), calls)]
    return (
        [*results, ServerMessage("user", "\n".join(texts))] if texts or not results else [*results]
    )


def _objects(held: Mapping[str, Json], name: str) -> list[dict[str, Json]]:
    found = held.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _frame(ask: ServerRequest) -> dict[str, Json]:
    return {"modelVersion": ask.model, "responseId": f"mock{next(_ids):08x}"}


def _candidate(parts: list[Json], finish: str = "") -> dict[str, Json]:
    ended = {"finishReason": finish} if finish else {}
    return {"content": {"parts": parts, "role": "model"}, **ended, "index": 0}


def _calls(calls: Sequence[ScriptedCall]) -> list[Json]:
    parts: list[Json] = []
    for call in calls:
        named = {"id": call.id} if call.id else {}
        function = {"name": call.name, "args": _arguments(call), **named}
        signed = {} if parts else {"thoughtSignature": SIGNATURE}
        parts.append({"functionCall": function, **signed})
    return parts


def _arguments(call: ScriptedCall) -> Json:
    if not isinstance(call.args, str):
        return dict(call.args)
    try:
        return json.loads(call.args)
    except ValueError:
        return call.args


def _usage(ask: ServerRequest, steps: Sequence[Content]) -> dict[str, Json]:
    tokens = usage_of(ask, steps)
    usage = {
        "promptTokenCount": tokens.given,
        "candidatesTokenCount": tokens.answered - tokens.reasoning,
        "totalTokenCount": tokens.given + tokens.answered,
        "cachedContentTokenCount": tokens.cached,
        "thoughtsTokenCount": tokens.reasoning,
    }
    return {name: count for name, count in usage.items() if count}


def _error(code: int, message: str, status: str) -> dict[str, Json]:
    return {"error": {"code": code, "message": message, "status": status}}


def _event(chunk: Json) -> bytes:
    return b"data: " + compact_json(chunk) + b"\n\n"
